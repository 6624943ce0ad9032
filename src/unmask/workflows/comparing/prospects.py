"""What scores say beyond the arms that were trained: effects of factors, more budget, more examples."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from unmask.metrics.comparison.effects import main_effects
from unmask.metrics.comparison.multibootstrap import Resampled
from unmask.metrics.comparison.outlook import MIN_BUDGETS, extrapolate
from unmask.support.errors import UserError
from unmask.workflows.comparing.cells import OUTLOOK, Plan
from unmask.workflows.comparing.design import combined, name_of
from unmask.workflows.comparing.outcome import Effect, Estimate, Prospect
from unmask.workflows.comparing.scores import Scores

TIMES, MORE_EXAMPLES = (4.0, 10.0), (2.0, 4.0)
"""Multiples of the budget of an outlook, and of the largest number of training examples."""


def effects(plan: Plan, overall: Mapping[str, Resampled], notes: list[str]) -> list[Effect]:
    """Return the effects of the factors, by the arms that have scores.

    `notes` receives which arms have none, and whether the others tell nothing.
    """
    factors = plan.comparison.vary
    values = combined(factors, plan.comparison.design) if factors else {}
    names: dict[tuple[Hashable, ...], str] = {each: name_of(factors, each) for each in values}
    if not names or not overall:
        return []
    if missing := [name for name in names.values() if name not in overall]:
        notes.append(f"What each choice changes is told without {'; '.join(missing)}, whose scores are not complete")
    try:
        changes = main_effects(factors, {each: overall[name] for each, name in names.items() if name in overall})
    except UserError as error:
        notes.append(f"What each choice changes cannot be told: {error.message}")
        return []
    sign = 1 if plan.tasks else -1
    return [Effect(e.factor, str(e.level), str(e.baseline), signed(sign, e.value, *e.interval)) for e in changes]


def signed(sign: int, mean: float, low: float, high: float) -> Estimate:
    """Return an estimate, or with the sign -1 its negative."""
    return Estimate(mean, low, high) if sign > 0 else Estimate(-mean, -high, -low)


def prospects(scores: Scores, notes: list[str]) -> list[Prospect]:
    """Return where arms that are trained on text would stand with more budget, if they were trained with less, too.

    `notes` receives of which arms nothing can be extrapolated.
    """
    plan = scores.plan
    if not plan.comparison.outlook:
        return []
    by_share = {share: Scores(plan, scores.out, share).overall() for share in OUTLOOK} | {1.0: scores.overall()}
    expected: list[Prospect] = []
    for name in (name for name, arm in plan.arms.items() if arm.trains):
        scored = {share: overall[name] for share, overall in by_share.items() if name in overall}
        points = [(share, float(score)) for share, arm in scored.items() for score in arm.scores]
        if len({share for share, _ in points}) <= len(OUTLOOK):
            continue
        shares, values = zip(*points, strict=True)
        expected += _extrapolated(name, shares, values, TIMES, by_share[1.0][name].lowest, notes)
    return expected


def _extrapolated(
    arm: str,
    sizes: Sequence[float],
    values: Sequence[float],
    times: Sequence[float],
    low: float | None,
    notes: list[str],
    task: str = "",
) -> list[Prospect]:
    """Return where an arm would stand with multiples of the largest size, given its scores by size.

    Nothing where scores get worse with the size: `notes` then receives why.

    Args:
        arm, task: see `Prospect`.
        sizes, values: (runs,) each; scores without a range are minus bits per character.
        times: the multiples.
        low: lower end of the scores' range; None: they have none.
        notes: see above.
    """
    bounds = (min(values), 0.0) if low is None else (low, 100.0)
    targets = [each * max(sizes) for each in times]
    try:
        outlook, sign = extrapolate(sizes, values, targets, bounds=bounds), -1 if low is None else 1
    except UserError as error:
        notes.append(f"{f'{task}: ' if task else ''}nothing can be extrapolated for {arm}: {error.message}")
        return []
    ends = zip(times, outlook.scores.tolist(), outlook.low.tolist(), outlook.high.tolist(), strict=True)
    return [Prospect(arm, each, signed(sign, *estimate), task) for each, *estimate in ends]


def by_examples(plan: Plan) -> dict[str, list[str]]:
    """Return the names of tasks that differ in the number of examples alone, fewest first, by their common name."""
    return {
        name: [f"{name}-{number}" for number in sorted(data.examples)]
        for name, data in plan.comparison.tasks.items()
        if len(data.examples) > 1
    }


def more_examples(scores: Scores, notes: list[str]) -> list[Prospect]:
    """Return what arms would score with more training examples, if they learned from several numbers of them.

    `notes` receives of which arms nothing can be extrapolated.
    """
    plan, expected = scores.plan, list[Prospect]()
    for name, tasks in by_examples(plan).items():
        for arm in plan.arms if len(tasks) >= MIN_BUDGETS else ():
            scored = [(plan.tasks[task].limit or 0, scores.of_task(arm, task)) for task in tasks]
            points = [(size, float(value)) for size, part in scored if part for value in part.scores]
            if len({size for size, _ in points}) == len(tasks):
                low = next(part.lowest for _, part in scored if part)
                sizes, values = zip(*points, strict=True)
                expected += _extrapolated(arm, sizes, values, MORE_EXAMPLES, low, notes, name)
    return expected
