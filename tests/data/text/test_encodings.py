"""Tests of text in other encodings than UTF-8: read if named or marked, and refused with advice if not."""

import codecs
import gzip
import io
import random
import sys

import pytest

from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.text.encodings import EncodedPath, check_encoding, suggest
from unmask.data.text.files import read_lines, read_text_lines
from unmask.support.errors import UserError
from unmask.support.messages import argument, rendered

SENTENCES = {
    "cp1252": "Das Größte, schön und übel",
    "latin-1": "naïve\tcafé",
    "cp1250": "Zażółć gęślą jaźń",
    "cp1251": "Привет, мир, как дела",
    "koi8-r": "Привет, мир, как дела",
    "cp1253": "Καλημέρα κόσμε",
    "cp1254": "İstanbul'da ılık bir gün, değil mi",
    "cp1255": "שלום עולם, מה שלומך",
    "cp1256": "كتاب جديد في البيت",
    "cp1257": "Ąžuolas šiandien žydėjo",
    "cp874": "ภาษาไทยเป็นภาษาที่ดี",
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
    for number in range(15):
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
    assert str(error.value).endswith(rendered(remedy))
    skipped = Skipped()
    assert list(read_documents([path], TextOptions(documents="line"), skipped)) == ["plain", "more"]
    assert skipped.remedy == remedy


@pytest.mark.parametrize("encoding", SENTENCES)
def test_the_encoding_of_any_words_is_among_those_that_are_suggested(encoding):
    rng = random.Random(encoding)
    words = SENTENCES[encoding].split()
    for _ in range(15):
        line = " ".join(rng.choices(words, k=rng.randrange(3, 9)))
        if not line.isascii():
            first = next(place for place, character in enumerate(line) if character > "\x7f")
            assert f"('{' '.join(line[max(0, first - 12) :][:24].split())}')" in suggest(line.encode(encoding))


@pytest.mark.parametrize("line", ["Température 38 °C, 5 µg", "5 µg täglich", "El 1º día", "Nº 5", "la 2ª vez"])
def test_signs_that_are_letters_to_unicode_are_part_of_any_script(line):
    assert f": cp1252 ('{line}')" in suggest(line.encode("cp1252"))
    assert "cp1253 ('ένα, 5 µg')" in suggest("ένα, 5 µg".encode("cp1253"))


def test_noise_is_no_text():
    rng = random.Random(0)
    assert suggest(b"a\x00\xff") == "convert the file to UTF-8"
    remedies = "convert the file to UTF-8", f"pass {argument('encoding')} with that in which this is right: "
    assert all(suggest(rng.randbytes(30)).startswith(remedies) for _ in range(200))


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


NAMED = {
    **{encoding: sentence for encoding, sentence in SENTENCES.items() if encoding != "latin-1"},
    **dict.fromkeys(MARKS, LETTERS),
    "utf-8": LETTERS,
    "ISO-8859-15": "un cœur à 5 €, ŸŽž",
    "mac_roman": "déjà œuvré – «bon»",
    "cp037": "EBCDIC: é, ü",
    "iso2022_jp": "これは日本語 and ASCII の文です",
}


def random_lines(encoding, number):
    rng = random.Random(f"{encoding} {number}")
    return ["".join(rng.choices(NAMED[encoding], k=rng.randrange(1, 60))) for _ in range(rng.randrange(1, 40))]


def put_on_stdin(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))


@pytest.mark.parametrize("encoding", NAMED)
def test_named_encodings_are_read_as_python_reads_them(tmp_path, monkeypatch, encoding):
    for number in range(15):
        content = "\n".join(random_lines(encoding, number)).encode(encoding)
        path = tmp_path / f"{number}.txt{'.gz' * (number % 2)}"
        path.write_bytes(gzip.compress(content) if number % 2 else content)
        put_on_stdin(monkeypatch, content)
        for source in (str(path), "-"):
            lines = list(read_text_lines(EncodedPath(source, encoding)))
            assert lines == list(enumerate(content.decode(encoding).split("\n"), 1))
        options = TextOptions(documents="line", encoding=encoding)
        documents = [line.strip() for _, line in lines if line.strip()]
        assert list(read_documents([path], options, Skipped())) == documents


def test_a_mark_may_be_named_but_not_contradicted(tmp_path, monkeypatch):
    marks = {**MARKS, "utf-8": codecs.BOM_UTF8}
    path = tmp_path / "a.txt"
    for marked, mark in marks.items():
        path.write_bytes(mark + "Größe\n中".encode(marked))
        for named in ("utf-8", "utf_8_sig", "utf-16", "UTF-16LE", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
            exact = codecs.lookup(named).name.removesuffix("-sig")
            if exact in (marked, marked.removesuffix("-le").removesuffix("-be")):
                assert list(read_text_lines(EncodedPath(path, named))) == [(1, "Größe"), (2, "中")]
                continue
            with pytest.raises(UserError, match=rf"a\.txt:1: begins with the byte-order mark of {marked.upper()}, not"):
                list(read_text_lines(EncodedPath(path, named)))
    with pytest.raises(UserError, match="byte-order mark of UTF-16-BE, not of cp1252; omit encoding"):
        put_on_stdin(monkeypatch, codecs.BOM_UTF16_BE)
        list(read_text_lines(EncodedPath("-", "cp1252")))


def test_the_order_of_bytes_must_be_known(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("Größe".encode("utf-16-be"))
    with pytest.raises(
        UserError, match=r'order of its bytes is unknown; pass encoding="utf-16-le" or encoding="utf-16-be"$'
    ):
        list(read_text_lines(EncodedPath(path, "utf-16")))
    path.write_bytes(b"")
    assert list(read_text_lines(EncodedPath(path, "utf-16"))) == []


@pytest.mark.parametrize("name", ["", "utf-9", "rot13", "hex", "base64", "zip", "a\0b"])
def test_unknown_encodings_are_refused(name):
    for check in (check_encoding, lambda name: TextOptions(encoding=name), lambda name: EncodedPath("a", name)):
        with pytest.raises(UserError, match="no such encoding of text; pass one such as cp1252"):
            check(name)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp1253", "shift_jis", "gb18030", "utf-16-le"])
def test_the_line_and_the_byte_of_what_cannot_be_decoded_are_named(tmp_path, encoding):
    wrong = {"ascii": b"\xe9", "cp1252": b"\x81", "cp1253": b"\xff", "utf-16-le": b"\x00\xdc"}.get(encoding, b"\xff")
    path, sentence = tmp_path / "a.txt", NAMED.get(encoding, "plain")
    for number in (*range(50), 5000):
        before = "".join(f"{sentence} {line}\n" for line in range(number)).encode(encoding)
        content = before + "ok".encode(encoding) + wrong + "\nmore\n".encode(encoding)
        with pytest.raises(UnicodeDecodeError) as error:
            content.decode(encoding)
        line, byte = before.decode(encoding).count("\n") + 1, error.value.start + 1
        path.write_bytes(content)
        put_on_stdin(monkeypatch := pytest.MonkeyPatch(), content)
        for source, name in ((str(path), str(path)), ("-", "standard input")):
            with pytest.raises(UserError, match=rf"^{name}:{line}: not {encoding} \(byte {byte:,} of the file: "):
                list(read_text_lines(EncodedPath(source, encoding)))
        monkeypatch.undo()


def test_a_wrong_name_gets_advice(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"plain\n\xe9\x81\xa9\n")
    with pytest.raises(UserError, match=r"a\.txt:2: not cp1252 \(byte 8 of the file: .*; omit encoding: it is UTF-8$"):
        list(read_text_lines(EncodedPath(path, "cp1252")))
    path.write_bytes("Größe".encode("cp1252"))
    with pytest.raises(UserError, match=r"not ascii \(byte 3 .*\); pass encoding with .* right: cp1252 \('Größe'\)"):
        list(read_text_lines(EncodedPath(path, "ascii")))


@pytest.mark.parametrize("mark", MARKS)
def test_marks_on_standard_input(monkeypatch, mark):
    for number in range(15):
        lines = random_lines("utf-16-le", number)
        put_on_stdin(monkeypatch, MARKS[mark] + "\n".join(lines).encode(mark))
        assert [line for _, line in read_text_lines("-")] == lines
