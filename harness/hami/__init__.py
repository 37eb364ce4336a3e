"""HAMi on a host: its shared regions, the metrics of its vGPUmonitor, its daemon's chart, checks of its isolation."""
