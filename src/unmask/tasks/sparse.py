"""Sparse vectors of texts over the vocabulary: SPLADE, on the masked-LM head.

Input: pairs of texts that belong together, a query and a document, maybe with negatives. Output: samples, the head with
its loss; the weights of tokens for texts, the products of these for pairs. The weight of a token is the maximum over
the text of log(1 + ReLU(logit)) (Formal et al. 2021, "SPLADE v2", equation 2). The head is the masked-LM head of the
model, in whose place it is stored, so that the directory is a `ForMaskedLM` of transformers, and a `SparseEncoder` of
sentence-transformers.

The loss is that of pair_head.py on products, whose temperature is 1 (`SparseMultipleNegativesRankingLoss`), and FLOPS:
the sum over tokens of the squared mean weight in a step (Paria et al. 2020, section 3), of queries and of documents,
negatives among them, each with a weight (`SpladeLoss`). The weights grow with the square of the time in the first third
of the run (Formal et al. 2021, section 3; `SpladeRegularizerWeightSchedulerCallback`). Held-out losses are without
FLOPS.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta
from torch import Tensor

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.tokens import Plan
from unmask.data.labelled.columns import MATCHES, Fields
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families.checkpoints.sentence_files import read_splade
from unmask.families.checkpoints.sentence_modules import write_splade
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec
from unmask.nn.layers.vocabulary import max_logits
from unmask.objectives.flops import head_flops, matrices
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext, Objective, Part, decoder_of
from unmask.support.messages import argument
from unmask.support.model_card import Card
from unmask.tasks.pair_head import PairHead, Sides, ranking_loss
from unmask.tasks.routes import Route, VectorsRequest
from unmask.tasks.rows import are_pairs, frame_rows
from unmask.tasks.task import Framed, HeadOrigin, ModelFiles, Reason, Refusals, Vectors
from unmask.tasks.text_pairs import PairTask, Similarity, check_outputs

OFFSETS = "offsets"
"""Name of the places where texts begin in the plan of a batch."""
WARMUP = "flops_warmup"
"""Name of the label: by how much the weights of FLOPS are multiplied."""
SHOWN = 10
"""Number of tokens of a text that are printed."""


class SparseVector(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text with the weights of tokens.

    Attributes:
        text: the text as given.
        weights: the tokens whose weight is above 0, the largest first.
        ids: their ids, in the same order.
        cut: whether the text was truncated because it exceeds the task's `length`.
    """

    text: str
    weights: dict[str, float]
    ids: tuple[int, ...]
    cut: bool = False


class SparseRequest(VectorsRequest):
    """Texts whose sparse vectors are wanted; see `VectorsRequest`."""


class SparseValue(msgspec.Struct):
    """A token of the vocabulary with its weight, as Text Embeddings Inference returns it."""

    index: int
    value: Annotated[float, Meta(ge=0)]


def _answer(
    task: Any, request: SparseRequest, predictions: list[SparseVector], outputs: np.ndarray | None
) -> list[list[SparseValue]]:
    return [
        [SparseValue(index, value) for index, value in zip(of.ids, of.weights.values(), strict=True)]
        for of in predictions
    ]


EMBED_SPARSE = Route(
    "/embed_sparse",
    "Return the weights of the tokens of the vocabulary for each text.",
    SparseRequest,
    list[list[SparseValue]],
    None,
    _answer,
    f"{argument('inputs')}: a text has characters that cannot be encoded",
    {"inputs": "What is deep learning?", "truncate": True},
)
"""The route of sparse encoders, with the shapes of Text Embeddings Inference."""


class Sparse(PairTask, frozen=True, kw_only=True, tag="sparse"):
    """The recipe's [task] for `kind = "sparse"`; see the module and `Task`.

    Attributes:
        length: maximum number of tokens of a text, special tokens included; longer texts are truncated.
        temperature: what products are divided by.
        query_flops, document_flops: the weight of FLOPS of first texts, and of second texts and negatives.
        flops_warmup: share of the run in which these weights grow from 0.
    """

    length: int = 256
    temperature: float = 1.0
    query_flops: float = 5e-5
    document_flops: float = 3e-5
    flops_warmup: float = 1 / 3

    part = "sparse"
    metric = "reciprocal_rank"
    card = Card(
        title="Sparse vectors of texts",
        pipeline="feature-extraction",
        library="sentence-transformers",
        tags=("sentence-transformers", "sparse-encoder", "sparse", "splade"),
    )
    fields = Fields(MATCHES, optional=True, negatives=True)
    head = HeadOrigin(weightless=True, adopts="masked_lm")
    route = EMBED_SPARSE
    refusals: ClassVar[Refusals] = {
        **PairTask.refusals,
        "export": Reason(
            "the weights of tokens are not exported", f"export the masked-LM head: {argument('head', 'masked_lm')}"
        ),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise ValueError("temperature must be above 0")
        if not (0 <= self.query_flops < math.inf and 0 <= self.document_flops < math.inf):
            raise ValueError("query_flops and document_flops must not be negative")
        if not 0 <= self.flops_warmup <= 1:
            raise ValueError("flops_warmup must be from 0 to 1")

    @property
    def vectors(self) -> Vectors:
        """See `Task`."""
        return Vectors(sparse=True)

    @classmethod
    def read_files(cls, files: ModelFiles, task: Sparse | None) -> tuple[Sparse, Mapping[str, Tensor]] | None:
        """See `Task`: those of a `SparseEncoder` of sentence-transformers."""
        longest = read_splade(files.directory) if task is None else None
        if longest is None or cls.head.adopts not in files.heads:
            return None
        return cls(length=min(longest, files.settings.positions)), {}

    def write_files(self, directory: Path, encoder: Encoder, head: Mapping[str, Tensor]) -> Collection[str]:
        """See `Task`: those of a `SparseEncoder` of sentence-transformers."""
        write_splade(directory, self.length, encoder.vocabulary)
        return ()

    def describe_model(self, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
        """See `Task`."""
        return {"embedding": {"pooling": "splade"}}

    def outputs(self, vocabulary: int) -> int:
        """See `Task`."""
        return vocabulary

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> Objective:
        """See `Task`; a body is needed: `build_on`."""
        raise NotImplementedError

    def build_on(self, body: Encoder, labels: Sequence[str]) -> SparseHead:
        """See `Task`."""
        return SparseHead(self, body)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: as `PairTask`, and single texts, whose predictions are their weights."""
        if not gold:
            check_outputs(examples, tokenizer.size, f"the weights of {tokenizer.size:,} tokens")
        if gold or are_pairs(examples):
            return super().frame(tokenizer, examples, labels, gold=gold)
        samples, cut, notes = frame_rows(tokenizer, examples, self.length, pairs=False)

        def read(logits: Sequence[np.ndarray]) -> list[SparseVector]:
            rows = zip(examples, logits, cut, strict=True)
            return [_vector(tokenizer, row.values["text"], weights[0], was_cut) for row, weights, was_cut in rows]

        return Framed(samples, read, notes, cut=cut)

    def line(self, prediction: Similarity | SparseVector) -> str:
        """See `Task`: the tokens with the largest weights."""
        if isinstance(prediction, Similarity):
            return super().line(prediction)
        weights = [f"{token} {weight:.2f}" for token, weight in list(prediction.weights.items())[:SHOWN]]
        more = len(prediction.weights) - len(weights)
        return "\t".join([prediction.text, *weights, *([f"and {more:,} more"] if more else [])])


def _vector(tokenizer: Tokenizer, text: str, weights: np.ndarray, was_cut: bool) -> SparseVector:
    """Return the weights of a text, (vocabulary,), as a prediction; rows that are no tokens have none."""
    ids = np.flatnonzero(weights[: tokenizer.size])
    ids = ids[np.argsort(-weights[ids], kind="stable")]
    named = dict(zip(tokenizer.tokens(ids), weights[ids].tolist(), strict=True))
    return SparseVector(text, named, tuple(ids.tolist()), was_cut)


class SparseHead(PairHead, MaskedLM):
    """The masked-LM head as a sparse encoder; see the module.

    Args:
        task: the settings.
        body: the body below it.
    """

    baseline, notes, decoding = Objective.baseline, Objective.notes, Objective.decoding  # type: ignore[assignment]

    def __init__(self, task: Sparse, body: Encoder) -> None:
        MaskedLM.__init__(self, BuildContext(body))
        self.task = task

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`; the weights of FLOPS depend on when a sample is read."""
        warmup = self.task.flops_warmup
        share = min(1.0, sample.done / warmup) if warmup else float(sample.done > 0)
        labels = {WARMUP: np.full(max(1, len(sample.parts)), share**2, np.float32)}
        return super().prepare(sample, name).add(labels=labels)

    def plan(self, batch: Batch) -> Batch:
        """See `Objective`; keeps on the host where texts begin."""
        tokens = batch.tokens
        plan = (tokens.plan or Plan()) | Plan(sizes={OFFSETS: tuple(tokens.offsets.tolist())})
        return replace(batch, tokens=replace(tokens, plan=plan))

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`: all tokens."""
        return None

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the weights of all tokens of the vocabulary, (sequences, vocabulary) float32."""
        rows, decoder, bias = self.project(encoder, encoded.last)
        plan = batch.tokens.plan
        offsets = plan.sizes[OFFSETS] if plan is not None and OFFSETS in plan.sizes else batch.tokens.offsets.tolist()
        return max_logits(rows, decoder, bias, offsets).relu().log1p()

    def loss(self, sides: Sides) -> Part:
        """See `PairHead`; FLOPS is multiplied by the number of pairs, whose mean is minimized."""
        documents = sides.documents
        part = ranking_loss(sides.first @ documents.T, sides.texts, self.task.temperature, taught=sides.taught)
        flops = [vectors.mean(0).square().sum() for vectors in (sides.first, documents)]
        weighted = self.task.query_flops * flops[0] + self.task.document_flops * flops[1]
        active = {
            f"{name}_tokens": (vectors.detach() > 0).sum() * len(sides.first) / len(vectors)
            for name, vectors in (("query", sides.first), ("document", documents))
        }
        return Part(part.sum + len(sides.first) * sides.targets[WARMUP][0] * weighted, {**part.metrics, **active})


@head_flops.register
def _(head: SparseHead, encoder: Encoder, batch: Batch) -> int:
    """All tokens are projected to the vocabulary."""
    decoder = decoder_of(encoder).numel() if head.tied else 0
    return 2 * len(batch.tokens.ids) * (matrices(head) + decoder)
