"""What cleaning did: for each rule how much it dropped and changed, why, and some of it to look at.

Tallies of several sources are merged in the order of the sources, so they do not depend on who counted them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from unmask.support.durable import read_json
from unmask.support.errors import counted

SAMPLES, EXCERPT = 5, 300
"""How many samples of each reason are kept, and how many characters of each."""


class RuleTally(msgspec.Struct):
    """What a rule did.

    Attributes:
        judged: number of documents that it judged.
        documents, bytes: what it dropped.
        changed, removed: number of documents that it changed, and how many bytes shorter they became.
        reasons: number of dropped documents, or of changes, by reason.
        samples: starts of dropped documents by reason; of changed ones, of what they were.
    """

    judged: int = 0
    documents: int = 0
    bytes: int = 0
    changed: int = 0
    removed: int = 0
    reasons: dict[str, int] = {}
    samples: dict[str, list[str]] = {}

    def add(self, reason: str, text: str, number: int = 1) -> None:
        """Count a reason."""
        self.reasons[reason] = self.reasons.get(reason, 0) + number
        samples = self.samples.setdefault(reason, [])
        if len(samples) < SAMPLES:
            samples.append(text[:EXCERPT])

    def drop(self, reason: str, text: str) -> None:
        """Count a document that is dropped."""
        self.documents += 1
        self.bytes += len(text.encode())
        self.add(reason, text)

    def merge(self, other: RuleTally) -> None:
        """Add what was counted for a later source."""
        for name in ("judged", "documents", "bytes", "changed", "removed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        for reason, samples in other.samples.items():
            self.samples[reason] = [*self.samples.get(reason, []), *samples][:SAMPLES]


class Tally(msgspec.Struct):
    """What cleaning did.

    Attributes:
        documents, bytes: what was read.
        left, left_bytes: what is left.
        rules: what each rule did, in their order.
    """

    documents: int = 0
    bytes: int = 0
    left: int = 0
    left_bytes: int = 0
    rules: dict[str, RuleTally] = {}

    def rule(self, name: str) -> RuleTally:
        """Return the tally of a rule."""
        return self.rules.setdefault(name, RuleTally())

    def merge(self, other: Tally) -> None:
        """Add what was counted for a later source."""
        for name in ("documents", "bytes", "left", "left_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, tally in other.rules.items():
            self.rule(name).merge(tally)

    def lines(self) -> Iterator[str]:
        """Yield lines for people; none if nothing was read."""
        if not self.documents:
            return
        share = 100 * self.left_bytes / max(1, self.bytes)
        yield f"cleaning: {counted(self.documents, 'document')} read, {self.left:,} left ({share:.1f} % of the bytes)"
        for name, tally in self.rules.items():
            parts = []
            if tally.documents:
                parts.append(f"{counted(tally.documents, 'document')} dropped ({tally.bytes / 1e6:,.1f} MB)")
            if tally.changed:
                parts.append(f"{tally.changed:,} changed")
            reasons = sorted(tally.reasons.items(), key=lambda item: (-item[1], item[0]))
            listed = ", ".join(f"{reason} {count:,}" for reason, count in reasons[:6])
            yield f"  {name}: {'; '.join(parts) or 'nothing dropped'}{f': {listed}' if listed else ''}"
            if tally.documents > 0.5 * tally.judged and tally.judged >= 20:
                yield f"  {name} dropped more than half of the documents: look at the samples, and at its settings"


def read_tally(path: Path) -> Tally:
    """Read the tally of a corpus; an empty one, if it was not cleaned.

    Raises:
        UserError: the file is damaged.
    """
    return read_json(path, Tally, "build the corpus again") if path.exists() else Tally()
