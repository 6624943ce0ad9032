"""What is in memory at once: as much as fits, with the gradient of the whole, and layers computed twice."""

import msgspec
import pytest
import torch

from unmask.batches.batch import collate
from unmask.batches.feed import Feed
from unmask.pretraining.learner import build_learner
from unmask.pretraining.pretrain import pretrain
from unmask.training import memory
from unmask.training.checkpoint import load_checkpoint, newest_checkpoint
from unmask.training.machine import Machine
from unmask.training.memory import find_micro_tokens

CPU = Machine(torch.device("cpu"), "float32")


class Measured:
    """A machine on which a token takes 10 bytes, and everything else 5,000; before, 90,000 were held once."""

    def __init__(self, available, tells=True):
        self.available, self.tells, self.used, self.pieces = available, tells, 90_000, []

    def learn(self, piece):
        self.pieces.append(sum(map(len, piece)))
        self.used = max(self.used, 5000 + 10 * self.pieces[-1])

    def reset_peak_memory(self):
        if self.tells:
            self.used = 0
        return self.tells

    def memory(self):
        return self.used

    def available_memory(self):
        return self.available


@pytest.fixture
def samples(recipe, corpus):
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    feed = Feed(recipe.layout, recipe.masking, 0, corpus.tokenizer, learner.prepare)
    source = feed.source(corpus.train)
    return sorted(map(feed.prepare(), source.take(source.start, tokens=4000)[0]), key=len)


@pytest.mark.parametrize(("available", "expected"), [(20_000, 2000), (4000, 400), (1e9, "all"), (-1e9, 50)])
def test_the_largest_piece_that_fits_is_found_from_two(samples, monkeypatch, available, expected):
    monkeypatch.setattr(memory, "SMALL", 50)
    monkeypatch.setattr(memory, "PROBE", 200)
    machine = Measured(available)
    found = find_micro_tokens(samples, machine.learn, machine, reserve=0)
    small, probe = machine.pieces
    assert 0 < small <= 50 < probe <= 200
    if expected == "all":
        assert found == 2 * sum(map(len, samples)), "a later step may be longer"
    else:
        assert found == expected
    held_back = Measured(available)
    assert find_micro_tokens(samples, held_back.learn, held_back, reserve=1000) in (found, found - 100, 50)
    silent = Measured(available, tells=False)
    assert find_micro_tokens(samples, silent.learn, silent, reserve=0) == 200


def test_a_small_step_is_not_tried(samples):
    def learn(piece):
        raise AssertionError

    assert find_micro_tokens(samples, learn, CPU, reserve=0) == memory.PROBE


def test_the_most_memory_is_looked_for_anew():
    if not CPU.reset_peak_memory():
        pytest.skip("this system does not let the peak be reset")
    before = CPU.memory()
    held = torch.ones(50_000_000)
    assert 190e6 < CPU.memory() - before < 250e6
    del held
    assert CPU.memory() - before > 190e6, "it was held"
    CPU.reset_peak_memory()
    assert CPU.memory() - before < 50e6


@pytest.mark.parametrize("timed", [False, True])
def test_a_run_finds_its_piece_once_and_keeps_it(recipe, corpus, tmp_path, monkeypatch, timed):
    if timed:  # the steps that are timed are taken back, what fits stays
        monkeypatch.setattr("unmask.training.calibration.MIN_TIMED", 1)
    monkeypatch.setattr(memory, "SMALL", 50)
    monkeypatch.setattr(memory, "PROBE", 150)
    monkeypatch.setattr(Machine, "available_memory", lambda self: 1 << 33)
    found = []
    monkeypatch.setattr(
        "unmask.training.calibration.find_micro_tokens",
        lambda *args, **settings: found.append(find_micro_tokens(*args, **settings)) or found[-1],
    )
    recipe = msgspec.convert(
        msgspec.to_builtins(recipe) | {"batch": {"tokens": 512, "micro_tokens": "auto"}}, type(recipe)
    )
    pretrain(recipe, corpus, tmp_path / "run", machine=CPU, quiet=True)
    assert len(found) == 1
    assert 50 <= found[0] <= 2 * 512
    progress = load_checkpoint(newest_checkpoint(tmp_path / "run/checkpoints")[0])[2]
    assert progress.micro_tokens == found[0]


def gradients(learner, batch):
    learner.zero_grad()
    torch.manual_seed(3)
    sum(part.sum for part in learner(batch).values()).backward()
    found = {name: value.grad for name, value in learner.named_parameters() if value.grad is not None}
    return {name: grad.to_dense() if grad.is_sparse else grad.clone() for name, grad in found.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_computed_again_give_the_same_gradients(recipe, corpus, samples, dtype):
    """With dropout: the same elements are dropped in both passes."""
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    learner.to(dtype).train()
    batch = collate(samples[:12])
    kept = gradients(learner, batch)
    learner.encoder.recompute = True
    again = gradients(learner, batch)
    assert kept.keys() == again.keys()
    assert all(again[name].equal(value) for name, value in kept.items())
    assert any(value.any() for value in kept.values())


def test_layers_computed_again_keep_less(recipe, corpus, samples):
    """What autograd saves, counted by its own hooks."""
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    batch, kept = collate(samples), []
    for recompute in (False, True):
        learner.encoder.recompute, sizes = recompute, []

        def keep(tensor, sizes=sizes):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            encoded = learner.encoder(batch.tokens)
        kept.append(sum(sizes))
        assert encoded.last.requires_grad
    assert kept[1] < kept[0] / 4
