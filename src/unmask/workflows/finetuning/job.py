"""Specification of a fine-tuning run: the task, the initial model, the labeled files, the settings.

Rule for all defaults of fine-tuning: a function of the task, the model's width, what it was pretrained on, and the
number of examples.

It does not depend on names of data sets or checkpoints. docs/fine-tuning.md and docs/features.md state on which splits
of training data it was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from unmask.data.labelled.table import ExampleTable, Source
from unmask.families import BodySettings
from unmask.nn.encoders.encoder import LEFT_TO_RIGHT
from unmask.support.choices import DOWNSTREAM_KINDS, DownstreamKind
from unmask.support.errors import UserError, check_count, counted, nearest, refuse_idle
from unmask.support.messages import argument, setting
from unmask.support.settings import Overrides, check_overrides
from unmask.tasks import TASKS
from unmask.training.machine import Machine


@dataclass(frozen=True)
class InitialModel:
    """The initial model of a fine-tuning run.

    Attributes:
        model: MODEL: a run, a Hugging Face directory, or random:RECIPE with `tokenizer`.
        tokenizer: tokenizer for random:RECIPE.
        allow_pickle: whether `model` may contain pickled weights.
    """

    model: str | Path
    tokenizer: str | Path | None = None
    allow_pickle: bool = False

    @property
    def pretrained(self) -> bool:
        """Whether the model has trained weights."""
        return not str(self.model).startswith("random:")


@dataclass(frozen=True)
class LabelledFiles:
    """The files, or examples in memory, to train on and to evaluate on.

    Attributes:
        train: labeled files.
        dev: labeled files to evaluate on, not used for any choice; empty: a tenth of `train`, the same for all seeds.
        columns: mapping of our column names to those of the files.
        kind: format of the files, if the suffix does not determine it.
        role: what users call those to evaluate on: the parameter that names them, and the noun before "examples".
    """

    train: Sequence[Source]
    dev: Sequence[Source] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    kind: str | None = None
    role: Literal["dev", "test"] = "dev"

    @property
    def in_memory(self) -> str:
        """A description of the examples that are not in files; empty if all are."""
        parts = (("train", self.train), ("dev", self.dev))
        tables = [(name, source) for name, part in parts for source in part if isinstance(source, ExampleTable)]
        return "; ".join(f"{name}: {table.name}, {counted(len(table), 'row')}" for name, table in tables)


@dataclass(frozen=True)
class FinetuningJob:
    """A fine-tuning run.

    Attributes:
        task: one of `unmask.tasks.TASKS`.
        start: the initial model.
        files: the labeled files.
        settings: settings that override the defaults, by dotted key.
        frozen: whether to keep the encoder fixed and compute its features once; None: see `few_labels`.
        downstream: a small model over its layers, "linear", "average", "difference" or "rnn"; None: only the head of
            the task, which is equivalent to "linear".
        machine: device and precision; None: chosen automatically.
        quiet: whether to print nothing.
        all_examples: whether to train on all examples, without scores, instead of holding out a tenth.
        recipe: a fine-tuning recipe, such as RUN/recipe.toml, in place of the rule for defaults; None: the rule.
        examples: number of training examples to learn from, drawn at random with the seed; None: all.
    """

    task: str
    start: InitialModel
    files: LabelledFiles
    settings: Overrides = field(default_factory=dict)
    frozen: bool | None = None
    downstream: str | None = None
    machine: Machine | None = None
    quiet: bool = False
    all_examples: bool = False
    recipe: str | Path | None = None
    examples: int | None = None

    def check(self) -> None:
        """Check whatever can be checked before any file is read.

        Raises:
            UserError: a name is unknown, or the settings are inconsistent.
        """
        check_overrides(self.settings)
        if self.files.dev:
            refuse_idle(f"with {argument('dev')}: nothing is held out then", all_examples=self.all_examples)
        check_count("examples", self.examples)
        if self.task not in TASKS:
            raise UserError(f"unknown task '{self.task}'", remedy=nearest(self.task, TASKS))
        if self.downstream is not None and self.downstream not in DOWNSTREAM_KINDS:
            raise UserError(
                f"unknown downstream model '{self.downstream}'", remedy=nearest(self.downstream, DOWNSTREAM_KINDS)
            )
        small = bool(self.frozen) or self.downstream is not None
        if self.recipe is not None:
            refuse_idle(f"with {argument('recipe')}", frozen=self.frozen, downstream=self.downstream)
        if not small and self.recipe is None and any(key.startswith("downstream.") for key in self.settings):
            raise UserError(
                "downstream.… has no effect without a downstream model",
                remedy=f"pass {argument('frozen', True)} or {argument('downstream', 'KIND')}",
            )
        for key, value in self.settings.items():
            if key in ("frozen", "downstream.kind"):
                raise UserError(
                    f"{setting(key, value)} is not allowed",
                    remedy=f"pass {argument('frozen', True)} or {argument('downstream', 'KIND')}",
                )


FEW_PER_LABEL = 32
"""Maximum number of examples of a label, on average, with which the encoder stays frozen."""
BRIEF_PER_LABEL = 256
"""Maximum number with which it is trained briefly."""
BRIEF_EPOCHS = 2.0
"""Number of epochs of a brief training: with more, probabilities are too sure."""
OF_TRAINING = ("optimizer.", "schedule.", "budget.", "objective.", "reset", "dropout", "probe", "batch.")
"""Beginnings of settings that say how a model is trained: the rule for few labels then does not apply."""


class FewLabels(NamedTuple):
    """The rule for few labels: a logistic regression on the features of the encoder, then a brief training, if any.

    Attributes:
        downstream: what the regression reads; None: what the task's own head reads. Then all parameters are trained,
            and probabilities are calibrated.
        epochs: number of epochs in which all parameters are trained; 0: the encoder is frozen; None: as usual.
    """

    downstream: DownstreamKind | None = None
    epochs: float | None = None


def few_labels(
    job: FinetuningJob, examples: Sequence[Any], labels: int, *, tokens: int | None, marked: bool
) -> FewLabels | None:
    """Return the rule for few labels, or None if they are many, or if something that was passed says how to train.

    What encoders know that were pretrained on little text is not enough for a regression alone.
    docs/fine-tuning.md states on which splits of training data the numbers were chosen.

    Args:
        job: the task, the initial model, the settings.
        examples: the training examples.
        labels: number of labels.
        tokens: number of tokens that the encoder was pretrained on; None: unknown, as of published models.
        marked: whether the model distinguishes the texts of a pair by segment ids.
    """
    unprobed = (f"task.{name}" for name in TASKS[job.task].training.unprobed)
    trained = any(key.startswith((*OF_TRAINING, *unprobed)) for key in job.settings)
    chosen = job.frozen is not None or job.downstream is not None or job.recipe is not None
    possible = TASKS[job.task].training.probe and job.start.pretrained
    if not possible or chosen or trained or not 0 < len(examples) <= BRIEF_PER_LABEL * labels:
        return None
    pairs = len(TASKS[job.task]().texts(examples[0])) > 1
    if (tokens is not None and tokens <= LITTLE_TEXT) or (pairs and not marked):
        return FewLabels()
    epochs = 0.0 if len(examples) <= FEW_PER_LABEL * labels else BRIEF_EPOCHS
    return FewLabels("difference" if pairs else "average", epochs)


PRETRAINED_RATE = 5e-5
"""Peak learning rate for pretrained weights, at the width of BERT-base."""
RANDOM_RATE = 1e-4
"""Peak learning rate for random weights, at the width of BERT-base."""
LITTLE_TEXT, LITTLE_TEXT_BOOST = 1e8, 4.0
"""Maximum number of tokens of encoders that were pretrained on little text, and the multiple of the rate for these."""
BOOST_POWER = 0.4
"""By which power of the tokens the multiple then falls to 1."""
FEW_EXAMPLES = 2000
MIN_STEPS = 400
MAX_EPOCHS = 20
CONTRASTED, FEW_CONTRASTED = 64, 500
"""Samples of a step that are each other's negatives, if there are at least so many examples."""
FROZEN_RATES = {"linear": 1e-2, "average": 1e-3, "difference": 1e-3, "rnn": 1e-3}
"""Peak learning rates on frozen features, independent of the width."""
MIN_STEPS_FROZEN = 2000
MIN_EPOCHS_FROZEN, MAX_EPOCHS_FROZEN = 10, 50
LAYERS = 4
"""Number of last layers that all kinds but `linear` read: the best in Devlin et al. 2019, table 7."""
LM_WEIGHT = 0.5
"""Weight of the auxiliary language modeling objective (Radford et al. 2018, section 4.1)."""


def defaults(
    kind: str,
    settings: BodySettings,
    examples: int,
    *,
    pretrained: bool,
    tokens: int | None = None,
    frozen: bool = False,
    downstream: str | None = None,
    few: FewLabels | None = None,
    contrasted: bool = False,
    per_sample: float = 1.0,
) -> dict[str, object]:
    """Return the default recipe of fine-tuning.

    The smaller the model, and the less text it was pretrained on (`tokens`; None: unknown, as of published models), the
    higher the learning rate; the fewer the examples, the smaller the batch and the more epochs, so that few runs have
    fewer than `MIN_STEPS` steps, and none fewer than its task needs. docs/fine-tuning.md states on which splits of
    training data the rule was chosen. With a frozen encoder, only the small model is trained, from random weights: it
    uses a higher rate and more steps, which are cheap (docs/features.md). With `few` labels a head begins as a
    regression. Examples that are each other's negatives (`contrasted`) are trained on as often, in larger steps. Where
    samples are of several examples (`per_sample`, on average), steps have as many examples as others.
    """
    if few is not None:
        frozen, downstream = few.epochs == 0, few.downstream
    sequences = 16 if examples < FEW_EXAMPLES else 32
    task = TASKS[kind]()
    epochs = min(MAX_EPOCHS, max(task.training.epochs, math.ceil(MIN_STEPS * sequences / examples)))
    epochs = max(epochs, math.ceil(task.training.steps / math.ceil(examples / sequences)))
    if contrasted and examples >= FEW_CONTRASTED:
        sequences = CONTRASTED
    rate = (PRETRAINED_RATE * boost(tokens) if pretrained else RANDOM_RATE) * math.sqrt(768 / settings.width)
    rate *= task.training.rate
    if frozen:
        epochs = min(MAX_EPOCHS_FROZEN, max(MIN_EPOCHS_FROZEN, math.ceil(MIN_STEPS_FROZEN * sequences / examples)))
        rate = FROZEN_RATES[downstream or "linear"]
    chosen: dict[str, object] = {}
    if frozen or downstream:
        layers = [-1] if downstream in (None, "linear") else list(range(-min(LAYERS, settings.layers), 0))
        small = {"kind": downstream or "linear", "layers": layers, **({"normalize": True} if few is not None else {})}
        chosen = {"frozen": frozen, "downstream": small}
    elif LEFT_TO_RIGHT in settings.provides and not task.grouped:
        chosen = {"objective": {"causal_lm": {"weight": LM_WEIGHT}}}
    return {
        **chosen,
        **({"probe": True} if few is not None else {}),
        "task": {
            **task_defaults(kind, settings),
            **({"temperature": "tuned"} if few is not None and downstream is None else {}),
        },
        "batch": {"sequences": max(1, round(sequences / per_sample))},
        "optimizer": {"kind": "adamw", "learning_rate": float(f"{rate:.2g}")},
        "schedule": {"kind": "linear", "warmup": 0.1},
        "budget": {"epochs": float(epochs) if few is None or few.epochs is None else few.epochs},
    }


def task_defaults(kind: str, settings: BodySettings) -> dict[str, Any]:
    """Return what of a task's settings is known before its examples are."""
    return {"kind": kind, "length": min(TASKS[kind]().length, settings.positions)}


def boost(tokens: int | None) -> float:
    """Return the multiple of the learning rate for an encoder, given the number of tokens it was pretrained on."""
    if not tokens:
        return 1.0
    return max(1.0, LITTLE_TEXT_BOOST * min(1.0, LITTLE_TEXT / tokens) ** BOOST_POWER)
