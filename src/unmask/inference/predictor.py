"""`Predictor`, the Python interface to a trained model: text in, predictions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.labelled.choices_file import Choices
from unmask.data.labelled.columns import as_columns
from unmask.data.labelled.question_files import Question
from unmask.data.labelled.table import Data, is_table
from unmask.families import family_of
from unmask.inference.backend import Backend, TorchBackend
from unmask.inference.encoder_model import EncoderModel
from unmask.inference.explanation import Explainer
from unmask.inference.exported import ExportedBackend
from unmask.inference.pooling import normalized
from unmask.model.model import Model
from unmask.support.choices import ColumnNames, ExplainMethod, as_texts
from unmask.support.environment import check_memory
from unmask.support.errors import ShareNote, UserError, counted
from unmask.support.messages import call
from unmask.support.notices import note
from unmask.tasks.entity_task import TAG
from unmask.tasks.extraction import ANSWER, Texts
from unmask.tasks.multiple_choice import CHOOSE, Chosen
from unmask.tasks.relations import RELATE, Related
from unmask.tasks.routes import Route
from unmask.tasks.tagged import Tagged
from unmask.tasks.task import Columns, Framed, Task
from unmask.tasks.unlabelled import iterate_examples, read_examples
from unmask.training.machine import Machine, choose_machine
from unmask.training.runs.display import Display

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    P = TypeVar("P", default=Any)
else:
    from typing import TypeVar

    P = TypeVar("P")

MAX_SHOWN = 5
"""Number of labels in the representation of a model."""
MAX_SCORES = 1 << 20
"""Maximum number of scores in memory while a file is predicted: of the examples of a window times the labels."""
MAX_NUMBERS = 1 << 26
"""Maximum number of predicted numbers in memory while a file is predicted, such as of texts times the vocabulary."""
SCORE_BYTES = 80
"""Bytes of the score of a label of an example in predictions and metrics, at least; twice as many where any number of
labels is predicted."""


class Origin(NamedTuple):
    """Where a model was loaded from, and how it is opened again.

    Attributes:
        source: its directory, absolute, or its name on the Hub.
        reopen: opens it, given its fingerprint; it can be pickled.
    """

    source: str
    reopen: Callable[[str], Predictor]


class Predictor(EncoderModel, Generic[P]):
    """A loaded model ready for inference; `P` is the type of its predictions.

    `predict` and `run` perform the task that it was fine-tuned for, `tag` finds entities, `relate` relations between
    spans, `answer` answers a question, `choose` chooses among texts, `fill` fills masks, `embed` returns vectors of
    texts, and `features` hidden states.
    `attention` and `influence` show which words the encoder relates to each other. The model is not changed: a copy of
    it computes.

    A predictor that was loaded is pickled by its directory and settings, so that processes that are spawned load it
    themselves; any other one with the weights of its model.

    Args:
        model: encoder, tokenizer, heads.
        machine: device and precision; None: float32 on the best available device.
        display: shows the progress of long computations.
        backend: computes the outputs; None: torch on the machine.

    Attributes:
        window: number of examples of a stream that are sorted by length and computed together; fewer
            if the model has many labels.
        origin: where it was loaded from; None: it was made of a model in memory.
    """

    window = 8192
    origin: Origin | None = None

    def __init__(
        self,
        model: Model,
        machine: Machine | None = None,
        display: Display | None = None,
        *,
        backend: Backend | None = None,
    ) -> None:
        super().__init__(model, backend or TorchBackend(model, machine or choose_machine(precision="float32"), display))
        self.window = max(1, min(self.window, MAX_SCORES // max(1, len(model.labels))))
        if model.task is not None:
            self.window = max(1, min(self.window, MAX_NUMBERS // model.task.outputs(model.encoder.vocabulary)))
            pool = model.task.pool
            self.window = max(pool, self.window // pool * pool)  # whole pools, as in a list

    def __repr__(self) -> str:
        model, settings = self.model, self.model.encoder.settings
        parts = [f"{family_of(settings).kind} ({settings.shape})"]
        if model.task is not None:
            parts.append(f"task={model.task.kind}")
        if self.labels:
            shown = ", ".join(self.labels[:MAX_SHOWN]) + ", …" * (len(self.labels) > MAX_SHOWN)
            parts.append(f"{counted(len(self.labels), 'label')} ({shown})")
        parts.append(self.backend.precision)
        where = [repr(self.origin.source)] if self.origin is not None else []
        return f"{type(self).__name__}({', '.join([*where, *parts])})"

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"window": self.window}
        if self.origin is not None:
            return self.origin.reopen, (self.fingerprint(),), state
        if isinstance(self.backend, ExportedBackend):
            raise UserError("an exported model is pickled by its directory", remedy="load it there by unmask.load(DIR)")
        return partial(type(self), backend=self.backend), (self.model,), state

    def fingerprint(self) -> str:
        """Return the fingerprint of the model; of an exported one that of its files, as they hold its weights."""
        backend = self.backend
        return backend.fingerprint if isinstance(backend, ExportedBackend) else super().fingerprint()

    @property
    def task(self) -> Task:
        """The task that the model was fine-tuned for.

        Raises:
            UserError: the model was not fine-tuned.
        """
        if self.model.task is None:
            raise UserError(
                "this model was not fine-tuned for a task",
                remedy=f"fine-tune it: {call('finetune', 'classification', model='MODEL', train='FILE', out='RUN')}",
            )
        return self.model.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the model predicts, in the order of its logits; empty if its task has none."""
        return self.model.labels

    def predict(
        self, texts: Data, texts_b: str | Sequence[str] | None = None, *, explain: ExplainMethod | None = None
    ) -> list[P]:
        """Predict the label, the score or the entities of each text or pair, according to the model's task.

        Truncated and empty texts are counted in an `InputNote`.

        Args:
            texts: one or more texts, or what has columns of them: a `Path`, a data frame, a data set (see
                `labelled.table.as_sources`). Texts longer than the task's maximum length are truncated at their
                end, but a token classifier reads them whole.
            texts_b: the second texts of pairs.
            explain: also compute what each word contributes, by this method; see docs/explanations.md.

        Returns:
            `tasks.classification.Prediction`, `tasks.regression.Score` or `tasks.tagged.Tagged` for each text.

        Raises:
            UserError: the model was not fine-tuned for one of these tasks, or the method cannot explain it.
        """
        if texts_b is None and (isinstance(texts, Path) or is_table(texts)):
            return self._run_and_note(self.read(texts), explain)
        texts, seconds = as_texts(texts), None if texts_b is None else as_texts(texts_b)
        return self._run_and_note(self.task.from_texts(texts, seconds), explain)

    def read(
        self,
        data: Data,
        *,
        columns: ColumnNames | None = None,
        kind: str | None = None,
        notes: list[str] | None = None,
    ) -> list[Any]:
        """Return the examples of files or of a table, without their labels, for `run`.

        Args:
            data: see `unmask.data.labelled.table.as_sources`; a `.txt` file has one text per line, unless the model was
                trained on pairs.
            columns: mapping of our column names to those of the data.
            kind: format of the files, if the suffix does not determine it.
            notes: receives a line for each reason why rows were omitted.

        Raises:
            UserError: the data is malformed; names file and line, or row.
        """
        return read_examples(
            self.task, data, columns=as_columns(columns), kind=kind, notes=[] if notes is None else notes
        )

    def iterate(
        self, path: str | Path, *, columns: Columns, kind: str | None = None, notes: list[str]
    ) -> Iterator[Any]:
        """Yield what `read` returns for a file, for `stream`; see `Task.iterate`."""
        return iterate_examples(self.task, path, columns=columns, kind=kind, notes=notes)

    def tag(self, text: str | Sequence[str]) -> Tagged:
        """Find the entities of one text, or of a list of words, which are joined into a text.

        For several texts use `predict`.

        Raises:
            UserError: the model was not fine-tuned for this, or a word is empty.
        """
        return self._run_and_note([self._task_of(TAG, "token-classification").pose(text)])[0]

    def relate(self, text: str, spans: Sequence[tuple[int, int, str]]) -> Related:
        """Find the relations between marked spans of a text.

        Args:
            text: the text.
            spans: start and end of each span, in code points, and its label.

        Raises:
            UserError: the model was not fine-tuned for this, a span is not in the text, or there are fewer than two.
        """
        return self._run_and_note([self._task_of(RELATE, "relations").pose(text, spans)])[0]

    def answer(self, question: str, passage: Texts, history: Sequence[tuple[str, str]] = ()) -> P:
        """Answer a question from a passage.

        Args:
            question: the question; truncated at its end, with an `InputNote`, if longer than `task.question` tokens.
            passage: the text to find the answer in, of any length; for models of several passages, these, or a mapping
                of their titles to them.
            history: for models of dialogues, the earlier questions and their answers, the oldest first.

        Returns:
            `tasks.question_answering.Answered`, or what the task returns instead.

        Raises:
            UserError: one of them is empty, or the model was not fine-tuned for this.
        """
        return self._run_and_note([self.question(question, passage, history)])[0]

    def question(self, question: str, passage: Texts, history: Sequence[tuple[str, str]] = ()) -> Question:
        """Return a question and its passage as an example for `run`; see `answer`."""
        return self._task_of(ANSWER, "question-answering").pose(question, passage, history)

    def choose(self, passage: str, choices: Sequence[str], question: str = "") -> Chosen:
        """Choose the text that fits best.

        Args:
            passage: what the choices are about.
            choices: two or more texts.
            question: a question that they answer, or the begun sentence that they continue.

        Raises:
            UserError: a text is empty, or the model was not fine-tuned for this.
        """
        return self._run_and_note([self.choices(passage, choices, question)])[0]

    def choices(self, passage: str, choices: Sequence[str], question: str = "") -> Choices:
        """Return a passage and choices as an example for `run`; see `choose`."""
        return self._task_of(CHOOSE, "multiple-choice").pose(passage, choices, question)

    def _task_of(self, route: Route, name: str) -> Any:
        """Return the task that the model was fine-tuned for, which must be asked by this route."""
        if self.model.task is None or self.model.task.route != route:
            raise UserError(
                f"this model was not fine-tuned for {name.replace('-', ' ')}",
                remedy=f"fine-tune it: {call('finetune', name, model='MODEL', train='FILE', out='RUN')}",
            )
        return self.model.task

    def run(
        self, examples: Sequence[Any], notes: list[str] | None = None, *, explain: ExplainMethod | None = None
    ) -> list[P]:
        """Return the prediction for each example.

        Args:
            examples: examples of the model's task.
            notes: a list to which a line is added for each reason why examples were repaired, truncated or omitted, or
                are empty.
            explain: see `predict`.

        Raises:
            UserError: the model was not fine-tuned, so many scores do not fit into memory, or what it predicts is not
                explained.
        """
        check_memory(
            SCORE_BYTES * (1 if self.task.exclusive else 2) * len(examples) * len(self.labels),
            f"scoring {len(self.labels):,} labels for {len(examples):,} examples",
            "compute them in several parts",
        )
        framed = self.task.frame(self.model.tokenizer, examples, self.labels, gold=False)
        predictions, own_notes = self._read(framed, explain)
        if notes is not None:
            notes += map(str, own_notes)
        return predictions

    def _read(self, framed: Framed, explain: ExplainMethod | None) -> tuple[list[Any], list[str]]:
        """Return the predictions of framed examples, explained if that is asked for, and notes."""
        predictions, notes = framed.read(self._logits(framed.samples)), list(framed.notes)
        if explain is not None:
            notes += Explainer(self.model, self.task, self.backend).explain(framed, predictions, explain)
        return predictions, notes

    def _logits(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Return what the head of the task predicts; vectors of texts are also made without it, of the last layer."""
        pooling = self.task.vectors.pooling
        if pooling is None or self.backend.has_head(self.task.part):
            return self.backend.logits(self.task.part, samples)
        return [vector[None] for vector in normalized(self.framed_vectors(samples, pooling))]

    def stream(
        self, examples: Iterable[Any], notes: list[str] | None = None, *, explain: ExplainMethod | None = None
    ) -> Iterator[list[P]]:
        """Yield the predictions for texts or examples of any number, a window of them at a time, in order.

        The next window is read and tokenized while one is computed; no more than two are in memory.

        Args:
            examples: texts, or examples of the model's task; the iterator is advanced in another thread.
            notes: as in `run`, for each window after its size, to be added by `summed`; those that count examples are
                `ShareNote`s.
            explain: see `predict`.

        Raises:
            UserError: the model was not fine-tuned, or what it predicts is not explained.
        """
        task, remaining = self.task, iter(examples)

        def frame() -> Framed | None:
            window = list(islice(remaining, self.window))
            if window and isinstance(window[0], str):
                window = task.from_texts(window, None)
            return task.frame(self.model.tokenizer, window, self.labels, gold=False) if window else None

        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(frame)
            while (framed := coming.result()) is not None:
                coming = pool.submit(frame)
                predictions, own_notes = self._read(framed, explain)
                if notes is not None:
                    notes += [ShareNote(0, len(predictions), ""), *own_notes]
                yield predictions

    def _run_and_note(self, examples: Sequence[Any], explain: ExplainMethod | None = None) -> list[Any]:
        """Return what `run` returns, and issue its notes as one at the line of the caller's caller."""
        notes: list[str] = []
        predictions = self.run(examples, notes, explain=explain)
        if notes:
            note("; ".join(notes), stacklevel=3)
        return predictions

    def with_dimensions(self, dimensions: int | None) -> Predictor:
        """Return a predictor whose vectors of texts are cut to so many first components; None: itself.

        Raises:
            UserError: they have fewer, or the model makes no vectors.
        """
        if dimensions is None:
            return self
        return Predictor(self.model.with_dimensions(dimensions), backend=self.backend)
