"""The tables of a file in finetuning/: what is compared, on which data, from which starts, by which methods."""

from __future__ import annotations

import tomllib
from typing import Any, Literal, NamedTuple

import msgspec
from common import HERE
from quality import Table

COMPARISONS = HERE / "finetuning"


class Data(Table, frozen=True):
    """A data set; with `optional` it runs only where --only names it."""

    task: str
    metric: str  # the score that is shown
    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()  # evaluated on along the way, and scored at the end
    test: tuple[str, ...] = ()  # scored instead, after training
    held: tuple[str, ...] = ()  # to choose by; a split of the training data where `prepare` makes one
    unlabelled: tuple[str, ...] = ()  # for students with `unlabelled`, which do not see the labels
    prepare: str = ""  # what is made of the files first: see Bench.files
    examples: int | None = None  # to train on, at most
    each: int | None = None  # of the training sentences, one in `each` is used
    watched: int | None = None  # number of dev sentences
    label: str = ""  # what records call it, if not by its name
    ask: tuple[str, str] | None = None  # a pair of texts that the finished model is asked about
    probe: str = ""  # the downstream model where a method leaves it to the data
    factors: tuple[float, ...] = ()  # of the rule's learning rate for classification, in a grid
    epochs: tuple[float, ...] = ()  # in a grid
    settings: tuple[str, ...] = ()
    passage_loss: bool = False  # whether the Trainer too looks for answers in the passage alone
    choosing: dict[str, Any] = msgspec.field(
        default_factory=dict
    )  # what is different in runs that serve the choice of a learning rate
    choosing_seeds: int = 1  # by the mean of how many seeds it is chosen
    failed: dict[str, tuple[float, ...]] = msgspec.field(
        default_factory=dict
    )  # by start, the factors that are not chosen
    optional: bool = False


class Start(Table, frozen=True):
    """The weights to start from: of `model`, or random ones; with `optional` it runs only where --only names it."""

    model: str = ""  # "minilm", or a case of pretraining.toml
    body: str = ""  # the same, whose body and vocabulary random weights have
    recipe: str = ""  # whose body random weights have,
    tokenizer: str = ""  # with the vocabulary of a text of pretraining.toml or of a model
    labels: dict[str, Any] = msgspec.field(
        default_factory=dict
    )  # fields of its records; `start` is its name unless it is here
    data: tuple[str, ...] = ()  # that it is for, if not for all
    methods: tuple[str, ...] = ()  # the same
    settings: tuple[str, ...] = ()
    optional: bool = False


class Method(Table, frozen=True):
    """How a start learns a data set.

    Attributes:
        rates: "rule": the default learning rate; "best": the best of `factors` times that of classification from
            pretrained weights, chosen with the data's first seeds; "grid": each of the data's factors and numbers of
            epochs, scored by `held`.
    """

    frozen: str = ""  # the downstream model on the frozen encoder, or "probe" of the data; empty: fine-tuning
    rates: Literal["rule", "best", "grid"] = "rule"
    factors: tuple[float, ...] = ()
    digits: int = 0  # significant ones, to which the learning rate is rounded; 0: not rounded
    settings: tuple[str, ...] = ()
    trainer: bool = False  # by the Hugging Face Trainer instead (see trainer_finetune.py)
    layers: int = 0  # only so many of the start's layers, at equal distances; 0: all
    recipe: str = ""  # of a student with `layers`, which learns from the start fine-tuned on the same data,
    alone: bool = False  # or which is trained on the labels alone, from the same weights
    unlabelled: bool = False  # also on the data's unlabelled examples


class Comparison(Table, frozen=True):
    """A file of finetuning/; what is in its [defaults] is in all of its data sets."""

    key: tuple[str, ...]  # the fields of a record that tell it from others ("NAME" or "NAME=VALUE'S NAME")
    record: tuple[str, ...]  # the other ones
    data: dict[str, Data]
    starts: dict[str, Start]
    methods: dict[str, Method]
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: tuple[str, ...] = ()
    keep: bool = False  # whether run directories are kept


class Task(NamedTuple):
    """A data set, a start and a method, with their labels in records."""

    data: Data
    start: Start
    method: Method
    labels: dict[str, Any]


def read_comparison(name: str) -> Comparison:
    """Return a comparison."""
    table = tomllib.loads((COMPARISONS / f"{name}.toml").read_text(encoding="utf8"))
    shared = table.pop("defaults", {})
    table["data"] = {name: {**shared, **own} for name, own in table["data"].items()}
    return msgspec.convert(table, Comparison)
