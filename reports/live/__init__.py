"""The live page: a cluster of `seatrial up`, or a run of `seatrial run`, as it is now, in a browser.

`ClusterView` and `RunView` keep the rows of the page, `server` serves them, `__main__` is the process.
"""
