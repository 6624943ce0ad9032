"""Every file of benchmarks/comparisons can be read and planned, and runs at toy size by the product itself."""

import re
import shutil
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec
import pytest

import unmask
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.question_files import Answer, Question, read_squad
from unmask.inference.bench import Bench, EngineMeasurement
from unmask.support.settings import write
from unmask.workflows.comparing import compute, planner
from unmask.workflows.comparing.checks import check_comparison
from unmask.workflows.comparing.planner import Planner

COMPARISONS = Path(__file__).parents[2] / "benchmarks" / "comparisons"
NAMES = sorted(path.stem for path in COMPARISONS.glob("*.toml"))
TOY = ["plateau", "which_encoder"]
"""Comparisons without tasks and with several; the others are run with --exhaustive."""
PAIRS = {"plateau": ["--blimp", "1"]}
SHAPE = {"layers": 4, "width": 32, "heads": 2, "feed_forward": 64}
SMALL = {f"encoder.{name}": value for name, value in SHAPE.items()} | {
    "tokenizer.vocabulary": 400,
    "batch.tokens": 256,
    "budget.steps": 2,
    "stages": [],
    "layout.kind": "document_sentences",
    "objective.next_sentence": False,
}
pytestmark = [pytest.mark.shared, pytest.mark.minilm]


@cache
def few_questions(path):
    """Return the first questions of a file, which is read once."""
    return list(islice(read_squad([path]), 600))


@pytest.fixture(scope="module")
def language_model(tmp_path_factory, text_file):
    """A masked language model, trained for two steps, in place of those of other comparisons."""
    out = tmp_path_factory.mktemp("language_model") / "run"
    unmask.pretrain("bert-mini", text=text_file, out=out, settings=SMALL, quiet=True)
    return out


@pytest.fixture
def compare(benchmark_module, language_model, shared, minilm, tmp_path, monkeypatch):
    """The script; models of other comparisons are copies of one, few questions are read, and texts are made up."""
    module, files = benchmark_module("compare"), benchmark_module("files")
    monkeypatch.setattr(files, "read_squad", lambda paths: [one for path in paths for one in few_questions(path)])
    monkeypatch.setattr(files, "parted", lambda name: ([("a dog", name), ("a cat", "b")] * 800, [("a sea", name)] * 9))
    monkeypatch.setattr(files, "split_sst2", lambda: ([("a good film", "1"), ("bad", "0")] * 40, [("so so", "1")] * 9))

    def model_of(name, runs):
        copy = runs / "copies" / name.replace("/", "-")
        if not copy.exists():
            shutil.copytree(language_model, copy)
            (copy / "model" / "note.txt").write_text(name)  # no two are the same
        return copy

    monkeypatch.setattr(module, "model_of", model_of)
    for made in ("trainer/tuned", "chinese"):
        shutil.copytree(language_model, tmp_path / made)
    engines = Bench([EngineMeasurement("torch", "float32", 1000.0, 2.0, 3.0, 0.0)], 0, [])
    monkeypatch.setattr(compute, "measure_engines", lambda model, **sizes: engines)
    monkeypatch.setattr(planner, "HELD_OUT", 600)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_a_comparison_can_be_made(compare, name, tmp_path):
    """All settings of all arms are valid, and all files are there; at toy size, only as far as they are read."""
    comparison = compare.read_file(name, tmp_path / "files", tmp_path)
    assert comparison.seeds >= 3 or comparison.outlook, "one or two seeds tell little, but for a curve"
    assert comparison.tasks or comparison.text
    assert not re.search(r"\{[\w/-]+\}", write(comparison))
    for task in comparison.tasks.values():
        assert all(Path(file).is_file() for file in [*task.train, *task.test, *task.unlabelled])
    check_comparison(comparison)
    arms = comparison.named_arms()
    for arm in arms.values():
        assert not arm.model or Path(arm.model).is_dir()
    toy = compare.at_toy_size(comparison, tmp_path)
    names = ("arms", "settings", "task_settings", "budget")
    parts = {name: getattr(comparison, name) for name in names}
    plan = Planner(msgspec.structs.replace(toy, **parts), arms, "float32").plan()
    kind = "score" if comparison.tasks else "bits"
    assert {cell.arm for cell in plan.of(kind)} == set(arms)


@pytest.mark.parametrize(
    "name", [name if name in TOY else pytest.param(name, marks=pytest.mark.exhaustive) for name in NAMES]
)
@pytest.mark.timeout(1800)
def test_a_comparison_runs_at_toy_size(compare, run_main, records, name, tmp_path):
    run_main(compare, name, "--toy", *PAIRS.get(name, []), "--runs", str(tmp_path))
    comparison = compare.read_file(name, tmp_path / "files", tmp_path)
    arms = list(comparison.basic_arms)[: compare.TOY_ARMS]
    scored = [
        run
        for run in records("comparisons")
        if run["arm"] != "first look" and run["task"] not in ("mean", "blimp") and "extrapolated" not in run
    ]
    pairs = [(run["arm"], run["pairs"], len(run["seeds"])) for run in records("comparisons") if run["task"] == "blimp"]
    assert pairs == ([(arm, 67, 1) for arm in sorted(arms)] if name in PAIRS else [])
    assert {run["arm"] for run in scored} == set(arms)
    assert {run["comparison"] for run in scored} == {name}
    tasks = compare.at_toy_size(comparison, tmp_path).named_tasks()
    assert {run["task"] for run in scored} == (set(tasks) or {"text"})
    for run in scored:
        low, high = run["interval"]
        assert low <= run["score"] <= high and run["latency_ms"] == 2 and len(run["seeds"]) == 1
    assert (tmp_path / "compare" / name / "comparison" / "report.html").exists()


def test_excerpts_are_the_first_lines_and_sentences(compare, tmp_path):
    compare.read_file("which_encoder", tmp_path / "files", tmp_path)
    lines = (tmp_path / "files" / "sentiment.tsv").read_text(encoding="utf8").splitlines()
    assert len(lines) == 501 and lines[0] == "sentence\tlabel"
    assert (tmp_path / "files" / "entities.conll").read_text(encoding="utf8").count("\n\n") == 249


def test_checkpoints_are_looked_at_for_three_tasks(compare, run_main, records, tmp_path):
    arms = ["minilm", "bert"]
    run_main(compare, "first_look", "--toy", "--first", "--arms", *arms, "--runs", str(tmp_path))
    looks = records("comparisons")
    assert {run["task"] for run in looks} == {"sentiment", "entailment", "entities"}
    for look in looks:
        assert look["comparison"] == "first_look" and look["arm"] == "first look" and look["agreement"] is None
        assert sorted(look["order"]) == sorted(arms)


def test_the_model_of_another_comparison_is_found(benchmark_module, tmp_path):
    compare = benchmark_module("compare")
    for key, name in (("a1", "corpus"), ("b2", "pretraining: bert, seed 1"), ("c3", "pretraining: bert, seed 0")):
        folder = tmp_path / "compare" / "family" / "comparison" / "cells" / key
        folder.mkdir(parents=True)
        (folder / "cell.json").write_text(f'{{"name": "{name}"}}')
    assert compare.model_of("family/bert", tmp_path).parent.name == "c3"
    with pytest.raises(SystemExit, match=r"no model of family/gpt: python benchmarks/compare\.py family"):
        compare.model_of("family/gpt", tmp_path)


def test_a_third_of_the_questions_is_moved_to_passages_without_their_answers(benchmark_module, tmp_path):
    files, questions = benchmark_module("files"), []
    for number in range(40):
        passage = f"The dog Rex{number // 2:02} sees Avon{number // 2 + 500} near a house."
        text = passage.split()[2 + 2 * (number % 2)]
        questions.append(Question(str(number), f"Which {number}?", passage, (Answer(text, passage.index(text)),)))
    moved = files.move(questions)
    assert [question.impossible for question in moved] == [number % 3 == 0 for number in range(len(moved))]
    for before, after in zip(questions, moved, strict=True):
        assert after.impossible is (before.passage != after.passage)
        assert not after.impossible or before.answers[0].text.lower() not in after.passage.lower()
    again = read_squad([files.write_squad(tmp_path / "moved.json", moved)])
    assert {question.id: question.impossible for question in again} == {one.id: one.impossible for one in moved}


@pytest.mark.exhaustive
def test_a_split_of_sst2_holds_out_sentences_with_their_phrases(benchmark_module, shared):
    files = benchmark_module("files")
    train, held = ([text for text, _ in part] for part in files.split_sst2())
    assert (len(train), len(held)) == (58_118, 1_000)
    together = "\n".join(f" {text} " for text in train)
    for sentence in held:
        words = sentence.split()
        assert len(words) >= files.WHOLE
        assert f" {sentence} " not in together
        assert len(words) < 12 or " ".join(words[:-2]) not in train


def test_the_sources_of_phrases_are_the_longest_texts_with_them(benchmark_module):
    files = benchmark_module("files")
    texts = ["a good film", "good", "a good film about nothing", "film about nothing", "good films", "not", "good"]
    assert files.sources_of(texts) == {
        "a good film about nothing": ["a good film about nothing"],
        "a good film": ["a good film about nothing"],
        "film about nothing": ["a good film about nothing"],
        "good films": ["good films"],
        "good": ["a good film about nothing", "good films"],
        "not": ["not"],
    }


def test_texts_of_labeled_files_and_samples_of_them(benchmark_module, tmp_path, monkeypatch):
    common, files = benchmark_module("common"), benchmark_module("files")
    monkeypatch.setattr(common, "SHARED", tmp_path)
    files.write_rows(tmp_path / "a.tsv", [(f"text {number}", "x") for number in range(30)])
    files.MadeFile(sources=("a.tsv",), make="texts").write(tmp_path / "made" / "texts.txt")
    assert (tmp_path / "made" / "texts.txt").read_text().splitlines() == [f"text {number}" for number in range(30)]
    rows = read_rows([files.sample(tmp_path / "a.tsv", 7, tmp_path / "b.tsv")], columns={})
    assert len({row.values["text"] for row in rows}) == 7
