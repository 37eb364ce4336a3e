"""The controllers of kube-controller-manager that a test cluster needs, run on the server's clock.

A controller is notified of a change during the write that made it. The notification only puts a key into a work queue;
the controller handles the key in a later iteration of the event loop and never writes during a notification.
"""
