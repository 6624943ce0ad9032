"""English text that exists on every machine with Python: the docstrings of installed modules.

Input: nothing, or folders of Python source. Output: one document per module, for a demonstration that needs no
download.

The docstrings of the standard library come first, then the topics of `help()` (`pydoc_data.topics`), then the installed
packages by name. Nothing is imported or executed except that one module of topics: the source is parsed with `ast`.
Paragraphs are cleaned by `unmask.demo.prose`, and repeated paragraphs are dropped: licenses, inherited docstrings,
and those that differ only in a name or a number. The same installation always yields the same text.
"""

import ast
import gc
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from unmask.demo.prose import prose

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
