"""How probable the tokens of texts are to a language model.

Input: texts, as token ids. Output: the natural logarithm of the probability of each token; special tokens around a text
are read, but not scored. What it is given depends on the head:

- masked_lm: all other tokens, each token being masked in turn: the pseudo-log-likelihood of Salazar et al. 2020. It is
  not a probability of the text. With "word-l2r" the rest of the word to the right of a token is masked, too, because it
  gives the token away (PLL-word-l2r of Kauf and Ivanova 2023); words are those of the tokenizer, as in minicons
  (`PLL_metric="within_word_l2r"`).
- causal_lm: the tokens before it, and [CLS], with which every text begins. If [CLS] has no trained weights, as in
  published GPTs, a first token has the probability 1 / vocabulary; minicons and transformers leave it out.
- permutation_lm: the tokens before it, as XLNet's factorization order is from left to right. [SEP] and [CLS] come last:
  where they are would tell how long the text is.
- bidirectional_lm: the mean of the two logarithms that ELMo's language models give, with the words before it and with
  those after it: half of the objective of Peters et al. 2018, section 3.1.

Only what is predicted is projected to the vocabulary, all of whose rows are in the softmax, as in the loss of
pretraining.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
import torch

from unmask.data.batches.batch import TARGETS, Batch, Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import MASKED
from unmask.data.batches.tokens import Reading
from unmask.inference.backend import BATCH_TOKENS, TorchBackend, in_order, run_in_batches
from unmask.model.model import Model
from unmask.nn.encoders.encoder import Keep
from unmask.nn.layers.vocabulary import log_probabilities
from unmask.objectives.bidirectional_lm import BidirectionalLM
from unmask.objectives.objective import Decoding
from unmask.support.capabilities import cpu_or_gpu
from unmask.support.choices import PllKind
from unmask.support.errors import UserError, refuse_idle
from unmask.training.runs.display import Display

HEADS = ("masked_lm", "causal_lm", "permutation_lm", "bidirectional_lm")
"""Heads of language models."""
BLOCK = 1 << 16
"""Number of tokens that are read before the progress is shown."""
GOLD = "gold"
"""Name of the labels: the tokens whose probability is computed."""


class TokenizedText(NamedTuple):
    """A text: the ids of its tokens, (tokens,), and the index of the word of each, (tokens,)."""

    ids: np.ndarray
    words: np.ndarray


class Likelihood:
    """Scores texts by the language model of a backend; see the module.

    Args:
        backend: computes the outputs.
        pll: what a masked language model does not see when it predicts a token; None: "original".

    Attributes:
        head: the head by which texts are scored; see `HEADS`.
        capacity: maximum number of tokens of a text.
        starts: whether something precedes the first token of a text, from which it is predicted.

    Raises:
        UserError: the model has no such head, its [MASK] has no trained weights, or `pll` has no effect.
    """

    def __init__(self, backend: TorchBackend, pll: PllKind | None = None) -> None:
        model = backend.model
        self.head = lm_head(model)
        if self.head == "masked_lm" and model.new_tokens:
            raise UserError("the model has no trained weights of its special tokens, such as [MASK]")
        if self.head != "masked_lm":
            refuse_idle(": the model is no masked language model", pll=pll)
        self.tokenizer = model.tokenizer
        self.by_word = pll == "word-l2r"
        self.starts = self.head != "causal_lm" or not model.new_tokens
        self.frame = Frame.of(model.tokenizer)
        self.capacity = self.frame.capacity(model.encoder.longest, 1)
        self._device = backend.machine.device
        self._learner = backend.learner(self.head)

    @property
    def description(self) -> str:
        """What the scores are."""
        if self.head == "masked_lm":
            return f"pseudo-log-likelihood, {'PLL-word-l2r' if self.by_word else 'PLL-original'}"
        if self.head == "causal_lm":
            return "log-likelihood" + ("" if self.starts else "; first tokens count as drawn uniformly")
        return "log-likelihood from left to right" if self.head == "permutation_lm" else "mean of both directions"

    def encode(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Return the tokens of texts."""
        return [TokenizedText(*encoded) for encoded in self.tokenizer.encode_words(texts)]

    def work(self, text: TokenizedText) -> int:
        """Return how many tokens the model reads to score a text."""
        return len(text.ids) * (len(text.ids) + 2 if self.head == "masked_lm" else 1)

    def is_unknown(self, ids: np.ndarray) -> np.ndarray:
        """Return whether tokens stand for text that the model cannot predict, (tokens,) bool.

        Args:
            ids: token ids, (tokens,).
        """
        objective = self._learner.parts[self.head]
        if isinstance(objective, BidirectionalLM):  # its last row stands for all rarer words
            return np.asarray(ids >= len(objective.decoder) - 1)
        return np.asarray(ids == self.tokenizer.unk)

    def in_blocks(self, texts: Sequence[TokenizedText], display: Display) -> Iterator[np.ndarray]:
        """Yield what a call returns for each text, and show the progress."""
        ends = np.cumsum([self.work(text) for text in texts]) // BLOCK
        blocks = [list(block) for _, block in groupby(range(len(texts)), key=ends.__getitem__)]
        for block in display.count(blocks, lambda block: sum(self.work(texts[index]) for index in block)):
            yield from self([texts[index] for index in block])

    def __call__(self, texts: Sequence[TokenizedText]) -> list[np.ndarray]:
        """Return the log-probabilities of the tokens of each text, (tokens,) float64 each.

        Raises:
            UserError: one is not a number.
        """
        at, tokens = self._learner.parts[self.head].at, BATCH_TOKENS[cpu_or_gpu(self._device)]
        framed = [self._samples(text) for text in texts]
        samples = list(chain.from_iterable(framed))
        rows = iter(in_order(run_in_batches(samples, self._compute, at, tokens, Display(quiet=True))))
        return [
            self._joined([next(rows).astype(np.float64) for _ in text_samples], len(text.ids))
            for text, text_samples in zip(texts, framed, strict=True)
        ]

    def _samples(self, text: TokenizedText) -> list[Sample]:
        """Return what the model reads to score a text."""
        ids = text.ids.astype(np.int64)
        if self.head == "masked_lm":
            return masked_copies(self.frame, text, self.tokenizer.mask, by_word=self.by_word)
        if self.head == "bidirectional_lm":
            return [directed(self.frame, ids, backward=False), directed(self.frame, ids, backward=True)]
        sample, index = self.frame.wrap(ids), np.arange(len(ids))
        if self.head == "permutation_lm":
            return [
                sample.changed(reading=Reading(order=np.arange(len(sample)))).add(
                    positions={TARGETS: index}, labels={GOLD: ids}
                )
            ]
        if self.starts:
            return [sample.add(positions={"next": index}, labels={GOLD: ids})]
        assert sample.segments is not None
        bare = sample.changed(ids=sample.ids[1:-1], segments=sample.segments[1:-1], positions={})
        return [bare.add(positions={"next": index[:-1]}, labels={GOLD: ids[1:]})]

    def _joined(self, rows: Sequence[np.ndarray], length: int) -> np.ndarray:
        """Return the log-probabilities of the tokens of a text, given those of its samples."""
        if self.head == "bidirectional_lm":
            forward, backward = rows
            return np.asarray((forward + backward[::-1]) / 2)
        first = [] if self.starts or not length else [np.array([-math.log(self.tokenizer.size)])]
        return np.concatenate([np.zeros(0), *first, *rows])

    def _compute(self, batch: Batch) -> np.ndarray:
        """Return the log-probabilities of the gold tokens of a batch, (targets,) float32."""
        encoder, objective = self._learner.encoder, self._learner.parts[self.head]
        with torch.inference_mode():
            batch = batch.to(self._device)
            encoded = encoder(batch.tokens, Keep(rows=objective.reads(encoder, batch)))
            gold = batch.labels[GOLD]
            if isinstance(objective, BidirectionalLM):
                rows = encoded.last.index_select(0, batch.positions[objective.at])
                decoding = Decoding(rows, objective.decoder, objective.bias)
                gold = gold.clamp(max=len(objective.decoder) - 1)
            else:
                factors = objective.decoding(encoder, encoded, batch)
                assert factors is not None, "the head is over the vocabulary"
                decoding = factors
            return log_probabilities(*decoding, gold).cpu().numpy()


def lm_head(model: Model) -> str:
    """Return the head by which a model is a language model.

    Raises:
        UserError: it has none.
    """
    if "replaced_token" in model.heads:  # a masked-LM head beside it is from an earlier stage
        raise UserError(
            "the model is the discriminator of ELECTRA: it tells replaced tokens, and gives no token a probability",
            remedy="use its generator, if that was published, or another language model",
        )
    if head := next((name for name in HEADS if name in model.heads), None):
        return head
    remedy = "use a pretrained model with the head that it was pretrained with"
    if model.task is not None:
        raise UserError("the model is fine-tuned, and has no head of a language model", remedy=remedy)
    raise UserError("the model has no head of a language model", remedy=remedy)


def masked_copies(frame: Frame, text: TokenizedText, mask: int, *, by_word: bool) -> list[Sample]:
    """Return a copy of a text for each of its tokens, in which this token is masked.

    Args:
        frame: the special tokens around it.
        text: the text.
        mask: id of [MASK].
        by_word: whether the tokens of the same word to the right of it are masked, too.
    """
    sample, copies = frame.wrap(text.ids), []
    for index, id in enumerate(text.ids.tolist()):
        ids, end = sample.ids.copy(), index + 1
        while by_word and end < len(text.words) and text.words[end] == text.words[index]:
            end += 1
        ids[frame.start + index : frame.start + end] = mask
        at = np.array([frame.start + index])
        copies.append(sample.add(ids=ids, positions={MASKED: at}, labels={GOLD: np.array([id])}))
    return copies


def directed(frame: Frame, ids: np.ndarray, *, backward: bool) -> Sample:
    """Return words as a language model of one direction reads them, each predicted from those read before it.

    Args:
        frame: the special tokens.
        ids: the words, (words,).
        backward: whether the last word is read first.
    """
    words, first = (ids[::-1], frame.sep) if backward else (ids, frame.cls)
    return Sample(
        key=(),
        ids=frame.spell(np.concatenate([[first], words[:-1]])),
        positions={BidirectionalLM.at: np.arange(len(words))},
        labels={GOLD: words.astype(np.int64)},
        reading=Reading(backward=backward),
    )
