"""Estimators for scikit-learn: fine-tuning as `fit`, so that models work in its pipelines, searches and scores.

Input: texts, or rows of two texts, with labels or numbers; for `TokenClassifier` lists of words with lists of tags.
Output: `predict`, `predict_proba` and `score` as scikit-learn defines them.

Needs scikit-learn. Each `fit` is a run of `unmask.finetune`: its directory is `out`, or a temporary one of which only
the model is kept, in memory. No examples are held out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.label_cells import WEIGHT, is_missing
from unmask.data.labelled.label_spellings import shown
from unmask.data.labelled.row_labels import parse_cell
from unmask.data.labelled.table import ExampleTable, column_values
from unmask.inference.predictor import Predictor
from unmask.metrics.intervals import measure_all
from unmask.model.model import load_model
from unmask.support.choices import Device, DownstreamKind, Precision
from unmask.support.errors import UserError
from unmask.tasks.gold_labels import sort_labels
from unmask.training.machine import choose_machine
from unmask.workflows.finetuning.finetune import finetune

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise UserError("the estimators need scikit-learn", remedy="pip install 'unmask[sklearn]'") from error


FIT = "<fit>"
"""Name of the examples that an estimator is fitted on, in errors."""


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What the estimators have in common.

    Args:
        model: MODEL to fine-tune: a run, a Hugging Face directory, or random:RECIPE with `tokenizer`.
        settings: settings that override the defaults, for example `{"budget.epochs": 5}`.
        random_state: seed of the run.
        out: run directory to write; None: a temporary one, which is needed where an estimator is fitted repeatedly.
        frozen: whether to keep the encoder fixed; None: if labels are few; see `unmask.finetune`.
        downstream: a small model over its layers; see `unmask.finetune`.
        tokenizer: tokenizer for random:RECIPE.
        device, precision: as for `unmask.load`; prediction is always in float32.
    """

    task: str

    @staticmethod
    def examples(read: Sequence[Any]) -> tuple[Any, Any]:
        """Return examples of the task, as it reads them from files, as `X` and `y`: single texts and their labels."""
        return [row.values["text"] for row in read], [row.values["label"] for row in read]

    def __init__(
        self,
        model: str | Path = "",
        *,
        settings: Mapping[str, Any] | None = None,
        random_state: int = 0,
        out: str | Path | None = None,
        frozen: bool | None = None,
        downstream: DownstreamKind | None = None,
        tokenizer: str | Path | None = None,
        device: Device = "auto",
        precision: Precision = "auto",
    ) -> None:
        self.model = model
        self.settings = settings
        self.random_state = random_state
        self.out = out
        self.frozen = frozen
        self.downstream = downstream
        self.tokenizer = tokenizer
        self.device = device
        self.precision = precision

    def _fit(self, columns: Mapping[str, list[Any]]) -> None:
        """Fine-tune on columns of examples, and load the model."""
        if not str(self.model):
            raise UserError("there is no model to fine-tune", remedy=f"write {type(self).__name__}(model=MODEL)")
        with tempfile.TemporaryDirectory() as folder:
            out = finetune(
                self.task,
                self.model,
                ExampleTable(FIT, columns),
                self.out or Path(folder) / "run",
                settings={"seed": self.random_state, **(self.settings or {})},
                tokenizer=self.tokenizer,
                frozen=self.frozen,
                downstream=self.downstream,
                device=self.device,
                precision=self.precision,
                columns={WEIGHT: WEIGHT} if WEIGHT in columns else None,
                quiet=True,
                all_examples=True,
            )
            self.predictor_ = Predictor(load_model(out), choose_machine(self.device, "float32"))

    def _texts(self, X: Any, *, fitting: bool = False) -> dict[str, list[Any]]:
        """Return texts, or rows of two texts, as columns; those of a data frame must be the ones that it was fitted on.

        Raises:
            UserError: they are not, or are in another order; or X is neither.
        """
        names = list(getattr(X, "columns", ()))
        if not all(isinstance(name, str) for name in names):  # as in scikit-learn; the columns of Arrow are values
            names = []
        if fitting:
            self.__dict__.pop("feature_names_in_", None)
            if names:
                self.feature_names_in_ = np.array(names, dtype=object)
        elif names and names != (fitted := list(getattr(self, "feature_names_in_", names))):
            raise UserError(
                f"the columns of X are {', '.join(names)}, but the model was fitted on {', '.join(fitted)}",
                remedy="give the same columns in the same order",
            )
        return _texts(X)

    def _predictions(self, X: Any) -> list[Any]:
        """Return the predictions of texts, or of rows of two texts."""
        check_is_fitted(self)
        return self.predictor_.predict(*self._texts(X).values()) if len(X) else []

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, in which the model stands for what computes with it."""
        state = dict(super().__getstate__())
        if "predictor_" in state:
            state["predictor_"] = state["predictor_"].model
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled state."""
        super().__setstate__(state)
        if "predictor_" in state:
            self.predictor_ = Predictor(state["predictor_"], choose_machine(self.device, "float32"))

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn needs to know: texts are read, and not numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        tags.no_validation = True
        tags.non_deterministic = False
        return tags


class TextClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Classifier of texts or pairs of texts; see `_Estimator` for its parameters.

    Attributes:
        classes_: the labels, sorted, in their own type: texts, numbers or truth values.
        feature_names_in_: the names of the columns that it was fitted on; there are none if X had no names.
        predictor_: the trained model.
    """

    task = "classification"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune the model.

        Args:
            X: texts; or rows of two texts, or a data frame with two columns.
            y: the label of each.
            sample_weight: the weight of each in the loss, relative to their mean; None: all are equal.

        Raises:
            UserError: a label is missing, labels are of several types or differ only in spaces around them, settings
                have a number for each label but in another order than `classes_`, the examples are inconsistent, or a
                run fails; see `unmask.finetune`.
        """
        values = _one_dimension(y)
        _check_labels(values)
        dtype = np.asarray(y).dtype  # for columns of nullable numbers, that of numpy
        as_given = isinstance(y, np.ndarray) or dtype.kind in "biuf"
        labels = np.array(values, dtype if as_given else None)  # of one type, 1 and 1.0 too
        classes, numbers = np.unique(labels, return_inverse=True)
        _check_names(classes.tolist())
        names = list(map(_name, classes.tolist()))  # equal labels have one, such as 1 and 1.0 in an array of objects
        known = sort_labels(names)
        for key in ("task.weights", "task.threshold"):
            if np.ndim((self.settings or {}).get(key, 0)) and tuple(names) != known:
                raise UserError(
                    f"{key} is in the order of the model's labels, {', '.join(known)}, which is not that of classes_",
                    file=FIT,
                    remedy="give the labels as numbers",
                )
        columns = {**self._texts(X, fitting=True), "label": [names[number] for number in numbers.tolist()]}
        self._fit(columns | _weights(sample_weight, len(values)))
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each of `classes_`, (texts, classes)."""
        predictions = self._predictions(X)
        names = list(map(_name, self.classes_.tolist()))
        scores = [[prediction.scores[name] for name in names] for prediction in predictions]
        return np.array(scores).reshape(len(predictions), len(names))

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted label of each text, (texts,): the most probable one, unless labels have thresholds."""
        predictions = self._predictions(X)
        numbers = {_name(label): number for number, label in enumerate(self.classes_.tolist())}
        return self.classes_[[numbers[prediction.label] for prediction in predictions]]


class TextRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Regression on texts or pairs of texts; see `_Estimator` for its parameters.

    Attributes:
        feature_names_in_: the names of the columns that it was fitted on; there are none if X had no names.
        predictor_: the trained model.
    """

    task = "regression"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fine-tune the model; `X` and `sample_weight` as for `TextClassifier`, `y` a number for each.

        Raises:
            UserError: the examples are inconsistent, or a run fails; see `unmask.finetune`.
        """
        columns = {**self._texts(X, fitting=True), "label": _one_dimension(y)}
        self._fit(columns | _weights(sample_weight, len(columns["label"])))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the number of each text, (texts,)."""
        predictions = self._predictions(X)
        return np.array([prediction.score for prediction in predictions], float)


class TokenClassifier(_Estimator):
    """Entity recognizer of sentences of words; see `_Estimator` for its parameters.

    Attributes:
        classes_: the types of entities, sorted.
        predictor_: the trained model.
    """

    task = "token-classification"

    @staticmethod
    def examples(read: Sequence[Any]) -> tuple[Any, Any]:
        """Return sentences as lists of words, and of tags."""
        return [list(sentence.words) for sentence in read], [list(sentence.tags) for sentence in read]

    def fit(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> Self:
        """Fine-tune the model; `X` has the words of each sentence, `y` their tags, in any scheme; all weigh alike.

        Raises:
            UserError: the examples are inconsistent, or a run fails; see `unmask.finetune`.
        """
        self._fit({"words": _lists(X), "tags": _lists(y)})
        self.classes_ = np.array(sorted(self.predictor_.task.classes(self.predictor_.labels)))
        return self

    def predict(self, X: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the tags of the words of each sentence, in IOB2."""
        check_is_fitted(self)
        if not len(X):
            return []
        sentences = read_annotations([ExampleTable("<X>", {"words": _lists(X)})], columns={}, gold=False)
        labelled = self.predictor_.task.labelled(sentences, self.predictor_.run(sentences))
        return [list(sentence.tags) for sentence in labelled]

    def score(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> float:
        """Return the F1 of entities, from 0 to 1."""
        check_is_fitted(self)
        gold = read_annotations([ExampleTable("<score>", {"words": _lists(X), "tags": _lists(y)})], columns={})
        predictions = self.predictor_.run(gold)
        measure = self.predictor_.task.measure(gold, predictions, self.predictor_.labels)
        return measure_all(measure, len(gold))["f1"] / 100


ESTIMATORS: dict[str, type[_Estimator]] = {
    estimator.task: estimator for estimator in (TextClassifier, TextRegressor, TokenClassifier)
}
"""Estimator by the name of its task."""


def _texts(X: Any) -> dict[str, list[Any]]:
    """Return texts, or rows of two texts, as columns.

    Raises:
        UserError: they are neither.
    """
    array = np.asarray(X, dtype=object)
    if array.ndim == 2 and array.shape[1] in (1, 2):
        return dict(zip(("text", "text_b"), array.T.tolist(), strict=False))
    if array.ndim != 1:
        raise UserError(f"X has the shape {array.shape}", remedy="give texts, or rows of two texts")
    return {"text": array.tolist()}


def _one_dimension(y: Any) -> list[Any]:
    """Return labels as Python's own types, one per example.

    Raises:
        UserError: they have another shape.
    """
    try:
        shape = np.shape(y)
    except ValueError as error:  # lists of different lengths
        raise UserError("y has several labels in a row", remedy="give one label per text") from error
    if len(shape) == 2 and shape[1] == 1:
        y = np.asarray(y, dtype=object)[:, 0]
    elif len(shape) != 1:
        raise UserError(f"y has the shape {shape}", remedy="give one label per text")
    return column_values(y, FIT)


def _weights(sample_weight: Any, number: int) -> dict[str, list[Any]]:
    """Return the weights of examples as a column; {} if there are none.

    Raises:
        UserError: they are not one number of 0 or more for each of a number of examples, or all are 0.
    """
    if sample_weight is None:
        return {}
    weights = np.asarray(sample_weight, float)
    if weights.shape != (number,) or not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise UserError(
            f"sample_weight is not a number of 0 or more for each of {number} examples, of which some are above 0",
            file=FIT,
        )
    return {WEIGHT: weights.tolist()}


def _check_labels(labels: Sequence[Any]) -> None:
    """Check that labels are there, and of one type, so that predictions can be of that type too.

    Raises:
        UserError: they are not; names the row.
    """
    types = dict[str, int]()
    for number, label in enumerate(labels, 1):
        if is_missing(label):
            raise UserError("the label is missing", file=FIT, line=number, remedy="remove the row")
        if not isinstance(label, str | bool | int | float):
            remedy = "give texts, numbers or truth values"
            raise UserError(f"the label is {type(label).__name__}", file=FIT, line=number, remedy=remedy)
        kind = "text" if isinstance(label, str) else "a truth value" if isinstance(label, bool) else "a number"
        types.setdefault(kind, number)
    if len(types) > 1:
        named = ", ".join(f"{kind} (row {number})" for kind, number in types.items())
        raise UserError(f"labels are of several types: {named}", file=FIT, remedy="convert them to one")


def _check_names(classes: Sequence[Any]) -> None:
    """Check that classes have different names, which are read as they are.

    Raises:
        UserError: they do not: spaces around a label are not part of it, as in files; or a name is an object, which is
            read as the probabilities of labels.
    """
    by_name = dict[str, Any]()
    for label in classes:
        name = _name(label)
        if name.startswith("{") and isinstance(parse_cell(name), dict):
            raise UserError(
                f"the label {shown(name)} is an object, which is read as the probabilities of labels",
                file=FIT,
                remedy="give the class another name",
            )
        if (other := by_name.setdefault(name, label)) is not label:
            raise UserError(
                f"the labels {shown(str(other))} and {shown(str(label))} differ only in spaces around them",
                file=FIT,
                remedy="strip them",
            )


def _name(label: Any) -> str:
    """Return a label as the model names it.

    Raises:
        UserError: it is a number of too many digits.
    """
    try:
        return str(label).strip()
    except ValueError as error:  # Python writes no longer ones
        raise UserError("a label is a number of thousands of digits", file=FIT, remedy="give it a name") from error


def _lists(rows: Any) -> list[Any]:
    """Return rows as lists; what has no words or tags (text, None) is left for the reader to refuse."""
    return [list(row) if isinstance(row, Iterable) and not isinstance(row, str) else row for row in rows]
