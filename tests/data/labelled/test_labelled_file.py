"""Tests of reading labeled files in all formats; bad rows are named, never dropped."""

import gzip
import io
import json
import lzma
import re
import subprocess
import sys

import msgspec
import pytest

from unmask.data.labelled.labelled_file import Row, is_plain, parse_columns, read_rows, read_texts
from unmask.data.text import files
from unmask.support.errors import UserError, counted

WANTED = ("text", "label")


def write(path, content):
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes({".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)(content))
    return path


def rows(path, columns="", wanted=WANTED, kind=None):
    found = read_rows([path], columns=parse_columns(columns), kind=kind, gold="label" in wanted)
    assert {row.file for row in found} == {"standard input" if path == "-" else str(path)}
    return [(row.line, *(row.values[name] for name in wanted)) for row in found]


GOOD = [(2, "A good film", "1"), (3, "Bad, really", "0")]
TSV = "text\tlabel\nA good film\t1\nBad, really\t0\n"
CSV = 'text,label\nA good film,1\n"Bad, really",0\n'
JSONL = '{"text": "A good film", "label": 1}\n{"label": "0", "other": [1], "text": "Bad, really"}\n'
PAIR = '{"text": "a", "text_b": "b", "label": 1}\n'
SINGLE = '{"text": "a", "label": 1}\n'


@pytest.mark.parametrize("compression", ["", ".gz", ".xz"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "BOM"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "dos"])
@pytest.mark.parametrize(
    ("suffix", "content"), [(".tsv", TSV), (".csv", CSV), (".jsonl", JSONL), (".json", JSONL), (".TSV", TSV)]
)
def test_formats(tmp_path, suffix, content, mark, compression, newline):
    path = write(tmp_path / f"data{suffix}{compression}", mark + content.replace("\n", newline))
    expected = GOOD if "{" not in content else [(line - 1, *rest) for line, *rest in GOOD]
    assert rows(path) == expected


@pytest.mark.parametrize(
    ("name", "kind", "plain"),
    [
        *(("a.txt", None, True), ("A.TXT", None, True), ("a.txt.gz", None, True), ("a.tsv", "txt", True)),
        *(("x.txt.jsonl", None, False), ("a.txt.tsv.xz", None, False), ("a.txt", "tsv", False), ("a", None, False)),
    ],
)
def test_the_last_suffix_determines_the_format(name, kind, plain):
    assert is_plain(name, kind) == plain


def test_a_field_of_csv_may_be_long(tmp_path):
    text = "a long text, " * 40_000
    path = write(tmp_path / "a.csv", f'text,label\n"{text}",1\n')
    assert rows(path) == [(2, text.strip(), "1")]


def test_several_files_keep_their_order_and_places(tmp_path):
    first, second = write(tmp_path / "a.tsv", TSV), write(tmp_path / "b.jsonl", JSONL)
    found = read_rows([second, first], columns={})
    assert [(row.file, row.line) for row in found] == [
        (str(second), 1),
        (str(second), 2),
        (str(first), 2),
        (str(first), 3),
    ]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.tsv", "id\tbody\tstars\n7\tGood\t1\n", "text=body,label=stars"),
        ("a.tsv", "sentence\tgold_label\nGood\t1\n", ""),
        ("a.tsv", "label\ttext\tsentence\n1\tGood\tno\n", ""),
        ("a.tsv", "\n text \tlabel\n\nGood\t1\n", ""),
        ("a.tsv", "1\tx\tGood\n", "text=2,label=0"),
        ("a.csv", "1,x,Good\n", "text=2,label=0"),
        ("a.jsonl", '{"body": "Good", "stars": 1}', "text=body,label=stars"),
        ("a.jsonl", '\n{"review": " Good ", "class": "1"}\n\n', ""),
    ],
)
def test_columns_by_name_and_by_number(tmp_path, name, content, columns):
    ((_, *values),) = rows(write(tmp_path / name, content), columns)
    assert values == ["Good", "1"]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TSV.encode())))
    assert rows("-", kind="tsv") == GOOD
    with pytest.raises(
        UserError, match="standard input: the format of labeled examples is determined by the file's suffix"
    ):
        rows("-")


def test_D17_tsv_has_no_quoting(tmp_path):
    path = write(tmp_path / "a.tsv", 'text\tlabel\n"Half a quote\t1\nSay ""what""\t0\n"all"\t0\n')
    assert [text for _, text, _ in rows(path)] == ['"Half a quote', 'Say ""what""', '"all"']


def test_a_note_tells_of_plain_text_that_looks_like_columns(tmp_path):
    """A .txt file is text for `predict`, with its header and its other columns, where it is a table for `finetune`."""
    for content, noted in ((TSV, True), ("EU\tB-ORG\n\nrejects\tO\n", True), ("a\tb\nc\n", False), ("a\tb\n", False)):
        notes = []
        texts = read_texts(write(tmp_path / "a.txt", content), columns={}, notes=notes)
        assert texts == [line for line in content.split("\n") if line]
        assert any("1 tab and was read as one text" in note for note in notes) == noted
    for content, noted in (('{"text": "a"}\n{"text": "b"}\n', True), ('{"text": "a"}\nb\n', False)):
        notes = []
        read_texts(write(tmp_path / "a.txt", content), columns={}, notes=notes)
        assert any("is an object of JSON and was read as one text" in note for note in notes) == noted


def test_what_annotators_of_prodigy_rejected_is_no_example(tmp_path):
    """Its records have the label that was asked about, whatever the answer."""
    answers = ("accept", "reject", "ignore", "accept", "reject")
    records = [{"text": f"{n}", "label": "x", "_task_hash": n, "answer": answer} for n, answer in enumerate(answers)]
    path, notes = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, records))), []
    assert [row.values["text"] for row in read_rows([path], columns={}, notes=notes)] == ["0", "3"]
    assert [note.partition("specifies: ")[2] for note in notes] == [
        "2 texts whose answer is 'reject'",
        "1 text whose answer is 'ignore'",
    ]
    assert len(read_rows([path], columns={}, gold=False)) == 5
    others = [{name: value for name, value in record.items() if name != "_task_hash"} for record in records]
    lines = ["text,label,answer", *(f"{record['text']},x,{record['answer']}" for record in records)]
    for name, content in (("b.jsonl", "\n".join(map(json.dumps, others))), ("c.csv", "\n".join(lines))):
        path = write(tmp_path / name, content)
        assert [row.values["text"] for row in read_rows([path], columns={})] == ["0", "3"]
        assert len(read_rows([path], columns={}, gold=False)) == 5
        answered = read_rows([path], columns={"text": "text", "label": "answer"})  # what was asked is not a label
        assert [row.values["label"] for row in answered] == list(answers)


def test_D17_csv_follows_rfc_4180(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\r\n"two\nlines, and a ""quote""",1\r\nnext,0\r\n"a\r\nb",1\r\n')
    assert rows(path) == [(2, 'two\nlines, and a "quote"', "1"), (4, "next", "0"), (5, "a\r\nb", "1")]


@pytest.mark.parametrize(
    ("name", "content", "columns", "line", "message"),
    [
        ("a.tsv", "text\tlabel\ngood\t1\tx\n", "", 2, "3 columns where there should be 2; a tab inside a text"),
        ("a.tsv", "text\tlabel\ngood\n", "", 2, "1 column where there should be 2; complete or remove the row"),
        ("a.csv", "text,label\ngood, really,1\n", "", 2, "3 columns where there should be 2; quote texts with commas"),
        ("a.csv", 'text,label\n"x\ny",1\ngood,1,2\n', "", 4, "3 columns"),
        ("a.csv", 'text,label\n"good,1\n', "", 2, "not valid CSV"),
        ("a.csv", 'text,label\n"good" x,1\n', "", 2, "not valid CSV"),
        (
            "a.tsv",
            "text\tstars\ngood\t1\n",
            "",
            1,
            r"no column named label or .*; columns: text, stars; pass columns",
        ),
        ("a.tsv", "text\tlabel\ngood\t1\n", "text=body", 1, "no column named body"),
        ("a.tsv", "good\t1\n", "text=0,label=7", 1, "there is no column 7, counted from 0"),
        ("a.tsv", "text\tlabel\n\t1\n", "", 2, "the text is empty"),
        ("a.tsv", "text\tlabel\ngood\t1\n  \t1\n", "", 3, "the text is empty"),
        ("a.csv", "text,label\ngood,\n", "", 2, "the label is empty"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "", 2, "no column named label"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b",\n', "", 2, "broken JSON"),
        ("a.jsonl", "[1]\n", "", 1, "not a JSON object"),
        ("a.jsonl", '{"text": 5, "label": 1}\n', "", 1, "'text' is int, not text"),
        ("a.jsonl", '{"text": "a", "label": null}\n', "", 1, "'label' is missing"),
        ("a.jsonl", "[" * 100_000 + "\n", "", 1, "broken JSON"),
        # pairs
        ("a.tsv", "text\ttext_b\tlabel\na\tb\t1\na\t \t1\n", "", 3, "the text_b is empty"),
        ("a.csv", 'text,text_b,label\na,"",1\n', "", 2, "the text_b is empty"),
        ("a.jsonl", '{"text": "a", "text_b": " ", "label": 1}', "", 1, "the text_b is empty"),
        ("a.jsonl", PAIR + '{"text": "a", "text_b": null, "label": 1}', "", 2, "'text_b' is missing"),
        ("a.jsonl", PAIR * 2 + SINGLE, "", 3, r"pairs and single texts are mixed: .*a\.jsonl:1 is of the other kind"),
        (
            "a.jsonl",
            SINGLE + "\n" + PAIR,
            "",
            3,
            r"pairs and single texts are mixed: .*a\.jsonl:1 is of the other kind",
        ),
        ("a.jsonl", PAIR + SINGLE, "text=text,text_b=text_b", 2, "no column named text_b"),
    ],
)
def test_D17_a_bad_row_is_named(tmp_path, name, content, columns, line, message):
    path = write(tmp_path / name, content)
    with pytest.raises(UserError, match=message) as error:
        rows(path, columns)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert error.value.status == 2


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.csv", "a.jsonl"])
def test_bad_utf8_is_named(tmp_path, name):
    good = (
        json.dumps({"text": "a", "label": 1})
        if "json" in name
        else "text,label".replace(",", "\t" if "tsv" in name else ",")
    )
    path = write(tmp_path / name, good.encode() + b"\n\n\xff\xfe\n")
    with pytest.raises(UserError, match=r"not UTF-8 \(byte 1 of the line\)") as error:
        rows(path)
    assert str(error.value).startswith(f"{path}:3: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "", "no examples"),
        ("a.tsv", "text\tlabel\n", "no examples"),
        ("a.jsonl", "\n", "no examples"),
        ("a.docx", "x", r"rename it to \.tsv, \.csv, \.jsonl or \.parquet, or pass format"),
        ("a.gz", "x", "is determined by the file's suffix"),
        ("a.conllu", "x", "words with tags, not texts with labels; choose the task token-classification"),
        (".", None, "is a directory, but none that datasets has saved; of text files, write one of JSON Lines"),
        ("missing.tsv", None, "cannot be read"),
    ],
)
def test_files_without_examples_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        write(path, content)
    with pytest.raises(UserError, match=message) as error:
        rows(path)
    assert str(path) in str(error.value)


def test_a_cut_archive_is_named(tmp_path):
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(TSV.encode() * 1000)[:-20])
    with pytest.raises(UserError, match=r"a\.tsv\.gz: the archive is damaged"):
        rows(path)


LONG = b"x" * 1_000_000


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.tsv", [b"text\tlabel\ngood\tyes\n", *[LONG] * 300], 3),
        ("a.csv", [b"text,label\ngood,yes\n", *[LONG] * 300], 3),
        ("a.csv", [b'text,label\ngood,yes\n"', *[b"a\n" * 500_000] * 12], 3),  # one record of many lines
        ("a.csv", [b"text,label\ngood,yes\n", *[b'"a\n",' * 200_000] * 12], 3),  # and of many cells of two lines
        ("a.jsonl", [b'{"text": "good", "label": "yes"}\n{"text": "', *[LONG] * 300], 2),
        ("a.txt", [b"good\n", *[LONG] * 300], 2),
    ],
    ids=["tsv", "csv", "csv of lines", "csv of cells", "jsonl", "txt"],
)
def test_D7_D10_a_long_line_or_record_is_refused_in_bounded_memory(tmp_path, name, content, line):
    """Less address space is left to the reader than the 300 MB of the file."""
    path = tmp_path / f"{name}.gz"
    members = {part: gzip.compress(part, 1) for part in set(content)}  # which a file may have several of
    path.write_bytes(b"".join(members[part] for part in content))
    limited = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, timeout=120)
    assert limited.stdout == f"{path}:{line}\n", limited.stderr


LIMITED = """
import resource, sys
from unmask.support.errors import UserError
from unmask.data.labelled.labelled_file import is_plain, read_rows, read_texts
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, [pages * resource.getpagesize() + (250 << 20)] * 2)
try:
    path = sys.argv[1]
    read_texts(path, columns={}, notes=[]) if is_plain(path, None) else read_rows([path], columns={})
except UserError as error:
    where, _, what = str(error).partition(": ")
    assert "longer than 10,000,000 bytes" in what or "expands to more than 100 times" in what, what
    print(where)
"""


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.txt"])
def test_D10_a_file_that_expands_too_much_is_refused_with_its_line(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "FREE", 100_000)
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(b"\n" * 3_000_000))
    with pytest.raises(UserError, match=r"expands to more than 100 times its size; decompress it first") as error:
        read_texts(path, columns={}, notes=[]) if name == "a.txt" else rows(path)
    assert re.match(rf"{path}:\d+: ", str(error.value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text", "'text' is not NAME=COLUMN"),
        ("text=", "'text=' is not NAME=COLUMN"),
        ("texts=1", r"unknown 'texts'; did you mean 'text'\?"),
    ],
)
def test_columns_that_cannot_be(text, message):
    with pytest.raises(UserError, match=message):
        parse_columns(text)


def test_numbers_must_be_given_for_all_columns(tmp_path):
    path = write(tmp_path / "a.tsv", TSV)
    with pytest.raises(UserError, match="columns gives numbers, but none for label"):
        rows(path, "text=0,label=label")
    assert rows(path, "text=0", wanted=("text",))[0] == (1, "text")


@pytest.mark.parametrize(
    ("name", "content", "number"),
    [
        ("a.csv", 'text\nwarm\n""\n\ncold\n', 2),  # as pandas writes an empty text, and a missing one
        ("b.tsv", "\ntext\nwarm\n\ncold\n", 1),
        ("c.csv", "id,text\n1,warm\n\n2,cold\n", 0),
    ],
)
def test_empty_texts_of_a_single_column_are_counted(tmp_path, name, content, number):
    """They were left out without a word, so that vectors and predictions were not those of the rows beside them."""
    notes = list[str]()
    found = read_rows([write(tmp_path / name, content)], columns={}, gold=False, notes=notes)
    assert [row.values["text"] for row in found] == ["warm", "cold"]
    omitted = f"{tmp_path / name}: omitted, as the format specifies: {counted(number, 'empty line')}"
    assert notes == [omitted] * bool(number)


def test_texts_without_labels(tmp_path):
    lines = "one\r\n\n  two\u2028still two\x0b.  \nthree"
    notes = []
    assert read_texts(write(tmp_path / "a.txt.gz", "\ufeff" + lines), columns={}, notes=notes) == [
        "one",
        "two\u2028still two\x0b.",
        "three",
    ]
    assert notes == [f"{tmp_path / 'a.txt.gz'}: omitted: 1 empty line"]
    assert read_texts(write(tmp_path / "c.txt", "one\n"), columns={}, notes=notes) == ["one"]
    assert len(notes) == 1, "the line end of the last line does not begin another line"
    assert rows(write(tmp_path / "a.tsv", TSV), wanted=("text",)) == [(line, text) for line, text, _ in GOOD]
    for content, columns, message in (
        ("\n", {}, "no texts"),
        ("a", {"text": "0"}, "no effect"),
        (b"\xff", {}, "UTF-8"),
    ):
        with pytest.raises(UserError, match=rf"b\.txt:.* .*{message}"):
            read_texts(write(tmp_path / "b.txt", content), columns=columns, notes=[])


def test_rows_are_written_as_in_earlier_versions():
    """Their digest tells whether a run is resumed with the same examples."""
    row = Row({"text": "é", "label": "1"}, "a.tsv", 2)
    assert (
        msgspec.json.encode(row).decode() == '{"values":{"text":"é","label":"1"},"file":"a.tsv","line":2,"labels":null}'
    )
