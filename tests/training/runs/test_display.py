"""The progress line: loss, tokens and operations per second, share of the peak, remaining time."""

import math
from types import SimpleNamespace

import pytest

from unmask.training.runs import display
from unmask.training.runs.display import Display, duration, speed


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (18600, "5 h 10 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((4.12e11,), "412 GFLOP/s"),
        ((4.12e11, 8e11), "412 GFLOP/s (52 % of peak)"),
        ((1.234e9,), "1.2 GFLOP/s"),
        ((3.0e6,), "0.0 GFLOP/s"),
        ((2.345e14, 6e14), "234.5 TFLOP/s (39 % of peak)"),
    ],
)
def test_speeds(arguments, text):
    assert speed(*arguments) == text


@pytest.fixture
def lines(monkeypatch, capsys):
    """Shows steps and returns the printed lines."""
    monkeypatch.setattr(display, "LINE_SECONDS", -1)

    def show(steps, peak=None, work=float):
        progress = SimpleNamespace(step=0, total=10, tokens=0)
        with Display().bar(progress, peak, work) as advance:
            for metrics in steps:
                progress.step += 1
                advance(metrics)
        return capsys.readouterr().err.splitlines()

    return show


STEP = {"loss": 5.0, "tokens_per_second": 6700.4, "flops_per_second": 4.1e11}


def test_a_line_shows_speed_and_share_of_the_peak(lines):
    assert lines([STEP], 8.2e11) == ["step 1/10  loss 5.000  0 s left  6,700 tokens/s  410 GFLOP/s (50 % of peak)"]
    assert lines([STEP]) == ["step 1/10  loss 5.000  0 s left  6,700 tokens/s  410 GFLOP/s"]


def test_the_time_left_knows_that_later_steps_are_longer(lines, replace_time):
    seconds = 0.0
    replace_time(display, monotonic=lambda: seconds)

    def steps():
        nonlocal seconds
        for _ in range(2):
            seconds += 1
            yield STEP

    first, second = lines(steps(), work=lambda step: step + 9 * max(0, step - 8))  # 8 of 1 second, 2 of 10
    assert "27 s left" in first
    assert "26 s left" in second


def test_T14_a_skipped_step_does_not_hide_the_loss(lines):
    first, second, third = lines([STEP | {"loss": math.nan}, STEP, STEP | {"loss": math.inf}])
    assert "loss nan" in first
    assert "loss 5.000" in second
    assert "loss 5.000" in third


def test_work_items_are_counted_as_they_are_done(monkeypatch, replace_time, capsys):
    seconds = 0.0
    monkeypatch.setattr(display, "LINE_SECONDS", -1)
    replace_time(display, monotonic=lambda: seconds)
    for _ in Display().count([[100, 400], [1500]], sum):
        seconds += 2
    assert capsys.readouterr().err.splitlines() == [
        "500 of 2,000 tokens  6 s left  250 tokens/s",
        "2,000 of 2,000 tokens  0 s left  500 tokens/s",
    ]


@pytest.mark.parametrize("quiet", [False, True])
def test_the_items_are_yielded_unchanged_and_quiet_prints_nothing(monkeypatch, capsys, quiet):
    monkeypatch.setattr(display, "LINE_SECONDS", -1)
    assert list(Display(quiet=quiet).count([3, 1, 2], int)) == [3, 1, 2]
    assert list(Display(quiet=quiet).count([], int)) == []
    assert bool(capsys.readouterr().err) != quiet


class Shell:
    """A shell of IPython in a notebook, which has a kernel."""

    kernel = object()


@pytest.mark.parametrize(("shell", "rewritten"), [(Shell, True), (object, False), (None, False)])
def test_a_notebook_shows_one_line_that_is_rewritten(monkeypatch, capsys, shell, rewritten):
    monkeypatch.setattr(display, "REWRITE_SECONDS", 0)
    if shell is not None:
        monkeypatch.setattr("builtins.get_ipython", shell, raising=False)
    assert display.in_notebook() is rewritten
    shown = display.Display()
    list(shown.count([1, 2], tokens=lambda size: size))
    shown.say("done")
    lines = capsys.readouterr().err.split("\r")
    assert (len(lines) == 5) is rewritten
    assert lines[-1] == "done\n"
    if rewritten:
        assert [line.split(" tokens")[0] for line in lines[1:3]] == ["1 of 3", "3 of 3"]
        assert not lines[3].strip()
    list(display.Display(quiet=True).count([1, 2], tokens=lambda size: size))
    assert capsys.readouterr().err == ""
