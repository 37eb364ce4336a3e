"""The judge shares no arithmetic with the judged: what harness, fixtures, suites and reports take from the scheduler's
API vocabulary are types, words, builders, certificates, clocks, the JSON codec and readers of text and YAML files.
"""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seatrial.harness import cpusets
from seatrial.harness.allocations import parse_allocations
from seatrial.harness.apiserver import quantities
from seatrial.scheduler.api import device, numa, quantity

ROOT = Path(__file__).resolve().parents[2]
JUDGES = ("harness", "fixtures", "suites", "reports")
API = "seatrial.scheduler.api"
_NO_RULES = (  # no rule of scheduling is in them
    "builders",
    "cel",
    "certificates",
    "clock",
    "durations",
    "faults",
    "integers",
    "label_selectors",
    "private_files",
    "protobuf",
    "protobuf_wire",
    "transport",
    "wire",
    "wrong_values",
    "yaml_files",
)
SUFFIXES = st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "n", "u", "e3", "E-2", "E"])
NUMBERS = st.from_regex(r"[+-]?[0-9]{1,12}(\.[0-9]{0,9})?", fullmatch=True)


def functions_taken(source: str) -> Iterator[str]:
    """The functions and errors of API modules that are no shared ones, as `module.function`."""
    modules: dict[str, str] = {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(API):
            continue
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            if node.module == API:
                modules[alias.asname or alias.name] = name
            elif not _is_shared(str(node.module)) and _is_function(str(node.module), alias.name):
                yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            module = modules[node.value.id]
            if not _is_shared(module) and _is_function(module, node.attr):
                yield f"{module}.{node.attr}"


def _is_shared(module: str) -> bool:
    return module.removeprefix(f"{API}.").partition(".")[0] in _NO_RULES


def _is_function(module: str, name: str) -> bool:
    result = getattr(importlib.import_module(module), name, None)
    if inspect.isclass(result) and issubclass(result, Exception):
        return True  # only functions that are not used here raise it
    return callable(result) and not inspect.isclass(result) and inspect.unwrap(result).__module__ == module


def test_no_function_of_the_scheduler_is_used_to_judge_it() -> None:
    taken = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in JUDGES
        for path in (ROOT / folder).rglob("*.py")
        if "tests" not in path.parts
        for name in functions_taken(path.read_text())
    }
    assert taken == set()


@pytest.mark.parametrize(
    "source",
    [
        f"from {API}.quantity import milli",
        f"from {API}.reservation import allocated_to as taken",
        f"from {API} import numa as words\nwords.parse_cpuset('0')",
    ],
)
def test_such_a_use_is_found(source: str) -> None:
    assert len(list(functions_taken(source))) == 1


@settings(max_examples=400, deadline=None)
@given(st.builds(str.__add__, NUMBERS, SUFFIXES))
@example("0.1").via("rounded up")
@example("-1500m")
@example(".5")
@example("1E")
@example("999999999n")
@example("1e1000").via("above the largest amount")
@example("1e-1000").via("below a billionth")
@example("-100Ei")
def test_both_read_quantities_alike(text: str) -> None:
    assert quantities.units(text) == quantity.units(text)
    assert quantities.milli(text) == quantity.milli(text)
    assert quantities.canonical(text) == quantity.canonical(text)


@given(st.text("0123456789.+-eEmkKGinu ", max_size=8))
def test_both_refuse_the_same_texts(text: str) -> None:
    def refused(judge: bool) -> bool:
        try:
            (quantities if judge else quantity).units(text)
        except (quantities.QuantityError, quantity.QuantityError):
            return True
        return False

    assert refused(judge=True) is refused(judge=False)


@pytest.mark.parametrize(
    ("text", "units", "milli", "canonical"),
    [
        ("1.5", 2, 1500, "1500m"),
        ("500m", 1, 500, "500m"),
        ("1024Mi", 1 << 30, 1000 << 30, "1Gi"),
        ("100n", 1, 1, "100n"),
        ("1e3", 1000, 1_000_000, "1k"),
        ("-0.5", 0, -500, "-500m"),
        ("0.0000000001", 1, 1, "1n"),
        (3, 3, 3000, "3"),
        (0.25, 1, 250, "250m"),
    ],
)
def test_quantities_are_plain_numbers(text: str | float, units: int, milli: int, canonical: str) -> None:
    assert (quantities.units(text), quantities.milli(text)) == (units, milli)
    assert quantities.canonical(text) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "1x",
        "1 Gi",
        "0x10",
        "1_000",
        "\u0661",
        "1e" + "9" * 19,
        True,
        "1ee3",
        pytest.param("9" * 200_000, id="long"),
    ],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(quantities.QuantityError, match=r"is not a quantity.*expected a number with a suffix"):
        quantities.units(text)


@given(st.frozensets(st.integers(0, 300)))
def test_both_read_and_write_cpusets_alike(cpus: frozenset[int]) -> None:
    text = cpusets.cpuset_text(cpus)
    assert text == numa.cpuset_text(cpus)
    assert cpusets.parse_cpuset(text) == numa.parse_cpuset(text) == cpus


@pytest.mark.parametrize(
    "text", ["a", "3-1", "0,", "-1", "1--2", "0-9999999999", pytest.param("9" * 200_000, id="long"), "0-16383,1"]
)
def test_what_is_no_cpuset_is_refused(text: str) -> None:
    with pytest.raises(cpusets.CpusetError):
        cpusets.parse_cpuset(text)


def test_both_read_allocations_alike() -> None:
    content = (
        '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50"},"extension":{"vfs":null}}],'
        '"rdma":[{"minor":0,"id":"0000:01:00.2","resources":{"koordinator.sh/rdma":100},"future":1}],"fpga":null}'
    )
    annotations = {device.DEVICE_ALLOCATED: content}
    allocations = parse_allocations(annotations)
    assert [(one.minor, one.id, one.resources) for one in allocations["gpu"] + allocations["rdma"]] == [
        (1, "", {"koordinator.sh/gpu-core": "50"}),
        (0, "0000:01:00.2", {"koordinator.sh/rdma": 100}),
    ]
    theirs = device.parse_allocations(annotations)
    assert {kind: items for kind, items in allocations.items() if items} == theirs
