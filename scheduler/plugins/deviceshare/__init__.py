"""Which accelerators and NICs a pod gets (Koordinator pkg/scheduler/plugins/deviceshare).

Read in this order: `request` and `hints` (what is asked), `states` and `cache` (what is there), `allocator` (which
devices; by `gpus`, `partitions`, `topology`, `plainlist`, `joint`), `plugin` (what the scheduler asks of all this).
"""
