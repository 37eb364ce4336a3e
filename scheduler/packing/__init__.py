"""Which placements keep GPUs usable for the pods that come later: arithmetic over columns of nodes and pod shapes.

Here belong fragmentation and opportunity costs, without any knowledge of plugins, caches or Kubernetes objects. The
plugin DeviceFragmentation and the replay of traces (`seatrial.harness.replay`) call the same functions.

Units: CPU in thousandths of a core, GPU in thousandths of a card, memory in any unit that nodes and pods share.
"""
