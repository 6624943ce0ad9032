"""Tests of reading and writing tagged words; bad lines are named with file and line."""

import collections
import gzip
import itertools
import json
import lzma

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from unmask.data.labelled.annotations import iterate_annotations, read_annotations
from unmask.data.labelled.tagged_file import write_columns
from unmask.data.labelled.tagged_sentence import split_text
from unmask.metrics.token_classification import chunks
from unmask.support.errors import UserError
from unmask.tasks.token_classification import TokenClassification

CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
-DOCSTART- -X- O O
BRUSSELS NNP I-NP I-LOC
"""


def read(path, content=None, /, *, gold=True, kind=None, **columns):
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_annotations([path], columns=columns, kind=kind, gold=gold)


def test_columns(tmp_path):
    first, second, third = read(tmp_path / "eng.train", CONLL)
    assert first.words == ["EU", "rejects", "German"]
    assert first.tags == ("B-ORG", "O", "B-MISC"), "IOB1 became IOB2"
    assert second.tags == ("B-PER", "I-PER")
    assert [(one.line, one.step, one.document) for one in (first, second, third)] == [(3, 1, 0), (7, 1, 0), (10, 1, 1)]
    assert first.file == str(tmp_path / "eng.train")
    assert not first.irregular


@pytest.mark.parametrize("separator", [" ", "\t", "   "])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_separators_and_line_ends(tmp_path, separator, ending):
    rows = [["EU", "B-ORG"], ["", ""], ["", ""], ["U.S.", "B-LOC"], ["troops", "O"]]
    text = ending.join(separator.join(row) if row[0] else "" for row in rows)
    sentences = read(tmp_path / "a.conll", "\ufeff" + text)
    assert [one.words for one in sentences] == [["EU"], ["U.S.", "troops"]]
    assert [one.line for one in sentences] == [1, 4]


def test_only_space_and_tab_divide_columns(tmp_path):
    (sentence,) = read(tmp_path / "a.conll", "\u3000 O\n\u2028 O\n\x85 B-X\na\xa0b I-X\n")
    assert sentence.words == ["\u3000", "\u2028", "\x85", "a\xa0b"]
    (sentence,) = read(tmp_path / "b.conll", "New York\tB-X\nis\tO\n")
    assert sentence.words == ["New York", "is"]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed(tmp_path, suffix, pack):
    assert len(read(tmp_path / f"eng.train{suffix}", pack(CONLL.encode()))) == 3
    row = json.dumps({"words": ["a"], "tags": ["O"]})
    assert read(tmp_path / f"a.jsonl{suffix}", pack(row.encode()))[0].words == ["a"]


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_predicted_tags_beside_gold_ones_are_not_taken_for_them(tmp_path, separator):
    """As conlleval reads them; chunks and entities, as in CoNLL-2003, are of different kinds."""
    lines = ["EU B-ORG O", "rejects O O", "", "in O O", "Bonn B-LOC B-ORG"]
    content = "\n".join(lines).replace(" ", separator) + "\n"
    with pytest.raises(
        UserError, match=r"a: the last two columns have the same tags, such as B-ORG: .* conlleval reads"
    ):
        read(tmp_path / "a", content)
    assert [one.tags for one in read(tmp_path / "a", label="1")] == [("B-ORG", "O"), ("O", "B-LOC")]
    assert [one.tags for one in read(tmp_path / "a", label="2")] == [("O", "O"), ("O", "B-ORG")]
    assert len(read(tmp_path / "a", gold=False)) == 2
    with pytest.raises(UserError, match=r"the same tags, such as DT: .* number from 0, as in columns=.*label.*1"):
        read(tmp_path / "a", "the DT DT\ndog NN NN\nbarks VB NN\n")


def test_predictions_of_no_entity_are_not_taken_for_gold_tags(tmp_path):
    with pytest.raises(
        UserError, match=r"a: the last column is O for all .* such as B-ORG: .*label.*1.*, or .*label.*2.* if no word"
    ):
        read(tmp_path / "a", "EU B-ORG O\nrejects O O\n")
    assert read(tmp_path / "a", label="1")[0].tags == ("B-ORG", "O")
    assert read(tmp_path / "a", label="2")[0].tags == ("O", "O")
    for content in ("EU NNP O\nrejects VBZ O\n", "EU O O\nrejects O O\n", "EU B-ORG O\nthe O O\nUN O B-PER\n"):
        assert read(tmp_path / "b", content)[0].tags[0] == "O", "of other kinds"


def test_columns_by_number(tmp_path):
    (sentence,) = read(tmp_path / "a", "1 B-X EU x\n2 O met x\n", text="2", label="1")
    assert (sentence.words, sentence.tags) == (["EU", "met"], ("B-X", "O"))
    assert read(tmp_path / "a", gold=False, text="2")[0].words == ["EU", "met"]
    assert read(tmp_path / "b", "a B-X EU x\nb O met x\n", gold=False)[0].words == ["a", "b"]


@pytest.mark.parametrize("keys", [("words", "tags"), ("tokens", "ner_tags"), ("tokens", "labels"), ("w", "t")])
def test_rows(tmp_path, keys):
    words, tags = keys
    text = json.dumps({"id": 7, words: ["New", "York", "!"], tags: ["B-LOC", "E-LOC", "O"]}) + "\n\n"
    columns = {"text": "w", "label": "t"} if keys == ("w", "t") else {}
    (sentence,) = read(tmp_path / "a.jsonl", text, **columns)
    assert (sentence.text, sentence.tags) == ("New York !", ("B-LOC", "I-LOC", "O"))
    assert (sentence.line, sentence.step) == (1, 0)
    assert read(tmp_path / "b.data", text, kind="jsonl", **columns)[0].words == ["New", "York", "!"]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-X I-X B-X O I-Y", "B-X I-X B-X O B-Y"),
        ("B-X I-X B-X O B-Y", "B-X I-X B-X O B-Y"),
        ("B-X E-X S-X O S-Y", "B-X I-X B-X O B-Y"),
        ("B-X M-X E-X O S-Y", "B-X I-X I-X O B-Y"),
        ("B-X M-X E-X O W-Y", "B-X I-X I-X O B-Y"),
        ("B-X I-X L-X O U-Y", "B-X I-X I-X O B-Y"),
    ],
)
def test_every_scheme_becomes_iob2(tmp_path, tags, expected):
    text = "".join(f"w {tag}\n" for tag in tags.split())
    assert read(tmp_path / "a.conll", text)[0].tags == tuple(expected.split())


def test_each_file_has_its_own_scheme(tmp_path):
    (tmp_path / "a").write_text("w I-X\n")
    (tmp_path / "b").write_text("w S-X\n\nw B-X\n")
    sentences = read_annotations([tmp_path / "a", tmp_path / "b"], columns={})
    assert [one.tags for one in sentences] == [("B-X",)] * 3
    assert [one.irregular for one in sentences] == [0, 0, 1]


def test_irregular_entities_are_read_as_by_conlleval_and_counted(tmp_path):
    text = "w B-X\nw I-X\n\nw O\nw I-X\n\nw B-X\nw I-Y\n"
    sentences = read(tmp_path / "a", text)
    assert [one.tags for one in sentences] == [("B-X", "I-X"), ("O", "B-X"), ("B-X", "B-Y")]
    notes = []
    assert TokenClassification().read([tmp_path / "a"], columns={}, notes=notes) == sentences
    (remark,) = notes
    assert remark == (
        f"{tmp_path / 'a'}: 2 entities outside the tagging scheme of the file (I- without B-, for example), the "
        "first in the sentence of line 4; read as conlleval does"
    )
    read(tmp_path / "b", CONLL)
    TokenClassification().read([tmp_path / "b"], columns={}, notes=notes)
    assert len(notes) == 1


COLUMNS = [
    ("", "there are no sentences in the file"),
    ("\n\n-DOCSTART- O\n\n", "there are no sentences in the file"),
    ("EU B-ORG\nmet\n", "a:2: the word 'met' has no tag"),
    ("EU\nmet\n", "a:1: the word 'EU' has no tag"),
    ("EU x B-ORG\nmet O\n", "a:2: 2 columns, but the lines before have 3"),
    ("EU B-ORG\nmet x y O\n", "a:2: 4 columns, but the lines before have 2"),
    ("EU\tB-ORG\n\tO\n", "a:2: the word is empty"),
    (
        "EU B-ORG\n\nmet PER\n",
        "a:3: 'PER' is not a tag such as O, B-PER or I-PER; as 'B-ORG' has a prefix, write B-PER and",
    ),
    ("EU NNP\nmet B-X\n", "a:1: 'NNP' is not a tag"),
    ("EU B-\n", "a:1: 'B-' is not a tag"),
    ("EU\tB-X\nmet\t\n", "a:2: '' is not a tag"),
    ("a B-X\nb I-X\nc M-X\n", "a:3: 'M-X': no scheme combines the prefixes B, I, M"),
    ("a E-X\nb L-X\n", "a:2: 'L-X': no scheme combines the prefixes E, L"),
    (b"a O\nb\xff O\n", r"a:2: not UTF-8 \(byte 2 of the line\)"),
]


@pytest.mark.parametrize(("text", "message"), COLUMNS)
def test_bad_columns_are_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a", text)


ROWS = [
    ("\n", "there are no sentences in the file"),
    ("{", "broken JSON"),
    ('["a"]', "not a JSON object"),
    ('{"words": ["a"]}', "no key tags or ner_tags or labels; keys: words; pass columns"),
    ('{"text": "a", "tags": ["O"]}', "no key words or tokens"),
    (
        '{"words": ["a"], "tags": [0]}',
        "'tags' is not a list of strings; give a list for each sentence",
    ),
    ('{"words": "a", "tags": ["O"]}', "'words' is not a list of strings"),
    ('{"words": ["a"], "tags": ["O", "O"]}', "1 word, but 2 tags"),
    ('{"words": [], "tags": []}', "there are no words; remove the sentence"),
    ('{"words": [""], "tags": ["O"]}', "a word is empty"),
    ('{"words": ["a", "b"], "tags": ["X", "B-X"]}', "'X' is not a tag"),
]


@pytest.mark.parametrize(("text", "message"), ROWS)
def test_bad_rows_are_refused(tmp_path, text, message):
    path = tmp_path / "a.jsonl"
    good = '{"words": ["a"], "tags": ["O"]}\n' if text.strip() else ""
    with pytest.raises(UserError, match=message) as caught:
        read(path, good + text)
    if good:
        assert str(caught.value).startswith(f"{path}:2: ")


@pytest.mark.parametrize(
    ("columns", "gold", "message"),
    [
        ({"text_b": "1"}, True, 'columns={"text_b": …} has no effect'),
        ({"label": "1"}, False, 'columns={"label": …} has no effect: sentences are read without tags'),
        ({"text": "word"}, True, 'columns={"text": "word"}: columns of words have no names; use numbers'),
        ({"label": "4"}, True, "a:3: there is no column 4, counted from 0"),
    ],
)
def test_columns_without_effect_are_refused(tmp_path, columns, gold, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a", CONLL, gold=gold, **columns)


@pytest.mark.parametrize("nothing", ['"text": ""', '"text": null', '"words": []'])
def test_texts_without_tags_may_be_empty_or_missing(tmp_path, nothing):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "a b"}}\n{{{nothing}}}\n')
    first, second = iterate_annotations(path, columns={})
    assert (first.words, second.words, second.text, second.line) == (["a", "b"], [], "", 2)


def test_csv_is_refused(tmp_path):
    with pytest.raises(UserError, match="tagged words cannot be read from CSV"):
        read(tmp_path / "a.csv", "a,O\n")


def test_written_columns_are_read_again(tmp_path):
    sentences = read(tmp_path / "a", CONLL)
    text = "".join(write_columns(one, one.tags) for one in sentences)
    again = read(tmp_path / "b", text)
    assert [(one.words, one.tags) for one in again] == [(one.words, one.tags) for one in sentences]
    (odd,) = read(tmp_path / "c.jsonl", '{"words": ["a\\tb"], "tags": ["O"]}')
    with pytest.raises(
        UserError, match=r"c\.jsonl:1: the word 'a\\tb' cannot be written in a column; write JSON Lines"
    ):
        write_columns(odd, odd.tags)
    (marker,) = read(tmp_path / "d.jsonl", '{"words": ["a", "-DOCSTART-"], "tags": ["O", "O"]}')
    with pytest.raises(UserError, match=r"d\.jsonl:1: the word '-DOCSTART-' cannot be written in a column"):
        write_columns(marker, marker.tags)
    with pytest.raises(UserError, match="the word '' cannot be written in a column"):
        write_columns(split_text(" "), [])


def count(path):
    """Count sentences, words, and entities by type of a file with seqeval, directly from its lines."""
    with lzma.open(path, "rt", encoding="utf8") if path.suffix == ".xz" else path.open(encoding="utf8") as lines:
        tags = [cells[-1] if cells and cells[0] != "-DOCSTART-" else "" for cells in map(str.split, lines)]
    sentences = [list(group) for full, group in itertools.groupby(tags, key=bool) if full]
    kinds = [kind for one in sentences for kind, _, _ in get_entities([tag.replace("M-", "I-") for tag in one])]
    return len(sentences), sum(map(len, sentences)), collections.Counter(kinds)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "irregular"),
    [
        ("conll2003/eng.train.xz", 2),  # B- after O in an IOB1 file, in lines 152428 and 175436
        ("conll2003/eng.testa.xz", 0),
        pytest.param("conll2003/eng.testb.xz", 0, marks=pytest.mark.exhaustive),
        ("resume_zh/train.char.bmes.xz", 4),  # entities that a blank line splits in two
        pytest.param("resume_zh/test.char.bmes", 0, marks=pytest.mark.exhaustive),
        ("peopledaily_zh/dev.txt.xz", 11),
    ],
)
def test_real_files(shared, name, irregular):
    path = shared / "data/ner" / name
    sentences = read(path)
    found = collections.Counter(chunk.type for sentence in sentences for chunk in chunks(sentence.tags))
    assert (len(sentences), sum(len(one.tags) for one in sentences), found) == count(path)
    assert sum(one.irregular for one in sentences) == irregular
    assert (sentences[0].document is None) == ("zh" in name)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["E", "##ve", "in", "Rome"], "1 of 4 words look like pieces of words that a tokenizer made: '##ve'"),
        (
            ["▁Eve", "▁in", "▁Ro", "me"],
            "3 of 4 words look like pieces of words that a tokenizer made: '▁Eve'",
        ),
        (["Eve", "Ġin", "ĠRo", "me"], "2 of 4 words look like pieces of words that a tokenizer made: 'Ġin'"),
        (["##", "Eve", "#", "###"], ""),
        (["#Rome", "▁", "in", "Rome"], ""),
    ],
)
def test_pieces_of_words_are_noted(tmp_path, words, shown):
    path, notes = tmp_path / "a.jsonl", []
    path.write_text(json.dumps({"tokens": words, "ner_tags": ["B-PER", "O", "O", "B-LOC"]}))
    (sentence,) = read_annotations([path], columns={}, notes=notes)
    assert sentence.words == words
    assert len(notes) == bool(shown) and all(shown in note for note in notes)


@pytest.mark.shared
def test_published_numbers_of_entities(shared):
    """Tjong Kim Sang and De Meulder 2003, tables 1 and 2: sentences and entities of the English test set."""
    sentences = read(shared / "data/ner/conll2003/eng.testb.xz")
    kinds = [chunk.type for sentence in sentences for chunk in chunks(sentence.tags)]
    assert {kind: kinds.count(kind) for kind in ("LOC", "MISC", "ORG", "PER")} == {
        "LOC": 1668,
        "MISC": 702,
        "ORG": 1661,
        "PER": 1617,
    }


def test_sentences_are_yielded_before_the_rest_of_the_file_is_read(tmp_path):
    path = tmp_path / "words.conll"
    path.write_text("the O\ndog O\n\na O\ncat\n")
    sentences = iterate_annotations(path, columns={})
    assert next(sentences).words == ["the", "dog"]
    with pytest.raises(UserError, match=r"words\.conll:5: 1 column, but the lines before have 2"):
        next(sentences)


@pytest.mark.parametrize("columns", [2, 3, 5])
@pytest.mark.parametrize("suffix", [".conll", ".tsv"])
def test_lines_that_carriage_returns_end_are_refused(columns, suffix, tmp_path):
    """They would otherwise be one word, whose tag is the last one of the file."""
    for separator, number in itertools.product(("\t", " "), range(2, 12)):
        line = separator.join(["dog", *["_"] * (columns - 2), "O"])
        for before, message in (("", "lines end with carriage returns alone"), (f"{line}\n\n", "alone end the lines")):
            text = "\r".join([line] * number + ["", line, ""])
            (tmp_path / f"words{suffix}").write_bytes((before + text).encode())
            with pytest.raises(UserError, match=message):
                read_annotations([tmp_path / f"words{suffix}"], columns={})
