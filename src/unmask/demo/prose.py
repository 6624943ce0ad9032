"""Extraction of paragraphs of English prose from a docstring.

Input: a docstring in any of the usual formats (plain, reStructuredText, NumPy, Google, Markdown). Output: its
paragraphs that are English prose, each on one line and without markup.

There are three passes: drop lines of code, tables and headings; join the remaining lines into paragraphs; remove markup
and keep only paragraphs that are recognized as prose. The rules are strict on purpose: a lost paragraph costs nothing,
but code taken for prose does. Descriptions in parameter lists are kept if they are full sentences, without the names.
"""

import inspect
import re
from collections.abc import Iterable, Iterator

_INDENT = re.compile(r" *")
_RULE = re.compile(r"([-=~*^\"'#+`_.])\1{2,}$")
_TABLE = re.compile(r"[+|].*[+|]$|[=-]{2,}( +[=-]{2,})+$")
_FENCE = re.compile(r"```|~~~")
_DIRECTIVE = re.compile(r"\.\. +(?:([\w:-]+?)::|[_\[|])")
_HEADING = re.compile(r"(?:#+ )?\**([A-Z][\w ]{1,40}?)\**:?\**$")
_BULLET = re.compile(r"(?:[-*+•o]|\(?(?:\d{1,2}|[a-zA-Z])[.)]|\.\. \[\w+\])\s+(?=\S)")
_FIELD = re.compile(r"[:@](?:param|parameter|arg|type|raises?|returns?|rtype|ivar|cvar|var|keyword|kwarg)\b[^:]*:\s*")
_ARGUMENT = re.compile(r"[*`'\"]*[A-Za-z_][\w.*`'\"]*(?:\s*\(.*?\)|\s*\[.*?\])?(?:\s--|:)(?:\s+|$)")
_TYPED = re.compile(r"[*`'\"]*[A-Za-z_][\w.*`'\"]*(?:, *[\w.*`'\"]+)*(?:\s+:(?: |$)|:$)")

_TYPE = re.compile(r"[\w.\[\]`~]+(?:(?:, ?| or | \| )[\w.\[\]`~]+){0,3}(?<!\.)$")
_PROSE_DIRECTIVES = re.compile(r"note|warning|caution|important|tip|hint|attention|danger|version\w+|deprecated")
_SKIPPED_SECTIONS = re.compile(
    r"(examples?|usage|references?|see also|methods|authors?|copyright|license|shape) *$", re.I
)

_MARKUP: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"`([^`'\s]+)'(?!\w)"), r"'\1'"),
    (re.compile(r"\s*\[(?:\d+|[A-Z]\w*\d+|#\w*)\]_"), ""),
    (re.compile(r":[\w:+-]+:`[~!.]?([^`<]+?)\s*(?:<[^`]*>)?`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?"), r"\1"),
    (re.compile(r"\[(`[^`\]]+`)\](?:\([^)\s]*\))?"), r"\1"),
    (re.compile(r"\[([^\]\[]+)\]\([^)\s]+\)"), r"\1"),
    (re.compile(r"(`{1,3})([^`]+)\1_{0,2}"), r"\2"),
    (re.compile(r"(?<![\w*])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?!\w)"), r"\2"),
    (re.compile(r"(?<!\w)_([A-Za-z][^_\s]*)_(?!\w)"), r"\1"),
    (re.compile(r"</?[A-Za-z][A-Za-z0-9]*/?>|`"), ""),
    (re.compile(r"(?<=\w) (?=[.,;](?: |$))|(?<=[?!])\.(?= |$)"), ""),
    (re.compile(r"\s{2,}"), " "),
)
_MARKED = re.compile(r"[`*_\[<]|\s[\s.,;]")

_WORDS_OF_ALL_ENGLISH = """
a an the this that these those it its is are was were be been being has have had do does did of to in on at by for from
with without into as than if when while where which who whose what how and or but not no nor so because can could may
might must shall should will would you your we our they their he his she her i there here then also only any all each
both such between within about after before until over under through
"""
_FUNCTION_WORDS = frozenset(_WORDS_OF_ALL_ENGLISH.split())
_PLAIN_WORD = re.compile(r"[(\"'“‘]*[A-Za-z]?[a-z]+(?:['’-][a-z]+)*[.,;:!?)\"'”’…]*$")
_NOT_PROSE = re.compile(
    r"[{}\\|$@^~<>]|==|::|\.\. |>>>|--?>|\w=|= |\w\(\w+[,)]|\(c\)|[Cc]opyright|#\d|\bTODO|\bXXX|&\w+;"
)
_SENTENCE_END = re.compile(r"[.!?][)\"'”’]*$")
_LAST_SENTENCE = re.compile(r"(?<=[.!?]) +(?=[^ ].*$)")


def prose(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of `docstring` that are English prose, each on one line.

    Example:
        >>> list(prose("Find the next stop.\\n\\n>>> next_stop(3)\\n4\\n\\nArgs:\\n  here (int): Where to begin from."))
        ['Find the next stop.', 'Where to begin from.']
    """
    for number, paragraph in enumerate(_paragraphs(_without_code(inspect.cleandoc(docstring).splitlines()))):
        if number and paragraph.rstrip("*_`>)\"'’”")[-1:] not in (".", "!", "?", ":"):
            continue  # not a sentence, so markup need not be removed
        sentence = _without_markup(paragraph)
        if number == 0 and sentence and sentence[-1].isalnum():
            sentence += "."  # a summary line without a period
        if sentence.endswith(":"):  # the colon announces code or a list, which was dropped
            parts = _LAST_SENTENCE.split(sentence)
            sentence = " ".join(parts[:-1])
        if is_prose(sentence):
            yield sentence


def is_prose(paragraph: str) -> bool:
    """Return whether a paragraph on one line is English prose: whole sentences, mostly plain words, few symbols."""
    if len(paragraph) < 15 or not _SENTENCE_END.search(paragraph) or _NOT_PROSE.search(paragraph):
        return False
    if not paragraph.lstrip("\"'“‘(")[:1].isupper():
        return False
    words = paragraph.split()
    if len(words) < 4:
        return False
    plain = sum(1 for word in words if _PLAIN_WORD.match(word))
    function_words = sum(1 for word in words if word.strip(".,;:()\"'").lower() in _FUNCTION_WORDS)
    return plain >= 0.7 * len(words) and function_words >= 0.15 * len(words)


def _indent(line: str) -> int:
    """Return the number of spaces before the first character."""
    match = _INDENT.match(line)
    return match.end() if match else 0


def _without_code(lines: list[str]) -> Iterator[str]:
    """Yield the lines that are not code, doctests, tables, directives or headings, with blank lines instead of them."""
    fenced = False
    in_doctest = False
    deeper_than: int | None = None  # lines indented more than this are dropped
    section_at: int | None = None  # indent of the heading of the section being skipped
    for number, line in enumerate(lines):
        text = line.strip()
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if _FENCE.match(text):
            fenced = not fenced
            yield ""
        elif fenced:
            continue
        elif not text:
            in_doctest = False
            yield ""
        elif in_doctest or text.startswith((">>>", "In [", "$ ")):
            in_doctest = True
        elif deeper_than is not None and _indent(line) > deeper_than:
            continue
        else:
            deeper_than = None
            indent = _indent(line)
            underlined = bool(_RULE.match(following)) and len(following) >= min(len(text), 4)
            heading = _HEADING.match(text)
            is_heading = heading is not None and (underlined or text.endswith((":", ":**")) or text.startswith("#"))
            if section_at is not None and (underlined or is_heading or indent < section_at):
                section_at = None
            if is_heading and heading is not None and _SKIPPED_SECTIONS.match(heading[1]):
                if underlined or text.startswith("#"):
                    section_at = indent
                else:
                    deeper_than = indent
            if section_at is not None or underlined or is_heading or _RULE.match(text) or _TABLE.search(text):
                yield ""
                continue
            directive = _DIRECTIVE.match(text)
            if directive:
                if not _PROSE_DIRECTIVES.fullmatch(directive[1] or ""):
                    deeper_than = indent
                yield ""
                continue
            if text.endswith("::"):
                deeper_than = indent
                line = line.rstrip()[:-1]
            yield line


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines joined into paragraphs; a blank line, a list item, or another indent starts a new one."""
    current: list[str] = []
    indent = 0
    hanging = False
    for line in lines:
        text = line.strip()
        if not text:
            if current:
                yield " ".join(current)
            current = []
            continue
        item = _BULLET.match(text) or _FIELD.match(text)
        depth = _indent(line)
        if item is None and (not current or depth <= indent):
            item = _ARGUMENT.match(text)
        typed = (not current or depth <= indent) and _TYPED.match(text)
        aligned = depth > indent if hanging else depth == indent
        if current and (item or typed or not aligned):
            yield " ".join(current)
            current = []
        if typed:
            continue
        if item:
            text = text[item.end() :]
            if _TYPE.match(text):
                text = ""
        if not current:
            indent, hanging = depth, bool(item)
        if text:
            current.append(text)
    if current:
        yield " ".join(current)


def _without_markup(paragraph: str) -> str:
    """Return a paragraph without markup."""
    if not _MARKED.search(paragraph):
        return paragraph.strip()
    for pattern, replacement in _MARKUP:
        paragraph = pattern.sub(replacement, paragraph)
    return paragraph.strip()
