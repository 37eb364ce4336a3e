"""What judges and measures a scheduler: clusters, nodes, devices, subjects, load, benchmarks and the command line.

Of `seatrial.scheduler` it uses the API vocabulary (`seatrial.scheduler.api`); the exceptions are listed in the import
contracts of pyproject.toml. Modules directly in this folder are shared by several packages.
"""
