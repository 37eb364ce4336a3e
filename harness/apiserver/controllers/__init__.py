"""The controllers that a test bed needs, each following the store on the server's clock.

A controller hears of changes within the write that made them, notes what has to be done, and does it in a later turn of
the clock: it never writes from inside a write.
"""
