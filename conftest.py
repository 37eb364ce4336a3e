"""Activates the pytest plugin, the option --random-order, and a profile for Hypothesis. The rest is in fixtures/.

The garbage collector runs less often: at Python's own pace it takes a third of the time of a case in virtual time,
because each collection visits all modules and all collected tests.
"""

import gc
from importlib.util import find_spec

pytest_plugins = ["seatrial.testing", "seatrial.harness.tests.random_order"]

gc.set_threshold(50_000, 20, 20)  # with 10,000 the suites in virtual time take 9 % more, and no less memory


def pytest_collection_finish() -> None:
    """What is loaded by now stays until the end of the session."""
    gc.collect()
    gc.freeze()


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
