"""URLs of files in object stores and on web servers, where a path may stand.

Input: an argument. Output: a `Url`, if it is one. Only functions that users call make one of their arguments
(`as_url` of choices.py): what is read as text, such as a recipe, a list of files or a manifest, names files on this
machine alone, so that nobody else decides what is fetched.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_IN_TEXT = re.compile(r"([a-z][a-z0-9+.-]+://)(?:[^\s/?#]*@)?([^\s?#]*)\S*", re.IGNORECASE)


class Url(str):
    """A URL as messages and manifests name it: without user, password, query and fragment, which may hold secrets.

    Attributes:
        address: all of it, by which it is read.

    Raises:
        ValueError: it is none.
    """

    address: str

    def __new__(cls, address: str) -> Url:
        """Return the URL."""
        parts = urlsplit(address)
        url = super().__new__(cls, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
        url.address = address
        return url

    def child(self, name: str) -> Url:
        """Return the URL of a file in this directory."""
        parts = urlsplit(self.address)
        return Url(parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl())


def without_secrets(text: str) -> str:
    """Return a text, such as a command line, with the URLs in it as messages name them."""
    return _IN_TEXT.sub(r"\1\2", text)


def address_of(path: object) -> str:
    """Return the address by which a path is read that is a `Url`; "" if it is none."""
    return getattr(path, "address", "") if isinstance(path, str) else ""
