"""Damaged text is recognized in many languages, and text that is not damaged in none."""

import json
import random

import pytest

from unmask.data.text.damage import DamagedTexts, find_damage
from unmask.data.text.documents import Skipped, TextOptions, read_documents

SENTENCES = {
    "French": "À l’été, le garçon naïf a mangé « une pâte » – très bon… où ça ? L’œuvre coûte 5 €",
    "Portuguese": "A irmã não está lá: ação, coração, maçã. MAÇÃ, IRMÃ, NÃO, SÃO PAULO, AMANHÃ",
    "Spanish": "¿Dónde está el niño? ¡Mañana! «Él está allá», dijo. El 1.º de enero, la 2.ª vez",
    "German": "Größe, Übung, ärgerlich, Straße: »Spaß« und „Gruß“ – Ä–Ö–Ü",
    "Italian": "Perché no? È così, città, più, là – però “caffè”",
    "Vietnamese": "Tiếng Việt rất đẹp, ở đâu cũng có người nói. ÂN CẦN, CHÂU Á, Ấn Độ",
    "Polish": "Zażółć gęślą jaźń, źdźbło, książka, świętość",
    "Czech": "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Hungarian": "Árvíztűrő tükörfúrógép, ötödik őszi út",
    "Turkish": "Çünkü şöyle güzel bir ağaç değil mi? İstanbul, ığdır",
    "Romanian": "Însă România își știe țărmul, când, ÎN ROMÂNIA, CÂND",
    "Swedish": "Älgen åt på ön; ÄR DET SÅ? 5 Å, 3 Å³",
    "Icelandic": "Þetta er það sem ég ætlaði, ÐÞÆ, maður",
    "Russian": "Привет, мир! Съешь же ещё этих мягких французских булок",
    "Ukrainian": "Рівне, їжак і ґанок — це добре",
    "Greek": "Καλημέρα κόσμε, πώς είσαι;",
    "Hebrew": "שלום עולם, מה שלומך",
    "Arabic": "مرحبا بالعالم، كيف الحال",
    "Hindi": "नमस्ते दुनिया, आप कैसे हैं",
    "Thai": "สวัสดีชาวโลก",
    "Chinese": "这是中文句子，很好。“引号”",
    "Japanese": "これは日本語の文です。「引用」",
    "Korean": "안녕하세요 세계",
    "emoji": "good 😀 news 👍🏽",
    "English": "It’s “quoted” – 5 €, 20 °C, ½, ±3, São Paulo™, naïve, café… 10 × 5",
}
PUNCTUATION = "’”“‘…–—»«›‹•™!?.,;:\xa0\u202f )"
"""What follows letters in text, also no-break spaces."""


def misread(text, encoding):
    """Return text in UTF-8 as another encoding reads it; what it lacks is replaced, as browsers and editors do."""
    return text.encode().decode(encoding, "replace")


def parts(sentence, seed):
    """Return 50 random parts of a sentence, of whole words."""
    rng, words = random.Random(seed), sentence.split()
    for _ in range(15):
        start = rng.randrange(len(words))
        yield " ".join(words[start : start + rng.randrange(1, 8)])


@pytest.mark.parametrize("language", SENTENCES)
def test_clean_text_is_not_damaged(language):
    for part in parts(SENTENCES[language], language):
        for text in (part, part.upper(), part.lower()):
            assert find_damage(text) is None


def test_letters_before_punctuation_are_not_damaged():
    rng = random.Random(0)
    letters = "".join(chr(code) for code in range(0xC0, 0x178) if chr(code) not in "ÃŠŒœ") + "РСГДЕЖабвδΣ"
    for _ in range(5000):
        word = "".join(rng.choices("abcXYZ" + letters, k=rng.randrange(1, 5)))
        text = f"{rng.choice('«“„( ')}{word}{''.join(rng.choices(PUNCTUATION, k=1))} {word}"
        assert find_damage(text) is None, text


@pytest.mark.parametrize("language", SENTENCES)
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_text_in_the_wrong_encoding_is_damaged(language, encoding):
    assert find_damage(misread(SENTENCES[language], encoding))
    recognized = [bool(find_damage(misread(part, encoding))) for part in parts(SENTENCES[language], language)]
    several = [
        sum(character > "\x7f" for character in part) > 2 for part in parts(SENTENCES[language], language)
    ]  # one or two characters may look like others
    missed = sum(many and not is_recognized for many, is_recognized in zip(several, recognized, strict=True))
    assert missed <= 0.1 * sum(several)


@pytest.mark.parametrize("language", SENTENCES)
@pytest.mark.parametrize("encoding", ["cp1252", "cp1250", "cp1251", "cp1253", "shift_jis", "gb18030", "euc-kr"])
def test_what_could_not_be_decoded_is_damaged(language, encoding):
    for part in parts(SENTENCES[language], language):
        text = part.encode(encoding, "ignore").decode(errors="replace")
        assert bool(find_damage(text)) == ("\ufffd" in text)


@pytest.mark.parametrize("code", range(0x80, 0xA0))
def test_control_characters_are_damage(code):
    assert find_damage(f"a {chr(code)}b")


def test_documents_are_counted_and_the_first_is_located(tmp_path):
    rng = random.Random(1)
    for number in range(15):
        clean, damaged = f"plain {number} café", f"line\ncafÃ© {number}"
        documents = [rng.choice([clean, damaged]) for _ in range(rng.randrange(1, 20))]
        (tmp_path / "a.txt").write_text("\n\n".join(documents))
        (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in documents))
        expected = [index for index, text in enumerate(documents) if text == damaged]
        before = sum(text.count("\n") + 2 for text in documents[: expected[0]]) if expected else 0
        for name, line in (("a.txt", before + 2), ("a.jsonl", expected[0] + 1 if expected else 0)):
            skipped = Skipped()
            assert len(list(read_documents([tmp_path / name], TextOptions(), skipped))) == len(documents)
            what = f"{len(expected)} document{'s' * (len(expected) != 1)}"
            assert skipped.damaged.notes("document") == [
                f"damaged, as if read in a wrong encoding: {what}, the first at {tmp_path / name}:{line}: "
                f"'line cafÃ© {number}'"
            ] * bool(expected)


def test_a_count_keeps_the_first():
    damaged = DamagedTexts()
    for number in range(2000):
        damaged.add(find_damage(f"a very long text before {number} â€™ and after it"), f"a:{number}")
    first = "damaged, as if read in a wrong encoding: 2,000 texts, the first at a:0: 'xt before 0 â€™ and after i'"
    assert damaged.notes("text") == [first]
    assert DamagedTexts().notes("text") == []
