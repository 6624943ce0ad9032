"""Files of cells, TSV and CSV, whatever separates their columns.

Input: a file, and whether a row of cells has the columns that are wanted. Output: numbered rows of cells.

TSV has no quoting; all others follow RFC 4180, and spaces before a cell are not part of it; byte-order marks are
removed, also where files were put together. The separator is the one that the first line declares (`sep=;`, as Excel
writes it), or the one by which the first row has the wanted columns, or else the one by which all of the first rows
have as many cells. If that is true of several, the file is refused.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from unmask.data.text.files import (
    MAX_DOCUMENT,
    TOO_LONG,
    ExpansionError,
    display_name,
    expands_too_much,
    open_bytes,
    read_text_lines,
    without_marks,
)
from unmask.support.errors import UserError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
OWN = {"csv": ",", "tsv": "\t"}
"""The separator of each format."""
DECLARATION = "sep="
SAMPLE = 100
"""Lines by which a separator is recognized if the first one does not suffice."""
SAMPLE_SIZE = 1 << 20
"""Characters after which no more lines are added to them."""
_QUOTED = re.compile(r'"(?:[^"]|"")*"')

Line = tuple[int, list[str]]
"""The line number of a row, and its cells."""


class DelimitedFile:
    """A file of cells.

    Args:
        path: the file; `-` is standard input.
        kind: its format, "csv" or "tsv".
        fits: returns whether a first row has the columns that are wanted.
        header: whether the first row is a header, so that only the right separator fits.

    Attributes:
        separator: what separates its columns; that of the format until the rows are read.
    """

    def __init__(self, path: str | Path, kind: str, fits: Callable[[Sequence[str]], bool], *, header: bool) -> None:
        self.name = display_name(path)
        self.separator = OWN[kind]
        self._path, self._kind, self._fits, self._header = path, kind, fits, header
        self._number = 1  # of the line that the current record begins in
        self._left = MAX_DOCUMENT  # how long it may still become
        self._quoting = Quoting()

    @property
    def quotes(self) -> bool:
        """Whether cells may be quoted."""
        return self._kind != "tsv" or self.separator != "\t"

    def rows(self) -> Iterator[Line]:
        """Return an iterator over the rows, also the header and empty ones.

        Raises:
            UserError: while they are read: the file cannot be read or is not valid, or its separator cannot be
                determined.
        """
        return self._tsv() if self._kind == "tsv" else self._csv()

    def notes(self) -> list[str]:
        """Return a line about the separator, if it is not that of the format, or about the quotation marks of TSV."""
        if self.separator != OWN[self._kind]:
            return [f"{self.name}: read with {SEPARATORS[self.separator]} between the columns"]
        if not self._quoting.as_csv:
            return []
        what = "quoted as in CSV, but TSV has no quoting: the quotation marks were read as part of the texts"
        return [f"{self.name}: cells that are {what}: {self._quoting.quoted:,}"]

    def _tsv(self) -> Iterator[Line]:
        lines = read_text_lines(self._path)
        head: list[str] = []
        declared = self._recognize((line for _, line in lines), head)
        everything = chain(enumerate(head, 1 + declared), lines)
        if self.quotes:
            yield from self._quoted(self._bounded(f"{line}\n" for _, line in everything), declared)
            return
        for number, line in everything:
            cells = line.rstrip("\r").split("\t")
            self._quoting.see(line, cells)
            yield number, cells

    def _csv(self) -> Iterator[Line]:
        with open_bytes(self._path) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
            lines = self._lines_of(text)
            head: list[str] = []
            try:
                declared = self._recognize(lines, head)
                yield from self._quoted(chain(head, lines), declared)
            except csv.Error as error:
                raise self._invalid(error) from error
            except UnicodeDecodeError as error:
                if str(self._path) != "-":
                    deque(read_text_lines(self._path), 0)  # names the line
                raise UserError(f"not UTF-8 ({error.reason})", file=self.name) from error
            except ExpansionError as error:
                raise expands_too_much(self.name, self._number) from error
            finally:
                text.detach()

    def _quoted(self, lines: Iterator[str], before: int) -> Iterator[Line]:
        """Yield the rows of lines of CSV, before which there are some others."""
        csv.field_size_limit(MAX_DOCUMENT)
        self._number, self._left = before + 1, MAX_DOCUMENT
        reader = csv.reader(lines, delimiter=self.separator, strict=True, skipinitialspace=self.separator != "\t")
        try:
            for cells in reader:
                yield self._number, cells
                self._number, self._left = before + reader.line_num + 1, MAX_DOCUMENT
        except csv.Error as error:
            raise self._invalid(error) from error

    def _lines_of(self, text: io.TextIOBase) -> Iterator[str]:
        """Yield the lines of a text, not more of a record than it may be long."""
        while line := text.readline(self._left + 1):
            self._left -= len(line)
            if self._left < 0:
                raise csv.Error(f"the record is {TOO_LONG}")
            yield without_marks(line)

    def _bounded(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self._left -= len(line)
            if self._left < 0:
                raise csv.Error(f"the record is {TOO_LONG}")
            yield line

    def _invalid(self, error: csv.Error) -> UserError:
        return UserError(f"not valid CSV ({error})", file=self.name, line=self._number)

    def _recognize(self, lines: Iterator[str], head: list[str]) -> int:
        """Determine the separator by the first lines, which are added to `head`, except a line that declares it.

        Returns:
            The number of lines before those of `head`.
        """
        for line in lines:
            head.append(line)
            if line.strip():
                break
        else:
            return 0
        first = head[-1].strip("\r\n")
        if len(head) == 1 and first.lower().startswith(DECLARATION) and len(first) <= len(DECLARATION) + 1:
            self.separator = self._declared(first[len(DECLARATION) :])
            head.clear()
            return 1
        if first.count('"') % 2 == 0 and not any(other in first for other in SEPARATORS if other != self.separator):
            return 0
        size = len(first)
        while len(head) < SAMPLE and size < SAMPLE_SIZE and (more := next(lines, None)) is not None:
            head.append(more)
            size += len(more)
        self.separator = self._fitting(head, complete=len(head) < SAMPLE and size < SAMPLE_SIZE)
        return 0

    def _declared(self, separator: str) -> str:
        if separator not in SEPARATORS:
            raise UserError(
                f"the first line declares '{separator}' as the separator of columns",
                file=self.name,
                line=1,
                remedy=f"separate the columns by one of {', '.join(SEPARATORS.values())}",
            )
        return separator

    def _fitting(self, head: Sequence[str], *, complete: bool) -> str:
        """Return the separator of the columns in the first lines of a file."""
        samples = {separator: self._sample(head, separator, complete=complete) for separator in SEPARATORS}
        several = [separator for separator, rows in samples.items() if rows and len(rows[0]) > 1]
        fitting = [separator for separator in several if self._fits(samples[separator][0])]
        alone = not self._header and self.separator not in several and self._fits([""])  # each line may be a text
        if len(fitting) == 1 and not alone:
            return fitting[0]
        candidates = fitting or (several if self._header else [])
        likely = [separator for separator in candidates if _is_regular(samples[separator], 1 + alone)]
        likely += [self.separator] if alone else []
        if self._kind == "tsv" and self.separator in likely:  # a tab in a text is rare
            return self.separator
        if len(likely) > 1 and (fitting or not self._header):
            raise UserError(
                f"the columns may be separated by {' or by '.join(SEPARATORS[separator] for separator in likely)}",
                file=self.name,
                line=1,
                remedy=f"declare it in a line before the first one, for example {DECLARATION}{likely[0]}",
            )
        return likely[0] if len(likely) == 1 else self.separator

    def _sample(self, head: Sequence[str], separator: str, *, complete: bool) -> list[list[str]]:
        """Return the rows in the first lines, without the last one if more follow; an invalid one has no cells."""
        if self._kind == "tsv" and separator == "\t":
            return [line.rstrip("\r").split(separator) for line in head if line.strip()]
        rows = []
        try:
            for cells in csv.reader(head, delimiter=separator, strict=True, skipinitialspace=separator != "\t"):
                rows += [cells] if cells not in ([], [""]) else []
        except csv.Error:
            return [*rows, []] if complete else rows
        return rows if complete else rows[:-1]


@dataclass
class Quoting:
    """Whether the cells of a TSV file, which has no quoting, are quoted nevertheless, as pandas and `csv` write it.

    That is so if every quotation mark is one of a quoted cell, and either some are doubled, or all cells are quoted.

    Attributes:
        quoted: number of quoted cells.
    """

    quoted: int = 0
    _doubled: bool = False
    _plain: bool = False  # whether there are cells without quotation marks
    _other: bool = False  # whether there are other quotation marks

    def see(self, line: str, cells: Sequence[str]) -> None:
        """Take the cells of a line into account."""
        if '"' not in line:
            self._plain |= bool(line)
            return
        for cell in cells:
            if '"' not in cell:
                self._plain = True
            elif _QUOTED.fullmatch(cell):
                self.quoted += 1
                self._doubled |= '"' in cell[1:-1]
            else:
                self._other = True

    @property
    def as_csv(self) -> bool:
        """Whether the cells seen are quoted as in CSV."""
        return bool(self.quoted) and not self._other and (self._doubled or not self._plain)


def header_separator(line: str, fits: Callable[[Sequence[str]], bool]) -> str:
    """Return what separates the names in the header of a table; "" if none separates those that are wanted.

    Args:
        line: the header.
        fits: returns whether the names are those that are wanted.
    """
    return next((separator for separator in SEPARATORS if fits(next(csv.reader([line], delimiter=separator), []))), "")


def _is_regular(rows: Sequence[Sequence[str]], least: int) -> bool:
    """Return whether rows, at least so many, all have the same number of cells."""
    return len(rows) >= least and len({len(row) for row in rows}) == 1


def distinct_names(names: Iterable[str]) -> list[str]:
    """Return names of columns without spaces around, each once: one that occurs again gets a number, as in pandas."""
    seen = Counter[str]()
    distinct = []
    for name in map(str.strip, names):
        distinct.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return distinct
