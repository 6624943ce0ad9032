"""The directory of a model, of its tokenizer, and the settings in it.

Input: MODEL on the command line: a run directory, a Hugging Face directory, one of sentence-transformers whose encoder
is in a folder of its own, one of AllenNLP's ELMo, or the name of a model on the Hugging Face Hub, which is downloaded
(families/checkpoints/hub.py). Output: the directory with the files.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from unmask.data.tokenizers.tokenizer import ALL_FILES as TOKENIZER_FILES
from unmask.families import BodySettings
from unmask.families.checkpoints import allennlp, hub, huggingface
from unmask.families.checkpoints.config_file import check_files
from unmask.families.checkpoints.sentence_files import encoder_folder
from unmask.recipes.recipe import shipped
from unmask.support.choices import check_path
from unmask.support.durable import read_json, replace_file
from unmask.support.errors import UserError
from unmask.support.hub import parse
from unmask.support.messages import argument
from unmask.training.runs.directory import CHECKPOINTS

TASKS = "tasks.json"
"""File of a directory with the models of several tasks: their names, in order."""
NAME_ONE = "name a run, a directory or a model on the Hub"


class _Tasks(msgspec.Struct, forbid_unknown_fields=True):
    tasks: list[str]


def find(source: str | Path, *, allow_pickle: bool = False) -> Path:
    """Return the directory of MODEL with its config.json, or with AllenNLP's files; a model on the Hub is downloaded.

    Args:
        source: the model; a path may be given as text or as `Path`, a name on the Hub only as text.
        allow_pickle: whether to download pickled weights if there are no others.

    Raises:
        UserError: there is no such directory or model.
    """
    check_path(source, "a model", NAME_ONE)
    path = Path(source)
    for directory in (path / "model", path, *_encoder(path)):
        if (directory / "config.json").is_file() or allennlp.is_directory(directory):
            return directory
    if tasks := models_of_tasks(path):
        raise UserError(
            f"this run has a model for each of its tasks: {', '.join(tasks)}",
            file=path,
            remedy=f"name one of them, such as {next(iter(tasks.values()))}",
        )
    if (path / CHECKPOINTS).is_dir():
        raise UserError(
            "this run is not finished",
            file=path,
            remedy=f"continue: repeat the command with {argument('resume', True)}",
        )
    if (path / "seed-0").is_dir():
        raise UserError(
            "these runs are not finished",
            file=path,
            remedy=f"continue: repeat the command with {argument('resume', True)}",
        )
    if checkpoints := [file.parent for file in path.glob("checkpoint-*/config.json")]:
        last = max(checkpoints, key=lambda folder: (len(folder.name), folder.name))
        raise UserError(
            "no model, but checkpoints of transformers' Trainer",
            file=path,
            remedy=f"name one of them, such as the last one, {last}",
        )
    if path.is_dir():
        check_files(path)
        raise UserError(
            "neither a run with a finished model nor a directory of Hugging Face's or AllenNLP's files", file=path
        )
    if str(source) in shipped():
        raise UserError(f"'{source}' is a recipe", remedy=f"for untrained weights, write random:{source}")
    if (name := parse(source)) is not None:
        folder = hub.download(*name, allow_pickle=allow_pickle)
        return next((inner for inner in _encoder(folder) if not (folder / "config.json").is_file()), folder)
    names = "a model on the Hugging Face Hub is written NAMESPACE/NAME, and only a path ./NAME"
    raise UserError(f"no directory '{source}'", remedy="check the path" if path.is_absolute() else names)


def models_of_tasks(source: str | Path) -> dict[str, Path]:
    """Return the directories of the models of a run on several tasks, by the name of the task; {} for other sources.

    Raises:
        UserError: the list of the tasks is damaged, or one of the models is missing.
    """
    check_path(source, "a model", NAME_ONE)
    folder = next((of for of in (Path(source) / "model", Path(source)) if (of / TASKS).is_file()), None)
    if folder is None:
        return {}
    names = read_json(folder / TASKS, _Tasks, "copy it again").tasks
    folders = {path.name for path in folder.iterdir() if path.is_dir()}
    if missing := [name for name in names if name not in folders]:
        raise UserError(f"there is no model of the task '{missing[0]}'", file=folder / TASKS, remedy="copy it again")
    return {name: folder / name for name in names}


def write_tasks(folder: Path, tasks: Iterable[str]) -> None:
    """Write the list of the tasks whose models are in a directory, for `models_of_tasks`."""
    replace_file(folder / TASKS, msgspec.json.format(msgspec.json.encode({"tasks": list(tasks)})) + b"\n")


def find_tokenizer(source: str | Path) -> Path:
    """Return the tokenizer directory of a model, a run or a tokenizer; that of a model on the Hub is downloaded.

    Args:
        source: a path as text or as `Path`, or a name on the Hub as text.

    Raises:
        UserError: there is no such model on the Hub, or the source is a text.
    """
    check_path(source, "a tokenizer", NAME_ONE)
    path = Path(source)
    if (name := parse(source)) is not None:
        return hub.download(*name, files=("config.json", *TOKENIZER_FILES))
    encoder = [] if any((path / file).is_file() for file in TOKENIZER_FILES) else _encoder(path)
    return next((folder for folder in (path / "model", *encoder, path) if folder.is_dir()), path)


def _encoder(path: Path) -> list[Path]:
    """Return the folder of the encoder in a directory of sentence-transformers, if it has one of its own."""
    name = encoder_folder(path)
    return [path / name] if name else []


def read_settings(source: str | Path) -> BodySettings:
    """Return the encoder settings of MODEL, without reading its weights.

    Raises:
        UserError: the model does not exist or is damaged.
    """
    directory = find(source)
    return (allennlp if allennlp.is_directory(directory) else huggingface).read_settings(directory)
