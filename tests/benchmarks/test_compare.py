"""Every file of benchmarks/comparisons can be read, and runs at toy size by the product itself."""

from pathlib import Path

import pytest

import unmask
from unmask.inference.bench import Bench, EngineMeasurement
from unmask.model.model import load_model, save_model
from unmask.support.settings import write
from unmask.workflows.comparing import compute

NAMES = sorted(path.stem for path in (Path(__file__).parents[2] / "benchmarks" / "comparisons").glob("*.toml"))
PRETRAINED = ("bert", "roberta", "spanbert", "albert", "electra", "gpt", "xlnet")
SHAPE = {"layers": 1, "width": 32, "heads": 2, "feed_forward": 64}


@pytest.fixture(scope="module")
def models(minilm, tmp_path_factory):
    """A folder of models in place of those that pretrain.py leaves, each with other random weights."""
    path = tmp_path_factory.mktemp("family")
    recipe = unmask.read_recipe("bert-tiny", {f"encoder.{name}": value for name, value in SHAPE.items()})
    file = path / "shape.toml"
    file.write_text(write(recipe), encoding="utf8")
    for seed, name in enumerate(PRETRAINED):
        save_model(path / name, load_model(f"random:{file}", tokenizer=minilm, seed=seed), name)
    return path


@pytest.fixture
def runs(models, tmp_path):
    """A folder of runs with these models."""
    (tmp_path / "pretrain").mkdir()
    (tmp_path / "pretrain" / "family").symlink_to(models)
    return tmp_path


@pytest.mark.shared
@pytest.mark.minilm
@pytest.mark.parametrize("name", NAMES)
def test_a_comparison_can_be_read(benchmark_module, shared, runs, name, tmp_path):
    comparison = benchmark_module("compare").read_file(name, tmp_path / "files", runs)
    assert comparison.seeds == 3, "one or two seeds tell little"
    assert len(comparison.basic_arms) >= 2
    assert "{" not in write(comparison).replace("{ ", "").replace("{}", "")
    for task in comparison.tasks.values():
        assert all(Path(file).is_file() for file in [*task.train, *task.test]) and task.test
    for arm in comparison.basic_arms.values():
        assert not arm.model or Path(arm.model).is_dir()


@pytest.mark.shared
@pytest.mark.minilm
def test_excerpts_are_the_first_lines_and_sentences(benchmark_module, shared, runs, tmp_path):
    benchmark_module("compare").read_file("which_encoder", tmp_path / "files", runs)
    lines = (tmp_path / "files" / "sentiment.tsv").read_text(encoding="utf8").splitlines()
    assert len(lines) == 501 and lines[0] == "sentence\tlabel"
    assert (tmp_path / "files" / "entities.conll").read_text(encoding="utf8").count("\n\n") == 249


@pytest.mark.shared
@pytest.mark.minilm
def test_checkpoints_are_looked_at_for_three_tasks(benchmark_module, run_main, records, shared, runs):
    arms = ["minilm", "bert", "gpt"]
    arguments = ["first_look", "--toy", "--first", "--arms", *arms, "--runs", str(runs)]
    run_main(benchmark_module("compare"), *arguments)
    looks = records("comparisons")
    assert {run["task"] for run in looks} == {"sentiment", "entailment", "entities"}
    for look in looks:
        assert look["comparison"] == "first_look" and look["arm"] == "first look" and look["agreement"] is None
        assert sorted(look["order"]) == sorted(arms)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.shared
@pytest.mark.minilm
@pytest.mark.parametrize("name", NAMES)
def test_a_comparison_runs_at_toy_size(benchmark_module, run_main, records, shared, runs, name, monkeypatch):
    engines = Bench([EngineMeasurement("torch", "float32", 1000.0, 2.0, 3.0, 0.0)], 0, [])
    monkeypatch.setattr(compute, "measure_engines", lambda model, **sizes: engines)
    module = benchmark_module("compare")
    run_main(module, name, "--toy", "--runs", str(runs))
    comparison = module.read_file(name, runs / "files", runs)
    arms = list(comparison.basic_arms)[:2]
    tasks = [*comparison.tasks, *(["mean"] if len(comparison.tasks) > 1 else [])]
    scored = [run for run in records("comparisons") if run["arm"] != "first look"]
    assert {(run["arm"], run["task"]) for run in scored if run["task"] != "mean"} >= {
        (arm, task) for arm in arms for task in tasks if task != "mean"
    }
    for run in scored:
        low, high = run["interval"]
        assert 0 <= low <= run["score"] <= high <= 100 and run["latency_ms"] == 2
    assert (runs / "compare" / name / "comparison" / "report.html").exists()
