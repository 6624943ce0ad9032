"""English text that exists on every machine with Python: the docstrings of installed modules.

Input: nothing, or folders of Python source. Output: one document per module, for a demonstration that needs no
download.

The docstrings of the standard library come first, then the topics of `help()` (`pydoc_data.topics`), then the installed
packages by name. Nothing is imported or executed except that one module of topics: the source is parsed with `ast`.
Repeated paragraphs are dropped: licenses, inherited docstrings, and those that differ only in a name or a number. The
same installation always yields the same text.

`prose` extracts the paragraphs of a docstring in any of the usual formats (plain, reStructuredText, NumPy, Google,
Markdown) that are English prose, each on one line and without markup. There are three passes: drop lines of code,
tables and headings; join the remaining lines into paragraphs; remove markup and keep only paragraphs that are
recognized as prose. The rules are strict on purpose: a lost paragraph costs nothing, but code taken for prose does.
Descriptions in parameter lists are kept if they are full sentences, without the names.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

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
    r"[{}\\|$@^~<>\ud800-\udfff]|==|::|\.\. |>>>|--?>|\w=|= |\w\(\w+[,)]|\(c\)|[Cc]opyright|#\d|\bTODO|\bXXX|&\w+;"
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


SHORTEST_DOCUMENT = 200
LARGEST_FILE = 2_000_000

_SKIPPED_FOLDERS = frozenset(
    ("test", "tests", "testing", "idle_test", "__pycache__", "site-packages", "dist-packages", "node_modules")
)
_SKIPPED_FILE = re.compile(r"test_.*\.py$|.*_tests?\.py$|conftest\.py$")
_HOLDERS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.Try, ast.ExceptHandler, ast.With)
_PUNCTUATION = ".,;:!?()[]\"'-"


def documentation(limit_bytes: int = 20_000_000, *, roots: Sequence[Path] | None = None) -> Iterator[str]:
    """Yield documents of English prose from the documentation of Python and of the installed packages.

    Args:
        limit_bytes: stop before the documents (in UTF-8, without separators) exceed this many bytes.
        roots: read only the modules in these folders, without the topics of `help()`; the default is the standard
            library, the topics, and the folders of installed packages.

    Yields:
        Documents of at least `SHORTEST_DOCUMENT` characters: paragraphs of one line each, separated by blank lines.

    Raises:
        ValueError: `limit_bytes` is negative.
    """
    if limit_bytes < 0:
        raise ValueError(f"limit_bytes must not be negative: {limit_bytes}")
    return _documents(limit_bytes, _default_sources() if roots is None else _sources_below(roots))


def _documents(limit_bytes: int, sources: Iterator[list[str]]) -> Iterator[str]:
    """Yield the cleaned docstrings of each module as a document, without paragraphs of earlier documents."""
    seen: set[bytes] = set()
    read: set[str] = set()  # inherited and copied docstrings are not cleaned again
    written = 0
    for docstrings in sources:
        fresh: dict[bytes, str] = {}
        for docstring in docstrings:
            if docstring in read:
                continue
            for paragraph in prose(docstring):
                key = _fingerprint(paragraph)
                if key not in seen:
                    fresh.setdefault(key, paragraph)
        document = "\n\n".join(fresh.values())
        if len(document) < SHORTEST_DOCUMENT:
            continue
        seen.update(fresh)
        read.update(docstrings)
        written += len(document.encode("utf-8", "replace"))
        if written > limit_bytes:
            return
        yield document


def _fingerprint(paragraph: str) -> bytes:
    """Return a hash that is the same for paragraphs that differ only in names and numbers after the first word."""
    first, *others = paragraph.split()
    words = (word if word.islower() and word.strip(_PUNCTUATION).isalpha() else "*" for word in others)
    key = f"{first.lower()} {' '.join(words)}"
    return blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()


def _default_sources() -> Iterator[list[str]]:
    """Yield the docstrings of each module of the standard library, each topic, and each installed module."""
    paths = sysconfig.get_paths()
    yield from _sources_below([Path(paths["stdlib"])])
    yield from _topics()
    yield from _sources_below([Path(paths["purelib"]), Path(paths["platlib"])])


def _topics() -> Iterator[list[str]]:
    """Yield the topics of `help()`, which some builds of Python lack."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name in sorted(topics):
        yield [topics[name]]


def _sources_below(roots: Sequence[Path]) -> Iterator[list[str]]:
    """Yield the docstrings of each module in the folders and their subfolders; repeated folders are read once."""
    for root in dict.fromkeys(root.resolve() for root in roots):
        for path in _modules(root):
            docstrings = read_docstrings(path)
            if docstrings:
                yield docstrings


def _modules(folder: Path) -> Iterator[Path]:
    """Yield the Python files in a folder and its subfolders by name, `__init__.py` first, without tests."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: (entry.name != "__init__.py", entry.name))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith("."):
                yield from _modules(Path(entry.path))
        elif entry.name.endswith(".py") and entry.is_file() and not _SKIPPED_FILE.match(entry.name):
            yield Path(entry.path)


def read_docstrings(path: Path) -> list[str]:
    """Return the docstrings of a module, its classes, methods and functions, in source order, without importing it.

    The result is empty if the file cannot be read or parsed, is larger than `LARGEST_FILE` bytes, or has no triple
    quotes.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            return []
        source = path.read_bytes()
    except OSError:
        return []
    if b'"""' not in source and b"'''" not in source:  # true of three files in ten, which need no parsing
        return []
    tree = _parse(source)
    return [] if tree is None else list(_docstrings(tree))


def _parse(source: bytes) -> ast.Module | None:
    """Return the syntax tree of a module's source, or None if it cannot be parsed."""
    collecting = gc.isenabled()
    gc.disable()  # saves a third of the time: a syntax tree contains no garbage while it is built
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    finally:
        if collecting:
            gc.enable()


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a definition and of those in it, also inside `if` and `try` but not in functions."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node, clean=False)
        if docstring:
            yield docstring
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
    for field in ("body", "handlers", "orelse", "finalbody"):
        for child in getattr(node, field, ()):
            if isinstance(child, _HOLDERS):
                yield from _docstrings(child)
