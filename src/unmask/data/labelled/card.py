"""What README.md of a data set's repository declares: configurations, names of classes, numbers of rows.

Input: the YAML between the first two lines of dashes, as the Hugging Face Hub documents it ("Dataset Cards", "Data
files Configuration"). Output: a `Card`. A key that changes how files are read, and is not understood, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from unmask.data.text.files import MAX_DOCUMENT, read_at_most
from unmask.support.errors import UserError
from unmask.support.hub import METADATA

NAME = "README.md"
DEFAULT = "default"
"""Name of the configuration that has none."""
_KEYS = {"config_name", "data_files", "data_dir", "default", "description", "version"}
_LISTS = ("dtype", "sequence", "list")


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
class Card:
    """What README.md declares.

    Attributes:
        configs: the configurations; empty if it lists none.
        classes: by configuration, the names of the classes in each column that has them.
        rows: the number of rows by configuration and split.
    """

    configs: tuple[Config, ...] = ()
    classes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    rows: Mapping[tuple[str, str], int] = field(default_factory=dict)


def read_card(folder: Path) -> Card:
    """Return what README.md in a directory declares; without such a file, nothing.

    Raises:
        UserError: it cannot be read, is not valid YAML, or does not have the documented form.
    """
    path = folder / NAME
    if not path.is_file():
        return Card()
    try:
        with path.open("rb") as file:
            text = read_at_most(file, MAX_DOCUMENT).decode("utf8", "replace").replace("\r\n", "\n")
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    match = METADATA.match(text)
    return _Parser(path).card(_parse(match[1], path)) if match else Card()


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

    def card(self, content: Any) -> Card:
        """Return the card with this content."""
        if not isinstance(content, Mapping):
            return Card()
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
        return Card(configs, classes, rows)

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
