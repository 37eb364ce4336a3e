"""The vocabulary that scheduler, harness and suites share: wire types, keys, codecs, quantities, clocks, builders; and
the making of certificates.

Code that computes what a pod requests or which objects match belongs to the packages of the scheduler
(`seatrial.scheduler.pods`, `seatrial.scheduler.plugins`): the judges must not share its arithmetic. Import contracts
check both sides.
"""
