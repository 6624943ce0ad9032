"""Base class of all tasks, between labeled files and the code that trains, evaluates or queries a model.

examples -> `frame` -> samples -> (encoder, head) -> logits of each sample -> `Framed.read` -> predictions -> `measure`

A task is its settings, the recipe's [task]: a frozen value that is stored with the model, so that texts are processed
at inference as they were in training.
A `Mistake` shows people a wrong prediction: the texts, the gold answer and the prediction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np
from torch import Tensor

from unmask.data.batches.batch import Sample
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.table import Source
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families.body import BodySettings
from unmask.families.checkpoints.sentence_modules import Pooling
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import Encoder, HeadSpec
from unmask.objectives.objective import Objective
from unmask.support.errors import UserError, counted
from unmask.support.messages import call
from unmask.support.model_card import Card
from unmask.tasks.explained import Decision, SampleWords
from unmask.tasks.mistakes import Mistake
from unmask.tasks.routes import Route
from unmask.tasks.token_vectors import TokenEncoder

Paths = Sequence[Source]
"""Labeled files, or examples in memory."""
Columns = Mapping[str, str]
"""Mapping of our column names to those of a file."""
Notes = list[str] | None
"""List that collects messages for the user, one line each; None discards them."""

Operation = Literal["frozen", "downstream", "temperature", "vocabulary", "export"]
"""What cannot be done with every task: fine-tuning with a frozen encoder, or with a downstream model; distillation with
predictions that a temperature softens, or by a student with another vocabulary; export of its head."""


@dataclass(frozen=True)
class Reason:
    """Why something cannot be done, and what to do instead, as in a `UserError`."""

    why: str
    remedy: str


Refusals = Mapping[Operation, Reason]


@dataclass(frozen=True)
class Training:
    """What the defaults of fine-tuning and distillation depend on.

    Attributes:
        rate: multiple of the learning rate.
        epochs: minimum number of epochs.
        steps: minimum number of steps, however many epochs they take.
        probe: whether its head can begin as a logistic regression, a `ProbedHead`.
        unprobed: its settings that a logistic regression ignores.
        tuned: settings that belong to the training of one model, with the values that they have before: a student does
            not inherit them.
        inherited: settings that a model which continues one of the same task takes from it, unless they are given.
    """

    rate: float = 1.0
    epochs: int = 3
    steps: int = 0
    probe: bool = False
    unprobed: tuple[str, ...] = ()
    tuned: Mapping[str, Any] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()


@dataclass(frozen=True)
class HeadOrigin:
    """What the head of a task begins with, and how it is stored.

    Attributes:
        weightless: whether it has no weights of its own, so that only the settings of a model tell that it has the
            task.
        adopts: the pretraining head that it is: it begins with the weights of it, and is stored in its place; "": none.
        continues: the heads of other tasks that it begins with, if the model has no head of its own task.
    """

    weightless: bool = False
    adopts: str = ""
    continues: tuple[str, ...] = ()


@dataclass(frozen=True)
class Vectors:
    """The vectors that a task trains, by which texts are compared: those of texts, of tokens, sparse ones, or none.

    Attributes:
        pooling: how vectors of whole texts are made, which the head predicts, (1, width), divided by their norms but
            not cut; None: they are not trained.
        tokens: how vectors of tokens are made and compared; None: they are not trained.
        sparse: whether vectors are weights of the tokens of the vocabulary: for a single text the head predicts them,
            (1, vocabulary), none below 0, and the prediction is a `sparse.SparseVector`.
    """

    pooling: Pooling | None = None
    tokens: TokenEncoder | None = None
    sparse: bool = False


@dataclass(frozen=True)
class Framed:
    """Examples as samples, and the conversion of logits to predictions.

    Attributes:
        samples: one or several samples (windows) per example.
        read: converts the logits of each sample, in the samples' order, each (targets, classes), to predictions, one
            per example.
        notes: messages for the user about what was repaired, truncated or left out, one line each; those that count
            examples are `ShareNote`s, which are added over windows.
        outputs: converts the logits likewise to the outputs of the head for each example, (examples, outputs); None:
            they are not of examples, but of tokens.
        cut: whether each example was truncated; empty if none can be.
        words: returns the words of a sample, by its number, for explanations; None: predictions are not explained.
    """

    samples: list[Sample]
    read: Callable[[Sequence[np.ndarray]], list[Any]]
    notes: tuple[str, ...] = ()
    outputs: Callable[[Sequence[np.ndarray]], np.ndarray] | None = None
    cut: Sequence[bool] = ()
    words: Callable[[int], SampleWords] | None = None


@dataclass(frozen=True)
class ModelFiles:
    """The directory of a model, of whichever library, in which a task looks for files of its own.

    Attributes:
        directory: the directory of the encoder.
        tokenizer: its tokenizer.
        settings: the settings of its body.
        heads: the names of the heads in its weights.
    """

    directory: Path
    tokenizer: Tokenizer
    settings: BodySettings
    heads: Collection[str]


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Base class of tasks. The types of examples and predictions depend on the task.

    Attributes:
        length: maximum length of its sequences in tokens, special tokens included.
        part: name of its head and of its part of the loss.
        metric: the metric that selects the best of several models; higher is better.
        comparable: the metrics of `measure` by which models can be compared; (): `metric` alone.
        scoring: its settings that `measure` depends on, which `settle` may resolve: models are comparable only if they
            are the same.
        card: what it says of its models.
        head: what its head begins with, and how it is stored.
        route: how the server asks it; a `Reason`: it is not served, and why.
        infinite: whether its logits may be minus infinity.
        decides: whether its scores depend on the class with the largest logit of each target alone, not on how much
            larger it is, so that logits with the same largest classes do.
        pool: number of examples, in order, whose predictions depend on each other.
        tables: suffixes of the files of predictions that it writes as tables.
        exports: whether it writes predictions as annotators import them; see `data.labelled.span_export`.
        training: what the rule for defaults of fine-tuning must know of it.
        refusals: what cannot be done with it, and why; see `Operation`.
    """

    length: int = 128

    part: ClassVar[str]
    metric: ClassVar[str]
    comparable: ClassVar[tuple[str, ...]] = ()
    scoring: ClassVar[tuple[str, ...]] = ()
    card: ClassVar[Card]
    head: ClassVar[HeadOrigin] = HeadOrigin()
    route: ClassVar[Route | Reason] = Reason("it declares no route", "set `route` in its class")
    infinite: ClassVar[bool] = False
    decides: ClassVar[bool] = False
    pool: ClassVar[int] = 1
    tables: ClassVar[tuple[str, ...]] = ()
    exports: ClassVar[bool] = False
    training: ClassVar[Training] = Training()
    refusals: ClassVar[Refusals] = {}

    def __post_init__(self) -> None:
        if self.length < 3:
            raise ValueError("length must be at least 3")

    @property
    def kind(self) -> str:
        """Its `kind` in recipes, one of `unmask.tasks.TASKS`."""
        return str(self.__struct_config__.tag)

    @property
    def title(self) -> str:
        """Its name in messages."""
        return self.part.replace("_", " ")

    @property
    def grouped(self) -> str:
        """What a training sample is a group of, which auxiliary objectives cannot read; "": it is one sequence."""
        return ""

    @property
    def pairs(self) -> bool | None:
        """Whether its inputs are pairs of texts; None: either, unknown, or neither."""
        return None

    @property
    def exclusive(self) -> bool:
        """Whether the class with the largest logit is predicted, and no other, if there are classes."""
        return True

    @property
    def controls(self) -> dict[str, Any]:
        """What the playground must know to ask it, beside its labels; see `ModelViews` in serving/playground.py."""
        return {}

    @property
    def reranks(self) -> bool:
        """Whether its head gives a pair of texts one number, a logit, by which the passages of a query are ordered."""
        return False

    @property
    def vectors(self) -> Vectors:
        """The vectors that a model which it trained makes."""
        return Vectors()

    def describe_model(self, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return what `/info` of the server says of a model, as `model_type` of Text Embeddings Inference."""
        if (pooling := self.vectors.pooling) is not None:
            return {"embedding": {"pooling": pooling.kind}}
        return {self.part: {"labels": [*labels]}}

    @classmethod
    def read_files(cls, files: ModelFiles, task: Self | None) -> tuple[Self, Mapping[str, Tensor]] | None:
        """Return the task that files beside the weights declare, and the tensors of its head that they hold.

        It is called for models of this task, and for those that state no task, such as those of other libraries.

        Args:
            files: the directory.
            task: the task that the model states; None: it states none.

        Returns:
            None if there are no such files.

        Raises:
            UserError: a file is damaged or missing, or states what is not supported.
        """
        return None

    def write_files(self, directory: Path, encoder: Encoder, head: Mapping[str, Tensor]) -> Collection[str] | None:
        """Write the files by which other libraries read a model of this task, beside its weights.

        Args:
            directory: the directory, which has the files of the tokenizer.
            encoder: the encoder.
            head: the tensors of the task's head.

        Returns:
            The tensors of the head that these files hold, which are not stored with the weights; None: there are no
            such files, so that those of the model's vectors (`Model.pooling`) are written, if it has any.
        """
        return None

    def with_pooling(self, pooling: Pooling | None) -> Self:
        """Return the task with the pooling of the model that it starts from, if it trains vectors and names none.

        Raises:
            UserError: the pooling of the model is not supported.
        """
        return self

    def new_tokens(self, tokenizer: Tokenizer) -> Sequence[str]:
        """Return the tokens that its texts begin with and that a vocabulary lacks."""
        return ()

    def outputs(self, vocabulary: int) -> int:
        """Return how many numbers are predicted for a text, if it is more than a few, given a body's vocabulary."""
        return 1

    def cut(self, dimensions: int) -> Self:
        """Return the task with vectors that are cut to so many first components, if it trains vectors."""
        return self

    def check(self, operation: Operation) -> None:
        """Check that something can be done with this task.

        Raises:
            UserError: it cannot; says why.
        """
        if reason := self.refusals.get(operation):
            raise UserError(reason.why, remedy=reason.remedy)

    @abstractmethod
    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Any]:
        """Read examples from files or memory, with gold labels if `gold` is true.

        Entries that the format excludes, or that deviate from it, are reported in `notes`, one line each.

        Raises:
            UserError: a file is malformed; names file and line.
        """

    def iterate(
        self, source: Source, *, columns: Columns, kind: str | None = None, notes: Notes = None
    ) -> Iterator[Any]:
        """Yield the examples of a file or table without gold labels, one in memory at a time if the format allows it.

        A file that is a single JSON value, such as one of questions, is read whole.

        Raises:
            UserError: a file is malformed; names file and line.
        """
        yield from self.read([source], columns=columns, kind=kind, gold=False, notes=notes)

    def from_texts(self, texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[Any]:
        """Return texts, or pairs of texts, as examples without gold labels.

        Raises:
            UserError: the task does not accept plain texts.
        """
        usage = call("predict", model="MODEL", **self.card.usage)
        raise UserError(f"this model is for {self.title}", remedy=f"query it with {usage}")

    @abstractmethod
    def label_names(self, examples: Sequence[Any]) -> tuple[str, ...]:
        """Return the labels of training examples, in order; empty if the task has no classes.

        Raises:
            UserError: nothing can be learned from the examples.
        """

    def labels_of(self, example: Any) -> tuple[str, ...]:
        """Return the labels of an example, as its file has them; empty if the task has no classes."""
        return ()

    def classes(self, labels: Sequence[str]) -> set[str]:
        """Return the classes that a model with these labels distinguishes: models with equal classes are comparable."""
        return set(labels)

    def settle(self, examples: Sequence[Any], labels: Sequence[str]) -> Self:
        """Return the task with the settings resolved that depend on the training examples."""
        return self

    def check_gold(self, examples: Sequence[Any]) -> None:
        """Raise a UserError for gold labels that the loss, with the settings that `settle` resolved, cannot learn."""

    def contrasts(self, examples: Sequence[Any]) -> bool:
        """Return whether training examples are each other's negatives, so that larger steps teach more."""
        return False

    def needs_others(self, examples: Sequence[Any]) -> bool:
        """Return whether training examples have no other negatives, so that one alone teaches nothing."""
        return False

    def examples_per_sample(self, examples: Sequence[Any]) -> float:
        """Return how many training examples are one sample, on average."""
        return 1.0

    def remark(self, labels: Sequence[str]) -> str:
        """Return a line about how it decides between the labels, if that is not as usual."""
        return ""

    @abstractmethod
    def texts(self, example: Any) -> tuple[str, ...]:
        """Return the texts of an example, such as a pair, or a question and its passage: by them examples are equal."""

    def identities(self, examples: Sequence[Any]) -> Identities:
        """Return what examples with equal texts have in common."""
        return Identities.of(map(self.texts, examples))

    @abstractmethod
    def choose_held(
        self, examples: Sequence[Any], identities: Identities, seed: int, notes: Notes = None
    ) -> np.ndarray:
        """Choose a random tenth; return which examples to evaluate on, (examples,) bool.

        Examples with equal texts stay together (see `unmask.tasks.holding_out`). What was held out instead of the usual
        is reported in `notes`.

        Args:
            examples: the examples.
            identities: theirs, as `identities` returns them.
            seed: seed of the random choice.
            notes: receives the notes.

        Raises:
            UserError: there are too few examples.
        """

    @property
    def tunes(self) -> bool:
        """Whether a setting remains to be chosen by `tune`."""
        return False

    def tune(self, examples: Sequence[Any], predictions: Sequence[Any]) -> Self:
        """Return the task with the settings chosen by a trained model's predictions on examples that were set aside."""
        return self

    @abstractmethod
    def build(self, spec: HeadSpec, labels: Sequence[str]) -> Objective:
        """Return an untrained head, which also computes its loss.

        Args:
            spec: the properties of the body under the head.
            labels: the labels in the model's order.
        """

    def build_on(self, body: Encoder, labels: Sequence[str]) -> Objective:
        """Return an untrained head for a body; see `build`."""
        return self.build(body.head, labels)

    @abstractmethod
    def frame(self, tokenizer: Tokenizer, examples: Sequence[Any], labels: Sequence[str], *, gold: bool) -> Framed:
        """Convert examples to samples, with gold labels if `gold` is true.

        Raises:
            UserError: a label is not among `labels`; names file and line.
        """

    def decisions(self, logits: np.ndarray, labels: Sequence[str]) -> list[Decision]:
        """Return what the logits of a sample, (targets, outputs), decide: what is explained, if anything is.

        A task that defines it also returns `Framed.words`.
        """
        raise NotImplementedError

    @abstractmethod
    def measure(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> Measure:
        """Return the official metrics, times 100, as a function of a selection of the examples."""

    def metrics_of(self, examples: Sequence[Any], labels: Sequence[str]) -> Sequence[str]:
        """Return the names of the metrics of `measure` by which models can be compared on these examples: `comparable`.

        They are from 0, or from -100, to 100 (`metrics.intervals.lowest`), and more is better.
        """
        return self.comparable or (self.metric,)

    def constants(self, labels: Sequence[str]) -> list[Any]:
        """Return predictions that can be made of all examples alike, given labels, the most frequent one first."""
        return []

    def groups(self, examples: Sequence[Any]) -> Sequence[Hashable] | None:
        """Return the group of each example, if there are groups of examples that depend on each other."""
        return None

    def details(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Return additional entries for the evaluation result."""
        return {}

    def undefined(self, examples: Sequence[Any], predictions: Sequence[Any]) -> str:
        """Return why metrics are undefined on these examples, so that they are reported as 0, or ""."""
        return ""

    def calibration(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
        """Return how far probabilities are from the share of right predictions, times 100; empty if there are none."""
        return {}

    def labelled(self, examples: Sequence[Any], predictions: Sequence[Any]) -> list[Any]:
        """Return examples with predictions as their gold labels.

        Raises:
            UserError: the task does not support this.
        """
        raise UserError(f"predictions of {self.title} cannot serve as labels")

    @abstractmethod
    def mistakes(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> list[Mistake]:
        """Return descriptions of the model's mistakes, in any order: `Mistake.score` states how bad each one is."""

    def check_distinct(self, examples: Sequence[Any]) -> None:
        """Check that the predictions of examples can be told apart in a file: by default they are in their order.

        Raises:
            UserError: they are written by ids, and two files have the same.
        """

    def record(self, path: Path, example: Any, prediction: Any) -> Any:
        """Return what `predict` with `out` writes of an example, a JSON value, as a line of `path` or for `files`.

        Raises:
            UserError: the example cannot be written in the format of the path.
        """
        return prediction

    def files(self, path: Path, records: Iterable[Any]) -> dict[Path, Iterable[bytes]]:
        """Return the contents of the files that `predict` with `out` writes, each in parts.

        Args:
            path: the file.
            records: what `record` returned, read from JSON; it can be iterated over several times.

        Returns:
            The contents by file; {} if the records themselves, a line each, are the content of `path`.
        """
        return {}

    @abstractmethod
    def line(self, prediction: Any) -> str:
        """Return a prediction as one human-readable line."""


def describe_nothing(labels: Sequence[Sequence[str]]) -> str:
    """Return why recall and F1 are undefined if no example has a label, given those of each, or ""."""
    if any(labels):
        return ""
    return f"none of the {counted(len(labels), 'example')} has a label: recall and F1 are undefined, and reported as 0"
