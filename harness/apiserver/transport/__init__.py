"""How requests reach the server: HTTP/1.1 over TLS, and calls within the process.

Here: listening sockets, connections, header parsing and its cache, watches written to a socket, the in-process
transport. Not here: anything about kinds and objects; a transport hands requests to `server`.
"""
