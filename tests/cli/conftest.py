"""Helpers and fixtures shared by the tests of the command line: running commands, and a folder of trained models."""

import contextlib
import io
import os
import subprocess
import sys
from typing import NamedTuple

import pytest
import torch

from unmask.cli.main import main
from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model

from .. import forking

COMMAND = [sys.executable, "-m", "unmask"]
TINY = [
    *("encoder.layers=1", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=64", "encoder.positions=64"),
    *("layout.length=48", "batch.tokens=512", "budget.steps=3", "tokenizer.vocabulary=150"),
]


class Output(NamedTuple):
    """The text that a command wrote on standard output and standard error."""

    out: str
    err: str


def run(*arguments, status=0):
    """Run a command line in this process and return its output."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = main(list(map(str, arguments)))
    assert found == status, err.getvalue()
    return Output(out.getvalue(), err.getvalue())


def run_fork(*arguments, status=0, stdin=None):
    """Run a command line in a process of its own, which starts faster than that of `run_process`."""
    done = forking.run(["-m", "unmask", *arguments], env=os.environ | {"COLUMNS": "200"}, stdin=stdin)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return Output(done.stdout, done.stderr)


def run_process(*arguments, status=0, stdin=None):
    """Run a command line as a user does and return its output."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return Output(done.stdout, done.stderr)


def sets(settings):
    """Return settings as options of the command line."""
    return [word for setting in settings for word in ("--set", setting)]


def name_case(value):
    """Return the test id of an argument: the first two words of a command line, or the message."""
    return value if isinstance(value, str) else " ".join(value[:2])


@pytest.fixture(scope="session")
def main_line(tmp_path_factory, text_file):
    """The main commands, each run once: the folder with their results, and the output of each by name.

    The folder has `tokenizer`, `corpus`, `run` (pretrained), `train.tsv` and `tuned` (a classifier).
    """
    folder = tmp_path_factory.mktemp("main_line")
    tiny = sets(setting for setting in TINY if "tokenizer" not in setting)
    corpus = ("--tokenizer", folder / "tokenizer", "--out", folder / "corpus")
    outputs = {
        "tokenizer": run_fork("tokenizer", "train", text_file, "--vocab-size", 170, "--out", folder / "tokenizer"),
        "build": run_fork("corpus", "build", text_file, *corpus),
        "info": run_fork("corpus", "info", folder / "corpus"),
        "pretrain": run_fork(*("pretrain", "bert-tiny", "--corpus", folder / "corpus", *tiny, "--out", folder / "run")),
    }
    examples = [
        f"{word} near the {noun}\t{label}" for word, label in (("dog", "yes"), ("cat", "no")) for noun in ["sea"] * 15
    ]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *examples]))
    outputs["finetune"] = run_fork(
        *("finetune", "classification", "--model", folder / "run", "--train", folder / "train.tsv"),
        *(*sets(["budget.steps=3"]), "--out", folder / "tuned"),
    )
    return folder, outputs


@pytest.fixture(scope="session")
def line(main_line):
    """The folder with the results of the main commands; see `main_line`."""
    return main_line[0]


@pytest.fixture
def refused(line, tmp_path, capsys):
    """Run a command line with a user error; check that it prints one line only, and exits with status 2.

    In the arguments "{line}" is the folder of the main commands and "{here}" a folder with `empty.txt`, `text.txt`
    and `bad.tsv`, which has an unknown label.
    """
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "text.txt").write_text("something\n")
    (tmp_path / "bad.tsv").write_text("text\tlabel\nsomething\tmaybe\n")

    def check(arguments, message):
        arguments = [word.format(line=line, here=tmp_path) for word in arguments]
        quiet = ["--quiet"] if arguments[:2] in (["tokenizer", "train"], ["corpus", "build"]) else []
        assert main([*arguments, *quiet]) == 2
        output, errors = capsys.readouterr()
        assert output == ""
        lines = [text for text in errors.splitlines() if text.startswith("unmask: ")]
        assert errors.splitlines()[-1:] == lines
        assert message in lines[0]

    return check


@pytest.fixture(scope="session")
def small(tokenizer, tmp_path_factory):
    """A folder with a random encoder of 16 positions in `model`, and files of texts, pairs and examples."""
    path = tmp_path_factory.mktemp("small")
    torch.manual_seed(0)
    shape = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=16, init_std=0.2)
    save_model(path / "model", Model(shape.build(tokenizer.size), tokenizer), "card")
    (path / "texts.txt").write_text("the dog\n\nthe cat near the sea\n" + "the garden " * 20 + "\n")
    (path / "pairs.tsv").write_text("sentence1\tsentence2\nthe dog\tthe cat\n")
    lines = [f"{word} near the sea\t{label}" for word, label in (("dog", "yes"), ("cat", "no")) for _ in range(15)]
    (path / "train.tsv").write_text("\n".join(["text\tlabel", *lines]))
    return path
