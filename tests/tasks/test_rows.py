"""Rows as samples: segments and truncation of pairs; holding out a stratified tenth."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unmask.data.batches.frame import Frame
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers import words
from unmask.data.tokenizers.train import train_vocabulary
from unmask.support.errors import ShareNote, UserError
from unmask.tasks.classification import Classification
from unmask.tasks.embedding import Embedding
from unmask.tasks.mistakes import Passage
from unmask.tasks.multi_label import MultiLabel
from unmask.tasks.regression import Regression
from unmask.tasks.rows import as_rows, cut_longer, frame_rows, passages


@pytest.mark.parametrize(
    ("task", "line", "texts"),
    [
        (Classification(), "gj04\t1\t\tThe dog sees.", {"text": "The dog sees."}),
        (MultiLabel(), "gj04\t1\t\tThe dog sees.", {"text": "The dog sees."}),
        (Regression(), "2.5\tThe dog\tA cat", {"text": "The dog", "text_b": "A cat"}),
        (Embedding(), "2.5\tThe dog\tA cat", {"text": "The dog", "text_b": "A cat"}),
    ],
)
def test_each_task_knows_a_published_format_without_a_header(tmp_path, task, line, texts):
    path = tmp_path / "rows.tsv"
    path.write_text(f"{line}\n" * 2)
    one_by_one = list(task.iterate(path, columns={}))
    assert [row.values for row in one_by_one] == [texts, texts]
    assert task.read([path], columns={}, gold=False) == one_by_one
    assert len(task.read([path], columns={})) == 2


@pytest.mark.parametrize("task", [Classification(), MultiLabel(), Regression()])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_texts_to_predict_may_be_empty_and_are_counted(tmp_path, tokenizer, task, suffix):
    path = tmp_path / f"rows.{suffix}"
    csv = "id,text,label\n1,dog,1\n2,,0\n3,  ,1\n"
    texts = ("dog", None, " ")
    lines = [json.dumps({"id": number, "text": text, "label": 1}) for number, text in enumerate(texts, 1)]
    path.write_text(csv if suffix == "csv" else "\n".join(lines))
    rows = task.read([path], columns={}, gold=False)
    assert [row.values for row in rows] == [{"text": "dog"}, {"text": ""}, {"text": ""}]
    assert list(task.iterate(path, columns={})) == rows
    assert frame_rows(tokenizer, rows, 8).notes == ("2 of 3 texts are empty",)
    with pytest.raises(UserError, match=r":[23]: .*(empty|missing)"):
        task.read([path], columns={})


def popped(first, second, capacity):
    """Return the lengths of two lists after tokens are removed one by one, as in BERT's reference implementation."""
    first, second = list(range(first)), list(range(second))
    while len(first) + len(second) > capacity:
        (first if len(first) > len(second) else second).pop()
    return len(first), len(second)


SIZES = st.integers(0, 80)


@given(SIZES, SIZES, st.integers(0, 100))
@example(7, 7, 7)
@example(0, 9, 4)
@example(9, 0, 4)
@example(3, 9, 7)
@example(9, 3, 7)
@example(80, 80, 0)
def test_the_longer_text_loses_its_last_token_until_both_fit(first, second, capacity):
    assert cut_longer(first, second, capacity) == popped(first, second, capacity)
    many = cut_longer(np.array([first, 5]), np.array([second, 5]), capacity)
    assert [tuple(one) for one in np.transpose(many)] == [popped(first, second, capacity), popped(5, 5, capacity)]


@pytest.mark.parametrize("planted", ["the first of equal ones", "only the second"])
def test_another_rule_is_noticed(planted):
    """The comparison above detects rules that differ by a single token."""

    def other(first, second, capacity):
        if planted == "only the second":
            return first, max(0, min(second, capacity - first))
        while first + second > capacity:
            first, second = (first - 1, second) if first >= second else (first, second - 1)
        return first, second

    assert any(
        other(one, two, capacity) != popped(one, two, capacity) == cut_longer(one, two, capacity)
        for one in range(8)
        for two in range(8)
        for capacity in range(1, 12)
    )


def row(text, text_b=None):
    values = {"text": text} if text_b is None else {"text": text, "text_b": text_b}
    return Row({**values, "label": "0"}, "a.tsv", 2)


def test_segments_of_pairs(tokenizer):
    ((sample,), _, notes) = frame_rows(tokenizer, [row("The dog sees", "the cat.")], 32)
    first, second = tokenizer.encode("The dog sees"), tokenizer.encode("the cat.")
    cls, sep = tokenizer.cls, tokenizer.sep
    assert sample.ids.tolist() == [cls, *first, sep, *second, sep]
    assert sample.segments.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert sample.positions["summary"].tolist() == [0]
    assert sample.key == (0, 0)
    assert notes == ()


@pytest.mark.parametrize("kind", [Classification, Regression])
@pytest.mark.parametrize(("second", "what"), [((), "texts"), (("near the sea",), "pairs")])
def test_truncated_rows_are_counted(tokenizer, kind, second, what):
    rows = [row("dog " * number, *second) for number in (1, 3, 20, 30)]
    notes = kind(length=12).frame(tokenizer, rows, ("0", "1"), gold=False).notes
    assert notes == (f"2 of 4 {what} are longer than 12 tokens and were cut",)


@pytest.mark.parametrize("kind", [Classification, Regression])
@pytest.mark.parametrize("nothing", ["", " ", "\u200b"], ids=["empty", "blank", "no token"])
def test_empty_rows_are_counted(tokenizer, kind, nothing):
    texts = [row("The dog"), row(nothing), row("sees")]
    assert kind(length=12).frame(tokenizer, texts, ("0", "1"), gold=True).notes == ("1 of 3 texts is empty",)
    pairs = [row("The dog", "sees"), row(nothing, "sees"), row("sees", nothing)]
    notes = kind(length=12).frame(tokenizer, pairs, ("0", "1"), gold=False).notes
    assert notes == ("2 of 3 pairs have an empty text",)


@pytest.mark.parametrize(("kind", "special"), [("wordpiece", 3), ("bpe", 4)])
def test_a_length_without_space_for_text_is_refused(documents, kind, special):
    tokenizer = train_vocabulary(kind, documents, size=350, lowercase=True)
    assert len(frame_rows(tokenizer, [row("One", "two")], special + 2)[0]) == 1
    for length in (special, special + 1):  # with one more, one of the texts would be left out
        with pytest.raises(
            UserError, match=rf"task.length is {length}, but a pair has {special} special tokens; pass settings="
        ):
            frame_rows(tokenizer, [row("One", "two")], length)


def test_pairs_and_single_texts_are_not_mixed(tokenizer):
    with pytest.raises(UserError, match=r"^a\.tsv:2: one text, but the first example is a pair of texts; give the sec"):
        frame_rows(tokenizer, [row("One", "two"), row("One")], 32)
    with pytest.raises(UserError, match=r"^a\.tsv:2: a pair of texts, but the first example is one text; remove"):
        frame_rows(tokenizer, [row("One"), row("One", "two")], 32)


@pytest.mark.parametrize("kind", [Classification, Regression])
def test_a_model_trained_on_pairs_requires_pairs(tokenizer, kind):
    pairs, singles = ([row("One", *second), row("Two", *second)] for second in (("three",), ()))
    rows = [Row({**it.values, "label": str(index)}, it.file, it.line) for index, it in enumerate(pairs)]
    task = kind().settle(rows, ("0", "1"))
    assert task.pairs is True
    assert len(task.frame(tokenizer, pairs, ("0", "1"), gold=False).samples) == 2
    with pytest.raises(UserError, match="one text, but the model was trained on pairs of texts; give the second text"):
        task.frame(tokenizer, singles, ("0", "1"), gold=False)
    with pytest.raises(UserError, match=r"^one text, but the model"):
        task.frame(tokenizer, task.from_texts(["One"]), ("0", "1"), gold=False)
    alone = kind().settle([Row({"text": "a", "label": str(number)}, "a.tsv", 2) for number in (0, 1)], ("0", "1"))
    assert alone.pairs is False
    with pytest.raises(UserError, match="a pair of texts, but the model was trained on single texts; remove the sec"):
        alone.frame(tokenizer, pairs, ("0", "1"), gold=False)
    assert (
        len(kind().frame(tokenizer, singles, ("0", "1"), gold=False).samples) == 2
    )  # unknown for a model not trained here


PARTS = ["dog ", "cat ", "river", "sea.", " ", "\t", "\u200b", "[MASK]", "[SEP]", "don't", "漢", "é", "İ", "😀"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)
KINDS = {"wordpiece": "first", "bpe": "first", "unigram": "last", "words": "extract"}


@pytest.fixture(scope="module", params=KINDS)
def any_tokenizer(request, documents):
    made = train_vocabulary(request.param, documents, size=350, lowercase=request.param != "words")
    made.summary = KINDS[request.param]
    return made


@pytest.mark.parametrize("many", [1, 1000], ids=["cache", "library"])
@given(texts=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), length=st.integers(6, 40), pairs=st.booleans())
def test_samples_are_those_of_each_row_by_itself(any_tokenizer, many, texts, length, pairs):
    """Every row is encoded, truncated token by token and framed by itself."""
    texts = [own[: 1 + pairs] for own in texts]
    gold = np.arange(len(texts))[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "MANY", many)
        samples, cut, notes = frame_rows(any_tokenizer, [row(*own) for own in texts], length, labels={"gold": gold})
    frame = Frame.of(any_tokenizer)
    capacity, expected_cut, empty = frame.capacity(length, texts=1 + pairs), [], 0
    for number, (sample, own) in enumerate(zip(samples, texts, strict=True)):
        ids = [any_tokenizer.encode(text) for text in own]
        sizes = popped(*map(len, ids), capacity) if pairs else (min(len(ids[0]), capacity),)
        expected_cut.append(sum(sizes) < sum(map(len, ids)))
        empty += not all(len(one) and text.strip() for one, text in zip(ids, own, strict=True))
        expected = frame.wrap(*(one[:size] for one, size in zip(ids, sizes, strict=True)))
        for ours, theirs in (
            (sample.ids, expected.ids),
            (sample.segments, expected.segments),
            (sample.positions["summary"], expected.positions["summary"]),
            (sample.labels["gold"], gold[number]),
        ):
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs)
        assert len(sample) <= length
        assert sample.key == (0, number)
    assert cut == expected_cut
    what = "pairs" if pairs else "texts"
    lines = [ShareNote(sum(cut), len(texts), f"{what} are longer than {length} tokens and were cut")] * any(cut)
    without = f"{what} {'have an empty text' if pairs else 'are empty'}"
    lines += [ShareNote(empty, len(texts), without)] * (empty > 0)
    if any_tokenizer.kind.name != "words":
        read = [id for own in texts for text in own for id in any_tokenizer.encode(text).tolist()]
        unknown = read.count(any_tokenizer.unk)
        what = "tokens are unknown to the vocabulary, which reads all of them as the same"
        lines += [f"{unknown} of {len(read)} {what}"] * (unknown >= 5 and unknown >= 0.1 * len(read))
        parts = sum("\ufffd" in any_tokenizer.decode([id]) for id in read)
        what = "tokens are parts of characters that the vocabulary lacks"
        lines += [f"{parts} of {len(read)} {what}"] * (parts >= 50 and parts >= len(read) / 3)
    assert list(notes) == lines


def test_the_texts_of_a_pair_are_named():
    assert passages(row("one")) == (Passage("one"),)
    assert passages(row("one", "two")) == (Passage("one", "first text"), Passage("two", "second text"))


def test_texts_may_be_any_iterable_of_strings():
    assert [one.values["text"] for one in as_rows(map(str, range(3)))] == ["0", "1", "2"]
    with pytest.raises(UserError, match=r"None is not a string"):
        as_rows(["a", None])
    with pytest.raises(UserError, match=r"\('a', 'b'\) is not a string"):
        as_rows([("a", "b")])
