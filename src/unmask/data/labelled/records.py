"""Records of labeled examples by column name, wherever they are, also in repositories of data sets.

Input: a file of JSON, Parquet, Arrow, SQLite or Excel, an `ExampleTable`, or a split of a repository in the layout of
the Hugging Face Hub: `DIR#SPLIT`, `DIR#CONFIG/SPLIT` or `DIR#FILE`. Output: numbered records, with classes by their
names; the number is that of the line or, where rows are not lines, of the row, from 1.

README.md may list the files of each split (card.py). If it does not, splits are recognized by the names of files and
directories, as in data_files.py of `datasets`: `data/SPLIT-00000-of-00005.parquet`, then a directory or file whose name
contains train, validation, test or a synonym as a word; otherwise all files are `train`. Differs: files of the form
CONFIG/SPLIT/0000.parquet, as in the branch refs/convert/parquet of the Hub, have configurations, and what would be in
two splits is refused. Code in a repository is never run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.data.labelled.card import DEFAULT, Card, Config, read_card
from unmask.data.labelled.delimited import OWN, DelimitedFile, distinct_names
from unmask.data.labelled.json_file import JSON, read_json, suffix_of
from unmask.data.labelled.table import ExampleTable, Source, is_repository
from unmask.data.text.files import encoding_of, refuse_encoding, split_part, with_encoding
from unmask.data.text.record_files import Record, has_reader, name_classes, read_arrow, read_file
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument

ARROW = ("parquet", "arrow", "feather")
FORMATS = (*OWN, *JSON, *ARROW)
"""Suffixes of the files that are read."""
IGNORED = {"README.md", "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json"}
"""Names of files with descriptions."""
WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""Words by which a split is recognized."""
MOST_NAMED = 20
"""Splits that an error names."""
_BETWEEN = r"[-._ 0-9]"
_SHARDS = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]*")
_CONVERTED = re.compile(r"([^/]+)/([^/]+)/\d{4}\.parquet")
_WILDCARD = re.compile(r"[*?[]")
_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})(?!\d)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Split:
    """A split of a data set, or a single file.

    Attributes:
        part: what follows the `#` in its name.
        files: paths of its files in the repository, in order.
        classes: names of the classes in columns that contain their numbers, as README.md declares them.
        rows: the number of rows, if README.md states it.
    """

    part: str
    files: tuple[str, ...]
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rows: int | None = None


def describe_numbers(sources: Iterable[object], labels: Sequence[str]) -> list[str]:
    """Return a note for each repository if all labels are whole numbers, for which it has no names."""
    if not labels or not all(label.removeprefix("-").isdecimal() for label in labels):
        return []
    what = f"the labels are the numbers {', '.join(labels[:MOST_NAMED])}: the data set does not name its classes"
    return [f"{source}: {what}" for source in sources if is_repository(source)]


def find_split(name: str, paths: Sequence[str], card: Card, part: str, *, script: str = "") -> Split:
    """Return a split of a repository.

    Args:
        name: name of the repository, for errors.
        paths: paths of its files.
        card: what its README.md declares.
        part: SPLIT, CONFIG/SPLIT, CONFIG, or the path of a file; "": the only split.
        script: file name of the script by which data would be loaded, if there is one.

    Raises:
        UserError: there is no such split, or it is not clear which files it has.
    """
    if part in paths:
        return Split(part, (part,), card.classes.get(DEFAULT, {}) if len(card.classes) == 1 else {})
    if script in paths and not card.configs:
        raise UserError(
            f"the data of {name} are loaded by the script {script}, and code of a repository is not run",
            remedy=f"the Hub may have converted them: {name.partition('@')[0]}@refs/convert/parquet#CONFIG/SPLIT",
        )
    visible = [path for path in sorted(paths) if not _is_hidden(path)]
    splits = {
        (config.name, split): files
        for config in card.configs or _implied(visible)
        for split, files in _files_by_split(config, visible, name).items()
    }
    if not splits:
        raise UserError(f"{name} has no files of data that can be read", remedy=f"read are {', '.join(FORMATS)}")
    default = _default(card.configs, {config for config, _ in splits})
    config, split = _choose(name, part, list(splits), default)
    classes = card.classes.get(config, {})
    return Split(f"{config}/{split}", splits[config, split], classes, card.rows.get((config, split)))


def read_repository(source: str | Path) -> Iterator[tuple[int, Record]]:
    """Yield the records of a split with their numbers, from 1; see `find_split`.

    Raises:
        UserError: there is no such split; a file is missing or cannot be read; there are not as many rows as README.md
            states.
    """
    folder, part = split_part(source)
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    split = find_split(str(folder), paths, read_card(folder), part, script=f"{folder.resolve().name}.py")
    form = _format(split, str(source))
    _check_shards(split.files, folder)
    number = 0
    for path in split.files:
        for _, record in _read_file(with_encoding(folder / path, encoding_of(source)), form):
            number += 1
            named = record if form in ARROW else _numbered(record, split.classes, str(source), number)
            yield number, name_classes(named, split.classes, str(source), number)
    if split.rows not in (None, number):
        raise UserError(
            f"{counted(number, 'row')}, but README.md states {split.rows:,}",
            file=str(source),
            remedy=f"download it again, or, if README.md is out of date, name the files: {folder}#{split.files[0]}",
        )


def _is_hidden(path: str) -> bool:
    """Return whether a file is none of data by its name."""
    *folders, name = path.split("/")
    return name in IGNORED or any(p.startswith(".") for p in path.split("/")) or any(f[:2] == "__" for f in folders)


def _implied(paths: Iterable[str]) -> list[Config]:
    """Return the configurations of a repository whose README.md lists none."""
    readable = [path for path in paths if suffix_of(path) in FORMATS]
    matches = [_CONVERTED.fullmatch(path) for path in readable]
    if not matches or not all(matches):
        return [Config(DEFAULT)]
    patterns: dict[str, dict[str, tuple[str, ...]]] = {}
    for config, split in dict.fromkeys((match[1], match[2]) for match in matches if match):
        patterns.setdefault(config, {})[split] = (f"{_literal(config)}/{_literal(split)}/*",)
    return [Config(config, splits) for config, splits in patterns.items()]


def _literal(name: str) -> str:
    """Return a pattern that matches only a name."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _files_by_split(config: Config, paths: Sequence[str], name: str) -> dict[str, tuple[str, ...]]:
    """Return the files of the splits that have some."""
    inside = [path.removeprefix(config.folder) for path in paths if path.startswith(config.folder)]
    if config.patterns is None:
        splits = _by_name([path for path in inside if suffix_of(path) in FORMATS], name)
    else:
        splits = {}
        for split, patterns in config.patterns.items():
            matches = [[path for path in inside if _regex(pattern).fullmatch(path)] for pattern in patterns]
            absent = [p for p, files in zip(patterns, matches, strict=True) if not files and not _WILDCARD.search(p)]
            if absent and any(matches):
                raise UserError(
                    f"{name} has no file '{absent[0]}' of {config.name}/{split}", remedy="download it again"
                )
            splits[split] = list(dict.fromkeys(path for files in matches for path in files))
    return {split: tuple(config.folder + path for path in files) for split, files in splits.items() if files}


def _by_name(paths: Sequence[str], name: str) -> dict[str, list[str]]:
    """Return files by the split that their names tell; those of no split are left out if others have one."""
    shards: dict[str, list[str]] = {}
    for path in paths:
        if match := _SHARDS.fullmatch(path):
            shards.setdefault(match[1], []).append(path)
    if shards:
        return shards
    for has_word in (_in_folder, _in_name):
        splits = {split: [path for path in paths if has_word(path, words)] for split, words in WORDS.items()}
        counts = Counter(path for files in splits.values() for path in files)
        if counts and max(counts.values()) > 1:
            path = counts.most_common(1)[0][0]
            raise UserError(f"{name}: '{path}' may be of several splits", remedy=f"name the file: {name}#{path}")
        if counts:
            return splits
    return {"train": list(paths)}


def _in_folder(path: str, words: Iterable[str]) -> bool:
    """Return whether a file is in a directory whose name contains one of the words."""
    pattern = re.compile(rf"(?:^|{_BETWEEN})(?:{'|'.join(words)})(?:{_BETWEEN}|$)")
    return any(pattern.search(folder) for folder in path.split("/")[:-1])


def _in_name(path: str, words: Iterable[str]) -> bool:
    """Return whether the name of a file contains one of the words."""
    return re.search(rf"(?:^|{_BETWEEN})(?:{'|'.join(words)}){_BETWEEN}", path.rpartition("/")[2]) is not None


def _regex(pattern: str) -> re.Pattern[str]:
    """Return a pattern of paths as a regular expression: only `**` matches slashes."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    regex = ""
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", pattern, re.DOTALL):
        if len(token) > 2 and token[0] == "[":
            inside = token[1:-1].replace("\\", r"\\")
            regex += f"[^{inside[1:]}]" if inside[0] == "!" else f"[{inside}]"
        else:
            regex += parts.get(token) or re.escape(token)
    return re.compile(regex, re.DOTALL)


def _default(configs: Sequence[Config], names: set[str]) -> str:
    """Return the configuration that is read if none is named; "" if it is not clear."""
    marked = [config.name for config in configs if config.default]
    candidates = marked or [name for name in names if name == DEFAULT or len(names) == 1]
    return candidates[0] if len(candidates) == 1 else ""


def _choose(name: str, part: str, splits: Sequence[tuple[str, str]], default: str) -> tuple[str, str]:
    """Return the configuration and the split that a part names."""
    config, slash, split = part.rpartition("/")
    if slash:
        candidates = [pair for pair in splits if pair == (config, split)]
    else:
        candidates = [pair for pair in splits if pair == (default, part) or pair[0] == (part or default)]
    if len(candidates) == 1:
        return candidates[0]
    known = [f"{name}#{split if config == default else f'{config}/{split}'}" for config, split in splits]
    problem = f"there are several splits in {name}" if not part or candidates else f"{name} has no split '{part}'"
    more = f", … ({len(known)})" if len(known) > MOST_NAMED else ""
    raise UserError(problem, remedy=f"name one: {', '.join(known[:MOST_NAMED])}{more}")


def _format(split: Split, name: str) -> str:
    """Return the format of all files of a split."""
    suffixes = sorted({suffix_of(path) for path in split.files})
    if len(suffixes) > 1 or suffixes[0] not in FORMATS:
        raise UserError(
            f"its files are {' and '.join(f'.{suffix}' for suffix in suffixes)}",
            file=name,
            remedy=f"name files of one of the formats {', '.join(FORMATS)}",
        )
    return suffixes[0]


def _check_shards(paths: Iterable[str], folder: Path) -> None:
    """Check that of files numbered 00000-of-00005 there are as many."""
    shards = Counter((match[1], match[3], match[4]) for path in paths if (match := _NUMBERED.fullmatch(path)))
    for (start, total, end), number in shards.items():
        if number < int(total):
            raise UserError(
                f"{number} of {counted(int(total), 'file')} {start}-*-of-{total}{end}",
                file=folder,
                remedy="download the others where there is a connection",
            )


def _read_file(path: str | Path, form: str) -> Iterator[tuple[int, Record]]:
    if form in ARROW:
        refuse_encoding(path)
        yield from read_arrow(Path(path))
    elif form in JSON:
        yield from read_json(path)
    else:
        yield from _read_table(path, form)


def _read_table(path: str | Path, form: str) -> Iterator[tuple[int, Record]]:
    """Yield the rows of a file of cells with a header as records of text."""
    table = DelimitedFile(path, form, bool, header=True)
    rows = ((line, cells) for line, cells in table.rows() if cells not in ([], [""]))
    _, header = next(rows, (0, []))
    names = distinct_names(cell.strip() for cell in header)
    for line, cells in rows:
        if len(cells) != len(names):
            raise UserError(f"{counted(len(cells), 'column')} where there should be {len(names)}", file=path, line=line)
        yield line, dict(zip(names, cells, strict=True))


def _numbered(record: Record, classes: Mapping[str, Sequence[str]], file: str, line: int) -> Record:
    """Return a record in which classes that are written as text are numbers or names.

    Raises:
        UserError: a text is neither, or may be both.
    """

    def number(column: str, value: Any) -> Any:
        if isinstance(value, list):
            return [number(column, item) for item in value]
        if not isinstance(value, str):
            return value
        names, digits = classes[column], re.fullmatch(r"-?\d{1,9}", value.strip(), re.ASCII) is not None
        if digits and value in names and names.index(value) != int(value):
            raise UserError(f"'{column}' may be class number {value} or the class '{value}'", file=file, line=line)
        if not digits and value not in names:
            raise UserError(f"'{column}' is '{value[:80]}', none of its classes", file=file, line=line)
        return int(value) if digits else value

    return record | {column: number(column, record[column]) for column in classes if column in record}


def has_records(source: Source, kind: str | None) -> bool:
    """Return whether a source is read by `read_records`, by its suffix or the given format."""
    return kind in JSON or is_table(source, kind) or (kind is None and suffix_of(str(source)) in JSON)


def is_table(source: Source, kind: str | None) -> bool:
    """Return whether the records of a source are rows with named columns, rather than values of JSON."""
    if isinstance(source, ExampleTable) or is_repository(source):
        return True
    return kind is None and has_reader(source)


def read_records(source: Source, kind: str | None = None) -> Iterator[tuple[int, Record]]:
    """Yield the number of each line or row, and its values by column.

    Args:
        source: a file, a directory of `datasets`, a split of a repository, or examples in memory.
        kind: "jsonl" if the suffix does not determine the format.

    Raises:
        UserError: the source cannot be read; the message names line or row.
    """
    if isinstance(source, ExampleTable):
        yield from source.records()
    elif is_repository(source):
        if kind is not None:
            raise UserError(f"{argument('format', kind)} has no effect on a data set", file=source, remedy="remove it")
        yield from read_repository(source)
    elif kind is None and has_reader(source):
        yield from read_file(source)
    else:
        yield from read_json(source)
