"""What an audit writes is read back with the same texts and labels, whatever else the input had."""

import csv
import json
import random

import msgspec
import pytest

from unmask.support.errors import UserError
from unmask.tasks import TASKS
from unmask.workflows.auditing.corrections import (
    other_columns,
    sentence_records,
    text_records,
    write_records,
    write_words,
)
from unmask.workflows.auditing.suspects import Audited

HEADERS = ("text", "sentence", "review", "a text")
LABELS = ("label", "class", "sentiment", "a label")
MORE = ("id", "rank", "source", "given", "label:x", "question1", "question2", "p:joy", "text_b_", "content")
MORE = (*MORE, *(f"input_{name}" for name in MORE), "input_input_source")
WORDS = ("a", "tree,", 'say "so"', "é", "中文", "1;2", "|", "it's")


def made_up(number, rng, several=False):
    """Return the header of a table, its rows, and the columns to pass."""
    pairs = rng.random() < 0.3
    text, label = rng.choice(HEADERS), rng.choice(LABELS)
    texts = ["sentence1", "sentence2"] if pairs else [text]
    others = [name for name in rng.sample(MORE, rng.randint(0, 4)) if name not in texts]
    header = [*texts, label, *others]
    rows = [
        [f"{' '.join(rng.choices(WORDS, k=4))} {at}" for at in range(len(texts))]
        + [",".join(rng.sample("abc", rng.randint(0, 3))) if several else rng.choice("abc")]
        + [str(rng.randint(0, 9)) for _ in others]
        for _ in range(number)
    ]
    columns = {"text": texts[0], "label": label} | ({"text_b": texts[1]} if pairs else {})
    order = rng.sample(range(len(header)), len(header))
    return [header[at] for at in order], [[row[at] for at in order] for row in rows], columns


def audits(examples, rng):
    """Return audits of examples that suggest one label in three to be wrong."""
    ranks = rng.sample(range(1, len(examples) + 1), len(examples))
    return [
        Audited(labels, labels if rank % 3 else ("c",) * len(labels), rank / 99, () if rank % 3 else (0,), None, rank)
        for labels, rank in zip(examples, ranks, strict=True)
    ]


@pytest.mark.parametrize("kind", ["classification", "multi-label"])
@pytest.mark.seeds(60)
def test_texts(seed, kind, tmp_path):
    rng, several = random.Random(seed), kind == "multi-label"
    header, rows, columns = made_up(12, rng, several)
    rows[0][header.index(columns["label"])], rows[1][header.index(columns["label"])] = "a", "b"
    path, task = tmp_path / "data.csv", TASKS[kind]()
    with path.open("w", newline="", encoding="utf8") as file:
        csv.writer(file).writerows([header, *rows])
    if rng.random() < 0.3:  # without a header
        path.write_text("".join(path.read_text(encoding="utf8").splitlines(keepends=True)[1:]), encoding="utf8")
        columns = {name: str(header.index(column)) for name, column in columns.items()}
    examples = task.read([path], columns=columns)
    others = other_columns(task, [path], examples, columns=columns, kind=None)
    assert {len(other) for other in others} == {len(header) - len(columns)}
    audited = audits([row.labels if several else (row.values["label"],) for row in examples], rng)
    suffix = rng.choice([".csv", ".tsv", ".jsonl", ".parquet"])
    records = text_records(examples, others, audited, several=several)
    out = tmp_path / f"out{suffix}"
    out.write_bytes(write_records(suffix, records))
    again = task.read([out], columns={})
    order = sorted(range(len(examples)), key=lambda number: audited[number].rank)

    def content(row):
        return row.values, set(row.labels or ())

    assert [content(row) for row in again] == [content(examples[number]) for number in order]
    cells = sorted(str(value) for record in records for value in record.values())
    for row in rows:
        assert all(cell in cells for name, cell in zip(header, row, strict=True) if name not in LABELS)


def test_corrected_labels_are_read(tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("text\tlabel\none\ta\ntwo\tb\n")
    task = TASKS["classification"]()
    examples = task.read([path], columns={})
    audited = [Audited(("a",), ("b",), 0.1, (0,), 1, 1), Audited(("b",), ("b",), None, (), None, 2)]
    records = text_records(examples, [{}, {}], audited, several=False)
    assert records[0] == {
        **{"text": "one", "label": "a", "given": "a", "suggested": "b", "probability": 0.1, "rank": 1},
        "source": f"{path}:2",
        "equal_to": f"{path}:3",
    }
    records[0]["label"] = records[0]["suggested"]
    (tmp_path / "fixed.csv").write_bytes(write_records(".csv", records))
    assert [row.values["label"] for row in task.read([tmp_path / "fixed.csv"], columns={})] == ["b", "b"]


def test_columns_of_zeros_and_ones_become_one_label(tmp_path):
    path, task = tmp_path / "data.csv", TASKS["multi-label"]()
    path.write_text("id,comment,rude,kind\n7,one,1,0\n8,two,0,1\n9,three,1,1\n10,four,0,0\n")
    columns = {"text": "comment", "label": "rude,kind"}
    examples = task.read([path], columns=columns)
    others = other_columns(task, [path], examples, columns=columns, kind=None)
    assert others == [{"id": number} for number in ("7", "8", "9", "10")]
    audited = [Audited(row.labels, row.labels, 0.5, (), None, rank) for rank, row in enumerate(examples, start=1)]
    out = tmp_path / "out.csv"
    out.write_bytes(write_records(".csv", text_records(examples, others, audited, several=True)))
    assert [row.labels for row in task.read([out], columns={})] == [row.labels for row in examples]


def test_columns_of_an_earlier_audit_keep_names_of_their_own(tmp_path):
    path, task = tmp_path / "data.jsonl", TASKS["classification"]()
    source = [{"source": "mine", "label": "a"}, {"source": "x:1", "label": "b", "input_source": "mine", " given": 1}]
    path.write_text("".join(json.dumps({"text": "one", **row}) + "\n" for row in source))
    others = other_columns(task, [path], task.read([path], columns={}), columns={}, kind=None)
    new, given = "input_input_source", "input_ given"
    assert others == [{new: "mine"}, {new: "x:1", "input_source": "mine", given: 1}], "the same for all rows"


def test_the_published_format_without_a_header(tmp_path):
    path, task = tmp_path / "in_domain.tsv", TASKS["classification"]()
    path.write_text("gj04\t1\t\tIt is so.\ngj04\t0\t*\tSo it is is.\n")
    examples = task.read([path], columns={})
    others = other_columns(task, [path], examples, columns={}, kind=None)
    assert others == [{"0": "gj04", "2": ""}, {"0": "gj04", "2": "*"}]


@pytest.mark.seeds(50)
def test_words(seed, tmp_path):
    rng = random.Random(seed)
    tags = rng.choice([("O", "B-PER", "I-PER", "B-LOC"), ("NOUN", "VERB", "DET")])
    lines, documents = [], rng.random() < 0.5
    for number in range(8):
        lines += ["-DOCSTART- O", ""] if documents and number % 3 == 0 else []
        lines += [f"w{rng.randint(0, 99)}é {rng.choice(tags[: 1 if at else None])}" for at in range(rng.randint(1, 6))]
        lines.append("")
    lines += [*(f"x {tag}" for tag in tags), ""]
    path, task = tmp_path / "data.conll", TASKS["token-classification"]()
    path.write_text("\n".join(lines))
    sentences = task.read([path], columns={})
    audited = audits([sentence.tags for sentence in sentences], rng)

    def content(sentence):
        return sentence.words, sentence.tags, sentence.document

    out = tmp_path / f"out{rng.choice(['.conll', '.tsv', '.txt'])}"
    out.write_bytes(write_words(sentences, audited))
    assert [content(each) for each in task.read([out], columns={})] == [content(each) for each in sentences]
    cells = [line.split("\t") for line in out.read_text(encoding="utf8").splitlines() if line]
    assert {len(row) for row in cells} == {5}
    assert sum(row[1] != "_" for row in cells) == sum(bool(example.wrong) for example in audited)
    (tmp_path / "out.jsonl").write_bytes(write_records(".jsonl", sentence_records(sentences, audited)))
    again = task.read([tmp_path / "out.jsonl"], columns={})
    order = sorted(range(len(sentences)), key=lambda number: audited[number].rank)
    assert [content(each)[:2] for each in again] == [content(sentences[number])[:2] for number in order]


def test_lists_of_labels_are_json_in_tables():
    (row,) = csv.DictReader(write_records(".csv", [{"text": "a", "label": ["b,c", "d"]}]).decode().splitlines())
    assert json.loads(row["label"]) == ["b,c", "d"]
    assert msgspec.json.decode(write_records(".jsonl", [{"label": []}])) == {"label": []}


def test_a_tab_is_refused_in_tsv():
    with pytest.raises(UserError, match="TSV cannot hold the tab"):
        write_records(".tsv", [{"text": "a\tb"}])
