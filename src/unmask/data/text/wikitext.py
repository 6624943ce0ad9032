"""Text of pages in the markup of MediaWiki, as Wikipedia has them.

Input: markup, and the names of the namespaces of files and categories. Output: text, with a paragraph, a heading or an
item of a list on each line. Templates and tables are left out, with what they contain: what they show is not in the
page. So are references, formulas, files with their captions, and headings without text below them. Of a link, the text
is kept; of words in several variants of a language (`-{zh-hans:…; zh-hant:…}-`), the first.

Takes time proportional to the length, whatever is unbalanced. https://www.mediawiki.org/wiki/Specs/wikitext
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection

FILES = frozenset({"file", "image", "media", "category"})
"""Names, in lower case, of namespaces whose links are no text."""
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_LEFT_OUT = (
    "ref|references|math|chem|gallery|timeline|table|syntaxhighlight|source|score|hiero|imagemap|templatestyles|"
    "templatedata|graph|mapframe|maplink|style|script|ce"
)
_EMPTY = re.compile(rf"<(?:{_LEFT_OUT})\b[^<>]*/>", re.IGNORECASE)
_OPEN_OR_CLOSE = re.compile(rf"<(/?)({_LEFT_OUT})\b(?:[^<>]*)>", re.IGNORECASE)
_BREAK = re.compile(r"<(?:br|hr|p|/p|div|/div|li|/li|blockquote|/blockquote)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>")
_PARAMETER = re.compile(r"\{\{\{[^{}]*\}\}\}")
_BRACES = re.compile(r"\{\{|\}\}|^[ \t:;*#]*\{\||^[ \t]*\|\}(?!\})", re.MULTILINE)
_BRACKETS = re.compile(r"\[\[|\]\]")
_EXTERNAL = re.compile(
    r"\[(?:(?:https?:|ftp:|mailto:)?//[^\s\[\]]+(?:\s++([^\[\]\n]*))?|mailto:[^\s\[\]]+\s++([^\[\]\n]*))\]"
)
_QUOTES = re.compile(r"'{2,5}")
_HEADING = re.compile(r"\s*(={1,6})(.+?)={1,6}\s*")
_MARKERS = re.compile(r"^[*#:;]+\s*")
_SWITCH = re.compile(r"__[A-Z]{3,}__|-\{|\}-")
_VARIANTS = re.compile(r"-\{(?:([A-Za-z;\s-]*)\|)?([^{}]*)\}-")
_CODE = r"(?:[^;:{}]*=>)?\s*[a-z]{2,3}(?:-[a-z]+)*\s*:"
_VARIANT = re.compile(rf"{_CODE}(.*?)(?:;(?:{_CODE}.*|\s*))?", re.DOTALL)
_FILE = re.compile(
    r"\.(?:jpe?g|png|svg|gif|tiff?|webp|xcf|og[gvax]|webm|opus|mp[34]|wav|flac|midi?|pdf|djvu)\s*\Z", re.IGNORECASE
)
_LEFTOVERS = re.compile(r"\(\s*+[,;:]?\s*+\)|（\s*+[，；：]?\s*+）")
_OPENED = re.compile(r"([(（])\s*[,;:，；：、]+\s*")
"""What precedes the first word in brackets where a template was."""
JOINED = ("{{", "''", "<ref>")
"""Marks that no text has at the end."""
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")


def plain_text(markup: str, files: Collection[str] = FILES) -> str:
    """Return the text of a page.

    Args:
        markup: its markup.
        files: names, in lower case, of the namespaces whose links are no text.
    """
    text = _COMMENT.sub("", markup)
    text = _without_elements(_EMPTY.sub("", text))
    text = _without_templates(_PARAMETER.sub("", text))
    text = _links_as_text(text, files)
    text = _EXTERNAL.sub(lambda match: match[1] or match[2] or "", text)
    text = _TAG.sub("", _BREAK.sub("\n", text))
    text = _SWITCH.sub("", _VARIANTS.sub(_first_variant, _QUOTES.sub("", text)))
    text = html.unescape(_without_joined(text)).replace("\xa0", " ")
    return "\n".join(_lines(text))


def _without_joined(text: str) -> str:
    """Return text without marks whose parts came together where something between them was left out."""
    if not any(mark in text for mark in JOINED):
        return text
    kept = list[str]()
    for character in text:
        kept.append(character)
        for mark in JOINED:
            if character == mark[-1] and "".join(kept[-len(mark) :]) == mark:
                del kept[-len(mark) :]
                break
    return "".join(kept)


def _lines(text: str) -> list[str]:
    """Return the lines of a text without markers; headings without text below them are left out."""
    lines: list[str] = []
    headings: list[tuple[int, str]] = []  # those after the last line, with their levels
    for line in text.split("\n"):
        if heading := _HEADING.fullmatch(line):
            level = len(heading[1])
            while headings and headings[-1][0] >= level:
                headings.pop()
            headings.append((level, heading[2].strip(" =")))
            continue
        line = " ".join(_OPENED.sub(r"\1", _LEFTOVERS.sub("", _MARKERS.sub("", line.strip()))).split())
        if line.strip(" |!-"):
            lines += [title for _, title in headings]
            headings.clear()
            lines.append(line)
    return lines


def _first_variant(match: re.Match[str]) -> str:
    """Return the text in the first variant of those between marks; "" if these only define a rule."""
    flags, text = set((match[1] or "").replace(" ", "").split(";")), match[2]
    if flags & {"H", "T", "-"} and "A" not in flags:
        return ""
    variant = _VARIANT.fullmatch(text)
    return (variant[1] if variant else text).strip()


def _without_elements(text: str) -> str:
    """Return text without the elements that are no text; one that is not closed ends with its line."""
    parts, at, name = [], 0, ""
    for match in _OPEN_OR_CLOSE.finditer(text):
        element = match[2].lower()
        if not name and not match[1]:
            parts.append(text[at : match.start()])
            name, at = element, match.end()
        elif name == element and match[1]:
            name, at = "", match.end()
        elif not name:  # closed, but never opened
            parts.append(text[at : match.start()])
            at = match.end()
    if name:  # is not closed: what follows on later lines is text
        end = text.find("\n", at)
        at = end if end >= 0 else len(text)
        return "".join(parts) + _OPEN_OR_CLOSE.sub("", text[at:])
    return "".join(parts) + text[at:]


def _without_templates(text: str) -> str:
    """Return text without templates and tables; braces that are not balanced are left out alone."""
    pairs: list[tuple[int, int]] = []  # of the outermost ones so far: start and end
    opened: list[tuple[str, int]] = []
    unbalanced: list[tuple[int, int]] = []
    for match in _BRACES.finditer(text):
        mark = match[0].strip(" \t:;*#")
        if mark in ("{{", "{|"):
            opened.append((mark, match.start()))
            continue
        want = "{{" if mark == "}}" else "{|"
        depth = next((depth for depth in (-1, -2, -3) if len(opened) >= -depth and opened[depth][0] == want), 0)
        if not depth:
            unbalanced.append(match.span())
            continue
        start = opened[depth][1]
        unbalanced += [(place, place + 2) for _, place in opened[len(opened) + depth + 1 :]]
        del opened[depth:]
        while pairs and pairs[-1][0] >= start:
            pairs.pop()
        pairs.append((start, match.end()))
    spans = sorted([*pairs, *unbalanced, *((place, place + 2) for mark, place in opened if mark == "{{")])
    parts, at = [], 0
    for start, end in spans:
        if start >= at:
            parts.append(text[at:start])
        at = max(at, end)
    return "".join(parts) + text[at:]


def _links_as_text(text: str, files: Collection[str]) -> str:
    """Return text with links as their texts, those inside others first."""
    stack: list[list[str]] = [[]]
    at = 0
    for match in _BRACKETS.finditer(text):
        stack[-1].append(text[at : match.start()])
        at = match.end()
        if match[0] == "[[":
            stack.append([])
        elif len(stack) > 1:
            inner = "".join(stack.pop())
            stack[-1].append(_link_text(inner, files))
    rest = text[at:]
    while len(stack) > 1:  # links that are not closed
        inner = "".join(stack.pop())
        stack[-1].append(inner)
    return "".join(stack[0]) + rest


def _link_text(link: str, files: Collection[str]) -> str:
    target, bar, label = link.partition("|")
    prefix, colon, _ = target.partition(":")
    if colon and prefix.strip().lower() in files:
        return ""
    if colon and prefix and (_FILE.search(target) or "|" in label):  # by another name of the namespace
        return ""
    if colon and not bar and _LANGUAGE.fullmatch(prefix.strip()):  # the same page in another language
        return ""
    return label if bar else target.lstrip(":").strip()
