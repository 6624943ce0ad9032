"""Recognition of damaged text: what was decoded from the wrong encoding ("mojibake"), or lost in decoding.

Input: a text. Output: the part of it that no writer has typed, such as "Ã©" for "é". Recognized are U+FFFD, which
replaces what could not be decoded, C1 control characters, and UTF-8 that was read as Latin-1 or Windows-1252: sequences
of characters whose bytes are those of a character in UTF-8, and that have no other meaning. A capital before a
quotation mark or a dash is none of them, nor is a single letter with an accent before two of those; where letters of
other scripts become such pairs, several in a row are (the idea of `ftfy`, Speer 2019).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from unmask.support.errors import counted

_EXCERPT = 12
_ALL = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
"""The bytes 0x80 to 0xBF, of which all characters in UTF-8 but their first byte consist, in either encoding."""
_ODD = "¡¢£¤¥¦§¨©ª¬®¯°±²³´µ¶¸¹º¼½¾¿€‚ƒ„†‡ˆ‰ŠŒŽ˜œŸ"
"""Those that do not follow a capital in text."""
_DAMAGE = re.compile(
    "[\ufffd\x80-\x9fÂ-ð](?:"  # a set of characters first: other characters are skipped quickly
    "(?<=[\ufffd\x80-\x9f])"
    f"|(?<=Ã)[{_ODD}«]"
    f"|(?<=Ä)[{_ODD}]"
    f"|(?<=Å)[{re.sub('[°±²³¹]', '', _ODD)}]"  # units: Å³
    "|(?<=(?<![^\\W\\d_])Â)[\xa0-\xaa\xac-\xba\xbc-\xbf]"  # no letter before, which Â follows in words
    f"|(?<=á)(?:º[{_ALL}]|»[{_ODD}])"  # Vietnamese
    f"|(?<=â)(?:€[{_ALL}]|„¢|‚¬)"  # quotation marks, dashes, ™, €
    f"|(?<=[Â-ß])[{_ALL}](?:[Â-ß][{_ALL}]){{2}}"
    f"|(?<=[à-ï])[{_ALL}]{{2}}[à-ï][{_ALL}]{{2}}"
    f"|(?<=ð)[\x9fŸ][{_ALL}]{{2}}"  # emoji
    ")"
)


@dataclass
class DamagedTexts:
    """A count of damaged texts.

    Attributes:
        count: their number.
        first: location of the first, and an excerpt of it.
    """

    count: int = 0
    first: str = ""

    def add(self, damage: re.Match[str], place: str) -> None:
        """Count a damaged text."""
        self.count += 1
        if not self.first:
            around = damage.string[max(0, damage.start() - _EXCERPT) : damage.end() + _EXCERPT]
            self.first = f"{place}: '{' '.join(around.split())}'"

    def merge(self, other: DamagedTexts) -> None:
        """Add the texts of later files."""
        self.count += other.count
        self.first = self.first or other.first

    def notes(self, what: str) -> list[str]:
        """Return a line about the texts, if there are any, given what they are, such as "document"."""
        if not self.count:
            return []
        return [f"damaged, as if read in a wrong encoding: {counted(self.count, what)}, the first at {self.first}"]


def find_damage(text: str) -> re.Match[str] | None:
    """Return the first part of a text that is damaged, if any."""
    return None if text.isascii() else _DAMAGE.search(text)
