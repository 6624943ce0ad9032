"""Steps do not depend on the number of workers, and are shared evenly among processes."""

from functools import partial
from itertools import islice

import numpy as np
import pytest

from unmask.data.batches.batch import Sample
from unmask.data.batches.sources import ExampleSource
from unmask.data.batches.steps import Steps, report_lost_workers
from unmask.support.errors import UnmaskError

SIZES = np.random.default_rng(1).integers(3, 20, 50)
SAMPLES = [Sample(key=(), ids=np.full(size, number), segments=np.zeros(size)) for number, size in enumerate(SIZES)]
SOURCE = ExampleSource(SAMPLES, seed=0)


def take(step, cursor):
    return SOURCE.take(cursor, tokens=100)


def everything(samples):
    return range(len(samples))


def unplanned(batch):
    return batch


def prepare(samples):
    """Add random numbers that depend on keys to the ids of samples, and count their tokens."""
    rngs = [np.random.default_rng(sample.key) for sample in samples]
    drawn = [rng.integers(1000, size=len(sample)) for sample, rng in zip(samples, rngs, strict=True)]
    return [
        sample.add(ids=sample.ids * 1000 + numbers, counts={"tokens": len(sample)})
        for sample, numbers in zip(samples, drawn, strict=True)
    ]


def steps(share=everything, micro_tokens=40):
    return Steps(take, share, prepare, unplanned, micro_tokens)


def described(step):
    micro_batches = [
        (batch.keys, batch.tokens.ids.tolist(), batch.tokens.offsets.tolist()) for batch in step.micro_batches
    ]
    return micro_batches, dict(step.counts), step.tokens, step.sequences, step.cursor


def first(many, number=0, cursor=SOURCE.start, workers=0, **settings):
    return [described(step) for step in islice(steps(**settings).stream(number, cursor, workers), many)]


@pytest.mark.parametrize("workers", [1, 2])
def test_T5_any_number_of_workers_gives_the_same_steps(workers):
    expected = first(8)
    assert len({str(step) for step in expected}) == 8
    assert first(8, workers=workers) == expected


def test_T5_workers_0_then_2_then_1_is_the_same_order():
    expected, found = first(9), []
    for workers in (0, 2, 1):
        cursor = found[-1][-1] if found else SOURCE.start
        found += first(3, number=len(found), cursor=cursor, workers=workers)
    assert found == expected


def test_a_step_knows_its_number():
    numbers = []
    numbered = Steps(
        lambda step, cursor: (numbers.append(step), take(step, cursor))[1], everything, prepare, unplanned, 40
    )
    list(islice(numbered.stream(5, SOURCE.start), 3))
    assert numbers == [5, 6, 7]


def test_micro_batches_fit_and_lose_nothing():
    for micro_batches, counts, tokens, sequences, _ in first(5):
        assert sum(len(ids) for _, ids, _ in micro_batches) == counts["tokens"] == tokens <= 100
        assert sum(len(keys) for keys, _, _ in micro_batches) == sequences
        assert all(len(ids) <= 40 for _, ids, _ in micro_batches)
        assert len(micro_batches) > 1


@pytest.mark.parametrize("size", [2, 3])
def test_shares_are_even_and_together_the_whole(size):
    whole = first(5)

    def every(samples, rank):
        return np.argsort(samples.lengths, kind="stable").tolist()[rank::size]

    shares = [first(5, share=partial(every, rank=rank)) for rank in range(size)]
    for number, (micro_batches, _, tokens, sequences, cursor) in enumerate(whole):
        parts = [share[number] for share in shares]
        assert {part[2:] for part in parts} == {(tokens, sequences, cursor)}
        found = sorted(key for part in parts for keys, _, _ in part[0] for key in keys)
        assert found == sorted(key for keys, _, _ in micro_batches for key in keys)
        sizes = [part[1]["tokens"] for part in parts]
        assert sum(sizes) == tokens
        assert max(sizes) - min(sizes) <= 20


def test_a_killed_worker_is_reported_and_other_errors_are_not_changed():
    message = r"died \(DataLoader worker \(pid 7\) is killed\); .* continue with resume=True"
    with pytest.raises(UnmaskError, match=message), report_lost_workers():
        raise RuntimeError("DataLoader worker (pid 7) is killed\nby signal: Killed.")
    with pytest.raises(RuntimeError, match=r"^CUDA error$"), report_lost_workers():
        raise RuntimeError("CUDA error")
