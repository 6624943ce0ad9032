"""Annotations by offsets: a text with spans, and its conversion to words with tags.

Input: a text, and spans (start, end, label) as the tool that wrote them counts. Output: a `TaggedSentence` in IOB2.

Offsets count characters as Python does (code points), end exclusive. Tools written in JavaScript or Java may count
UTF-16 units instead, in which a character beyond U+FFFF (most emoji) counts twice, and browsers count a line end CR LF
once: Label Studio stores code points since 2022 (pull request 1559), doccano UTF-16 units (issue 2290). Those written
in Rust, Go or C often count bytes. Where a tool also stores the text of each span, the way of counting under which all
texts of a file match is used; where it does not, that under which fewer spans cut words.

Spans that begin or end inside a word are extended to whole words, which is counted, or refused. A word has one tag:
spans that overlap are refused, unless they are wanted as spans rather than tags (`Reading.overlapping`). Then words
can be in any number of spans, but the same words in one only.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from unmask.data.labelled.tagged_sentence import TaggedSentence, split_text, write_tags
from unmask.data.text.damage import find_damage
from unmask.metrics.token_classification import Chunk
from unmask.support.errors import UserError, counted, counted_as
from unmask.support.messages import argument, call, setting

Inexact = Literal["adapt", "refuse"]
"""What to do with spans that words cannot express: those that cut words are extended, and those that are not a
contiguous part of the text are omitted, both counted ("adapt"); or both are errors ("refuse")."""
Units = Literal["auto", "characters", "utf-16", "bytes"]
"""What offsets count; "auto": what the texts of the spans prove, or else what cuts fewer words."""

_SPACE = re.compile(r"(?:\s|\\n)+")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


class Span(NamedTuple):
    """An annotated part of a text.

    Attributes:
        start, end: its offsets, in the units of the file; `end` is exclusive.
        label: its label.
        text: its text as the tool stores it; None: it does not.
        line: its line, if it is not that of the text.
        id: what links name it by, where relations are read.
    """

    start: int
    end: int
    label: str
    text: str | None = None
    line: int | None = None
    id: Any = None


class Link(NamedTuple):
    """A relation between two spans, by their ids, and its line."""

    label: str
    head: Any
    tail: Any
    line: int


@dataclass(frozen=True)
class Annotated:
    """A text with spans.

    Attributes:
        text: the text.
        spans: its spans, in any order.
        file, line: its location.
        words: starts and ends of its words in code points, if the file specifies them; None: they are split here.
        links: relations between its spans, if they are wanted (`Reading.relations`).
    """

    text: str
    spans: Sequence[Span]
    file: str
    line: int
    words: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    links: Sequence[Link] = ()


@dataclass
class Reading:
    """How the spans of a file are read, and what was found in it.

    Attributes:
        name: the file.
        inexact, units: see `Inexact` and `Units`.
        overlapping: whether spans may overlap, so that sentences have spans instead of tags.
        relations: whether relations between spans are read; they may overlap then.
        remedy: how overlapping spans may be separated in this file; "": there is one set of labels only.
        spans: the number of spans.
        extended: the number of those that were extended to whole words.
        omitted: the number of things that were omitted, by description.
        remarks: choices that were made for the file.
    """

    name: str
    inexact: Inexact = "adapt"
    units: Units = "auto"
    overlapping: bool = False
    relations: bool = False
    remedy: str = ""
    spans: int = 0
    extended: int = 0
    first: str = ""
    omitted: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    def notes(self) -> Iterator[str]:
        """Yield a line for each thing that users should know about the reading of the file."""
        for remark in self.remarks:
            yield f"{self.name}: {remark}"
        if self.extended:
            verb = "was" if self.extended == 1 else "were"
            yield (
                f"{self.name}: {self.extended:,} of {counted(self.spans, 'span')} began or ended inside a word and "
                f"{verb} extended to whole words, the first {self.first}"
            )
        for what, count in self.omitted.items():
            yield f"{self.name}: omitted: {counted_as(count, what)}"

    def inexpressible(self, what: str, remedy: str, file: str, line: int) -> None:
        """Count something that words cannot express, as in "discontinuous spans".

        Raises:
            UserError: such things are refused.
        """
        if self.inexact == "refuse":
            raise UserError(f"the file has {what}", file=file, line=line, remedy=remedy)
        self.omitted[what] += 1


Converter: TypeAlias = Callable[[str], Callable[[int], int | None]]
"""For a text, a function from the offsets of a tool to code points; None: there is no such character."""


def _of_units(weigh: Callable[[str], Iterable[int]]) -> Converter:
    def converter(text: str) -> Callable[[int], int | None]:
        offsets, total = [0], 0
        for size in weigh(text):
            total += size
            offsets.append(total)

        def convert(offset: int) -> int | None:
            index = bisect_left(offsets, offset)
            return index if index < len(offsets) and offsets[index] == offset else None

        return convert

    return converter


def _line_ends(text: str, size: Callable[[str], int]) -> Iterator[int]:
    """Yield the sizes of the characters of a text, that of a carriage return before a line feed being 0."""
    for index, character in enumerate(text):
        yield 0 if character == "\r" and text[index + 1 : index + 2] == "\n" else size(character)


def _utf16(character: str) -> int:
    return 1 + (character > "\uffff")


def _characters(text: str) -> Callable[[int], int | None]:
    return lambda offset: offset if 0 <= offset <= len(text) else None


COUNTINGS: dict[str, Converter] = {
    "characters": _characters,
    "UTF-16 units": _of_units(lambda text: map(_utf16, text)),
    "characters, and CR LF as one": _of_units(lambda text: _line_ends(text, lambda character: 1)),
    "UTF-16 units, and CR LF as one": _of_units(lambda text: _line_ends(text, _utf16)),
    "bytes of UTF-8": _of_units(lambda text: (len(character.encode("utf-8", "surrogatepass")) for character in text)),
}
"""Ways of counting, from the most to the least probable."""
NAMES: dict[Units, str] = {"characters": "characters", "utf-16": "UTF-16 units", "bytes": "bytes of UTF-8"}
"""Those that a user can choose."""
SHIFTING: dict[Units, tuple[re.Pattern[str], str]] = {
    "utf-16": (_ASTRAL, "an emoji or another character beyond U+FFFF"),
    "bytes": (re.compile(r"[^\0-\x7f]"), "a character beyond ASCII"),
}
"""After which characters other units than code points differ from these."""
DOCCANO = ".doccano.jsonl"
"""End of the names of files for doccano, whose offsets count UTF-16 units."""
ENOUGH = 1000
"""Spans whose offsets differ between two ways of counting, from which on no more are looked at."""


def convert_spans(texts: Iterable[Annotated], reading: Reading) -> list[Annotated]:
    """Return the texts of a file with the offsets of their spans in code points.

    Raises:
        UserError: a span is outside of its text, its text is another one, or the types of spans are tags of words.
    """
    texts = list(texts)
    _check_types(texts)
    if reading.units != "auto":
        name = NAMES[reading.units]
    elif any(span.text is not None for annotated in texts for span in annotated.spans):
        name = _find_counting(texts)
        if name != "characters":
            reading.remarks.append(f"offsets count {name}, as the texts of the spans show")
    else:
        name = _guess_counting(texts, reading)
    return [_convert(annotated, name) for annotated in texts]


def _check_types(texts: Sequence[Annotated]) -> None:
    """Check that the labels of spans are types, and not tags: those of words in a scheme, as in B-PER, I-PER and O.

    Raises:
        UserError: they are tags.
    """
    labels = {span.label for annotated in texts for span in annotated.spans}
    first = next((label for label in sorted(labels) if label[:2] == "B-" and labels & {"O", f"I-{label[2:]}"}), None)
    if first is not None:
        place = next(annotated for annotated in texts for span in annotated.spans if span.label == first)
        raise UserError(
            f"the label '{first}' of a span is a tag of a word, as there are spans with other tags, too",
            file=place.file,
            line=place.line,
            remedy=f"give each entity as one span with its type, '{first[2:]}', or give words and tags",
        )


def _find_counting(texts: Sequence[Annotated]) -> str:
    """Return the way of counting under which the texts of most spans are those that the file states."""
    stated = [annotated for annotated in texts if any(span.text is not None for span in annotated.spans)]
    best, fewest = "characters", len(stated) + 1
    for name, converter in COUNTINGS.items():
        wrong = sum(_contradiction(annotated, converter) is not None for annotated in stated)
        if wrong < fewest:
            best, fewest = name, wrong
        if not wrong:
            break
    return best


def _contradiction(annotated: Annotated, converter: Converter) -> Span | None:
    """Return the first span whose text is not the one that the file states."""
    convert = converter(annotated.text)
    for span in annotated.spans:
        if span.text is not None and not _same(annotated.text, convert(span.start), convert(span.end), span.text):
            return span
    return None


def _same(text: str, start: int | None, end: int | None, stated: str) -> bool:
    """Return whether a part of a text is the stated one, apart from white space."""
    if start is None or end is None:
        return False
    return _SPACE.sub(" ", text[start:end]).strip() == _SPACE.sub(" ", stated).strip()


def _convert(annotated: Annotated, counting: str) -> Annotated:
    convert = COUNTINGS[counting](annotated.text)
    spans = []
    for span in annotated.spans:
        start, end = convert(span.start), convert(span.end)
        line = annotated.line if span.line is None else span.line
        shown = f"the span {span.start}–{span.end} ({span.label})"
        if start is None or end is None:
            size = f"{len(annotated.text):,} characters"
            remedy = "correct the offsets"
            if _ASTRAL.search(annotated.text) and counting == "characters":
                remedy += f", or pass {setting('task.units', 'utf-16')} if they count UTF-16 units"
            raise UserError(f"{shown} is outside of its text of {size}", file=annotated.file, line=line, remedy=remedy)
        if start >= end:
            raise UserError(f"{shown} is empty", file=annotated.file, line=line, remedy="remove it")
        if span.text is not None and not _same(annotated.text, start, end, span.text):
            text = annotated.text[start:end]
            raise UserError(
                f"{shown} is '{text[:60]}' in the text, but the file states '{span.text[:60]}'",
                file=annotated.file,
                line=line,
                remedy="the annotations or the text were read in a wrong encoding: save both in UTF-8"
                if find_damage(text) or find_damage(span.text)
                else "was the text changed after it was annotated? correct the offsets, or export the file again",
            )
        spans.append(span._replace(start=start, end=end))
    return replace(annotated, spans=spans)


def _guess_counting(texts: Sequence[Annotated], reading: Reading) -> str:
    """Return the way of counting under which fewer spans cut words, and note it unless it is certain.

    Where all cut words, as in Korean, whose particles are attached, fewer are impossible under it. Where all are as
    good, as in Chinese, offsets in files for doccano count what doccano counts.
    """
    doubts = {other: _Doubt.of(texts, other) for other in SHIFTING}
    best = max(doubts, key=lambda other: doubts[other].gain)
    best_of_equals = best == "utf-16" and not doubts[best].gain and doubts[best].shifted
    if doubts[best].gain > 0 or (best_of_equals and reading.name.endswith(DOCCANO)):
        reading.remarks.append(doubts[best].describe(best, "characters"))
        return NAMES[best]
    for other, doubt in doubts.items():
        if doubt.shifted and doubt.cut <= 2 * doubt.cut_as_characters and doubt.fewer_impossible >= 0:
            reading.remarks.append(doubt.describe("characters", other))
            break
    return "characters"


class _Doubt(NamedTuple):
    """How many spans have other places if offsets count other units than characters, and cut words as either.

    Spans that are outside of their text, or begin or end inside a character, are impossible, and are cut, too.
    """

    after: str
    shifted: int
    cut_as_characters: int
    cut: int
    fewer_impossible: int

    @classmethod
    def of(cls, texts: Sequence[Annotated], units: Units) -> _Doubt:
        shifting, after = SHIFTING[units]
        shifted = cut_as_characters = cut = fewer_impossible = 0
        for annotated in texts:
            if shifted >= ENOUGH:
                break
            if not shifting.search(annotated.text):
                continue
            converters = [COUNTINGS[NAMES[name]](annotated.text) for name in ("characters", units)]
            pairs = [[(to(span.start), to(span.end)) for to in converters] for span in annotated.spans]
            differing = [pair for pair in pairs if pair[0] != pair[1]]
            words = _words(annotated) if differing else None
            shifted += len(differing)
            for ours, theirs in differing:
                cut_as_characters += not _fits(*ours, words)
                cut += not _fits(*theirs, words)
                fewer_impossible += (None in ours) - (None in theirs)
        return cls(after, shifted, cut_as_characters, cut, fewer_impossible)

    @property
    def gain(self) -> int:
        """How many fewer spans cut words if offsets count the other units; impossible ones count twice."""
        return self.cut_as_characters - self.cut + self.fewer_impossible

    def describe(self, chosen: Units, other: Units) -> str:
        cut, instead = (self.cut_as_characters, self.cut)[:: 1 if chosen == "characters" else -1]
        return (
            f"offsets are read as {NAMES[chosen]}: of {counted(self.shifted, 'span')} after {self.after}, {cut:,} cut "
            f"words, and {instead:,} would as {NAMES[other]}; {setting('task.units', other)} reads them so"
        )


def _words(annotated: Annotated) -> TaggedSentence:
    if annotated.words is None:
        return split_text(annotated.text)
    return TaggedSentence(annotated.text, *annotated.words)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a part of a text without the white space around it."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def _fits(start: int | None, end: int | None, words: TaggedSentence | None) -> bool:
    """Return whether a span, apart from white space around it, consists of whole words."""
    if start is None or end is None or words is None:
        return False
    start, end = _trim(words.text, start, end)
    first, last = _covered(start, end, words)
    return first < last and words.starts[first] >= start and words.stops[last - 1] <= end


def _covered(start: int, end: int, words: TaggedSentence) -> tuple[int, int]:
    """Return the words that a span contains or cuts, as a range of indices."""
    return bisect_right(words.stops, start), bisect_left(words.starts, end)


def words_of(span: Span, words: TaggedSentence) -> tuple[int, int]:
    """Return the words that a span contains or cuts, apart from white space around it, as a range of indices."""
    return _covered(*_trim(words.text, span.start, span.end), words)


def to_sentence(annotated: Annotated, reading: Reading) -> TaggedSentence:
    """Return a text with spans, whose offsets are code points, as words with tags, or with spans that may overlap.

    Raises:
        UserError: spans overlap that must not, or cut a word and are refused for it.
    """
    words = replace(_words(annotated), file=annotated.file, line=annotated.line)
    spans: dict[Chunk, Span] = {}
    for span in annotated.spans:
        reading.spans += 1
        chunk = _to_words(span, words, reading)
        if chunk is None:
            continue
        if chunk in spans:
            if not reading.overlapping and (spans[chunk].start, spans[chunk].end) != (span.start, span.end):
                _refuse_overlap(annotated, spans[chunk], span, reading)
            reading.omitted["spans given twice"] += 1
        spans[chunk] = span
    if reading.overlapping:
        return replace(words, spans=_distinct(spans, annotated, reading))
    ordered = sorted(spans, key=lambda chunk: (chunk.start, chunk.stop))
    for chunk, following in pairwise(ordered):
        if following.start < chunk.stop:
            _refuse_overlap(annotated, spans[chunk], spans[following], reading)
    return replace(words, tags=tuple(write_tags(ordered, len(words.starts))))


def _to_words(span: Span, words: TaggedSentence, reading: Reading) -> Chunk | None:
    """Return the words of a span, which is counted if it has to be extended to them; None: it has none."""
    line = words.line if span.line is None else span.line
    start, end = _trim(words.text, span.start, span.end)
    first, last = words_of(span, words)
    if start >= end or first >= last:
        reading.inexpressible("spans without a word", "remove the span, which contains only spaces", words.file, line)
        return None
    if words.starts[first] < start or words.stops[last - 1] > end:
        whole = words.text[words.starts[first] : words.stops[last - 1]]
        if reading.inexact == "refuse":
            raise UserError(
                f"the span {span.start}–{span.end} ({span.label}) '{words.text[start:end][:60]}' begins or "
                f"ends inside a word of '{whole[:80]}'",
                file=words.file,
                line=line,
                remedy=f"correct it, or pass {setting('task.inexact', 'adapt')}",
            )
        reading.first = reading.first or f"'{words.text[start:end][:40]}' of '{whole[:40]}' in line {line}"
        reading.extended += 1
    return Chunk(span.label, first, last)


def _distinct(spans: dict[Chunk, Span], annotated: Annotated, reading: Reading) -> tuple[Chunk, ...]:
    """Return spans in order, without those of the same words as an earlier one with another label."""
    by_words: dict[tuple[int, int], Chunk] = {}
    for chunk, span in spans.items():
        if by_words.setdefault((chunk.start, chunk.stop), chunk) != chunk:
            line = annotated.line if span.line is None else span.line
            what = "spans of the same words with another label"
            reading.inexpressible(what, "choose one of the labels", annotated.file, line)
    return tuple(by_words[place] for place in sorted(by_words))


def _refuse_overlap(annotated: Annotated, span: Span, other: Span, reading: Reading) -> NoReturn:
    shown = [
        f"{one.start}–{one.end} ({one.label}) '{annotated.text[one.start : one.end][:40]}'" for one in (span, other)
    ]
    what, remedy = "are in the same word", reading.remedy or "remove one of them, or export one set of labels only"
    if other.start < span.end and span.start < other.end:
        what, remedy = "overlap", f"{remedy}; to learn both: {call('finetune', 'spans')}"
    line = next((one.line for one in (other, span) if one.line is not None), annotated.line)
    raise UserError(
        f"the spans {shown[0]} and {shown[1]} {what}, but a word has one tag",
        file=annotated.file,
        line=line,
        remedy=remedy,
    )


def choose_set(names: Iterable[str]) -> str:
    """Return the remedy for overlapping spans of several sets of labels."""
    shown = ", ".join(sorted(set(names)))
    return f"choose one set of labels ({shown}) by {argument('columns', {'label': 'NAME'})}, or remove one of the spans"


def check_offset(value: Any, what: str, file: str, line: int) -> int:
    """Return an offset, which must be a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UserError(f"the {what} of a span is {value!r:.40}, not a whole number", file=file, line=line)
    return value


def check_label(value: Any, file: str, line: int, of: str = "a span") -> str:
    """Return the label of a span, or of something else, which must be a name."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, list | tuple) and value:
        raise UserError(
            f"{of} has several labels ({', '.join(map(str, value))[:80]}), but only one is read",
            file=file,
            line=line,
            remedy="choose one of them",
        )
    if not isinstance(value, str) or not value.strip():
        raise UserError(
            f"the label of {of} is {value!r:.40}, not a name", file=file, line=line, remedy="give labels by name"
        )
    return value.strip()
