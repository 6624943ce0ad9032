"""Tests of recognizing what separates the columns of a table, beside pandas, which is told."""

import csv
import io
import random

import pandas as pd
import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.tagged_file import delimiter_of
from unmask.support.errors import UserError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
PARTS = [
    "Gut",
    "aber teuer",
    "0,5",
    "1.000,25",
    "a|b",
    "(a; b)",
    'sagt "ja"',
    "ä中😀",
    "-",
    "x, y, z",
    "two\nlines",
    "'",
]
CASES = [(suffix, separator) for suffix in ("csv", "tsv") for separator in SEPARATORS]


def made(rng, *, quotes=True):
    """Return a header and rows, with a column of texts full of other separators and one of decimal commas."""
    names = ["id", "price", "text", "label"]
    rng.shuffle(names)
    parts = PARTS if quotes else [part for part in PARTS if "\n" not in part]
    rows = []
    for number in range(rng.randrange(1, 150)):
        text = " ".join(rng.choices(parts, k=rng.randrange(1, 5)))
        cells = {"id": str(number), "price": f"{rng.randrange(90)},{rng.randrange(10)}", "text": text, "label": "x"}
        rows.append([cells[name] for name in names])
    return names, rows


def written(rows, separator, newline="\n"):
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=separator, lineterminator=newline).writerows(rows)
    return stream.getvalue()


def texts(path, columns=None, notes=None):
    rows = read_rows([path], columns=columns or {}, notes=notes)
    return [(row.values["text"], row.values["label"]) for row in rows]


@pytest.mark.parametrize(("suffix", "separator"), CASES)
@pytest.mark.parametrize("header", [True, False], ids=["header", "numbers"])
@pytest.mark.parametrize("declared", [False, True], ids=["", "sep="])
def test_tables_are_read_as_pandas_reads_them(tmp_path, suffix, separator, header, declared):
    rng = random.Random(f"{suffix}{separator}{header}{declared}")
    for number in range(12):
        plain = suffix == "tsv" and separator == "\t"  # without quoting
        names, rows = made(rng, quotes=not plain)
        newline = rng.choice(["\n", "\r\n"]) if suffix == "csv" else "\n"
        lines = [names, *rows] if header else rows
        content = newline.join(map("\t".join, lines)) + newline if plain else written(lines, separator, newline)
        path = tmp_path / f"{number}.{suffix}"
        path.write_bytes((f"sep={separator}{newline}" * declared + content).encode(rng.choice(["utf-8", "utf-8-sig"])))
        columns = {} if header else {name: str(names.index(name)) for name in ("text", "label")}
        quoting = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
        frame = pd.read_csv(
            io.StringIO(content, newline=""),
            sep=separator,
            header=0 if header else None,
            names=names,
            dtype=str,
            keep_default_na=False,
            quoting=quoting,
        )
        notes = []
        try:
            read = texts(path, columns, notes)
        except UserError as error:
            assert not header and not declared and "may be separated by" in str(error), error
            continue
        assert read == [(text.strip(), label) for text, label in zip(frame["text"], frame["label"], strict=True)]
        own = separator == {"csv": ",", "tsv": "\t"}[suffix]
        assert notes == ([] if own else [f"{path}: read with {SEPARATORS[separator]} between the columns"])


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_single_column_stays_one(tmp_path, suffix):
    rng = random.Random(suffix)
    for number in range(15):
        _, rows = made(rng, quotes=False)
        lines = [row[0].replace('"', "").replace(",", "") + "; or | so" * rng.randrange(2) for row in rows]
        path = tmp_path / f"{number}.{suffix}"
        path.write_text("\n".join(["text", *lines]) + "\n")
        assert [row.values["text"] for row in read_rows([path], columns={}, gold=False)] == lines


@pytest.mark.parametrize(
    ("name", "content", "columns", "expected"),
    [
        ("a.csv", "Gut, aber teuer;1\nSchlecht, nie mehr;0\n", {"text": "0", "label": "1"}, "commas or by semicolons"),
        ("a.csv", "Gut, aber teuer;1\n", {"text": "0", "label": "1"}, "commas or by semicolons"),
        ("a.csv", "a; b\nc; d\n", {"text": "0"}, "semicolons or by commas"),
        ("a.csv", "sep=x\ntextxlabel\n", {}, "declares 'x'"),
        ("a.csv", "id;body\n1;a\n", {}, "no column named text .*; columns: id, body"),
        ("a.csv", "text;label\na;1;2\n", {}, "2: 3 columns where there should be 2; quote texts with semicolons"),
        ("a.tsv", 'text;label\n"a;1\n', {}, "2: not valid CSV"),
    ],
)
def test_what_is_not_clear_is_refused(tmp_path, name, content, columns, expected):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UserError, match=rf"^{path}:.*{expected}"):
        read_rows([path], columns=columns, gold="label" in columns or not columns)


def test_the_remedy_is_to_declare_the_separator(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("sep=;\nGut, aber teuer;1\nSchlecht, nie mehr;0\n")
    assert texts(path, {"text": "0", "label": "1"}) == [("Gut, aber teuer", "1"), ("Schlecht, nie mehr", "0")]


def test_rows_keep_their_lines(tmp_path):
    for name in ("a.csv", "a.tsv"):
        path = tmp_path / name
        path.write_text('sep=;\ntext;label\n"two\nlines";1\n\nnext;0\n')
        assert [(row.line, row.values["text"]) for row in read_rows([path], columns={})] == [
            (3, "two\nlines"),
            (6, "next"),
        ]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_tables_of_words_have_the_same_separators(separator):
    assert delimiter_of(f'"Sentence #"{separator}Word{separator}Tag\r\n') == separator
    assert delimiter_of(f"id{separator}text\n") == ""


@pytest.mark.seeds(20)
def test_a_note_tells_of_tsv_that_is_quoted_as_csv(seed, tmp_path):
    """What `csv` writes with tabs is read as it is, but not in silence; files with other quotation marks are usual."""
    rng = random.Random(seed)
    texts = rng.sample(["plain", 'say "no"', '"all"', "5'", 'a "b" c'], 3)
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE])
    lines = io.StringIO()
    writer = csv.writer(lines, delimiter="\t", quoting=quoting, quotechar=None if quoting == csv.QUOTE_NONE else '"')
    writer.writerows([text, "x"] for text in texts)
    (tmp_path / "a.tsv").write_text(lines.getvalue())
    notes = []
    rows = read_rows([tmp_path / "a.tsv"], columns={"text": "0", "label": "1"}, notes=notes)
    written = [line.split("\t")[0] for line in lines.getvalue().splitlines()]
    assert [row.values["text"] for row in rows] == written
    number = 2 * len(texts) if quoting == csv.QUOTE_ALL else sum(map(str.__ne__, written, texts))
    assert [note.rsplit(": ", 1)[1] for note in notes] == ([str(number)] if number else [])


@pytest.mark.seeds(20)
@pytest.mark.parametrize(("suffix", "separator"), CASES)
def test_files_that_were_put_together_have_byte_order_marks_inside(tmp_path, suffix, separator, seed):
    """Rows are those without the marks; a header that is repeated behind one is refused like any other."""
    rng = random.Random(seed)
    names, rows = made(rng, quotes=suffix == "csv")
    if suffix == "tsv" and separator == "\t":
        content = "".join("\t".join(cell.replace('"', "") for cell in row) + "\n" for row in [names, *rows])
    else:
        content = written([names, *rows], separator)
    plain, marked = (tmp_path / f"{name}.{suffix}" for name in ("plain", "marked"))
    lines = content.split("\n")
    at = {0, rng.randrange(len(lines) - 1)}
    plain.write_text(content, newline="")
    marked.write_text(
        "\n".join("\ufeff" * (1 + (n in at)) * (n in at) + line for n, line in enumerate(lines)), newline=""
    )
    expected = [(row.values, row.line) for row in read_rows([plain], columns={})]
    assert [(row.values, row.line) for row in read_rows([marked], columns={})] == expected
    marked.write_text("\ufeff" + content + "\ufeff" + content, newline="")
    with pytest.raises(UserError, match="the header of line 1 occurs again"):
        read_rows([marked], columns={})
