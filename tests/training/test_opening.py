"""Processes that would not train the same are refused before a run is created, with what differs."""

import pytest

from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides, write
from unmask.training import restoring as opening
from unmask.training.restoring import check_agreement, open_run
from unmask.training.runs.directory import RunDirectory

from .conftest import CPU
from .together import together

INPUTS = {"corpus": "a" * 64, "init": "none"}


def opened(tmp_path, *differing, size=3, **last):
    """Open a run in several processes, the last of which differs; return what each of them returns or raises."""

    def work(processes):
        odd = processes.rank == size - 1
        recipe = write(read_recipe("bert-tiny", parse_overrides(differing if odd else [])))
        inputs = INPUTS | (last.get("inputs", {}) if odd else {})
        machine = last.get("machine", CPU) if odd else CPU
        out = tmp_path / f"host-{processes.rank}" / "run"
        with open_run(out, recipe, inputs, machine, processes, resume=odd and last.get("resume", False)) as run:
            return run.is_main, run.path

    return together(size, work)


def test_only_the_main_process_creates_a_directory(tmp_path):
    assert opened(tmp_path) == [(rank == 0, tmp_path / f"host-{rank}" / "run") for rank in range(3)]
    assert [path.name for path in tmp_path.iterdir()] == ["host-0"]
    assert (tmp_path / "host-0" / "run" / "recipe.toml").exists()


@pytest.mark.parametrize(
    ("differing", "last", "message"),
    [
        (["seed=3"], {}, "seed is 3, in process 0 it is 0"),
        (
            ["optimizer.learning_rate=0.5", "seed=1"],
            {},
            r"optimizer.learning_rate is 0.5, in process 0 it is [\d.e-]+; seed is 1, in process 0 it is 0",
        ),
        (["objective.next_sentence.weight=0.5"], {}, "objective.next_sentence.weight is 0.5, in process 0 it is 1.0"),
        ([], {"inputs": {"corpus": "b" * 64}}, "inputs.corpus is bbbbbbbbbbbb, in process 0 it is aaaaaaaaaaaa"),
        ([], {"inputs": {"init": "c" * 64}}, "inputs.init is cccccccccccc, in process 0 it is none"),
        ([], {"resume": True}, "resume is True, in process 0 it is False"),
        ([], {"machine": opening.Machine(CPU.device, "bf16")}, "inputs.precision is bf16, in process 0 it is float32"),
    ],
)
def test_T25_what_differs_is_named_by_all_processes(tmp_path, differing, last, message):
    errors = opened(tmp_path, *differing, **last)
    for error in errors:
        with pytest.raises(UserError, match=rf"in process 2 \(on \S+\) {message}; start all of them with the same"):
            raise error
    assert not list(tmp_path.iterdir())


def test_T25_versions_and_code_are_compared(tmp_path, monkeypatch):
    here = opening.environment(opening.LIBRARIES)
    assert {"code of unmask", "version of torch", "version of python", "version of unmask"} <= here.keys()

    def work(processes):
        changed = {"code of unmask": "0" * 64} if processes.rank == 1 else {}
        check_agreement(processes, here | changed)

    for error in together(2, work):
        assert isinstance(error, UserError)
        assert "code of unmask is 000000000000, in process 0 it is " in str(error)


def test_processes_that_differ_in_the_same_way_are_named_once():
    def work(processes):
        check_agreement(processes, {"seed": int(processes.rank > 1)})

    (message,) = {str(error) for error in together(4, work)}
    assert message.startswith("the processes would not train the same: in process 2, 3 (on ")
    assert message.count("seed") == 1


def test_the_comparison_sees_a_single_difference_among_many_values():
    """A planted fault: without a comparison of all values, one of them would pass."""
    values = {f"value {number}": number for number in range(100)}

    def work(processes):
        check_agreement(processes, values | ({"value 50": -1} if processes.rank else {}))

    assert "value 50 is -1, in process 0 it is 50" in str(together(2, work)[0])
    assert together(2, lambda processes: check_agreement(processes, values)) == [None, None]


def test_a_run_that_cannot_be_opened_is_not_opened_by_the_others(tmp_path):
    (tmp_path / "host-0" / "run").mkdir(parents=True)
    (tmp_path / "host-0" / "run" / "notes.txt").write_text("mine")
    errors = opened(tmp_path)
    assert isinstance(errors[0], UserError)
    assert not any(isinstance(error, tuple | RunDirectory) for error in errors)
