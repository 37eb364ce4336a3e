"""Benchmarks of the scheduler and of the embedded API server: workloads, repetitions, medians and spreads.

Each module measures one thing; `seatrial.harness.commands.bench_*` are their commands. Not here: the load generator
(`load`), and replays of recorded traces (`replay`).
"""
