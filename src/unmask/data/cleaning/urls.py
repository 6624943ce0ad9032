"""Documents of some pages: those of other addresses are dropped (lists of what to keep), or those of listed ones.

In: documents with addresses: pages of web archives, and records with a field `url`. Out: those that a list of `allow`
has, if there are any, and that no list of `block` has. Documents without an address are in no list. WebText kept what
people linked to (Radford et al. 2019, section 2.1); FineWeb drops sites for adults by a list (Penedo et al. 2024,
section 3.1).

Lists are plain text, an entry on each line; empty lines and those that begin with # are left out. An entry is a domain,
which stands for its hosts and those of its subdomains (`example.org`), or an address, which stands for itself and what
is below it (`example.org/news`). Scheme, `www.`, port, fragment, the case of hosts, and whether letters beyond ASCII
are encoded (`xn--…`, `%C3%A9`) do not matter.

Entries are kept as hashes of 64 bits, so that lists of millions take 8 bytes for each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict
from unmask.data.text.files import read_text_lines
from unmask.support.errors import UserError


class Urls(RuleSettings, frozen=True, kw_only=True):
    """The table [urls].

    Attributes:
        allow: files that list what is kept; if there are none, all that is not blocked is.
        block: files that list what is dropped, also of what is allowed.
    """

    allow: tuple[str, ...] = ()
    block: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """All lists."""
        return (*self.allow, *self.block)

    def build(self) -> Judge:
        """See `RuleSettings`."""
        if not self.files:
            raise UserError("urls names no lists", remedy='name files, as in block = ["blocked.txt"]')
        is_allowed, is_blocked = _lookup(self.allow), _lookup(self.block)

        def judge(document: Document) -> Verdict:
            names = list(names_of(document.url))
            if not names:
                return Verdict(document, "no address" if self.allow else "")
            if is_blocked(names):
                return Verdict(document, "blocked")
            return Verdict(document, "" if not self.allow or is_allowed(names) else "not allowed")

        return judge


def host_of(url: str) -> str:
    """Return the host of an address in lower case, without `www.`; "" if it has none."""
    return _split(url)[0]


def names_of(url: str) -> Iterator[str]:
    """Yield the entries of a list that stand for an address: its domains, and addresses at or above it."""
    host, path, query = _split(url)
    if not host:
        return
    parts = host.split(".")
    yield from (".".join(parts[start:]) for start in range(len(parts)))
    steps = [step for step in path.split("/") if step]
    yield from ("/".join([host, *steps[:end]]) for end in range(1, len(steps) + 1))
    if query:
        yield f"{'/'.join([host, *steps])}?{query}"


def _split(url: str) -> tuple[str, str, str]:
    """Return host, path and query of an address; empty if it is none."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        host = (parts.hostname or "").rstrip(".").removeprefix("www.")
    except ValueError:  # brackets that are not closed, or such
        return "", "", ""
    if not host.isascii():
        with suppress(UnicodeError):  # such as an empty part
            host = host.encode("idna").decode()
    return host, unquote(parts.path), unquote(parts.query)


def _lookup(files: Sequence[str]) -> Callable[[Sequence[str]], bool]:
    """Return the function that tells whether one of some entries is in a list.

    Raises:
        UserError: a file cannot be read, has no entry, or a line is no address.
    """
    try:
        states = [(path, Path(path).stat()) for path in files]
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=error.filename) from error
    hashes = _read_hashes(tuple((path, state.st_mtime_ns, state.st_size) for path, state in states))
    if not len(hashes):
        return lambda names: False

    def contains(names: Sequence[str]) -> bool:
        wanted = np.array([_hash(name) for name in names], np.uint64)
        places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        return bool((hashes[places] == wanted).any())

    return contains


@lru_cache(maxsize=4)
def _read_hashes(files: tuple[tuple[str, int, int], ...]) -> np.ndarray:
    """Return the hashes of all entries in order; lists are read once for all files that a process cleans.

    Args:
        files: the path of each list, and when it was changed and its size, so that another one is read again.
    """
    return np.unique(np.fromiter((_hash(entry) for path, *_ in files for entry in _entries(path)), np.uint64))


def _entries(path: str) -> Iterator[str]:
    empty = True
    for number, line in read_text_lines(path):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        host, below, query = _split(entry)
        if not host or any(character.isspace() for character in entry):
            raise UserError("is neither a domain nor an address", file=path, line=number)
        empty = False
        steps = [step for step in below.split("/") if step]
        yield "/".join([host, *steps]) + (f"?{query}" if query else "")
    if empty:
        raise UserError("lists nothing", file=path)


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf8", "replace"), digest_size=8).digest(), "little")
