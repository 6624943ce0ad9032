import asyncio
import threading

import numpy as np
import pytest

from unmask.data.batches.batch import Sample
from unmask.serving.batcher import Batcher, ComputeJob
from unmask.serving.bodies import Refusal
from unmask.serving.metrics import Meter
from unmask.serving.types import Limits

LIMITS = Limits(batch_tokens=10, queue_tokens=40, wait=0.0)


def sample(length, value=1):
    return Sample(key=(), ids=np.full(length, value))


def job(*lengths, head="head", value=1):
    return ComputeJob(head, [sample(length, value) for length in lengths], lambda rows: rows)


class Engine:
    """Returns each sample's ids, counts batches, waits for `gate`, and fails on the ids 13."""

    def __init__(self):
        self.batches, self.gate = [], threading.Event()
        self.gate.set()

    def __call__(self, head, samples):
        self.batches.append((head, [len(one) for one in samples]))
        assert self.gate.wait(10)
        if any(13 in one.ids for one in samples):
            raise RuntimeError("secret text")
        with np.errstate(divide="ignore"):  # of this thread
            return [np.log(np.maximum(one.ids, 0)) if -1 in one.ids else one.ids for one in samples]


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def batcher(engine):
    made = Batcher(engine, LIMITS, Meter(), "model")
    yield made
    engine.gate.set()
    made.close()


async def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def test_requests_are_computed_together_up_to_a_number_of_tokens(engine, batcher):
    async def main():
        engine.gate.clear()
        first = asyncio.ensure_future(batcher.run(job(2)))
        await wait_for(lambda: engine.batches)
        others = [asyncio.ensure_future(batcher.run(job(4, value=value))) for value in range(5)]
        await asyncio.sleep(0)
        engine.gate.set()
        return await asyncio.gather(first, *others)

    found = asyncio.run(main())
    assert engine.batches == [("head", [2]), ("head", [4, 4]), ("head", [4, 4]), ("head", [4])]
    assert [rows[0].tolist() for rows in found] == [[1, 1], *([value] * 4 for value in range(5))]
    assert batcher.pending == 0


def test_a_large_request_does_not_block_others_and_heads_are_not_mixed(engine, batcher):
    async def main():
        engine.gate.clear()
        first = asyncio.ensure_future(batcher.run(job(1)))
        await wait_for(lambda: engine.batches)
        more = [job(5, 5, 5, 5, value=2), job(3, head="other"), job(4, value=3)]
        running = [asyncio.ensure_future(batcher.run(one)) for one in more]
        await asyncio.sleep(0)
        engine.gate.set()
        return await asyncio.gather(first, *running)

    found = asyncio.run(main())
    assert [len(rows) for rows in found] == [1, 4, 1, 1]
    assert engine.batches[1:] == [("head", [5, 5]), ("other", [3]), ("head", [4, 5]), ("head", [5])]


def test_a_sample_longer_than_a_batch_is_computed_alone(engine, batcher):
    assert len(asyncio.run(batcher.run(job(30)))[0]) == 30


def test_an_idle_model_waits_for_more(engine):
    """Until they fill a batch, or for a time."""
    batcher = Batcher(engine, Limits(batch_tokens=5, wait=60), Meter(), "model")

    async def main():
        first = asyncio.ensure_future(batcher.run(job(2)))
        await asyncio.sleep(0.1)
        assert engine.batches == []
        await asyncio.gather(first, batcher.run(job(3)))

    asyncio.run(main())
    assert engine.batches == [("head", [2, 3])]
    batcher.close()
    batcher = Batcher(engine, Limits(batch_tokens=5, wait=0.1), Meter(), "model")
    asyncio.run(batcher.run(job(2)))
    assert engine.batches == [("head", [2, 3]), ("head", [2])]
    batcher.close()


def test_S1_a_full_queue_refuses_and_serves_what_it_has(engine, batcher):
    async def main():
        engine.gate.clear()
        accepted = [asyncio.ensure_future(batcher.run(job(10))) for _ in range(4)]
        await wait_for(lambda: engine.batches)
        with pytest.raises(Refusal) as refused:
            await batcher.run(job(1))
        engine.gate.set()
        rows = await asyncio.gather(*accepted)
        await wait_for(lambda: batcher.pending == 0)
        assert len(await batcher.run(job(1))) == 1
        return refused.value, rows

    refusal, rows = asyncio.run(main())
    assert (refusal.status, refusal.kind) == (429, "Overloaded")
    assert 1 <= refusal.retry <= 60
    assert [len(one[0]) for one in rows] == [10] * 4


def test_S7_what_nobody_waits_for_is_not_computed(engine, batcher):
    async def main():
        engine.gate.clear()
        first = asyncio.ensure_future(batcher.run(job(10)))
        await wait_for(lambda: engine.batches)
        left = asyncio.ensure_future(batcher.run(job(10, 10)))
        await asyncio.sleep(0)
        assert batcher.pending == 30
        left.cancel()
        await asyncio.sleep(0)
        assert batcher.pending == 10
        engine.gate.set()
        await first

    asyncio.run(main())
    assert engine.batches == [("head", [10])]


def test_S9_S11_a_poisoned_input_fails_alone_whatever_it_is_computed_with(engine, batcher, capsys):
    async def main():
        engine.gate.clear()
        first = asyncio.ensure_future(batcher.run(job(1)))
        await wait_for(lambda: engine.batches)
        values = (2, 13, 3, -1, 4)  # -1 gives minus infinity
        running = [asyncio.ensure_future(batcher.run(job(2, value=value))) for value in values]
        await asyncio.sleep(0)
        engine.gate.set()
        await first
        return await asyncio.gather(*running, return_exceptions=True)

    good, error, other, infinite, last = asyncio.run(main())
    assert [one[0].tolist() for one in (good, other, last)] == [[2, 2], [3, 3], [4, 4]]
    for refusal in (error, infinite):
        assert (refusal.status, refusal.kind, str(refusal)) == (424, "Backend", "computing failed")
    assert batcher.pending == 0
    logged = capsys.readouterr().err
    assert "RuntimeError" in logged and "FloatingPointError" in logged
    assert "secret" not in logged, "messages may contain texts"


def test_the_rest_of_a_request_that_has_failed_is_not_computed(engine, batcher):
    async def main():
        engine.gate.clear()
        first = asyncio.ensure_future(batcher.run(job(1)))
        await wait_for(lambda: engine.batches)
        large = asyncio.ensure_future(batcher.run(job(10, 10, 10, value=13)))
        await asyncio.sleep(0)
        engine.gate.set()
        found = await asyncio.gather(first, large, return_exceptions=True)
        return found, await batcher.run(job(2))

    (_, refusal), last = asyncio.run(main())
    assert refusal.status == 424 and last[0].tolist() == [1, 1]
    assert engine.batches == [("head", [1]), ("head", [10]), ("head", [2])]
    assert batcher.pending == 0


def test_minus_infinity_is_a_result_where_a_job_allows_it():
    rows = [np.array([0.0, -np.inf])]
    assert ComputeJob("head", [], list, infinite=True).sound(rows)
    assert not ComputeJob("head", [], list).sound(rows)
    for wrong in (np.inf, np.nan):
        assert not ComputeJob("head", [], list, infinite=True).sound([np.array([wrong])])


def test_a_function_is_computed_in_the_same_thread(batcher):
    def name(samples):
        return [np.array([threading.current_thread().name == "compute model"]) for _ in samples]

    assert asyncio.run(batcher.run(ComputeJob(name, [sample(1)], lambda rows: rows)))[0].all()


def test_a_closed_queue_refuses(batcher):
    batcher.close()
    with pytest.raises(Refusal) as refused:
        asyncio.run(batcher.run(job(1)))
    assert refused.value.status == 503


def test_no_samples_need_no_computing(engine, batcher):
    assert asyncio.run(batcher.run(job())) == []
    assert engine.batches == []
