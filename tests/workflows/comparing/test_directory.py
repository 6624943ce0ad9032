"""What is refused of a plan in the directory and on the machine where it is to be computed, and what is told."""

import re

import msgspec
import pytest

import unmask
from unmask.support.errors import UserError
from unmask.training.machine import Machine, choose_machine
from unmask.workflows.comparing import work
from unmask.workflows.comparing.cells import ABOUT, RUN, folder_of
from unmask.workflows.comparing.plan_checks import check_changed, check_kept, check_minutes
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.settings import Arm, TaskData, read_comparison

from .test_report import faked

MACHINE = choose_machine("cpu", "float32")
BERT, RANDOM = Arm(recipe="bert-tiny"), Arm(recipe="bert-tiny", way="random")


def planner(inputs, **changes):
    settings = msgspec.structs.replace(read_comparison(inputs / "pets.toml"), **changes)
    return Planner(settings, settings.named_arms(), "float32")


@pytest.fixture
def earlier(inputs, tmp_path):
    """The directory of a comparison whose scores are finished."""
    plan = planner(inputs).plan()
    faked(plan, tmp_path, lambda cell: 0.7)
    for cell in plan.of("score"):
        described = {"name": cell.name, "kind": cell.kind}
        (folder_of(tmp_path, cell) / ABOUT).write_bytes(msgspec.json.encode(described))
    work.write_plan(plan.comparison, tmp_path)
    return tmp_path


def other_arms(inputs):
    arms = {"wide": Arm(recipe="bert-tiny", settings={"encoder.width": 64}), "wider": Arm(recipe="bert-mini")}
    return planner(inputs, arms=arms).plan()


@pytest.mark.parametrize("recompute", [False, True])
def test_another_comparison_in_the_directory_is_refused(inputs, earlier, recompute):
    """Both have the same text and labels: the report of one would have replaced that of the other."""
    message = r"another comparison \(score: bert, pets, seed 0; .*\), whose report would be .* that of wide, wider"
    with pytest.raises(UserError, match=message):
        check_changed(other_arms(inputs), earlier, recompute=recompute)


def test_another_comparison_is_refused_before_anything_is_written(inputs, earlier):
    before = {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}
    words = {"text": inputs / "text.txt", "train": inputs / "train.tsv", "budget": "20ktok", "first": False}
    with pytest.raises(UserError, match="is the directory of another comparison"):
        unmask.compare(arms="bert-mini,modernbert-tiny", out=earlier, device="cpu", precision="float32", **words)
    assert before == {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}


def test_what_is_finished_and_no_longer_compared_is_told(inputs, earlier):
    def left_out(**changes):
        return check_changed(planner(inputs, **changes).plan(), earlier, recompute=False)

    assert left_out() == [] == left_out(seeds=3)
    assert left_out(arms={"bert": BERT, "random": RANDOM, "wide": Arm(recipe="bert-mini")}) == []
    assert left_out(arms={"new name": BERT, "random": RANDOM}) == [], "names do not matter"
    without = left_out(arms={"bert": BERT, "wide": Arm(recipe="bert-mini")})
    assert without == ["score: random, pets, seed 0", "score: random, pets, seed 1"]
    assert left_out(seeds=1) == ["score: bert, pets, seed 1", "score: random, pets, seed 1"]
    data = TaskData(train=[str(inputs / "train.tsv")])
    with pytest.raises(UserError, match="is the directory of another comparison"):
        left_out(tasks={"others": data})
    added = planner(inputs).comparison.tasks | {"others": data}
    assert left_out(tasks=added) == []


def test_a_student_of_an_arm_whose_models_were_not_kept(inputs, earlier):
    """Only that of the first seed was; its teacher is computed again with the second one, if the user wants it."""
    arms = {"bert": BERT, "random": RANDOM, "student": Arm(teacher="bert", recipe="tinybert-mini", layers=1)}
    settings = {**planner(inputs).comparison.task_settings, "objective.layer_matching": False}
    arms["student"] = msgspec.structs.replace(arms["student"], task_settings=settings)
    plan = planner(inputs, arms=arms).plan()
    first, second = (cell for cell in plan.of("score") if cell.arm == "bert")
    (folder_of(earlier, first) / RUN).mkdir()
    with pytest.raises(UserError, match=r"were not kept, so 1 finished cell would .*\(score: bert, pets, seed 1\)"):
        check_kept(plan, earlier, recompute=False)
    assert check_kept(plan, earlier, recompute=True) == [second]
    assert check_kept(planner(inputs).plan(), earlier, recompute=False) == [], "no student needs it"


@pytest.mark.parametrize("share", [1, 8])
def test_a_budget_of_minutes_below_a_step_is_refused(inputs, monkeypatch, share):
    """A step of 256 tokens takes a second at the speed of this machine, and an outlook begins with an eighth of it."""
    flops = planner(inputs).flops(BERT, planner(inputs, budget="1min").recipe("bert", BERT, 0, 1.0))
    monkeypatch.setattr(Machine, "matmul_peak", lambda self: 256 * flops)

    def check(budget):
        made = planner(inputs, budget=budget, outlook=share == 8)
        check_minutes(made, made.plan(), MACHINE)

    message = r"arm 'bert': the budget.*, .* seconds, is less than a step of 256 tokens, .* at least 1 seconds here"
    with pytest.raises(UserError, match=message) as error:
        check(f"{0.99 * share}s")
    check(f"{1.01 * share}s")
    check(re.search(r"pass budget=\D*([\d.]+(s|min))", str(error.value))[1])


def test_a_budget_of_minutes_below_a_step_is_refused_before_anything_is_trained(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(Machine, "matmul_peak", lambda self: 1e6)
    words = {"text": inputs / "text.txt", "train": inputs / "train.tsv", "budget": "1s"}
    with pytest.raises(UserError, match="arm 'bert-tiny': the budget, 1 second, is less than a step"):
        unmask.compare(arms="bert-tiny,random", out=tmp_path / "out", device="cpu", precision="float32", **words)
    assert not (tmp_path / "out").exists()


def test_a_budget_of_too_few_steps_for_a_search_is_refused_before_anything_is_trained(inputs, tmp_path):
    words = {"text": inputs / "text.txt", "train": inputs / "train.tsv", "budget": "9ktok", "search": True}
    with pytest.raises(UserError, match=r"arm 'bert-tiny': each of the 3 short runs of a search .* omit search"):
        unmask.compare(arms="bert-tiny,random", out=tmp_path / "out", device="cpu", precision="float32", **words)
    assert not (tmp_path / "out").exists()
