"""A model that is served: requests are converted to jobs for its batcher, and the rows of these to responses.

Framing is done outside of the computing thread. Texts are checked before they are tokenized: their number and length in
characters; then their tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.data.batches.batch import Sample, total_length
from unmask.data.batches.frame import Frame
from unmask.inference.batching import in_order
from unmask.inference.features import frame_words
from unmask.inference.fill import HEADS, Mask, find_masks, mask_head, most_probable
from unmask.inference.pooling import normalized, pooled, supported
from unmask.inference.predictor import Predictor
from unmask.nn.encoders.downstream import resolve_layers
from unmask.serving.batcher import Batcher, Head, Job
from unmask.serving.metrics import Meter
from unmask.serving.types import (
    AnswerRequest,
    ChooseRequest,
    EmbedRequest,
    FeaturesRequest,
    FillRequest,
    Limits,
    PredictRequest,
    Scored,
    TagRequest,
    TextFeatures,
    invalid,
    too_large,
)
from unmask.tasks.classification import Classification
from unmask.tasks.extraction import Extraction
from unmask.tasks.multiple_choice import MultipleChoice
from unmask.tasks.regression import Regression
from unmask.tasks.rows import as_rows, cut_and_wrap
from unmask.tasks.token_classification import TokenClassification

SCORE = "score"
"""Label of a predicted number."""


class Served:
    """A model with its name, its limits and its queue.

    Args:
        name: name by which requests select it.
        predictor: the model.
        limits: limits of the server.
        meter: metrics of the server.

    Raises:
        UserError: the model states vectors of texts that are not supported.
    """

    def __init__(self, name: str, predictor: Predictor, limits: Limits, meter: Meter) -> None:
        self.name, self.predictor, self.limits = name, predictor, limits
        self.pooling = supported(predictor.model.pooling)
        self.batcher = Batcher(self.compute, limits, meter, name)
        self.model, self.tokenizer = predictor.model, predictor.model.tokenizer
        most = min(limits.batch_tokens, limits.request_tokens, self.model.encoder.longest)
        self.longest = most if self.pooling.length is None else min(most, self.pooling.length)
        self.mask_head = mask_head(self.model)

    def compute(self, head: Head, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Return the logits of each sample, (targets, classes), or its hidden states, (tokens, layers, width)."""
        if isinstance(head, str):
            return self.predictor.backend.logits(head, samples)
        if callable(head):
            return head(samples)
        return in_order(self.predictor.backend.layers(samples, head))

    def warm_up(self) -> None:
        """Compute something with each head, so that a damaged one is noticed before the first request.

        Raises:
            UserError: a head is damaged.
        """
        jobs = []
        if self.has("/embed"):
            jobs.append(self.embed_ids([np.zeros(1, np.int64)], normalize=True, dimensions=None, truncate=True))
        if self.mask_head is not None:
            jobs.append(self.fill(FillRequest(inputs="[MASK]")))
        if self.has("/predict"):
            pair = bool(getattr(self.model.task, "pairs", None))
            jobs.append(self.predict(PredictRequest(inputs=["a", "a"] if pair else "a")))
        if self.has("/tag"):
            jobs.append(self.tag(TagRequest(inputs="a")))
        if self.has("/answer"):
            jobs.append(self.answer(AnswerRequest(question="a", passage="a")))
        if self.has("/choose"):
            jobs.append(self.choose(ChooseRequest(passage="a", choices=["a", "a"])))
        for job in jobs:
            job.read(self.compute(job.head, job.samples))

    def has(self, route: str) -> bool:
        """Return whether the model can do what a route does."""
        task = self.model.task
        has_layers = self.predictor.backend.has_layers
        needs = {
            "/embed": has_layers,
            "/v1/embeddings": has_layers,
            "/features": has_layers,
            "/playground/influence": has_layers,
            "/predict": isinstance(task, Classification | Regression),
            "/tag": isinstance(task, TokenClassification),
            "/answer": isinstance(task, Extraction),
            "/choose": isinstance(task, MultipleChoice),
            "/fill": self.mask_head is not None,
        }
        return needs.get(route, True)

    def embed(self, request: EmbedRequest) -> Job:
        """Return the job of `/embed`; it reads an array, (texts, dimensions)."""
        texts = self._texts(request.inputs, truncate=request.truncate)
        ids = self.tokenizer.encode_many(texts)
        return self.embed_ids(
            ids, normalize=request.normalize, dimensions=request.dimensions, truncate=request.truncate
        )

    def embed_ids(self, ids: Sequence[np.ndarray], *, normalize: bool, dimensions: int | None, truncate: bool) -> Job:
        """Return the job of the vectors of texts that are tokenized already, without special tokens.

        Raises:
            Refusal: a text is too long, or has fewer dimensions.
        """
        width = self.model.encoder.width
        if dimensions is not None and dimensions > width:
            raise invalid(f"the vectors of this model have {width} dimensions")
        frame = Frame.of(self.tokenizer)
        self._check_lengths(map(len, ids), frame.capacity(self.longest, texts=1), truncate=truncate)
        samples = self._checked([cut_and_wrap(frame, [one], self.longest)[0] for one in ids])

        def read(rows: list[np.ndarray]) -> np.ndarray:
            pairs = zip(rows, samples, strict=True)
            found = np.stack([pooled(one[:, 0], sample, self.pooling.kind)[:dimensions] for one, sample in pairs])
            return normalized(found) if normalize else found

        return Job((self.model.encoder.num_layers,), samples, read)

    def predict(self, request: PredictRequest) -> Job:
        """Return the job of `/predict`; it reads the labels of each text, the most probable first."""
        pairs, single = _pairs(request.inputs)
        texts = self._texts([text for pair in pairs for text in pair], truncate=request.truncate, count=len(pairs))
        first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs if len(pair) == 2]
        if second and len(second) != len(first):
            raise invalid("a batch has pairs and single texts; send them in two requests")
        task, labels = self.predictor.task, self.predictor.labels
        if request.truncate:
            stop = self.limits.characters
            first, second = [text[:stop] for text in first], [text[:stop] for text in second]
        framed = task.frame(self.tokenizer, task.from_texts(first, second or None), labels, gold=False)
        samples = self._checked(framed.samples)
        if not request.truncate and any(len(sample) >= task.length for sample in samples):
            sizes = list(map(len, self.tokenizer.encode_many(texts)))
            sums = [sum(sizes[start : start + len(pairs[0])]) for start in range(0, len(sizes), len(pairs[0]))]
            capacity = Frame.of(self.tokenizer).capacity(task.length, texts=len(pairs[0]))
            self._check_lengths(sums, capacity, truncate=False)

        def read(rows: list[np.ndarray]) -> Any:
            found = [
                _scored(one, raw, labels, request.raw_scores) for one, raw in zip(framed.read(rows), rows, strict=True)
            ]
            return found[0] if single else found

        return Job(task.part, samples, read)

    def tag(self, request: TagRequest) -> Job:
        """Return the job of `/tag`; it reads the entities of each text."""
        task = self.predictor.task
        examples = task.from_texts(self._texts(request.inputs))
        framed = task.frame(self.tokenizer, examples, self.predictor.labels, gold=False)
        return Job(task.part, self._checked(framed.samples), lambda rows: [one.entities for one in framed.read(rows)])

    def answer(self, request: AnswerRequest) -> Job:
        """Return the job of `/answer`; it reads what the task answers."""
        passage = request.passage
        parts = (
            [passage]
            if isinstance(passage, str)
            else [*passage, *passage.values()]
            if isinstance(passage, dict)
            else passage
        )
        self._texts([request.question, *parts, *(text for turn in request.history for text in turn if text)])
        return self._single(self.predictor.question(request.question, passage, request.history))

    def choose(self, request: ChooseRequest) -> Job:
        """Return the job of `/choose`; it reads the choice and the probability of each."""
        self._texts([request.passage, *filter(None, [request.question]), *request.choices])
        return self._single(self.predictor.choices(request.passage, request.choices, request.question))

    def fill(self, request: FillRequest) -> Job:
        """Return the job of `/fill`; it reads the masks of each text with their candidates."""
        assert self.mask_head is not None
        texts = self._texts(request.inputs)
        found = [find_masks(self.tokenizer, text, self.longest, HEADS[self.mask_head]) for text in texts]

        def read(rows: list[np.ndarray]) -> list[list[Mask]]:
            candidates = [most_probable(self.tokenizer, logits, request.top) for logits in rows]
            return [list(map(Mask, starts, ranked)) for (starts, _), ranked in zip(found, candidates, strict=True)]

        return Job(self.mask_head, self._checked([sample for _, sample in found]), read)

    def features(self, request: FeaturesRequest) -> Job:
        """Return the job of `/features`; it reads the hidden states of each text."""
        encoder = self.model.encoder
        texts = self._texts(request.inputs, truncate=request.truncate)
        layers = resolve_layers(request.layers, encoder.num_layers)
        words = frame_words(self.tokenizer, as_rows(texts), self.longest)
        if words.cut and not request.truncate:
            raise invalid(f"a text is too long; this model reads {self.longest} tokens, or set truncate")
        if int(words.offsets[-1]) * len(layers) * encoder.width > self.limits.values:
            raise too_large(f"more than {self.limits.values:,} numbers; ask for fewer texts or layers")
        samples, offsets = self._checked(words.samples), words.offsets
        ids = np.split(words.word_ids, offsets[1:-1])

        def read(rows: list[np.ndarray]) -> list[TextFeatures]:
            return [
                TextFeatures(word.tolist(), one.swapaxes(0, 1).tolist()) for word, one in zip(ids, rows, strict=True)
            ]

        return Job(layers, samples, read)

    def _single(self, example: Any) -> Job:
        """Return the job of one example; it reads what the task predicts."""
        task = self.predictor.task
        framed = task.frame(self.tokenizer, [example], self.predictor.labels, gold=False)
        return Job(task.part, self._checked(framed.samples), lambda rows: framed.read(rows)[0])

    def _texts(self, inputs: str | Sequence[str], *, truncate: bool = False, count: int | None = None) -> list[str]:
        """Return texts whose number and length are within the limits; truncated ones, if that is asked for.

        Raises:
            Refusal: there are too many or none, or one is empty or too long.
        """
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if not texts:
            raise invalid("inputs are empty")
        if (len(texts) if count is None else count) > self.limits.inputs:
            raise too_large(f"more than {self.limits.inputs} inputs; send several requests")
        if not all(map(str.strip, texts)):
            raise invalid("a text is empty")
        stop = self.limits.characters
        if any(len(text) > stop for text in texts) and not truncate:
            raise invalid(f"a text has more than {stop:,} characters; shorten it")
        return [text[:stop] for text in texts]

    def _check_lengths(self, sizes: Any, capacity: int, *, truncate: bool) -> None:
        if not truncate and any(size > capacity for size in sizes):
            raise invalid(
                f"a text is too long; this model reads {capacity} tokens besides special ones, or set truncate"
            )

    def _checked(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return samples whose number of tokens is within the limits.

        Raises:
            Refusal: there are too many tokens.
        """
        if total_length(samples) > self.limits.request_tokens:
            raise too_large(f"more than {self.limits.request_tokens:,} tokens in a request; send several requests")
        return samples


def _pairs(inputs: str | list[str | list[str]]) -> tuple[list[list[str]], bool]:
    """Return the texts or pairs of `/predict`, and whether it is a single one, not a batch.

    Raises:
        Refusal: an element is neither a text nor a pair.
    """
    if isinstance(inputs, str):
        return [[inputs]], True
    flat = [one for one in inputs if isinstance(one, str)]
    nested = [one for one in inputs if not isinstance(one, str)]
    if (flat and nested) or not inputs or len(flat) > 2 or not all(1 <= len(one) <= 2 for one in nested):
        raise invalid("inputs are a text, a pair [text, text], or a batch of them [[text], [text, text], ...]")
    return (nested, False) if nested else ([flat], True)


def _scored(prediction: Any, logits: np.ndarray, labels: Sequence[str], raw: bool) -> list[Scored]:
    """Return the labels of a prediction with probabilities, or the logits, the highest first."""
    if not labels:
        return [Scored(float(logits[0, 0]) if raw else prediction.score, SCORE)]
    values = logits[0].tolist() if raw else [prediction.scores[label] for label in labels]
    return sorted(map(Scored, values, labels), key=lambda one: -one.score)
