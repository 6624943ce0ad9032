"""Words and sentences of scripts that differ from Latin, as they stand in classes of regular expressions."""

from __future__ import annotations

import unicodedata
from functools import cache

THAI = "\u0e00-\u0eff"
"""Thai and Lao, which do not mark where sentences end."""
OF_CLAUSES = (
    f"{THAI}\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"
    "\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9df\uaa80-\uaadf\U00011700-\U0001174f"
)
"""Thai and Lao; Burmese; Khmer; Tai Le, New Tai Lue, Tai Tham, Balinese, Javanese, Tai Viet, Ahom: what stands between
spaces is a clause."""
KANA = "\u3031-\u3035\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"
IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters, with all extensions, those that Unicode has yet to assign, too."""
UNSPACED = (
    f"{OF_CLAUSES}{KANA}{IDEOGRAPHS}"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303c\u3100-\u312f\u31a0-\u31bf\ua000-\ua4cf"
)
"""All of them, with the radicals, signs of repetition and numerals of Chinese, bopomofo, and Yi."""
TIBETAN = "\u0f00-\u0fff"
"""Tibetan, whose syllables are divided by marks, and words by nothing."""
SYLLABLE_MARKS = "\u0f0b\u0f0c\u1361"
"""What stands between syllables of Tibetan, and between words of older Ethiopic text, where others have spaces."""
SENTENCE_ENDS = (
    "!\"'.?\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u0f0d-\u0f11\u104a\u104b\u1362"
    "\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d\u1b7e"
    "\u1c3b\u1c3c\u1c7e\u1c7f\u2019\u201d\u203c\u203d\u2047-\u2049\u2e2e\u2e3c\u2e53\u2e54\u3002\u300d\u300f\ua4ff\ua60e\ua60f"
    "\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61"
)
"""Marks that end sentences: those with Unicode's property Sentence_Terminal, Tibetan's and Khmer's; closing quotes."""
_MARKS = range(0x300, 0x20000)
"""Code points among which are marks, such as vowels of Hindi and Thai, which belong to the letter before them."""


@cache
def mark_class() -> str:
    """Return the pattern of a mark, such as a vowel, or of a joiner, which Persian has within words."""
    marks = "".join(mark for code in _MARKS if unicodedata.category(mark := chr(code)).startswith("M"))
    return rf"(?=[^\0-{chr(_MARKS.start - 1)}])[{marks}\u200c\u200d]"  # what is no mark is mostly told by the range
