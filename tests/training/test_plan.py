"""A budget in steps, tokens and epochs, and the interval between evaluations."""

import re

import numpy as np
import pytest

from unmask.data.batches.batch import Sample
from unmask.data.batches.sources import ExampleSource
from unmask.training.optimizer_settings import AdamWSettings
from unmask.training.runs.display import Display
from unmask.training.settings import (
    BatchSettings,
    BudgetSettings,
    Plan,
    ScheduleSettings,
    TrainingSettings,
)

from .conftest import started


@pytest.mark.parametrize(("examples", "epochs", "steps"), [(33, 2.0, 5), (32, 2.0, 4), (33, 0.4, 1), (5, 3.0, 1)])
def test_budget_in_epochs(examples, epochs, steps):
    samples = [Sample(key=(), ids=np.arange(4), segments=np.zeros(4)) for _ in range(examples)]
    settings = TrainingSettings(
        batch=BatchSettings(sequences=16),
        optimizer=AdamWSettings(),
        schedule=ScheduleSettings(),
        budget=BudgetSettings(epochs=epochs),
    )
    source = ExampleSource(samples, seed=0)
    known = Plan(source, settings)
    source.epoch = None  # then it is read
    read = Plan(source, settings)
    assert known.steps() == read.steps() == steps
    assert (known.tokens, known.epochs) == pytest.approx((read.tokens, read.epochs))


def test_budget_in_steps_and_tokens(small, trainer):
    assert started(trainer, small(budget={"steps": 7}), out="a").progress.total == 7
    one = started(trainer, small(budget={"tokens": 5000.0}), out="b")
    one.train()
    assert one.progress.tokens == pytest.approx(5000, rel=0.05)
    assert one.progress.step == one.progress.total


def test_evaluations_take_a_tenth_of_a_run_at_most(small, trainer):
    one = trainer(small(budget={"steps": 200}), heldout=True)
    one.start()
    calculated = one.calibration.plan
    tokens = calculated.tokens_until(200, 200)
    assert [calculated.evaluate_every(200, round(tokens / times), closely=False) for times in (1000, 20, 1)] == [
        200 // 20,
        200 // 6,
        200 // 5,
    ]
    assert calculated.evaluate_every(200, round(tokens), closely=True) == 200 // 20, "for early stopping"


def test_a_budget_in_tokens_counts_those_of_each_stage(staged, trainer):
    batch = {"tokens": None, "sequences": 8}
    one = started(trainer, staged(budget={"tokens": 10_000.0}, batch=batch), out="a")
    one.train()
    assert one.progress.tokens == pytest.approx(10_000, rel=0.05)
    tokens = np.diff([0, *(line["tokens"] for line in one.run.read_metrics("train"))])
    assert tokens[-1] > 2 * tokens[0], "the steps differ in size"


def test_the_plan_prints_the_steps_of_each_stage(staged, trainer, capsys):
    one = trainer(staged(budget={"steps": 8}, batch={"tokens": None, "sequences": 8}))
    one.display = Display()
    one.start()
    one.train()
    tokens = np.diff([0, *(line["tokens"] for line in one.run.read_metrics("train"))])
    first, *stages = capsys.readouterr().err.splitlines()
    mean = float(re.search(r"8 steps of (\d+) tokens, ", first)[1])
    assert mean == pytest.approx(tokens.mean(), rel=0.1)
    for line, expected in zip(stages, ((16, 6, tokens[:6].mean()), (48, 2, tokens[6:].mean())), strict=True):
        printed = [
            float(number) for number in re.fullmatch(r"length (\d+): (\d+) steps of (\d+) tokens", line).groups()
        ]
        assert printed == pytest.approx(expected, rel=0.15)
    estimated = [one.calibration.plan.tokens_until(step, 8) for step in (6, 8)]  # for the time left
    assert estimated == pytest.approx([tokens[:6].sum(), tokens.sum()], rel=0.15)
