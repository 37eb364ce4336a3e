"""Requests to an API server: verbs, informers, events, leader election, kubeconfigs.

No module has rules of scheduling. Sockets are behind `seatrial.scheduler.api.transport`.
"""
