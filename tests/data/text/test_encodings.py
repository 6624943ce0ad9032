"""Tests of text in other encodings than UTF-8: read if a mark declares it, and refused with advice if not."""

import codecs
import gzip
import random

import pytest

from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.text.encodings import suggest
from unmask.data.text.files import read_lines, read_text_lines
from unmask.support.errors import UserError

SENTENCES = {
    "cp1252": "Das Größte, schön und übel",
    "latin-1": "naïve\tcafé",
    "cp1250": "Zażółć gęślą jaźń",
    "cp1251": "Привет, мир, как дела",
    "koi8-r": "Привет, мир, как дела",
    "cp1253": "Καλημέρα κόσμε",
    "shift_jis": "これは日本語の文です",
    "euc-jp": "これは日本語の文です",
    "gb18030": "这是中文句子，很好",
    "big5": "這是中文句子，很好",
    "euc-kr": "안녕하세요 세계",
}
LETTERS = "abc ,;\"'\t|äßéЖяΩ中文語가😀𝒳"
MARKS = {
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


@pytest.mark.parametrize("encoding", MARKS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_marked_encodings_are_read_as_python_reads_them(tmp_path, encoding, newline):
    rng = random.Random(encoding + newline)
    for number in range(50):
        lines = ["".join(rng.choices(LETTERS, k=rng.randrange(1, 60))) for _ in range(rng.randrange(1, 40))]
        content = MARKS[encoding] + newline.join(lines).encode(encoding)
        path = tmp_path / f"{number}.txt{'.gz' * (number % 2)}"
        path.write_bytes(gzip.compress(content) if number % 2 else content)
        expected = content.decode(encoding.rpartition("-")[0]).split(newline)
        assert [line for _, line in read_text_lines(path)] == expected
        assert [line.decode() for _, line in read_lines(path)] == expected


def test_a_long_file_is_read_in_blocks(tmp_path):
    path = tmp_path / "a.txt"
    lines = [f"{number}: " + "中😀" * (number % 90) for number in range(8000)]
    path.write_bytes(codecs.BOM_UTF16_BE + "\n".join(lines).encode("utf-16-be"))
    assert list(read_text_lines(path)) == list(enumerate(lines, 1))


@pytest.mark.parametrize("damage", [b"\x00", b"\x00\xd8\x0a\x00"], ids=["half a character", "lone surrogate"])
def test_a_file_that_contradicts_its_mark_is_refused(tmp_path, damage):
    path = tmp_path / "a.txt"
    path.write_bytes("one\ntwo\n".encode("utf-16") + damage)
    with pytest.raises(UserError, match=rf"^{path}:[13]: not UTF-16, which the byte-order mark declares \(.*UTF-8$"):
        list(read_text_lines(path))


@pytest.mark.parametrize("encoding", SENTENCES)
def test_the_encoding_is_suggested(tmp_path, encoding):
    sentence = SENTENCES[encoding]
    path = tmp_path / "a.txt"
    path.write_bytes(b"plain\n" + sentence.encode(encoding) + b"\nmore\n")
    remedy = suggest(sentence.encode(encoding))
    assert f"{encoding.replace('latin-1', 'cp1252')} ('{' '.join(sentence.split())[:20]}" in remedy
    with pytest.raises(UserError, match=rf"^{path}:2: not UTF-8 \(byte \d+ of the line\); ") as error:
        list(read_text_lines(path))
    assert str(error.value).endswith(remedy)
    skipped = Skipped()
    assert list(read_documents([path], TextOptions(documents="line"), skipped)) == ["plain", "more"]
    assert skipped.remedy == remedy


def test_noise_is_no_text():
    rng = random.Random(0)
    assert suggest(b"a\x00\xff") == "convert the file to UTF-8"
    assert all(suggest(rng.randbytes(30)).startswith("convert the file to UTF-8") for _ in range(200))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("line", [1, 2, 7, 20_000])
def test_the_line_of_what_cannot_be_decoded_is_named(encoding, line, tmp_path):
    marks = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
    marks |= {"utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}
    wrong = "\udc00".encode(encoding, "surrogatepass")
    before = "".join(f"line {number}\n" for number in range(1, line)).encode(encoding)
    path = tmp_path / "a.txt"
    path.write_bytes(marks[encoding] + before + "ok ".encode(encoding) + wrong + "\n".encode(encoding))
    with pytest.raises(UserError, match=rf"a\.txt:{line}: not UTF-"):
        list(read_text_lines(path))
