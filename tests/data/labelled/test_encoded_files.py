"""Tests of labeled files in a named encoding: all readers of text, compared with pandas and with UTF-8."""

import random

import pandas
import pytest

from unmask.data.labelled.annotations import iterate_annotations, read_annotations
from unmask.data.labelled.choices_file import read_choices
from unmask.data.labelled.labelled_file import read_rows, read_texts
from unmask.data.labelled.question_files import read_squad
from unmask.data.labelled.table import ExampleTable, as_sources
from unmask.data.text.documents import TextOptions, refuse_idle_options
from unmask.data.text.record_files import read_file
from unmask.support.errors import UserError

WORDS = {
    "cp1252": ["Größe", "naïve", "“quoted”", "5 €", "plain"],
    "cp1251": ["Привет", "мир", "№ 5", "plain"],
    "shift_jis": ["日本語", "ソース", "表示", "plain"],  # with bytes of a backslash and of a vertical bar
    "gb18030": ["中文", "句子", "𝒳", "plain"],
    "utf-16-le": ["Größe", "中文", "😀", "plain"],
}


def texts(encoding, seed, number=20):
    rng = random.Random(f"{encoding} {seed}")
    return [" ".join(rng.choices(WORDS[encoding], k=rng.randrange(1, 8))) for _ in range(number)]


@pytest.mark.parametrize("encoding", WORDS)
@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_tables_are_read_as_pandas_reads_them(tmp_path, encoding, suffix, separator):
    for seed in range(15):
        frame = pandas.DataFrame({"text": texts(encoding, seed), "label": random.Random(seed).choices("ab", k=20)})
        path = tmp_path / f"{seed}.{suffix}"
        frame.to_csv(path, sep=separator, index=False, encoding=encoding)
        expected = pandas.read_csv(path, sep=separator, encoding=encoding)
        rows = read_rows(as_sources(path, encoding), columns={})
        assert [(row.values["text"], row.values["label"]) for row in rows] == list(expected.itertuples(index=False))
        assert rows[3].file == str(path)
        assert rows[3].line == 5


SQUAD = """{"data": [{"title": "T", "paragraphs": [{"context": "WORD is here", "qas": [
{"id": "1", "question": "WORD?", "answers": [{"text": "here", "answer_start": START}]}]}]}]}"""
ROW = """{"context": "WORD is here", "question": "WORD?", "answers": {"text": ["here"], "answer_start": [START]}}"""
RACE = (
    """{"id": "high1.txt", "article": "WORD", "questions": ["WORD?"], "options": [["WORD", "b"]], "answers": ["B"]}"""
)
SWAG = "video-id,fold-ind,sent1,sent2,ending0,ending1,ending2,ending3,label\n1,2,WORD,b,WORD,d,e,f,2\n"
BRAT = {"b/a.txt": "WORD is here.", "b/a.ann": "T1\tWORD 0 LENGTH\tWORD\n"}
READERS = {
    "jsonl": ({"a.jsonl": '{"text": "WORD", "label": "a"}\n'}, lambda source: read_rows([source], columns={})),
    "json": ({"a.json": '[{"text": "WORD", "label": "a"}]'}, lambda source: read_rows([source], columns={})),
    "txt": ({"a.txt": "WORD\n"}, lambda source: read_texts(source, columns={}, notes=[])),
    "conll": ({"a.conll": "WORD B-A\nis O\n"}, lambda source: read_annotations([source], columns={})),
    "conllu": ({"a.conllu": "# text = WORD\n1\tWORD\t_\tX\t_\t_\t_\t_\t_\tNER=B-A\n\n"}, None),
    "doccano": ({"a.jsonl": '{"text": "WORD is", "label": [[0, LENGTH, "A"]]}\n'}, None),
    "tuples": ({"a.json": '[["WORD is", {"entities": [[0, LENGTH, "A"]]}]]'}, None),
    "sentences": ({"a.csv": "Sentence #,Word,Tag\nSentence: 1,WORD,B-A\n,is,O\n"}, None),
    "brat": (BRAT, None),
    "squad": ({"a.json": SQUAD}, lambda source: read_squad([source])),
    "rows": ({"a.jsonl": ROW}, lambda source: read_squad([source])),
    "array": ({"a.json": f"[{ROW}]"}, lambda source: read_squad([source])),
    "swag": ({"a.csv": SWAG}, lambda source: read_choices([source])),
    "race": ({"c/a.txt": RACE}, lambda source: read_choices([source])),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("encoding", WORDS)
def test_all_readers_read_the_same_as_from_utf8(tmp_path, reader, encoding):
    contents, read = READERS[reader]
    read = read or (lambda source: read_annotations([source], columns={}))
    for seed in range(5):
        word = texts(encoding, seed, 1)[0].replace(" ", "").replace("€", "")
        examples = []
        for folder, chosen in (("given", encoding), ("utf8", None)):
            for name, content in contents.items():
                content = content.replace("WORD", word).replace("LENGTH", str(len(word)))
                content = content.replace("START", str(len(word) + 4))
                path = tmp_path / f"{reader}{seed}" / folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.encode(chosen or "utf8"))
            source = path if path.parent.name == folder else path.parent
            (source,) = as_sources(str(source), chosen)
            examples.append(repr(read(source)).replace(f"/{folder}/", "/"))
        assert word in examples[0]
        assert examples[0] == examples[1]


@pytest.mark.parametrize("name", ["a.xlsx", "a.parquet", "a.arrow", "a.db#t", "a.sqlite"])
def test_formats_with_an_encoding_of_their_own_refuse_one(name):
    (source,) = as_sources(name, "cp1252")
    for read in (
        lambda: list(read_file(source)),
        lambda: read_rows([source], columns={}),
        lambda: read_annotations([source], columns={}),
        lambda: refuse_idle_options([name], TextOptions(encoding="cp1252")),
    ):
        with pytest.raises(UserError, match=rf'^{name}: encoding="cp1252" has no effect: this format says how'):
            read()


def test_spacy_and_examples_in_memory_refuse_an_encoding():
    with pytest.raises(UserError, match="has no effect: this format says how"):
        list(iterate_annotations(as_sources("a.spacy", "cp1252")[0], columns={}))
    for data in (ExampleTable("<a>", {"text": ["b"]}), {"text": ["b"], "label": ["c"]}):
        with pytest.raises(UserError, match="encoding has no effect on examples in memory"):
            as_sources(data, "cp1252")
    with pytest.raises(UserError, match="no such encoding of text"):
        as_sources(["a.csv"], "no")
    assert as_sources((), "cp1252") == []
