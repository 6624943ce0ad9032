"""How often each set of tokens is masked, beside the procedures of the papers, written again token by token."""

import random
from collections import Counter

import numpy as np
import pytest

from unmask.data.batches.batch import Sample

from .conftest import CONTINUATION, SEP, build_masking, mask_samples

WORDS = [[0], [1, 2], [3], [5, 6, 7], [8], [9, 10]]  # a [SEP] in between
IDS = np.array([10, 11, CONTINUATION, 12, SEP, 13, CONTINUATION, CONTINUATION, 14, 15, CONTINUATION])
DRAWN = 20_000


def token(rng, budget):
    return rng.sample([place for word in WORDS for place in word], budget)


def span(rng, budget):
    """SpanBERT: masking.py of facebookresearch/SpanBERT, with a start that is redrawn until it is not masked."""
    masked, every = [], [place for word in WORDS for place in word]
    sizes = [0.8**size for size in range(10)]
    while len(masked) < budget:
        at = rng.choice(every)
        if at in masked:
            continue
        first = next(number for number, word in enumerate(WORDS) if at in word)
        words = WORDS[first : first + 1 + rng.choices(range(10), sizes)[0]]
        if first < 3:
            words = words[: 3 - first]  # not across the [SEP]
        for place in [place for word in words for place in word]:
            if place not in masked and len(masked) < budget:
                masked.append(place)
    return masked


def ngram(rng, budget, longest=3):
    """ALBERT: create_pretraining_data.py of google-research/albert."""
    masked = []
    for first in rng.sample(range(len(WORDS)), len(WORDS)):
        most = min(longest, (3 if first < 3 else 6) - first)
        (size,) = rng.choices(range(1, most + 1), [1 / size for size in range(1, most + 1)])
        while size and len(masked) + sum(map(len, WORDS[first : first + size])) > budget:
            size -= 1
        places = [place for word in WORDS[first : first + size] for place in word]
        if not set(places) & set(masked):
            masked += places
    return masked


def whole_word(rng, budget):
    return ngram(rng, budget, longest=1)


REFERENCES = {"token": token, "span": span, "ngram": ngram, "whole_word": whole_word}


@pytest.mark.parametrize("kind", list(REFERENCES))
def test_sets_of_masked_tokens_are_as_often_as_in_a_loop(kind):
    masking, budget = build_masking(kind, rate=4 / 11), 4
    samples = [Sample(key=(0, item), ids=IDS) for item in range(DRAWN)]
    ours = Counter(tuple(made.positions["masked"].tolist()) for made in mask_samples(masking, samples))
    rng = random.Random(0)
    theirs = Counter(tuple(sorted(REFERENCES[kind](rng, budget))) for _ in range(DRAWN))
    differences = [(ours[each] - theirs[each]) / max(5, ours[each] + theirs[each]) ** 0.5 for each in ours | theirs]
    assert np.abs(differences).max() < 4.5
    assert np.mean(np.square(differences)) < 1.6  # about 1


@pytest.mark.parametrize("kind", list(REFERENCES))
def test_what_is_masked_does_not_depend_on_the_other_samples(kind):
    rng, masking = np.random.default_rng(1), build_masking(kind, rate=0.3)
    samples = [Sample(key=(2, item), ids=rng.integers(5, 1000, size)) for item, size in enumerate((40, 3, 90, 1, 17))]
    together = mask_samples(masking, samples)
    (alone,) = mask_samples(masking, samples[2:3])
    (*_, last) = mask_samples(masking, [samples[4], samples[1], samples[2]])
    for other in (alone, last):
        assert other.ids.tolist() == together[2].ids.tolist()
        assert other.positions["masked"].tolist() == together[2].positions["masked"].tolist()
