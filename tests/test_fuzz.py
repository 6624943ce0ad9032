"""Mutated files of every kind: one line and status 2, or success; no traceback, no hang, bounded memory (C16).

Each case runs in a process that has imported everything once and forks. FUZZ_CASES sets their number, FUZZ_SEED the
seed. In the suite a sample runs for a few seconds.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask.cli.main import main
from unmask.data.batches.sources import Cursor
from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.question_files import read_squad
from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.unigram import train_unigram
from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model
from unmask.recipes.recipe import read_recipe, recipe_text
from unmask.support.errors import UnmaskError
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.training.checkpoint import Progress, State, load_checkpoint, newest_checkpoint, save_checkpoint
from unmask.workflows.distillation.targets import TargetStore

CASES, SEED = int(os.environ.get("FUZZ_CASES", "24")), int(os.environ.get("FUZZ_SEED", "0"))
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
    heads = {"classification": ClassificationHead(encoder.head, 2).state_dict()}
    save_model(path / "model", Model(encoder, tokenizer, heads, ("no", "yes"), Classification(length=32)), "card")
    (path / "model" / "checksums.json").unlink()  # which would refuse everything
    shutil.copytree(corpus.directory, path / "corpus")
    texts = ["the cat sat on the mat and then it ran away"] * 20
    for name, other in (("bpe", train_bpe(texts, size=300)), ("unigram", train_unigram(texts, size=60))):
        other.save(path / name)
    (path / "bpe" / "tokenizer.json").unlink()  # so that vocab.json and merges.txt are read
    _write_labelled(path)
    (path / "a.toml").write_text(recipe_text("bert-mini")[0])
    save_checkpoint(path / "checkpoints", State({"weight": torch.ones(20)}, {}, Progress(cursor=Cursor(), step=1)))
    store = TargetStore(path / "targets", {"teacher": "a"})
    store.put(bytes(16), np.zeros((2, 4), np.float16), np.zeros((2, 4), np.int32))
    store.flush()
    return path


def _write_labelled(path):
    """Write labeled files of each format, and text."""
    rows = [("the dog, sees", "yes"), ("the cat", "no")] * 5
    (path / "a.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    (path / "a.csv").write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))
    (path / "a.jsonl").write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    (path / "a.conll").write_text("the O\ndog B-PER\n\nsees O\nit I-PER\n\n" * 3)
    answers = [{"text": "dog", "answer_start": 4}]
    paragraph = {"context": "the dog sees", "qas": [{"id": "1", "question": "who sees?", "answers": answers}]}
    (path / "a.json").write_text(json.dumps({"version": "1.1", "data": [{"title": "a", "paragraphs": [paragraph]}]}))
    (path / "a.txt").write_text("the dog sees.\n\nthe cat sees it.\n" * 5)


def newest():
    """Load the newest valid checkpoint."""
    load_checkpoint(newest_checkpoint(Path("checkpoints"))[0])


def texts(name):
    """Read the documents of a file, those that can be read."""
    return list(read_documents([name], TextOptions(), Skipped()))


ENCODE = ["tokenizer", "encode", "the dog sees a cat", "--tokenizer"]
EVALUATE, PREDICT = ["evaluate", "--model", "model", "--data"], ["predict", "--model", "model", "the dog"]
TARGETS = {
    **{name: [*EVALUATE, name] for name in ("a.tsv", "a.csv", "a.jsonl")},
    "a.conll": lambda: read_annotations(["a.conll"], columns={}),
    "a.json": lambda: read_squad(["a.json"]),
    "a.txt": lambda: texts("a.txt"),
    "a.toml": lambda: read_recipe("a.toml"),
    **{f"model/{name}": PREDICT for name in ("config.json", "model.safetensors", "tokenizer_config.json")},
    **{f"{name}/tokenizer.json": [*ENCODE, name] for name in ("model", "unigram")},
    **{f"bpe/{name}": [*ENCODE, "bpe"] for name in ("vocab.json", "merges.txt", "special_tokens_map.json")},
    **{f"corpus/{name}": ["corpus", "info", "corpus"] for name in ("manifest.json", "tokenizer/tokenizer.json")},
    **{f"checkpoints/step-00000001/{name}": newest for name in ("manifest.json", "progress.json", "model.safetensors")},
    "targets/manifest.json": lambda: TargetStore("targets", {"teacher": "a"}),
}
"""What reads each file: a command, or a function that raises an error for users."""


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


def attempt(reads, log):
    """Run a command or a function in a forked process with limits; return its status, and what it wrote."""
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
            if isinstance(reads, list):
                status = main(reads)
            else:
                reads()
                status = 0
            sys.stderr.flush()
        except UnmaskError:
            status = 2
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
    rng, failures = random.Random(SEED), []
    for name, reads in TARGETS.items():
        monkeypatch.chdir(files)
        assert attempt(reads, tmp_path / "log")[0] == 0, (name, (tmp_path / "log").read_text())
    for number in range(CASES):
        name = list(TARGETS)[number % len(TARGETS)]
        valid = (files / name).read_bytes()
        try:
            (files / name).write_bytes(mutated := mutate(valid, rng))
            status, printed = attempt(TARGETS[name], tmp_path / "log")
        finally:
            (files / name).write_bytes(valid)
        if status not in (0, 2) or "Traceback" in printed or "panicked" in printed:
            failures.append(f"seed {SEED}, case {number}, {name}: status {status}: {printed[-300:]}")
            (tmp_path / f"case-{number}").write_bytes(mutated)
    assert not failures, "\n\n".join(failures[:20])
