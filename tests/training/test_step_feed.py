"""The steps of a run: their stage, their samples, and each process's share."""

import msgspec
import pytest
import torch

from unmask.support.errors import UnmaskError, UserError
from unmask.training.checkpoint import Progress
from unmask.training.processes import Processes
from unmask.training.step_feed import StepFeed

from .conftest import started
from .remembering import STREAMS, Windows, learner_of, settings, trainer_of


def longest(trainer):
    """Record the length of each step's longest sample."""
    seen, take = [], trainer.feed.take

    def taking(step, cursor):
        samples, cursor = take(step, cursor)
        seen.append(max(map(len, samples)))
        return samples, cursor

    trainer.feed.take = taking
    return seen


def test_the_masking_rate_rises_along_the_run(small, trainer):
    one = trainer(small(masking={"rate": 0.1, "final_rate": 0.5}, budget={"steps": 10}))
    one.start()
    steps = [one.feed.next(one.progress) for _ in range(10)]
    shares = [step.counts["masked_lm"] / step.tokens for step in steps]
    assert shares == pytest.approx([0.1 + 0.04 * number for number in range(10)], abs=0.02)


@pytest.mark.parametrize("kind", ["sentence_pairs", "document_sentences"])
def test_each_stage_has_its_length_and_its_share_of_the_steps(staged, trainer, kind):
    one = trainer(staged(kind, budget={"steps": 8}), heldout=True)
    one.start()
    seen = longest(one)
    one.train()
    assert max(seen[:6]) <= 16 < min(seen[6:]) <= max(seen) <= 48
    assert max(batch.tokens.offsets.diff().max() for batch in one.heldout) > 16, "held out: the final length"


def test_a_larger_budget_changes_the_steps_of_each_stage(staged, trainer):
    started(trainer, staged(budget={"steps": 4})).train()
    larger = trainer(staged(budget={"steps": 12}), resume=True)
    larger.resume()
    seen = longest(larger)
    larger.train()
    assert [length > 16 for length in seen] == [False] * 5 + [True] * 3


def test_a_batch_that_is_not_one_window_of_each_stream_is_refused(make_run):
    chosen = msgspec.structs.replace(settings(3), batch=msgspec.structs.replace(settings(3).batch, sequences=4))
    with pytest.raises(UserError, match=r'layout.streams is 6.*batch.sequences is 4.*settings={"batch.sequences": 6}'):
        trainer_of(make_run(), learner_of(), chosen)


def test_T20_fewer_streams_than_processes():
    learner = learner_of()

    def prepare(samples):
        return list(map(learner.prepare, samples))

    feed = StepFeed(Windows(), settings(3).batch, prepare, learner.plan, Processes(0, STREAMS + 1), 0)
    with pytest.raises(UserError, match=r"start fewer processes, or enlarge layout\.streams and batch.sequences"):
        feed.next(Progress(cursor=(0, 0), micro_tokens=100))
    for rank in range(4):  # the numbers of streams may differ
        feed = StepFeed(Windows(), settings(3).batch, prepare, learner.plan, Processes(rank, 4), 0)
        for _ in range(2):
            step = feed.next(Progress(cursor=(0, 0), micro_tokens=8))
            found = torch.cat([batch.streams for batch in step.micro_batches])
            assert sorted(found.tolist()) == list(range(rank, STREAMS, 4))


def test_a_restart_continues_from_the_changed_progress(small, trainer):
    one = trainer(small(budget={"steps": 6}))
    one.start()
    first = one.feed.next(one.progress)
    second = one.feed.next(one.progress)
    assert first.cursor != second.cursor
    one.feed.close()
    again = one.feed.next(one.progress)
    assert again.cursor == first.cursor
    assert [batch.tokens.ids.tolist() for batch in again.micro_batches] == [
        batch.tokens.ids.tolist() for batch in first.micro_batches
    ]


def test_processes_share_the_sequences_of_a_step(small, trainer):
    one = trainer(small(budget={"steps": 2}))
    one.start()
    whole = one.feed.next(one.progress)
    sizes = []
    for rank in range(3):
        feed = StepFeed(one.source, one.settings.batch, one.prepare, lambda batch: batch, Processes(rank, 3), 0)
        share = feed.next(one.progress)
        assert (share.cursor, share.tokens, share.sequences) == (whole.cursor, whole.tokens, whole.sequences)
        assert share.digest == whole.digest
        sizes.append(sum(len(batch.tokens.offsets) - 1 for batch in share.micro_batches))
    assert sum(sizes) == whole.sequences
    assert max(sizes) - min(sizes) <= 1


def test_processes_that_cut_other_lengths_are_found(small, trainer, monkeypatch):
    """Each has its own copy of the corpus, perhaps a damaged one, and reads the text of its own samples only."""
    one = trainer(small(budget={"steps": 2}))
    one.start()
    one.step()
    assert one._exchange(0, False) == (0, False)
    sent = []
    monkeypatch.setattr(one.processes, "all_reduce_max", lambda values: (sent.append(values), values)[1])
    one._exchange(0, False)
    one.digest ^= 1
    with pytest.raises(UnmaskError, match="read different samples in step 1"):
        monkeypatch.setattr(one.processes, "all_reduce_max", lambda values: list(map(max, values, sent[0])))
        one._exchange(0, False)
