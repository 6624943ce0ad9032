"""Mutated files of every kind: one line and status 2, or success; no traceback, no hang, bounded memory (C16).

Each case is a command in a process that has imported everything once and forks; FUZZ_CASES sets their number.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import pytest

from unmask.cli.main import main
from unmask.families.bert import BertSettings
from unmask.labelled import sentence, tagged_file  # noqa: F401 (imported before the fork)
from unmask.model import Model, save_model
from unmask.tasks.classification import Classification, ClassificationHead

CASES = int(os.environ.get("FUZZ_CASES", "120"))
SECONDS, MEMORY = 60, 3 << 30
"""What a case may take: time, and address space in addition to that of the process it is forked from."""
WORDS = [
    b"null",
    b"-1",
    b"1e999",
    b"9" * 400,
    b"[" * 3000,
    b'"',
    b"\xff",
    b"\0",
    b"{}",
    b"true",
    b"\n",
    b"\t",
    b"\xed\xa0\x80",
]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


@pytest.fixture(scope="module")
def files(tokenizer, corpus, tmp_path_factory):
    """A folder with one valid file or directory of each kind."""
    path = tmp_path_factory.mktemp("valid")
    shape = BertSettings(layers=1, width=32, heads=2, feed_forward=64, positions=32)
    encoder = shape.build(tokenizer.size)
    head = ClassificationHead(encoder.head, 2)
    heads = {"classification": head.state_dict()}
    save_model(path / "model", Model(encoder, tokenizer, heads, ("no", "yes"), Classification(length=32)), "card")
    (path / "model" / "checksums.json").unlink()
    shutil.copytree(corpus.directory, path / "corpus")
    rows = [("the dog, sees", "yes"), ('the "cat"', "no")] * 5
    (path / "a.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    (path / "a.csv").write_text(
        "text,label\n" + "".join(f'"{text.replace(chr(34), "")}",{label}\n' for text, label in rows)
    )
    (path / "a.jsonl").write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    assert main(["recipes", "show", "bert-tiny"]) == 0
    from unmask.recipe import recipe_text

    (path / "a.toml").write_text(recipe_text("bert-tiny")[0])
    return path


TARGETS = {
    "a.tsv": ["evaluate", "--model", "model", "--data", "a.tsv"],
    "a.csv": ["evaluate", "--model", "model", "--data", "a.csv"],
    "a.jsonl": ["evaluate", "--model", "model", "--data", "a.jsonl"],
    "a.toml": ["recipes", "diff", "bert-tiny", "a.toml"],
    "model/config.json": ["predict", "--model", "model", "the dog"],
    "model/tokenizer.json": ["tokenizer", "encode", "--tokenizer", "model", "the dog sees a cat"],
    "model/tokenizer_config.json": ["tokenizer", "encode", "--tokenizer", "model", "the dog sees a cat"],
    "model/model.safetensors": ["predict", "--model", "model", "the dog"],
    "corpus/manifest.json": ["corpus", "info", "corpus"],
    "corpus/tokenizer/tokenizer.json": ["corpus", "info", "corpus"],
}


def mutate(content, rng):
    """Return a content with a few bytes or words changed, removed, repeated or inserted."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(max(1, len(found)))
        size = rng.choice((1, 1, 4, 30, 300))
        match rng.randrange(5):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[at : at + size]
            case 2:
                found[at:at] = found[at : at + size] * rng.choice((1, 1, 50))
            case 3:
                found[at : at + rng.choice((0, 1, 4))] = rng.choice(WORDS)
            case 4:
                digits = [index for index in range(at, min(len(found), at + 500)) if found[index : index + 1].isdigit()]
                if digits:
                    found[digits[0] : digits[0] + 1] = rng.choice(
                        (b"0", b"-1", b"99999999", b"1.5", b"9223372036854775808")
                    )
    return bytes(found)


def attempt(arguments, log):
    """Run a command in a forked process with limits; return its status, and what it wrote."""
    child = os.fork()
    if not child:
        status = 70
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            with log.open("w") as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            status = main(arguments)
            sys.stderr.flush()
        except SystemExit as ended:
            status = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(status)
    _, code = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(code), log.read_text(errors="replace")


def test_C16_mutated_files_are_read_or_refused(files, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    rng, failures = random.Random(0), []
    for name, arguments in TARGETS.items():
        monkeypatch.chdir(files)
        assert attempt(arguments, tmp_path / "log")[0] == 0, (name, (tmp_path / "log").read_text())
    started = time.monotonic()
    for number in range(CASES):
        name = list(TARGETS)[number % len(TARGETS)]
        valid = (files / name).read_bytes()
        try:
            (files / name).write_bytes(mutated := mutate(valid, rng))
            status, printed = attempt(TARGETS[name], tmp_path / "log")
        finally:
            (files / name).write_bytes(valid)
        if status not in (0, 2) or "Traceback" in printed or "panicked" in printed:
            failures.append(f"case {number}, {name}: status {status}: {printed[-300:]}")
            (tmp_path / f"case-{number}").write_bytes(mutated)
        if CASES < 1000 and time.monotonic() - started > 45:  # in the suite, on a loaded machine
            break
    assert not failures, "\n\n".join(failures[:20])
