"""Tests of the columns of published files, and of files that only resemble them, which are refused."""

import json

import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.tasks.classification import Classification
from unmask.tasks.regression import Regression

# Published headers with made-up rows, which have the difficulties of these files: unbalanced quotes, broken rows.
MNLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
SNLI = (
    "gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 sentence2 "
    "captionID pairID label1 label2 label3 label4 label5"
)
STSB = "index genre filename year old_index source1 source2 sentence1 sentence2 score"


def tsv(header, *rows):
    lines = [header.replace(" ", "\t") if isinstance(header, str) else "\t".join(header)] if header else []
    return "\n".join([*lines, *("\t".join(row) for row in rows)]) + "\n"


GLUE = {
    "CoLA": (
        "train.tsv",
        tsv("", ("gj04", "1", "", 'The "dog barked.'), ("gj04", "0", "*", "Dog the."), ("x", "0", "?*", "What she?")),
        [('The "dog barked.', "1"), ("Dog the.", "0"), ("What she?", "0")],
    ),
    "SST-2": ("train.tsv", tsv("sentence label", ("a joy ", "1"), ("dull ", "0")), [("a joy", "1"), ("dull", "0")]),
    "MRPC": (
        "dev.tsv",
        "\ufeff"
        + tsv(
            ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
            ("1", "7", "8", 'He said " yes .', "Yes , he said ."),
            ("0", "9", "10", "It rains .", '"'),
        ),
        [('He said " yes .', "Yes , he said .", "1"), ("It rains .", '"', "0")],
    ),
    "QQP": (
        "train.tsv",
        tsv(
            "id qid1 qid2 question1 question2 is_duplicate",
            ("0", "1", "2", 'Why "?', "How?", "0"),
            ("1", "3", "4", "A question"),
            ("with a line break?", "Torn?", "1"),
            ("2", "5", "6", "Who?", "Who is it?", "1"),
            ("310137", "7", "8", "How can I make an app?", "", "0"),
        ),
        [('Why "?', "How?", "0"), ("Who?", "Who is it?", "1")],
    ),
    "MNLI": (
        "dev_matched.tsv",
        tsv(
            f"{MNLI} sentence1 sentence2 label1 label2 label3 label4 label5 gold_label",
            (*"01", "1e", "fiction", *"abcd", "He came.", "He left.", *["neutral"] * 5, "contradiction"),
        ),
        [("He came.", "He left.", "contradiction")],
    ),
    "MNLI, train": (
        "train.tsv",
        tsv(
            f"{MNLI} sentence1 sentence2 label1 gold_label",
            ("0", "1", "1e", "fiction", *"abcd", "He came.", "He left.", "neutral", "neutral"),
        ),
        [("He came.", "He left.", "neutral")],
    ),
    "QNLI": (
        "dev.tsv",
        tsv("index question sentence label", ("0", "When?", "In 1066.", "entailment")),
        [("When?", "In 1066.", "entailment")],
    ),
    "RTE": (
        "dev.tsv",
        tsv("index sentence1 sentence2 label", ("0", "It fell.", "It rose.", "not_entailment")),
        [("It fell.", "It rose.", "not_entailment")],
    ),
    "WNLI": (
        "train.tsv",
        tsv("index sentence1 sentence2 label", ("0", "I stuck a pin through it.", "It had a hole.", "1")),
        [("I stuck a pin through it.", "It had a hole.", "1")],
    ),
}
OTHERS = {
    "SNLI, JSON Lines": (
        "train.jsonl",
        "".join(
            json.dumps({"annotator_labels": [gold], "gold_label": gold, "sentence1": "A", "sentence2": "B"}) + "\n"
            for gold in ("neutral", "-", "entailment")
        ),
        [("A", "B", "neutral"), ("A", "B", "entailment")],
    ),
    "SNLI, text": (
        "dev.txt",
        tsv(
            SNLI,
            ("-", *"abcd", "A man.", "A boy.", "c", "p", "neutral", "entailment", "", "", ""),
            ("neutral", *"abcd", "A man.", "A cook.", "c", "p", "neutral", "", "", "", ""),
        ),
        [("A man.", "A cook.", "neutral")],
    ),
    "SICK": (
        "SICK.txt",
        tsv("pair_ID sentence_A sentence_B relatedness_score entailment_judgment", ("6", "A", "B", "3.3", "NEUTRAL")),
        [("A", "B", "NEUTRAL")],
    ),
}
NUMBERS = {
    "STS-B": (
        "train.tsv",
        tsv(STSB, (*"01234", "none", "none", 'A "plane', "A jet.", "4.500")),
        [('A "plane', "A jet.", "4.500")],
    ),
    "SICK": (*OTHERS["SICK"][:2], [("A", "B", "3.3")]),
    "STS": (
        "images.test.tsv",
        tsv("", ("", "Unscored.", "Not scored."), ("5", "A dog", 'A "dog'), ("0.8", "1 dog", "2 dogs")),
        [("A dog", 'A "dog', "5"), ("1 dog", "2 dogs", "0.8")],
    ),
}


CASES = [
    *((Classification(), *case) for case in (*GLUE.values(), *OTHERS.values())),
    *((Regression(), *case) for case in NUMBERS.values()),
]


@pytest.mark.parametrize(
    ("task", "name", "content", "expected"), CASES, ids=[*GLUE, *OTHERS, *(f"{name}, numbers" for name in NUMBERS)]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "dos"])
def test_published_files_are_read_as_they_are(tmp_path, task, name, content, expected, newline):
    path = tmp_path / name
    path.write_bytes(content.replace("\n", newline).encode())
    rows = task.read([path], columns={})
    names = ("text", "text_b", "label") if len(expected[0]) == 3 else ("text", "label")
    assert [tuple(row.values[key] for key in names) for row in rows] == expected
    assert all(row.values.keys() == set(names) for row in rows)
    last = task.read([path], columns={}, gold=False)[-1]
    assert tuple(last.values[key] for key in names[:-1]) == expected[-1][:-1], "the same texts without labels"
    assert "label" not in last.values


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("index sentence", ("A",)),
        ("index #1_ID #2_ID #1_String #2_String", ("C", "D")),
        ("index question1 question2", ("A", "B")),
        (f"{MNLI} sentence1 sentence2", ("H", "I")),
        ("index question sentence", ("A", "B")),
        (STSB.removesuffix(" score"), ("G", "H")),
    ],
)
def test_test_files_without_labels(tmp_path, header, expected):
    header = [name.replace("_ID", " ID").replace("_String", " String") for name in header.split()]
    cells = ["0", *"ABCDEFGHIJKLMNOP"][: len(header)]
    path = tmp_path / "test.tsv"
    path.write_text(tsv(header, cells))
    for task in (Classification(), Regression()):
        (row,) = task.read([path], columns={}, gold=False)
        assert tuple(row.values.values()) == expected
        with pytest.raises(UserError, match="no column named"):
            task.read([path], columns={})


@pytest.mark.parametrize(
    ("task", "name", "content", "left"),
    [
        (Classification(), *OTHERS["SNLI, JSON Lines"][:2], ("1 pair without a label",)),
        (Classification(), *OTHERS["SNLI, text"][:2], ("1 pair without a label",)),
        (
            Classification(),
            *GLUE["QQP"][:2],
            ("2 fragments of rows broken by a line break in a question", "1 pair with an empty question"),
        ),
        (Regression(), *NUMBERS["STS"][:2], ("1 pair without a label",)),
    ],
)
def test_rows_that_a_format_excludes_are_counted(tmp_path, task, name, content, left):
    path, notes = tmp_path / name, []
    path.write_text(content, encoding="utf8")
    rows = task.read([path, path], columns={}, notes=notes)
    assert notes == [f"{path}: omitted, as the format specifies: {what}" for what in left] * 2
    assert rows == task.read([path, path], columns={})


def test_nothing_is_omitted_from_other_formats(tmp_path):
    single = tmp_path / "a.tsv"
    single.write_text("text\tgold_label\none\t-\ntwo\t+\n")
    assert [row.values["label"] for row in Classification().read([single], columns={})] == ["-", "+"]
    single.write_text("premise\thypothesis\tlabel\none\ttwo\t-\none\ttwo\t+\n")
    assert [row.values["label"] for row in Classification().read([single], columns={})] == ["-", "+"]
    single.write_text("question1\tquestion2\tis_duplicate\none\ttwo\t1\none\n")
    with pytest.raises(UserError, match=r"a\.tsv:3: 1 column where there should be 3"):
        Classification().read([single], columns={})
    single.write_text("question1\tquestion2\tis_duplicate\none\ttwo\t1\none\t\t1\n")
    with pytest.raises(UserError, match=r"a\.tsv:3: the text_b is empty"):
        Classification().read([single], columns={})


def test_a_name_that_two_columns_have_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("text\ttext\tlabel\none\ttwo\t1\n")
    with pytest.raises(UserError, match=r"a\.tsv:1: 2 columns are named text; rename one, or remove the header"):
        Classification().read([tmp_path / "a.tsv"], columns={})
    (tmp_path / "a.tsv").write_text("text\tnote\tnote\tlabel\none\ttwo\tthree\t1\n")
    assert len(Classification().read([tmp_path / "a.tsv"], columns={})) == 1, "other names need not be unique"


@pytest.mark.parametrize(
    ("task", "name", "rows", "message"),
    [
        # a user's own four columns are not the corpus that has four
        (Classification(), "a.tsv", [("id", "2", "", "a body")], "a.tsv:1: no column named "),
        (Classification(), "a.tsv", [("id", "1", "note", "a body")], "a.tsv:1: no column named "),
        (Classification(), "a.tsv", [("id", "1", "", "a body", "x")], "a.tsv:1: no column named "),
        (Classification(), "a.tsv", [("1", "", "a body")], "a.tsv:1: no column named "),
        (Classification(), "a.csv", [("id,1,,a body",)], "a.csv:1: no column named "),
        (
            Classification(),
            "a.tsv",
            [("id", "1", "", "a body"), ("id", "2", "", "a body")],
            "a.tsv:2: there is no header, and this row, unlike those before it, does not have the format of "
            "the Corpus of Linguistic Acceptability; fix it, or pass columns",
        ),
        (Classification(), "a.tsv", [("id", "1", "", "a body"), ("id", "1", "a body")], "a.tsv:2: there is no header"),
        (Classification(), "a.tsv", [("id", "1", "", "a body"), ("id", "1", "*", "")], "a.tsv:2: the text is empty"),
        (Classification(), "a.tsv", [("4.5", "one", "two")], "a.tsv:1: no column named "),
        # nor numbered rows with a score at the end
        (Regression(), "a.tsv", [("1", "one", "4.5")], "a.tsv:1: no column named "),
        (Regression(), "a.tsv", [("6", "one", "two")], "a.tsv:1: no column named "),
        (
            Regression(),
            "a.tsv",
            [("", "body", "stars"), ("0", "one", "4")],
            "a.tsv:2: there is no header, and this row",
        ),
        (
            Regression(),
            "a.tsv",
            [(str(n), "one", "two") for n in range(7)],
            "a.tsv:7: there is no header, and this row",
        ),
        (Regression(), "a.tsv", [("x", "1", "", "a body")], "a.tsv:1: no column named "),
    ],
)
def test_files_without_header_are_refused_unless_their_shape_is_unmistakable(tmp_path, task, name, rows, message):
    (tmp_path / name).write_text(tsv("", *rows))
    with pytest.raises(UserError) as error:
        task.read([tmp_path / name], columns={})
    assert message in str(error.value)
    assert "columns" in str(error.value) or "is empty" in str(error.value)


def test_given_columns_take_precedence_over_the_shape(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text(GLUE["CoLA"][1])
    (row, *_) = Classification().read([path], columns={"text": "0", "label": "1"})
    assert row.values == {"text": "gj04", "label": "1"}
    with pytest.raises(UserError, match="no column named body"):
        Classification().read([path], columns={"text": "body"})


FILES = [
    ("classification/cola/in_domain_train.tsv", 8551, 2, 0),
    ("classification/cola/in_domain_dev.tsv", 527, 2, 0),
    ("classification/cola/out_of_domain_dev.tsv", 516, 2, 0),
    ("classification/sst2/dev.tsv", 872, 2, 0),
    ("pairs/mrpc/train.tsv.xz", 3668, 2, 0),
    ("pairs/mrpc/msr-para-test.tsv.xz", 1725, 2, 0),
    ("pairs/rte/train.tsv.xz", 2490, 2, 0),
    ("pairs/snli/original_format_1000.jsonl.xz", 998, 3, 2),
    ("pairs/mnli/dev_matched_recovered.tsv.xz", 9234, 3, 0),
    ("pairs/sick/SICK_train.txt.xz", 4500, 3, 0),
    ("pairs/sick/SICK_trial.txt", 500, 0, 0),
    ("pairs/sts/2012/SMTnews.test.tsv", 399, 0, 0),
    ("pairs/sts/2013/FNWN.test.tsv", 189, 0, 0),
    ("pairs/sts/2014/deft-news.test.tsv", 300, 0, 0),
    ("pairs/sts/2015/answers-students.test.tsv", 750, 0, 750),
    ("pairs/sts/2016/answer-answer.test.tsv", 254, 0, 1318),
    ("pairs/sts/2016/plagiarism.test.tsv", 230, 0, 1041),
    ("pairs/sts/2016/question-question.test.tsv", 209, 0, 1346),
]
NOTED = ("pairs/rte/train.tsv.xz", "pairs/sts/2015/answers-students.test.tsv", "pairs/sick/SICK_trial.txt")
"""Files whose cells have the quotation marks of CSV, which belong to the published texts, or with two labels."""


@pytest.mark.shared
@pytest.mark.parametrize(("name", "examples", "labels", "left"), FILES, ids=[name for name, *_ in FILES])
def test_published_files(shared, name, examples, labels, left):
    """Sizes are those stated by their authors, if any (SemEval 2015 and 2016: the pairs that were scored)."""
    task, notes = Classification() if labels else Regression(), []
    rows = task.read([shared / "data" / name], columns={}, notes=notes)
    assert len(rows) == examples
    assert len(task.label_names(rows)) == labels
    counts = [note.rsplit(": ")[-1] for note in notes if note.endswith("without a label")]
    assert counts == ([f"{left:,} pairs without a label"] if left else [])
    assert (len(counts) < len(notes)) == (name in NOTED)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_note_names_the_column_of_the_label_if_others_are_called_so(tmp_path, name):
    content = {"a.csv": "score,text,label\n4,a,1\n5,b,2\n", "a.jsonl": '{"score": 4, "text": "a", "label": 1}\n'}
    (tmp_path / name).write_text(content[name])
    for columns, number in (({}, 1), ({"label": "label"}, 0), ({"label": "score"}, 0)):
        notes = []
        rows = Regression().read([tmp_path / name], columns=columns, notes=notes)
        assert rows[0].values["label"] == ("1" if columns == {"label": "label"} else "4")
        assert len(notes) == number
        assert all("the label is 'score'; " in note for note in notes)
    assert "label" not in Regression().read([tmp_path / name], columns={}, gold=False)[0].values


@pytest.mark.parametrize(
    ("header", "columns", "read", "other"),
    [
        ("content\ttext\tlabel", {}, "'text'", "content"),
        ("text\tquery\tdocument\tlabel", {}, "'query' and 'document'", "text"),
        ("review\tquestion1\tquestion2\tlabel", {}, "'question1' and 'question2'", "review"),
        ("text\tquestion\tlabel", {}, "", ""),
        ("question\tsentence\tlabel", {}, "", ""),
        ("content\ttext\tlabel", {"text": "text"}, "", ""),
        ("Content\tText\tLABEL", {}, "'Text'", "Content"),
    ],
)
def test_a_note_names_the_columns_of_texts_if_others_are_called_so(tmp_path, header, columns, read, other):
    names = header.split("\t")
    (tmp_path / "a.tsv").write_text(f"{header}\n" + "\t".join("abcd"[: len(names)]))
    (tmp_path / "a.jsonl").write_text(json.dumps(dict(zip(names, "abcd", strict=False))))
    for path in (tmp_path / "a.tsv", tmp_path / "a.jsonl"):
        for gold in (True, False):
            notes = []
            read_rows([path], columns=columns, gold=gold, notes=notes)
            expected = f"the text is {read}; {argument('columns', {'text': other})} would read another column"
            assert notes == ([f"{path}: {expected}"] if read else [])


@pytest.mark.parametrize(
    ("header", "columns", "expected"),
    [
        ("Text\tLabel", {}, {"text": "a", "label": "b"}),
        ("Sentence1\tSENTENCE2\tGold_Label", {}, {"text": "a", "text_b": "b", "label": "c"}),
        ("Text\ttext\tLabel", {"label": "Label"}, {"text": "b", "label": "c"}),
        ("Text\tBody\tSentiment", {"text": "Body"}, {"text": "b", "label": "c"}),
        ("TEXT\tClass", {"label": "TEXT", "text": "Class"}, {"text": "b", "label": "a"}),
        ("Review\tText\tclass", {"text": "Review", "text_b": "Text"}, {"text": "a", "text_b": "b", "label": "c"}),
    ],
)
def test_the_case_of_names_makes_no_difference_unless_columns_differ_by_it(tmp_path, header, columns, expected):
    names = header.split("\t")
    (tmp_path / "a.tsv").write_text(f"{header}\n" + "\t".join("abcd"[: len(names)]))
    (tmp_path / "a.jsonl").write_text(json.dumps(dict(zip(names, "abcd", strict=False))))
    for path in (tmp_path / "a.tsv", tmp_path / "a.jsonl"):
        (row,) = read_rows([path], columns=columns)
        assert row.values == expected
        (unlabeled,) = read_rows([path], columns={"text": names[0]}, gold=False)
        assert list(unlabeled.source) == names
    (tmp_path / "a.tsv").write_text("TEXT\tText\tlabel\na\tb\tc\n")
    with pytest.raises(UserError, match=r"no column named text .*; columns: TEXT, Text, label; pass"):
        read_rows([tmp_path / "a.tsv"], columns={})
