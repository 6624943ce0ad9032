"""Classification by the names of labels, without labeled examples: by entailment, or by a masked language model.

Input: a model, the labels, and a template with a slot, {}, for them. Output: a `Predictor` of these labels.

- Entailment (Yin et al. 2019, section 5): the text is the premise, and the template with a label the hypothesis. A
  label's score is the softmax, over the labels, of the logits of entailment, or, if a text may have several labels,
  that of entailment against contradiction, as in the zero-shot pipeline of transformers.
- Cloze (Schick and Schütze 2021, section 3): the template follows the text, with as many masks as the label has tokens,
  whose score is the mean of their log probabilities. Frequent words are probable after any text. The probabilities are
  therefore divided by their mean for texts without content (Zhao et al. 2021, section 4): "", "N/A" and a mask.

Texts that are too long are truncated, the template is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import MASKED
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.inference.backend import Backend
from unmask.inference.entailment import entailment_classes
from unmask.inference.fill import blocks_of
from unmask.inference.predictor import Predictor
from unmask.inference.stream import summed
from unmask.support.choices import ExplainMethod, LabelNames
from unmask.support.errors import ShareNote, UserError, check_unicode
from unmask.support.messages import argument
from unmask.tasks.classification import Classification, Prediction
from unmask.tasks.multi_label import Labels, MultiLabel
from unmask.tasks.task import Framed
from unmask.tasks.tuning import softmax, threshold_of

SLOT = "{}"
"""Stands for the label in a template."""
HYPOTHESIS, PATTERN = "This text is about {}.", "It is about {}."
"""Templates for entailment, and after a text."""
MAX_SAMPLES = 8192
"""Number of sequences that are framed at once: of the texts of a window times the labels."""
CONTENT_FREE = ("", "N/A")
"""Texts without content, beside a mask."""


class LabelPredictor(Predictor):
    """A `Predictor` of labels that the model was not fine-tuned for; texts are predicted a window at a time."""

    def run(
        self, examples: Sequence[Any], notes: list[str] | None = None, *, explain: ExplainMethod | None = None
    ) -> list[Any]:
        """See `Predictor`."""
        window_notes: list[str] = []
        predictions = list(chain.from_iterable(self.stream(examples, window_notes, explain=explain)))
        if notes is not None:
            notes += summed(window_notes)
        return predictions


def by_labels(
    predictor: Predictor, labels: LabelNames, template: str | None = None, *, multi_label: bool = False
) -> LabelPredictor:
    """Return a predictor of labels by their names.

    Args:
        predictor: a classifier of pairs with the labels of entailment, or a masked language model.
        labels: the labels; a single string has them separated by commas.
        template: a text with one {}, which stands for the label; None: the default.
        multi_label: whether a text may have any number of the labels.

    Raises:
        UserError: the model can do neither, the labels are fewer than two or equal, or the template has no slot.
    """
    model, backend, names = predictor.model, predictor.backend, read_labels(labels)
    settings: dict[str, Any] = {"pairs": False, "template": _check_template(template)}
    task: EntailedLabel | EntailedLabels | ClozeLabel
    if isinstance(model.task, Classification):
        entailed, refuted = entailment_classes(model.labels, multi_label)
        settings |= {"length": model.task.length, "entailed": entailed, "refuted": refuted}
        settings["template"] = settings["template"] or HYPOTHESIS
        task = EntailedLabels(**settings, threshold=0.5) if multi_label else EntailedLabel(**settings)
    else:
        if model.task is not None or not backend.has_head("masked_lm"):
            raise UserError(
                f"{argument('labels')} needs a classifier of pairs with the labels of entailment, or a masked language "
                "model",
                remedy="use one of them, or fine-tune this model on examples with labels",
            )
        if multi_label:
            raise UserError(
                f"{argument('multi_label')} needs a model of entailment: a masked language model compares labels"
            )
        settings["template"] = settings["template"] or PATTERN
        _refuse_mask(settings["template"], model.tokenizer)
        task = ClozeLabel(**settings, length=model.encoder.longest)
        tokens = label_tokens(model.tokenizer, task.template, names)
        vocabulary = model.tokenizer.size
        backend = LabelTokens(backend, vocabulary, np.unique(np.concatenate(tokens)))
    labeled = LabelPredictor(replace(model, task=task, labels=names), backend=backend)
    labeled.window = max(1, MAX_SAMPLES // len(names))
    return labeled


def read_labels(labels: LabelNames) -> tuple[str, ...]:
    """Return the names of labels; a single string has them separated by commas.

    Raises:
        UserError: there are fewer than two, one is empty, or two are equal but for capitals.
    """
    parts = [labels] if isinstance(labels, str) else list(labels)
    check_unicode(parts)
    names = tuple(name.strip() for name in (parts[0].split(",") if len(parts) == 1 else parts))
    if len(names) < 2 or not all(names):
        raise UserError(
            f"{argument('labels', list(names))}: at least two names are needed, none of them empty",
            remedy=f"pass for example {argument('labels', 'sports,politics')}",
        )
    if len({name.casefold() for name in names}) < len(names):
        raise UserError(f"{argument('labels', list(names))}: two are equal", remedy="remove one")
    return names


def _check_template(template: str | None) -> str:
    """Return a template, "" for None.

    Raises:
        UserError: it has not exactly one slot.
    """
    if template is None:
        return ""
    check_unicode([template])
    if template.count(SLOT) != 1:
        raise UserError(
            f"{argument('template', template)}: one {SLOT} must stand for the label",
            remedy=f"pass for example {argument('template', HYPOTHESIS)}",
        )
    return template


def _refuse_mask(template: str, tokenizer: Tokenizer) -> None:
    """Raise an error if a template has a mask, which would be taken for that of the label."""
    if tokenizer.mask in tokenizer.encode(template.replace("[MASK]", tokenizer.mask_token)):
        raise UserError(f"{argument('template', template)}: {SLOT} becomes the mask", remedy="remove the other one")


class EntailedLabel(Classification, frozen=True, kw_only=True, tag="entailed-label"):
    """The label that a text entails most; see `Classification`.

    Attributes:
        template: the hypothesis, with a slot for the label.
        entailed, refuted: indices of entailment and of its opposite among the labels of the model.
    """

    template: str
    entailed: int
    refuted: int

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: a pair for each label."""
        samples, cut, notes = frame_hypotheses(tokenizer, examples, self.template, labels, self.length)

        def read(logits: Sequence[np.ndarray]) -> list[Prediction]:
            values = _by_example(logits, len(labels))  # (examples, labels, classes)
            return _predictions(examples, softmax(values[:, :, self.entailed]), labels, cut)

        return Framed(samples, read, notes, cut=cut)


class EntailedLabels(MultiLabel, frozen=True, kw_only=True, tag="entailed-labels"):
    """The labels that a text entails, each by itself; see `MultiLabel` and `EntailedLabel`."""

    template: str
    entailed: int
    refuted: int

    part = "classification"

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: a pair for each label."""
        samples, cut, notes = frame_hypotheses(tokenizer, examples, self.template, labels, self.length)

        def read(logits: Sequence[np.ndarray]) -> list[Labels]:
            values = _by_example(logits, len(labels))[:, :, [self.refuted, self.entailed]]
            probabilities = softmax(values.reshape(-1, 2))[:, 1].reshape(-1, len(labels))  # (examples, labels)
            predictions = []
            for row, was_cut, each in zip(examples, cut, probabilities.tolist(), strict=True):
                scores = dict(zip(labels, each, strict=True))
                likely = tuple(name for name, score in scores.items() if score > threshold_of(self.threshold))
                predictions.append(Labels(row.values["text"], likely, scores, cut=was_cut))
            return predictions

        return Framed(samples, read, notes, cut=cut)


class ClozeLabel(Classification, frozen=True, kw_only=True, tag="cloze-label"):
    """The label that a masked language model finds most probable in a template after a text; see `Classification`.

    Attributes:
        template: what follows the text, with a slot for the label.
    """

    template: str

    part = "masked_lm"

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: a sample for each number of tokens that labels have, of texts without content too."""
        tokens = label_tokens(tokenizer, self.template, labels)
        columns = np.unique(np.concatenate(tokens))  # of the logits of `LabelTokens`
        numbers = sorted(set(map(len, tokens)))
        masked = [f" {self.template.replace(SLOT, tokenizer.mask_token * number)}" for number in numbers]
        tails = tokenizer.encode_many(masked)
        texts = [text.strip() for text in _texts(examples)]
        ids = [*tokenizer.encode_many(CONTENT_FREE), np.array([tokenizer.mask]), *tokenizer.encode_many(texts)]
        frame = Frame.of(tokenizer)
        room = _room(frame.capacity(self.length, texts=1), tails, self.length)
        samples = [
            _cloze(frame, each[:room], tail, number, tokenizer.mask).named((0, index))
            for index, each in enumerate(ids)
            for number, tail in zip(numbers, tails, strict=True)
        ]
        extra = len(ids) - len(examples)
        cut = [len(each) > room for each in ids[extra:]]

        def read(logits: Sequence[np.ndarray]) -> list[Prediction]:
            scores = np.empty((len(ids), len(labels)))
            for index in range(len(ids)):
                rows = dict(zip(numbers, logits[index * len(numbers) :], strict=False))  # each (masks, columns)
                for label, each in enumerate(tokens):
                    at = np.searchsorted(columns, each)
                    scores[index, label] = rows[len(each)][np.arange(len(each)), at].mean()
            probabilities = softmax(scores)
            relative = probabilities[extra:] / probabilities[:extra].mean(0)
            return _predictions(examples, relative / relative.sum(1, keepdims=True), labels, cut)

        return Framed(samples, read, _notes(cut, texts, self.length), cut=cut)


@dataclass(frozen=True)
class LabelTokens:
    """`Backend` that returns the log probabilities of a few tokens at masks, and keeps no others in memory.

    Attributes:
        backend: computes the logits of the masked-LM head.
        vocabulary: number of tokens; further logits pad the embedding table.
        ids: the tokens in order, (columns,).
    """

    backend: Backend
    vocabulary: int
    ids: np.ndarray
    has_layers = False

    @property
    def precision(self) -> str:
        """See `Backend`."""
        return self.backend.precision

    def has_head(self, head: str) -> bool:
        """See `Backend`."""
        return self.backend.has_head(head)

    def logits(self, head: str, samples: Sequence[Sample]) -> list[np.ndarray]:
        """See `Backend`; (masks, columns) each."""
        blocks = blocks_of(samples, MASKED, self.vocabulary)
        return [self._read(rows) for block in blocks for rows in self.backend.logits(head, block)]

    def _read(self, rows: np.ndarray) -> np.ndarray:
        logits = rows[:, : self.vocabulary].astype(np.float64)  # (masks, vocabulary)
        largest = logits.max(1, keepdims=True)
        totals = largest + np.log(np.exp(logits - largest).sum(1, keepdims=True))
        return np.asarray(logits[:, self.ids] - totals)

    def layers(
        self, samples: Sequence[Sample], layers: Sequence[int], *, at: str | None = None, pooled: bool = False
    ) -> Iterator[tuple[int, np.ndarray]]:
        """See `Backend`."""
        return self.backend.layers(samples, layers, at=at, pooled=pooled)


def label_tokens(tokenizer: Tokenizer, template: str, labels: Sequence[str]) -> list[Ids]:
    """Return the tokens of each label in the slot of a template that follows a text, (tokens,) each.

    Raises:
        UserError: the vocabulary lacks a character of a label, or a token has characters of the template, too.
    """
    tokens = []
    for label in labels:
        ids, offsets = tokenizer.encode_offsets(tail := f" {template.replace(SLOT, label)}")
        start = 1 + template.index(SLOT)
        end = start + len(label)
        inside = [index for index, (first, last) in enumerate(offsets) if first < end and last > start]
        spread = tail[min((offsets[index][0] for index in inside), default=start) : start]
        spread += tail[end : max((offsets[index][1] for index in inside), default=end)]
        if not inside or tokenizer.unk in ids[inside] or spread.strip():
            raise UserError(
                f"the vocabulary of this model lacks characters of the label '{label}'"
                if not spread.strip()
                else f"a token of the label '{label}' has characters of {argument('template')}, too",
                remedy="use another name, or spaces around it in the template",
            )
        tokens.append(ids[inside])
    return tokens


def frame_hypotheses(
    tokenizer: Tokenizer, rows: Sequence[Row], template: str, labels: Sequence[str], length: int
) -> tuple[list[Sample], list[bool], tuple[str, ...]]:
    """Return a pair of a text and a hypothesis for each text and label, which texts were truncated, and notes.

    Raises:
        UserError: a hypothesis leaves no space for text, or rows are pairs.
    """
    texts = _texts(rows)
    frame, hypotheses = Frame.of(tokenizer), tokenizer.encode_many([template.replace(SLOT, name) for name in labels])
    capacity = frame.capacity(length, texts=2)
    room, premises = _room(capacity, hypotheses, length), tokenizer.encode_many(texts)
    samples = [
        frame.wrap(premise[: capacity - len(hypothesis)], hypothesis).named((0, index))
        for index, premise in enumerate(premises)
        for hypothesis in hypotheses
    ]
    cut = [len(premise) > room for premise in premises]
    return samples, cut, _notes(cut, texts, length)


def _texts(rows: Sequence[Row]) -> list[str]:
    """Return the text of each row.

    Raises:
        UserError: a row is a pair.
    """
    if pair := next((row for row in rows if "text_b" in row.values), None):
        raise UserError(
            f"{argument('labels')} are predicted of single texts, but this is a pair",
            file=pair.file or None,
            line=pair.line or None,
            remedy=f"omit the second text, or name one column: {argument('columns', {'text': 'NAME'})}",
        )
    return [row.values["text"] for row in rows]


def _room(capacity: int, tails: Sequence[Ids], length: int) -> int:
    """Return how many tokens of a text fit beside any of the templates."""
    room = capacity - max(map(len, tails))
    if room < 1:
        raise UserError(
            f"{argument('template')} with a label has so many tokens that none of the {length} of the model are left "
            "for the text",
            remedy="shorten it, or the names of the labels",
        )
    return room


def _cloze(frame: Frame, text: Ids, tail: Ids, masks: int, mask: int) -> Sample:
    """Return a text and a template with masks as a sample."""
    places = frame.start + len(text) + np.flatnonzero(tail == mask)[:masks]
    return frame.wrap(np.concatenate([text, tail])).add(positions={MASKED: places})


def _notes(cut: Sequence[bool], texts: Sequence[str], length: int) -> tuple[str, ...]:
    counts = {
        f"texts are longer than {length} tokens with the template and were cut": sum(cut),
        "texts are empty": sum(not text.strip() for text in texts),
    }
    return tuple(ShareNote(count, len(texts), what) for what, count in counts.items() if count)


def _by_example(logits: Sequence[np.ndarray], number: int) -> np.ndarray:
    """Return the logits of pairs, (1, classes) each, as (examples, labels, classes)."""
    values = np.concatenate(logits).astype(np.float64)
    return values.reshape(-1, number, values.shape[1])


def _predictions(
    rows: Sequence[Row], probabilities: np.ndarray, labels: Sequence[str], cut: Sequence[bool]
) -> list[Prediction]:
    return [
        Prediction(
            row.values["text"], labels[int(each.argmax())], dict(zip(labels, each.tolist(), strict=True)), cut=flag
        )
        for row, each, flag in zip(rows, probabilities, cut, strict=True)
    ]
