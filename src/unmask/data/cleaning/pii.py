"""Personal data: addresses of mail, telephone numbers, IP addresses and card numbers are replaced.

In: documents. Out: documents with placeholders, of which the number is counted. Rules cannot find everything, names
least of all: this lowers what a model may repeat, and is no anonymization.

The expressions for mail and IP addresses are those of FineWeb (datatrove's `pii.py`), but mail addresses may have
letters of any script (RFC 6531), and IPv6 addresses end like IPv4 addresses; IP addresses must be public, card numbers
must have the check digit of Luhn (ISO/IEC 7812-1), and telephone numbers be written as such: with a country code, an
area code in brackets, or groups of digits as in North America.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from unicodedata import category

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict

_LETTERS = "".join(
    chr(code) for code in (*range(0xAA, 0xE00), *range(0x1E00, 0x2000)) if category(chr(code))[0] in "LM"
)
"""Letters beyond ASCII of scripts with spaces between words, and their marks. Others, such as Chinese characters and
Korean particles, also come directly before and after an address, which is then that in ASCII."""
_WORD = rf"A-Za-z\d_{_LETTERS}"
"""What is directly before or after a number that is part of something else: letters of these scripts, and digits."""
MOST_LOCAL = 64
"""Number of characters before the @ of an address, at most (RFC 5321, 4.5.3.1.1)."""
_ATOM = rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{_LETTERS}-]+"
_LABEL = rf"[A-Za-z0-9{_LETTERS}](?:[A-Za-z0-9{_LETTERS}-]*[A-Za-z0-9{_LETTERS}])?"
_MAIL = re.compile(
    rf"(?<![\w.+-])[\w.+-]+@(?:[\w-]+\.)+(?![A-Za-z{_LETTERS}])[^\W\d_]{{2,6}}(?!\w)"  # such as .中国
    rf"|(?<![A-Za-z0-9_.+{_LETTERS}-])(?=[^@]{{1,{MOST_LOCAL}}}@){_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}\.)+"
    rf"(?:[A-Za-z]{{2,24}}|xn--[A-Za-z0-9-]{{2,59}}|[{_LETTERS}]{{2,24}})(?![A-Za-z0-9_{_LETTERS}])"
)
_IP = re.compile(
    rf"(?<![{_WORD}.])(?:\d{{1,3}}\.){{3}}\d{{1,3}}(?![{_WORD}]|\.\d)"
    rf"|(?<![{_WORD}:])[23][0-9a-fA-F]{{3}}:(?:[0-9a-fA-F]{{1,4}}:|:){{1,6}}"
    rf"(?:(?:\d{{1,3}}\.){{3}}\d{{1,3}}|[0-9a-fA-F]{{1,4}})(?![{_WORD}:]|\.\d)"
)
_DIGITS = re.compile(r"(?<![\d.-])\d(?:[ -]?\d){12,}(?![\d-])")
_CARD = re.compile(r"\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{1,4}(?:\1\d{1,3})?|\d{4}([ -])\d{6}\2\d{4,5}")
"""How card numbers are written, also beside other digits; any groups are accepted where there are no others."""
_PHONE = re.compile(
    rf"(?<![{_WORD}+.])"
    r"(?:(?:\+\d{1,3}|00 ?[1-9]\d{0,2}(?=[ (]))(?:[ .-]?\(\d{1,4}\))?[ .-]?\d{1,4}(?:[ .-]?\d{2,4}){1,5}"
    r"|\(\d{3,5}\)[ -]?\d{3,4}[ .-]?\d{2,4}"
    r"|\d{3}[.-]\d{3}[.-]\d{4})"
    rf"(?![{_WORD}-])"
)

_HINTS = {
    "mail address": re.compile("@"),
    "IP address": re.compile(r"\d\.\d{1,3}\.\d|[23][0-9a-fA-F]{3}:"),
    "card number": re.compile(r"\d(?:[ -]?\d){12}"),
    "telephone number": re.compile(r"\d(?:[ .()-]{0,2}\d){6}"),
}
"""What a text with such data has; quicker to look for, as a digit or sign comes first."""


FEWEST_DIGITS = 7
"""Number of digits of the shortest telephone numbers."""
MOST_DIGITS = 19
"""Number of digits of the longest card numbers."""
Find = Callable[[str], Sequence[tuple[int, int]]]
"""Returns where personal data are in a match of a pattern, in order."""


class PII(RuleSettings, frozen=True, kw_only=True):
    """The table [pii].

    Attributes:
        mail, phone, ip, card: what stands for each in the text; "" leaves it as it is.
    """

    mail: str = "email@example.com"
    phone: str = "555-0100"
    ip: str = "192.0.2.1"
    card: str = "0000 0000 0000 0000"

    def build(self) -> Judge:
        """See `RuleSettings`."""
        rules = [
            (name, pattern, find, placeholder)
            for name, pattern, find, placeholder in (
                ("mail address", _MAIL, _whole, self.mail),
                ("IP address", _IP, _public, self.ip),
                ("card number", _DIGITS, _cards, self.card),
                ("telephone number", _PHONE, _phone, self.phone),
            )
            if placeholder
        ]

        def judge(document: Document) -> Verdict:
            text, changes = document.text, dict[str, int]()
            for name, pattern, find, placeholder in rules:
                if not _HINTS[name].search(text):
                    continue
                text, count = _replace(text, pattern, find, placeholder)
                if count:
                    changes[name] = count
            return Verdict(Document(text, document.url), changes=changes) if changes else Verdict(document)

        return judge


def _replace(text: str, pattern: re.Pattern[str], find: Find, placeholder: str) -> tuple[str, int]:
    """Return text with what is found in the matches of a pattern replaced, and how often it was."""
    count = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal count
        parts, end = list[str](), 0
        for start, stop in find(match[0]):
            if match[0][start:stop] != placeholder:
                parts += [match[0][end:start], placeholder]
                end, count = stop, count + 1
        return "".join([*parts, match[0][end:]])

    return pattern.sub(replaced, text), count


def _whole(text: str) -> list[tuple[int, int]]:
    return [(0, len(text))]


def _public(text: str) -> list[tuple[int, int]]:
    try:
        return _whole(text) if ipaddress.ip_address(text).is_global else []
    except ValueError:
        return []


def _phone(text: str) -> list[tuple[int, int]]:
    return _whole(text) if sum(map(str.isdigit, text)) >= FEWEST_DIGITS else []


def _cards(text: str) -> list[tuple[int, int]]:
    """Find card numbers in groups of digits, of which some may be a date or another number beside them."""
    groups, found, first = [match.span() for match in re.finditer(r"\d+", text)], list[tuple[int, int]](), 0
    while first < len(groups):
        for last in range(min(len(groups), first + MOST_DIGITS) - 1, first - 1, -1):
            start, stop = groups[first][0], groups[last][1]
            alone = last - first + 1 == len(groups) and sum(map(str.isdigit, text)) <= MOST_DIGITS
            if (alone or _CARD.fullmatch(text, start, stop)) and _is_card(text[start:stop]):
                found.append((start, stop))
                first = last
                break
        first += 1
    return found


def _is_card(text: str) -> bool:
    digits = [int(character) for character in text if character.isdigit()]
    if len(set(digits)) == 1:
        return False
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
