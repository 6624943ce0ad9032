"""Tags of tables of words are those that pandas wrote."""

import itertools

import pandas as pd
import pytest

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.tagged_sentence import write_tags
from unmask.metrics.token_classification import Chunk
from unmask.support.errors import UserError


def rows_of(documents):
    """Return the words of documents with the numbers of their sentences and their tags in IOB2."""
    rows = []
    for number, document in enumerate(documents, 1):
        starts, stops = [start for start, _ in document.words], [stop for _, stop in document.words]
        spans = [Chunk(kind, starts.index(start), stops.index(end) + 1) for kind, start, end in document.entities]
        for (start, stop), tag in zip(document.words, write_tags(spans, len(starts)), strict=True):
            rows.append((f"Sentence: {number}", document.text[start:stop], "NN" if stop - start > 3 else '"', tag))
    return rows


def read(path, notes=None, **columns):
    gold = columns.pop("gold", True)
    return read_annotations([path], columns=columns, notes=notes, gold=gold)


@pytest.mark.parametrize("ids", ["every", "first"])
@pytest.mark.parametrize(("separator", "name"), [(",", "a.csv"), ("\t", "a.tsv"), (";", "a.csv")])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_words_with_ids_of_sentences(tmp_path, lines, same_entities, ids, separator, name, ending):
    frame = pd.DataFrame(rows_of(lines), columns=["Sentence #", "Word", "POS", "Tag"])
    if ids == "first":
        frame.loc[frame["Sentence #"].duplicated(), "Sentence #"] = ""
    path = tmp_path / name
    frame.to_csv(path, index=False, sep=separator, lineterminator=ending)
    sentences = read(path)
    words = [[document.text[start:stop] for start, stop in document.words] for document in lines]
    assert [one.words for one in sentences] == words
    tags = [
        list(tags) for _, tags in frame.assign(s=[one[0] for one in rows_of(lines)]).groupby("s", sort=False)["Tag"]
    ]
    assert [list(one.tags) for one in sentences] == tags
    assert {tag for one in read(path, label="POS") for tag in one.tags} == {"NN", '"'}
    assert [(one.words, one.tags) for one in read(path, gold=False)] == [(one, ()) for one in words]
    second = next(number for number, row in enumerate(rows_of(lines), 2) if row[0] == "Sentence: 2")
    assert [one.line for one in sentences[:2]] == [2, second]


def test_rows_of_whole_sentences(tmp_path, lines):
    frame = pd.DataFrame(rows_of(lines), columns=["Sentence #", "Word", "POS", "Tag"])
    grouped = frame.groupby("Sentence #", sort=False)
    path = tmp_path / "ner.csv"
    whole = pd.DataFrame({"Sentence": grouped["Word"].agg(" ".join), "POS": grouped["POS"].agg(list)})
    whole["Tag"] = grouped["Tag"].agg(list)
    whole.reset_index().to_csv(path, index=False)
    assert [list(one.tags) for one in read(path)] == [list(tags) for _, tags in grouped["Tag"]]
    assert [one.words for one in read(path, gold=False)] == [list(words) for _, words in grouped["Word"]]


def test_windows_1252_is_read_with_a_note(tmp_path):
    path = tmp_path / "ner_dataset.csv"
    path.write_bytes("Sentence #,Word,POS,Tag\r\nSentence: 1,Café,NN,B-org\r\n,“,``,O\r\n".encode("cp1252"))
    notes = []
    (sentence,) = read(path, notes)
    assert (sentence.words, sentence.tags) == (["Café", "“"], ("B-org", "O"))
    assert notes == [f"{path}: read as Windows-1252, because line 2 is not UTF-8"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Sentence #,Word,Tag\n1,a\n", "a.csv:2: 2 columns where there should be 3"),
        ("Sentence #,Word,Tag\n1,,O\n", "a.csv:2: the word is empty; fix or remove the row"),
        ("Sentence #,Word,Tag\n1,a,O\n1,b,PER\n1,c,B-PER\n", "a.csv:3: 'PER' is not a tag"),
        ('Sentence #,Word,Tag\n1,"a,O\n', "not valid CSV"),
        ("Sentence #,Word,X\n1,a,O\n", "a.csv:1: no column tag or tags or .*; columns: sentence #, word, x; pass col"),
        ("word,tag\na,O\n", "tagged words cannot be read from CSV without ids of their sentences; read are: "),
        ("text,label\na,O\n", "tagged words cannot be read from CSV without ids of their sentences"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("ids", ["0 0 1 0 1 1", "1 1 2 3 3 4"])
def test_ids_of_earlier_sentences_are_noted(tmp_path, ids):
    """Each run of an id is a sentence; that of an earlier one is counted."""
    rows, notes = [(sentence, f"w{line}", "O") for line, sentence in enumerate(ids.split(), 2)], []
    path = tmp_path / "a.csv"
    pd.DataFrame(rows, columns=["sentence_id", "words", "labels"]).to_csv(path, index=False)
    runs = [[sentence, [word for _, word, _ in run]] for sentence, run in itertools.groupby(rows, lambda row: row[0])]
    assert [sentence.words for sentence in read(path, notes)] == [words for _, words in runs]
    first = next((words[0][1:] for at, (one, words) in enumerate(runs) if one in dict(runs[:at])), None)
    again = len(runs) - len(set(ids.split()))
    assert notes == (
        [
            f"{path}: {again} of {len(runs)} sentences have the id of an earlier one, the first '0' in line {first}: "
            "if the rows are out of order, sort them by sentence"
        ]
        if first
        else []
    )
