"""Letters of scripts without spaces between words, as they stand in classes of regular expressions."""

OF_CLAUSES = "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"
"""Thai and Lao; Burmese; Khmer: what stands between spaces is a clause."""
KANA = "\u3031-\u3035\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"
IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters, with all extensions, those that Unicode has yet to assign, too."""
UNSPACED = (
    f"{OF_CLAUSES}{KANA}{IDEOGRAPHS}"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303c\u3100-\u312f\u31a0-\u31bf\ua000-\ua4cf"
)
"""All of them, with the radicals, signs of repetition and numerals of Chinese, bopomofo, and Yi."""
