"""What a comparison came to: the content of its report."""

from __future__ import annotations

from typing import Any

import msgspec


class Estimate(msgspec.Struct, frozen=True):
    """A mean over seeds with its 95 % interval, which includes the variation over seeds and over test examples."""

    mean: float
    low: float
    high: float


class TaskScore(msgspec.Struct, frozen=True):
    """How an arm does at a task.

    Attributes:
        metric: what is measured, times 100.
        score: its mean over seeds.
        seeds: its value by seed.
        calibration: expected calibration error, mean over seeds; None: the task has no probabilities.
        by_label: scores of each label that `evaluate` has (precision, recall, F1, average precision), means over seeds;
            empty: the task has no labels of texts.
    """

    metric: str
    score: Estimate
    seeds: list[float]
    calibration: float | None = None
    by_label: dict[str, dict[str, float]] = {}


class ArmOutcome(msgspec.Struct, frozen=True):
    """An arm in the report.

    Attributes:
        name: its name.
        how: how it comes to its model, in words.
        state: "complete", "stopped" (clearly worse before the last seed), "failed" or "unfinished".
        error: why it failed.
        scores: by task.
        score: mean over the tasks; without tasks minus the bits per character, so that more is better.
        interquartile: mean of the middle half of the seeds, over the tasks, with an interval; None: fewer than eight
            seeds.
        behind: the best arm's score minus this one's, with an interval that holds for all arms at once; None: it is
            the best, or has no score.
        parameters: number of parameters of the encoder.
        trained_seconds, trained_tokens: what its training on the text took, mean over seeds; 0: there was none.
        learning_seconds: what learning the tasks took, sum over tasks, mean over seeds.
        memory: peak memory of training, in bytes; 0: unknown.
        latency: milliseconds for a single text in torch, the median; None: not measured.
        engine: the fastest engine for a single text; "": none was measured.
        engine_latency: its milliseconds; None: not measured.
        speed: texts per second of the fastest engine, together.
        bits: bits per character of held-out text, by the model of the first seed, with an interval over its documents;
            without tasks their mean over seeds, with an interval over both. None: not a language model, or nothing was
            trained on text.
        bits_by_seed: without tasks, the bits by seed.
        pseudo: whether these are of the pseudo-log-likelihood of a masked language model.
        curve: held-out loss of the first seed, as (minutes, tokens, loss).
        untrained: whether it has random weights before it learns the tasks.
    """

    name: str
    how: str
    state: str
    error: str = ""
    scores: dict[str, TaskScore] = {}
    score: Estimate | None = None
    interquartile: Estimate | None = None
    behind: Estimate | None = None
    parameters: int = 0
    trained_seconds: float = 0.0
    trained_tokens: float = 0.0
    learning_seconds: float = 0.0
    memory: int = 0
    latency: float | None = None
    engine: str = ""
    engine_latency: float | None = None
    speed: float | None = None
    bits: Estimate | None = None
    bits_by_seed: list[float] = []
    pseudo: bool = False
    curve: list[tuple[float, float, float]] = []
    untrained: bool = False

    @property
    def megabytes(self) -> float:
        """Size of the weights in float32."""
        return 4 * self.parameters / 1e6


class Effect(msgspec.Struct, frozen=True):
    """What a value of a factor changes, compared with the first value: mean over all combinations of the others."""

    factor: str
    value: str
    baseline: str
    change: Estimate


class Prospect(msgspec.Struct, frozen=True):
    """Where an arm would stand with a multiple of the budget: an extrapolation, with an interval of 80 %.

    Attributes:
        arm: the arm.
        times: multiple of the largest budget; with a task, of its largest number of training examples.
        score: the score, or with a task, that of the task.
        task: the task with several numbers of examples; "": an outlook on the budget.
    """

    arm: str
    times: float
    score: Estimate
    task: str = ""


class Difference(msgspec.Struct, frozen=True):
    """A test example on which the two best arms differ."""

    task: str
    where: str
    text: str
    gold: str
    predicted: str
    wrong: str


class LookOutcome(msgspec.Struct, frozen=True):
    """A first look at a task: the arms in the order of the scores of their features, best first.

    Attributes:
        task: the task.
        scores: score by arm: H-score, or LogME for regression.
        agreement: Spearman's rank correlation with the final scores, from -1 to 1; None: fewer than three arms have
            both, or all have the same.
    """

    task: str
    scores: dict[str, float]
    agreement: float | None = None

    @property
    def order(self) -> str:
        """The arms with their scores, best first, in words."""
        return ", ".join(f"{name} {score:.3g}" for name, score in self.scores.items())


class CellOutcome(msgspec.Struct, frozen=True):
    """A cell in the report, with the command that repeats it."""

    name: str
    key: str
    state: str
    seconds: float = 0.0
    error: str = ""
    command: str = ""


class TaskFacts(msgspec.Struct, frozen=True):
    """A task in the report.

    Attributes:
        task: one of `unmask.tasks.TASKS`.
        metric: the metric that decides.
        trained_on, examples, labels: numbers of training examples, test examples and labels.
        constant: the highest score that one prediction for all test examples gets; 0 where predictions are of parts of
            examples, or numbers; None: the metric has no range, or it is not known.
    """

    task: str
    metric: str
    trained_on: int
    examples: int
    labels: int
    constant: float | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What a comparison came to.

    Attributes:
        recommendation: in plain words, one paragraph each.
        best: the arms that may be the best, first the one that is recommended, if one is.
        arms: the arms, best first.
        tasks: the tasks by name.
        effects: those of factors.
        by_examples: names of the tasks that are the same with more and more examples, by their common name.
        prospects: those of larger budgets and of more examples.
        looks: first looks, by task.
        differing: examples on which the two best arms differ.
        warnings: what makes figures less trustworthy.
        notes: what else is to be known of the texts, the tasks and the figures.
        cells: all cells.
        settings: what was compared.
        recipes: all settings of what was trained with the first seed, as TOML, by the names of the cells.
        budget: the budget in words; "" if nothing was trained on text.
        seeds: number of seeds.
        machine: on what.
        versions: of this package and of libraries.
        used: what all cells used of the machines, in words, with what it costs if a price was given; "": not known.
        script: a batch script, if it was asked for instead.
        planned: the list of cells, one line each and one for all of them, if it was asked for instead.
    """

    recommendation: list[str] = []
    best: list[str] = []
    arms: list[ArmOutcome] = []
    tasks: dict[str, TaskFacts] = {}
    effects: list[Effect] = []
    by_examples: dict[str, list[str]] = {}
    prospects: list[Prospect] = []
    looks: list[LookOutcome] = []
    differing: list[Difference] = []
    warnings: list[str] = []
    notes: list[str] = []
    cells: list[CellOutcome] = []
    settings: dict[str, Any] = {}
    recipes: dict[str, str] = {}
    budget: str = ""
    seeds: int = 0
    machine: dict[str, Any] = {}
    versions: dict[str, str] = {}
    used: str = ""
    script: str = ""
    planned: list[str] = []

    def arm(self, name: str) -> ArmOutcome:
        """Return an arm by its name."""
        return next(arm for arm in self.arms if arm.name == name)
