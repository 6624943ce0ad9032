"""Every answer that fits lies in a window, whatever the passage; every window contains the question.

The search for spans beside trying all of them; candidate tokens of windows as a table, and back.
"""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from unmask.data.batches.batch import Sample, collate
from unmask.data.labelled.question_files import Answer, Question
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.wordpiece import WORDPIECE, bert_wordpiece
from unmask.tasks.passage_windows import (
    Candidates,
    WindowSettings,
    best_spans,
    cut_passages,
    extend_over_marks,
    token_span,
    window_starts,
)
from unmask.tasks.question_answering import QuestionAnswering

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdeio歐洲在１.,?각ᄀ ̈"
PIECES = [*SPECIAL, *LETTERS.replace(" ", ""), *(f"##{letter}" for letter in "abcdeio"), "cab", "##ab"]
TOKENIZER = Tokenizer(bert_wordpiece({piece: id for id, piece in enumerate(PIECES)}, lowercase=True), WORDPIECE)
TEXTS = st.text(alphabet=st.sampled_from(LETTERS + "AÉ\n\u200b"), min_size=1, max_size=80) | st.text(
    min_size=1, max_size=40
)


@st.composite
def tasks(draw):
    """Valid settings with short windows."""
    question, answer, stride = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 8))
    length = 3 + question + answer + stride + draw(st.integers(0, 6))
    no_answer = draw(st.booleans())
    return QuestionAnswering(length=length, question=question, answer=answer, stride=stride, no_answer=no_answer)


def window_settings(task):
    return WindowSettings(task.length, task.stride, task.question, task.no_answer)


@st.composite
def cases(draw):
    """A task, a question with a passage and an answer, and the number of tokens of the answer."""
    task, question, passage = draw(tasks()), draw(TEXTS), draw(TEXTS)
    offsets = extend_over_marks(passage, TOKENIZER.encode_offsets_many([passage])[0][1])
    assume(len(offsets))
    first = draw(st.integers(0, len(offsets) - 1))
    last = draw(st.integers(first, min(len(offsets) - 1, first + task.answer - 1)))
    start, end = int(offsets[first, 0]), int(offsets[last, 1])
    assume(start < end)
    first, last = token_span(offsets, start, end)  # several tokens may share a character
    return task, Question("q", question, passage, (Answer(passage[start:end], start),)), last - first + 1


def check_sequence(task, example, window):
    """Check the sequence, [CLS] question [SEP] window [SEP], and the positions of the passage."""
    question = TOKENIZER.encode(example.question)[: task.question]
    ids = window.sample.ids.tolist()
    assert len(ids) <= task.length
    assert ids[: len(question) + 2] == [TOKENIZER.cls, *question, TOKENIZER.sep]
    assert ids[-1] == TOKENIZER.sep
    begin, tokens = len(question) + 2, len(window.offsets)
    assert len(ids) == begin + tokens + 1
    assert window.sample.segments.tolist() == [0] * begin + [1] * (tokens + 1)
    positions = window.sample.positions["passage"].tolist()
    assert positions == [0] * task.no_answer + list(range(begin, begin + tokens))


@given(cases())
def test_every_answer_that_fits_is_in_a_window_and_comes_back(case):
    task, example, tokens = case
    answer, passage = example.answers[0], example.passage
    end = answer.start + len(answer.text)
    framed = task.frame(TOKENIZER, [example], (), gold=False)
    windows, notes = cut_passages(TOKENIZER, [example], window_settings(task), gold=False)
    assert [window.sample.key for window in windows] == [(0, number) for number in range(len(windows))]
    logits = []
    for window in windows:
        check_sequence(task, example, window)
        values = np.zeros((len(window.offsets) + task.no_answer, 2), np.float32)
        if window.offsets[0, 0] <= answer.start and window.offsets[-1, 1] >= end:
            first, last = token_span(window.offsets, answer.start, end)
            values[first + task.no_answer, 0] = values[last + task.no_answer, 1] = 9
        logits.append(values)
    if tokens > task.answer:
        return
    assert any(values.any() for values in logits), "the answer is in no window"
    (found,) = framed.read(logits)
    assert (found.answer, passage[found.start : found.end]) == (answer.text, answer.text)
    assert found.nbest[0].answer == found.answer
    assert sum(span.probability for span in found.nbest) == pytest.approx(1)
    told = [note for note in notes if "unknown to the vocabulary" not in note]
    assert bool(told) == (len(TOKENIZER.encode(example.question)) > task.question)


@pytest.mark.parametrize(("passage", "answer"), [("the cafe\u0301 is", "cafe\u0301"), ("كتابٌ", "كتابٌ")])
def test_an_answer_keeps_the_accents_that_the_vocabulary_drops(passage, answer):
    words = {piece: id for id, piece in enumerate([*SPECIAL, "the", "cafe", "is", "كتاب"])}
    uncased = Tokenizer(bert_wordpiece(words, lowercase=True), WORDPIECE)
    task = QuestionAnswering(length=16, question=1, answer=1, stride=1, no_answer=False)
    example = Question("q", "the", passage, (Answer(answer, passage.index(answer)),))
    framed = task.frame(uncased, [example], (), gold=True)
    question, gold = 3, framed.samples[0].labels["question_answering"]
    values = np.zeros((len(framed.samples[0].positions["passage"]), 2), np.float32)
    values[gold[0] - question, 0] = values[gold[1] - question, 1] = 9
    (found,) = task.frame(uncased, [example], (), gold=False).read([values])
    assert (found.answer, passage[found.start : found.end]) == (answer, answer)


@given(cases())
def test_every_answer_that_fits_is_trained_on(case):
    task, example, tokens = case
    windows, notes = cut_passages(TOKENIZER, [example], window_settings(task), gold=True)
    question = min(task.question, len(TOKENIZER.encode(example.question)))
    if tokens > task.length - 3 - question:
        assert windows == []
        assert "questions left out of the loss because the answer is longer than a window: 1" in notes
        return
    found = 0
    for window in windows:
        check_sequence(task, example, window)
        first, last = window.sample.labels["question_answering"] - question - 2
        if window.sample.labels["question_answering"].any():
            found += 1
            assert example.passage[window.offsets[first, 0] : window.offsets[last, 1]] == example.answers[0].text
        else:
            assert task.no_answer
    assert found > 0


@given(st.integers(0, 300), st.integers(1, 60), st.integers(1, 60))
def test_windows_cover_the_passage(tokens, capacity, stride):
    starts = window_starts(tokens, capacity, stride)
    assert starts[0] == 0
    assert all(0 < later - earlier <= min(capacity, stride) for earlier, later in itertools.pairwise(starts))
    assert starts[-1] + capacity >= tokens
    assert starts[-1] == 0 or starts[-2] + capacity < tokens, "no more windows than needed"


WORDS = "a b c d e a b c d e a b c d e a b c d e"  # 20 tokens
SETTINGS = WindowSettings(length=12, stride=5, question=2, no_answer=False)  # 7 passage tokens per window


def question(text, start, **more):
    answers = () if start is None else (Answer(text, start),)
    return Question("q", "a e", WORDS, answers, file="f.json", place="p", **more)


def labels(windows):
    return [tuple(window.sample.labels["question_answering"].tolist()) for window in windows]


def test_windows_without_the_answer_are_left_out_or_point_to_cls():
    example = question("c d", 2 * 7)  # tokens 7 and 8, in the window that starts at 5
    assert [window.offsets[0, 0] // 2 for window in cut_passages(TOKENIZER, [example], SETTINGS, gold=False)[0]] == [
        0,
        5,
        10,
        15,
    ]
    windows, notes = cut_passages(TOKENIZER, [example], SETTINGS, gold=True)
    assert labels(windows) == [(4 + 2, 4 + 3)]
    assert notes == ("windows left out of the loss because they do not contain the answer: 3",)
    nullable = WindowSettings(12, 5, 2, no_answer=True)
    windows, notes = cut_passages(TOKENIZER, [example], nullable, gold=True)
    assert (labels(windows), notes) == ([(0, 0), (6, 7), (0, 0), (0, 0)], ())
    impossible = question("", None, impossible=True)
    windows, notes = cut_passages(TOKENIZER, [impossible], nullable, gold=True)
    assert (labels(windows), notes) == ([(0, 0)] * 4, ())
    assert cut_passages(TOKENIZER, [impossible], SETTINGS, gold=True) == (
        [],
        ("questions left out of the loss because they have no answer, but the model always gives one: 1",),
    )


def test_an_answer_in_no_regular_window_gets_its_own():
    example = question(WORDS[2 * 4 : 2 * 9 - 1], 2 * 4)  # tokens 4 to 8, which exceed windows 0-6 and 5-11
    windows, notes = cut_passages(TOKENIZER, [example], SETTINGS, gold=True)
    assert labels(windows) == [(4 + 1, 4 + 5)]
    assert windows[0].offsets[0, 0] == 2 * 3, "in the middle"
    assert notes == ("windows left out of the loss because they do not contain the answer: 4",)
    for first, last in ((13, 19), (0, 6), (9, 15)):
        whole = question(WORDS[2 * first : 2 * last + 1], 2 * first)
        assert labels(cut_passages(TOKENIZER, [whole], SETTINGS, gold=True)[0]) == [(4, 10)]


def test_what_cannot_be_trained_on_is_counted():
    long = question(WORDS[: 2 * 8 - 1], 0)
    nowhere = Question("q", "a b c d", WORDS, (Answer("x", None),))
    windows, notes = cut_passages(TOKENIZER, [long, nowhere, nowhere], SETTINGS, gold=True)
    assert windows == []
    assert notes == (
        "questions truncated to 2 tokens: 2",
        "questions left out of the loss because the answer is longer than a window: 1",
        "questions left out of the loss because no gold answer occurs in the passage: 2",
    )


def test_the_first_answer_that_occurs_is_trained_on():
    example = Question("q", "a", WORDS, (Answer("x", None), Answer("b", 2), Answer("c", 4)))
    assert labels(cut_passages(TOKENIZER, [example], SETTINGS, gold=True)[0]) == [(3 + 1, 3 + 1)]


CHARACTERS = "彼得住在哪裡？是一個居歐洲的聰明男孩。"


@pytest.mark.parametrize("mark", ["？", " ？"])
def test_the_example_of_the_lecture(mark):
    """歐洲 is at 17 and 18 if the question ends with its question mark and so has 7 tokens; otherwise at 16 and 17."""
    pieces = {piece: id for id, piece in enumerate([*SPECIAL, *CHARACTERS])}
    check_lecture(Tokenizer(bert_wordpiece(pieces, lowercase=True), WORDPIECE), mark)


@pytest.mark.shared
@pytest.mark.parametrize("mark", ["？", " ?"])
def test_the_example_of_the_lecture_with_a_published_vocabulary(shared, mark):
    from unmask.data.tokenizers.load import load_tokenizer

    check_lecture(load_tokenizer(shared / "vocabularies/bert-base-chinese"), mark)


def check_lecture(tokenizer, mark):
    passage = "彼得是一個居住在歐洲的聰明男孩。"
    example = Question("q", f"彼得住在哪裡{mark}", passage, (Answer("歐洲", passage.index("歐洲")),))
    task = QuestionAnswering(length=64, no_answer=False)
    (sample,) = task.frame(tokenizer, [example], (), gold=True).samples
    assert sample.labels["question_answering"].tolist() == [17, 18]
    assert tokenizer.tokens(sample.ids[17:19]) == ["歐", "洲"]
    without = Question("q", "彼得住在哪裡", passage, example.answers)
    (sample,) = task.frame(tokenizer, [without], (), gold=True).samples
    assert sample.labels["question_answering"].tolist() == [16, 17]


def test_no_answer_is_at_the_summary_token(monkeypatch):
    """[CLS], or the last token in a left-to-right model: only that one has seen the whole passage."""
    example = Question("", "who?", "a cat sat.")
    for extracts in (False, True):
        monkeypatch.setattr(TOKENIZER, "summary", "extract" if extracts else "first")
        (window,), _ = cut_passages(TOKENIZER, [example], WindowSettings(32, 4, 8, no_answer=True), gold=False)
        first, *rest = window.sample.positions["passage"].tolist()
        assert first == (len(window.sample) - 1 if extracts else 0)
        assert rest == list(range(rest[0], len(window.sample) - 1))
        impossible = Question("", "who?", "a cat sat.", impossible=True)
        (window,), _ = cut_passages(TOKENIZER, [impossible], WindowSettings(32, 4, 8, no_answer=True), gold=True)
        assert window.sample.labels["question_answering"].tolist() == [first, first]


def test_where_cls_is_last_the_passage_comes_first(monkeypatch):
    monkeypatch.setattr(TOKENIZER, "summary", "last")
    example = Question("q", "ab", "cab ed cab", (Answer("ed", 4),))
    settings = WindowSettings(length=20, stride=8, question=4, no_answer=True)
    (window,), _ = cut_passages(TOKENIZER, [example], settings, gold=True)
    question, passage = (TOKENIZER.encode(text).tolist() for text in (example.question, example.passage))
    assert window.sample.ids.tolist() == [*passage, TOKENIZER.sep, *question, TOKENIZER.sep, TOKENIZER.cls]
    assert window.sample.segments.tolist() == [0] * (len(passage) + 1) + [1] * (len(question) + 1) + [2]
    end = len(window.sample) - 1
    assert window.sample.positions["passage"].tolist() == [end, *range(len(passage))]
    start, stop = window.sample.labels["question_answering"]
    assert TOKENIZER.decode(window.sample.ids[start : stop + 1].tolist()) == "ed"


@given(st.integers(1, 12), st.integers(1, 15), st.integers(1, 200), st.integers(0, 10**6))
def test_the_best_spans_are_found(tokens, longest, number, seed):
    starts, ends = np.random.default_rng(seed).normal(size=(2, tokens)).astype(np.float32)
    every = [(starts[i] + ends[j], i, j) for i in range(tokens) for j in range(i, min(tokens, i + longest))]
    expected = sorted(every, reverse=True)[:number]
    assert sorted(best_spans(starts, ends, longest, number), reverse=True) == expected


def test_a_passage_without_tokens_has_no_spans():
    assert best_spans(np.zeros(0), np.zeros(0), 5, 5) == []


PASSAGES = {0: (5, [1, 2, 3]), 1: (4, []), 2: (9, [0, 4, 5, 7]), 3: (9, [8])}
"""Of each window its length and its candidates; the second one has none."""


@pytest.fixture
def batch():
    return collate(
        [
            Sample(key=(number,), ids=np.zeros(length, np.int64), positions={"passage": np.array(at, np.int64)})
            for number, (length, at) in PASSAGES.items()
        ]
    )


@pytest.mark.parametrize("windows", [None, 3])
def test_values_are_in_the_row_of_their_window_and_the_column_of_their_position(batch, windows):
    found = Candidates(batch, windows)
    assert [batch.keys[number] for number in found.sequence.tolist()] == [(0,), (2,), (3,)]
    values = torch.randn(8)
    table = found.table(values)
    assert table.shape == (3, 9)
    assert table.isfinite().sum() == 8
    assert torch.equal(table[0, 1:4], values[:3])
    assert torch.equal(table[1, [0, 4, 5, 7]], values[3:7])
    assert table[2, 8] == values[7]
    assert torch.equal(found.of_table(table), values)
    assert torch.equal(found.table(torch.randn(8, 2)).isfinite().all(2), table.isfinite())


def test_a_candidate_is_found_by_its_position(batch):
    found = Candidates(batch)
    assert found.find(torch.tensor([3, 5, 8])).tolist() == [2, 5, 7]
    assert found.position.tolist() == [1, 2, 3, 0, 4, 5, 7, 8]


def test_without_candidates_there_are_no_windows(batch):
    (alone,) = (Sample(key=(0,), ids=np.zeros(4, np.int64), positions={"passage": np.zeros(0, np.int64)}),)
    found = Candidates(collate([alone]))
    assert found.table(torch.zeros(0)).shape == (0, 4)
    assert len(found.sequence) == len(found.find(torch.zeros(0, dtype=torch.int64))) == 0
