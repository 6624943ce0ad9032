"""Token classification (entity recognition): one tag per word, at its first subword; all parameters are tuned.

Input: sentences of tagged words, or texts with spans (`data.labelled.annotations`). Output: samples, the head with its
loss, entities. Tags without prefixes, such as parts of speech, are learned too: each word is then an entity of its own,
and its accuracy is measured.

Devlin et al. 2019, section 5.3: the first subword of each word, and no CRF. The head is that of
`BertForTokenClassification`: dropout and one linear layer over the last layer (in ModernBERT over its pooler's output).
No document context is used.

Nothing is truncated: a sentence longer than `length` is divided into windows that overlap by half, and each word is
trained on and predicted once, in the window in which it has the most context (`word_windows`). A word that the
tokenizer reduces to nothing is read as [UNK].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from torch import Tensor

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.frame import Frame
from unmask.data.labelled.tagged_file import write_columns
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import token_classification as metrics
from unmask.metrics.intervals import Measure
from unmask.metrics.token_classification import Chunk, are_word_tags, is_word_tag, split_tag
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec, token_vectors
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.objectives.objective import Objective, Part, imitate_softmax
from unmask.support.errors import ShareNote, UserError
from unmask.support.model_card import Card
from unmask.tasks.entity_task import EntityTask, encode_words, in_code_points
from unmask.tasks.explained import Decision, SampleWords, Word
from unmask.tasks.pooled_head import NONE, TUNED, Regularization, score
from unmask.tasks.tagged import Tagged, all_tags, check_labels, cut_windows, labels_of, read_tags, tags_of
from unmask.tasks.task import Framed, Training
from unmask.tasks.tuning import (
    Temperature,
    check_temperature,
    describe_calibration,
    divisor,
    find_temperature,
    softmax,
)

COLUMNS = (".conll", ".tsv", ".txt")
"""Suffixes of files of predictions that have a word in each line."""


class TokenClassification(EntityTask, frozen=True, kw_only=True, tag="token-classification"):
    """The recipe's [task] for `kind = "token-classification"`; see `EntityTask`.

    Attributes:
        regularization: label smoothing and R-Drop.
        temperature: what logits are divided by before they become probabilities; "tuned": found on a tenth of the
            training sentences, which are then not used for training.
    """

    regularization: Regularization = NONE
    temperature: Temperature = 1.0

    tables = COLUMNS
    part = "token_classification"
    metric = "f1"
    card = Card(title="A token classifier", pipeline="token-classification")
    decides = True
    # Devlin et al. 2019, appendix A.3: at most 4 epochs
    training = Training(rate=2.0, epochs=4, steps=200, tuned=TUNED)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)

    def label_names(self, examples: Sequence[TaggedSentence]) -> tuple[str, ...]:
        """See `Task`: O, then B- and I- of each type, or all tags without prefixes, in alphabetical order."""
        return labels_of(examples)

    def labels_of(self, example: TaggedSentence) -> tuple[str, ...]:
        """See `Task`: the types of the entities, or the tags of the words."""
        return tuple(kind for role, kind in map(split_tag, example.tags) if role in ("B", "S"))

    def classes(self, labels: Sequence[str]) -> set[str]:
        """See `Task`: the types of entities, whatever the tagging scheme.

        Raises:
            UserError: the labels of the model are not tags.
        """
        check_labels(labels)
        return _kinds(labels)

    @property
    def tunes(self) -> bool:
        """See `Task`: the temperature."""
        return self.temperature == "tuned"

    def tune(self, examples: Sequence[TaggedSentence], predictions: Sequence[Tagged]) -> TokenClassification:
        """See `Task`: the temperature with the smallest loss of the words."""
        return msgspec.structs.replace(self, temperature=find_temperature(*_probabilities(examples, predictions)))

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> TokenClassificationHead:
        """See `Task`."""
        return TokenClassificationHead(spec, len(labels), self.regularization)

    def frame(
        self, tokenizer: Tokenizer, examples: Sequence[TaggedSentence], labels: Sequence[str], *, gold: bool
    ) -> Framed:
        """See `Task`: one sample per window."""
        check_labels(labels)
        frame = Frame.of(tokenizer)
        capacity = frame.capacity(self.length, texts=1)
        subwords = encode_words(tokenizer, examples)
        samples: list[Sample] = []
        owners: list[int] = []
        spans: list[tuple[slice, np.ndarray]] = []  # of each sample, its words, and the number of tokens of each
        for number, sentence in enumerate(examples):
            ids = [subwords[word][:capacity] for word in sentence.words]  # one array (subwords,) per word
            sizes = np.array([len(subword_ids) for subword_ids in ids], np.int64)
            tags = _numbers(sentence, labels) if gold else None
            for window in cut_windows(sizes, capacity):
                sample = frame.wrap(np.concatenate(ids[window.start : window.stop]))
                within = sizes[window.start : window.stop]
                first = frame.start + np.cumsum(within) - within
                target = slice(window.first - window.start, window.last - window.start)
                sample = sample.add(positions={"first": first[target]}).named((0, len(samples)))
                if tags is not None:
                    sample = sample.add(labels={"token_classification": tags[window.first : window.last]})
                samples.append(sample)
                owners.append(number)
                spans.append((slice(window.start, window.stop), within))

        def read(logits: Sequence[np.ndarray]) -> list[Tagged]:
            of_sentence: list[list[np.ndarray]] = [[] for _ in examples]
            for owner, rows in zip(owners, logits, strict=True):
                of_sentence[owner].append(rows)
            pairs = zip(examples, of_sentence, strict=True)
            return [read_tags(sentence, labels, rows, divisor(self.temperature)) for sentence, rows in pairs]

        def words_of(number: int) -> SampleWords:
            sentence, (inside, counts) = examples[owners[number]], spans[number]
            words = list(map(Word, sentence.starts[inside], sentence.stops[inside]))
            return SampleWords(owners[number], words, frame.spread(np.repeat(np.arange(len(counts)), counts)))

        empty = sum(not sentence.starts for sentence in examples)
        notes = [ShareNote(empty, len(examples), "texts are empty")] if empty else []
        words = (subwords[word] for sentence in examples for word in sentence.words)
        return Framed(
            samples, read, (*notes, *tokenizer.notes(words, (sentence.text for sentence in examples))), words=words_of
        )

    def decisions(self, logits: np.ndarray, labels: Sequence[str]) -> list[Decision]:
        """See `Task`: the tag of each word that is not O."""
        return [
            Decision(word, int(tag), labels[tag], True, divisor(self.temperature), at="first")
            for word, tag in enumerate(logits.argmax(1))
            if labels[tag] != "O"
        ]

    def metrics_of(self, examples: Sequence[TaggedSentence], labels: Sequence[str]) -> Sequence[str]:
        """See `Task`."""
        return (*(("accuracy",) if are_word_tags(labels) else ()), *metrics.NAMES)

    def measure(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[Tagged], labels: Sequence[str]
    ) -> Measure:
        """See `Task`: entities are compared, so that the tagging schemes of file and model may differ.

        If the tags have no prefixes, the accuracy of words is measured too.
        """
        measure = metrics.measure(*gold_and_predicted(examples, predictions, labels))
        if not are_word_tags(labels):
            return measure
        accuracy = metrics.measure_accuracy(*all_tags(examples, predictions))
        return lambda sentences: accuracy(sentences) | measure(sentences)

    def calibration(self, examples: Sequence[TaggedSentence], predictions: Sequence[Tagged]) -> dict[str, float]:
        """See `Task`: of the tags of all words, if the model's are IOB2, as those of the examples are."""
        known = {label for prediction in predictions if prediction.scores for label in prediction.scores.labels}
        in_iob2 = known == {"O", *(f"{role}-{kind}" for kind in _kinds(tuple(known)) for role in "BI")}
        if not in_iob2 and not are_word_tags(known):
            return {}
        return describe_calibration(*_probabilities(examples, predictions), self.temperature)

    def labelled(self, examples: Sequence[TaggedSentence], predictions: Sequence[Tagged]) -> list[TaggedSentence]:
        """See `Task`."""
        pairs = zip(examples, predictions, strict=True)
        return [replace(sentence, tags=tuple(tags_of(sentence, prediction))) for sentence, prediction in pairs]

    def details(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[Tagged], labels: Sequence[str]
    ) -> dict[str, Any]:
        """See `Task`: the scores of each type of entity, or of each tag of words."""
        if are_word_tags(labels):
            return {"by_type": metrics.by_tag(*all_tags(examples, predictions))}
        return {"by_type": metrics.by_type(*gold_and_predicted(examples, predictions, labels))}

    def record(self, path: Path, example: TaggedSentence, prediction: Tagged) -> Any:
        """See `Task`: a prediction or, depending on the suffix, the lines of a sentence or an annotator's record."""
        if path.suffix in COLUMNS:
            return write_columns(example, tags_of(example, prediction))
        return super().record(path, example, prediction)

    def files(self, path: Path, records: Iterable[Any]) -> dict[Path, Iterable[bytes]]:
        """See `Task`: JSON Lines or, depending on the suffix, columns that `evaluate` reads or an annotator's file."""
        if path.suffix in COLUMNS:
            return {path: (lines.encode() for lines in records)}
        return super().files(path, records)


class TokenClassificationHead(Objective):
    """Token classification head with its loss.

    Args:
        spec: the properties of the body under the head.
        num_labels: number of tags.
        regularization: changes the loss in training.
    """

    at = "first"

    def __init__(self, spec: HeadSpec, num_labels: int, regularization: Regularization = NONE) -> None:
        super().__init__()
        self.regularization = regularization
        self.dropout = Dropout(spec.token_dropout)
        self.out = Linear(spec.width, num_labels)
        spec.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one loss term per word."""
        return sample.add(counts={name: len(sample.positions["first"])})

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return batch.positions["first"]

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits, (words, labels)."""
        rows = token_vectors(encoder, encoded.last, batch, "first")  # (words, width)
        return self.out(self.dropout(rows))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        return score(self, self.regularization, encoder, encoded, batch, batch.labels["token_classification"])

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`."""
        return imitate_softmax(logits, targets, temperature)


def gold_and_predicted(
    examples: Sequence[TaggedSentence], predictions: Sequence[Tagged], labels: Sequence[str]
) -> tuple[list[list[Chunk]], list[list[Chunk]]]:
    """Return the gold and the predicted entities of each sentence, with offsets in code points.

    Raises:
        UserError: the model does not know the type of an entity, or has tags of words, such as parts of speech, where
            the examples have tags of entities, or the reverse.
    """
    kinds, plain = {"", *_kinds(labels)}, are_word_tags(labels)
    tags = {tag for sentence in examples for tag in sentence.tags}
    unknown = {tag for tag in tags if split_tag(tag)[1] not in kinds or is_word_tag(tag) != plain}
    for sentence in examples if unknown else ():
        for index, tag in enumerate(sentence.tags):
            if tag in unknown:
                raise _unknown(sentence, index, labels)
    return in_code_points(examples, predictions)


def _numbers(sentence: TaggedSentence, labels: Sequence[str]) -> np.ndarray:
    """Return the index of each word's tag, (words,)."""
    numbers = {label: number for number, label in enumerate(labels)}
    for index, tag in enumerate(sentence.tags):
        if tag not in numbers:
            raise _unknown(sentence, index, labels)
    return np.array([numbers[tag] for tag in sentence.tags], np.int64)


def _kinds(labels: Sequence[str]) -> set[str]:
    return {split_tag(label)[1] for label in labels} - {""}


def _unknown(sentence: TaggedSentence, index: int, labels: Sequence[str]) -> UserError:
    tag, kinds = sentence.tags[index], sorted(_kinds(labels))
    kind, remedy = split_tag(tag)[1], "correct the tag, or train on a file that contains it"
    if kind not in kinds or not is_word_tag(tag):
        what = f"type '{kind}'" if kind not in kinds else f"tag '{tag}'"
        problem = f"unknown {what}; the model knows {', '.join(kinds)}"
    else:
        problem, remedy = f"'{tag}' has no prefix, and the file has no O beside it", f"write B-{kind} and I-{kind}"
    return UserError(problem, file=sentence.file, line=sentence.line + sentence.step * index, remedy=remedy)


def _probabilities(examples: Sequence[TaggedSentence], predictions: Sequence[Tagged]) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability of each tag of each word, (words, labels), and the index of each word's gold tag."""
    scored = [
        (sentence, prediction.scores)
        for sentence, prediction in zip(examples, predictions, strict=True)
        if prediction.scores
    ]
    gold = np.concatenate([_numbers(sentence, scores.labels) for sentence, scores in scored])
    return softmax(np.concatenate([scores.logits for _, scores in scored])), gold
