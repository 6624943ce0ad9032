"""Bidirectional language modeling: predict each word from those before it, and from those after it (ELMo).

Input: streams of sentences in both directions. Output: a part of the loss with one term per token, the mean of the
losses of both directions.

Peters et al. 2018, arXiv 1802.05365, section 3.1; bilm-tf, `bilm/training.py`. Both directions share the softmax, whose
rows are the most frequent words; the last one stands for all rarer words, too, and so for unknown ones. With `samples`,
training computes a sampled softmax: words drawn log-uniformly by their rank compete with the right one, their logits
reduced by the logarithm of how often they are expected (TensorFlow's `sampled_softmax_loss`). Different from there,
words are drawn with replacement, anew in each step, and counted once. Evaluation is by the full softmax.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.masking import WHOLE_TEXT
from unmask.data.batches.paired_streams import DIRECTIONS
from unmask.data.batches.rng import derive_rng
from unmask.nn.encoders.encoder import TWO_LMS, Encoded, Encoder
from unmask.nn.layers.vocabulary import vocabulary_loss
from unmask.objectives.objective import BuildContext, Objective, ObjectiveSettings, Part, accuracy_of, most_frequent
from unmask.support.capabilities import widest_float
from unmask.support.transfer import to_device


class BidirectionalLMSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.bidirectional_lm].

    Attributes:
        vocabulary: number of words that are predicted, the most frequent of the tokenizer's; None: all of them.
        samples: number of words that are drawn for the softmax in training; 0: it is computed in full.
    """

    vocabulary: int | None = None
    samples: int = 0

    requires = frozenset({WHOLE_TEXT, DIRECTIONS, TWO_LMS})

    def __post_init__(self) -> None:
        if self.vocabulary is not None and self.vocabulary < 2:
            raise ValueError("vocabulary must be at least 2")
        if self.samples < 0:
            raise ValueError("samples must not be negative")

    def build(self, context: BuildContext) -> BidirectionalLM:
        """See `ObjectiveSettings`."""
        words = min(self.vocabulary or context.num_tokens, context.num_tokens)
        return BidirectionalLM(context.body.width // 2, words, self.samples)

    @classmethod
    def of_head(cls, tensors: Mapping[str, Tensor], width: int) -> BidirectionalLMSettings:
        """See `ObjectiveSettings`."""
        return cls(vocabulary=len(tensors["decoder"]))


class BidirectionalLM(Objective):
    """See the module.

    Args:
        width: width of the states of one direction.
        vocabulary: number of words that are predicted.
        samples: see `BidirectionalLMSettings`.
    """

    at = "preceding"

    def __init__(self, width: int, vocabulary: int, samples: int = 0) -> None:
        super().__init__()
        self.samples = samples
        self.decoder = nn.Parameter(torch.empty(vocabulary, width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.decoder, std=width**-0.5)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`."""
        return sample.add(positions={self.at: np.arange(len(sample))}, counts={name: len(sample)})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return logits over the words for what follows each token in its direction, (tokens, words)."""
        return linear(encoded.last.index_select(0, batch.positions[self.at]), self.decoder, self.bias)

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`; the metrics "forward" and "backward" are the losses of the directions."""
        assert batch.tokens.reading.backward is not None, "the layout gives each sequence a direction"
        at, border = batch.positions[self.at], batch.tokens.border  # every token is read
        rows = encoded.last.index_select(0, at)
        gold = batch.labels["following"].clamp(max=len(self.decoder) - 1)
        score = self._full
        if self.samples and self.training:
            score = partial(self._sampled, to_device(self._draw(batch), gold.device))
        forward, right = score(rows[:border], gold[:border])
        other, also_right = score(rows[border:], gold[border:])
        metrics = {"accuracy": right + also_right, "forward": 2 * forward.detach(), "backward": 2 * other.detach()}
        return Part(forward + other, metrics)

    def _full(self, rows: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
        return vocabulary_loss(rows, self.decoder, self.bias, gold)

    def _sampled(self, drawn: Tensor, rows: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss over the right words and the drawn ones, and how often the right one has the highest logit.

        Shape:
            drawn: (words,) distinct; rows: (tokens, width); gold: (tokens,).
        """
        gold_logits = (rows * self.decoder[gold]).sum(1) + self.bias[gold]  # (tokens,)
        others = linear(rows, self.decoder[drawn], self.bias[drawn])  # (tokens, words)
        others = others.masked_fill(drawn == gold[:, None], -math.inf)
        right = gold_logits.float() - self._log_expected(gold)
        logits = torch.cat([right[:, None], others.float() - self._log_expected(drawn)], 1)
        loss = (logits.logsumexp(1) - right).sum()
        return loss, (gold_logits >= others.amax(1)).sum()

    def _log_expected(self, words: Tensor) -> Tensor:
        """Return the logarithm of how often words are among those drawn, counted once."""
        ranks = words.to(widest_float(words.device))
        shares = (1 / (ranks + 1)).log1p() / math.log(len(self.decoder) + 1)
        return (-(self.samples * (-shares).log1p()).expm1()).log().float()

    def _draw(self, batch: Batch) -> Tensor:
        """Return words drawn for a step, (words,): the same in all its micro-batches and processes."""
        epoch, window, _ = batch.keys[0]
        uniform = torch.from_numpy(derive_rng(0, "sampled softmax", epoch, window).random(self.samples))
        ranks = (uniform * math.log(len(self.decoder) + 1)).expm1().long()
        return ranks.clamp_(0, len(self.decoder) - 1).unique()  # type: ignore[no-untyped-call]

    def baseline(self, name: str, batches: Sequence[Batch], token: int) -> Mapping[str, float]:
        """See `Objective`."""
        return accuracy_of(token, name, "following", batches)

    def derived(self, name: str, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """See `Objective`; the perplexities of both directions."""
        return {f"{name}_{each}_perplexity": math.exp(metrics[f"{name}_{each}"]) for each in ("forward", "backward")}

    def notes(self, name: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> Sequence[str]:
        """See `Objective`."""
        forward, backward = self.derived(name, metrics).values()
        share = baseline.get(f"{name}_accuracy")
        return [f"Perplexity: {forward:,.1f} forwards, {backward:,.1f} backwards.", *most_frequent(name, share)]
