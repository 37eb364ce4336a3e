"""Readers of devices: one neutral model, and a provider for each vendor that reads the vendor's library or `/sys`.

Here: providers, the vendors' codes and structures, the descriptors in `vendors/`, HAMi-core's files on a host. Not
here: the stand-ins (`seatrial.fake_devices`), and what a node does with its devices (`nodes`).
"""
