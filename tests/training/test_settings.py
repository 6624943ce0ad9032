"""Schedules are pure functions of step and total that end with the budget; settings out of range are refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.recipes.recipe import read_recipe
from unmask.training.optimizer_settings import AdamWSettings
from unmask.training.settings import ScheduleSettings

COSINE = [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0]
STABLE = {"kind": "warmup_stable_decay"}


@pytest.mark.parametrize(
    ("settings", "total", "expected"),
    [
        ({"warmup": 0.4}, 10, [0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0]),
        ({"warmup": 0.0}, 4, [1, 0.75, 0.5, 0.25, 0]),
        ({"warmup": 0.9}, 1, [1, 0]),
        ({"warmup": 0.5}, 1, [1, 0]),
        ({"kind": "constant", "warmup": 0.5}, 4, [0.5, 1, 1, 1, 1]),
        ({"kind": "cosine", "warmup": 0.0}, 4, COSINE),
        ({"kind": "cosine", "warmup": 0.5}, 8, [0.25, 0.5, 0.75, 1, *COSINE]),
        ({"kind": "cosine", "warmup": 0.5}, 1, [1, 0]),
        (STABLE | {"warmup": 0.2, "decay": 0.4}, 10, [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0]),
        (STABLE | {"warmup": 0.0, "decay": 1.0}, 4, [1, 0.75, 0.5, 0.25, 0]),
        (STABLE | {"warmup": 0.9, "decay": 0.1}, 10, [*(step / 9 for step in range(1, 10)), 1, 0]),
        (STABLE | {"warmup": 0.1, "decay": 0.1}, 2, [1, 1, 0]),
    ],
)
def test_schedule(settings, total, expected):
    schedule = ScheduleSettings(**settings)
    assert [schedule.factor(step, total) for step in range(total + 1)] == pytest.approx(expected)


def schedules(warmup, decay):
    return [
        *(ScheduleSettings(kind=kind, warmup=warmup) for kind in ("linear", "cosine", "constant")),
        ScheduleSettings(kind="warmup_stable_decay", warmup=warmup, decay=min(decay, 1 - warmup)),
    ]


@given(st.floats(0, 0.9), st.floats(0.01, 1), st.integers(1, 300))
def test_every_schedule_rises_once_and_falls_once_to_the_end_of_the_budget(warmup, decay, total):
    for schedule in schedules(warmup, decay):
        factors = [schedule.factor(step, total) for step in range(total + 1)]
        top = factors.index(max(factors))
        assert factors[:top] == sorted(factors[:top])
        assert factors[top:] == sorted(factors[top:], reverse=True)
        assert all(0 < factor <= 1 for factor in factors[:-1]), "every step of the budget has a positive rate"
        assert factors[-1] == pytest.approx(1 if schedule.kind == "constant" else 0), "0 when the budget is spent"
        assert max(factors) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (STABLE, "such as 0.1, goes with"),
        ({"decay": 0.1}, "goes with schedule.kind"),
        (STABLE | {"decay": 0.0}, "0 < decay <= 1 - warmup"),
        (STABLE | {"decay": math.nan}, "0 < decay <= 1 - warmup"),
        (STABLE | {"decay": 0.6, "warmup": 0.5}, "0 < decay <= 1 - warmup"),
        ({"warmup": 1.0}, "0 <= warmup < 1"),
        ({"warmup": -0.1}, "0 <= warmup < 1"),
    ],
)
def test_invalid_schedules_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ScheduleSettings(**settings)


@pytest.mark.parametrize("layer_decay", [0.0, -0.5, 1.1, math.nan])
def test_a_layer_decay_out_of_range_is_refused(layer_decay):
    with pytest.raises(ValueError, match=r"layer_decay must lie in \(0, 1\]"):
        AdamWSettings(layer_decay=layer_decay)


def test_half_lives_mean_the_same_at_any_batch_size():
    """After a half-life's tokens the weight of a gradient has halved, whatever the number of steps they take."""
    settings = AdamWSettings(half_lives=(4e4, 1e7))
    for tokens in (512, 4096):
        first, second = settings.decays(tokens)
        assert first ** (4e4 / tokens) == pytest.approx(0.5)
        assert second ** (1e7 / tokens) == pytest.approx(0.5)


def test_betas_are_those_of_adamw_unless_half_lives_are_set():
    assert AdamWSettings().decays(1024) == (0.9, 0.999)
    assert AdamWSettings(betas=(0.8, 0.9)).decays(1024) == (0.8, 0.9)
    with pytest.raises(ValueError, match="at most one of"):
        AdamWSettings(betas=(0.9, 0.99), half_lives=(1e4, 1e6))


def test_another_kind_loses_what_only_muon_has():
    recipe = read_recipe("modernbert-mini", {"optimizer.kind": "adamw", "optimizer.learning_rate": 1e-3})
    assert recipe.optimizer == AdamWSettings(
        learning_rate=1e-3, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=0.01, clip=1.0
    )
