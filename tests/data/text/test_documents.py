"""Tests of splitting files into documents: the modes of the command line, and broken documents, which are skipped."""

import gzip
import io
import json
import lzma
import random
import subprocess
import sys

import pytest

from unmask.data.text import documents, files
from unmask.data.text.documents import (
    Skipped,
    TextOptions,
    read_documents,
    read_sources,
    refuse_idle_options,
    refuse_none,
    resolve_documents,
)
from unmask.support.errors import UserError

TEXT = "First line\nsecond line\n\nsecond \x00paragraph\n \n\nthird\n"


def read(*paths, **options):
    skipped = Skipped()
    return list(read_documents(paths, TextOptions(**options), skipped)), skipped


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("auto", ["First line second line", "second paragraph", "third"]),
        ("blank-line", ["First line second line", "second paragraph", "third"]),
        ("file", ["First line second line\n\nsecond paragraph\n\nthird"]),
        ("line", ["First line", "second line", "second paragraph", "third"]),
    ],
)
def test_modes(text, mode, expected):
    found, skipped = read(text, documents=mode)
    assert found == expected
    assert skipped.count == 0


RECORDS = [{"text": "one"}, {"text": "two"}]


@pytest.mark.parametrize("indent", [None, 1])
def test_json_arrays_are_refused(tmp_path, indent):
    """Of one with a record on each line, the last record alone would be a line of JSON Lines."""
    path = tmp_path / "a.json"
    separators = (",\n", ": ") if indent is None else None
    path.write_text(json.dumps(RECORDS, indent=indent, separators=separators))
    with pytest.raises(UserError, match=rf"^{path}:1: is a JSON array, not an object on each line; write it as JSON"):
        read(path)


@pytest.mark.parametrize("name", ["a.txt", "a.text.gz", "-"])
def test_json_lines_are_not_read_as_text(tmp_path, monkeypatch, name):
    lines = "\ufeff" + "".join(f"{json.dumps(record)}\n" for record in RECORDS)
    path = name if name == "-" else tmp_path / name
    if name == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    else:
        path.write_bytes(gzip.compress(lines.encode()) if name.endswith(".gz") else lines.encode())
    with pytest.raises(UserError, match=r":1: its lines are JSON objects, all of which would be read as text; save it"):
        read(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<doc id="12" url="http://a.org/?a=12" title="A">\nA\n\nThe story.\n</doc>', "markup"),
        ("\ufeff<DOC>\n  <DOCNO> 1 </DOCNO>\nThe story.\n</DOC>", "markup"),
        ("<root><a>The story.</a></root>", "markup"),
        ("<p class='a'>The story.</p>", "markup"),
        ('{\n "text": "The story."\n}', "is JSON"),
        ('[\n {"text": "The story."}\n]', "is JSON"),
    ],
)
def test_markup_and_json_are_no_text(tmp_path, text, problem):
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"{path}:1: .*{problem}"):
        read(path)


def test_a_json_value_of_several_lines_is_no_json_lines(tmp_path):
    (tmp_path / "a.json").write_text('{\n "text": "The story."\n}')
    with pytest.raises(UserError, match=r":1: is a JSON value of several lines, not an object on each line; write it"):
        read(tmp_path / "a.json")


@pytest.mark.parametrize("text", ["<s> <unk> said </s>", "<p> The story.", "<3 you", "<a, b>", "< b", "{\nx"])
def test_other_text_with_angle_brackets_is_text(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert read(tmp_path / "a.txt")[0] == [text.replace("\n", " ")]


@pytest.mark.parametrize("text", ['{"a": 1} is JSON.', "{x}", '["a"]', "{}", "{", '{"n": 1}'])
def test_other_text_with_brackets_is_text(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert read(tmp_path / "a.txt")[0] == [text]


def test_auto_makes_each_of_several_text_files_a_document(text, tmp_path):
    other = tmp_path / "b.txt.gz"
    other.write_bytes(gzip.compress("Grüße\r\nund\r\n\r\nmehr".encode()))
    assert resolve_documents([text, other], TextOptions()) == "file"
    assert read(text, other)[0][1] == "Grüße und\n\nmehr"


def test_auto_counts_only_text_files(text):
    assert resolve_documents([text, "a.jsonl", "b.json.gz"], TextOptions()) == "blank-line"
    assert resolve_documents(["-"], TextOptions()) == "blank-line"
    assert resolve_documents(["a.jsonl", "b.ndjson.xz"], TextOptions()) == "line"


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.ndjson.gz", "a.JSONL.xz"])
def test_json_lines(tmp_path, name):
    records = [{"body": "one\ntwo\n\nthree", "id": 1}, {"body": "\u0000 "}, {"body": "你好"}]
    content = "\n".join(json.dumps(record) for record in records).encode() + b"\n\n"
    path = tmp_path / name
    path.write_bytes({"gz": gzip.compress, "xz": lzma.compress}.get(name[-2:], bytes)(content))
    found, skipped = read(path, field="body")
    assert found == ["one two\n\nthree", "你好"]
    assert skipped.count == 0


def test_D8_broken_json_lines_are_skipped_and_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [b'{"text": "good"}', b'{"text": "cut', b'{"txt": "x"}', b'{"text": 3}', b"[1]", b'{"text": "\\ud800"}']
    lines += [b'{"text": "\xff"}', b"[" * 100_000, b'{"text": "too"}']
    path.write_bytes(b"\n".join(lines))
    found, skipped = read(path)
    assert found == ["good", "too"]
    assert skipped.count == 7
    assert [place.split(": ")[0] for place in skipped.places] == [f"{path}:{line}" for line in range(2, 9)]
    assert skipped.places[1:4] == [
        f"{path}:3: no field 'text'",
        f"{path}:4: field 'text' is not a string",
        f"{path}:5: not a JSON object",
    ]
    with pytest.raises(UserError, match=rf"{path}:2: broken JSON"):
        read(path, strict=True)
    path.write_text('{"txt": "x"}')
    with pytest.raises(UserError, match=r":1: no field 'text'; pass field=NAME \(the line has: txt\)"):
        read(path, strict=True)


def test_fields_of_objects_in_records(tmp_path):
    address = "http://a.org/"
    records = [
        {"doc": {"text": "one"}, "metadata": {"url": address}},
        {"doc": {"text": "two"}, "url": address, "metadata": {"url": "other"}},
        {"doc.text": "three", "doc": {"text": "other"}, "meta": {"url": address}},
        {"doc": {"text": "four"}, "warc_headers": {"warc-target-uri": address}, "url": None},
        {"doc": ["text"]},
        {"doc": {"text": {"url": 1}}},
    ]
    path, skipped = tmp_path / "a.jsonl", Skipped()
    path.write_text("\n".join(map(json.dumps, records)))
    found = read_sources([path], TextOptions(field="doc.text"), skipped)
    assert list(found) == [(text, address) for text in ("one", "two", "three", "four")]
    assert [place.split(": ")[-1] for place in skipped.places] == [
        "no field 'doc.text'",
        "field 'doc.text' is not a string",
    ]
    with pytest.raises(UserError, match=r"no field 'text'.*the line has: doc.text, metadata.url\)"):
        read(path, strict=True)


def test_D7_undecodable_document_is_skipped_with_its_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\nbad\nline \xff\xfe here\nrest\n\ngood too\n")
    found, skipped = read(path)
    assert found == ["good", "good too"]
    assert skipped.places == [f"{path}:4: not UTF-8 (byte 6 of the line)"]
    assert read(path, documents="file")[1].count == 1
    with pytest.raises(UserError, match=rf"{path}:4: not UTF-8"):
        read(path, strict=True)


@pytest.mark.parametrize("mode", ["file", "blank-line", "line"])
def test_D7_overlong_document_is_skipped(tmp_path, monkeypatch, mode):
    monkeypatch.setattr(files, "MAX_DOCUMENT", 20)
    monkeypatch.setattr(documents, "MAX_DOCUMENT", 20)
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_bytes(b"x" * 30 if mode == "line" else b"123456789\n" * 2 + b"1\n")
    other.write_bytes(b"123456789\n1234567890")
    found, skipped = read(path, other, documents=mode)
    assert skipped.count == 1
    assert "longer than" in skipped.places[0]
    assert " ".join(found) == "123456789 1234567890"


def test_places_are_the_first_ten(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\n" * 25)
    skipped = read(path, documents="line")[1]
    assert skipped.count == 25
    assert [place.split(":")[1] for place in skipped.places] == [str(line) for line in range(1, 11)]


@pytest.mark.timeout(60)
def test_long_runs_of_space_take_linear_time():
    """The square of their length would be hours."""
    text = "x" + " " * 1_000_000 + "y \n z" + "\n" * 1_000_000 + "end"
    assert documents._tidy(text) == "x" + " " * 1_000_000 + "y z\n\nend"


def test_options_without_effect_are_refused(text):
    with pytest.raises(UserError, match="did you mean 'line'"):
        resolve_documents([text], TextOptions(documents="lines"))
    with pytest.raises(UserError, match="field has no effect"):
        refuse_idle_options([text], TextOptions(field="body"))
    with pytest.raises(UserError, match="documents has no effect"):
        refuse_idle_options(["a.jsonl"], TextOptions(documents="file"))
    refuse_idle_options([text, "a.jsonl"], TextOptions(field="body", documents="file"))


MEASURE = """
import pathlib, re, sys
from unmask.data.text import files
from unmask.data.text.documents import Skipped, TextOptions, read_documents
files.MAX_RATIO = 10**6
skipped = Skipped()
found = [len(text) for text in read_documents(sys.argv[2:], TextOptions(documents=sys.argv[1]), skipped)]
peak = re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())  # getrusage includes the parent's
print(len(found), skipped.count, int(peak[1]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["file", "line"])
def test_D7_D10_an_overlong_line_is_skipped_in_flat_memory(tmp_path, mode):
    path = tmp_path / "bomb.txt.xz"
    with lzma.open(path, "wb", preset=0) as stream:
        for _ in range(100):
            stream.write(b"x" * 1_000_000)
        stream.write(b"\nsmall\n")
    command = [sys.executable, "-c", MEASURE, mode, str(path)]
    found, skipped, megabytes = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert (found, skipped) == (1 if mode == "line" else 0, 1)
    assert megabytes < 90  # of which Python and its modules take about 30


@pytest.mark.parametrize("mode", ["file", "blank-line", "line"])
@pytest.mark.parametrize("byte", [b"\0", b"\n"])
def test_D10_compression_bomb_is_refused(tmp_path, monkeypatch, mode, byte):
    """All of the file is refused, with the line so far, not only the document that is read."""
    monkeypatch.setattr(files, "FREE", 100_000)
    path = tmp_path / "bomb.txt.xz"
    path.write_bytes(lzma.compress(b"first\n\n" + byte * 3_000_000))
    with pytest.raises(UserError, match=rf"{path}:\d+: the archive expands to more than 100 times its size"):
        read(path, documents=mode)


def test_documents_that_are_all_skipped_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "The dog sees the cat."}\n')
    skipped = Skipped()
    documents = read_documents([tmp_path / "a.jsonl"], TextOptions(), skipped)
    with pytest.raises(
        UserError, match=r"every document was skipped, the first at .*a\.jsonl:1: no field 'text'; pass field"
    ):
        list(refuse_none(documents, skipped, ["a.jsonl"]))
    assert list(refuse_none(iter(["one"]), skipped, ["a.jsonl"])) == ["one"]


def test_files_without_text_are_named():
    for paths, names in ((["a.txt"], "a.txt"), (["a.txt", "b.txt"], "a.txt and 1 other file")):
        with pytest.raises(UserError, match=rf"there is no text in {names}; check the files and documents"):
            list(refuse_none(iter([]), Skipped(), paths))


@pytest.mark.parametrize("name", ["a.tsv", "a.CSV", "a.csv.gz"])
def test_tables_are_no_text(text, tmp_path, name):
    path = tmp_path / name
    content = b'id,text\n1,"Hello, world"\n'
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    for call in (lambda: read(text, path), lambda: refuse_idle_options([text, path], TextOptions())):
        with pytest.raises(UserError, match=rf"{name}: is a table, all columns of which would be read as text; write"):
            call()


def test_rows_of_parquet_are_documents(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"content": ["One\nparagraph.\n\nTwo.", None, " ", "Last."]}), path)
    skipped, options = Skipped(), TextOptions(field="content")
    assert resolve_documents([path], options) == "line"
    assert list(read_documents([path], options, skipped)) == ["One paragraph.\n\nTwo.", "Last."]
    assert skipped.places == [f"{path}:2: field 'content' is not a string"]
    with pytest.raises(UserError, match=r"a\.parquet:1: no field 'text'; pass field=NAME \(the line has: content\)"):
        list(read_documents([path], TextOptions(strict=True), skipped))


LINE_ENDS = ["\n", "\r\n", "\r", "\v", "\f", "\n\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


def test_words_on_both_sides_of_any_line_end_are_two(tmp_path):
    rng, path = random.Random(0), tmp_path / "a.jsonl"
    for _ in range(100):
        words = rng.choices(["one", "zwei", "три", "四", "ห้า"], k=rng.randrange(2, 9))
        content = "".join(word + rng.choice(["", " "]) + rng.choice(LINE_ENDS) for word in words)
        path.write_text(json.dumps({"text": content}))
        assert read(path)[0] == [" ".join(words)]
        path.write_text(json.dumps({"text": content.replace("ei", "\xad\n ei")}))
        assert read(path)[0] == [" ".join(words)]
