"""Every comparison of benchmarks/finetuning runs at toy size, on made-up examples or excerpts of the real files."""

import importlib
import json
import lzma
from pathlib import Path

import pytest
import torch

from unmask.model.model import load_model
from unmask.training.runs.directory import RunDirectory

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LENGTH = {"epochs", "tokens", "step_seconds", "seconds", "recipe"}
FIELDS = {
    "pairs": {"set", "start", "seed", "metrics", "intervals", "examples", "step", *LENGTH},
    "token_classification": {"data", "each", "start", "body", "seed", "metrics", "intervals", "by_type", *LENGTH},
    "question_answering": {"variant", "start", "seed", "set", "held", "dev", "steps", *LENGTH},
    "dialogues": {"data", "seed", "metrics", "intervals", "examples", "step", *LENGTH},
    "cmrc": {"seed", "dev", "step", "epochs", "tokens", "seconds"},
    "finetuning_rule": {"data", "model", "examples", "width", "learning_rate", "factor", "epochs", "seed", "score"},
    "pretraining_pays": {"start", "examples", "factor", "seed", "choosing", "accuracy", "learning_rate"},
    "family": {"start", "task", "method", "seed", "metric", "score", "seconds"},
    "minutes": {"start", "task", "method", "seed", "factor", "metric", "score", "learning_rate", "seconds"},
    "published": {"start", "task", "method", "seed", "factor", "metric", "score", "learning_rate", "seconds"},
    "curriculum": {"start", "task", "method", "seed", "factor", "metric", "score", "learning_rate", "seconds"},
    "parity": {"task", "method", "seed", "metric", "score", "learning_rate", "epochs", "step_seconds", "seconds"},
    "regularization": {"data", "method", "seed", "metric", "score", "seconds"},
    "distillation": {"start", "task", "seed", "metric", "score", "interval", "learning_rate", "step", "step_seconds"},
    "distill": {"data", "method", "seed", "metric", "score", "interval", "trained_on", "step_seconds", "seconds"},
}
"""Fields that the tables read."""
ONLY = {
    "minutes": ["start=unmask", "start=random"],
    "published": ["start=student"],
    "curriculum": ["start=electra"],
    "distillation": ["start=distilled"],
    "pretraining_pays": ["start=random", "start=longer-adapted"],
    "distill": ["data=sst2-10000"],
    "family": [
        *(f"start={name}" for name in ("bert", "elmo", "static", "random-albert")),
        *(f"data={name}" for name in ("conll2003", "sst2-2000")),
    ],
}
"""The rest differs in the encoder alone, which test_pretrain.py has, or in data that token_classification has."""
USUALLY = {
    "family": [*(f"start={name}" for name in ("bert", "elmo", "static")), "data=conll2003"],
    "pairs": ["start=minilm"],
    "token_classification": [
        *(f"start={name}" for name in ("minilm", "random-zh")),
        "data=conll2003",
        "data=resume_zh",
    ],
    "finetuning_rule": ["start=minilm", "data=sst2-12000", "data=sst2-all"],
}
"""What is run without --exhaustive: every method, but not each on every data set and from every start."""
REPEATING = (
    "minutes",
    "family",
    "published",
    "curriculum",
    "regularization",
    "cmrc",
    "dialogues",
    "distillation",
    "parity",
)
"""Comparisons of other data and encoders by methods that those of the others have, too."""


@pytest.fixture(scope="module")
def bench(toy):
    """The script as a module, and a folder for all toy runs."""
    return importlib.import_module("finetune"), toy


@pytest.fixture(scope="module")
def run(bench, request):
    """Run a comparison at toy size, once, and return its records."""
    finetune, folder = bench
    chosen = ONLY if request.config.getoption("--exhaustive") else ONLY | USUALLY

    def run_once(name):
        path = folder / "results" / f"{name}.json"
        if not (folder / "finetune" / name).exists():
            only = ["--only", *chosen[name]] if name in chosen else []
            finetune.main([name, "--toy", "--runs", str(folder), *only])
        runs = json.loads(path.read_text(encoding="utf8"))["runs"]
        return [record for record in runs if not {"member", "case"} & record.keys()]  # those are of pretraining

    return run_once


def test_every_comparison_is_tested():
    assert {path.stem for path in (BENCHMARKS / "finetuning").glob("*.toml")} == FIELDS.keys()


def test_every_comparison_has_its_tasks(bench, tmp_path):
    finetune, folder = bench
    for name in FIELDS:
        toy = finetune.Bench(name, finetune.Workspace(folder, toy=True), tmp_path)
        assert list(toy.tasks()), name


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.exhaustive) if name in REPEATING else name for name in FIELDS],
)
def test_a_comparison_runs_at_toy_size_and_leaves_its_records(bench, run, name):
    _, folder = bench
    records = run(name)
    assert records
    for record in records:
        assert FIELDS[name] | {"about"} <= record.keys()
        for scores in (record.get("metrics") or (record["dev"]["metrics"] if "dev" in record else {}), record):
            score = scores.get("f1", scores.get("accuracy", scores.get("score", 50)))
            assert 0 <= score <= 100 or "pearson" in scores or record.get("metric") == "matthews_correlation"
    runs = [path.parent for path in (folder / "finetune" / name).glob("*/recipe.toml")]
    assert len(runs) == len(records)
    for path in runs:
        lines = RunDirectory(path).read_metrics("train")
        assert [line["step"] for line in lines] == [1, 2]
        assert 0 < lines[0]["tokens"] < lines[1]["tokens"]


@pytest.mark.exhaustive
def test_every_start_is_there(run):
    assert {record["start"] for record in run("pairs")} == {"minilm", "random", "pooler-anew"}


def test_every_data_set_is_there(bench, run):
    assert len({record["set"] for record in run("pairs")}) == 6
    found = {(record["data"], record["start"], record["body"]) for record in run("token_classification")}
    assert ("resume_zh", "random", "bert-mini-zh") in found and ("conll2003", "minilm", "MiniLM") in found
    assert {record["variant"] for record in run("question_answering")} == {"always", "none"}


def test_a_probe_leaves_the_encoder_as_it_is_and_fine_tuning_does_not(bench, run):
    _, folder = bench
    run("family")
    before = load_model(folder / "pretrain/family/bert").encoder.state_dict()
    for method, same in (("probe", True), ("fine-tuned", False)):
        (path,) = (folder / "finetune/family").glob(f"bert-20000000-conll2003-{method}-0*")
        after = load_model(path).encoder.state_dict()
        kept = {name for name, value in before.items() if torch.equal(after[name], value)}
        others = before.keys() - kept
        assert not same or {name.partition(".")[0] for name in others} <= {"pooler"}  # which no pretraining needed
        assert same or "embeddings.words.weight" in others


def test_probes_of_elmo_mix_all_of_its_layers(bench, run):
    _, folder = bench
    run("family")
    (path,) = (folder / "finetune/family").glob("elmo-20000000-*-probe-0")
    downstream = load_model(path).downstream
    assert list(downstream.layers) == [0, 1, 2] and downstream.combine == "mix"


def test_static_features_are_those_below_all_layers(bench, run):
    _, folder = bench
    run("family")
    (path,) = (folder / "finetune/family").glob("static-*-probe-0")
    assert list(load_model(path).downstream.layers) == [0]


def test_the_learning_rate_is_chosen_on_examples_held_out(bench, run):
    tried = [record for record in run("family") if record["method"] == "choosing" and record["start"] == "bert"]
    assert [record["factor"] for record in tried] == [1.0, 2.0]
    best = max(tried, key=lambda record: record["score"])
    final = [record for record in run("family") if record["method"] == "fine-tuned" and record["start"] == "bert"]
    assert [record["factor"] for record in final] == [best["factor"]]
    pays = [record for record in run("pretraining_pays") if record["start"] == "random"]
    assert [record["choosing"] for record in pays] == [True, True, False]
    rates = [record["learning_rate"] / record["factor"] for record in pays]
    assert max(rates) == pytest.approx(min(rates))


def test_students_are_compared_with_their_teacher(run):
    compared = {record["method"]: record.get("compared") for record in run("distill")}
    assert compared.pop("alone") is None and compared.pop("pretrained") is None
    methods = ("soft-targets", "distilbert", "tinybert")
    assert compared.keys() == {*methods, *(f"{name}-unlabelled" for name in methods)}
    for found in compared.values():
        assert found["student"]["parameters"] < found["teacher"]["parameters"]


def test_a_grid_has_every_learning_rate(run):
    runs = run("finetuning_rule")
    assert {(record["factor"], record["epochs"]) for record in runs} >= {(0.5, 3.0), (1.0, 3.0), (2.0, 3.0), (1.0, 2.0)}
    assert {record["width"] for record in runs} == {32}


def test_settings_and_seeds_from_the_command_line(bench):
    finetune, folder = bench
    arguments = ["pairs", "--toy", "--runs", str(folder / "more"), "--seeds", "3", "4"]
    arguments += ["--only", "data=sick-entailment", "start=random"]
    for _ in range(2):  # the second call has nothing to do
        finetune.main([*arguments, "--set", "dropout=0.3"])
    runs = json.loads((folder / "more/results/pairs.json").read_text(encoding="utf8"))["runs"]
    assert [(record["start"], record["seed"]) for record in runs] == [("random", 3), ("random", 4)]
    assert [record["recipe"]["dropout"] for record in runs] == [0.3, 0.3]


def test_an_interrupted_run_is_resumed(bench, monkeypatch):
    finetune, folder = bench
    arguments = ["pairs", "--toy", "--runs", str(folder / "cut"), "--only", "data=sick-entailment", "start=minilm"]

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(finetune, "add", cut)
        with pytest.raises(KeyboardInterrupt):
            finetune.main(arguments)
    (run,) = (folder / "cut/finetune/pairs").iterdir()
    before = RunDirectory(run).read_metrics("train")
    finetune.main(arguments)
    assert RunDirectory(run).read_metrics("train") == before, "no step is trained twice"
    assert len(json.loads((folder / "cut/results/pairs.json").read_text(encoding="utf8"))["runs"]) == 1


def test_choosing_leaves_the_dev_set_alone(bench):
    finetune, folder = bench
    arguments = ["question_answering", "--choosing", "--only", "data=none", "start=minilm"]
    finetune.main([*arguments, "--toy", "--runs", str(folder / "choosing")])
    (record,) = json.loads((folder / "choosing/results/question_answering.json").read_text(encoding="utf8"))["runs"]
    assert record["dev"] is None and record["held"]["metrics"]["f1"] >= 0
    assert record["held"]["threshold"] is not None, 'where "no answer" can be right it is found'


def test_a_third_of_the_questions_is_moved_to_passages_without_their_answers(bench):
    import quality

    questions = list(quality._made_up_questions())
    moved = quality.move(questions)
    assert [question.impossible for question in moved] == [number % 3 == 0 for number in range(len(moved))]
    for before, after in zip(questions, moved, strict=True):
        assert after.impossible is (before.passage != after.passage)
        assert not after.impossible or before.answers[0].text.lower() not in after.passage.lower()


@pytest.mark.shared
def test_a_split_of_sst2_holds_out_sentences_with_their_phrases(bench, shared, tmp_path, monkeypatch):
    import quality

    monkeypatch.setattr(quality.common, "SHARED", shared / "data")
    written = quality.split("sst2", 70_000, tmp_path)
    train, held = ([row.values["text"] for row in quality.read_rows([path], columns={})] for path in written)
    assert (len(train), len(held)) == (58_118, 1_000)
    together = "\n".join(f" {text} " for text in train)
    for sentence in held:
        words = sentence.split()
        assert len(words) >= quality.WHOLE
        assert f" {sentence} " not in together
        assert len(words) < 12 or " ".join(words[:-2]) not in train


def test_the_sources_of_phrases_are_the_longest_texts_with_them():
    import quality

    texts = ["a good film", "good", "a good film about nothing", "film about nothing", "good films", "not", "good"]
    assert quality.sources_of(texts) == {
        "a good film about nothing": ["a good film about nothing"],
        "a good film": ["a good film about nothing"],
        "film about nothing": ["a good film about nothing"],
        "good films": ["good films"],
        "good": ["a good film about nothing", "good films"],
        "not": ["not"],
    }


@pytest.mark.shared
def test_the_files_of_all_comparisons_are_there_and_can_be_read(bench, shared, tmp_path, monkeypatch):
    finetune, _ = bench
    import quality

    monkeypatch.setattr(quality.common, "SHARED", shared / "data")
    for name in FIELDS:
        toy = finetune.Bench(name, finetune.Workspace(tmp_path, toy=True), tmp_path / name)
        for data in toy.comparison.data.values():
            names = [*data.train, *data.dev, *data.test, *data.held]
            assert all(path.exists() for path in finetune.Workspace(tmp_path).files(names))
            if data.task == "classification":
                assert quality.read_rows(toy.files(data).train, columns={})


def test_a_published_checkpoint_is_fine_tuned(bench, published, tmp_path, monkeypatch):
    finetune, _ = bench
    import quality

    monkeypatch.setattr(quality.common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(quality.common, "SHARED", tmp_path)
    monkeypatch.setattr(quality.common, "minilm", lambda: str(published))
    toy = finetune.Workspace(tmp_path / "toy", toy=True)
    for part in ("train", "test_2000"):
        name = f"pairs/snli/{part}{'_2000' * (part == 'train')}.jsonl.xz"
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(lzma.compress(toy.files([name])[0].read_bytes()))
    arguments = ["pairs", "--only", "data=snli-2000", "start=minilm", "--seeds", "0", "--set", "budget.steps=2"]
    finetune.main([*arguments, "--runs", str(tmp_path / "runs")])
    runs = json.loads((tmp_path / "results/pairs.json").read_text(encoding="utf8"))["runs"]
    (run,) = runs
    assert run["asked"]["text_b"] == "the dog sits still" and sum(run["asked"]["scores"].values()) == pytest.approx(1)
    rate = 5e-5 * (768 / load_model(published).encoder.width) ** 0.5
    assert run["recipe"]["optimizer"]["learning_rate"] == pytest.approx(rate, rel=0.03)
    (path,) = (tmp_path / "runs/finetune/pairs").iterdir()  # is kept
    given, tuned = (load_model(model).encoder.state_dict()["embeddings.words.weight"] for model in (published, path))
    assert 0 < float((given - tuned).abs().max()) < 0.01
