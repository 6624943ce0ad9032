"""The rules by which text is cleaned: a table for each, in a file or by its name.

Input: names of rules, `web`, or a TOML file with a table for each rule. Output: `Rules`. They apply in the order in
which they are listed here, whatever the order in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from unmask.data.cleaning.duplicates import Boilerplate, Duplicates, NearDuplicates, RepeatedLines, RepeatedPassages
from unmask.data.cleaning.language import Language
from unmask.data.cleaning.overlap import Overlap
from unmask.data.cleaning.pii import PII
from unmask.data.cleaning.published import C4, FineWeb, GopherQuality, GopherRepetition
from unmask.data.cleaning.quality import Quality
from unmask.data.cleaning.rule import Judge, RuleSettings
from unmask.data.cleaning.urls import Urls
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument
from unmask.support.settings import convert, read_toml


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules of cleaning; None: it does not apply.

    Attributes:
        urls, language, gopher_repetition, gopher_quality, c4, fineweb, quality, overlap, pii: rules for single
            documents, in order.
        duplicates, near_duplicates, repeated_passages, boilerplate, repeated_lines: rules for all documents together,
            after these.
    """

    urls: Urls | None = None
    language: Language | None = None
    gopher_repetition: GopherRepetition | None = None
    gopher_quality: GopherQuality | None = None
    c4: C4 | None = None
    fineweb: FineWeb | None = None
    quality: Quality | None = None
    overlap: Overlap | None = None
    pii: PII | None = None
    duplicates: Duplicates | None = None
    near_duplicates: NearDuplicates | None = None
    repeated_passages: RepeatedPassages | None = None
    boilerplate: Boilerplate | None = None
    repeated_lines: RepeatedLines | None = None

    @property
    def names(self) -> list[str]:
        """The names of the rules that apply, in order."""
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]

    def __bool__(self) -> bool:
        return self != Rules()

    def judges(self) -> dict[str, Judge]:
        """Return the functions that judge single documents, by the names of their rules.

        Raises:
            UserError: a setting is invalid, or a package is missing.
        """
        rules = {name: getattr(self, name) for name in self.names}
        return {name: rule.build() for name, rule in rules.items() if isinstance(rule, RuleSettings)}

    @property
    def files(self) -> tuple[str, ...]:
        """The files that rules name: lists of addresses and words, test files, and those of a classifier's student."""
        return tuple(file for rule in (self.urls, self.c4, self.quality, self.overlap) if rule for file in rule.files)

    def needed(self) -> frozenset[str]:
        """Return what must be stored of each document (store.py)."""
        names = {
            "identities": self.duplicates is not None or self.near_duplicates is not None,
            "bands": self.near_duplicates is not None,
            **dict.fromkeys(("lines", "counts"), self.repeated_lines is not None or self.boilerplate is not None),
            "hosts": self.boilerplate is not None,
            **dict.fromkeys(("passages", "passage_counts"), self.repeated_passages is not None),
        }
        return frozenset(name for name, is_needed in names.items() if is_needed)


WEB = Rules(
    gopher_repetition=GopherRepetition(),
    gopher_quality=GopherQuality(),
    c4=C4(needs_terminal=False),
    fineweb=FineWeb(),
    duplicates=Duplicates(),
    near_duplicates=NearDuplicates(),
)
"""What FineWeb applies to English pages, but language and personal data, which must be asked for."""


def read_rules(names: Sequence[str | Path], exclude_overlap: Sequence[str | Path] = ()) -> Rules:
    """Return rules.

    Args:
        names: names of rules, "web" for several that are made for English pages, or a TOML file.
        exclude_overlap: test files, which documents must not overlap with (`Overlap`).

    Raises:
        UserError: a name or a key is unknown, a value is invalid, or the file cannot be read.
    """
    rules = Rules()
    for name in map(str, names):
        if name == "web":
            chosen = WEB
        elif name.endswith(".toml"):
            chosen = convert(read_toml(name), Rules, name)
        else:
            chosen = _named(name)
        rules = msgspec.structs.replace(rules, **{rule: getattr(chosen, rule) for rule in chosen.names})
    if exclude_overlap:
        files = tuple(map(str, exclude_overlap))
        if rules.overlap is not None and rules.overlap.files:
            raise UserError(
                f"{argument('exclude_overlap')} and overlap.files both name files",
                remedy="name all of them in one place",
            )
        rules = msgspec.structs.replace(rules, overlap=msgspec.structs.replace(rules.overlap or Overlap(), files=files))
    if rules.overlap is not None and not rules.overlap.files:
        raise UserError("the rule overlap names no files", remedy=f"pass {argument('exclude_overlap', 'FILE')}")
    for file in rules.files:
        if not Path(file).is_file():
            raise UserError("does not exist, or is no file", file=file)
    return rules


_NEEDED = {
    "language": 'name the languages in a TOML file: [language] and keep = ["en"]',
    "quality": f"pass {argument('quality', 'MODEL')}",
    "urls": 'name lists in a TOML file: [urls] and block = ["blocked.txt"]',
}
"""Rules without a default, and what to do."""


def _named(name: str) -> Rules:
    field = name.replace("-", "_")
    if field in _NEEDED:
        raise UserError(f"{argument('clean', name)} needs a setting", remedy=_NEEDED[field])
    if field not in Rules.__struct_fields__:
        known = ["web", *Rules.__struct_fields__]
        raise UserError(f"{argument('clean', name)}: no such rule", remedy=nearest(field, known))
    return convert({field: {}}, Rules, name)
