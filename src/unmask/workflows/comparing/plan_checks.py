"""Refusal of plans that cannot be computed as they are: by what their arms are, on this machine, in this directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unmask.data.tokenizers.load import load_tokenizer
from unmask.inference.evaluation.likelihood import HEADS, lm_head
from unmask.metrics.comparison.decision import listed
from unmask.model.directory import find
from unmask.model.model import load_model
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument
from unmask.training.machine import Machine
from unmask.workflows.comparing.cells import OF_ALL, RUN, SCORED, Cell, Plan, about, folder_of, result_of
from unmask.workflows.comparing.planner import Planner, step_tokens
from unmask.workflows.comparing.settings import Budget, errors_of
from unmask.workflows.comparing.work import COMPARISON, weights_bytes
from unmask.workflows.distillation.general import check_distillation
from unmask.workflows.pretraining.search import SHARE, check_trials

UNTASKED = "remove it, or compare on a task"
TRAINED = 4
"""What weights that are trained take in memory, compared with themselves: with gradients, and two averages of the
optimizer."""
SHOWN = 5
"""Maximum number of cells that a message names."""


def check_language_models(planner: Planner) -> None:
    """Check that all arms are language models whose bits can be compared.

    Raises:
        UserError: an arm is none, some are masked language models and others are not, or some do not predict the case
            of letters.
    """
    heads, cased = dict[str, str](), dict[str, bool]()
    for name, arm in planner.arms.items():
        if arm.trains:
            recipe = planner.recipe(name, arm, 0, 1.0)
            heads[name] = next((head for head in HEADS if head in recipe.objectives), "")
            if "replaced_token" in recipe.objectives or not heads[name]:
                raise UserError(f"arm '{name}' is no language model: it gives no token a probability", remedy=UNTASKED)
        else:
            with errors_of(name):
                heads[name] = lm_head(load_model(arm.model))
        lowercase = load_tokenizer(find(arm.model)).lowercase if arm.model else recipe.tokenizer.lowercase
        cased[name] = not lowercase
    masked = {name: head == "masked_lm" for name, head in heads.items()}
    _refuse_mixed(masked, "is a masked language model", "is not")
    _refuse_mixed(cased, "distinguishes upper and lower case", "does not")


def _refuse_mixed(kinds: Mapping[str, bool], is_so: str, is_not: str) -> None:
    """Refuse to compare the bits of arms of both kinds."""
    first, second = (next((name for name, kind in kinds.items() if kind is which), "") for which in (True, False))
    if first and second:
        raise UserError(
            f"'{first}' {is_so}, and '{second}' {is_not}: their bits per character cannot be compared", remedy=UNTASKED
        )


def check_teachers(planner: Planner) -> None:
    """Check that the students of checkpoints can learn from them.

    Raises:
        UserError: one cannot.
    """
    for name, arm in planner.arms.items():
        if arm.way == "distill":
            recipe = planner.recipe(name, arm, 0, 1.0)
            with errors_of(name):
                check_distillation(recipe, arm.model)


def check_memory(plan: Plan, machine: Machine) -> None:
    """Check that weights, gradients and the optimizer's state of each arm fit into memory.

    Raises:
        UserError: those of an arm do not.
    """
    available = machine.available_memory()
    for cell in plan.cells:
        if cell.seed or cell.kind not in ("pretraining", "score"):
            continue
        needed = TRAINED * weights_bytes(cell)
        if available and needed > available:
            raise UserError(
                f"arm '{cell.arm}' needs {needed / 1e9:.1f} GB for its weights and their training, more than the "
                f"{available / 1e9:.1f} GB available",
                remedy="remove it, or use a machine with more memory",
            )


def check_minutes(planner: Planner, plan: Plan, machine: Machine) -> None:
    """Check that a budget in minutes is not clearly below a step of an arm.

    The operations of a step are counted at the machine's peak, of which training reaches a part.

    Raises:
        UserError: it is.
    """
    cells = [cell for cell in plan.of("pretraining") if not cell.seed and cell.paths["recipe"].budget.minutes]
    peak = machine.matmul_peak() if cells else 0.0
    for cell in cells:
        recipe, minutes = cell.paths["recipe"], cell.paths["recipe"].budget.minutes
        tokens = step_tokens(recipe)
        seconds = tokens * planner.flops(planner.arms[cell.arm], recipe) / peak
        if 60 * minutes < seconds:
            part = "" if cell.share == 1 else f" of which the outlook begins with {cell.share:g}"
            enough = Budget(seconds / 60 / SHARE / cell.share, "minutes")
            raise UserError(
                f"arm '{cell.arm}': the budget{part}, {Budget(minutes, 'minutes')}, is less than a step of {tokens:,} "
                f"tokens, which takes at least {seconds:.2g} seconds here",
                remedy=f"pass {argument('budget', enough.written)} or more",
            )


def check_searches(plan: Plan) -> None:
    """Check that the short runs that choose the learning rates of pretraining are not less than a step.

    Raises:
        UserError: those of an arm are.
    """
    for cell in plan.of("pretraining"):
        if cell.inputs["search"]:
            with errors_of(cell.arm):
                check_trials(cell.paths["recipe"])


def check_changed(plan: Plan, out: Path, *, recompute: bool) -> list[str]:
    """Check that finished cells of an earlier comparison in the directory are those of this one, or not in it.

    Returns:
        The names of finished scores that are not in this comparison, so that its report will not have them.

    Raises:
        UserError: nothing that is finished of arms is in this comparison, some would be computed again, or there is
            something else.
    """
    if not (out / COMPARISON).exists():
        if out.exists() and any(entry.name != "cells" for entry in out.iterdir() if not entry.name.startswith(".")):
            raise UserError(
                "is not the directory of a comparison", file=out, remedy=f"choose another {argument('out')}"
            )
        return []
    finished = {path.parent.name: about(path.parent) for path in out.glob("cells/*/result.json")}
    planned = {cell.key: cell.name for cell in plan.cells}
    names, current = set(planned.values()), {name for key, name in planned.items() if key in finished}
    of_arms = {key: cell for key, cell in finished.items() if cell.kind not in OF_ALL}
    others = {key: cell for key, cell in of_arms.items() if key not in planned and cell.name not in names}
    if others and len(others) == len(of_arms):
        theirs, ours = some(sorted(cell.name for cell in others.values())), listed(list(plan.arms))
        raise UserError(
            f"is the directory of another comparison ({theirs}), whose report would be replaced by that of {ours}",
            file=out,
            remedy=f"choose another {argument('out')}, or add these arms to the other comparison",
        )
    known = {cell.name for cell in finished.values()}
    again = sorted({name for key, name in planned.items() if key not in finished} & known - current)
    if again and not recompute:
        raise UserError(
            f"the comparison has changed: {len(again)} finished cells would be computed again ({some(again)})",
            file=out,
            remedy=f"pass {argument('recompute', True)}, or choose another {argument('out')}",
        )
    return sorted(cell.name for cell in others.values() if cell.kind in SCORED)


def check_kept(plan: Plan, out: Path, *, recompute: bool) -> list[Cell]:
    """Check that models are there that were not kept when they were finished, as no student learned from them.

    Returns:
        The cells that have to be computed again for them.

    Raises:
        UserError: there are such cells, and they are not to be computed again.
    """
    waiting = [cell for cell in plan.cells if cell.kind == "score" and result_of(out, cell) is None]
    needed = {other.key: other for cell in waiting for other in cell.needs.values() if other.kind == "score"}
    lost = [cell for cell in needed.values() if result_of(out, cell) and not (folder_of(out, cell) / RUN).exists()]
    if lost and not recompute:
        raise UserError(
            f"students are to learn from models that were not kept, so {counted(len(lost), 'finished cell')} would be "
            f"computed again ({some([cell.name for cell in lost])})",
            file=out,
            remedy=f"pass {argument('recompute', True)}, or choose another {argument('out')}",
        )
    return lost


def some(names: Sequence[str]) -> str:
    """Return the first of the names of cells, and how many more there are."""
    return "; ".join(names[:SHOWN]) + (f"; and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
