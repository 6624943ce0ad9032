"""`unmask corpus build` and `unmask corpus info` as a user types them, and user errors."""

import shutil

import pytest

from unmask.cli.main import main

from .conftest import name_case, run, run_fork


def test_build_and_info(main_line, text_file):
    _, outputs = main_line
    assert "documents: blank-line" in outputs["build"].err
    assert ", 1 shard\n" in outputs["info"].out
    assert outputs["info"].out.startswith("train: 11")
    assert "\ntokenizer: 170 tokens, cased\n" in outputs["info"].out
    assert f"sources: {text_file}" in outputs["info"].out
    assert outputs["info"].err == "all checksums match\n"


def test_standard_input(tmp_path, text_file):
    text = text_file.read_text()
    train = ("tokenizer", "train", "-", "--vocab-size", 170, "--documents", "blank-line", "--out", tmp_path / "t")
    run_fork(*train, stdin=text)
    errors = run_fork("corpus", "build", "-", "--tokenizer", tmp_path / "t", "--out", tmp_path / "c", stdin=text).err
    assert "train: 11" in errors


def test_heldout_files_and_skipped_documents(line, text_file, tmp_path):
    (tmp_path / "heldout.jsonl").write_text('{"text": "The dog sees the cat."}\n{"title": "no text"}\n')
    out = tmp_path / "corpus"
    given = (text_file, "--tokenizer", line / "run", "--heldout", tmp_path / "heldout.jsonl", "--workers", 1)
    assert run("corpus", "build", *given, "--out", out, "--quiet") == ("", "")
    lines = run("corpus", "info", out).out.splitlines()
    assert lines[1].startswith("heldout: 1 document")
    assert lines[-2] == "skipped: 1"
    assert lines[-1].startswith(f"  {tmp_path / 'heldout.jsonl'}:2: ")


def test_a_damaged_shard_is_named(line, tmp_path, capsys):
    shutil.copytree(line / "corpus", tmp_path / "flipped")
    with (tmp_path / "flipped" / "train-00000.tokens.npy").open("r+b") as file:
        file.seek(200)
        file.write(b"!")
    assert main(["corpus", "info", str(tmp_path / "flipped")]) == 2
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert "flipped/train-00000.tokens.npy: is damaged: its sha256 differs" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("corpus", "build", "{line}/train.tsv", "--tokenizer", "{here}/no", "--out", "{here}/c"), "no: "),
        (
            ("corpus", "build", "{here}/empty.txt", "--tokenizer", "{line}/run", "--out", "{here}/c"),
            "no text to train on",
        ),
        (
            ("corpus", "build", "{line}/train.tsv", "--tokenizer", "{line}/run", "--workers", "0", "--out", "{here}/c"),
            "--workers 0: not a whole number from 1 to 999",
        ),
        (("corpus", "info", "{here}"), "is this the directory of a corpus?"),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
