"""Examples of a run: division, order of labels, contradictions, fingerprints and conversion to samples."""

import dataclasses
import json
import os
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.question_files import Question
from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification
from unmask.tasks.holding_out import parted
from unmask.tasks.question_answering import QuestionAnswering
from unmask.workflows.finetuning.examples import HOLD_OUT_SEED, contradictions, frame_examples, read_examples
from unmask.workflows.finetuning.job import LabelledFiles

TASK = Classification(length=32)


def test_the_order_of_the_models_labels_is_used(classifier, rows):
    base = load_model(classifier)
    assert read_examples(TASK, LabelledFiles([rows]), base).labels == ("long", "brief") == base.labels
    rows.write_text(rows.read_text().replace("brief", "short"))
    assert read_examples(TASK, LabelledFiles([rows]), base).labels == ("long", "short")
    rows.write_text(rows.read_text() + "a third\tempty\n")
    assert read_examples(TASK, LabelledFiles([rows]), base).labels == ("empty", "long", "short")


def test_the_tenth_that_is_held_out_does_not_depend_on_the_run(classifier, rows):
    first, second = (read_examples(TASK, LabelledFiles([rows]), load_model(classifier)) for _ in range(2))
    assert (first.train, first.held) == (second.train, second.held)
    every = TASK.read([rows], columns={})
    assert (first.train, first.held) == parted(every, TASK.choose_held(every, TASK.identities(every), HOLD_OUT_SEED))
    assert (len(first.train), len(first.held)) == (108, 12)


def test_dev_files_replace_the_tenth_but_not_the_inner_one(classifier, rows, tmp_path):
    dev = tmp_path / "dev.tsv"
    dev.write_text("text\tlabel\nthe dog\tlong\nthe cat\tlong\n")
    found = read_examples(TASK, LabelledFiles([rows], [dev]), load_model(classifier))
    assert (len(found.train), len(found.held)) == (120, 2)
    inner = found.inner(TASK)
    assert (len(inner.train), len(inner.held)) == (108, 12)
    assert (inner.labels, inner.notes) == (found.labels, found.notes)
    lines = {row.line for row in found.train}
    assert {row.line for row in inner.train} | {row.line for row in inner.held} == lines


@pytest.mark.seeds(20)
def test_equal_texts_with_other_labels_are_found(seed):
    rng = random.Random(seed)
    texts = [(rng.choice("aB"), rng.choice("bA"))[: rng.choice([1, 2])] for _ in range(40)]
    names = ("text", "text_b")
    rows = [Row({**dict(zip(names, text, strict=False)), "label": rng.choice("xyz")}, "a.tsv", 2) for text in texts]
    found = contradictions(TASK, rows, TASK.identities(rows))
    for row, text, equal in zip(rows, texts, found, strict=True):
        others = [
            number
            for number, (other, its) in enumerate(zip(rows, texts, strict=True))
            if [part.lower() for part in its] == [part.lower() for part in text]
            and other.values["label"] != row.values["label"]
        ]
        assert equal == (others[0] if others else None)


def test_contradictions_are_told(classifier, tmp_path):
    rows = tmp_path / "train.tsv"
    rows.write_text("text\tlabel\n" + "a dog\tlong\nA dog.\tbrief\n" + "".join(f"cat {n}\tlong\n" for n in range(18)))
    notes = read_examples(TASK, LabelledFiles([rows]), load_model(classifier), hold_out=False).notes
    told = "have the text of another one, but for case and punctuation, and other labels"
    assert notes == [f"2 of the 20 training examples (10.0 %) {told}: {rows}:2 as {rows}:3"]


def test_variants_of_examples_that_are_held_out_are_left_out(classifier, rows):
    found = read_examples(TASK, LabelledFiles([rows]), load_model(classifier))
    origins = [0, *range(0, 108, 2)]
    variants = [replace(found.train[origin], line=1000 + number) for number, origin in enumerate(origins)]
    inner = dataclasses.replace(found, train=[*found.train, *variants], origins=origins).inner(TASK)
    plain = found.inner(TASK)
    assert inner.held == plain.held
    kept = [number for number, origin in enumerate(origins) if found.train[origin] not in plain.held]
    assert 0 < len(kept) < len(origins)
    assert inner.train == [*plain.train, *(variants[number] for number in kept)]
    assert [inner.train[new] for new in inner.origins] == [found.train[origins[number]] for number in kept]


def test_notes_are_collected_from_all_files(classifier, tmp_path):
    text = "gold_label\tsentence1\tsentence2\n-\ta\tb\n" + "long\ta\tb\nbrief\tc\td\n" * 10
    paths = [tmp_path / "train.tsv", tmp_path / "dev.tsv"]
    for path in paths:
        path.write_text(text)
    found = read_examples(TASK, LabelledFiles(paths[:1], paths[1:]), load_model(classifier))
    assert found.notes[:2] == [f"{path}: omitted, as the format specifies: 1 pair without a label" for path in paths]


@pytest.mark.parametrize("part", ["train", "dev"])
def test_a_file_counts_once_by_whatever_path(classifier, rows, tmp_path, part):
    link = tmp_path / "link.tsv"
    link.symlink_to(rows)
    for other in (rows, rows.parent / "x" / ".." / rows.name, Path(os.path.relpath(rows)), link):
        files = LabelledFiles([rows, other]) if part == "train" else LabelledFiles([rows], [rows, other])
        with pytest.raises(UserError, match=f"{other.name}: the file is given twice, so its examples would count"):
            read_examples(TASK, files, load_model(classifier))


def test_fingerprints_change_with_the_examples_of_their_part(classifier, rows, tmp_path):
    base, dev = load_model(classifier), tmp_path / "dev.tsv"
    dev.write_text("text\tlabel\nthe dog\tlong\n")
    before = read_examples(TASK, LabelledFiles([rows], [dev]), base).fingerprints()
    assert sorted(before) == ["dev", "train"]
    assert all(len(value) == 64 for value in before.values())
    dev.write_text("text\tlabel\nthe dog\tbrief\n")
    after = read_examples(TASK, LabelledFiles([rows], [dev]), base).fingerprints()
    assert after["train"] == before["train"]
    assert after["dev"] != before["dev"]


def test_examples_are_the_same_wherever_their_file_is(classifier, rows, tmp_path):
    moved = tmp_path / "elsewhere.tsv"
    moved.write_bytes(rows.read_bytes())
    here, there = (read_examples(TASK, LabelledFiles([path]), load_model(classifier)) for path in (rows, moved))
    assert here.fingerprints() == there.fingerprints()


def test_examples_without_samples_are_refused(classifier):
    task = QuestionAnswering(length=64, no_answer=False)
    questions = [Question("a", "who?", "the dog", impossible=True)] * 2
    message = r"^no example can be used for training; questions left out of the loss because they have no answer.*: 2$"
    with pytest.raises(UserError, match=message):
        frame_examples(task, load_model(classifier), questions, (), "training")


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("long brief", "1 0", ["'brief', 'long'; '0', '1'"]),
        ("long brief", "long other", []),
        ("long", "brief", []),
        ("long brief", "other", []),
    ],
)
def test_files_without_a_label_in_common_are_noted(classifier, tmp_path, first, second, found):
    files = []
    for name, labels in (("a.tsv", first), ("b.jsonl", second)):
        texts = [(f"the {word} {number} {name}", word) for number in range(20) for word in labels.split()]
        files.append(tmp_path / name)
        if name == "a.tsv":
            content = ["text\tlabel", *("\t".join(pair) for pair in texts)]
        else:
            content = [json.dumps({"sentence": text, "class": label}) for text, label in texts]
        files[-1].write_text("\n".join(content) + "\n")
    notes = read_examples(TASK, LabelledFiles(files), load_model(classifier)).notes
    wanted = [
        f"{files[0]} and {files[1]} have no label in common ({labels}): write those that mean the same alike"
        for labels in found
    ]
    assert [note for note in notes if "in common" in note] == wanted
