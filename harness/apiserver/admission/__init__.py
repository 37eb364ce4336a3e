"""What happens to an object before it is stored: defaults, admission plugins, webhooks and validation, in order.

Here: the admission chain, admission plugins that need the store (priority classes, cluster IPs), the cache of
completed pod specs. Not here: the single defaults and rules (`defaults`, `validation`), and the calls to webhooks
(`webhooks`).
"""
