"""The object store: collections, revisions, and what is read from them by selection, in pages and by watches.

Here: stored objects and their changes, watch channels, list options and continue tokens, label and field selectors.
Not here: any rule of a kind, and any HTTP.
"""
