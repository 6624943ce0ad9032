"""Tests of pages from web archives and files of HTML: main content, encodings, damage, and what is left out."""

import gzip
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.text.documents import Skipped, TextOptions, read_documents, refuse_idle_options, refuse_none
from unmask.data.text.html import MAX_ATTRIBUTES, MAX_DEPTH, PageError, decode_page, html_text
from unmask.data.text.pages import read_pages
from unmask.support.errors import UserError

pytest.importorskip("resiliparse")
brotli = pytest.importorskip("brotli")
CRAWL = Path("../shared/data/crawl")
STORY = "The story is simple, and it ends well for the cat and for the dog."
PAGE = (
    f"<html><head><title>T</title><script>x()</script></head><body><nav><a>Home</a></nav><p>{STORY}</p></body></html>"
)


def response(content, kind="text/html", status=200, fields=""):
    head = f"HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\n{fields}\r\n"
    return record(head.encode() + content)


def record(block, kind="response", form="application/http; msgtype=response", url="http://a.org/"):
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nContent-Type: {form}\r\n"
    return gzip.compress(f"{head}Content-Length: {len(block)}\r\n\r\n".encode() + block + b"\r\n\r\n")


def pages(tmp_path, *records):
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(records))
    return list(read_pages(path, "warc"))


def test_text_of_pages_is_their_main_content(tmp_path):
    (page,) = pages(tmp_path, response(PAGE.encode()))
    assert page.text.split("\n") == [STORY]
    path = tmp_path / "page.txt"
    path.write_text(PAGE)
    assert list(read_documents([path], TextOptions(), Skipped())) == [STORY]


@pytest.mark.parametrize(
    ("encoding", "declared", "text"),
    [
        ("utf-8", "iso-8859-1", "Ein schöner Tag für die Katze"),
        ("utf-8", "nonsense", "Ein schöner Tag für die Katze"),
        ("cp1252", "iso-8859-1", "“Ein schöner Tag” – für €5"),
        ("cp1251", "windows-1251", "Кошка сидит на коврике"),
        ("cp1251", "", "Кошка сидит на коврике, и собака смотрит на неё очень внимательно"),
        ("shift_jis", "shift_jis", "猫がマットの上に座っている"),
        ("iso2022_jp", "iso-2022-jp", "猫がマットの上に座っている"),
        ("iso2022_jp", "utf-8", "猫がマットの上に座っている"),
        ("iso2022_jp", "", "猫がマットの上に座っている"),
        ("cp932", "shift_jis", "①猫がマットの上に座っている髙い木の下で"),
        ("cp932", "windows-31j", "①猫がマットの上に座っている髙い木の下で"),
        ("euc_jis_2004", "euc-jp", "①猫がマットの上に座っている"),
        ("cp949", "euc-kr", "고양이가 매트 위에 앉아 있다 펲시"),
        ("cp949", "", "고양이가 매트 위에 앉아 있다. 개가 고양이를 보고 있다."),
        ("cp949", "utf-8", "고양이가 매트 위에 앉아 있다. 개가 고양이를 보고 있다."),
        ("mac_cyrillic", "", "Кошка сидит на коврике, и собака смотрит на неё очень внимательно"),
        ("big5hkscs", "big5", "香港嘅貓佢哋喺墊上"),
        ("cp950", "big5", "貓坐在墊子上，€5，碁銹裏墻恒"),
        ("gbk", "gb2312", "朱镕基说，猫坐在垫子上"),
        ("cp1254", "iso-8859-9", "“Kedi” paspasın üstünde oturuyor – şimdi"),
        ("cp874", "tis-620", "“แมวนั่งบนเสื่อ” วันนี้…"),
        ("cp874", "windows-874", "แมวนั่งบนเสื่อ"),
        ("utf-8", "utf-16", "Ein schöner Tag für alle!"),
        ("gb18030", "utf-8", "猫坐在垫子上，狗看着它，然后它们都跑开了"),
        ("utf-16", "utf-8", "Ein schöner Tag"),
    ],
)
@pytest.mark.parametrize("where", ["server", "page"])
def test_encodings_that_lie(encoding, declared, text, where):
    meta = f'<meta charset="{declared}">' if where == "page" else ""
    content = f"<html><head>{meta}</head><body><p>{text}</p></body></html>".encode(encoding)
    assert html_text(content, declared if where == "server" else "") == text


@pytest.mark.parametrize(
    ("encoding", "server", "page", "text"),
    [
        ("cp1251", "iso-8859-1", "windows-1251", "Кошка сидит на коврике, и собака смотрит на неё"),
        ("cp1251", "windows-1251", "iso-8859-1", "Кошка сидит на коврике, и собака смотрит на неё"),
        ("iso-8859-2", "iso-8859-2", "iso-8859-1", "Zażółć gęślą jaźń, to jest dłuższy akapit tekstu"),
        ("cp1252", "iso-8859-1", "windows-1251", "Ein schöner Tag für die Kätzchen"),
    ],
)
def test_of_two_declarations_that_disagree_the_one_that_is_detected_is_right(encoding, server, page, text):
    content = f'<html><head><meta charset="{page}"></head><body><p>{text}</p></body></html>'.encode(encoding)
    assert html_text(content, server) == text


SENTENCES = {
    "utf-8": "Les élèves français étaient là, à côté de l’école où s’élève l’église.",
    "shift_jis": "猫がマットの上に座っている。",
    "euc-jp": "猫がマットの上に座っている。",
    "euc-kr": "고양이가 매트 위에 앉아 있다.",
    "gb2312": "猫坐在垫子上，狗看着它，然后它们都跑开了。",
    "big5": "貓坐在墊子上，狗看著牠，然後牠們都跑開了。",
    "windows-1251": "Кошка сидит на коврике, и собака смотрит на неё.",
}


@pytest.mark.parametrize("encoding", SENTENCES)
@pytest.mark.parametrize("server", [True, False])
@given(data=st.data())
def test_some_wrong_bytes_do_not_change_the_encoding_of_a_page(encoding, server, data):
    """A page that is cut off in a character, or has one of another encoding in it, was read as Windows-1252."""
    paragraphs = [SENTENCES[encoding]] * data.draw(st.integers(3, 12))
    declared = "" if server else f'<meta charset="{encoding}">'
    parts = [f"<html>{declared}<body>".encode(), *(f"<p>{each}</p>".encode(encoding) for each in paragraphs)]
    cut = data.draw(st.integers(0, 3))
    page = b"".join(parts)[: -cut or None]
    wrong = data.draw(st.sampled_from([b"\x98"] if encoding == "windows-1251" else [b"\xff", b"\xe9 ", b"\x80\n"]))
    at = data.draw(st.integers(1, len(parts) - 1))
    page = page[: len(b"".join(parts[:at]))] + wrong + page[len(b"".join(parts[:at])) :]
    text = decode_page(page, encoding if server else "", "" if server else encoding)
    assert text.count(SENTENCES[encoding]) >= len(paragraphs) - 1


@pytest.mark.parametrize("declared", ["idna", "punycode", "undefined", "unicode_escape", "base64", "rot13", "\0", ""])
def test_a_page_may_declare_anything(declared):
    assert "sch" in decode_page("Ein schöner Tag".encode("cp1252") + b"\x81", declared)


def test_the_declaration_of_xml_names_the_encoding_of_a_page():
    text = "Ołówek leży na żółtym stole"
    page = f'<?xml version="1.0" encoding="iso-8859-2"?><html><body><p>{text}</p></body></html>'
    assert html_text(page.encode("iso-8859-2")) == text


def test_pages_in_xhtml_have_elements_without_content(tmp_path):
    page = f"<html><head><title/></head><body><p>{STORY}</p></body></html>".encode()
    (sent,) = pages(tmp_path, response(page, "application/xhtml+xml"))
    (tmp_path / "a.xhtml").write_bytes(page)
    assert [sent.text] == list(read_documents([tmp_path / "a.xhtml"], TextOptions(), Skipped())) == [STORY]
    (tmp_path / "a.html").write_bytes(b'\xef\xbb\xbf<?xml version="1.0"?>\n' + page)
    assert list(read_documents([tmp_path / "a.html"], TextOptions(), Skipped())) == [STORY]


def test_what_is_no_page_is_counted(tmp_path):
    records = [
        record(b"software: x", "warcinfo", "application/warc-fields"),
        record(b"GET / HTTP/1.1\r\n\r\n", "request"),
        response(b"\x89PNG\r\n\x1a\n" + bytes(50)),  # its server said HTML
        response(b"%PDF-1.4", "text/plain"),
        response(b"a{b:c}", "text/css"),
        response(PAGE.encode(), status=404),
        response(bytes(range(256)) * 8, "text/plain"),
        response(STORY.encode(), "text/plain"),
        response(PAGE.encode(), "text/plain"),
        record(STORY.encode(), "conversion", "text/plain"),
    ]
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(records))
    skipped = Skipped()
    assert list(read_documents([path], TextOptions(), skipped)) == [STORY] * 3
    kinds = ("record of type warcinfo", "record of type request", "an image", "PDF", "text/css", "page with status 404")
    assert skipped.left_out == dict.fromkeys([*kinds, "binary"], 1)
    assert "an image: 1" in skipped.notes()[0]
    path.write_bytes(b"".join(records[:7]))
    with pytest.raises(UserError, match="has no text: records that are no text"):
        list(refuse_none(read_documents([path], TextOptions(), skipped), skipped, [path]))


@pytest.mark.parametrize("name", ["a.html", "a.HTM", "a.xhtml.gz"])
@pytest.mark.parametrize("before", ["", "\ufeff", " \n", "<!-- saved -->"])
def test_fragments_that_are_named_as_html_are_pages(tmp_path, name, before):
    content = f"{before}<div><p>{STORY}</p></div>".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(read_documents([tmp_path / name], TextOptions(), Skipped())) == [STORY.replace("\n", "\n\n")]


def test_content_codings_and_chunks(tmp_path):
    content = PAGE.encode()
    chunked = b"%x\r\n%s\r\n5;a=b\r\n" % (len(content) - 5, content[:-5]) + content[-5:] + b"\r\n0\r\n\r\n"
    deflated = zlib.compressobj(wbits=-15)
    raw = deflated.compress(content) + deflated.flush()
    for body, fields in (
        (gzip.compress(content), "Content-Encoding: gzip\r\n"),
        (content, "Content-Encoding: gzip\r\n"),
        (gzip.compress(content[:99]) + gzip.compress(content[99:]) + b"\r\n", "Content-Encoding: x-gzip\r\n"),
        (gzip.compress(content), "Content-Encoding: deflate\r\n"),
        (brotli.compress(gzip.compress(content)), "Content-Encoding: gzip, br\r\n"),
        (content, "Content-Encoding: br\r\n"),
        (zlib.compress(content), "Content-Encoding: deflate\r\n"),
        (raw, "Content-Encoding: deflate\r\n"),
        (chunked, "Transfer-Encoding: chunked\r\n"),
        (content, "Transfer-Encoding: chunked\r\n"),
        (b"%x\r\n%s\r\n0\r\n\r\n" % (len(raw), raw), "Transfer-Encoding: deflate, chunked\r\n"),
    ):
        assert pages(tmp_path, response(body, fields=fields))[0].text == STORY, fields
    for body, fields, reason in (
        (gzip.compress(content)[:-20], "Content-Encoding: gzip\r\n", "cannot be decompressed"),
        (gzip.compress(bytes(11_000_000)), "Content-Encoding: gzip\r\n", "longer than 10,000,000"),
        (gzip.compress(b"") * 101, "Content-Encoding: gzip\r\n", "more than 100 members"),
        (brotli.compress(content)[:-20], "Content-Encoding: br\r\n", "cut off"),
        (b"\xff" * 9, "Content-Encoding: br\r\n", "it is damaged"),
        (brotli.compress(bytes(11_000_000)), "Content-Encoding: br\r\n", "longer than 10,000,000"),
        (b"(\xb5/\xfd", "Content-Encoding: zstd\r\n", "compressed by zstd"),
        (chunked[:-7], "Transfer-Encoding: chunked\r\n", "chunks are damaged"),
    ):
        assert reason in pages(tmp_path, response(body, fields=fields))[0].fault


def test_damaged_records_are_skipped_and_named(tmp_path):
    path = tmp_path / "a.warc.gz"
    good = response(PAGE.encode())
    path.write_bytes(good + good[:-30] + good)
    skipped = Skipped()
    assert list(read_documents([path], TextOptions(), skipped)) == [STORY, STORY]
    assert skipped.count == 1 and skipped.places[0].startswith(f"{path}:2: ")
    with pytest.raises(UserError, match=rf"{path}:2: "):
        list(read_documents([path], TextOptions(strict=True), Skipped()))


def test_options_without_effect_are_refused(tmp_path):
    path = tmp_path / "a.warc"
    path.write_bytes(gzip.decompress(response(PAGE.encode())))
    refuse_idle_options([path], TextOptions())
    for options, problem in (
        (TextOptions(documents="file"), "each record is a document"),
        (TextOptions(field="body"), "field has no effect"),
        (TextOptions(encoding="cp1252"), "encoding.* has no effect"),
    ):
        with pytest.raises(UserError, match=problem):
            refuse_idle_options([path], options)


@pytest.mark.parametrize(
    "page", ["<div>" * (MAX_DEPTH + 1), "<div " + " ".join(f"a{n}=1" for n in range(MAX_ATTRIBUTES + 1)) + ">x</div>"]
)
def test_D12_pages_that_take_quadratic_time_are_refused(page):
    with pytest.raises(PageError, match="more than 2,000"):
        html_text(f"<html><body>{page}{'<p>' * 3000}".encode())


def test_D12_spaces_and_letters_take_time_that_is_proportional_to_their_number(tmp_path):
    (page,) = pages(tmp_path, response(PAGE.encode(), f"text/html; charset={' ' * 200_000}!"))
    assert page.text == STORY
    assert html_text(f"<html><body><p>{STORY}</p><{'a' * 200_000}".encode(), main=False, is_xml=True).strip() == STORY


@pytest.mark.shared
def test_real_archives_have_the_same_pages_as_warc_and_as_arc():
    texts = []
    for form in ("warc", "arc"):
        read = list(read_pages(CRAWL / f"aut_example.{form}.gz", form))
        assert not any(page.fault for page in read)
        texts.append([page.text for page in read if not page.left_out])
    assert len(texts[0]) == 129 and sorted(texts[0]) == sorted(texts[1])


@pytest.mark.shared
def test_a_cut_archive_keeps_the_pages_before_the_cut_and_says_so(tmp_path):
    content = (CRAWL / "aut_example.warc.gz").read_bytes()
    path = tmp_path / "cut.warc.gz"
    path.write_bytes(content[: len(content) * 2 // 3])
    read = list(read_pages(path, "warc"))
    assert [page.fault for page in read if page.fault] == ["the file is cut off"]
    assert read[-1].fault and len(read) > 300


def test_pages_without_text_are_counted_and_cut_off_ones_are_damaged(tmp_path):
    body = zlib.compress(PAGE.encode() * 20)
    records = [
        response(PAGE.encode()),
        response(b"<html><body><nav><a>Home</a></nav></body></html>"),
        response(body[: len(body) // 2], fields="Content-Encoding: deflate\r\n"),
    ]
    (tmp_path / "a.warc.gz").write_bytes(b"".join(records))
    skipped = Skipped()
    assert list(read_documents([tmp_path / "a.warc.gz"], TextOptions(), skipped)) == [STORY]
    assert skipped.left_out == {"page without text": 1}
    assert skipped.places == [f"{tmp_path}/a.warc.gz:3: its content cannot be decompressed (it is cut off)"]
