"""Stories need Hypothesis, which is installed for development only."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("hypothesis") else ["test_*.py"]
