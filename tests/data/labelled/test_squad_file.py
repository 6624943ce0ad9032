"""Tests of reading files in SQuAD format: wrong offsets are repaired and counted, other mistakes are named."""

import gzip
import json
import lzma
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.question_files import Answer, describe_repairs, read_squad
from unmask.metrics.question_answering import example_scores
from unmask.support.errors import UserError

PASSAGE = "The tower in Paris was built in Paris by Eiffel's firm; 😀 it is 330 m high."


def answer(text, start=None):
    return {"text": text, "answer_start": PASSAGE.index(text) if start is None else start}


def question(id="q1", *answers, text="Where?", **more):
    return {"id": id, "question": text, "answers": list(answers), **more}


def content(*questions, passage=PASSAGE):
    return {"version": "1.1", "data": [{"title": "x", "paragraphs": [{"context": passage, "qas": list(questions)}]}]}


def write(path, value):
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    path.write_bytes({".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)(raw))
    return path


def read(tmp_path, value, **options):
    return read_squad([write(tmp_path / "data.json", value)], **options)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.json.xz"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_questions_and_places(tmp_path, name, mark):
    value = content(question("q1", answer("Paris"), answer("330 m")), question(7, is_impossible=True))
    value["data"].append(content(question("q3", answer("😀"), unknown=[1]))["data"][0])
    path = write(tmp_path / name, mark + json.dumps(value).encode())
    first, second, third = read_squad([path])
    assert (first.id, first.question, first.passage) == ("q1", "Where?", PASSAGE)
    assert first.answers == (Answer("Paris", 13), Answer("330 m", 64))
    assert first.place == "article 1, paragraph 1, question 1 (id q1)"
    assert (second.id, second.answers, second.impossible, second.file) == ("7", (), True, str(path))
    assert third.place == "article 2, paragraph 1, question 1 (id q3)"
    assert third.passage[third.answers[0].start] == "😀", "offsets are code points"
    assert describe_repairs([first, second, third]) == []


def test_several_files_may_share_ids(tmp_path):
    paths = [write(tmp_path / name, content(question("q", answer("Paris")))) for name in ("en.json", "de.json")]
    assert [one.file for one in read_squad(paths)] == [str(path) for path in paths]


DRCD = {
    "version": "1.3",
    "data": [
        {
            "title": "臺北捷運",
            "id": "2117",
            "paragraphs": [
                {
                    "context": "臺北捷運於1996年通車，首條路線為木柵線。",
                    "id": "2117-1",
                    "qas": [
                        {
                            "id": "2117-1-1",
                            "question": "臺北捷運何時通車？",
                            "answers": [
                                {"id": "1", "text": "1996年", "answer_start": 5},
                                {"id": "2", "text": "於1996年", "answer_start": 4},
                            ],
                        },
                        {
                            "id": "2117-1-2",
                            "question": "首條路線為何？",
                            "answers": [{"id": "1", "text": "木柵線", "answer_start": 18}],
                        },
                    ],
                }
            ],
        }
    ],
}
MLQA = {  # questions in another language than their passages
    "data": [
        {
            "title": "Puente de los Tilos",
            "paragraphs": [
                {
                    "context": "El puente de los Tilos, inaugurado en 2004, mide 357 m.",
                    "qas": [
                        {
                            "question": "How long is the bridge?",
                            "answers": [{"text": "357 m", "answer_start": 49}],
                            "id": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
                        }
                    ],
                }
            ],
        }
    ],
    "version": 1.0,
}
SQUAD_IT = {
    "data": [
        {
            "title": "Caffè",
            "paragraphs": [
                {
                    "context": "Il caffè è amaro.",
                    "qas": [
                        {
                            "id": "5725b33f6a3fe71400b8952d",
                            "answers": [{"answer_start": 11, "text": "amaro"}],
                            "question": "Com'è il caffè?",
                        }
                    ],
                }
            ],
        },
        {
            "title": "Sole",
            "paragraphs": [
                {
                    "context": "Il sole sorge a est.",
                    "qas": [
                        {
                            "id": "5725b33f6a3fe71400b8952e",
                            "answers": [{"answer_start": 16, "text": "est"}, {"answer_start": 14, "text": "a est"}],
                            "question": "Dove sorge il sole?",
                        }
                    ],
                }
            ],
        },
    ],
    "version": "1.1",
}
SQUAD_2 = {
    "version": "v2.0",
    "data": [
        {
            "title": "Tower",
            "paragraphs": [
                {
                    "qas": [
                        {
                            "question": "How high is it?",
                            "id": "56ddde6b9a695914005b9628",
                            "answers": [{"text": "330 m", "answer_start": 13}, {"text": "330", "answer_start": 13}],
                            "is_impossible": False,
                        },
                        {
                            "plausible_answers": [{"text": "330 m", "answer_start": 13}],
                            "question": "How wide is it?",
                            "id": "5ad39d53604f3c001a3fe8d1",
                            "answers": [],
                            "is_impossible": True,
                        },
                    ],
                    "context": "The tower is 330 m high.",
                }
            ],
        }
    ],
}
SHAPES = {
    "DRCD": (
        DRCD,
        [
            ("2117-1-1", "臺北捷運何時通車？", [("1996年", 5), ("於1996年", 4)], False),
            ("2117-1-2", "首條路線為何？", [("木柵線", 18)], False),
        ],
    ),
    "MLQA": (MLQA, [("0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", "How long is the bridge?", [("357 m", 49)], False)]),
    "SQuAD-it": (
        SQUAD_IT,
        [
            ("5725b33f6a3fe71400b8952d", "Com'è il caffè?", [("amaro", 11)], False),
            ("5725b33f6a3fe71400b8952e", "Dove sorge il sole?", [("est", 16), ("a est", 14)], False),
        ],
    ),
    "SQuAD 2.0": (
        SQUAD_2,
        [
            ("56ddde6b9a695914005b9628", "How high is it?", [("330 m", 13), ("330", 13)], False),
            ("5ad39d53604f3c001a3fe8d1", "How wide is it?", [], True),
        ],
    ),
}


@pytest.mark.parametrize(("value", "expected"), SHAPES.values(), ids=SHAPES)
def test_shapes_of_published_files(tmp_path, value, expected):
    found = read(tmp_path, value)
    read_back = [(one.id, one.question, [(it.text, it.start) for it in one.answers], one.impossible) for one in found]
    assert read_back == expected
    assert describe_repairs(found) == [], "the offsets are those of the file"


def test_without_gold_no_answers_are_needed(tmp_path):
    bare = {"id": "q", "question": "Where?"}
    (found,) = read(tmp_path, content(bare), gold=False)
    assert (found.answers, found.impossible) == ((), False)
    (found,) = read(tmp_path, content(question("q", answer("Rome", 3))), gold=False)
    assert found.answers == ()


@pytest.mark.parametrize(
    ("start", "expected"), [(13, 13), (14, 13), (0, 13), (-1, 13), (22, 13), (23, 32), (31, 32), (33, 32), (500, 32)]
)
def test_a_wrong_offset_is_moved_to_the_nearest_occurrence_and_counted(tmp_path, start, expected):
    found = read(tmp_path, content(question("q", answer("Paris", start), answer("Eiffel"))))
    assert found[0].answers[0] == Answer("Paris", expected, moved=start not in (13, 32))
    repairs = describe_repairs(found)
    if start == 13:
        assert repairs == []
    else:
        assert len(repairs) == 1
        assert repairs[0].startswith(
            "answers that are not at their offset, and were moved to their nearest occurrence: 1 of 2 (the first: "
        )
        assert repairs[0].endswith("data.json: article 1, paragraph 1, question 1 (id q))")


SPACES = st.sampled_from([" ", "  ", "\n", "\t ", "\u00a0", "\u2009", "\u3000"])


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "ab", "é.", "世界"]), SPACES), min_size=1, max_size=12),
    st.tuples(st.integers(0, 11), st.integers(1, 3)),
    st.integers(-2, 40),
    st.tuples(SPACES, SPACES, SPACES),
    st.text("ab é.世界", max_size=8),
)
def test_answers_are_found_with_other_spaces_between_their_words(words, chosen, offset, spaces, predicted):
    """As by trying every part of the passage, those within words last; no score depends on which of both texts is the
    gold answer."""
    passage = "".join(word + space for word, space in words)
    start = min(chosen[0], len(words) - 1)
    text = spaces[0] + spaces[1].join(word for word, _ in words[start : start + chosen[1]]) + spaces[2]
    with TemporaryDirectory() as folder:
        (found,) = read(Path(folder), content(question("q", answer(text, offset)), passage=passage))
    (gold,) = found.answers
    if found.counting == "characters" and passage[max(0, offset) :].startswith(text) and offset >= 0:
        assert gold == Answer(text, offset)
        return
    parts = [(i, passage[i:j]) for i in range(len(passage)) for j in range(i + 1, len(passage) + 1)]
    same = [(i, part) for i, part in parts if part == part.strip() and part.split() == text.split()]
    assert gold.moved or passage.startswith(gold.text, gold.start)
    assert gold.text.split() == text.split()
    if gold.moved and found.counting == "characters":
        cut = [passage[at - 1 : at + 1] == "ab" for at in range(len(passage) + 1)]
        assert (gold.start, gold.text) == min(
            same, key=lambda it: (cut[it[0]] + cut[it[0] + len(it[1])], abs(it[0] - max(0, offset)))
        )
    for scorer in ("SQuAD", "CMRC 2018", "SQuAD by characters"):
        scores = [example_scores([[each]], [predicted], scorer).tolist() for each in (gold.text, text)]
        assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("passage", "text", "start", "expected"),
    [
        ("The party at the art museum began.", "art", 0, 17),
        ("The party began.", "art", 0, 5),  # there is no other
        ("In 2007 he had 7 cars.", "7", 0, 15),
        ("美术馆在巴黎的巴黎。", "巴黎", 0, 4),  # words without spaces are not cut
        ("काल का नाम", "क", 9, 4),  # a vowel belongs to its consonant: no occurrence is whole, the nearest counts
    ],
)
def test_an_answer_is_not_moved_into_a_word(tmp_path, passage, text, start, expected):
    (found,) = read(tmp_path, content(question("q", answer(text, start)), passage=passage))
    assert found.answers == (Answer(text, expected, moved=True),)


def test_an_answer_that_does_not_occur_is_used_for_scoring_and_counted(tmp_path):
    found = read(tmp_path, content(question("q", answer("Rome", 13), answer("Paris"))))
    assert found[0].answers == (Answer("Rome", None), Answer("Paris", 13))
    (repair,) = describe_repairs(found)
    assert repair.startswith(
        "answers that do not occur in their passages, and are used only for scoring: 1 of 2 (the first: "
    )


WHERE = r"data\.json: article 1, paragraph 1, question 1"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", r"data\.json: broken JSON"),
        (b'{"data":\n [}', r"data\.json:2: broken JSON .*; a file in SQuAD format is a single JSON value"),
        (b'{"data":\n ["\xff"]}', r"data\.json:2: not UTF-8 \(byte 4 of the line\)"),
        (b"[" * 100_000, r"data\.json: broken JSON"),
        ([], r"data\.json: there are no questions in the file"),
        ({"data": []}, r"data\.json: there are no questions in the file"),
        ({"data": {}}, r"data\.json: 'data' is dict, not list"),
        ({"rows": []}, r"data\.json: 'data' is missing; files must be in SQuAD format"),
        ({"data": [1]}, r"data\.json: article 1: int, not an object"),
        ({"data": [{"title": "x"}]}, r"data\.json: article 1: 'paragraphs' is missing"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, r"data\.json: article 1, paragraph 1: 'context' is missing"),
        (content(question("q", answer("Paris")), passage=" \n"), r"article 1, paragraph 1: the context is empty"),
        ({"data": [{"paragraphs": [{"context": "x"}]}]}, r"data\.json: article 1, paragraph 1: 'qas' is missing"),
        (content({"question": "Where?"}), WHERE + ": 'id' is missing"),
        (content({"id": "q", "answers": []}), WHERE + r" \(id q\): 'question' is missing"),
        (content({"id": 1.5, "question": "Where?"}), WHERE + ": 'id' is float, not str"),
        (content({"id": True, "question": "Where?"}), WHERE + ": 'id' is bool, not str"),
        (content(question("q", answer("Paris"), text=" ")), WHERE + r" \(id q\): the question is empty"),
        (content({"id": "q", "question": "Where?"}), WHERE + r" \(id q\): 'answers' is missing"),
        (
            content(question("q")),
            WHERE + r" \(id q\): no answer; a question without an answer needs \"is_impossible\": t",
        ),
        (content(question("q", is_impossible=False)), WHERE + r" \(id q\): no answer"),
        (content(question("q", answer("Paris"), is_impossible=True)), "is_impossible is true, but there are answers"),
        (content(question("q", is_impossible="yes")), "'is_impossible' is str, not bool"),
        (content(question("q", {"answer_start": 13})), WHERE + r" \(id q\), answer 1: 'text' is missing"),
        (
            content(question("q", answer("Paris"), {"text": "Paris"})),
            WHERE + r" \(id q\), answer 2: 'answer_start' is missing",
        ),
        (
            content(question("q", answer("", 3))),
            r"\(id q\): the text of an answer is empty; .* needs \"is_impossible\": true",
        ),
        (content(question("q", answer("Paris", True))), r"answer 1: 'answer_start' is bool, not int"),
        (content(question("q", answer("Paris", "13"))), r"answer 1: 'answer_start' is str, not int"),
        (
            content(question("q", answer("Paris")), question("q", answer("Paris"))),
            r"question 2: the id 'q' is also that of article 1, paragraph 1, question 1; ids must be unique",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, value, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, value)


def test_D10_a_bomb_is_capped(tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.data.text.files.MAX_JSON", 1000)
    with pytest.raises(UserError, match="has more than 1,000 bytes; split it into several files"):
        read(tmp_path, content(question("q", answer("Paris"), text="?" * 1000)))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "questions", "repairs"),
    [
        ("squad/dev-v1.1", 10_570, []),
        ("squad/train_sample", 4847, []),
        ("cmrc2018/train", 10_142, []),  # all offsets that seem wrong, 21 and 7, count UTF-16 units
        ("cmrc2018/dev", 3219, ["193 of 9,657"]),
        *((f"xquad/xquad.{language}", 1190, []) for language in ("en", "zh", "es", "ar", "de")),
    ],
)
def test_published_files(shared, name, questions, repairs):
    found = read_squad([shared / f"data/qa/{name}.json.xz"])
    counted, lines = name.startswith("cmrc"), describe_repairs(found)
    assert (
        len(found) == questions
        and ["offsets count UTF-16 units" in line for line in lines[:counted]] == [True] * counted
    )
    assert [line.split(": ")[1].removesuffix(" (the first") for line in lines[counted:]] == repairs
    for one in found:
        assert all(one.passage.startswith(a.text, a.start) for a in one.answers if a.start is not None)


@pytest.mark.shared
def test_published_mistakes_are_named(shared):
    with pytest.raises(
        UserError, match=r"article 189, paragraph 1, question 5 \(id TRIAL_776_QUERY_4\): the question is"
    ):
        read_squad([shared / "data/qa/cmrc2018/trial.json.xz"])
    with pytest.raises(UserError, match=r"paragraph 1, question 2: the id '5733be284776f41900661182' is also that of"):
        read_squad([shared / "data/qa/format_samples/squad2.json"])


COUNTS = {
    "characters": len,
    "UTF-16 units": lambda text: len(text.encode("utf-16-le")) // 2,
    "bytes of UTF-8": lambda text: len(text.encode()),
}


WORDS = ["a", "b", "the", "cat", "😀", "😀😀", "é", "中", ".", "\n"]


@pytest.mark.parametrize("units", COUNTS)
@given(st.lists(st.sampled_from(WORDS), min_size=3, max_size=30), st.data())
def test_offsets_count_whatever_puts_the_answers_at_them(units, words, data):
    """Every word is an answer, so that most occur several times: the nearest occurrence is often another one."""
    passage = " ".join(["é 😀", *words, "z"])  # whose offset tells all units apart
    starts = [match.start() for match in re.finditer(r"\S+", passage)]
    texts = [match[0] for match in re.finditer(r"\S+", passage)]
    answers = [answer(text, COUNTS[units](passage[:start])) for text, start in zip(texts, starts, strict=True)]
    with TemporaryDirectory() as folder:
        (found,) = read_squad([write(Path(folder) / "a.json", content(question("q", *answers), passage=passage))])
    assert found.answers == tuple(Answer(text, start) for text, start in zip(texts, starts, strict=True))
    assert [note.partition(": ")[2] for note in describe_repairs([found])] == (
        [] if units == "characters" else [f"offsets count {units}, as the texts of the answers show"]
    )
