"""A request as data: path, query, headers and body, parsed and checked, before a verb works on it.

Here: the request context, body decoding and its limits, content negotiation, the options of a write. Not here: the
bytes of a connection (`transport`), and anything that reads the store.
"""
