"""Which kinds the server serves, and the documents that describe them to clients.

Here: the registry of resources, the discovery documents, the OpenAPI documents for kubectl. Not here: the schema of
a kind (`schemas`), and what is done with its objects (`verbs`).
"""
