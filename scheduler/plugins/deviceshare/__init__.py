"""Which accelerators and NICs a pod gets (Koordinator pkg/scheduler/plugins/deviceshare)."""
