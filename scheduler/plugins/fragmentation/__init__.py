"""DeviceFragmentation, a score plugin of our own: keep idle GPU usable for the pods that come later.

The arithmetic is in `seatrial.scheduler.packing`. Here belong its arguments, what it reads of pods and nodes, and what
it estimates from the pods that arrive.
"""
