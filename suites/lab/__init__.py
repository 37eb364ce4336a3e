"""Jobs that share the devices of a lab."""
