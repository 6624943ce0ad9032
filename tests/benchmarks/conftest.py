"""Benchmarks at toy size, and what a run really computed: micro-batches, attention kernels, precision."""

import importlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from unmask.nn.layers import block
from unmask.training.loop import Trainer

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@dataclass
class Work:
    """What was computed in the steps of the runs so far.

    Attributes:
        micro_batches: for each step how many sequences each micro-batch has.
        kernels: (kernel, precision) pairs that computed attention.
    """

    micro_batches: list[tuple[int, ...]] = field(default_factory=list)
    kernels: set[tuple[str, str]] = field(default_factory=set)


@pytest.fixture
def work(monkeypatch) -> Work:
    """Watches the product's own training step; nothing of it is replaced."""
    seen = Work()
    step, backward, choose = Trainer.step, Trainer._backward, block.choose_kernel

    def watched_step(trainer):
        seen.micro_batches.append(())
        return step(trainer)

    def watched_backward(trainer, micro_batches, *args, **kwargs):
        if seen.micro_batches:  # what is tried before the first step is no step
            seen.micro_batches[-1] += tuple(len(batch.keys) for batch in micro_batches)
        return backward(trainer, micro_batches, *args, **kwargs)

    def watched_choice(qkv, tokens, spec):
        kernel = choose(qkv, tokens, spec)
        seen.kernels.add((kernel.__name__, str(qkv.dtype).removeprefix("torch.")))
        return kernel

    monkeypatch.setattr(Trainer, "step", watched_step)
    monkeypatch.setattr(Trainer, "_backward", watched_backward)
    monkeypatch.setattr(block, "choose_kernel", watched_choice)
    return seen


@pytest.fixture
def benchmark_module(monkeypatch, tmp_path):
    """Imports a benchmark by name; what it writes goes into a folder of the test."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    common = importlib.import_module("common")
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    return importlib.import_module


@pytest.fixture
def records(tmp_path):
    """Reads what a benchmark has written."""
    return lambda name: json.loads((tmp_path / "results" / f"{name}.json").read_text())["runs"]


@pytest.fixture
def run_main(monkeypatch):
    """Runs a benchmark's main with arguments."""

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__file__, *arguments])
        module.main()

    return run
