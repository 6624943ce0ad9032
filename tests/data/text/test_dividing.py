"""Sections of a file give what the whole file gives: the same documents, faults and numbers, wherever it is divided."""

import bz2
import gzip
import json
import random
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.text.dividing import form_of, join_scans, scan
from unmask.data.text.documents import Skipped, TextOptions, read_sources, resolve_documents

OPTIONS = TextOptions()
pack = partial(gzip.compress, mtime=0)
PAGE = "<page><title>T{0}</title><ns>0</ns><revision><text>Story {0} is simple.{1}</text></revision></page>"


def warc(number, text, length=None):
    head = (
        f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: http://a.org/{number}\r\nContent-Type: text/plain\r\n"
    )
    return f"{head}Content-Length: {len(text) if length is None else length}\r\n\r\n".encode() + text + b"\r\n\r\n"


def arc(number, text):
    return f"http://a.org/{number} 1.1.1.1 20200101000000 text/plain {len(text)}\n".encode() + text + b"\n"


def read(paths, options):
    """Return documents with addresses, and what was skipped."""
    skipped = Skipped()
    return list(read_sources(paths, options, skipped)), skipped


def divide(path, places, options=OPTIONS, most=None):
    """Return the sections of a file at places."""
    options = TextOptions(options.field, resolve_documents([path], options), options.strict, options.encoding)
    form, size = form_of(path, options, options.documents), path.stat().st_size
    assert form
    places = [0, *sorted({place for place in places if 0 < place < size})]
    scans = [scan(path, form, low, high, most=most) for low, high in pairwise(places)]
    return join_scans(path, form, places, size, scans), options


def check(path, places, options=OPTIONS, most=None, least=1):
    """Check that sections give what the whole file gives; return their number."""
    sections, options = divide(path, places, options, most)
    bounds = [(section.start, section.stop) for section in sections]
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])]
    assert bounds[-1][1] == path.stat().st_size and sections[-1].is_last
    assert all(start < stop for start, stop in bounds)
    whole = read([path], options)
    assert read(sections, options) == whole, bounds
    assert len(sections) >= least
    return len(sections)


def archive(form, blocks):
    """Return the content of a web archive of some form."""
    make = arc if form.startswith("arc") else warc
    parts = [make(number, block) for number, block in enumerate(blocks)]
    if form.startswith("arc"):
        about = b"1 0 Test\nURL IP-address Archive-date Content-type Archive-length\n"
        parts.insert(0, b"filedesc://a.arc 0.0.0.0 20200101000000 text/plain %d\n" % len(about) + about + b"\n")
    return b"".join(map(pack, parts)) if form.endswith(".gz") else b"".join(parts)


def dump(pages, form=".xml"):
    """Return the content of a dump whose streams have two pages each."""
    head = (
        '<mediawiki xml:lang="en"><siteinfo><namespaces><namespace key="6">Datei</namespace></namespaces></siteinfo>\n'
    )
    groups = ["\n".join(pages[index : index + 2]) + "\n" for index in range(0, len(pages), 2)]
    parts = [part.encode() for part in (head, *groups, "</mediawiki>\n")]
    return b"".join(map(bz2.compress, parts)) if form.endswith(".bz2") else b"".join(parts)


STORIES = [f"Story {number} is simple. ".encode() * random.Random(number).randint(1, 4) for number in range(8)]
FILES = {
    "a.jsonl": b'{"text": "one"}\n\n{"text": "two"}\r\nbroken\n{"text": "t\xe9"}\n{"text": "\xc3\xa9 last"}',
    "lines.txt": b"\xef\xbb\xbfone\ntwo\n\n \n\xff\nfour\r\nfive\n",
    "blocks.txt": b"one\ntwo\n\n\nthree\r\n\r\nfour\n \t\nfi\xffve\n\xe3\x80\x80\nsix\n\n\0\nseven\n\n",
    **{f"a.{form}": archive(form, STORIES) for form in ("warc", "warc.gz", "arc", "arc.gz")},
    **{
        f"a.{form}": dump([PAGE.format(number, "[[Datei:x|y]]" * (number % 3)) for number in range(7)], form)
        for form in ("xml", "xml.bz2")
    },
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_can_be_divided_at_every_byte(name, tmp_path, request):
    path, content = tmp_path / name, FILES[name]
    path.write_bytes(content)
    options = TextOptions(documents="line") if name == "lines.txt" else TextOptions()
    step = 1 if request.config.getoption("--exhaustive") else max(1, len(content) // 90)
    number = max(check(path, [place], options) for place in range(1, len(content), step))
    assert number == 2
    assert check(path, range(0, len(content), 7), options) > 2
    assert read([path], options)[0]


def test_parquet_is_divided_at_row_groups(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    table = pyarrow.table(
        {"text": [f"Story {n}" if n % 5 else None for n in range(40)], "url": [f"u{n}" for n in range(40)]}
    )
    parquet.write_table(table, path, row_group_size=6)
    assert check(path, range(0, path.stat().st_size, 50)) == 7
    assert all(check(path, [place]) <= 2 for place in range(1, path.stat().st_size, 130))


@pytest.mark.parametrize("form", ["warc.gz", "warc"])
def test_a_record_that_holds_an_archive_is_not_divided(form, tmp_path):
    """What is stored in a record begins with a record at its own places, also where its member is."""
    inner = archive(form, [random.Random(n).randbytes(300).hex().encode() for n in range(6)])
    parts = [warc(0, b"Story"), warc(1, inner), warc(2, b"The end"), warc(3, b"Really")]
    if form.endswith("gz"):
        stored = pack(parts[1], 0)  # as it is
        content = b"".join([pack(parts[0]), stored, *map(pack, parts[2:])])
        assert inner[:200] in content
    else:
        content = b"".join(parts)
    path = tmp_path / f"a.{form}"
    path.write_bytes(content)
    for place in range(1, len(content), 97):
        assert check(path, [place, place + 100, len(content) - 20]) <= 4


def test_a_comment_that_holds_pages_is_not_divided(tmp_path):
    hidden = "<!-- " + "\n".join([PAGE.format("hidden", "")] * 5) + " -->"
    pages = [PAGE.format(0, ""), PAGE.format(1, "") + hidden, *(PAGE.format(number, "") for number in range(2, 7))]
    for form in ("xml", "xml.bz2"):
        path = tmp_path / f"a.{form}"
        path.write_bytes(dump(pages, form))
        for place in range(1, path.stat().st_size, 23):
            check(path, [place, place + 40])
    parts = [dump(pages)[:300], dump(pages)[300:]]
    path.write_bytes(b"".join(map(bz2.compress, parts)))  # a stream that begins inside of something
    check(path, range(0, path.stat().st_size, 20))


@given(st.data())
def test_damaged_files_are_divided_as_they_are_read(tmp_path_factory, data):
    name = data.draw(st.sampled_from([name for name in FILES if not name.endswith("bz2")]))
    content = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(10, max(10, len(content) - 1)))
        match data.draw(st.sampled_from(["replace", "cut", "insert"])):
            case "replace":
                content[place : place + 1] = data.draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del content[place : place + data.draw(st.integers(1, 30))]
            case _:
                content[place:place] = data.draw(
                    st.sampled_from([b"\n\n", b"WARC/1.0\r\n", b"\x1f\x8b\x08", b"<page>", bytes(4)])
                )
    path = tmp_path_factory.mktemp("files") / name
    path.write_bytes(content)
    places = data.draw(st.lists(st.integers(1, len(content) + 1), max_size=5))
    options = TextOptions(documents="line") if name == "lines.txt" else TextOptions()
    if form_of(path, options, resolve_documents([path], options)):
        check(path, places, options)


@given(st.lists(st.sampled_from(["a", "\n", "\r\n", " ", "\0", "\u3000", "\n\n", "é"]), max_size=40), st.data())
def test_text_is_divided_between_its_documents(tmp_path_factory, parts, data):
    path = tmp_path_factory.mktemp("files") / "a.txt"
    path.write_bytes("".join(["x", *parts]).encode())
    places = data.draw(st.lists(st.integers(1, 60), max_size=5))
    for documents in ("line", "blank-line"):
        check(path, places, TextOptions(documents=documents))


def test_large_records_are_counted_in_bounded_reads(tmp_path):
    """Scans that must stop before they have found the end are done again, with all of the file."""
    stories = [random.Random(number).randbytes(200_000).hex().encode() for number in range(6)]
    path = tmp_path / "a.warc.gz"
    path.write_bytes(archive("warc.gz", stories))
    places = range(0, path.stat().st_size, 150_000)
    assert check(path, places, most=300_000) == check(path, places) == 6
    assert check(path, places, most=800_000) == 6


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt.gz", pack(b"one\ntwo\n")),
        ("a.warc.xz", b""),
        ("a.txt", b"\xff\xfeo\0n\0e\0\n\0"),
        ("a.html", b"<html><p>one</p></html>"),
        ("a.arrow", b""),
    ],
    ids=["gzip", "xz", "UTF-16", "HTML", "Arrow"],
)
def test_what_cannot_be_divided(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert form_of(tmp_path / name, TextOptions(), "line") == ""
    assert form_of(tmp_path / "a.txt", TextOptions(), "file") == "" if name == "a.txt" else True


def test_an_archive_in_a_single_member_is_one_section(tmp_path):
    path = tmp_path / "a.warc.gz"
    path.write_bytes(pack(archive("warc", STORIES)))
    assert check(path, range(0, path.stat().st_size, 20)) == 1


def test_lines_of_json_have_their_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"Story {number}"}) + "\n" for number in range(50)) + "broken\n")
    (*_, section), options = divide(path, [path.stat().st_size - 3])
    assert read([section], options)[1].places == [
        f"{path}:51: broken JSON (JSON is malformed: invalid character (byte 0))"
    ]
