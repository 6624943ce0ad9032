"""Tests of encoding in several processes: the same corpus and errors for any number of workers, in bounded memory."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

import unmask
from unmask.data.corpus import encode
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.encode import DocumentEncoder, encode_documents
from unmask.data.text.documents import TextOptions, resolve_documents
from unmask.data.tokenizers.bpe import train_bpe
from unmask.support.errors import UnmaskError, UserError
from unmask.workflows.corpora import building


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Make small texts consist of many chunks."""
    monkeypatch.setattr(encode, "_CHUNK", 500)


def test_D14_any_number_of_workers_gives_identical_shards(tmp_path, tokenizer, make_documents, files_of):
    documents = [*make_documents(200), "The cat. " * 500, "\ufffd", "", "你好。" * 300, *make_documents(100, seed=1)]
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents) + "{\n")
    corpora = [
        write_corpus([source], tokenizer, tmp_path / f"corpus-{workers}", shard_tokens=2000, workers=workers)
        for workers in (1, 3)
    ]
    expected = files_of(corpora[0].directory)
    assert len(corpora[0].manifest.train.shards) > 3
    assert len(corpora[0].train) + len(corpora[0].heldout) == 302
    for corpus in corpora[1:]:
        assert files_of(corpus.directory) == expected
    assert multiprocessing.active_children() == []


def test_D14_planted_fault_results_out_of_order_are_found(source, built, tokenizer, tmp_path, files_of, monkeypatch):
    def last_first(chunks, encoder, workers):
        return reversed([encoder(chunk) for chunk in chunks])

    monkeypatch.setattr(encode, "map_in_processes", last_first)
    corpus = write_corpus([source], tokenizer, tmp_path / "other", shard_tokens=2000, workers=2)
    assert files_of(corpus.directory) != files_of(built.directory)


def test_the_reader_waits_for_the_writer(tokenizer, make_documents):
    read = []
    texts = make_documents(1000)
    documents = encode_documents(
        (read.append(text) or text for text in texts), DocumentEncoder(tokenizer, "<u2"), workers=2
    )
    next(documents)
    assert sum(map(len, read)) < (2 * encode._UNDER_WAY + 2) * (500 + max(map(len, texts)))
    documents.close()  # which ends the workers
    assert multiprocessing.active_children() == []


IN_PROCESSES = """
import os
from unmask.data.corpus import encode

encode._CHUNK = 2
if __name__ == "__main__":
    print(list(encode.encode_documents(["ab", "cd", "ef"], sorted, workers=2)), "PYTHONSAFEPATH" in os.environ)
"""


def test_E1_workers_run_no_code_of_the_current_folder(planted, tmp_path):
    (tmp_path / "script.py").write_text(IN_PROCESSES)
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(command, cwd=planted, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("['ab', 'cd', 'ef'] False\n", "")


UNGUARDED = """
from functools import partial

from unmask.data.corpus import build, encode

encode._CHUNK = 2
CALL
"""
ENCODES = 'list(encode.encode_documents(["ab", "cd", "ef"], partial(zip, "x" * SIZE), workers=2))'
BUILDS = 'build.write_corpus("text.txt", build.open_corpus("here").tokenizer, "again", workers=2)'


@pytest.mark.parametrize(
    ("call", "in_workers"),
    [
        (ENCODES.replace("SIZE", "1"), "RuntimeError"),
        (ENCODES.replace("SIZE", "1_000_000"), "RuntimeError"),  # more than a pipe holds
        (BUILDS, "UserError: a process that the script has started runs the whole script again; put the call under"),
    ],
)
def test_E11_a_script_that_starts_workers_at_its_top_level_is_refused(call, in_workers, built, tmp_path):
    """The workers import the script, which ends them; they were waited for without end."""
    (tmp_path / "here").symlink_to(built.directory)
    (tmp_path / "text.txt").write_text("a cat\n\na dog\n\n" * 10)
    (tmp_path / "script.py").write_text(UNGUARDED.replace("CALL", call))
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert in_workers in done.stderr
    refusal = (
        "unmask.support.errors.UserError: the processes that tokenize ended before they began; in a script, put the "
        'call under `if __name__ == "__main__":`, as each process that tokenizes imports the script; or memory ran out'
    )
    assert refusal in done.stderr.splitlines()  # after which Python may warn of what the workers left


WAITING = {
    "compare": 'unmask.compare(text="text.txt", arms="bert-tiny,bert-mini", budget="9ktok", out="out")',
    "build": 'building.TASK_BYTES = 99; unmask.build_corpus("text.txt", "tokenizer", "out", workers=9)',
}
"""Calls that wait for other processes with the same output."""


@pytest.fixture
def waiting(tokenizer, tmp_path):
    """The folder of the inputs of these calls."""
    tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text("a cat\n\na dog\n\n" * 20)
    return tmp_path


@pytest.mark.parametrize("call", WAITING.values(), ids=WAITING)
def test_a_worker_that_imports_a_script_is_refused_before_it_waits(call, waiting, monkeypatch):
    monkeypatch.chdir(waiting)
    monkeypatch.setattr(building, "TASK_BYTES", building.TASK_BYTES)  # restored after the call
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)  # as while it imports
    with pytest.raises(UserError, match="a process that the script has started runs the whole script again"):
        exec(call, {"unmask": unmask, "building": building})
    assert {path.name for path in waiting.iterdir()} == {"tokenizer", "text.txt"}, "nothing is begun"


@pytest.mark.exhaustive
@pytest.mark.parametrize("call", WAITING.values(), ids=WAITING)
def test_a_script_whose_workers_would_wait_for_it_ends(call, waiting):
    """Workers that import a script without a guard waited for the locks of the process that waits for them."""
    imported = "import unmask; from unmask.data.corpus import encode; from unmask.workflows.corpora import building"
    (waiting / "script.py").write_text(f"{imported}\nencode._CHUNK = 2\n{call}\n")
    command = [sys.executable, waiting / "script.py"]
    done = subprocess.run(command, cwd=waiting, capture_output=True, text=True, timeout=120, check=False)
    assert "a process that the script has started runs the whole script again" in done.stderr


class Deadly:
    """Ends the process that reads it from a file."""

    def __reduce__(self):
        return os._exit, (9,)


def test_E11_a_worker_that_is_killed_while_it_starts_is_noticed(tmp_path):
    with pytest.raises(UserError, match="ended before they began"):
        list(encode_documents(["a" * 500] * 3, Deadly(), workers=2))
    assert multiprocessing.active_children() == []


def test_one_chunk_needs_no_workers(source, built, tokenizer, tmp_path, files_of, monkeypatch):
    monkeypatch.setattr(encode, "_CHUNK", 10**6)
    monkeypatch.setattr(encode, "map_in_processes", lambda *call: pytest.fail("processes were started"))
    corpus = write_corpus([source], tokenizer, tmp_path / "other", shard_tokens=2000, workers=8)
    assert files_of(corpus.directory) == files_of(built.directory)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_is_the_same_as_with_one(make_documents, workers):
    failing = partial(resolve_documents, options=TextOptions(documents="sideways"))
    with pytest.raises(UserError) as error:
        list(encode_documents(make_documents(50), failing, workers))
    assert str(error.value) == 'documents="sideways": no such choice; known: auto, blank-line, file, line'
    assert multiprocessing.active_children() == []


def test_an_error_of_the_reader_is_the_same_as_with_one(source, tokenizer, tmp_path):
    with source.open("a") as stream:
        stream.write("{\n")
    messages = []
    for workers in (1, 2):
        with pytest.raises(UserError) as error:
            write_corpus([source], tokenizer, tmp_path / "corpus", options=TextOptions(strict=True), workers=workers)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert messages[0].startswith(f"{source}:301: broken JSON")
    assert not list(tmp_path.glob("corpus*"))


def test_a_worker_that_is_killed_ends_the_build(source, built, tokenizer, tmp_path, files_of):
    lines = []

    def kill(line):
        lines.append(line)
        if line.startswith("train-00000"):
            for worker in multiprocessing.active_children():  # all: one might finish the rest
                worker.kill()

    settings = {"shard_tokens": 2000, "workers": 2, "report": kill}
    with pytest.raises(UnmaskError, match="a worker process was killed; if memory ran out, use fewer workers") as error:
        write_corpus([source], tokenizer, tmp_path / "other", **settings)
    assert error.value.status == 1
    assert multiprocessing.active_children() == []
    assert "other.partial contains " in lines[-1]
    corpus = write_corpus([source], tokenizer, tmp_path / "other", shard_tokens=2000)
    assert files_of(corpus.directory) == files_of(built.directory)


def test_sentences_include_the_space_before_them(tmp_path):
    text = "He came home. She left early!  They met\n\nagain. 你好。再見。"
    tokenizer = train_bpe([text] * 3, size=300)
    (document,) = DocumentEncoder(tokenizer, "<u2")([text])
    ids, lengths = np.frombuffer(document.ids, "<u2"), np.frombuffer(document.lengths, np.int64)
    assert tokenizer.decode(ids) == "He came home. She left early! They met again. 你好。再見。"
    assert ids.tolist() == tokenizer.encode("He came home. She left early! They met again. 你好。再見。").tolist()
    assert len(lengths) == 6


@pytest.mark.timeout(120)
def test_workers_end_in_the_middle_of_their_work_if_it_is_interrupted():
    """It took as long as all that they had been handed, whole files where text is cleaned."""
    results = encode.map_in_processes([0, 3600, 3600, 3600], time.sleep, 2)
    assert next(results) is None  # that of the first item
    results.close()
    assert not multiprocessing.active_children()
