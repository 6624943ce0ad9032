"""What the directory of a model holds, of whichever library: its weights, its tokenizer and its task.

In: a directory. Out: the parts of which `load_model` makes a model, checked against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
from torch import Tensor

from unmask.data.batches.frame import adopt_framing
from unmask.data.tokenizers.load import load_tokenizer, read_length
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.word_level import without_words
from unmask.families.checkpoints import allennlp, huggingface
from unmask.families.checkpoints.check import check_checksums
from unmask.families.checkpoints.sentence_files import read_cross_encoder, warn_of_classifier
from unmask.families.format import Pretrained
from unmask.nn.encoders.downstream import DownstreamSettings
from unmask.objectives import OBJECTIVES
from unmask.support.environment import warn_if_shared
from unmask.support.errors import UserError
from unmask.support.settings import convert
from unmask.tasks import TASKS, AnyTask
from unmask.tasks.task import ModelFiles, Task

MAX_NEW = 100
"""Maximum number of added tokens that may lack weights, which are then newly initialized."""


def read_directory(directory: Path, *, allow_pickle: bool) -> tuple[Pretrained, Tokenizer]:
    """Return the contents of the files of a model, of whichever program, and its tokenizer.

    Raises:
        UserError: a file is damaged.
    """
    warn_if_shared(directory)
    with ThreadPoolExecutor(1) as pool:  # while the files are read
        checked = pool.submit(check_checksums, directory)
        if published := allennlp.is_directory(directory):
            words = load_tokenizer(directory) if (directory / "vocab.txt").exists() else without_words()
            pretrained = allennlp.read(directory, words.size)
        else:
            pretrained = huggingface.read(directory, allow_pickle=allow_pickle)
            warn_of_classifier(directory)
        checked.result()
    if not published:
        words = load_tokenizer(directory)
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
