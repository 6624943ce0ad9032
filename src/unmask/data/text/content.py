"""What a file is, by its first bytes, whatever its name: text is read only from what is text.

Input: the first bytes of a file, decompressed. Output: the format of pages that it has (`PAGES`), or what it is
instead of text, with a remedy. An archive, an image or a program that is read as text gives words that nobody wrote,
without any error: a WARC file, a tar, an uncompressed zip and most of a PDF are ASCII.

Formats without a signature are recognized by control characters, of which text has next to none (`CONTROLS`).
Signatures are those of the formats' specifications, as `file` (Darwin) lists them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from unmask.support.messages import argument

START = 4096
"""Number of bytes by which a file is recognized."""
CONTROLS, FEWEST = 0.05, 16
"""Share of control characters from which bytes are no text, and how many there must be: a few may be in any text."""
PAGES = ("warc", "arc", "html", "mediawiki", "epub")
"""Formats of pages, which are read as text (pages.py)."""


class Content(NamedTuple):
    """What a file is.

    Attributes:
        name: the format, in words.
        remedy: what to do about it.
        pages: name of the format among `PAGES`; "": it is not read as text.
    """

    name: str
    remedy: str = ""
    pages: str = ""


def _renamed(*suffixes: str) -> str:
    return f"rename it so that it ends in {' or '.join(suffixes)}"


_CONVERT, _UNPACK = "convert it to plain text first", "unpack it, and give the files of text in it"
_PDF = "extract its text first, for example by pdftotext"
_OFFICE = "save it as plain text (.txt) first"
_PACKED = "decompress it, or compress it by gzip, bzip2, xz or zstd"
_MODEL, _DATA = "a model or array was given where text is expected", "give a file of text"
_SIGNATURES: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"{\\rtf", "RTF", _OFFICE),
    (0, b"%!PS", "PostScript", _CONVERT),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of Microsoft Office", _OFFICE),
    (0, b"AT&TFORM", "DjVu", _CONVERT),
    (60, b"BOOKMOBI", "a Mobipocket book", "convert it to EPUB first"),
    (0, b"\x1f\x8b", "compressed by gzip", _renamed(".gz")),
    (0, b"BZh", "compressed by bzip2", _renamed(".bz2")),
    (0, b"\xfd7zXZ\0", "compressed by xz", _renamed(".xz")),
    (0, b"\x28\xb5\x2f\xfd", "compressed by zstd", _renamed(".zst")),
    (0, b"\x04\x22\x4d\x18", "compressed by lz4", _PACKED),
    (0, b"\x1f\x9d", "compressed by compress", _PACKED),
    (0, b"LZIP", "compressed by lzip", _PACKED),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (0, b"Rar!\x1a\x07", "a rar archive", _UNPACK),
    (0, b"!<arch>\n", "an ar archive", _UNPACK),
    (0, b"MSCF\0\0\0\0", "a cab archive", _UNPACK),
    (0, b"SQLite format 3\0", "a SQLite database", _renamed(".sqlite")),
    (0, b"PAR1", "Parquet", _renamed(".parquet")),
    (0, b"ARROW1", "Arrow", _renamed(".arrow")),
    (0, b"Obj\x01", "Avro", "convert it to Parquet or JSON Lines"),
    (0, b"\x93NUMPY", "a NumPy array", _MODEL),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5", _MODEL),
    (0, b"GGUF", "a GGUF model", _MODEL),
    (0, b"\x89PNG\r\n\x1a\n", "an image", _DATA),
    (0, b"GIF87a", "an image", _DATA),
    (0, b"GIF89a", "an image", _DATA),
    (0, b"\xff\xd8\xff", "an image", _DATA),
    (0, b"II*\0", "an image", _DATA),
    (0, b"MM\0*", "an image", _DATA),
    (0, b"\0\0\1\0", "an image", _DATA),
    (0, b"8BPS\0", "an image", _DATA),
    (0, b"ID3\2", "a sound", _DATA),
    (0, b"ID3\3", "a sound", _DATA),
    (0, b"ID3\4", "a sound", _DATA),
    (0, b"OggS\0", "a sound or a video", _DATA),
    (0, b"fLaC\0", "a sound", _DATA),
    (0, b"\x1a\x45\xdf\xa3", "a video", _DATA),
    (0, b"wOFF", "a font", _DATA),
    (0, b"wOF2", "a font", _DATA),
    (0, b"\x7fELF", "a program", _DATA),
    (0, b"MZ\x90\0", "a program", _DATA),
    (0, b"\xca\xfe\xba\xbe", "a program", _DATA),
    (0, b"\xcf\xfa\xed\xfe", "a program", _DATA),
    (0, b"\xce\xfa\xed\xfe", "a program", _DATA),
    (0, b"\0asm", "a program", _DATA),
)
"""Place, bytes, what has them there, and the remedy."""
_ZIPS: tuple[tuple[bytes, Content], ...] = (
    (b"application/epub+zip", Content("an EPUB book", pages="epub")),
    (b"application/vnd.oasis.opendocument", Content("an OpenDocument file", _OFFICE)),
    (b"[Content_Types].xml", Content("a document of Microsoft Office", _OFFICE)),
    (b"/data.pkl", Content("a model of PyTorch", _MODEL)),
    (b".npy", Content("NumPy arrays", _MODEL)),
    (b"META-INF/", Content("a jar archive", _UNPACK)),
)
"""What is at the start of a zip archive of each kind."""
_TAR = re.compile(rb".{257}ustar[\0 ]", re.DOTALL)
_MEDIA = re.compile(rb"RIFF....(?:WEBP|WAVE|AVI )|\0\0\0.ftyp", re.DOTALL)
_PICKLE = re.compile(rb"\x80[\x02-\x05]|\([ld]p\d+\n|[\]}()]q\0|c[\w.]+\n\w+\n(?:p\d+\n|q\0)")
_SAFETENSORS = re.compile(rb"[^\0]..\0\0\0\0\0\{\s*\"", re.DOTALL)
_HTML = re.compile(
    rb"(?:\s|<!--.*?-->|<\?xml.*?\?>)*+(?:<!doctype\s+html|<(?:html|head|body|meta|script|style)[\s>])",
    re.I | re.S,
)
_PDF_START = re.compile(rb"\s*%PDF-\d")
_XML = re.compile(rb"\s*(?:<\?xml\s|<!DOCTYPE\s|<[a-zA-Z][\w.:-]*\s[^<>]*?\bxmlns[:=])")
_MEDIAWIKI = re.compile(rb"(?:\s|<\?xml.*?\?>)*+<mediawiki[\s>]", re.DOTALL)
_WARC = re.compile(rb"[\r\n]*WARC/\d+\.\d+\r?\n")
MARK = b"\xef\xbb\xbf"
"""The byte-order mark of UTF-8."""
_NOT_CONTROLS = bytes(code for code in range(256) if code >= 32 and code != 127) + b"\t\n\v\f\r\x1b"


def recognize(start: bytes) -> Content | None:
    """Return what a file is by its signature; None: it has none, as text.

    Args:
        start: its first bytes, `START` if it has as many.
    """
    for place, signature, name, remedy in _SIGNATURES:
        if start.startswith(signature, place):
            return Content(name, remedy)
    if start.startswith((b"PK\3\4", b"PK\5\6", b"PK\7\10")):
        return next((content for mark, content in _ZIPS if mark in start[:512]), Content("a zip archive", _UNPACK))
    if start.startswith(b"BM") and start[6:10] == bytes(4):
        return Content("an image", _DATA)
    if _TAR.match(start):
        return Content("a tar archive", _UNPACK)
    if _MEDIA.match(start):
        return Content("an image, a sound or a video", _DATA)
    if _PICKLE.match(start):
        return Content("a pickle", "write its texts to a file of text; pickles are never read")
    if _SAFETENSORS.match(start):
        return Content("a file of weights (safetensors)", _MODEL)
    text = start.removeprefix(MARK)
    if _WARC.match(text):
        return Content("a web archive (WARC)", pages="warc")
    if text.startswith(b"filedesc:"):
        return Content("a web archive (ARC)", pages="arc")
    if _PDF_START.match(text):
        return Content("PDF", _PDF)
    if _MEDIAWIKI.match(text):
        return Content("a dump of a wiki (MediaWiki)", pages="mediawiki")
    if _HTML.match(text):
        return Content("HTML", pages="html")
    if _XML.match(text):
        return Content("XML", "extract its text first")
    return None


def recognize_binary(start: bytes) -> Content | None:
    """Return what a file without a signature is, if it is no text; None: it may be text.

    Args:
        start: its first bytes, in UTF-8 or an encoding that has ASCII.
    """
    controls = len(start.translate(None, _NOT_CONTROLS))
    if controls < max(FEWEST, CONTROLS * len(start)):
        return None
    for name, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if zeros.count(0) > 0.4 * len(zeros) and start.count(0) < 1.1 * zeros.count(0):
            return Content("binary, or text in UTF-16 without a byte-order mark", f"pass {argument('encoding', name)}")
    return Content("binary", "give a file of text; if it is text in another encoding, pass that")
