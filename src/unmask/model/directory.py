"""The directory of a model, of its tokenizer, and the settings in it.

Input: MODEL on the command line: a run directory, a Hugging Face directory, one of sentence-transformers whose encoder
is in a folder of its own, one of AllenNLP's ELMo, or the name of a model on the Hugging Face Hub, which is downloaded
(families/checkpoints/hub.py). Output: the directory with the files.

`read_directory` and `read_task` return what such a directory holds, of whichever library: the parts of which
`load_model` makes a model, checked against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
from torch import Tensor

from unmask.data.batches.frame import adopt_framing
from unmask.data.tokenizers.load import load_tokenizer, read_length
from unmask.data.tokenizers.tokenizer import ALL_FILES as TOKENIZER_FILES
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.word_level import without_words
from unmask.families import BodySettings
from unmask.families.checkpoints import allennlp, hub, huggingface
from unmask.families.checkpoints.check import check_checksums
from unmask.families.checkpoints.config_file import check_files
from unmask.families.checkpoints.sentence_files import (
    encoder_folder,
    read_cross_encoder,
    static_folder,
    warn_of_classifier,
)
from unmask.families.format import Pretrained
from unmask.nn.encoders.downstream import DownstreamSettings
from unmask.objectives import OBJECTIVES
from unmask.recipes.recipe import shipped
from unmask.support.choices import check_path
from unmask.support.durable import read_json, replace_file
from unmask.support.environment import warn_if_shared
from unmask.support.errors import UserError
from unmask.support.hub import parse
from unmask.support.messages import argument
from unmask.support.settings import convert
from unmask.tasks import TASKS, AnyTask
from unmask.tasks.task import ModelFiles, Task
from unmask.training.runs.directory import CHECKPOINTS

TASKS_FILE = "tasks.json"
"""File of a directory with the models of several tasks: their names, in order."""
NAME_ONE = "name a run, a directory or a model on the Hub"
MAX_NEW = 100
"""Maximum number of added tokens that may lack weights, which are then newly initialized."""


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
        if static_folder(path) is not None:
            raise UserError(
                "a static encoder has vectors of tokens alone, and no layers",
                file=path,
                remedy="name the model it was made of",
            )
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
    folder = next((of for of in (Path(source) / "model", Path(source)) if (of / TASKS_FILE).is_file()), None)
    if folder is None:
        return {}
    names = read_json(folder / TASKS_FILE, _Tasks, "copy it again").tasks
    folders = {path.name for path in folder.iterdir() if path.is_dir()}
    if missing := [name for name in names if name not in folders]:
        raise UserError(
            f"there is no model of the task '{missing[0]}'", file=folder / TASKS_FILE, remedy="copy it again"
        )
    return {name: folder / name for name in names}


def write_tasks(folder: Path, tasks: Iterable[str]) -> None:
    """Write the list of the tasks whose models are in a directory, for `models_of_tasks`."""
    replace_file(folder / TASKS_FILE, msgspec.json.format(msgspec.json.encode({"tasks": list(tasks)})) + b"\n")


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


def read_directory(directory: Path, *, allow_pickle: bool) -> tuple[Pretrained, Tokenizer]:
    """Return the contents of the files of a model, of whichever program, and its tokenizer.

    Raises:
        UserError: a file is damaged.
    """
    warn_if_shared(directory)
    with ThreadPoolExecutor(1) as pool:  # while the files are read
        checked = pool.submit(check_checksums, directory)
        if allennlp.is_directory(directory):
            words = load_tokenizer(directory) if (directory / "vocab.txt").exists() else without_words()
            pretrained = allennlp.read(directory, words.size)
        else:
            pretrained = huggingface.read(directory, allow_pickle=allow_pickle)
            warn_of_classifier(directory)
            words = load_tokenizer(directory)
        checked.result()
    known = {*OBJECTIVES, "downstream", *(task().part for task in TASKS.values())}
    if unknown := sorted(pretrained.heads.keys() - known):
        raise UserError(f"unknown head '{unknown[0]}'", file=directory / "model.safetensors")
    words.summary = pretrained.settings.summary
    adopt_framing(words, directory)
    kind = (pretrained.task or {}).get("kind")
    if isinstance(kind, str) and kind in TASKS and TASKS[kind].head.weightless:
        pretrained = replace(pretrained, heads={**pretrained.heads, TASKS[kind].part: {}})
    return pretrained, words


def num_new(pretrained: Pretrained, words: Tokenizer, directory: Path) -> int:
    """Return how many added tokens of the tokenizer lack weights.

    Raises:
        UserError: the tokenizer is not that of the model.
    """
    new, wrong = max(0, words.size - pretrained.vocabulary), ""
    if not pretrained.settings.reads(words.kind.name):
        wrong = f"the model cannot read the tokenizer beside it, which is of the kind {words.kind.name}"
    elif pretrained.settings.mismatch(words.pad):
        wrong = f"the padding id in config.json differs from that of the tokenizer, {words.pad}"
    elif new > words.added:
        wrong = f"the tokenizer has {words.size} tokens, but the model {pretrained.vocabulary}"
    elif new > MAX_NEW:
        wrong = f"the tokenizer has {new:,} added tokens without weights, more than {MAX_NEW}"
    if wrong:
        raise UserError(wrong, file=directory, remedy="use the tokenizer that belongs to the model")
    return new


def read_task(
    pretrained: Pretrained, words: Tokenizer, directory: Path
) -> tuple[Task | None, DownstreamSettings | None]:
    """Return the settings of the task and of the downstream model, None each if there are none.

    The settings of the task are those stored under "unmask"; in a directory of another library they follow from the
    head and the files of sentence-transformers, with default values.

    Raises:
        UserError: the stored settings are damaged, or the head that they require is missing; or a cross-encoder or a
            classifier on GPT needs what is not supported.
    """
    longest = None if pretrained.task else read_cross_encoder(directory, words)
    kind = next((kind for kind, task in TASKS.items() if task().part in pretrained.heads), None)
    if kind is None and pretrained.task is not None and "downstream" in pretrained.task:
        raise UserError("the head on the downstream model is missing", file=directory / "model.safetensors")
    if kind is None:
        return None, None
    if not pretrained.task and pretrained.settings.summary == "extract":
        raise UserError(
            "this classifier of another program reads texts without the special tokens that GPT has around them here",
            file=directory / "config.json",
            remedy="fine-tune the pretrained model here",
        )
    length = min(pretrained.settings.positions, longest or read_length(directory))
    activation = {"activation": pretrained.activation} if pretrained.activation else {}
    written = pretrained.task or {"kind": kind, "length": length, **activation}
    settings = {key: value for key, value in written.items() if key != "downstream"}
    table = {"task": settings, "downstream": written.get("downstream")}
    read = convert(table, _Task, f"{directory / 'config.json'}: unmask")
    task = read.task
    if task.part not in pretrained.heads or task.length > pretrained.settings.positions:
        raise UserError("the settings under 'unmask' do not match the weights", file=directory / "config.json")
    return task, read.downstream


def read_beside(task: Task | None, files: ModelFiles) -> tuple[Task | None, dict[str, Mapping[str, Tensor]]]:
    """Return the task as files beside the weights declare it, and the tensors of its head that they hold, by its part.

    Args:
        task: the task that the model states; None: the first task is taken that has files in the directory.
        files: the directory.

    Raises:
        UserError: a file is damaged or missing, or states what is not supported.
    """
    for kind in TASKS.values() if task is None else [type(task)]:
        if (found := kind.read_files(files, task)) is not None:
            declared, tensors = found
            return declared, {declared.part: tensors}
    return task, {}


class _Task(msgspec.Struct):
    task: AnyTask
    downstream: DownstreamSettings | None = None
