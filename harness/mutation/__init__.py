"""Seeded faults of the scheduler: the catalogue, their application, and the run of suites over them."""
