"""Activates the pytest plugin, the option --random-order, and a profile for Hypothesis. The rest is in fixtures/."""

from importlib.util import find_spec

pytest_plugins = ["seatrial.testing", "seatrial.harness.tests.random_order"]

if find_spec("hypothesis") is not None:  # absent where only suites are run
    from hypothesis import HealthCheck, settings
    from hypothesis.internal.conjecture import providers

    # The same examples in every run, and no limits on time, because machines differ in speed.
    # `pytest --hypothesis-profile=explore` tries other examples in each run.
    settings.register_profile("explore", deadline=None, suppress_health_check=list(HealthCheck))
    settings.register_profile("steady", settings.get_profile("explore"), derandomize=True, database=None)
    settings.load_profile("steady")
    # By default Hypothesis also draws constants from the sources of all modules that are loaded. Examples would then
    # depend on the tests that ran before, and reading the sources takes seconds. There is no public setting.
    providers._get_local_constants = lambda: providers._local_constants  # noqa: SLF001
