"""From documents to prepared samples, and fixed evaluation batches."""

from dataclasses import replace

import pytest

from unmask.data.batches.curriculum import Feed
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.batches.sentence_pairs import SentencePairsSettings
from unmask.data.corpus.corpus import Documents
from unmask.data.corpus.manifest import PartEntry


@pytest.fixture
def feed(tokenizer):
    layout, masking = SentencePairsSettings(length=48), TokenMaskingSettings()
    return Feed(layout, masking, 0, tokenizer, lambda sample: sample.add(counts={"n": len(sample.labels["masked"])}))


def same(first, second):
    return len(first) == len(second) and all(
        a.keys == b.keys and a.tokens.ids.equal(b.tokens.ids) and a.positions["masked"].equal(b.positions["masked"])
        for a, b in zip(first, second, strict=True)
    )


def test_heldout_batches_are_fixed_and_at_most_an_epoch(feed, corpus):
    batches = feed.heldout(corpus.train, 10**9)
    assert same(batches, feed.heldout(corpus.train, 10**9))
    keys = [key for batch in batches for key in batch.keys]
    assert {key[0] for key in keys} == {0}
    assert len(set(keys)) == len(keys)
    samples, cursor = feed.source(corpus.train).take((0, 0, 0, 0), sequences=len(keys))
    assert sorted(sample.key for sample in samples) == sorted(keys)
    assert feed.source(corpus.train).epochs(cursor) == 1
    assert all(batch.counts["n"] == len(batch.labels["masked"]) > 0 for batch in batches)


def test_heldout_batches_are_as_many_as_asked_for(feed, corpus):
    few, many = feed.heldout(corpus.train, 1), feed.heldout(corpus.train, 10**6)
    assert len(few) == 1
    assert len(few[0].tokens.ids) <= 8192
    whole = sum(len(batch.tokens.ids) for batch in many)
    assert corpus.train.num_tokens <= whole < 1.6 * corpus.train.num_tokens  # one epoch, with special tokens
    assert feed.heldout(Documents(corpus.directory, corpus.manifest, PartEntry(0, 0, 0, [])), 100) == []


def test_without_a_target_there_are_no_heldout_batches(feed, corpus):
    """Otherwise the loss of a text of which no token is masked would be 0, the best of all."""
    assert replace(feed, count=lambda sample: sample.add(counts={"n": 0})).heldout(corpus.train, 100) == []


def test_preparing_is_pure_and_masks_differ_by_epoch(feed, corpus):
    prepare, again = feed.prepare(), feed.prepare()
    samples, _ = feed.source(corpus.train).take((0, 0, 0, 0), sequences=30)
    first = [sample.ids.tolist() for sample in prepare(samples)]
    assert [again([sample])[0].ids.tolist() for sample in reversed(samples)] == first[::-1]
    later = [sample.ids.tolist() for sample in prepare([one.named((1, *one.key[1:])) for one in samples])]
    assert sum(a != b for a, b in zip(first, later, strict=True)) > 25
