import numpy as np
import pytest

from unmask.batches.batch import Sample, collate
from unmask.pretraining import guess


def batch(hidden, pair=None):
    sample = Sample(
        key=(0,),
        ids=np.arange(8),
        segments=np.zeros(8, np.int64),
        labels={"hidden": np.array(hidden, np.int64)} | ({} if pair is None else {"next_sentence": np.array([pair])}),
    )
    return collate([sample])


def test_a_guess_is_scored_where_tokens_are_hidden():
    assert guess([batch([7, 7, 5]), batch([7, 4, 4])], 7) == {"masked_lm_accuracy": pytest.approx(0.5)}


def test_pairs_are_guessed_by_halves():
    assert guess([batch([], pair=1)], 7) == {"next_sentence_accuracy": 0.5}
