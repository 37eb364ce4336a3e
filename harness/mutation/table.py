"""The table of a campaign in Markdown."""

from collections.abc import Sequence

from seatrial.harness.mutation.campaign import Outcome, catch_rate

MAX_SYMPTOM = 140  # characters


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Catch rates by area, then each mutant with who caught it, after how long, and the symptom."""
    caught, counted = catch_rate(outcomes)
    share = 100 * caught / counted if counted else 0.0
    equivalent = len(outcomes) - counted
    lines = [
        f"{caught} of {counted} mutants caught ({share:.1f} %), {equivalent} equivalent.",
        "",
        "| area | caught | of | equivalent |",
        "| --- | ---: | ---: | ---: |",
    ]
    for area in dict.fromkeys(outcome.mutant.area for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.mutant.area == area]
        here, all_here = catch_rate(mine)
        lines.append(f"| {area} | {here} | {all_here} | {len(mine) - all_here} |")
    lines += [
        "",
        "Seconds are those of the tests until the first failure, without imports.",
        "",
        "| mutant | area | fault | upstream fix or rule | caught by | seconds | symptom, or why it got away |",
        "| --- | --- | --- | --- | --- | ---: | --- |",
    ]
    for outcome in outcomes:
        mutant, result = outcome.mutant, outcome.result
        seconds = f"{result.seconds:.1f}" if result.caught else ""
        if mutant.equivalent:
            by, line = "equivalent", mutant.equivalent
        elif result.caught:
            by, line = caught_by(outcome), f"{result.verdict}: {result.message}"
        else:
            by, line = "**not caught**", f"all {result.tests} tests passed"
        cells = (mutant.id, mutant.area, mutant.fault, mutant.fix, by, seconds, _short(line, mutant.equivalent))
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return "\n".join(lines) + "\n"


def caught_by(outcome: Outcome) -> str:
    """The case, and the invariant where the auditor reported it."""
    result = outcome.result
    case = result.case or result.by.rpartition("::")[2] or result.verdict
    first = result.message.partition(" ")[0]
    return f"{case}, {first}" if first.startswith("AUD-") else case


def _short(text: str, argument: str) -> str:
    return text if argument else text[:MAX_SYMPTOM]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
