"""DeviceShare: which accelerators and NICs a pod gets (Koordinator pkg/scheduler/plugins/deviceshare).

Reading order: `request` and `hints` (the request), `states` and `cache` (the devices of a node), `allocator` with
`gpus`, `partitions`, `topology`, `plainlist` and `joint` (the choice), `plugin` (the extension points).
"""
