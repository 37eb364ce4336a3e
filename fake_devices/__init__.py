"""Stand-ins for vendors' libraries and for `/sys`, the catalogue of device models, and faults of devices.

Here: the device table from which stand-ins answer, one package for each vendor, the catalogue. Not here: anything that
imports other packages of seatrial, because foreign processes load this one; readers of devices are in
`seatrial.harness.devices`.
"""
