"""Our counts of floating-point operations equal those that torch counts in transformers' BERT and ModernBERT.

Transformers' model runs on each sequence alone, so that nothing is padded, and on the meta device, so that nothing is
computed. Its last layer computes all tokens, ours after the attention only those that are read.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    BertConfig,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForTokenClassification,
)

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.bert import BertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.objectives.flops import body_flops, forward_flops
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.next_sentence import NextSentence
from unmask.objectives.objective import BuildContext
from unmask.tasks.classification import ClassificationHead
from unmask.tasks.token_classification import TokenClassificationHead
from unmask.training import loop

SETTINGS = BertSettings(layers=3, width=48, heads=4, feed_forward=80, positions=128)
THEIRS = {
    "num_hidden_layers": 3,
    "hidden_size": 48,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "vocab_size": 700,
    "num_labels": 3,
    "attn_implementation": "eager",
}
LENGTHS = (1, 5, 17, 17, 90)


def batch(**counts):
    """Return a batch prepared for the objectives in `counts`."""
    rng, frame = np.random.default_rng(0), Frame(cls=2, sep=3)
    samples = []
    for length in LENGTHS:
        sample = frame.wrap(rng.integers(5, 700, length))
        masked = np.arange(length // 3)
        samples.append(
            sample.add(
                positions={"masked": masked, "every": np.arange(len(sample))}, labels={"masked": masked}, counts=counts
            )
        )
    return collate(samples)


def counted(run):
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def unread(read, *weights):
    """Return the operations of the last layer's weights for the tokens that are not read."""
    return 2 * (sum(LENGTHS) + 2 * len(LENGTHS) - read) * sum(weights)


def test_pretraining():
    with torch.device("meta"):
        context = BuildContext(SETTINGS.build(700))
        learner = Learner(context.body, {"mlm": MaskedLM(context), "nsp": NextSentence(context)})
        theirs = BertForPreTraining(BertConfig(**THEIRS))
        rows = torch.empty(len(batch().positions["masked"]), 48)
    ours = forward_flops(learner, batch(mlm=1, nsp=1))

    def forward():
        for length in LENGTHS:
            pooled = theirs.bert(torch.zeros(1, length + 2, dtype=torch.int64)).pooler_output
            theirs.cls.seq_relationship(pooled)
        theirs.cls.predictions(rows)

    positions = batch().positions
    read = len(set(positions["masked"].tolist()) | set(positions["summary"].tolist()))
    assert ours == counted(forward) - unread(read, 48 * 48, 2 * 48 * 80)
    assert body_flops(learner.encoder, batch().tokens) > 0.5 * ours


def test_classification():
    with torch.device("meta"):
        learner = Learner(SETTINGS.build(700), {"classification": ClassificationHead(SETTINGS.head, 3)})
        theirs = BertForSequenceClassification(BertConfig(**THEIRS))
    found = counted(lambda: [theirs(torch.zeros(1, length + 2, dtype=torch.int64)) for length in LENGTHS])
    assert forward_flops(learner, batch(classification=1)) == found - unread(len(LENGTHS), 48 * 48, 2 * 48 * 80)


def test_modernbert():
    """Distances are within the window, as transformers also computes the scores that it masks."""
    settings = ModernBertSettings(layers=3, width=48, heads=4, feed_forward=80, window=100)
    theirs = ModernBertConfig(**THEIRS, pad_token_id=0)
    with torch.device("meta"):
        context = BuildContext(settings.build(700))
        pretraining = Learner(context.body, {"mlm": MaskedLM(context)})
        tagging = Learner(context.body, {"tags": TokenClassificationHead(settings.head, 3)})
        rows = torch.empty(len(batch().positions["masked"]), 48)
        model, tagger = ModernBertForMaskedLM(theirs), ModernBertForTokenClassification(theirs)

    def forward():
        for length in LENGTHS:
            model.model(torch.zeros(1, length + 2, dtype=torch.int64))
        model.decoder(model.head(rows))

    assert forward_flops(pretraining, batch(mlm=1)) == counted(forward) - unread(len(rows), 48 * 48, 3 * 48 * 80)
    every = replace(batch(tags=1), positions={"first": torch.arange(sum(LENGTHS) + 2 * len(LENGTHS))})
    found = counted(lambda: [tagger(torch.zeros(1, length + 2, dtype=torch.int64)) for length in LENGTHS])
    assert forward_flops(tagging, every) == found


def test_a_step_costs_as_many_forward_passes_as_the_loop_assumes():
    with torch.device("meta"):
        theirs = BertModel(BertConfig(**THEIRS), add_pooling_layer=False)
    found = counted(lambda: theirs(torch.zeros(2, 30, dtype=torch.int64)).last_hidden_state.sum().backward())
    rows = collate([Frame(cls=2, sep=3).wrap(np.arange(28)) for _ in range(2)])
    assert found == loop.FORWARDS_PER_STEP * body_flops(SETTINGS.build(700), rows.tokens)


@pytest.mark.parametrize("planted", ["padding", "all positions"])
def test_planted_faults_are_noticed(planted, monkeypatch):
    if planted == "padding":
        right = torch.Tensor.diff
        monkeypatch.setattr(torch.Tensor, "diff", lambda x: right(x).max().expand(len(x) - 1))
    else:
        monkeypatch.setattr(MaskedLM, "at", "every")
    with pytest.raises(AssertionError):
        test_pretraining()
