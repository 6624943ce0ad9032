"""Tags of columns with comments are those that were generated."""

import pytest

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.tagged_sentence import split_text, write_tags
from unmask.metrics.token_classification import Chunk
from unmask.support.errors import UserError

POS = ("NOUN", "VERB", "PUNCT", "X")


def read(path, notes=None, **columns):
    gold = columns.pop("gold", True)
    return read_annotations([path], columns=columns, notes=notes, gold=gold)


def iob2(document):
    """Return the words of a document and their tags in IOB2."""
    starts, stops = [start for start, _ in document.words], [stop for _, stop in document.words]
    spans = [
        Chunk(kind.replace(" ", "_"), starts.index(start), stops.index(end) + 1)
        for kind, start, end in document.entities
    ]
    return [document.text[start:stop] for start, stop in document.words], write_tags(spans, len(starts))


def conllu(document, number, *, text=True, misc=True, ending="\n"):
    words, tags = iob2(document)
    rows = [f"# sent_id = {number}", *([f"# text = {document.text}"] if text else [])]
    for index, (word, tag) in enumerate(zip(words, tags, strict=True), 1):
        stop = document.words[index - 1][1]
        parts = [f"NER={tag}"] * (misc and tag != "O")
        parts += ["SpaceAfter=No"] * (index < len(words) and stop == document.words[index][0])
        rows.append(
            "\t".join([str(index), word, "_", POS[index % 4], "_", "_", "0", "dep", "_", "|".join(parts) or "_"])
        )
        if index % 5 == 0:
            rows.append(f"{index}.1\tgone\t_\tX\t_\t_\t_\t_\t_\t_")
    return ending.join([*rows, "", ""])


def glued(documents):
    """Return documents of one line, in which every third word follows the one before without a space."""
    found = []
    for document in documents:
        text, words = "", []
        for number, (start, end) in enumerate(document.words):
            text += " " if number and number % 3 else ""
            words.append((len(text), len(text) + end - start))
            text += document.text[start:end]
        places = dict(zip([start for start, _ in document.words], [start for start, _ in words], strict=True))
        ends = dict(zip([end for _, end in document.words], [end for _, end in words], strict=True))
        found.append(
            type(document)(text, words, [(kind, places[start], ends[end]) for kind, start, end in document.entities])
        )
    return found


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("text", [True, False])
def test_conllu(tmp_path, lines, text, ending):
    documents = glued(lines)
    path = tmp_path / "a.conllu"
    content = "".join(conllu(one, number, text=text, ending=ending) for number, one in enumerate(documents))
    path.write_text(content, newline="")
    notes = []
    sentences = read(path, notes)
    assert [(one.text, one.words, list(one.tags)) for one in sentences] == [(one.text, *iob2(one)) for one in documents]
    assert "the tags are those of NER in MISC" in notes[0]
    assert "lines of multiword tokens and of empty nodes" in notes[1]
    for name in ("UPOS", "upos", "3"):
        tagged = read(path, label=name)
        assert all(one.tags == tuple(POS[index % 4] for index in range(1, len(one.tags) + 1)) for one in tagged)
    assert {tag for one in read(path, label="DEPREL") for tag in one.tags} == {"dep"}
    assert [(one.text, one.tags) for one in read(path, gold=False)] == [(one.text, ()) for one in documents]
    with pytest.raises(UserError, match=r"there is no such column; known: ID, FORM, .*MISC, NER"):
        read(path, label="NERD")


def test_parts_of_speech_are_read_unless_entities_are_marked(tmp_path, lines):
    path = tmp_path / "a.conllu"
    path.write_text("".join(conllu(one, number, misc=False) for number, one in enumerate(lines)))
    notes = []
    sentences = read(path, notes)
    assert {tag for one in sentences for tag in one.tags} == set(POS)
    assert "the tags are those of UPOS" in notes[0]


MULTIWORD = """# newdoc id = a
# text = Vámonos al mar.
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\t_\tVERB\t_\t_\t_\t_\t_\t_
2\tnos\t_\tPRON\t_\t_\t_\t_\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\t_\tADP\t_\t_\t_\t_\t_\t_
4\tel\t_\tDET\t_\t_\t_\t_\t_\t_
5\tmar\t_\tNOUN\t_\t_\t_\t_\t_\tSpaceAfter=No
6\t.\t_\tPUNCT\t_\t_\t_\t_\t_\t_

# newdoc id = b
1\tSí\t_\tINTJ\t_\t_\t_\t_\t_\t_
"""


def test_words_of_multiword_tokens_are_read(tmp_path):
    (tmp_path / "a.conllu").write_text(MULTIWORD)
    first, second = read(tmp_path / "a.conllu")
    assert first.text == "Vamos nos a el mar."
    assert first.tags == ("VERB", "PRON", "ADP", "DET", "NOUN", "PUNCT")
    assert (first.document, second.document, second.words) == (0, 1, ["Sí"])


@pytest.mark.parametrize("row", ["{word} _ _ {tag}", "{word}\t_\t_\t{tag}"])
def test_multiconer(tmp_path, lines, row):
    text = ""
    for number, document in enumerate(lines):
        text += f"# id 5239d808-{number}\tdomain=en\n"
        text += "".join(row.format(word=word, tag=tag) + "\n" for word, tag in zip(*iob2(document), strict=True)) + "\n"
    path = tmp_path / "train.conll"
    path.write_text(text + "# id x\tdomain=en\n" + row.format(word="#", tag="O") + "\n")
    *sentences, hash_sign = read(path)
    assert [(one.words, list(one.tags)) for one in sentences] == [iob2(one) for one in lines]
    assert hash_sign.words == ["#"]
    assert [one.words for one in read(path, gold=False)][:-1] == [iob2(one)[0] for one in lines]


def test_numbered_columns(tmp_path, lines):
    text = ""
    for number, document in enumerate(lines):
        text += f"#\thttp://example.com [2009-10-17]\n# text = {document.text}\n" if number % 2 else "# sent_id = x\n"
        pairs = zip(*iob2(document), strict=True)
        text += "".join(f"{index}\t{word}\t{tag}\tB-Y\n" for index, (word, tag) in enumerate(pairs, 1)) + "\n"
    path = tmp_path / "train.iob2"
    path.write_text(text)
    assert [(one.words, list(one.tags)) for one in read(path)] == [iob2(one) for one in lines]
    assert {tag for one in read(path, label="3") for tag in one.tags} == {"B-Y"}


def test_a_hash_sign_as_a_word_is_no_comment(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("# O\none B-X\n\n#\tO\n".replace("\t", " "))
    assert [one.words for one in read(path)] == [["#", "one"], ["#"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# text = a\n1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n", "a.conllu:2: the word 'a' has no UPOS; choose another column"),
        ("# text = a\n1\ta\t_\tX\t_\t_\t_\t_\t_\t_\n2\tb\tX\n", "a.conllu:3: 3 columns, but the lines before have 10"),
        (
            "# text = a\n1\ta\t_\tX\t_\t_\t_\t_\t_\t_\nb\tb\t_\tX\t_\t_\t_\t_\t_\t_\n",
            "a.conllu:3: 'b' is not the number of a",
        ),
        ("# global.columns = ID FORM X\n1\ta\tN\n", "there is no column UPOS; choose one of ID, FORM, X"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    (tmp_path / "a.conllu").write_text(text)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.conllu")


def test_columns_named_in_the_file(tmp_path):
    (tmp_path / "a.cupt").write_text("# global.columns = ID FORM NE\n1\tAnna\tB-X\n2\tmet\tO\n\n")
    (sentence,) = read(tmp_path / "a.cupt", label="NE")
    assert (sentence.words, sentence.tags) == (["Anna", "met"], ("B-X", "O"))
    assert split_text("Anna met").words == sentence.words


@pytest.mark.parametrize("separator", ["\t", " "])
@pytest.mark.parametrize("start", [0, 1, None])
def test_numbers_of_words_are_no_words(tmp_path, start, separator):
    """Without comments, the first column would be read as the words."""
    sentences = [[("EU", "B-ORG"), ("met", "O"), ("Bob", "B-PER")], [("Yes", "O")]]
    rows = [
        "".join(
            separator.join([str(of if start is None else start + number), word, tag]) + "\n"
            for number, (word, tag) in enumerate(words)
        )
        for of, words in enumerate(sentences)  # None: the number of the sentence
    ]
    (tmp_path / "a.conll").write_text("\n".join(rows))
    for gold in (True, False):
        with pytest.raises(UserError, match=r"a\.conll: the first column numbers the words, or .*choose .*text.: 1"):
            read_annotations([tmp_path / "a.conll"], columns={}, gold=gold)
    read = read_annotations([tmp_path / "a.conll"], columns={"text": "1", "label": "2"})
    assert [list(zip(sentence.words, sentence.tags, strict=True)) for sentence in read] == sentences
    (tmp_path / "a.conll").write_text("1 CD O\n2 CD O\n\nBob NNP B-PER\n")  # numbers are words
    assert read_annotations([tmp_path / "a.conll"], columns={})[0].words == ["1", "2"]
