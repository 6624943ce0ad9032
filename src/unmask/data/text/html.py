"""Text of HTML pages: the main content, without navigation, menus, scripts and forms.

Input: the bytes of a page, and the encoding that its server declared. Output: text, with a line for each element that
begins one. The main content is found by resiliparse (Bevendorff et al. 2018, the extra `web`), by names and positions
of elements.

Declared encodings are often wrong. Bytes beyond ASCII that are UTF-8 are next to never anything else, so UTF-8 is tried
first, except where ISO-2022-JP changes to Japanese; then what is declared, by the server and in the page, and what
resiliparse detects. Where server and page disagree, what is detected decides, as many servers declare ISO-8859-1 for
all of their pages. Names mean what they mean to browsers (WHATWG Encoding, section 4.2): ISO-8859-1 is Windows-1252,
and Shift_JIS, EUC-KR, Big5 and GB2312 have the characters that were added to them later. A few bytes that are wrong, as
where a page was cut off inside a character, are replaced by U+FFFD, as browsers do: they do not make the page one in
another encoding.

Parsers take time that grows with the square of the depth of elements and of the number of attributes: pages with more
than `MAX_DEPTH` and `MAX_ATTRIBUTES` are refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from html import escape
from types import ModuleType

from unmask.data.text.encodings import MARKS
from unmask.data.text.files import MAX_DOCUMENT, TOO_LONG
from unmask.support.errors import UserError

MAX_DEPTH = 2_000
"""Maximum number of elements inside each other; as many take 0.1 s."""
MAX_ATTRIBUTES = 2_000
"""Maximum number of attributes of an element."""
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_LONG_TAG = re.compile(rf"<[a-zA-Z][^>]{{{2 * MAX_ATTRIBUTES},}}")
_EMPTY = re.compile(r"<([a-zA-Z][^\s<>/\"']*+)((?:[^<>\"']|\"[^<\"]*\"|'[^<']*')*?)/>")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
_META = re.compile(rb"<meta[^>]{0,300}charset\s*=[\s\"']*([\w:.-]+)", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml[^>]{0,100}encoding\s*=\s*[\"']([\w:.-]+)")
_XML_START = re.compile(r"\ufeff?\s*<\?xml\s")
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())  # noqa: SIM905
"""Elements without content."""
_NOT_NESTED = _VOID | frozenset(
    (
        *("p", "li", "dt", "dd", "option", "optgroup", "rp", "rt", "html", "head", "body"),
        *("tr", "td", "th", "thead", "tbody", "tfoot", "colgroup"),
    )
)
"""Elements without content, and those that end where the next one begins."""
_STATEFUL = ("utf-7", "iso2022", "hz")
"""Encodings all of whose bytes may be ASCII."""
_JAPANESE = (b"\x1b$B", b"\x1b$@")
"""Sequences of bytes by which ISO-2022-JP changes from ASCII to Japanese, and which occur in nothing else."""
_WIDE = ("utf-16", "utf-32")
"""Encodings in which each ASCII character has a byte 0."""
_READ_AS = {
    **dict.fromkeys(("ascii", "iso8859-1"), ("cp1252",)),
    "iso8859-9": ("cp1254",),
    **dict.fromkeys(("iso8859-11", "tis-620"), ("cp874",)),
    **dict.fromkeys(("gb2312", "gbk"), ("gb18030",)),
    "shift_jis": ("cp932",),
    "euc_kr": ("cp949",),
    "big5": ("big5hkscs", "cp950"),  # Hong Kong's characters, or those of ETEN: together they are the standard's
    "euc_jp": ("euc_jp", "euc_jis_2004"),
}
"""Python's encodings that have what browsers read under the name of a smaller one."""
MAX_REPLACED = 0.1
"""Maximum share of wrong bytes among the characters beyond ASCII of a page that is in an encoding nevertheless."""


class PageError(Exception):
    """Raised for a page that cannot be read; the message says why."""


def html_text(content: bytes, declared: str = "", *, main: bool = True, is_xml: bool = False) -> str:
    """Return the text of a page.

    Args:
        content: the page.
        declared: name of its encoding, as the server says; "" if it does not.
        main: only the main content.
        is_xml: whether it is XHTML, in which `<title/>` is an element without content: in HTML, it would begin one
            that has the rest of the page. So is a page that begins with the declaration of XML.

    Raises:
        PageError: it is too long or too deep, or cannot be parsed.
        UserError: resiliparse is not installed.
    """
    extract = resiliparse_extract()
    if len(content) > MAX_DOCUMENT:
        raise PageError(TOO_LONG)
    inside = (_META.search(content, 0, 4096), _XML.match(content))
    page = decode_page(content, declared, *(match[1].decode("ascii", "replace") for match in inside if match))
    page = _as_html(page) if is_xml or _XML_START.match(page) else page
    if _depth(page) > MAX_DEPTH:
        raise PageError(f"has more than {MAX_DEPTH:,} elements inside each other")
    if any(len(tag[0].split()) > MAX_ATTRIBUTES for tag in _LONG_TAG.finditer(page)):
        raise PageError(f"has an element with more than {MAX_ATTRIBUTES:,} attributes")
    try:
        return str(
            extract.extract_plain_text(
                page, preserve_formatting=True, main_content=main, list_bullets=False, alt_texts=False
            )
        )
    except (ValueError, RuntimeError) as error:
        raise PageError(f"cannot be parsed ({error})") from error


def _as_html(page: str) -> str:
    """Return XHTML as HTML: elements without content are closed by a tag of their own; character data is escaped."""

    def closed(match: re.Match[str]) -> str:
        name = match[1]
        return match[0] if name.lower() in _VOID else f"<{name}{match[2]}></{name}>"

    return _EMPTY.sub(closed, _CDATA.sub(lambda match: escape(match[1], quote=False), page))


def resiliparse_extract() -> ModuleType:
    """Return the module of resiliparse that extracts text.

    Raises:
        UserError: it is not installed.
    """
    try:
        from resiliparse.extract import html2text
    except ImportError as error:
        raise UserError("pages in HTML need resiliparse", remedy="pip install 'unmask[web]'") from error
    return html2text


def decode_page(content: bytes, *declared: str) -> str:
    """Return the text of a page or a file from the web; what no encoding decodes is replaced by U+FFFD.

    Args:
        content: its bytes.
        declared: names of its encoding, as the server and the page say, the first one first.
    """
    for encodings in _encodings(content, declared):
        if (text := _decoded(content, encodings)) is not None:
            return text
    return content.decode("utf-8", "replace")


def _decoded(content: bytes, encodings: Sequence[str]) -> str | None:
    """Return a text in the first of some encodings that it is in, else in that with the fewest wrong bytes, if few."""
    best, least = None, MAX_REPLACED
    for encoding in encodings:
        try:
            return content.decode(encoding)
        except UnicodeError:
            pass
        try:
            text = content.decode(encoding, "replace")
        except UnicodeError:  # by codecs that replace nothing, such as that of names of hosts
            continue
        beyond = len(text) - len(text.encode("ascii", "ignore"))
        if (share := text.count("\ufffd") / max(1, beyond)) <= least:
            best, least = text, share
    return best


def _encodings(content: bytes, declared: tuple[str, ...]) -> Iterator[Sequence[str]]:
    """Yield the encodings in which a page may be, in the order in which they are tried; those of one rank together."""
    if marked := next((name for mark, name in MARKS if content.startswith(mark)), None):
        yield [marked.removesuffix("-le").removesuffix("-be")]
    names = [name for label in declared for name in _named(label) if not name.startswith(_WIDE) or b"\0" in content]
    stateful = [name for name in names if name.replace("_", "").startswith((*_STATEFUL, *_WIDE))]
    yield stateful + ["iso2022_jp"] * any(escape in content for escape in _JAPANESE)
    yield ["utf-8"]
    detected = _detected(content)
    yield [name for name in names if name in detected and name != "cp1252"] + names  # what servers declare by default
    yield detected
    yield ["cp1252"]


def _detected(content: bytes) -> Sequence[str]:
    """Return Python's encodings in which a page seems to be; none if resiliparse is not installed."""
    try:
        from resiliparse.parse.encoding import detect_encoding
    except ImportError:
        return []
    return _named(detect_encoding(content, html5_compatible=False) or "")  # also of those that browsers lack


def _named(label: str) -> Sequence[str]:
    """Return Python's encodings of text for what a name means on the web; none if it means nothing."""
    label = label.strip().strip("\"'")
    try:
        from resiliparse.parse.encoding import map_encoding_to_html5

        label = map_encoding_to_html5(label, False) or label
    except ImportError:
        pass
    try:
        codec = codecs.lookup(label)
    except (LookupError, ValueError):
        return []
    return _READ_AS.get(codec.name, (codec.name,)) if getattr(codec, "_is_text_encoding", True) else []


def _depth(page: str) -> int:
    """Return the most elements that are inside each other, about: those that others end are not counted as ended."""
    if page.count("<") < MAX_DEPTH:
        return 0
    depth = deepest = 0
    for closing, name in _TAG.findall(page):
        if name in _NOT_NESTED or name.lower() in _NOT_NESTED:
            continue
        if not closing:
            depth += 1
            deepest = max(deepest, depth)
        elif depth:
            depth -= 1
    return deepest
