"""What objectives say of a run: what a constant answer would reach, and that nothing was learnt."""

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.objectives.replaced_token import GENERATOR

BODY = BertSettings(layers=1, width=8, heads=2, feed_forward=16, positions=12)


def build(name):
    with torch.device("meta"):
        return OBJECTIVES[name]().build(BuildContext(BODY.build(20)))


@pytest.mark.parametrize(
    ("name", "metric", "which"),
    [
        ("masked_lm", "masked_lm", "masked"),
        ("replaced_token", GENERATOR, "masked"),
        ("causal_lm", "causal_lm", "next"),
    ],
)
def test_a_guess_is_told_of_the_tokens_that_are_asked_for(name, metric, which):
    notes = build(name).notes(name, {}, {f"{metric}_accuracy": 0.0946})
    assert notes[0] == f"Always predicting the most frequent token would be right for 9.46 % of the {which} tokens."


def test_of_pairs_and_without_held_out_text_nothing_is_told():
    assert not build("next_sentence").notes("next_sentence", {}, {"next_sentence_accuracy": 0.5})
    assert not build("masked_lm").notes("masked_lm", {}, {})


def test_a_discriminator_that_tells_nothing_is_warned_of():
    one = build("replaced_token")
    assert not build("masked_lm").warnings("masked_lm", {"masked_lm_loss": 0.5})
    # one of eight tokens replaced: a constant has -(1/8 ln 1/8 + 7/8 ln 7/8) = 0.3768 nats
    found = [
        one.warnings("replaced_token", {"replaced_token_loss": loss, "replaced_token_guess": 0.875})
        for loss in (0.339, 0.340)
    ]
    assert not found[0]
    assert "Start as a masked LM" in found[1][0]


def test_a_discriminator_stands_beside_what_always_saying_original_reaches():
    notes = build("replaced_token").notes("replaced_token", {"replaced_token_guess": 0.878}, {})
    assert notes == ["Always predicting that a token was not replaced would be right for 87.80 % of all tokens."]
