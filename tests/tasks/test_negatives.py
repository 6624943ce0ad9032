"""Several negatives of a row: columns and lists of them, and the loss beside sentence-transformers' on n-tuples."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.batches.batch import collate
from unmask.data.labelled.duplicates import overlap
from unmask.data.labelled.labelled_file import Row, parse_columns
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.tasks.embedding import Embedding
from unmask.tasks.late_interaction import LateInteraction
from unmask.tasks.rows import texts_of
from unmask.tasks.sparse import Sparse
from unmask.tasks.text_pairs import POOL, TIE, rank_pairs
from unmask.training.settings import BatchSettings
from unmask.workflows.finetuning.checks import check_step

from .conftest import hold_out

WANTED = [("a", "b", "c", "d"), ("e", "f", "g", "h")]


def read(path, **columns):
    return [texts_of(row) for row in Embedding().read([path], columns=columns)]


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["anchor\tpositive\tnegative_1\tnegative_2", "a\tb\tc\td", "e\tf\tg\th"], {}),
        (["negative_1\tanchor\tnegative_2\tpositive", "c\ta\td\tb", "g\te\th\tf"], {}),
        (["text\ttext_b\tnegatives", 'a\tb\t["c", "d"]', "e\tf\t['g', 'h']"], {}),
        (["text\ttext_b\ttext_c", 'a\tb\t["c", "d"]', 'e\tf\t["g", "h"]'], {}),
        (["text\ttext_b\twrong1\tx\twrong2", "a\tb\tc\t0\td", "e\tf\tg\t0\th"], {"text_c": "wrong*"}),
        (["text\ttext_b\tno\tx\tnor", "a\tb\tc\t0\td", "e\tf\tg\t0\th"], {"text_c": "no,nor"}),
        (["a\tb\tx\tc\td", "e\tf\tx\tg\th"], {"text": "0", "text_b": "1", "text_c": "3,4"}),
    ],
)
def test_negatives_are_read_from_columns_and_lists(tmp_path, lines, columns):
    path = tmp_path / "a.tsv"
    path.write_text("\n".join(lines))
    assert read(path, **columns) == WANTED


def test_rows_may_have_different_numbers_of_negatives(tmp_path):
    lists, cells = tmp_path / "a.jsonl", tmp_path / "a.csv"
    rows = [("a", "b", "c", "d"), ("e", "f", "g")]
    lists.write_text("".join(json.dumps({"anchor": a, "positive": b, "negatives": of}) + "\n" for a, b, *of in rows))
    cells.write_text("anchor,positive,negative_1,negative_2\na,b,c,d\ne,f,,g\n")
    assert read(lists) == read(cells) == rows
    lists.write_text('{"text": "a", "text_b": "b", "negative_1": "c", "negative_2": null}')
    assert read(lists) == [("a", "b", "c")]


def test_a_text_in_brackets_is_no_list(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\ttext_b\tnegative\na\tb\t[sic] no\nc\td\t[1, 2]\n")
    assert [texts[2] for texts in read(path)] == ["[sic] no", "[1, 2]"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"negatives": []}, r"a\.jsonl:1: the text_c is empty; fix or remove the row"),
        ({"negatives": ["c", " "]}, r"a\.jsonl:1: the text_c is empty"),
        ({"negatives": ["c", 3]}, r"a\.jsonl:1: 'text_c' \(column 'negatives'\) is int, not text"),
        ({"negative_1": None, "negative_2": ""}, r"a\.jsonl:1: the text_c is empty"),
        ({"negatives": ["c", "b"]}, r"the negative is the first or the second text; remove it from text_c"),
        ({"negatives": ["c"], "score": 1}, "negatives have no effect: the pairs have scores"),
    ],
)
def test_unsuitable_negatives_are_refused(tmp_path, record, message):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "a", "text_b": "b", **record}))
    with pytest.raises(UserError, match=message):
        read(path)


def test_columns_that_are_not_there_are_refused(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\ttext_b\tno\tno\na\tb\tc\td\n")
    with pytest.raises(UserError, match=r"a\.tsv:1: no column named wrong\*; columns: text, text_b, no, no; pass"):
        read(path, text_c="wrong*")
    with pytest.raises(UserError, match=r"a\.tsv:1: 2 columns are named no; rename one"):
        read(path, text_c="no")
    with pytest.raises(UserError, match="there is no column 9, counted from 0"):
        read(path, text="0", text_b="1", text_c="2,9")
    assert parse_columns("text=a,text_c=b,c*,label=d") == {"text": "a", "text_c": "b,c*", "label": "d"}
    assert [texts_of(row) for row in Embedding().read([path], columns={}, gold=False)] == [("a", "b")]


def loss_and_vectors(rows, tokenizer, recipe, **options):
    """Return the loss of rows in one batch, and the vectors of their texts, each computed alone."""
    task = Embedding(length=32, temperature=0.05, **options)
    encoder = recipe.encoder.build(tokenizer.size)
    learner = Learner(encoder, {"embedding": task.build(encoder.head, ())}).eval()
    samples = task.frame(tokenizer, rows, (), gold=True).samples
    part = learner(collate([learner.prepare(sample) for sample in samples]))["embedding"]
    alone = [collate([sample]) for sample in task.frame(tokenizer, rows, (), gold=False).samples]
    return part, torch.stack([encoder(one.tokens).last.mean(0) for one in alone])


def make(texts):
    return [Row({"text": a, "text_b": b}, "a.tsv", 2, negatives=tuple(of)) for a, b, *of in texts]


def test_known_second_texts_are_no_negatives_of_other_rows(tokenizer, recipe):
    """The first text has two second texts, of which the one in the second row is a negative of the third row."""
    rows = make([("the dog", "a poem", "the sea"), ("the dog", "old town", "rain"), ("the cat", "a river", "old town")])
    part, vectors = loss_and_vectors(rows, tokenizer, recipe)
    unit = torch.nn.functional.normalize(vectors, dim=1)
    logits = unit[::3] @ torch.cat([unit[1::3], unit[2::3]]).T / 0.05  # (3, 6)
    logits[0, 1] = logits[1, 0] = logits[0, 5] = logits[1, 5] = -torch.inf
    torch.testing.assert_close(part.sum, -logits.log_softmax(1).diagonal().sum(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_loss_is_that_of_sentence_transformers(tokenizer, recipe, documents, count):
    losses = pytest.importorskip("sentence_transformers.losses", reason="sentence-transformers is not installed")
    texts = [" ".join(of.split()[:6]) for of in documents[: 3 * (2 + count)]]
    rows = make([texts[start::3] for start in range(3)])
    part, vectors = loss_and_vectors(rows, tokenizer, recipe)
    by_column = [vectors[column :: 2 + count] for column in range(2 + count)]
    expected = losses.MultipleNegativesRankingLoss(torch.nn.Identity()).compute_loss_from_embeddings(by_column, None)
    torch.testing.assert_close(part.sum / 3, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_rows_of_different_sizes_are_compared_with_all(tokenizer, recipe, symmetric):
    """In NumPy; a negative that is a text of another row is none of its negatives."""
    rows = make([("a dog", "the cat", "rain", "sea"), ("a poem", "the old town", "a dog"), ("tree", "sea", "a", "b")])
    part, vectors = loss_and_vectors(rows, tokenizer, recipe, symmetric=symmetric)
    unit = vectors.detach().double().numpy()
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    first, second, negative = unit[[0, 4, 7]], unit[[1, 5, 8]], unit[[2, 3, 6, 9, 10]]
    cosines = first @ np.concatenate([second, negative]).T / 0.05  # (3, 8)
    cosines[0, 3 + 2] = cosines[2, 3 + 1] = -np.inf  # "a dog" is a text of the first row, "sea" one of the last
    expected = (np.log(np.exp(cosines).sum(1)) - np.diag(cosines)).sum()
    back = (np.log(np.exp(cosines[:, :3]).sum(0)) - np.diag(cosines)).sum()
    assert float(part.sum.detach()) == pytest.approx((expected + back) / 2 if symmetric else expected, rel=1e-3)


@pytest.mark.parametrize("task", [Embedding(), Sparse(), LateInteraction()])
def test_pairs_with_different_negatives_are_the_same_pair(task, tmp_path):
    """Triplets repeat each pair, so that all pairs of the tenth that was held out were trained on, too."""
    path = tmp_path / "triplets.jsonl"
    rows = [{"anchor": f"q {n}", "positive": f"p {n}", "negative": f"né {n + k}"} for n in range(40) for k in (1, 2, 3)]
    path.write_text("\n".join(map(json.dumps, rows)))
    examples = task.read([path], columns={})
    train, held = (list(map(texts_of, part)) for part in hold_out(task, examples, 0))
    assert len(held) == 12 and len({texts[:2] for texts in held}) == 4
    assert not {texts[:2] for texts in held} & {texts[:2] for texts in train}
    first, second = task.identities(examples[::3]), task.identities(examples[1::3])
    assert len(overlap(first, second).equal) == 40 and not first.is_ascii.any()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(2, 5), min_size=1, max_size=12),
    st.integers(1, 5),
    st.lists(st.sampled_from("abc"), min_size=12, max_size=12),
)
def test_ranks_are_those_of_a_loop(seed, sizes, pool, names):
    """The second texts of other rows with the same first text belong to it, too."""
    texts = [[name, *map(str, range(size - 1))] for name, size in zip(names, sizes, strict=False)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.tasks.text_pairs.POOL", pool)
        vectors = np.random.default_rng(seed).normal(size=(sum(sizes), 3)).astype(np.float32)
        scores, ranks = rank_pairs(lambda firsts, others: vectors[firsts] @ vectors[others].T, texts)
    starts = np.cumsum([0, *sizes])
    for number, start in enumerate(starts[:-1]):
        last = min(len(sizes), (number // pool + 1) * pool)
        others = [
            row
            for of in range(number // pool * pool, last)
            for row in range(starts[of] + 1 + (names[of] == names[number]), starts[of + 1])
        ]
        above = sum(float(vectors[start] @ vectors[row]) > scores[number] + TIE for row in others)
        assert scores[number] == pytest.approx(float(vectors[start] @ vectors[start + 1]), rel=1e-4, abs=1e-6)
        assert abs(ranks[number] - 1 - above) <= 0
    assert POOL == 1000


@pytest.mark.seeds(20)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1000.0])
def test_equal_texts_have_equal_ranks_whatever_the_size_of_scores(scale, seed):
    """Their vectors differ by rounding, as those of a text in two batches: MaxSim of 32 tokens is about 30."""
    rng = np.random.default_rng(seed)
    texts = np.repeat(rng.normal(size=(8, 50)), 4, 0)
    vectors = np.empty((64, 50))
    vectors[::2], vectors[1::2] = texts + rng.normal(size=texts.shape), texts
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    exact = vectors[::2] @ vectors[1::2].T  # (pairs, pairs)
    rounded = exact * scale * (1 + 2e-7 * rng.uniform(-1, 1, exact.shape))
    rows = [[str(number), ""] for number in range(32)]
    _, ranks = rank_pairs(lambda firsts, others: rounded[np.ix_(firsts // 2, others // 2)], rows)
    assert ranks == (1 + (exact > np.diag(exact)[:, None] + 1e-9).sum(1)).tolist()


@pytest.mark.parametrize("task", [Sparse(), LateInteraction()])
@pytest.mark.parametrize("column", ["label", "grade", "score", "is_duplicate"])
def test_labels_that_differ_are_refused_where_all_pairs_belong_together(task, column, tmp_path):
    """Graded pairs, duplicates and inferences have pairs that do not; they were trained on like the others."""
    path = tmp_path / "pairs.jsonl"
    records = [{"query": f"the {word}", "passage": f"a {word}", column: 1} for word in ("cat", "dog", "sea")]
    path.write_text("\n".join(map(json.dumps, records)))
    assert [row.values for row in task.read([path], columns={})] == [
        {"text": record["query"], "text_b": record["passage"]} for record in records
    ]
    path.write_text("\n".join(map(json.dumps, [*records, records[0] | {column: 0}])))
    with pytest.raises(UserError, match=r"pairs.jsonl:4: the pairs have different labels \('1' and '0'\)"):
        task.read([path], columns={})
    assert len(task.read([path], columns={}, gold=False)) == 4


def test_graded_pairs_have_scores(tmp_path):
    path = tmp_path / "graded.jsonl"
    path.write_text('{"query": "a", "passage": "b", "grade": 1}\n{"query": "a", "passage": "c", "grade": 0}\n')
    rows = Embedding().read([path], columns={})
    assert [row.values["label"] for row in rows] == ["1", "0"] and not Embedding().contrasts(rows)


@pytest.mark.parametrize("task", [Embedding(), Sparse(), LateInteraction()])
@pytest.mark.parametrize(("same", "which"), [("anchor", "first"), ("positive", "second")])
def test_pairs_of_which_none_has_a_negative_are_refused(task, same, which, tmp_path):
    """They share a text, so that the loss is 0, and each second text the only one; negatives make up for it."""
    path = tmp_path / "pairs.jsonl"
    records = [{"anchor": f"q {number}", "positive": f"p {number}", same: "the same"} for number in range(4)]
    path.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(UserError, match=rf"pairs.jsonl: all pairs have the same {which} text, so that none of their"):
        task.label_names(task.read([path], columns={}))
    path.write_text("\n".join(json.dumps(record | {"negative": "another"}) for record in records))
    assert task.label_names(task.read([path], columns={})) == ()


@pytest.mark.parametrize("task", [Embedding(), Sparse(), LateInteraction()])
def test_a_step_of_a_single_pair_needs_negatives(task, tmp_path):
    """Its loss would be 0, and nothing learned."""
    path = tmp_path / "pairs.jsonl"
    records = [{"anchor": f"q {number}", "positive": f"p {number}"} for number in range(4)]
    path.write_text("\n".join(map(json.dumps, records)))
    rows = task.read([path], columns={})
    with pytest.raises(UserError, match=r"batch.sequences.*no text is a negative for another one"):
        check_step(BatchSettings(sequences=1), task, rows)
    check_step(BatchSettings(sequences=2), task, rows)
    path.write_text("\n".join(json.dumps(record | {"negative": "another"}) for record in records))
    check_step(BatchSettings(sequences=1), task, task.read([path], columns={}))
