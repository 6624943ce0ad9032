"""MultiNLI's original files, unlike GLUE's: text and JSON Lines contain the same pairs, the label comes first."""

import json

import pytest

from unmask.tasks.classification import Classification

# The header as published (Williams et al. 2018, multinli_1.0); invented pairs, one with an unbalanced quote.
HEADER = (
    "gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 sentence2 "
    "promptID pairID genre label1 label2 label3 label4 label5"
)
PAIRS = [
    ("neutral", 'He said "no.', "He was asked twice.", ["neutral"]),
    ("-", "It rains.", "It may rain.", ["neutral", "entailment", "contradiction", "neutral", "entailment"]),
    ("entailment", "n/a , uh-huh", "n/a", ["entailment", "neutral", "entailment", "entailment", "neutral"]),
    ("contradiction", "The sea is near.", "There is no sea.", ["contradiction"] * 5),
]
LABELLED = [(first, second, gold) for gold, first, second, _ in PAIRS if gold != "-"]


def text(pairs):
    rows = [HEADER.split()]
    for gold, first, second, labels in pairs:
        parses = ["( a )", "( b )", "(ROOT a)", "(ROOT b)"]
        rows.append([gold, *parses, first, second, "31193", "31193n", "fiction", *labels, *[""] * (5 - len(labels))])
    return "".join("\t".join(row) + "\n" for row in rows)


def json_lines(pairs):
    records = [
        {
            "annotator_labels": labels,
            "genre": "fiction",
            "gold_label": gold,
            "pairID": "31193n",
            "promptID": "31193",
            "sentence1": first,
            "sentence1_binary_parse": "( a )",
            "sentence1_parse": "(ROOT a)",
            "sentence2": second,
            "sentence2_binary_parse": "( b )",
            "sentence2_parse": "(ROOT b)",
        }
        for gold, first, second, labels in pairs
    ]
    return "".join(json.dumps(record) + "\n" for record in records)


FILES = [("dev_matched.txt", text, 2), ("dev_mismatched.jsonl", json_lines, 1)]


@pytest.mark.parametrize(("name", "write", "first_line"), FILES)
def test_pairs_and_labels(tmp_path, name, write, first_line):
    path, notes = tmp_path / f"multinli_1.0_{name}", []
    path.write_text(write(PAIRS), encoding="utf8")
    rows = Classification().read([path], columns={}, notes=notes)
    assert [(row.values["text"], row.values["text_b"], row.values["label"]) for row in rows] == LABELLED
    assert [row.line - first_line for row in rows] == [0, 2, 3]
    assert notes == [f"{path}: omitted, as the format specifies: 1 pair without a label"]
    assert sorted(Classification().label_names(rows)) == ["contradiction", "entailment", "neutral"]


@pytest.mark.parametrize(("name", "write", "first_line"), FILES)
def test_without_labels_every_pair_is_read(tmp_path, name, write, first_line):
    path = tmp_path / name
    path.write_text(write([("hidden", *pair[1:]) for pair in PAIRS]), encoding="utf8")
    rows = Classification().read([path], columns={}, gold=False)
    assert [row.values for row in rows] == [{"text": first, "text_b": second} for _, first, second, _ in PAIRS]


def test_both_forms_are_one_set(tmp_path):
    paths = [tmp_path / name for name, _, _ in FILES]
    for path, (_, write, _) in zip(paths, FILES, strict=True):
        path.write_text(write(PAIRS), encoding="utf8")
    rows = Classification().read(paths, columns={})
    assert [(*row.values.values(),) for row in rows] == LABELLED * 2
