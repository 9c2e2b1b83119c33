"""
Every written log of a public report beside its verdict, and how many of each kind are right.

`python -m tests.engines.sglang.verdict_table` prints it.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from tests.engines.sglang import recorded


class Row(Struct, frozen=True):
    """
    One log: what it is known for, and what it was judged as ("" where no failure is shown).
    """

    name: str
    kind: str
    expected: str
    judged: str
    line: int | None

    @property
    def right(self) -> bool:
        """
        Whether the verdict names the cause that is known.
        """
        return self.expected == self.judged


def rows() -> list[Row]:
    """
    The logs whose kind of failure is known, judged.
    """
    found = []
    for name in recorded.names():
        lines, known = recorded.recorded(name)
        if "kind" not in known:
            continue
        reading = recorded.read(lines)
        judged = "cause" in known or bool(reading.findings)
        verdict = recorded.judged(reading, known) if judged else None
        cause = verdict.cause.name if verdict else ""
        found.append(
            Row(name, known["kind"], known.get("cause", ""), cause, verdict.line if verdict else None)
        )
    return found


def table(found: Sequence[Row]) -> str:
    """
    Cases by verdicts, then the counts of each kind.
    """
    lines = [f"{'case':52} {'known cause':28} {'verdict':28} line"]
    for row in found:
        mark = "" if row.right else "  WRONG"
        line = row.line or ""
        lines.append(f"{row.name:52} {row.expected or '-':28} {row.judged or '-':28} {line}{mark}")
    of, right = (Counter(row.kind for row in some) for some in (found, [r for r in found if r.right]))
    lines += ["", *(f"{right[kind]:3} of {count:3}  {kind}" for kind, count in sorted(of.items()))]
    return "\n".join([*lines, f"{right.total():3} of {of.total():3}  in all"])


if __name__ == "__main__":
    print(table(rows()))
