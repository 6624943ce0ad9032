"""The splits of a repository of data sets, in the layout of the Hugging Face Hub: which files each has.

Input: the paths of its files, and what README.md declares (`DatasetCard`). If that lists no files, splits are
recognized by the names of files and directories, as in data_files.py of `datasets`:
`data/SPLIT-00000-of-00005.parquet`, then a directory or file whose name contains train, validation, test or a synonym
as a word; otherwise all files are `train`. Differs: files of the form CONFIG/SPLIT/0000.parquet, as in the branch
refs/convert/parquet of the Hub, have configurations, and what would be in two splits is refused. Code in a repository
is never run.

A `DatasetCard` is what README.md declares: configurations, names of classes, numbers of rows. Input: the YAML between
the first two lines of dashes, as the Hugging Face Hub documents it ("Dataset Cards", "Data files Configuration"). A key
that changes how files are read, and is not understood, is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from unmask.data.labelled.delimited import OWN
from unmask.data.labelled.json_file import JSON, suffix_of
from unmask.data.text.files import MAX_DOCUMENT, read_at_most
from unmask.support.errors import UserError
from unmask.support.hub import METADATA

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
CARD = "README.md"
"""File in which a repository declares them."""
DEFAULT = "default"
"""Name of the configuration that has none."""
_KEYS = {"config_name", "data_files", "data_dir", "default", "description", "version"}
_LISTS = ("dtype", "sequence", "list")


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


def find_split(name: str, paths: Sequence[str], card: DatasetCard, part: str, *, script: str = "") -> Split:
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


@dataclass(frozen=True)
class Config:
    """A configuration of a data set.

    Attributes:
        name: its name.
        patterns: patterns of the paths of the files of each split; None: they are recognized by their names.
        folder: the directory that the patterns are relative to, with a slash at its end; "": that of the repository.
        default: whether it is marked as the one to read.
    """

    name: str
    patterns: Mapping[str, tuple[str, ...]] | None = None
    folder: str = ""
    default: bool = False


@dataclass(frozen=True)
class DatasetCard:
    """What README.md declares.

    Attributes:
        configs: the configurations; empty if it lists none.
        classes: by configuration, the names of the classes in each column that has them.
        rows: the number of rows by configuration and split.
    """

    configs: tuple[Config, ...] = ()
    classes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    rows: Mapping[tuple[str, str], int] = field(default_factory=dict)


def read_card(folder: Path) -> DatasetCard:
    """Return what README.md in a directory declares; without such a file, nothing.

    Raises:
        UserError: it cannot be read, is not valid YAML, or does not have the documented form.
    """
    path = folder / CARD
    if not path.is_file():
        return DatasetCard()
    try:
        with path.open("rb") as file:
            text = read_at_most(file, MAX_DOCUMENT).decode("utf8", "replace").replace("\r\n", "\n")
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    match = METADATA.match(text)
    return _Parser(path).card(_parse(match[1], path)) if match else DatasetCard()


def _parse(text: str, path: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise UserError("needs PyYAML", file=path, remedy="pip install 'unmask[hub]'") from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"its YAML is broken ({' '.join(str(error).split())[:200]})", file=path) from error


@dataclass(frozen=True)
class _Parser:
    """Parser of the YAML of a README.md, whose errors name the file."""

    path: Path

    def card(self, content: Any) -> DatasetCard:
        """Return the card with this content."""
        if not isinstance(content, Mapping):
            return DatasetCard()
        configs = tuple(map(self._config, self._objects(content.get("configs"), "configs")))
        if len({config.name for config in configs}) < len(configs):
            self._refuse("two configurations have the same name")
        classes, rows = {}, {}
        for info in self._objects(content.get("dataset_info"), "dataset_info"):
            name = str(info.get("config_name", DEFAULT))
            features = self._objects(info.get("features"), "features")
            classes[name] = {str(feature.get("name")): names for feature in features if (names := self._names(feature))}
            for split in self._objects(info.get("splits"), "splits"):
                if isinstance(number := split.get("num_examples"), int):
                    rows[name, str(split.get("name"))] = number
        return DatasetCard(configs, classes, rows)

    def _config(self, table: Mapping[str, Any]) -> Config:
        name = str(table.get("config_name", DEFAULT))
        if unknown := sorted(map(str, table.keys() - _KEYS)):
            self._refuse(f"configuration '{name}' sets '{unknown[0]}', which is not supported")
        files, folder = table.get("data_files"), str(table.get("data_dir") or "").removeprefix("./").strip("/")
        patterns = None if files is None else dict(self._patterns(files, name))
        return Config(name, patterns, f"{folder}/" if folder else "", table.get("default") is True)

    def _patterns(self, files: Any, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the patterns of each split of `data_files`: of an object, a list of objects, or of one split."""
        if isinstance(files, Mapping):
            pairs = list(files.items())
        elif isinstance(files, list) and files and all(isinstance(entry, Mapping) for entry in files):
            pairs = [(entry.get("split"), entry.get("path")) for entry in files]
        else:
            pairs = [("train", files)]
        if len({split for split, _ in pairs}) < len(pairs):
            self._refuse(f"configuration '{name}' has a split twice")
        for split, paths in pairs:
            paths = paths if isinstance(paths, list) else [paths]
            if not isinstance(split, str) or not paths or not all(isinstance(path, str) for path in paths):
                self._refuse(f"'data_files' of configuration '{name}' are not paths by split")
            if outside := [path for path in paths if "://" in path or path.startswith("/") or ".." in path.split("/")]:
                self._refuse(f"'{outside[0]}' is not in the repository")
            yield split, tuple(path.removeprefix("./") for path in paths)

    def _names(self, feature: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the classes of a feature, also of one in a list; empty if it has none."""
        label = feature.get("class_label")
        if isinstance(label, Mapping):
            names = label.get("names")
            if isinstance(names, Mapping):  # numbers as text to names
                if {str(number) for number in names} != set(map(str, range(len(names)))):
                    self._refuse("the classes are not numbered from 0")
                names = [names[number] for number in sorted(names, key=int)]
            return tuple(map(str, names)) if isinstance(names, list) else ()
        inner = next((feature[key] for key in _LISTS if isinstance(feature.get(key), Mapping)), None)
        return self._names(inner) if inner is not None else ()

    def _objects(self, value: Any, key: str) -> list[Mapping[str, Any]]:
        """Return a list of objects, or a single object as such a list; nothing is an empty one."""
        objects = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(entry, Mapping) for entry in objects):
            self._refuse(f"'{key}' is not a list of objects")
        return objects

    def _refuse(self, problem: str) -> NoReturn:
        raise UserError(problem, file=self.path, remedy="name one of the files: NAME#PATH")
