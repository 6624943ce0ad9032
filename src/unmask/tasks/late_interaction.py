"""Vectors of tokens, trained on pairs: late interaction (ColBERT).

Input: pairs of texts that belong together, a query and a document, maybe with negatives. Output: samples, the head with
its loss; the vectors of the tokens of texts, and how similar pairs are by MaxSim (nn/layers/vocabulary.py).

Khattab and Zaharia 2020, section 3.2: a token tells queries from documents; queries are filled up with [MASK], whose
vectors count too; dense layers project each vector to few numbers, and it is normalized; those of punctuation in
documents are left out. As in ColBERT and PyLate, no token attends to these [MASK], unless `attend` is set.

The loss is that of pair_head.py on MaxSim, whose temperature is 1, with the negatives of the step (`Contrastive` of
PyLate, `MultiVectorMultipleNegativesRankingLoss` of sentence-transformers). checkpoints/colbert.py has the files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import GROUP, UNSEEN, Batch, Sample
from unmask.data.batches.tokens import Plan
from unmask.data.labelled.columns import MATCHES, Fields
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families.checkpoints.colbert import Interaction, read_interaction, write_interaction
from unmask.nn.encoders.encoder import UNSEEN_TOKENS, Encoded, Encoder, HeadSpec
from unmask.nn.encoders.pooled import Dense, DenseLayers, unit_vectors
from unmask.nn.layers.vocabulary import max_sim, select
from unmask.objectives.flops import head_flops, matrices
from unmask.objectives.objective import Part
from unmask.support.choices import PromptName
from unmask.support.errors import UserError
from unmask.support.messages import setting
from unmask.support.model_card import Card
from unmask.support.transfer import to_device
from unmask.tasks.pair_head import TEACHER, TEXT, PairHead, Taught, ranking_loss
from unmask.tasks.rows import FramedRows, are_pairs, frame_rows, texts_of
from unmask.tasks.task import Framed, HeadOrigin, ModelFiles, Reason, Refusals, Training, Vectors
from unmask.tasks.text_pairs import PairTask, Similarity, check_outputs
from unmask.tasks.token_vectors import VECTORS, Compare

DEFAULT = Interaction()


class TokenVectors(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, read as a document, with the vectors of its tokens.

    Attributes:
        text: the text as given.
        tokens: the tokens that have a vector, in order.
        vectors: their vectors, of norm 1.
        cut: whether the text was truncated because it exceeds the task's `length`.
    """

    text: str
    tokens: list[str]
    vectors: list[list[float]]
    cut: bool = False


class LateInteraction(PairTask, frozen=True, kw_only=True, tag="late-interaction"):
    """The recipe's [task] for `kind = "late-interaction"`; see the module, `Task` and `Interaction`.

    Attributes:
        length: maximum number of tokens of a document, special tokens and prompt included.
        query_length: that of a query.
        query_prompt, document_prompt: what queries and documents begin with: a token, in brackets, that is added to the
            vocabulary if it lacks it, or a text; empty: nothing.
        expand: whether queries are filled up to `query_length` with [MASK].
        attend: whether tokens attend to these.
        skiplist: tokens of documents whose vectors are left out.
        dense: dense layers over the vector of a token.
        temperature: what similarities are divided by in the loss.
    """

    length: int = DEFAULT.length
    query_length: int = DEFAULT.query_length
    query_prompt: str = DEFAULT.query_prompt
    document_prompt: str = DEFAULT.document_prompt
    expand: bool = DEFAULT.expand
    attend: bool = DEFAULT.attend
    skiplist: tuple[str, ...] = DEFAULT.skiplist
    dense: tuple[Dense, ...] = DEFAULT.dense
    temperature: float = 1.0

    part = "late_interaction"
    metric = "reciprocal_rank"
    card = Card(
        title="Vectors of tokens",
        pipeline="sentence-similarity",
        library="PyLate",
        tags=("PyLate", "ColBERT", "sentence-transformers", "late-interaction", "feature-extraction"),
        usage={"texts": "A text.", "text_b": "Another text."},
    )
    fields = Fields(MATCHES, optional=True, negatives=True)
    head = HeadOrigin(weightless=True)
    training = Training(inherited=Interaction.__struct_fields__)
    route = Reason("its vectors are served by /embed_all", "ask for these")
    refusals: ClassVar[Refusals] = {
        **PairTask.refusals,
        "export": Reason("the vectors of tokens are not exported", "use the model itself"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.interaction  # which checks them
        if not 0 < self.temperature < math.inf:
            raise ValueError("temperature must be above 0")

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return self.dense[-1].width

    @property
    def vectors(self) -> Vectors:
        """See `Task`."""
        return Vectors(tokens=self)

    @classmethod
    def read_files(
        cls, files: ModelFiles, task: LateInteraction | None
    ) -> tuple[LateInteraction, Mapping[str, Tensor]] | None:
        """See `Task`: those of PyLate, of a `MultiVectorEncoder` of sentence-transformers, or of ColBERT."""
        found = read_interaction(files.directory, files.tokenizer, files.settings.width)
        if found is None and task is not None:
            raise UserError("the dense layers over the vectors of tokens are missing", file=files.directory)
        if found is None:
            return None
        stated = {name: getattr(found[0], name) for name in cls.training.inherited}
        lengths = {name: min(stated[name], files.settings.positions) for name in ("length", "query_length")}
        return msgspec.structs.replace(task or cls(), **stated | lengths), found[1]

    def write_files(self, directory: Path, encoder: Encoder, head: Mapping[str, Tensor]) -> Collection[str]:
        """See `Task`: those of PyLate, with the dense layers, which are all the weights of the head."""
        write_interaction(directory, self.interaction, head)
        return head.keys()

    @property
    def interaction(self) -> Interaction:
        """How texts become vectors of tokens."""
        return Interaction(**{name: getattr(self, name) for name in Interaction.__struct_fields__})

    def new_tokens(self, tokenizer: Tokenizer) -> Sequence[str]:
        """See `Task`."""
        prompts = dict.fromkeys((self.query_prompt, self.document_prompt))
        return [prompt for prompt in prompts if _in_brackets(prompt) and _marker(tokenizer, prompt) is None]

    def outputs(self, vocabulary: int) -> int:
        """See `Task`; the numbers of a vector become objects of Python, which are several times as large."""
        return 8 * self.length * self.width

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> LateHead:
        """See `Task`."""
        return LateHead(self, spec)

    def build_on(self, body: Encoder, labels: Sequence[str]) -> LateHead:
        """See `Task`."""
        if self.expand and (body.head.summary != "first" or not (self.attend or UNSEEN_TOKENS in body.provides)):
            can = body.head.summary == "first"
            raise UserError(
                f"this encoder cannot read queries that are filled up with [MASK]{' which no token attends to' * can}",
                remedy=f"pass {setting('task.attend', True) if can else setting('task.expand', False)}",
            )
        if self.query_length > body.longest:
            raise UserError(f"task.query_length is {self.query_length}, but the model has {body.longest} positions")
        return self.build(body.head, labels)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: as `PairTask`, and single texts, whose predictions are the vectors of documents."""
        if not gold:
            check_outputs(examples, self.length * self.width, "the vectors of the tokens")
        if gold or are_pairs(examples):
            return super().frame(tokenizer, examples, labels, gold=gold)
        samples, cut, notes = self.frame_texts(tokenizer, examples, "document")

        def read(logits: Sequence[np.ndarray]) -> list[TokenVectors]:
            return [
                TokenVectors(
                    row.values["text"],
                    tokenizer.tokens(sample.ids[sample.positions[VECTORS]]),
                    vectors.tolist(),
                    was_cut,
                )
                for row, sample, vectors, was_cut in zip(examples, samples, logits, cut, strict=True)
            ]

        return Framed(samples, read, notes, cut=cut)

    def frame_sides(self, tokenizer: Tokenizer, rows: Sequence[Row]) -> FramedRows:
        """See `PairTask`: first texts are queries."""
        sizes = [len(texts_of(row)) for row in rows]
        texts = [Row({"text": text}, row.file, row.line) for row in rows for text in texts_of(row)]
        first = np.isin(np.arange(len(texts)), [0, *accumulate(sizes)][:-1])  # (texts,)
        made = []
        for is_query, name in ((True, "query"), (False, "document")):
            chosen = [text for text, one in zip(texts, first, strict=True) if one == is_query]
            made.append(self.frame_texts(tokenizer, chosen, name))  # type: ignore[arg-type]
        sides = [iter(zip(of.samples, of.cut, strict=True)) for of in made]
        framed = [next(sides[0] if one else sides[1]) for one in first]
        samples = [sample.named((0, number)) for number, (sample, _) in enumerate(framed)]
        return FramedRows(samples, [cut for _, cut in framed], tuple(chain(*(of.notes for of in made))))

    def frame_texts(self, tokenizer: Tokenizer, rows: Sequence[Row], name: PromptName) -> FramedRows:
        """Return texts, all queries or all documents, as samples whose tokens at `VECTORS` have a vector."""
        is_query = name == "query"
        prompt, length = (self.query_prompt, self.query_length) if is_query else (self.document_prompt, self.length)
        marker = _marker(tokenizer, prompt)
        if marker is None and prompt:
            rows = [Row({"text": prompt + row.values["text"]}, row.file, row.line) for row in rows]
        samples, cut, notes = frame_rows(tokenizer, rows, length, pairs=False, begin=marker)
        if is_query:
            return FramedRows([self._expanded(sample, tokenizer.mask) for sample in samples], cut, notes)
        has_vector = np.ones(tokenizer.size, bool)
        has_vector[[id for token in self.skiplist if (id := tokenizer.find(token)) is not None]] = False
        made = [_positioned(sample, np.flatnonzero(has_vector[sample.ids])) for sample in samples]
        return FramedRows(made, cut, notes)

    def _expanded(self, sample: Sample, mask: int) -> Sample:
        """Return a query that is filled up with [MASK], if it is to be."""
        size, added = len(sample), max(0, self.query_length - len(sample)) if self.expand else 0
        if not added:
            return _positioned(sample, np.arange(size))
        return _positioned(
            sample.changed(
                ids=np.concatenate([sample.ids, np.full(added, mask, sample.ids.dtype)]),
                segments=None if sample.segments is None else np.pad(sample.segments, (0, added)),
            ),
            np.arange(size + added),
            np.arange(size + self.attend * added, size + added),
        )

    def comparison(self, outputs: Sequence[np.ndarray]) -> Compare:
        """See `PairTask`; the outputs are the vectors of the tokens of each text, (tokens, width)."""
        vectors, sizes = torch.from_numpy(np.concatenate(outputs)), [*map(len, outputs)]

        def compare(firsts: np.ndarray, others: np.ndarray) -> np.ndarray:
            with torch.inference_mode():
                table: np.ndarray = max_sim(*select(vectors, sizes, firsts), *select(vectors, sizes, others)).numpy()
            return table

        return compare

    def line(self, prediction: Similarity | TokenVectors) -> str:
        """See `Task`: how many vectors a text has."""
        if isinstance(prediction, Similarity):
            return super().line(prediction)
        return f"{prediction.text}\t{len(prediction.vectors)} vectors of {self.width} numbers"


def _in_brackets(prompt: str) -> bool:
    """Return whether a prompt is meant as a token, such as "[Q] "."""
    word = prompt.strip()
    return word.startswith("[") and word.endswith("]") and len(word.split()) == 1


def _marker(tokenizer: Tokenizer, prompt: str) -> int | None:
    """Return the id of the token that a prompt is, maybe with a space after it; None: it is no token."""
    found = tokenizer.find(prompt)
    return tokenizer.find(prompt.strip()) if found is None else found


def _positioned(sample: Sample, vectors: np.ndarray, unseen: np.ndarray | None = None) -> Sample:
    """Return a sample with the positions of its vectors, and of the tokens that no token attends to."""
    return sample.add(positions={VECTORS: vectors, UNSEEN: np.zeros(0, np.int64) if unseen is None else unseen})


class LateHead(PairHead):
    """Dense layers over the vectors of tokens, and normalization, with the loss of pairs.

    Args:
        task: the settings.
        spec: the properties of the body.
    """

    at = VECTORS

    def __init__(self, task: LateInteraction, spec: HeadSpec) -> None:
        super().__init__()
        self.task, self.dense = task, DenseLayers.new(task.dense, spec)

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return batch.positions[VECTORS]

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the normalized vectors, (vectors, width) float32."""
        return unit_vectors(self.dense(encoded.last.index_select(0, batch.positions[VECTORS])).float())

    def plan(self, batch: Batch) -> Batch:
        """See `Objective`; finds how many vectors each text has, and its pair."""
        plan = (batch.tokens.plan or Plan()) | _plan(batch)
        return replace(batch, tokens=replace(batch.tokens, plan=plan))

    def compare(self, outputs: Tensor, batches: Sequence[Batch]) -> Part:
        """See `Objective`."""
        known = [
            plan.sizes if (plan := batch.tokens.plan) and VECTORS in plan.sizes else _plan(batch).sizes
            for batch in batches
        ]
        sides = [[key[-1] for key in batch.keys] for batch in batches]
        before = [0, *accumulate(of.count(0) for of in sides)]  # pairs of the batches before
        pair = [number + start for of, start in zip(known, before, strict=False) for number in of[GROUP]]
        # first, second and negative texts, by pairs, as `Sides`
        order = np.lexsort((np.array(pair), np.minimum([*chain(*sides)], 2)))
        sizes, pairs = [*chain(*(of[VECTORS] for of in known))], before[-1]
        queries, documents = (select(outputs, sizes, chosen) for chosen in (order[:pairs], order[pairs:]))
        place, taught = to_device(torch.from_numpy(order), outputs.device), None
        if TEACHER in batches[0].labels:
            owners = to_device(torch.from_numpy(np.array(pair)[order[pairs:]]), outputs.device)
            taught = Taught(owners, _joined(batches, TEACHER).index_select(0, place[pairs:]))
        texts = _joined(batches, TEXT).index_select(0, place).tensor_split([pairs, 2 * pairs])
        return ranking_loss(max_sim(*queries, *documents), texts, self.task.temperature, taught=taught)


def _joined(batches: Sequence[Batch], name: str) -> Tensor:
    return torch.cat([batch.labels[name] for batch in batches])


def _plan(batch: Batch) -> Plan:
    """Return how many vectors each sequence has (`VECTORS`), and the number of its pair (`GROUP`)."""
    ends = batch.tokens.offsets[1:].long()
    owners = torch.bucketize(batch.positions[VECTORS], ends, right=True)
    sizes = torch.bincount(owners, minlength=len(ends))
    return Plan(sizes={VECTORS: tuple(sizes.tolist()), GROUP: tuple(batch.labels[GROUP].tolist())})


@head_flops.register
def _(head: LateHead, encoder: Encoder, batch: Batch) -> int:
    """The dense layers; the comparisons are few operations beside those of the body."""
    return 2 * len(batch.positions[VECTORS]) * matrices(head)
