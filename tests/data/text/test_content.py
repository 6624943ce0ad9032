"""Tests of telling text from what is no text, by content: archives, documents, images, programs, models, pages."""

import bz2
import gzip
import io
import lzma
import pickle
import sqlite3
import struct
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unmask.data.text.content import START, recognize, recognize_binary
from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.text.files import open_bytes, read_lines
from unmask.support.errors import UserError

TEXT = b"The story is simple.\nIt ends well.\n" * 20


def tar(compression=""):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{compression}") as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = len(TEXT)
        archive.addfile(entry, io.BytesIO(TEXT))
    return file.getvalue()


def archive(*entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        for name, content in entries:
            opened.writestr(name, content)
    return file.getvalue()


def array(save, *values):
    file = io.BytesIO()
    save(file, *values)
    return file.getvalue()


def database(tmp_path):
    with sqlite3.connect(tmp_path / "a") as opened:
        opened.execute("CREATE TABLE texts (text TEXT)")
    return (tmp_path / "a").read_bytes()


PNG = b"\x89PNG\r\n\x1a\n" + bytes(60)
BINARY = {
    "a tar archive": tar(),
    "a zip archive": archive(("a.txt", TEXT)),
    "Office": archive(("[Content_Types].xml", TEXT), ("word/document.xml", TEXT)),
    "NumPy arrays": array(np.savez, np.arange(3)),
    "a NumPy array": array(np.save, np.arange(3)),
    "PyTorch": archive(("archive/data.pkl", pickle.dumps({}))),
    "PDF": b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n",
    "RTF": b"{\\rtf1\\ansi The story is simple.}",
    "PostScript": b"%!PS-Adobe-3.0\n(The story) show\n",
    "an image": PNG,
    "a program": b"\x7fELF\2\1\1" + bytes(60),
    "gzip": gzip.compress(TEXT),
    "bzip2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "XML": b'<?xml version="1.0"?>\n<TEI><p>The story is simple.</p></TEI>',
    "safetensors": struct.pack("<Q", 40) + b'{"__metadata__":{"format":"pt"}}' + bytes(40),
    "binary": np.random.default_rng(0).bytes(5000),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("suffix", ["", ".txt", ".jsonl", ".tsv"])
def test_what_is_no_text_is_refused_whatever_its_name(tmp_path, name, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(BINARY[name])
    with pytest.raises(UserError, match=rf"{path}: is .*{name}.*, not text; \w"):
        list(read_lines(path))
    with pytest.raises(UserError, match=f"{name}.*, not text"):
        list(read_documents([path], TextOptions(), Skipped()))


@pytest.mark.parametrize(
    "text", ["What is WEBP?", "The ftyp box.", "Is AVI LIST so?", "A sound WAVEfmt ", " " * 250 + "A lot mustard."]
)
def test_words_that_are_signatures_elsewhere_are_text(text):
    assert recognize(text.encode().ljust(START, b" ")) is None


@pytest.mark.parametrize(
    ("begun", "end", "pages"), [("<!--a-->", "<html>", "html"), ("<?xml?>", "<mediawiki>", "mediawiki")]
)
def test_D12_comments_before_a_page_take_time_that_is_proportional_to_their_number(begun, end, pages):
    content = recognize(f"{begun * 400}{end}".encode())
    assert content and content.pages == pages
    assert recognize(f"{'<!--a-->' * 400}<div>".encode()) is None


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ('<svg version="1.1"\n xmlns="http://www.w3.org/2000/svg"><text>The story</text></svg>', "XML"),
        ('<t:TEI xmlns:t="http://www.tei-c.org/ns/1.0">', "XML"),
        ('<!DOCTYPE TEI.2 SYSTEM "tei2.dtd"><TEI.2>', "XML"),
        ("\ufeff\n %PDF-1.7\n1 0 obj", "PDF"),
        ("\r\nWARC/1.0\r\n", "a web archive (WARC)"),
        ("\ufeffWARC/1.0\r\n", "a web archive (WARC)"),
        ("The %PDF-1.7 of a text", None),
        ('<meta charset="utf-8"><p>The story', "HTML"),
        ('<doc id="1" title="xmlns">\nThe story is simple.\n</doc>', None),
        ("<s> The xmlns= of a text </s>", None),
    ],
)
def test_markup_without_a_declaration_is_recognized(start, name):
    content = recognize(start.encode())
    assert (content and content.name) == name


@pytest.mark.parametrize("kind", [b"WEBPVP8 ", b"WAVEfmt ", b"AVI LIST"])
def test_containers_of_media_are_recognized(kind):
    sized = b"RIFF" + struct.pack("<I", 1000) + kind + bytes(40)
    mp4 = b"\0\0\0\x18ftypisom" + bytes(40)
    assert {recognize(sized).name, recognize(mp4).name} == {"an image, a sound or a video"}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [["a", "b"], {"text": "a"}, np.arange(3)], ids=["list", "dict", "array"])
def test_pickles_are_recognized(protocol, value):
    assert recognize(pickle.dumps(value, protocol)).name == "a pickle"


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_archives_are_recognized_inside_compressed_files(tmp_path, suffix, pack):
    for name, content in (("a tar archive", tar()), ("compressed by gzip", gzip.compress(TEXT))):
        path = tmp_path / f"a.txt{suffix}"
        path.write_bytes(pack(content))
        with pytest.raises(UserError, match=name):
            list(read_lines(path))
    path.write_bytes(pack(TEXT))
    assert len(list(read_lines(path))) == 40


def test_a_database_of_another_name_says_how_to_name_it(tmp_path):
    path = tmp_path / "b.txt"
    path.write_bytes(database(tmp_path))
    with pytest.raises(UserError, match=r"is a SQLite database, not text; rename it so that it ends in \.sqlite"):
        list(read_lines(path))


def test_standard_input_is_checked_once(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"WARC/1.0\r\nWARC-Type: warcinfo\r\n")))
    with pytest.raises(UserError, match=r"standard input: is a web archive.*save it to a file"), open_bytes("-"):
        pass
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
    assert len(list(read_lines("-"))) == 40


def test_utf_16_without_a_mark_says_which_encoding_to_pass(tmp_path):
    path = tmp_path / "a.txt"
    for encoding in ("utf-16-le", "utf-16-be"):
        path.write_bytes(TEXT.decode().encode(encoding))
        with pytest.raises(UserError, match=f"UTF-16 without a byte-order mark.*{encoding}"):
            list(read_lines(path))
        assert list(read_documents([path], TextOptions(encoding=encoding, documents="line"), Skipped()))
    path.write_bytes(TEXT.decode().encode("utf-16"))
    assert len(list(read_lines(path))) == 40


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=300))
@example("PKZIP was a program.")
@example("BMW and Rarotonga, MZ and PAR: BZ, an ORC, RIFF\nOggi\ncat\ndog\n")
@example("cat\ndog\nbird\np1\n")
@example("(lp. 3) and (dp)\n")
@example("a <html> in a text, and <?xml ?> too")
@example("\ufeffThe story")
@example("ALT text\tand tab\r\nand\fpages\x1b[0m")
def test_text_is_never_refused(text):
    content = text.encode()[:START]
    assert recognize(content) is None or text.lstrip().startswith(("%", "<", "{", "c", "(", "WARC/", "filedesc:"))
    assert recognize_binary(content) is None
