"""Micro-batches of the size that fits into memory, recomputed layers, and the error for running out of memory."""

import msgspec
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.batches.curriculum import Feed
from unmask.families.bert import BertSettings
from unmask.objectives.learner import Learner
from unmask.support.errors import UnmaskError
from unmask.training import precision
from unmask.training.checkpoint import load_checkpoint, newest_checkpoint
from unmask.training.machine import Machine
from unmask.training.precision import find_micro_tokens
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.workflows.pretraining.start import build_learner

from .conftest import CPU, changed, metrics


class Measured:
    """A machine on which a token takes 10 bytes and everything else 5,000; the previous peak is 90,000."""

    def __init__(self, available, measurable=True, device="cuda"):
        self.device = torch.device(device)
        self.available, self.measurable, self.used, self.sizes = available, measurable, 90_000, []

    def learn(self, micro_batch):
        self.sizes.append(sum(map(len, micro_batch)))
        self.used = max(self.used, 5000 + 10 * self.sizes[-1])

    def reset_peak_memory(self):
        if self.measurable:
            self.used = 0
        return self.measurable

    def memory(self):
        return self.used

    def available_memory(self):
        return self.available


@pytest.fixture
def samples(recipe, corpus):
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    feed = Feed(recipe.layout, recipe.masking, 0, corpus.tokenizer, learner.prepare)
    source = feed.source(corpus.train)
    return sorted(feed.prepare()(source.take(source.start, tokens=4000)[0]), key=len)


@pytest.mark.parametrize(("available", "expected"), [(20_000, 2000), (4000, 400), (1e9, "all"), (-1e9, 50)])
def test_the_largest_micro_batch_that_fits_is_estimated_from_two(samples, monkeypatch, available, expected):
    monkeypatch.setattr(precision, "SMALL", 50)
    monkeypatch.setattr(precision, "PROBE", 200)
    machine = Measured(available)
    found = find_micro_tokens(samples, machine.learn, machine, reserve=0)
    small, probe = machine.sizes
    assert 0 < small <= 50 < probe <= 200
    if expected == "all":
        assert found == 2 * sum(map(len, samples)), "a later step may be longer"
    else:
        assert found == expected
    held_back = Measured(available)
    assert find_micro_tokens(samples, held_back.learn, held_back, reserve=1000) in (found, found - 100, 50)
    silent = Measured(available, measurable=False)
    assert find_micro_tokens(samples, silent.learn, silent, reserve=0) == 200


def test_a_cpu_computes_small_micro_batches_unless_they_are_compared(samples, monkeypatch):
    monkeypatch.setattr(precision, "SMALL", 50)
    monkeypatch.setattr(precision, "PROBE", 200)
    whole = sum(map(len, samples))

    def found(available=1e9, *, joint=False, limit=whole):
        monkeypatch.setattr(precision, "JOINT", limit)
        machine = Measured(available, device="cpu")
        return find_micro_tokens(samples, machine.learn, machine, reserve=0, joint=joint)

    assert found() == 200 and found(1500) == 150
    assert found(joint=True) == 2 * whole and found(4000, joint=True) == 400
    assert found(joint=True, limit=whole - 1) == 200


def test_a_small_step_is_not_tried(samples):
    def learn(micro_batch):
        raise AssertionError

    assert find_micro_tokens(samples, learn, CPU, reserve=0) == precision.PROBE


def test_the_peak_of_memory_can_be_reset():
    if not CPU.reset_peak_memory():
        pytest.skip("this system cannot reset the peak")
    before = CPU.memory()
    held = torch.ones(50_000_000)
    assert 190e6 < CPU.memory() - before < 250e6
    del held
    assert CPU.memory() - before > 190e6, "the peak includes memory that was freed"
    CPU.reset_peak_memory()
    assert CPU.memory() - before < 50e6


@pytest.mark.parametrize("timed", [False, True])
def test_a_run_finds_its_micro_batch_size_once_and_keeps_it(recipe, corpus, tmp_path, monkeypatch, timed):
    if timed:  # the timed steps are undone, but the size is kept
        monkeypatch.setattr("unmask.training.calibration.MIN_TIMED", 1)
    monkeypatch.setattr(precision, "SMALL", 50)
    monkeypatch.setattr(precision, "PROBE", 150)
    monkeypatch.setattr(Machine, "available_memory", lambda self: 1 << 33)
    found = []
    monkeypatch.setattr(
        "unmask.training.calibration.find_micro_tokens",
        lambda *args, **settings: found.append(find_micro_tokens(*args, **settings)) or found[-1],
    )
    recipe = msgspec.convert(
        msgspec.to_builtins(recipe) | {"batch": {"tokens": 512, "micro_tokens": "auto"}}, type(recipe)
    )
    pretrain_corpus(recipe, corpus, tmp_path / "run", machine=CPU, quiet=True)
    assert len(found) == 1
    assert 50 <= found[0] <= 2 * 512
    progress = load_checkpoint(newest_checkpoint(tmp_path / "run/checkpoints")[0]).progress
    assert progress.micro_tokens == found[0]


def gradients(learner, batch):
    learner.zero_grad()
    torch.manual_seed(3)
    sum(part.sum for part in learner(batch).values()).backward()
    found = {name: value.grad for name, value in learner.named_parameters() if value.grad is not None}
    return {name: grad.to_dense() if grad.is_sparse else grad.clone() for name, grad in found.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recomputed_layers_give_the_same_gradients(recipe, corpus, samples, dtype):
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


def test_recomputed_layers_save_less(recipe, corpus, samples):
    """Counts the elements that autograd saves, with its own hooks."""
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


@pytest.mark.parametrize(
    "shortage",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:116] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"
        ),
        MemoryError(),
    ],
    ids=["GPU", "CPU", "python"],
)
def test_T23_out_of_memory_keeps_the_checkpoint_and_names_the_setting(corpus, tmp_path, monkeypatch, shortage):
    recipe, out, forward = changed("batch.micro_tokens=300"), tmp_path / "run", Learner.forward

    def short(self, batch):
        if self.training:
            raise shortage
        return forward(self, batch)

    with monkeypatch.context() as patch, pytest.raises(UnmaskError, match=r"out of memory with 300 tokens") as error:
        patch.setattr(Learner, "forward", short)
        pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True)
    assert 'settings={"batch.micro_tokens": 150}, or settings={"batch.recompute": True}' in str(error.value)
    assert newest_checkpoint(out / "checkpoints")[0].name == "step-00000000"
    remedied = changed("batch.micro_tokens=150", "batch.recompute=true")
    pretrain_corpus(remedied, corpus, out, machine=CPU, quiet=True, resume=True)
    assert len([line for line in metrics(out) if line["kind"] == "train"]) == 3


@pytest.mark.parametrize("place", ["unmask.families.bert.BertSettings.build", "unmask.training.loop.replicate"])
def test_T23_out_of_memory_while_the_model_is_built(corpus, tmp_path, monkeypatch, place):
    original = BertSettings.build

    def short(settings, vocabulary, *more):
        if torch.get_default_device().type == "meta":  # where sizes are computed, without memory
            return original(settings, vocabulary)
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:116] DefaultCPUAllocator: can't allocate memory")

    recipe, out = changed("batch.micro_tokens=300"), tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(UnmaskError, match=r"out of memory .*encoder\.width"):
        patch.setattr(place, short)
        pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True)
    pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True)  # the same command, on a machine with more memory


def test_another_error_is_not_reported_as_out_of_memory(corpus, tmp_path, monkeypatch):
    def broken(self, batch):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Learner, "forward", broken)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        pretrain_corpus(changed("batch.micro_tokens=300"), corpus, tmp_path / "run", machine=CPU, quiet=True)
