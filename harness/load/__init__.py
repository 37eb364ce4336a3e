"""The load generator: pods by rate or from a trace, created and watched by Locust, with latency and validity."""
