"""A summary in Markdown, for the description of a pull request or the summary of a CI job."""

from collections import Counter
from collections.abc import Sequence

from seatrial.reports.collect import Collection
from seatrial.reports.compare import Comparison
from seatrial.reports.policy import Outcome
from seatrial.reports.reasons import cut, sentence
from seatrial.reports.texts import name_of

MAX_ROWS = 20


def markdown(
    collection: Collection,
    stamp: str,
    headline: str,
    *,
    policy: Sequence[Outcome] = (),
    changes: Comparison | None = None,
) -> str:
    """The verdict, the failures, unmet demands, changed verdicts, and the reasons of skips."""
    kept = sum(promise.state == "verified" for promise in collection.promises)
    lines = [f"## {stamp}: {collection.coverage}", "", headline, ""]
    lines += [f"{kept} of {len(collection.promises)} promises are verified.", ""]
    against = [entry.case for entry in collection.cases if entry.case.verdict in ("failed", "broken")]
    if against:
        rows = [
            f"| {case.verdict} | {_cell(name_of(case))} | {_cell(case.title)} | {_cell(sentence(case.reason))} |"
            for case in against[:MAX_ROWS]
        ]
        lines += ["| result | case | claim | reason |", "| --- | --- | --- | --- |", *rows, ""]
        if len(against) > MAX_ROWS:
            lines += [f"{len(against) - MAX_ROWS} more cases failed or broke.", ""]
    unmet = [outcome for outcome in policy if not outcome.met]
    if policy:
        lines += [f"Release policy: {len(policy) - len(unmet)} of {len(policy)} demands are met.", ""]
        lines += [f"- not met: {_cell(outcome.demand)} ({_cell(outcome.why)})" for outcome in unmet[:MAX_ROWS]]
        lines += [""] if unmet else []
    if changes is not None:
        lines += [f"Since the base: {len(changes.cases)} changed verdicts, {len(changes.worse)} figures are worse.", ""]
        lines += [f"- regressed: {_cell(figure.text)}" for figure in changes.worse[:MAX_ROWS]]
        for group in changes.groups[:MAX_ROWS]:
            lines += [f"- {group.change}: {_cell(group.text)}"]
            if group.change == "regressed":
                lines += [f"  - {_cell(case.nodeid)} ({case.verdicts})" for case in group.cases[:MAX_ROWS]]
        lines += [""] if changes.cases or changes.worse else []
    skipped = Counter(entry.case.reason or "no reason" for entry in collection.cases if entry.case.verdict == "skipped")
    lines += [f"- {count} skipped: {_cell(reason)}" for reason, count in skipped.most_common(MAX_ROWS)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _cell(text: str) -> str:
    """Text without the characters that end a cell or begin HTML."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "\\`")
    return cut(" ".join(plain.split()), 300)
