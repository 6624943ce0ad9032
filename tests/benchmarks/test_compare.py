"""Every file of benchmarks/comparisons can be read and planned, and runs at toy size by the product itself."""

import json
import re
import shutil
from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec
import pytest

import unmask
from unmask.data.labelled.labelled_file import iterate_rows
from unmask.data.labelled.question_files import Answer, Question, read_squad
from unmask.data.text.files import read_text_whole
from unmask.inference.bench import Bench, EngineMeasurement
from unmask.recipes.recipe import as_recipe
from unmask.support.settings import write
from unmask.workflows.comparing import compute, planner
from unmask.workflows.comparing.checks import check_comparison
from unmask.workflows.comparing.planner import Planner

COMPARISONS = Path(__file__).parents[2] / "benchmarks" / "comparisons"
NAMES = sorted(path.stem for path in COMPARISONS.glob("*.toml"))
CHOSEN = ["plateau", "which_encoder"]
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
TOY = {"seeds": 1, "budget": "3ktok"}
TOY_DOCUMENTS, TOY_CHARACTERS, TOY_LINES, TOY_EXAMPLES, TOY_ARMS = 400, 300, 200, 40, 2
TOY_PASSAGES = 60
ROWS = 18_000
"""Number of rows that are read of a file; the comparison of rare labels has 8,000 of one label."""
TOY_BODY = {"layers": 2, "width": 32, "heads": 2, "feed_forward": 64, "cells": 64, "filters": [[3, 32]]}
TOY_RECIPE = {"tokenizer.vocabulary": 4000, "batch.tokens": 256}
STREAMS = {"layout.streams": 8, "batch.sequences": 8}
pytestmark = [pytest.mark.shared, pytest.mark.minilm]


def at_toy_size(comparison, folder, excerpt):
    """Return a comparison of two narrow bodies with few tokens and one seed, on the starts of its files.

    Args:
        comparison: what is made smaller.
        folder: for the starts of files.
        excerpt: writes one, as in benchmarks/files.py.
    """

    def start(path, amount, *, blocks=False):
        name = path.removesuffix(".xz").replace("/", "-").strip("-")
        return str(excerpt(Path(path), folder / "toy" / name, amount, blocks=blocks))

    def task(data):
        tagged, parts = data.task == "token-classification", {}
        for part in ("train", "test", "unlabelled"):
            paths = getattr(data, part)
            whole = any(".json" in Path(path).suffixes for path in paths)  # one value
            parts[part] = paths if whole else [start(path, TOY_LINES, blocks=tagged) for path in paths]
            if data.task == "question-answering":
                parts[part] = [first_passages(Path(path), folder / "toy") for path in paths]
        if tagged:  # other files have types of entities that an excerpt does not have
            parts["test"] = parts["train"]
        limits = [TOY_EXAMPLES + number for number in range(len(data.examples) or 1)]
        return msgspec.structs.replace(data, **parts, examples=limits)

    tasks = {name: task(data) for name, data in comparison.tasks.items()}
    text = [shortened(Path(start(path, TOY_DOCUMENTS))) for path in comparison.text[:1]]
    arms = {name: narrow(arm, comparison.settings) for name, arm in comparison.basic_arms.items()}
    settings = {key: value for key, value in comparison.settings.items() if key not in TOY_RECIPE}
    changes = TOY if comparison.budget else {"seeds": 1}
    learning = {**comparison.task_settings, "budget.epochs": 1} if tasks else {}
    return msgspec.structs.replace(
        comparison, tasks=tasks, text=text, arms=arms, settings=settings, task_settings=learning, **changes
    )


def shortened(path):
    """Shorten each document of a file of JSON Lines, or leave another file as it is; return its path."""
    if path.suffix == ".jsonl":
        texts = [json.loads(line)["text"][:TOY_CHARACTERS] for line in path.read_text(encoding="utf8").splitlines()]
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf8")
    return str(path)


def first_passages(path, folder):
    """Write the first passages of a file of SQuAD's format, with their questions; return where."""
    content = json.loads(read_text_whole(path))
    passages = [passage for article in content["data"] for passage in article["paragraphs"]]
    folder.mkdir(exist_ok=True)
    to = folder / path.name.removesuffix(".xz")
    to.write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": passages[:TOY_PASSAGES]}]}), encoding="utf8")
    return str(to)


def narrow(arm, settings):
    """Return an arm whose own body, if it has one, is narrow, and whose task settings take two epochs at most."""
    learning = {key: min(2, value) if key == "budget.epochs" else value for key, value in arm.task_settings.items()}
    arm = msgspec.structs.replace(arm, task_settings=learning)
    if not arm.recipe:
        trained = arm.way in ("adapt", "distill")
        return msgspec.structs.replace(arm, settings={**arm.settings, "batch.tokens": 256}) if trained else arm
    changes = {} if arm.teacher else settings
    recipe = as_recipe(arm.recipe, {**changes, **arm.settings})
    known = {field.name for field in msgspec.structs.fields(recipe.encoder)}
    small = {} if arm.layers else {f"encoder.{name}": value for name, value in TOY_BODY.items() if name in known}
    if getattr(recipe.encoder, "embedding", None):
        small["encoder.embedding"] = TOY_BODY["width"]
    if not arm.teacher:
        small |= STREAMS if recipe.layout.num_streams else TOY_RECIPE
    return msgspec.structs.replace(arm, settings={**arm.settings, **small})


@cache
def few_questions(path):
    """Return the first questions of a file, which is read once."""
    return list(islice(read_squad([path]), 600))


@cache
def few_rows(paths):
    """Return the first rows of files, which are read once."""
    return list(islice(iterate_rows(paths, columns={}), ROWS))


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
    for reading in (files, benchmark_module("labelled")):
        monkeypatch.setattr(reading, "read_rows", lambda paths, *, columns: few_rows(tuple(paths)))
    monkeypatch.setattr(files, "parted", lambda name: ([("a dog", name), ("a cat", "b")] * 800, [("a sea", name)] * 9))
    monkeypatch.setattr(files, "documentation", lambda: [f"A dog sees sea {number}.\na sea" for number in range(50)])
    paragraphs = [(f"a dog {number}", ("network", "code")[number % 2]) for number in range(9000)]
    monkeypatch.setattr(files, "every_paragraph", lambda: paragraphs)
    monkeypatch.setattr(files, "split_sst2", lambda: ([("a good film", "1"), ("bad", "0")] * 40, [("so so", "1")] * 9))

    def model_of(name, runs):
        copy = runs / "copies" / name.replace("/", "-")
        if not copy.exists():
            shutil.copytree(language_model, copy)
            (copy / "model" / "note.txt").write_text(name)  # no two are the same
        return copy

    monkeypatch.setattr(module, "model_of", model_of)
    for made in ("trainer/tuned", "chinese", "reviews"):
        shutil.copytree(language_model, tmp_path / made)
    engines = Bench([EngineMeasurement("torch", "float32", 1000.0, 2.0, 3.0, 0.0)], 0, [])
    monkeypatch.setattr(compute, "measure_engines", lambda model, **sizes: engines)
    monkeypatch.setattr(planner, "HELD_OUT", 600)
    return module


@pytest.fixture
def excerpt(benchmark_module):
    """Writes the start of a file."""
    return benchmark_module("files").excerpt


@pytest.mark.parametrize("name", NAMES)
def test_a_comparison_can_be_made(compare, excerpt, name, tmp_path):
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
    toy = at_toy_size(comparison, tmp_path, excerpt)
    names = ("arms", "settings", "task_settings", "budget")
    parts = {name: getattr(comparison, name) for name in names}
    plan = Planner(msgspec.structs.replace(toy, **parts), arms, "float32").plan()
    kind = "score" if comparison.tasks else "bits"
    assert {cell.arm for cell in plan.of(kind)} == set(arms)


@pytest.mark.parametrize(
    "name", [name if name in CHOSEN else pytest.param(name, marks=pytest.mark.exhaustive) for name in NAMES]
)
@pytest.mark.timeout(1800)
def test_a_comparison_runs_at_toy_size(compare, excerpt, run_main, records, name, tmp_path, monkeypatch):
    comparison = at_toy_size(compare.read_file(name, tmp_path / "files", tmp_path), tmp_path, excerpt)
    arms = list(comparison.basic_arms)[:TOY_ARMS]
    monkeypatch.setattr(compare, "read_file", lambda *names: comparison)
    run_main(compare, name, *PAIRS.get(name, []), "--arms", *arms, "--runs", str(tmp_path))
    scored = [
        run
        for run in records("comparisons")
        if run["arm"] != "first look" and run["task"] not in ("mean", "blimp") and "extrapolated" not in run
    ]
    pairs = [(run["arm"], run["pairs"], len(run["seeds"])) for run in records("comparisons") if run["task"] == "blimp"]
    assert pairs == ([(arm, 67, 1) for arm in sorted(arms)] if name in PAIRS else [])
    if name in PAIRS:
        (tmp_path / "held-out.txt").write_text("A few words of it. And some more of them.")
        compare.score_suite(name, "bits", tmp_path / "held-out.txt", 1, tmp_path)
        bits = [run for run in records("comparisons") if run["task"] == "bits"]
        assert sorted(run["arm"] for run in bits) == sorted(arms)
        assert all(0.5 < run["score"] < 20 and len(run["seeds"]) == 1 and run["characters"] == 41 for run in bits)
    assert {run["arm"] for run in scored} == set(arms)
    assert {run["comparison"] for run in scored} == {name}
    tasks = comparison.named_tasks()
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


def test_the_model_of_another_comparison_is_found(benchmark_module, tmp_path):
    compare = benchmark_module("compare")
    cells = (("a1", "corpus"), ("b2", "pretraining: bert, seed 1"), ("c3", "pretraining: bert, seed 0"))
    for key, name in (*cells, ("d4", "pretraining: gpt, seed 0")):
        folder = tmp_path / "compare" / "family" / "comparison" / "cells" / key
        (folder / "run" / ("model" if key != "d4" else "checkpoints")).mkdir(parents=True)  # d4 is not finished
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


def test_held_out_paragraphs_are_not_in_the_documentation(compare, benchmark_module, tmp_path):
    benchmark_module("files").MadeFile(sources=(), make="documentation").write(tmp_path / "made.jsonl")
    texts = [json.loads(line)["text"] for line in (tmp_path / "made.jsonl").read_text().splitlines()]
    assert texts == [f"A dog sees sea {number}." for number in range(50)]


def test_a_label_is_as_rare_in_training_as_in_testing(benchmark_module):
    rows = [(f"text {number}", "ab"[number % 2]) for number in range(1000)]
    train, test = benchmark_module("files").with_rare(rows, "a", 20, 200)
    assert Counter(label for _, label in train) == {"other": 200, "a": 10}
    assert Counter(label for _, label in test) == {"other": 300, "a": 15}
    assert {text for text, _ in train}.isdisjoint(text for text, _ in test)
    assert dict(rows).items() >= {(text, "a") for text, label in [*train, *test] if label == "a"}


def test_texts_of_labeled_files(benchmark_module, tmp_path, monkeypatch):
    common, files = benchmark_module("common"), benchmark_module("files")
    monkeypatch.setattr(common, "SHARED", tmp_path)
    files.write_rows(tmp_path / "a.tsv", [(f"text {number}", "x") for number in range(30)])
    files.MadeFile(sources=("a.tsv",), make="texts").write(tmp_path / "made" / "texts.txt")
    assert (tmp_path / "made" / "texts.txt").read_text().splitlines() == [f"text {number}" for number in range(30)]
    (tmp_path / "pairs.tsv").write_text("text\ttext_b\tlabel\na\tb\t1\nc\td\t0\n")
    files.MadeFile(sources=("pairs.tsv",), make="texts").write(tmp_path / "made" / "texts.txt")
    assert (tmp_path / "made" / "texts.txt").read_text() == "a\nb\nc\nd\n"
    (tmp_path / "a.conll").write_text("A O\ndog O\n\nAvon B-LOC\n")
    files.MadeFile(sources=("a.conll",), make="sentences").write(tmp_path / "made" / "texts.txt")
    assert (tmp_path / "made" / "texts.txt").read_text() == "A dog\nAvon\n"
