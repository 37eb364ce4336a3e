"""Cases about preemption: victims, nominated nodes, and preemption by gangs."""
