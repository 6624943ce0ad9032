"""Budgets in minutes become steps by timing, the peak is measured, and a budget may only grow."""

import itertools

import pytest

from unmask.support import gpus
from unmask.support.errors import UserError
from unmask.training import calibration, loop, precision
from unmask.training.calibration import check_growth
from unmask.training.checkpoint import Timing
from unmask.training.loop import Trainer
from unmask.training.machine import Machine
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display

from .conftest import CPU, assert_equal, started, weights


def test_a_budget_in_minutes_is_converted_into_steps_once(small, trainer, replace_time):
    clock = itertools.count(0, 0.5)
    replace_time(loop, calibration, perf_counter=lambda: next(clock))
    one = trainer(small(budget={"minutes": 2.0}, schedule={"warmup": 0.9}))
    start = weights(one)
    one.start()
    # each step reads the clock twice, and its timing once
    assert one.progress.total == 120 / 1.5
    assert (one.progress.step, one.progress.tokens, one.progress.cursor) == (0, 0, one.source.start)
    assert_equal(weights(one), start)
    assert one.optimizer.state() == {}
    assert one.progress.timing == Timing((1.5,), 0, 0.0), "timing is not counted"
    first = one.step()
    fresh = trainer(small(budget={"steps": one.progress.total}, schedule={"warmup": 0.9}), out="fresh")
    fresh.start()
    assert fresh.step()["loss"] == first["loss"], "timing leaves no trace"


class Clock:
    """A clock on which a step takes the seconds that `pace` says, of the number of steps before; of -1 when timed."""

    def __init__(self, monkeypatch, replace_time, pace):
        self.now, self.pace, backward = 0.0, pace, Trainer._backward

        def timed(trainer, *others, **settings):
            self.now += self.pace(trainer.progress.step if trainer.progress.total else -1)
            return backward(trainer, *others, **settings)

        monkeypatch.setattr(Machine, "matmul_peak", lambda self: 1e12)
        replace_time(loop, calibration, perf_counter=lambda: self.now)
        monkeypatch.setattr(Trainer, "_backward", timed)


@pytest.mark.parametrize(
    ("pace", "shortest", "longest"),
    [
        (lambda step: 1.0, 60, 60),
        (lambda step: 1.5 if step < 4 else 1.0, 59, 61),  # the first steps are slower
        (lambda step: 1.0 if step < 20 else 2.0, 56, 64),  # something else has begun to work
        (lambda step: 1.0 if step < 20 else 0.5, 56, 64),
    ],
)
def test_a_budget_in_minutes_is_kept_when_steps_take_another_time(
    small, trainer, monkeypatch, replace_time, pace, shortest, longest
):
    Clock(monkeypatch, replace_time, pace)
    one = started(trainer, small(batch={"tokens": 64}, budget={"minutes": 1.0}))
    one.train()
    assert one.progress.step == one.progress.total
    assert one.progress.seconds == pytest.approx(sum(map(pace, range(one.progress.step))))
    assert shortest <= one.progress.seconds <= longest
    rates = [line["learning_rate"] for line in one.run.read_metrics("train")]
    assert rates[-1] < max(rates) / 20, "the schedule ends with the budget"


def test_a_larger_budget_has_no_fewer_steps_where_they_take_longer(small, trainer, monkeypatch, replace_time):
    Clock(monkeypatch, replace_time, lambda step: 1.0)
    one = started(trainer, small(budget={"minutes": 1.0}))
    one.save()
    one.saver.wait()
    Clock(monkeypatch, replace_time, lambda step: 3.0)
    again = trainer(small(budget={"minutes": 2.0}), resume=True)
    again.resume()
    assert again.progress.total == one.progress.total == 60


class Killed(Exception):
    """What ends a trainer between two steps."""


def test_a_budget_in_minutes_of_a_run_that_was_killed_is_that_of_an_undisturbed_one(
    small, trainer, monkeypatch, replace_time
):
    """The steps that are timed are slower than later ones, so more of these fit than were planned at the start."""
    Clock(monkeypatch, replace_time, lambda step: 1.5 if step < 4 else 1.0)
    recipe, step, left = small(batch={"tokens": 64}, budget={"minutes": 1.0}), Trainer.step, []
    one = started(trainer, recipe, out="undisturbed")
    one.train()
    assert one.progress.total > 40, "the number that was planned"

    def limited(trainer):
        if trainer.progress.step in left and trainer.progress.total:
            left.remove(trainer.progress.step)
            trainer.saver.wait()
            raise Killed
        return step(trainer)

    for kills in ((0, 11), (3,), (2, 7, 40)):
        out, left = f"killed at {kills}", list(kills)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "SAVE_SECONDS", -1)
            patch.setattr(Trainer, "step", limited)
            again = started(trainer, recipe, out=out)
            while left:
                with pytest.raises(Killed):
                    again.train()
                again = trainer(recipe, out=out, resume=True)
                again.resume()
        again.train()
        assert again.progress == one.progress
        assert_equal(weights(again), weights(one))


def test_a_resumed_run_keeps_its_number_of_steps_until_it_is_planned_again(small, trainer, monkeypatch, replace_time):
    """Steps now take twice as long, and five of 60 are done; those until a quarter of the budget are not fewer."""
    Clock(monkeypatch, replace_time, lambda step: 1.0)
    one = started(trainer, small(batch={"tokens": 64}, budget={"minutes": 1.0}))
    for _ in range(5):
        one.step()
    one.save()
    one.saver.wait()
    Clock(monkeypatch, replace_time, lambda step: 2.0)
    again = trainer(small(batch={"tokens": 64}, budget={"minutes": 1.0}), resume=True)
    again.resume()
    assert again.progress.total == one.progress.total == 60
    again.train()
    assert 56 <= again.progress.seconds <= 64


@pytest.mark.parametrize(("steps", "expected"), [(200, 80), (50, 50)])
def test_a_limit_in_minutes_shortens_a_budget(small, trainer, replace_time, steps, expected):
    clock = itertools.count(0, 0.5)  # 1.5 seconds a step, as above
    replace_time(loop, calibration, perf_counter=lambda: next(clock))
    one = started(trainer, small(budget={"steps": steps, "max_minutes": 2.0}))
    assert one.progress.total == expected
    assert one.settings.schedule.factor(expected - 1, one.progress.total) < 2 / expected, "the schedule fits"


@pytest.mark.parametrize(("steps", "measured"), [(4, True), (3, False)])
def test_the_peak_is_measured_where_steps_are_timed(small, trainer, monkeypatch, steps, measured):
    monkeypatch.setattr(calibration, "MIN_TIMED", 4)
    peaks, shown = iter([8e11, 7e11]), []
    monkeypatch.setattr(Machine, "matmul_peak", lambda self: next(peaks))
    bar = Display.bar
    monkeypatch.setattr(
        Display, "bar", lambda self, standing, peak, work: (shown.append(peak), bar(self, standing, peak, work))[1]
    )
    recipe = small(budget={"steps": steps})
    one = trainer(recipe)
    one.start()
    one.train()
    machine = one.run.read_provenance().machine
    assert machine == (CPU.describe() | {"matmul_flops_per_second": 800_000_000_000} if measured else {})
    again = trainer(small(budget={"steps": steps + 1}), resume=True)  # accepted as the same run
    again.resume()
    again.train()
    assert again.run.read_provenance().machine["matmul_flops_per_second"] == (7e11 if measured else 8e11)
    assert shown == ([8e11, 7e11] if measured else [None, 8e11])


def test_stages_that_have_ended_do_not_begin_again(staged, trainer, slow, monkeypatch):
    one = started(trainer, staged(budget={"minutes": 10.0}))  # 225 of 300 steps of 1 s, 75 of 5 s
    progress, plan = one.progress, one.calibration.replanned
    for step, seconds, expected in ((75, 75, 300), (75, 60, 375), (75, 150, 150), (150, 75, 600), (225, 112.5, 300)):
        progress.timing, progress.step, progress.seconds = Timing((1.0, 5.0), 0, 0.0), step, float(seconds)
        assert plan(progress, Display(quiet=True)) == pytest.approx(expected, abs=1), (step, seconds)


@pytest.fixture
def slow(monkeypatch, replace_time):
    """A fake clock: a step takes 1 s at the short length and 5 s at the long one."""
    monkeypatch.setattr(Machine, "matmul_peak", lambda self: 1e12)
    now, backward = 0.0, Trainer._backward

    def timed(self, micro_batches, *others, **settings):
        nonlocal now
        now += 5.0 if max(batch.tokens.offsets.diff().max() for batch in micro_batches) > 16 else 1.0
        return backward(self, micro_batches, *others, **settings)

    replace_time(loop, calibration, perf_counter=lambda: now)
    monkeypatch.setattr(Trainer, "_backward", timed)


def test_a_budget_in_minutes_times_each_stage(staged, trainer, slow):
    one = trainer(staged(budget={"minutes": 10.0}))
    start = weights(one)
    one.start()
    assert one.progress.total == 300  # 225 s and 375 s
    assert (one.progress.step, one.progress.cursor) == (0, one.source.start)
    assert_equal(weights(one), start)
    assert one.optimizer.state() == {}


def test_a_larger_budget_in_minutes_times_each_stage_again(staged, trainer, slow):
    one = started(trainer, staged(budget={"minutes": 8 / 60}))
    one.train()
    assert one.progress.step == 4
    larger = trainer(staged(budget={"minutes": 24 / 60}), resume=True)
    larger.resume()
    assert (larger.progress.total, larger.progress.cursor) == (12, one.progress.cursor)


def test_how_a_step_fits_into_memory_changes_no_budget_in_minutes(staged, trainer, slow, monkeypatch):
    one = started(trainer, staged(budget={"minutes": 8 / 60}))
    one.train()
    monkeypatch.setattr(Trainer, "_seconds_per_step", lambda self, stage: 0.01)  # a faster machine
    again = trainer(staged(budget={"minutes": 8 / 60}, batch={"tokens": 512, "micro_tokens": 100}), resume=True)
    again.run.changed = frozenset({"batch.micro_tokens"})
    again.resume()
    assert (again.progress.total, again.progress.micro_tokens) == (4, 100)


@pytest.mark.parametrize(
    ("fits", "expected"),
    [
        ((40, 300), 40),  # the first stage limits
        ((8192, 300), 300),  # all of its steps fit, so that it does not
        ((8192, 9000), 9000),
    ],
)
def test_micro_batches_fit_in_every_stage(staged, trainer, monkeypatch, fits, expected):
    def fitting(samples, learn, machine, *, reserve, joint, most):
        learn(samples)
        return fits[samples[0].stage]

    monkeypatch.setattr(calibration, "find_micro_tokens", fitting)
    one = trainer(staged("document_sentences", batch={"tokens": 512, "micro_tokens": "auto"}, budget={"steps": 2}))
    one.start()
    assert one.progress.micro_tokens == expected


def test_trials_of_one_process_do_not_wait_for_the_others(small, trainer, monkeypatch):
    """The trials of a process depend on its own samples; another process may run none."""
    monkeypatch.setattr(precision, "SMALL", 64)
    monkeypatch.setattr(precision, "PROBE", 256)
    one = trainer(small(batch={"micro_tokens": "auto"}, budget={"steps": 2}))
    lasts, backward = [], one.replicas.backward

    def noted(batch, factors, *, last):
        lasts.append(last)
        return backward(batch, factors, last=last)

    one.replicas.backward = noted
    one.start()
    assert lasts == [False, False]
    one.step()
    assert lasts[-1]


def test_a_budget_may_grow_but_not_shrink(small, trainer):
    one = started(trainer, small(budget={"steps": 4}))
    one.train()
    smaller = trainer(small(budget={"steps": 3}), resume=True)
    with pytest.raises(UserError, match="was 4 steps and would be 3; it may only grow"):
        smaller.resume()
    larger = trainer(small(budget={"steps": 6}), resume=True)
    larger.resume()
    larger.train()
    assert [line["step"] for line in larger.run.read_metrics("train")] == [1, 2, 3, 4, 5, 6]
    assert larger.run.read_metrics("train")[-1]["learning_rate"] == pytest.approx(1e-3 / 6)


def test_a_larger_budget_is_not_forgotten_when_its_resume_is_killed(small, trainer, monkeypatch):
    one = started(trainer, small(budget={"steps": 2}))
    one.train()
    larger = trainer(small(budget={"steps": 4}), resume=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_plan", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        larger.resume()
    again = trainer(small(budget={"steps": 4}), resume=True)
    again.resume()
    assert again.progress.total == 4


def test_a_changed_number_of_steps_is_reported(tmp_path, capsys):
    run = RunDirectory(tmp_path / "run")
    check_growth(0, 5, run, Display())
    check_growth(5, 5, run, Display())
    assert capsys.readouterr().err == ""
    check_growth(5, 8, run, Display())
    assert capsys.readouterr().err == "the budget was 5 steps; the schedule continues to the new end\n"
    with pytest.raises(UserError, match=r"the budget was 8 steps and would be 5; it may only grow; resume with"):
        check_growth(8, 5, run, Display())


@pytest.mark.parametrize(
    ("budget", "tokens", "compiles"),
    [
        ({"minutes": 10.0}, 8_192, True),
        ({"minutes": 9.0}, 8_192, False),
        ({"minutes": 10.0}, 8_191, False),
        ({"steps": 10_000}, 8_192, True),
        ({"steps": 9_999, "max_minutes": 60.0}, 8_192, False),
    ],
)
def test_layers_are_compiled_on_gpus_in_long_runs_of_large_steps(small, trainer, monkeypatch, budget, tokens, compiles):
    one = trainer(small(budget=budget)).calibration
    monkeypatch.setattr(one.plan, "tokens", tokens)
    assert not one.compiles(), "a CPU has no such kernels"
    monkeypatch.setattr(gpus, "has_triton", lambda device: True)
    assert one.compiles() == compiles
    for chosen in (True, False):
        monkeypatch.setattr(one, "settings", small(budget=budget, batch={"tokens": 64, "compile": chosen}))
        assert one.compiles() is chosen


def test_compiling_needs_a_gpu(small, trainer):
    with pytest.raises(UserError, match=r'batch.compile = true needs a GPU .*set batch.compile to false or "auto"'):
        trainer(small(batch={"tokens": 64, "compile": True}))
