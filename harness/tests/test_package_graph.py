"""docs/architecture.md shows the packages as they are."""

from seatrial.harness.tests.package_graph import (
    PAGE,
    drawn,
    edges_between_packages,
    mermaid,
    package_of,
    without_implied,
)


def test_the_page_is_up_to_date() -> None:
    """The page is drawn anew; a difference means: run `python -m seatrial.harness.tests.package_graph`."""
    page = PAGE.read_text()
    assert page.count("<!-- packages: ") == 3
    assert drawn(page) == page


def test_implied_edges_are_left_out_and_cycles_are_kept() -> None:
    chain = [("a", "b"), ("a", "c"), ("b", "c")]
    assert without_implied(chain) == [("a", "b"), ("b", "c")]
    cycle = [("a", "b"), ("b", "a"), ("b", "c")]
    assert without_implied(cycle) == cycle
    # The path to a cycle stays, by whichever of its packages.
    assert without_implied([("x", "a"), ("x", "b"), *cycle]) == [*cycle, ("x", "b")]


def test_modules_directly_in_a_folder_are_the_folders_own_node() -> None:
    assert package_of("seatrial.scheduler.config", "scheduler") == "scheduler"
    assert package_of("seatrial.scheduler.cache.columns", "scheduler") == "cache"
    assert package_of("seatrial.scheduler.cache", "scheduler") == "cache"
    assert package_of("seatrial.harness.errors", "scheduler") == ""
    assert package_of("seatrial.harness.clusters.local", "") == "harness"


def test_edges_become_mermaid() -> None:
    imports = [
        ("seatrial.harness.load.run", "seatrial.harness.errors"),
        ("seatrial.harness.load.run", "seatrial.harness.load.record"),
    ]
    assert list(mermaid(edges_between_packages(imports, "harness"))) == [
        "flowchart TD",
        "    load_[load] --> harness_[harness]",
    ]
