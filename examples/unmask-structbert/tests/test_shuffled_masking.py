"""Shuffled trigrams follow the paper, and the same checks fail on planted faults."""

from itertools import permutations

import numpy as np
import pytest
from unmask_structbert.shuffled_masking import SHUFFLED, ShuffledMasking, ShuffledMaskingSettings

from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import MASKED
from unmask.data.batches.rng import SampleRng
from unmask.testing import check_masking

SPECIAL, VOCABULARY = frozenset(range(5)), 1000


def shuffle_all(kind=ShuffledMasking, lengths=(500,) * 300, **settings):
    """Return (before, after) of texts without repeated tokens."""
    masking = kind(ShuffledMaskingSettings(**settings), 0.05, vocabulary=VOCABULARY, mask=4, special=SPECIAL)
    rng = np.random.default_rng(0)
    texts = [Frame(2, 3).wrap(rng.permutation(np.arange(5, VOCABULARY))[:length]) for length in lengths]
    rng = SampleRng(0, "masking", [(index,) for index in range(len(texts))])
    return list(zip(texts, masking(texts, rng), strict=True))


def check_trigrams(found):
    """Check that whole, unmasked trigrams are shuffled, labels are the original ids, and nothing else changes."""
    for before, after in found:
        indices = after.positions[SHUFFLED]
        trigrams = indices.reshape(-1, 3)
        assert np.array_equal(trigrams, trigrams[:, :1] + np.arange(3))
        assert len(np.unique(indices)) == len(indices)
        assert not np.isin(indices, after.positions[MASKED]).any()
        assert not np.isin(before.ids[indices], list(SPECIAL)).any()
        assert np.array_equal(after.labels[SHUFFLED], before.ids[indices])
        assert np.array_equal(np.sort(after.ids[trigrams]), np.sort(before.ids[trigrams]))
        others = np.delete(np.arange(len(before)), np.concatenate([indices, after.positions[MASKED]]))
        assert np.array_equal(after.ids[others], before.ids[others])


def check_orders(found):
    """Check that the six orders of a trigram are equally frequent."""
    orders = dict.fromkeys(permutations(range(3)), 0)
    for _, after in found:
        gold = after.labels[SHUFFLED].reshape(-1, 3)
        for trigram, read in zip(gold.tolist(), after.ids[after.positions[SHUFFLED]].reshape(-1, 3), strict=True):
            orders[tuple(trigram.index(id) for id in read)] += 1
    total = sum(orders.values())
    assert total > 3000
    assert all(abs(count / total - 1 / 6) < 0.02 for count in orders.values())


class ShufflesMasked(ShuffledMasking):
    """A planted fault: masked tokens are shuffled too."""

    def _trigrams(self, free, rng):
        return super()._trigrams(np.ones_like(free), rng)


class Rotates(ShuffledMasking):
    """A planted fault: trigrams are always rotated by one."""

    def _shuffle(self, sample, masked, rng):
        after = super()._shuffle(sample, masked, rng)
        after.ids[after.positions[SHUFFLED]] = np.roll(after.labels[SHUFFLED].reshape(-1, 3), 1, axis=1).reshape(-1)
        return after


def test_trigrams_of_unmasked_tokens_are_shuffled():
    found = shuffle_all()
    check_trigrams(found)
    check_orders(found)
    free = 0.85**3  # probability that none of three adjacent tokens is masked
    shares = [len(after.positions[SHUFFLED]) / 3 / len(before) / free for before, after in found]
    assert np.mean(shares) == pytest.approx(0.05, abs=0.01), "slightly less, since overlapping trigrams are dropped"


@pytest.mark.parametrize(("fault", "check"), [(ShufflesMasked, check_trigrams), (Rotates, check_orders)])
def test_planted_faults_are_found(fault, check):
    with pytest.raises(AssertionError):
        check(shuffle_all(fault))


def test_short_texts():
    found = shuffle_all(lengths=range(12))
    check_trigrams(found)
    assert not len(found[2][1].positions[SHUFFLED]), "two tokens contain no trigram"
    assert max(len(after.positions[SHUFFLED]) for _, after in found) == 3, "exactly one trigram in short texts"
    with pytest.raises(ValueError, match="shuffle must lie"):
        ShuffledMaskingSettings(shuffle=0)


def test_the_masking_is_what_maskings_are():
    check_masking("shuffled")
