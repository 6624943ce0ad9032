"""Each command is killed before each of its changes of files, or has a full disk: it then goes on, or says how."""

import json
import random
import shutil
from functools import partial
from itertools import chain

import pytest

import unmask
from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.word_level import train_words
from unmask.families.bert import BertSettings
from unmask.families.elmo import ElmoSettings
from unmask.inference import export as inference_export
from unmask.inference.bench import Bench, EngineMeasurement
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, save_model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.support.durable import full_disk
from unmask.support.errors import UnmaskError, UserError
from unmask.workflows.comparing import compute
from unmask.workflows.corpora import building
from unmask.workflows.distillation import comparison
from unmask.workflows.pretraining import search

from ..disks import enlarge
from ..killing import count_changes, kill

BERT = {"encoder.layers": 1, "encoder.width": 32, "encoder.heads": 2, "encoder.feed_forward": 64}
SHAPE = {"encoder.positions": 64, "encoder.dropout": 0.0}
SMALL = {**BERT, **SHAPE, "layout.length": 48, "batch.tokens": 512, "budget.steps": 2}
HERE = {"device": "cpu", "precision": "float32", "quiet": True}
TUNED = {"task.length": 16, "budget.steps": 2}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for name, value in (("SINGLE", 2), ("MANY", 4), ("ROUNDS", 1)):
        monkeypatch.setattr(comparison, name, value)
    monkeypatch.setattr("unmask.metrics.intervals.RESAMPLES", 20)
    monkeypatch.setattr(Predictor, "window", 8)
    monkeypatch.setattr(inference_export, "trace", _trace_once)
    monkeypatch.setattr(search, "FACTORS", (0.5, 1.0))
    monkeypatch.setattr(search, "SEARCH_SHARE", 1.0)  # two steps are enough for two short runs
    engines = Bench([EngineMeasurement("torch", "float32", 1000.0, 2.0, 3.0, 0.0)], 0, [])
    monkeypatch.setattr(compute, "measure_engines", lambda model, *, sequences, requests: engines)


TRACED: dict[str, bytes] = {}
"""Files of the program of the classifier, which takes seconds to trace."""
NEEDED = {"onnx": ("onnxruntime", "onnxscript"), "openvino": ("openvino", "onnxscript"), "allennlp": ("h5py",)}
"""Packages of formats of programs."""


def _trace_once(program, path, outputs, real=inference_export.trace):
    """Write a traced program, which is the same for each export."""
    if not TRACED:
        real(program, path, outputs)
        TRACED.update({file.name: file.read_bytes() for file in path.parent.glob("model.onnx*")})
    for name, content in TRACED.items():
        (path.parent / name).write_bytes(content)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, tokenizer, text_file):
    """A folder with a corpus, text, labeled examples, an encoder with a masked-LM head, a classifier, and an ELMo."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "text.txt").write_text("\n\n".join(text_file.read_text().split("\n\n")[:40]))
    write_corpus([folder / "text.txt"], tokenizer, folder / "corpus")
    (folder / "new.txt").write_text("the electrolyte near the cathode\n\n" * 20)
    pairs = [f"the {noun}\tthe dog near the {noun}" for noun in NOUNS]
    (folder / "pairs.tsv").write_text("\n".join(["text\ttext_b", *pairs]))
    _write_collection(folder / "collection")
    rows = [f"the {word} near the {noun}\t{label}" for word, label in (("dog", "a"), ("cat", "b")) for noun in NOUNS]
    (folder / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]))
    shape = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, init_std=0.2)
    encoder = shape.build(tokenizer.size)
    heads = {"masked_lm": MaskedLM(BuildContext(encoder)).published()}
    save_model(folder / "encoder", Model(encoder, tokenizer, heads), "")
    options = {"settings": TUNED, **HERE}
    unmask.finetune("classification", folder / "encoder", folder / "rows.tsv", folder / "run", **options)
    shutil.copytree(folder / "run" / "model", folder / "tuned")
    shape = [f'"{name}" = {value}\n' for name, value in SMALL.items() if name != "budget.steps"]
    (folder / "compared.toml").write_text(COMPARED + "".join(shape))
    words = train_words(["the cat sat on the mat"], size=20)
    save_model(
        folder / "elmo",
        Model(ElmoSettings(layers=1, width=8, cells=4, filters=((2, 4),)).build(words.size), words, {}),
        "",
    )
    return folder


COMPARED = """
text = ["text.txt"]
tasks.pets.train = ["rows.tsv"]
task_settings = {"task.length" = 16, "budget.steps" = 2}
documents = "blank-line"
budget = "1ktok"
seeds = 1

[arms]
checkpoint = {model = "encoder", use = "finetuned"}
bert = {recipe = "bert-tiny", use = "finetuned"}

[settings]
"tokenizer.vocabulary" = 150
"""
"""Cells of all kinds but those of a search."""
NOUNS = ("sea", "river", "house", "market", "garden", "teacher", "road", "hill", "tree", "lake")


def _write_collection(path):
    """Write a collection for search, in BEIR's layout."""
    (path / "qrels").mkdir(parents=True)
    for name, text in (("corpus", "the dog near the {}"), ("queries", "{}")):
        records = [{"_id": noun, "text": text.format(noun)} for noun in NOUNS]
        (path / f"{name}.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    judgments = [f"{noun}\t{noun}\t1" for noun in NOUNS]
    (path / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judgments, ""]))


def finetune(inputs, out, **more):
    """Fine-tune a classifier."""
    given = {"settings": TUNED, **HERE, **more}
    unmask.finetune("classification", inputs / "encoder", inputs / "rows.tsv", out / "out", **given)


def multitask(inputs, out, **more):
    """Fine-tune two classifiers together and alone."""
    table = {"task": "classification", "train": inputs / "rows.tsv", "settings": {"length": 16}}
    settings = {"budget.steps": 2, "optimizer.learning_rate": 1e-4}
    unmask.multitask({"a": table, "b": table}, inputs / "encoder", out / "out", settings=settings, **HERE, **more)


def pretrain(inputs, out, **more):
    """Pretrain on text or on a corpus."""
    source = {"corpus": inputs / "corpus"} if more.pop("built", False) else {"text": inputs / "text.txt"}
    words = {} if "corpus" in source else {"tokenizer.vocabulary": 150}
    unmask.pretrain("bert-tiny", out=out / "out", settings={**SMALL, **words}, **source, **HERE, **more)


def distill(inputs, out, **more):
    """Distill the classifier."""
    kinds = {"train": inputs / "rows.tsv", "targets": out / "targets", "layers": 1}
    settings = {"budget.steps": 2, "objective.layer_matching": False}
    unmask.distill("tinybert-mini", inputs / "tuned", out / "out", settings=settings, **kinds, **HERE, **more)


def distill_text(inputs, out, **more):
    """Distill the encoder on a corpus, also without a teacher."""
    kinds = {"corpus": inputs / "corpus", "targets": out / "targets", "layers": 1, "baseline": True}
    settings = {"layout.length": 48, "batch.tokens": 512, "budget.steps": 2, "objective.hidden_cosine": False}
    unmask.distill("distilbert-mini", inputs / "encoder", out / "out", settings=settings, **kinds, **HERE, **more)


def predict(inputs, out, **more):
    """Predict the labels of a file."""
    unmask.predict(inputs / "tuned", inputs / "rows.tsv", out=out / "out.jsonl", **HERE, **more)


def predict_labels(inputs, out, **more):
    """Predict labels by their names."""
    files = {"data": inputs / "rows.tsv", "out": out / "out.jsonl"}
    unmask.predict(inputs / "encoder", **files, labels=["dog", "sea"], **HERE, **more)


def read(path):
    """Return the contents of a file, or of the files of a directory."""
    if path.is_file():
        return path.read_bytes()
    return {name.relative_to(path): name.read_bytes() for name in path.rglob("*") if name.is_file()}


RUN = ("out/model/model.safetensors", "out/model/config.json", "out/model/vocab.txt", "out/recipe.toml")
RESUMED = {
    "finetune": (finetune, (*RUN, "out/dev.json")),
    "finetune --frozen": (partial(finetune, frozen=True), (*RUN, "out/dev.json")),
    "finetune, few labels": (partial(finetune, settings={"task.length": 16}), (*RUN, "out/dev.json")),
    "finetune --seeds --search": (
        partial(finetune, seeds=2, search=True),
        ("out/model", "out/seeds.json"),
    ),
    "multitask": (multitask, ("out/model", "out/recipe.toml", "out/dev.json")),
    "pretrain --corpus": (partial(pretrain, built=True), RUN),
    "pretrain --text": (pretrain, (*RUN, "out/text/corpus", "out/text/tokenizer")),
    "pretrain --search": (partial(pretrain, built=True, search=True), (*RUN, "out/search/rates.json")),
    "distill": (distill, (*RUN, "out/dev.json")),
    "distill --baseline": (partial(distill, baseline=True), (*RUN, "out/baseline/model", "out/dev.json")),
    "distill --corpus": (distill_text, (*RUN, "out/baseline/model")),
    "predict": (predict, ("out.jsonl",)),
    "predict --labels": (predict_labels, ("out.jsonl",)),
    "predict --explain": (partial(predict, explain="occlusion"), ("out.jsonl",)),
}
"""Commands that take `resume`, and what they write, without what depends on time."""


def embed(inputs, out):
    """Write vectors of texts."""
    unmask.embed(inputs / "tuned", inputs / "rows.tsv", out=out / "vectors.npy", **HERE)


def write_features(inputs, out):
    """Write the hidden states of texts."""
    unmask.write_features(inputs / "tuned", inputs / "rows.tsv", [-1], out / "out", **HERE)


def train_tokenizer(inputs, out):
    """Train a tokenizer."""
    unmask.train_tokenizer(inputs / "text.txt", out / "out", vocab_size=150, quiet=True)


def extend_tokenizer(inputs, out):
    """Extend a tokenizer."""
    unmask.extend_tokenizer(inputs / "new.txt", inputs / "encoder", out / "out", 3, min_count=2, quiet=True)


def build_corpus(inputs, out, **more):
    """Build a corpus."""
    unmask.build_corpus(inputs / "text.txt", inputs / "encoder", out / "out", workers=1, quiet=True, **more)


def build_by_tasks(inputs, out):
    """Build a corpus by tasks, cleaned by rules that need all kinds of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "TASK_BYTES", 1000)
        build_corpus(inputs, out, clean=CLEAN)


def export(inputs, out, format, model="tuned"):
    """Write a model in the format of another program."""
    unmask.export(inputs / model, out / "out", format, quiet=True)


def compare(inputs, out):
    """Compare a recipe that is pretrained on text with a checkpoint as it is."""
    unmask.compare(inputs / "compared.toml", out=out / "out", **HERE)


def evaluate(inputs, out):
    """Write the page of the worst mistakes."""
    unmask.evaluate(inputs / "tuned", inputs / "rows.tsv", errors=out / "page.html", **HERE)


def audit(inputs, out):
    """Write the labels that are probably wrong, to a file and to a page."""
    files = {"out": out / "labels.tsv", "page": out / "page.html"}
    unmask.audit(inputs / "encoder", inputs / "rows.tsv", task="classification", folds=2, **files, **HERE)


def mine(inputs, out):
    """Write hard negatives."""
    unmask.mine(inputs / "encoder", inputs / "pairs.tsv", out=out / "rows.jsonl", negatives=2, **HERE)


def search_collection(inputs, out):
    """Write the ranking of a search."""
    unmask.evaluate("bm25", inputs / "collection", run_file=out / "run.txt", **HERE)


def suggest(inputs, out):
    """Write which texts to label next."""
    unmask.suggest(inputs / "tuned", inputs / "rows.tsv", out=out / "next.jsonl", count=3, **HERE)


OPENVINO = tuple(
    f"out/{name}" for name in ("model.bin", "export.json", "check.safetensors", "config.json", "vocab.txt")
)
"""What an export to OpenVINO writes, but model.xml, whose layers have the numbers of a counter of the process."""
CLEAN = ["duplicates", "near_duplicates", "repeated_passages", "repeated_lines"]
COMPARISON = ("comparison.toml", "report.csv", "cells/*/resampled.npy", "cells/*/mistakes.json", "cells/*/run/model")
JOINED = ("compare", "corpus build, tasks")
"""Commands that several programs may give for one output."""
REPEATED = {
    "embed": (embed, ("vectors.npy",)),
    "features": (write_features, ("out",)),
    "tokenizer train": (train_tokenizer, ("out",)),
    "tokenizer extend": (extend_tokenizer, ("out",)),
    "corpus build": (build_corpus, ("out",)),
    "corpus build --clean": (partial(build_corpus, clean=CLEAN), ("out",)),
    "corpus build, tasks": (build_by_tasks, ("out",)),
    "export huggingface": (partial(export, format="huggingface"), ("out",)),
    "export onnx": (partial(export, format="onnx"), ("out",)),
    "export openvino": (partial(export, format="openvino"), OPENVINO),
    "export allennlp": (partial(export, format="allennlp", model="elmo"), ("out",)),
    "compare": (compare, tuple(f"out/{name}" for name in COMPARISON)),
    "evaluate --errors": (evaluate, ("page.html",)),
    "audit": (audit, ("labels.tsv", "page.html")),
    "evaluate --run-file": (search_collection, ("run.txt",)),
    "mine": (mine, ("rows.jsonl",)),
    "suggest": (suggest, ("next.jsonl",)),
}
"""Commands that are given again."""


def results(out, names):
    """Return what a command has written, by patterns; None if something is missing."""
    paths = {name: sorted(out.glob(name)) for name in names}
    contents = {path.relative_to(out): read(path) for found in paths.values() for path in found}
    return contents if all(paths.values()) else None


def finish(inputs, folder, call, names, expected, ways, how):
    """Check that one of the ways to go on after an interruption ends in what an unbroken call writes.

    Args:
        inputs, folder: those of the call.
        call: the call.
        names: patterns of what it writes.
        expected: what an unbroken call writes.
        ways: parameters of calls to go on, in order.
        how: what has interrupted it.
    """
    refusals = []
    for way in ways:
        try:
            call(inputs, folder, **way)
        except UserError as error:
            refusals.append(error.message)
        else:
            break
    found = results(folder, names)
    assert found == expected, (how, ways, refusals, sorted(map(str, folder.rglob("*"))))
    for text in refusals:
        assert "resume" in text or "not empty" in text or "exists" in text, text
    left = [path for path in folder.iterdir() if path.name.endswith((".part", ".part.json", ".old"))]
    left += [path for path in folder.rglob("*") if path.name.endswith((".partial", ".tasks", ".cleaned"))]
    assert not left, (how, left)


def drill(inputs, folder, call, names, changes, expected, ways):
    """Kill a call after some changes, and go on."""
    folder.mkdir()
    kill(folder, partial(call, inputs, folder), changes)
    finish(inputs, folder, call, names, expected, ways, changes)
    shutil.rmtree(folder)


def fill(inputs, volume, call, names, share, expected, ways):
    """Give a call a disk with room for a share of what it writes in the end; then room for all, and go on."""
    contents = (content.values() if isinstance(content, dict) else [content] for content in expected.values())
    pages = int(share * sum(map(len, chain(*contents)))) // PAGE
    folder = volume(max(1, pages) * PAGE // 1024)
    if not pages:
        (folder / "other").write_bytes(bytes(PAGE))
    with pytest.raises((OSError, UnmaskError)) as error:
        call(inputs, folder)
    assert full_disk(error.value) and f"{folder}/" in str(error.value), error.value
    enlarge(folder)
    finish(inputs, folder, call, names, expected, ways, f"{pages} pages")


@pytest.fixture(scope="module")
def unbroken(inputs, tmp_path_factory):
    """Returns the number of changes of a command, and what it writes; skips what lacks a package."""
    known = {}

    def find(name, call, names):
        for package in NEEDED.get(name.removeprefix("export "), ()):
            pytest.importorskip(package, reason=f"{package} is not installed")
        if name not in known:
            folder = tmp_path_factory.mktemp("unbroken")
            changes = count_changes(folder, partial(call, inputs, folder))
            known[name] = changes, results(folder, names)
            assert known[name][1] is not None
        return known[name]

    return find


PAGE = 4096
"""Number of bytes by which the room on a small file system is measured."""
PARTS = 16
"""Number of tests into which all cases of a command are divided."""
WAYS = ([{}, {"resume": True}], [{"resume": True}, {}])


VARIANTS = (
    *("finetune --frozen", "finetune, few labels", "finetune --seeds --search", "pretrain --search"),
    *("distill --baseline", "predict --labels", "predict --explain"),
)
"""Commands with the directory and the way of writing of another one."""


def but_variants(names):
    """Return names as parameters of a test, those of variants marked as exhaustive."""
    return [pytest.param(name, marks=pytest.mark.exhaustive) if name in VARIANTS else name for name in names]


def cases_of(name, changes):
    """Return after how many changes a command is killed, and the ways in which it is then given again, in order."""
    ways = WAYS if name in RESUMED else ([{}],)
    return [(number, way) for number in range(changes) for way in ways]


@pytest.mark.parametrize("name", [*RESUMED, *REPEATED])
def test_a_killed_command_is_given_again_or_resumed(name, inputs, unbroken, tmp_path):
    call, names = (RESUMED | REPEATED)[name]
    changes, expected = unbroken(name, call, names)
    for number, way in random.Random(name).sample(cases_of(name, changes), 1):
        drill(inputs, tmp_path / f"killed-{number}", call, names, number, expected, way)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)  # a part is up to fifty runs
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", [*RESUMED, *REPEATED])
def test_a_command_is_killed_before_each_change(name, part, inputs, unbroken, tmp_path):
    call, names = (RESUMED | REPEATED)[name]
    changes, expected = unbroken(name, call, names)
    for index, (number, way) in enumerate(cases_of(name, changes)[part::PARTS]):
        drill(inputs, tmp_path / f"killed-{index}", call, names, number, expected, way)


@pytest.mark.parametrize("name", but_variants([*RESUMED, *REPEATED]))
def test_E5_a_command_on_a_full_disk_is_given_again_or_resumed(name, inputs, unbroken, volume):
    call, names = (RESUMED | REPEATED)[name]
    _, expected = unbroken(name, call, names)
    rng, ways = random.Random(name), WAYS if name in RESUMED else [[{}]]
    fill(inputs, volume, call, names, rng.random(), expected, rng.choice(ways))


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [*RESUMED, *REPEATED])
def test_E5_a_command_is_given_disks_of_all_sizes(name, inputs, unbroken, volume):
    call, names = (RESUMED | REPEATED)[name]
    _, expected = unbroken(name, call, names)
    for number in range(16):
        ways = WAYS[number % 2] if name in RESUMED else [{}]
        fill(inputs, volume, call, names, number / 16, expected, ways)


@pytest.mark.parametrize("name", but_variants(name for name in (*RESUMED, *REPEATED) if name not in JOINED))
def test_a_second_writer_is_refused(name, inputs, unbroken, tmp_path):
    """What the first one writes is not touched."""
    call, names = (RESUMED | REPEATED)[name]
    changes, expected = unbroken(name, call, names)
    refusals = []

    def act(number):
        if number == max(4, changes // 2) and not refusals:
            refusals.append("")
            with pytest.raises(UserError) as error:
                call(inputs, tmp_path)
            refusals.append(error.value.message)

    count_changes(tmp_path, partial(call, inputs, tmp_path), act)
    assert results(tmp_path, names) == expected
    assert "another program is" in refusals[1] or "not empty" in refusals[1]
