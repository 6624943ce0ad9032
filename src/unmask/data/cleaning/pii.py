"""Personal data: addresses of mail, telephone numbers, IP addresses and card numbers are replaced.

In: documents. Out: documents with placeholders, of which the number is counted. Rules cannot find everything, names
least of all: this lowers what a model may repeat, and is no anonymization.

The expressions for mail and IP addresses are those of FineWeb (datatrove's `pii.py`); IP addresses must be public, card
numbers must have the check digit of Luhn (ISO/IEC 7812-1), and telephone numbers be written as such: with a country
code, an area code in brackets, or groups of digits as in North America.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_MAIL = re.compile(
    rf"(?<![\w.+-]){_ATOM}(?:\.{_ATOM})*@(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{{2,24}}\b"
)
_IP = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)|(?<![\w:])[23][0-9a-fA-F]{3}:(?:[0-9a-fA-F]{1,4}:|:){1,6}[0-9a-fA-F]{1,4}(?![\w:])"
)
_CARD = re.compile(r"(?<![\d.-])\d(?:[ -]?\d){12,18}(?![\d-])")
_PHONE = re.compile(
    r"(?<![\w+.])(?:\+\d{1,3}(?:[ .-]?\(\d{1,4}\))?(?:[ .-]?\d{2,4}){2,5}"
    r"|\(\d{3,5}\)[ -]?\d{3,4}[ .-]?\d{2,4}"
    r"|\d{3}[.-]\d{3}[.-]\d{4})(?![\w-])"
)

_HINTS = {
    "mail address": re.compile("@"),
    "IP address": re.compile(r"\d\.\d{1,3}\.\d|[23][0-9a-fA-F]{3}:"),
    "card number": re.compile(r"\d(?:[ -]?\d){12}"),
    "telephone number": re.compile(r"\d(?:[ .()-]{0,2}\d){6}"),
}
"""What a text with such data has; quicker to look for, as a digit or sign comes first."""


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
            (name, pattern, check, placeholder)
            for name, pattern, check, placeholder in (
                ("mail address", _MAIL, bool, self.mail),
                ("IP address", _IP, _is_public, self.ip),
                ("card number", _CARD, _is_card, self.card),
                ("telephone number", _PHONE, bool, self.phone),
            )
            if placeholder
        ]

        def judge(document: Document) -> Verdict:
            text, changes = document.text, dict[str, int]()
            for name, pattern, check, placeholder in rules:
                if not _HINTS[name].search(text):
                    continue
                text, count = _replace(text, pattern, check, placeholder)
                if count:
                    changes[name] = count
            return Verdict(Document(text, document.url), changes=changes) if changes else Verdict(document)

        return judge


def _replace(text: str, pattern: re.Pattern[str], check: Callable[[str], bool], placeholder: str) -> tuple[str, int]:
    """Return text with what matches and passes a check replaced, and how often it was."""
    count = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] == placeholder or not check(match[0]):
            return match[0]
        count += 1
        return placeholder

    return pattern.sub(replaced, text), count


def _is_public(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False


def _is_card(text: str) -> bool:
    digits = [int(character) for character in text if character.isdigit()]
    if len(set(digits)) == 1:
        return False
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
