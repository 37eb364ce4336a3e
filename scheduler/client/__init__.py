"""Requests to an API server: verbs, informers, events, leader election, kubeconfigs.

No module knows a rule of scheduling. Sockets are behind `seatrial.scheduler.api.transport`.
"""
