"""Tests of dropping documents that overlap with test files, and those in other languages."""

import csv
import json
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.cleaning import language
from unmask.data.cleaning.language import Language, main_languages
from unmask.data.cleaning.overlap import Overlap, read_passages, word_hashes
from unmask.data.cleaning.rule import Document
from unmask.support.errors import UserError

LEAK = "the small window of the old house looked over a garden and the river below it"
FILES = {
    "a.tsv": f"text\tlabel\n{LEAK}\tgood\nshort one\tbad\n",
    "a.txt": f"{LEAK}\nshort\n",
    "a.jsonl": json.dumps({"id": 1, "data": {"context": [LEAK]}}) + "\n",
    "a.json": json.dumps({"data": [{"paragraphs": [{"context": f"First. {LEAK}."}]}]}, indent=1),
    "words.jsonl": json.dumps({"tokens": LEAK.split()}) + "\n",
    "a.conll": "\n".join(f"{word} NN O" for word in LEAK.split()) + "\n\nA DT O\n\n",
}


NUMBERED = [f"{number}\t{word}\t_\tX\t_\t_\t0\tdep\t_\t_" for number, word in enumerate(LEAK.split(), 1)]
FILES["a.conllx"] = "\n".join(NUMBERED) + "\n\n1\tshort\t_\tX\t_\t_\t0\tdep\t_\t_\n\n"
PARTS = ["\t".join([*part.split(), *("_" * 8)]) for part in ("2-3 small", "2 sm", "3 all", "3.1 omitted")]
OTHERS = [line.replace(line.split("\t")[0], str(number), 1) for number, line in enumerate(NUMBERED[2:], 4)]
FILES["a.conllu"] = "\n".join(["# sent_id = a", "# source = one of them", NUMBERED[0], *PARTS, *OTHERS]) + "\n\n"


@pytest.mark.parametrize("name", FILES)
def test_D16_documents_with_13_words_of_a_test_file_are_dropped(tmp_path, verdict, prose, name):
    path = tmp_path / name
    path.write_text(FILES[name])
    rule = Overlap(files=(str(path),))
    words = LEAK.split()
    for start in range(len(words) - 12):
        leaked = " ".join(words[start : start + 13]).upper().replace(" ", ", ", 3)
        assert verdict(rule, f"{prose(1)}\n\n“{leaked}”")[0] == f"overlap with {path}"
    assert verdict(rule, f"{prose(1)}\n\n{' '.join(words[:12])} other {' '.join(words[12:])}")[0] == ""
    assert verdict(rule, "")[0] == verdict(rule, "few words")[0] == ""


@pytest.mark.parametrize(
    "text",
    [
        "प्रधानमंत्री ने कहा कि देश के किसानों को इस योजना से बहुत लाभ मिलेगा और आय बढ़ेगी",
        "প্রধানমন্ত্রী বলেন যে দেশের কৃষকরা এই প্রকল্প থেকে অনেক সুবিধা পাবেন এবং আয় বাড়বে বলে আশা",
        "نخست‌وزیر گفت که کشاورزان کشور از این طرح سود می‌برند و درآمد آنها بیشتر می‌شود و خوب",
    ],
)
def test_vowels_and_joiners_are_parts_of_words(tmp_path, verdict, text):
    path = tmp_path / "test.txt"
    path.write_text(text)
    words, rule = text.split(), Overlap(files=(str(path),))
    assert len(word_hashes(text)) == len(words) > 13
    assert verdict(rule, " ".join(words[:13]))[0] != ""
    assert verdict(rule, " ".join(words[:12]))[0] == "", "fragments of words were counted"


@given(st.text(max_size=20), st.sampled_from(["NFC", "NFD"]))
def test_words_do_not_depend_on_composition(text, form):
    assert word_hashes(text).tolist() == word_hashes(normalize(form, text)).tolist()


def test_the_numbers_of_words_are_no_text(tmp_path, verdict):
    path = tmp_path / "a.conllu"
    path.write_text(FILES["a.conllx"])
    assert verdict(Overlap(files=(str(path),)), " ".join(map(str, range(1, 17))))[0] == ""


def test_scores_before_texts_number_no_words(tmp_path, verdict):
    text = "one two three four five six seven eight nine ten eleven twelve thirteen"
    (tmp_path / "test.tsv").write_text(f"5.000\tA plane\n\n2.500\tA man\n\n0.000\t{text}\n")
    rule = Overlap(files=(str(tmp_path / "test.tsv"),))
    assert verdict(rule, f"Zero, {text}.")[0] == f"overlap with {tmp_path / 'test.tsv'}"


def test_short_passages_count_as_a_whole(tmp_path, verdict):
    path = tmp_path / "a.txt"
    path.write_text("one two three four five six seven eight nine\nten eleven twelve\n")
    rule = Overlap(files=(str(path),))
    assert verdict(rule, "zero one two three four five six seven eight nine ten")[0] != ""
    assert verdict(rule, "zero one two three four five six seven eight")[0] == ""
    assert verdict(rule, "ten eleven twelve")[0] == ""
    path.write_text("ten eleven twelve\n")
    with pytest.raises(UserError, match="has no passage of 8 words or more"):
        rule.build()


@pytest.mark.parametrize("separator", [",", ";"])
def test_cells_of_csv_are_passages(tmp_path, verdict, separator):
    """The words of other columns are not beside them, and quoted cells have line breaks and quotation marks."""
    path = tmp_path / "a.csv"
    short, quoted = "one two three four five six seven eight", "a b c d e f\nsaid “no” g h; i, j"
    with path.open("w", encoding="utf8", newline="") as file:
        rows = [("id", "text", "label"), (17, short, "good"), (18, quoted.translate({0x201C: '"', 0x201D: '"'}), "bad")]
        csv.writer(file, delimiter=separator).writerows(rows)
    rule = Overlap(files=(str(path),))
    for text in (short, quoted):
        assert verdict(rule, f"before {text} after")[0] == f"overlap with {path}"
    assert verdict(rule, f"17 {short[4:]} good")[0] == ""


def test_recall_and_precision_of_planted_leaks(tmp_path, verdict, prose):
    path = tmp_path / "test.txt"
    sentences = [line for number in range(1000, 1050) for line in prose(number, lines=4).split("\n\n")]
    path.write_text("\n".join(sentences))
    judge = Overlap(files=(str(path),)).build()
    clean = [prose(number) for number in range(100)]
    leaked = [f"{text}\n\n{sentences[number]}" for number, text in enumerate(clean)]
    assert not any(judge(Document(text)).dropped for text in clean)
    assert all(judge(Document(text)).dropped for text in leaked)


def test_passages_of_broken_json_are_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": "b"}\n{"a": \n')
    with pytest.raises(UserError, match=r"a\.jsonl:2: broken JSON"):
        list(read_passages(path))


def test_language(verdict):
    pytest.importorskip("fasttext")
    texts = {
        "en": "The story is simple, and it ends well for everybody in the small house by the river.",
        "de": "Die Geschichte ist einfach, und sie geht für alle in dem kleinen Haus am Fluss gut aus.",
        "zh": "这个故事很简单，河边小房子里的每个人最后都过得很好。",
    }
    for name, text in texts.items():
        assert verdict(Language(keep=(name,)), text)[0] == ""
        assert verdict(Language(keep=tuple(texts.keys() - {name})), text)[0] == f"language {name}"
    assert verdict(Language(keep=("en", "de", "es", "fr"), min_probability=0.99), "Jpeg 12 a")[0] != ""
    with pytest.raises(UserError, match=r"language\.keep is empty"):
        Language(keep=()).build()
    alemannic = "Dr Rhy isch e Fluss z Euroopa, und d Stadt Basel isch die grööschti Stadt am Rhy in dr Schwiiz."
    assert verdict(Language(keep=("gsw",)), alemannic)[0] == "", "the model calls it als, which is Albanian"
    for code in ("deu", "EN", "als", "english"):
        with pytest.raises(UserError, match=rf"language\.keep: '{code}' is not the code of a language"):
            Language(keep=("en", code)).build()


def test_lines_in_other_languages_are_removed():
    pytest.importorskip("fasttext")
    english = "The story is simple, and it ends well for everybody in the small house by the river."
    german = "Die Geschichte ist einfach, und sie geht für alle in dem kleinen Haus am Fluss gut aus."
    document = Document("\n\n".join([*[english] * 6, german, "Haus", english]), "http://a.org/")
    for settings, text, changes in (
        ({}, document.text, {}),
        ({"keep": ("en", "de"), "min_line": 40}, document.text, {}),
        ({"min_line": 40}, "\n\n".join([*[english] * 6, "Haus", english]), {"line in de": 1}),
    ):
        judged = Language(**{"keep": ("en",), **settings}).build()(document)
        left = judged.document
        assert (judged.dropped, left.text, left.url, dict(judged.changes)) == ("", text, document.url, changes)


def test_main_languages_are_those_of_many_texts(monkeypatch):
    found = {"a": ("en", 0.9), "b": ("gsw", 0.9), "c": ("fr", 0.9), "d": ("it", 0.3)}
    monkeypatch.setattr(language, "identify_language", lambda text: found[text[0]])
    assert main_languages("b" * 6 + "a" * 40 + "c" + "d" * 5) == ("en", "gsw")
    assert main_languages("a" * 19) == (), "too few"
    assert main_languages("d" * 30 + "a" * 20) == (), "most are uncertain"
    monkeypatch.undo()
    monkeypatch.setattr(language, "find_spec", lambda name: None)
    language._model.cache_clear()
    assert main_languages("a" * 40) == (), "the package is not installed"
