"""What the server does for a request: create, update, patch, delete, get, list, watch and the subresources.

Here: the verbs for every kind, bind, evict, scale, logs, exec, attach and portforward, kinds that are served in two
versions. Not here: routing of a path to a verb (`server`), rules of single kinds (`admission` and below).
"""
