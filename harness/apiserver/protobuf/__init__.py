"""Request bodies as Go clients send them: Kubernetes' protocol buffers, read into the objects that JSON would give."""
