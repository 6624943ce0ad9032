"""Characters of scripts without spaces between words, as they stand in classes of regular expressions."""

CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f"
"""Characters that BERT surrounds with spaces (google-research/bert, `_is_chinese_char`)."""
NOT_CHINESE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uaa60-\uaa7f\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
"""Thai and Lao, Burmese, Khmer, and kana."""
UNSPACED = f"{NOT_CHINESE}{CHINESE}\u3005-\u3007"
"""All of them; the last ones are signs of repetition and the zero of Japanese and Chinese."""
