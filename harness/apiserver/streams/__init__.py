"""Answers that go on after their first byte: protocols of exec, attach and portforward, and the shape of a stream.

Here: WebSocket and SPDY/3.1, the subprotocols that kubelet uses over them, the types of streaming responses.
Not here: which container a stream belongs to (`verbs.commands`), sockets (`transport`), what a watch sends (`storage`).
"""
