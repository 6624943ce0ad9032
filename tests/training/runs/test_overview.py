"""A table of runs with one line each, and a page on one run."""

import json

import pytest

from unmask.support.errors import UserError
from unmask.training.runs.summary import read_run, read_seeds, run_page, runs_table, seeds_page


def test_one_line_per_run_in_columns(make_run):
    finished = make_run("finished")
    stopped = make_run("stopped", logged=4, saved=2, report=False, recipe='[task]\nkind = "classification"\n')
    text = runs_table([read_run(finished), read_run(stopped)])
    heading, first, second = text.splitlines()
    for name, cells in {
        "run": (str(finished), str(stopped)),
        "recipe": ("bert-mini  ", "classification  "),
        "kind": ("pretraining  ", "fine-tuning  "),
        "state": ("finished  ", "stopped at step 2 of 8  "),
        "steps": ("8  ", "2  "),
        "tokens": ("8,000  ", "2,000  "),
        "time": ("8 min 00 s  ", "2 min 00 s  "),
        "last held out": ("loss 6.0000, masked_lm_accuracy 0.8000", "loss 9.0000, masked_lm_accuracy 0.2000"),
    }.items():
        place = heading.index(name)
        assert (first[place:].startswith(cells[0]), second[place:].startswith(cells[1])) == (True, True), name


def test_a_run_without_evaluations(make_run):
    path = make_run()
    (path / "metrics.jsonl").unlink()
    text = runs_table([read_run(path)])
    assert " ".join(text.split()).endswith(
        "last held out " + str(path) + " bert-mini pretraining finished 8 8,000 8 min 00 s"
    )
    assert "held out" not in run_page(read_run(path))


def page(path):
    """The rows of a page by their first word."""
    text = run_page(read_run(path))
    return text, {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line}


def test_a_page(make_run, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/anywhere/unmask/__main__.py", "pretrain", "a b"])
    path = make_run()
    text, rows = page(path)
    assert text.startswith(f"{path}: bert-mini, pretraining, finished\n\n")
    assert rows["command"] == "unmask pretrain 'a b'"
    assert rows["inputs"] == "corpus 0123456789ab, init none"
    assert rows["encoder"] == "layers 4"
    assert rows["objective"] == "masked_lm.weight 1.0"
    assert rows["machine"] == "device cpu, threads 2, matrix products at 800 GFLOP/s"
    assert rows["progress"] == "8 of 8 steps, 8,000 tokens, 2.00 epochs, 8 min 00 s in steps"
    assert rows["speed"] == "500 tokens/s, 400 GFLOP/s (50 % of peak), median of the steps"
    assert rows["skipped"].startswith("1 step,")
    assert rows["loss"] == "10.0000 6.0000 8 6.0000"
    assert rows["masked_lm_accuracy"] == "0.0000 0.8000 8 0.8000"
    assert rows["metrics.jsonl"] == str(path / "metrics.jsonl")
    assert "model" not in rows, "there is no model"


def test_stages_are_listed_one_per_line(make_run):
    first = "layout = { length = 64 }, objective = { masked_lm = {}, replaced_token = false }"
    stages = f"stages = [{{ share = 0.9, {first} }}, {{ share = 0.1 }}]\n"
    path = make_run(recipe=stages + (make_run("a") / "recipe.toml").read_text())
    rows = page(path)[1]
    assert rows["stages"] == "share 0.9, layout.length 64, objective.masked_lm added, objective.replaced_token False"
    assert rows["share"] == "0.1", "the second stage is on a line of its own"
    (path / "recipe.toml").write_text((path / "recipe.toml").read_text().replace(stages, "stages = []\n"))
    assert "stages" not in page(path)[1]


@pytest.mark.parametrize(("accuracy", "best"), [(0.9, "0.9000 0"), (None, "0.8000 8")])
def test_the_best_is_the_lowest_loss_and_the_highest_accuracy(make_run, accuracy, best):
    path = make_run()
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    lines[0] |= {"loss": 1.5, "masked_lm_accuracy": accuracy, "lm_forward": 5.0}  # the loss of a direction of ELMo
    lines[-1] |= {"lm_forward": 4.0}
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, rows = page(path)
    assert rows["loss"] == "1.5000 1.5000 0 6.0000"
    assert best in rows["masked_lm_accuracy"]
    assert rows["lm_forward"] == "5.0000 - - 4.0000"


def test_the_page_on_a_stopped_run_explains_how_to_resume(make_run):
    text, rows = page(make_run(logged=4, saved=2, report=False))
    assert text.splitlines()[0].endswith("stopped at step 2 of 8; continue with the same command and resume=True")
    assert rows["progress"].startswith("2 of 8 steps, 2,000 tokens, 0.50 epochs")


def test_a_page_on_several_seeds(tmp_path, make_run):
    make_run("seed-0")
    with pytest.raises(UserError, match=f"this is not a run.*; pass a run in it: {tmp_path / 'seed-0'}"):
        read_run(tmp_path)
    assert read_seeds(tmp_path) is None
    seeds = {"seed-0": {"accuracy": 80.0, "f1": 70.0}, "seed-1": {"accuracy": 84.0, "f1": 70.0}}
    (tmp_path / "seeds.json").write_text(json.dumps({"rates": {"5e-05": 81.0, "0.0001": 79.5}, "seeds": seeds}))
    assert seeds_page(tmp_path, read_seeds(tmp_path)).splitlines() == [
        f"{tmp_path}: fine-tuning, 2 seeds",
        "",
        "learning rate  on a tenth of the training examples",
        "5e-05          81.00",
        "0.0001         79.50",
        "",
        "dev data            accuracy  f1",
        "seed-0              80.00     70.00",
        "seed-1              84.00     70.00",
        "mean                82.00     70.00",
        "standard deviation  2.83      0.00",
    ]
    (tmp_path / "seeds.json").write_text("{")
    with pytest.raises(UserError, match=r"seeds\.json: the file is damaged"):
        read_seeds(tmp_path)
