"""Tests of EPUB books: chapters in the order of the spine, and what is refused."""

import random
import re
import time
import zipfile

import pytest

from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.text.files import pages_of
from unmask.data.text.html import _as_html
from unmask.support.errors import UserError

pytest.importorskip("resiliparse")
CONTAINER = '<container xmlns="urn:c"><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf"><manifest>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="two" href="text/two%20b.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="text/one.xhtml" media-type="application/xhtml+xml"/>
<item id="pic" href="a.png" media-type="image/png"/></manifest>
<spine><itemref idref="nav"/><itemref idref="one"/><itemref idref="pic"/><itemref idref="two"/></spine></package>"""


def book(path, **changes):
    chapters = {"one": "It begins.", "two b": "It ends."}
    entries = {"META-INF/container.xml": CONTAINER, "OPS/book.opf": PACKAGE, "OPS/nav.xhtml": "<html>Contents</html>"}
    for name, text in chapters.items():
        entries[f"OPS/text/{name}.xhtml"] = f"<?xml version='1.0'?><html><body><p>{text}</p></body></html>"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("mimetype"), "application/epub+zip")
        for name, content in (entries | changes).items():
            if content is not None:
                archive.writestr(name, content)


def read(path):
    skipped = Skipped()
    return list(read_documents([path], TextOptions(), skipped)), skipped.places


def test_chapters_are_read_in_order(tmp_path):
    path = tmp_path / "a.zip"
    book(path)
    assert pages_of(path) == "epub"
    assert read(path) == (["It begins.\n\nIt ends."], [])


@pytest.mark.parametrize(
    "tag", ["<title/>", '<script src="a.js"/>', "<style type='text/css' />", '<title lang="a>b"/>']
)
def test_elements_without_content_do_not_swallow_a_chapter(tmp_path, tag):
    body = '<iframe src="a"/><p>It <i/>begins<a id="p1"/><![CDATA[ at < once]]>,<br/>and <textarea/>goes on.</p>'
    page = f"<?xml version='1.0'?><html><head><meta charset='utf-8'/>{tag}</head><body>{body}</body></html>"
    package = PACKAGE.replace('properties="nav"', 'properties="scripted nav"')
    book(tmp_path / "a.epub", **{"OPS/text/one.xhtml": page, "OPS/book.opf": package})
    assert read(tmp_path / "a.epub") == (["It begins at < once,\n\nand goes on.\n\nIt ends."], [])


def spine(items, *references):
    entries = "".join(f"<item {item}/>" for item in items)
    listed = "".join(f'<itemref idref="{name}"/>' for name in references)
    return f"<package><manifest>{entries}</manifest><spine>{listed}</spine></package>"


ONE, TWO = 'id="one" href="text/one.xhtml"', 'id="two" href="text/two%20b.xhtml"'
XHTML, OEB = 'media-type="application/xhtml+xml"', 'media-type="text/x-oeb1-document"'


@pytest.mark.parametrize(
    ("items", "references", "text", "places"),
    [
        ([f"{ONE} {XHTML}"], ("one", "two"), "It begins.", ["'two' of the spine"]),
        ([f"{ONE} {XHTML}", f'id="two" {XHTML}'], ("two", "one"), "It begins.", ["'two' of the spine"]),
        ([f"{ONE} {OEB}", TWO], ("one", "two"), "It begins.\n\nIt ends.", []),
        ([f'href="a.xhtml" {XHTML}', f"{TWO} {XHTML}"], ("two",), "It ends.", []),
        ([f'{ONE[:-1]}#start" {XHTML}'], ("one",), "It begins.", []),
        (['id="pic" href="a.svg" media-type="image/svg+xml" fallback="one"', ONE], ("pic",), "It begins.", []),
        (['id="a" href="a.svg" media-type="image/svg+xml" fallback="a"', ONE], ("a", "one"), "It begins.", []),
        (['id="a" href="a.pdf" media-type="application/pdf"', ONE], ("a", "one"), "It begins.", ["a.pdf: is app"]),
        ([ONE], (), "", ["names no chapter"]),
    ],
)
def test_what_a_spine_names_is_read_or_named(tmp_path, items, references, text, places):
    book(tmp_path / "a.epub", **{"OPS/book.opf": spine(items, *references)})
    texts, found = read(tmp_path / "a.epub")
    assert texts == [text] * bool(text)
    assert len(found) == len(places)
    assert all(part in place for part, place in zip(places, found, strict=True))


@pytest.mark.parametrize("content", ["<a ", '<a "', "<a b='", "<a/", "<![CDATA[", "</", '<a b="c>', "<a>" + "/" * 9])
def test_D12_the_tags_of_a_chapter_take_linear_time(content):
    start = time.process_time()
    _as_html(content * 100_000)
    assert time.process_time() - start < 30  # a quadratic one takes minutes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"META-INF/container.xml": "<container/>"}, "names no package"),
        ({"META-INF/container.xml": "<container"}, "is damaged"),
        ({"META-INF/encryption.xml": '<e><EncryptionMethod Algorithm="http://x/aes128-cbc"/></e>'}, "is encrypted"),
    ],
)
def test_damaged_and_encrypted_books_are_skipped(tmp_path, changes, reason):
    book(tmp_path / "a.epub", **changes)
    documents, places = read(tmp_path / "a.epub")
    assert not documents and reason in places[0]


@pytest.mark.parametrize(
    ("chapter", "reason"),
    [
        (None, "OPS/text/one.xhtml: cannot be read (\"There is no item named 'OPS/text/one.xhtml' in the archive\")"),
        ("<html>" + " " * 10_000_001, "OPS/text/one.xhtml: longer than 10,000,000 bytes"),
    ],
)
def test_a_chapter_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path, chapter, reason):
    path = tmp_path / "a.epub"
    book(path, **{"OPS/text/one.xhtml": chapter})
    assert read(path) == (["It ends."], [f"{path}:1: {reason}"])
    with pytest.raises(UserError, match=re.escape(reason)):
        list(read_documents([path], TextOptions(strict=True), Skipped()))


def test_bytes_that_changed_cost_no_more_than_their_chapter(tmp_path):
    path, rng, seen = tmp_path / "a.epub", random.Random(0), set()
    words = {name: " ".join(rng.choice("abcdefgh") * 3 for _ in range(300)) for name in ("one", "two b")}
    book(path, **{f"OPS/text/{name}.xhtml": f"<html><body><p>{text}</p></body></html>" for name, text in words.items()})
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
    for _ in range(60):
        name = rng.choice(["one", "two b"])
        entry, changed = entries[f"OPS/text/{name}.xhtml"], bytearray(content)
        start = entry.header_offset + 30 + len(entry.filename)
        at = start + rng.randrange(entry.compress_size - 1)  # bits of the last byte may be unused
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        documents, places = read(path)
        other = next(text for of, text in words.items() if of != name)
        assert documents == [other] and len(places) == 1 and f"OPS/text/{name}.xhtml" in places[0]
        seen.add(places[0].partition("(")[2][:9])
    assert len(seen) > 1, "checksums and zlib's own errors"


def test_a_book_that_is_cut_off_is_skipped(tmp_path):
    path = tmp_path / "a.epub"
    book(path)
    path.write_bytes(path.read_bytes()[:-100])
    assert "is damaged" in read(path)[1][0]
