"""The loss is recomputed by hand; properties of all objectives are checked by `unmask.testing`."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import unmask_structbert
from unmask_structbert.shuffled_masking import SHUFFLED, ShuffledMaskingSettings
from unmask_structbert.word_order import WordOrderSettings

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.data.batches.rng import SampleRng
from unmask.families.bert import BertSettings
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.testing import check_objective

BODY = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=128, dropout=0.0, init_std=0.2)
RECIPE = Path(unmask_structbert.__file__).with_name("structbert-mini.toml")


def shuffled_samples():
    rng, frame = np.random.default_rng(0), Frame(2, 3)
    masking = ShuffledMaskingSettings().build(vocabulary=1000, mask=4, special=frozenset(range(5)), begins=np.ones_like)
    samples = [frame.wrap(rng.integers(5, 1000, length)) for length in (30, 100, 7)]
    return masking(samples, SampleRng(0, "masking", [(number,) for number in range(3)]))


def test_the_objective_is_what_objectives_are():
    check_objective("word_order", BODY.build(1000), shuffled_samples())


def test_the_loss_is_that_of_the_original_tokens():
    torch.manual_seed(0)
    samples = shuffled_samples()
    encoder = BODY.build(1000)
    learner = Learner(encoder, {"word_order": WordOrderSettings().build(BuildContext(encoder))}).eval()
    batch = collate([learner.prepare(sample) for sample in samples])
    encoded = encoder(batch.tokens)
    logits = learner.parts["word_order"].predict(encoder, encoded, batch).double().detach()
    expected = -sum(math.log(row.softmax(0)[token]) for row, token in zip(logits, batch.labels[SHUFFLED], strict=True))
    assert learner(batch)["word_order"].sum.item() == pytest.approx(expected, rel=1e-5)
    assert batch.counts["word_order"] == len(logits) > 10


def test_the_recipe_is_the_papers():
    recipe = read_recipe(RECIPE)
    assert (recipe.masking.rate, recipe.masking.shuffle) == (0.15, 0.05)
    assert {name: one.weight for name, one in recipe.objectives.items()} == {"masked_lm": 1.0, "word_order": 1.0}
    with pytest.raises(UserError, match=r"word_order needs 'shuffled' labels.*masking.kind.: .shuffled"):
        read_recipe(RECIPE, {"masking.kind": "token"})
