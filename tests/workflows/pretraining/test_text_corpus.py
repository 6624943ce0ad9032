"""An interrupted preparation of raw text is continued if its inputs are the same."""

import os
import shutil
import signal
from functools import partial
from threading import Thread

import pytest

from unmask.data.cleaning.rules import Rules, read_rules
from unmask.data.corpus import build
from unmask.data.corpus.corpus import open_corpus
from unmask.data.corpus.manifest import NAME
from unmask.data.text import text_copy as copies
from unmask.data.text.documents import TextOptions
from unmask.model.model import Model, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.pretraining import text_corpus as module
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.workflows.pretraining.text_corpus import corpus_from_text

from ... import forking

TRAINED = "training the tokenizer"
TOKENIZER = "using the tokenizer trained here earlier"
CORPUS = "using the corpus built here earlier from the same files"
SHARDS = "resuming an interrupted build"
SMALL = [
    *("encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.feed_forward=32", "encoder.positions=64"),
    *("layout.length=48", "batch.tokens=256", "budget.steps=2", "tokenizer.vocabulary=200"),
]


class Killed(BaseException):
    """Simulates a killed process: nothing is cleaned up, because the folders are copied before it is raised."""


@pytest.fixture
def source(documents, tmp_path):
    path = tmp_path / "source.txt"
    path.write_text("\n\n".join(documents), encoding="utf8")
    return path


@pytest.fixture
def prepare(source, tmp_path, monkeypatch):
    """Prepare tmp_path/run and return the messages; after the n-th call of the function `kill` it is killed."""
    monkeypatch.setattr(module, "write_corpus", partial(build.write_corpus, shard_tokens=500))
    out = tmp_path / "run"

    def prepare(*settings, kill=None, number=1, **options):
        lines, calls = [], []
        recipe = read_recipe("bert-tiny", parse_overrides([*SMALL, *settings]))
        with monkeypatch.context() as patch:
            if kill is not None:
                owner, name = kill
                real = getattr(owner, name)

                def call_and_kill(*args, **given):
                    result = real(*args, **given)
                    calls.append(name)
                    if len(calls) == number:
                        shutil.copytree(out, tmp_path / "left")
                        raise Killed
                    return result

                patch.setattr(owner, name, call_and_kill)
                with pytest.raises(Killed):
                    corpus_from_text([source], recipe, out, report=lines.append, **options)
                shutil.rmtree(out)
                (tmp_path / "left").rename(out)
                return lines
            corpus_from_text([source], recipe, out, report=lines.append, **options)
        return lines

    return prepare


def steps(lines):
    return [line for line in (TRAINED, TOKENIZER, CORPUS, SHARDS) if any(text.startswith(line) for text in lines)]


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_killed_while_the_tokenizer_trains(prepare):
    assert steps(prepare(kill=(module, "train_vocabulary"))) == [TRAINED]
    assert steps(prepare()) == [TRAINED]


def test_killed_after_the_tokenizer(prepare, tmp_path):
    prepare(kill=(module, "check_words"))
    before = files(tmp_path / "run" / "text" / "tokenizer")
    assert steps(prepare()) == [TOKENIZER]
    assert files(tmp_path / "run" / "text" / "tokenizer") == before


def test_killed_within_the_corpus(prepare, tmp_path):
    prepare(kill=(build.PartialCorpus, "_save"), number=3)  # at the start, and after each of two full shards
    assert (tmp_path / "run" / "text" / "corpus.partial").exists()
    assert steps(prepare()) == [TOKENIZER, SHARDS]
    found = files(tmp_path / "run" / "text" / "corpus")
    shutil.rmtree(tmp_path / "run")
    prepare()
    assert files(tmp_path / "run" / "text" / "corpus") == found, "the same as without interruption"


def test_killed_after_the_corpus(prepare, tmp_path):
    prepare(kill=(build, "open_corpus"))
    folder = tmp_path / "run" / "text"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != "documents"}
    assert steps(prepare()) == [TOKENIZER, CORPUS]
    assert not (folder / "documents").exists(), "the copy of the text is removed"
    assert before.items() >= {path: path.stat().st_mtime_ns for path in folder.rglob("*")}.items()


@pytest.mark.parametrize("moment", [(module, "check_words"), (build, "open_corpus")], ids=["tokenizer", "corpus"])
def test_a_changed_source_is_read_again(prepare, source, moment):
    prepare(kill=moment)
    text = source.read_text(encoding="utf8")
    source.write_text(text.replace("dog", "fox", 1), encoding="utf8")  # of the same length
    os.utime(source, ns=(0, 1))
    assert steps(prepare()) == [TRAINED]


def test_a_half_made_corpus_of_a_changed_source_is_no_obstacle(prepare, source):
    prepare(kill=(build.PartialCorpus, "_save"), number=3)
    source.write_text("Other words near the sea. " * 30 + "\n\n" + source.read_text(encoding="utf8"), encoding="utf8")
    assert steps(prepare()) == [TRAINED]


def test_other_settings_are_another_preparation(prepare):
    prepare(kill=(build, "open_corpus"))
    assert steps(prepare("tokenizer.vocabulary=180")) == [TRAINED]
    assert steps(prepare("tokenizer.vocabulary=180", options=TextOptions(documents="line"))) == [TRAINED]
    again = prepare("tokenizer.vocabulary=180", "optimizer.learning_rate=1e-3", options=TextOptions(documents="line"))
    assert steps(again) == [TOKENIZER, CORPUS], "what is trained later does not matter"


def test_another_test_file_of_the_same_name_is_another_preparation(prepare, documents, tmp_path):
    path = tmp_path / "test.txt"
    path.write_text(documents[0])
    rules = read_rules(["duplicates"], [path])
    prepare(kill=(build, "open_corpus"), rules=rules)
    assert steps(prepare(rules=rules)) == [TOKENIZER, CORPUS]
    path.write_text(documents[1])
    assert steps(prepare(rules=rules)) == [TRAINED]


def test_another_version_is_another_preparation(prepare, monkeypatch):
    prepare()
    monkeypatch.setattr("unmask.support.fingerprint.__version__", "0.0.0")
    assert steps(prepare()) == [TRAINED]


def test_a_damaged_corpus_is_built_again(prepare, tmp_path):
    prepare()
    (shard,) = (tmp_path / "run" / "text" / "corpus").glob("heldout*.tokens.npy")
    shard.write_bytes(shard.read_bytes()[:-8])
    lines = prepare()
    assert steps(lines) == [TOKENIZER]
    assert any(line.startswith("rebuilding the corpus: ") for line in lines)
    open_corpus(tmp_path / "run" / "text" / "corpus").verify()


def test_with_a_model_its_tokenizer_decides(prepare, corpus, recipe, tmp_path):
    for name, seed in (("one", 1), ("two", 2)):
        recipe = read_recipe("bert-tiny", parse_overrides([*SMALL, "budget.steps=1", f"seed={seed}"]))
        pretrain_corpus(recipe, corpus, tmp_path / name, quiet=True)
    small = [text for text in SMALL if text.startswith("layout.")]
    assert steps(prepare(*small, init=tmp_path / "one")) == []
    assert steps(prepare(*small, init=tmp_path / "two")) == [CORPUS], "the same words, other weights"
    assert steps(prepare(*small)) == [TRAINED]


def test_an_extended_tokenizer_is_prepared_once(prepare, source, corpus, tmp_path):
    small = [*SMALL, "budget.steps=1"]
    pretrain_corpus(read_recipe("bert-tiny", parse_overrides(small)), corpus, tmp_path / "model", quiet=True)
    text = source.read_text(encoding="utf8").replace("dog", "hepatitis")
    source.write_text(text, encoding="utf8")
    given = {"init": tmp_path / "model", "extend": 1}
    lines = prepare(*small, kill=(module, "check_words"), **given)
    assert lines[0] == "extending the tokenizer"
    assert lines[2].startswith("new tokens: hepatitis (")
    assert steps(prepare(*small, **given)) == [TOKENIZER]
    assert steps(prepare(*small, **given)) == [TOKENIZER, CORPUS]
    assert open_corpus(tmp_path / "run" / "text" / "corpus").tokenizer.size == corpus.tokenizer.size + 1
    assert steps(prepare(*small, init=tmp_path / "model", extend=2)) == [], "another number is another preparation"
    assert steps(prepare(*small, init=tmp_path / "model")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"extend": 0}, "extend=0: not a whole number of 1 or more"),
        ({"extend": 5}, "there is nothing to learn"),
    ],
)
def test_bad_choices_are_refused(source, tokenizer, tmp_path, options, message):
    recipe = read_recipe("bert-tiny", parse_overrides([*SMALL, "encoder.head_dropout=0.1"]))
    save_model(tmp_path / "model", Model(recipe.encoder.build(tokenizer.size), tokenizer), "")
    source.write_text("The dog.\n\nThe cat.", encoding="utf8")
    with pytest.raises(UserError, match=message):
        corpus_from_text([source], recipe, tmp_path / "run", init=tmp_path / "model", report=str, **options)
    assert not (tmp_path / "run" / "text" / "corpus").exists()


def test_a_run_that_broke_off_before_its_first_step_was_saved(prepare, source, tmp_path):
    out, recipe = tmp_path / "run", read_recipe("bert-tiny", parse_overrides(SMALL))
    corpus = corpus_from_text([source], recipe, out, report=lambda line: None)
    pretrain_corpus(recipe, corpus, out, quiet=True)
    shutil.copytree(out, tmp_path / "finished")
    for name in ("model", "plots", "report.md"):
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(out / "checkpoints")
    (out / "checkpoints" / "step-00000000").mkdir(parents=True)
    with RunDirectory(out) as run:
        run._lock()
        with pytest.raises(UserError, match="another program is writing to this run"):
            prepare()
    assert steps(prepare()) == [TOKENIZER, CORPUS]
    assert {path.name for path in out.iterdir()} - {".lock"} == {"text"}
    shutil.rmtree(out)
    (tmp_path / "finished").rename(out)
    before = files(out)
    with pytest.raises(UserError, match="not empty"):
        prepare()
    assert files(out) == before, "a run that has saved a step is not touched"


def test_the_vocabulary_suits_the_text(text_file, tmp_path):
    french = tmp_path / "french.txt"
    french.write_text("Le garçon a été très étonné à la fête. " * 9 + "\n\nUn été.", encoding="utf8")
    recipe = read_recipe("bert-tiny", parse_overrides([*SMALL, "tokenizer.vocabulary=120"]))

    def tokenizer(path, *suited):
        out = tmp_path / "-".join((path.stem, *suited))
        return corpus_from_text([path], recipe, out, suited=suited, report=lambda line: None).tokenizer

    assert tokenizer(french).lowercase, "as the recipe has it"
    assert tokenizer(text_file).size == 120 < tokenizer(text_file, "vocabulary").size
    thai = tmp_path / "thai.txt"
    thai.write_text("ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอน" * 9 + "\n\nภาษาไทย", encoding="utf8")
    assert [tokenizer(path, "kind", "vocabulary").kind.name for path in (french, thai)] == ["wordpiece", "unigram"]


@pytest.mark.parametrize("suited", [(), ("vocabulary",)], ids=["given", "chosen"])
def test_the_text_is_read_once(source, tmp_path, suited, monkeypatch):
    """Beside its checksum and its first bytes, which tell what it is; so it may come from a pipe."""
    opened, parse = [], copies.read_sources

    def read(paths, *given):
        opened.append(paths)
        return parse(paths, *given)

    monkeypatch.setattr(copies, "read_sources", read)
    recipe = read_recipe("bert-tiny", parse_overrides(SMALL))
    corpus_from_text([source], recipe, tmp_path / "run", suited=suited, report=lambda line: None)
    assert len(opened) == 1
    assert {path.name for path in (tmp_path / "run" / "text").iterdir()} & {"documents"} == set()
    os.mkfifo(tmp_path / "pipe.txt")
    writer = Thread(target=lambda: (tmp_path / "pipe.txt").write_bytes(source.read_bytes()))
    writer.start()
    corpus_from_text([tmp_path / "pipe.txt"], recipe, tmp_path / "piped", suited=suited, report=lambda line: None)
    writer.join()
    folders = [tmp_path / name / "text" / "corpus" for name in ("run", "piped")]
    shards, piped = ({name: data for name, data in files(folder).items() if name != NAME} for folder in folders)
    assert shards == piped


def test_what_was_skipped_is_counted_after_an_interruption(prepare, source, tmp_path):
    source.write_bytes(source.read_bytes() + b"\n\nnot UTF-8: \xff")
    prepare(kill=(module, "check_words"))
    lines = prepare()
    assert steps(lines) == [TOKENIZER]
    manifest = open_corpus(tmp_path / "run" / "text" / "corpus").manifest
    assert manifest.skipped.count == 1 and "skipped: 1 document, the first of them:" in lines


def test_there_is_no_run_to_resume(prepare, source, tmp_path):
    prepare(kill=(module, "check_words"))
    with pytest.raises(UserError, match=r"there is no run to resume; .* omit resume"):
        prepare(resume=True)


def test_standard_input_is_never_reused():
    words = read_recipe("bert-tiny", parse_overrides([])).tokenizer
    assert module._made_from(["-"], TextOptions(), words, None, (), Rules()) == b""


KILLER = """
import os, signal, sys
from unmask.workflows.pretraining import pretrain, text_corpus
from unmask.training.runs import directory
from unmask.cli.main import main

def kill(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

{place} = kill
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("text_corpus.write_corpus", [TOKENIZER]),
        ("pretrain.open_run", [TOKENIZER, CORPUS]),
        ("directory.RunDirectory._write_provenance", [TOKENIZER, CORPUS]),
        ("directory.RunDirectory.log", [TOKENIZER, CORPUS]),
        ("pretrain.Trainer.start", [TOKENIZER, CORPUS]),
        ("pretrain.Trainer._plan", [TOKENIZER, CORPUS]),
    ],
)
def test_the_same_command_goes_on_after_kill_9(source, tmp_path, place, expected):
    """Killed before the corpus, before the run, while its folder is created, before its first checkpoint, after it."""
    out = tmp_path / "run"
    given = ["pretrain", "bert-tiny", "--text", str(source), "--out", str(out), "--device", "cpu"]
    given += [word for setting in SMALL for word in ("--set", setting)]
    killed = forking.run(["-c", KILLER.format(place=place), *given])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = forking.run(["-m", "unmask", *given])
    assert done.returncode == 0, done.stderr
    assert steps(done.stderr.splitlines()) == expected
    assert (out / "model" / "model.safetensors").exists()
