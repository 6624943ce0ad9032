"""Hard negatives beside a search of all cosines in NumPy; what is left out, written and refused."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from unmask.cli.main import main
from unmask.data.labelled.retrieval_files import ABSENT
from unmask.families.checkpoints.sentence_modules import Pooling
from unmask.inference import search
from unmask.inference.load import load
from unmask.model.model import Model, build_encoder, save_model
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.tasks.embedding import Embedding
from unmask.tasks.ranking import Ranking
from unmask.tasks.rows import texts_of
from unmask.workflows import mining
from unmask.workflows.mining import Searched, find_negatives, mine

HERE = {"device": "cpu", "precision": "float32", "quiet": True}


@pytest.fixture(scope="module")
def texts(documents):
    return [f"{sentence} ." for text in documents for sentence in text.split(". ")][:80]


@pytest.fixture
def model(tmp_path, recipe, tokenizer):
    encoder = build_encoder(recipe.encoder, tokenizer.size)
    save_model(tmp_path / "m", Model(encoder, tokenizer, pooling=Pooling(query="the dog : ", document="rain ")), "")
    return tmp_path / "m"


def expected(queries, documents, texts, positives, number, margin, skip):
    """Return the negatives of each query by the rule, from all cosines."""
    mined = []
    for query, own in enumerate(positives):
        scores = documents @ queries[query]
        least = min(scores[of] for of in own)
        order = np.argsort(-scores, kind="stable")
        known = {texts[of] for of in own}
        left = [of for of in order if texts[of] not in known and scores[of] <= least - margin * abs(least)]
        first = list(dict.fromkeys(texts[of] for of in left))
        mined.append(first[skip : skip + number])
    return mined


class Vectors:
    """A predictor whose vectors are random, the same for equal texts."""

    model = SimpleNamespace(task=None, pooling=None)

    def __init__(self, rng):
        self.rng, self.known = rng, {}

    def vectors(self, texts, *, prompt_name, normalize=None):
        rows = [self.known.setdefault(text, self.rng.normal(size=4).astype(np.float32)) for text in texts]
        return np.stack(rows) / np.linalg.norm(rows, axis=1, keepdims=True), ()


def test_negatives_are_those_of_a_full_search(texts, monkeypatch):
    monkeypatch.setattr(search, "BLOCK", 16)
    monkeypatch.setattr(mining, "MORE", 60)
    rng = np.random.default_rng(0)
    for _ in range(60):
        predictor, documents = Vectors(rng), [*texts[:60], texts[0], texts[5]]
        queries = [f"{texts[of]} {of}" for of in rng.choice(60, rng.integers(1, 5), replace=False)]
        positives = [rng.choice(60, rng.integers(1, 4), replace=False).tolist() for _ in queries]
        number, margin, skip = int(rng.integers(1, 5)), float(rng.choice([0, 0.01, 0.3])), int(rng.integers(0, 3))
        nowhere = [ABSENT] * len(queries)
        searched = Searched(queries, positives, nowhere, lambda documents=documents: iter(documents), len(documents))
        mined = find_negatives(predictor, searched, number, margin, skip, [])
        encoded, vectors = (predictor.vectors(of, prompt_name=None)[0] for of in (queries, documents))
        wanted = expected(encoded, vectors, documents, positives, number, margin, skip)
        assert [[documents[of] for of in numbers] for numbers in mined] == wanted


def test_pairs_become_triplets_or_graded_pairs(model, texts, tmp_path):
    pairs, corpus = tmp_path / "pairs.tsv", tmp_path / "more.txt"
    pairs.write_text("\n".join(["query\tpassage", *(f"{text[:20]}\t{text}" for text in texts[:20])]))
    corpus.write_text("\n".join(texts[20:]))
    out = tmp_path / "triplets.jsonl"
    rows = mine(model, pairs, out=out, corpus=corpus, negatives=2, margin=0.0, **HERE)
    assert rows == [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["positive"] for row in rows} <= set(texts[:20])
    assert any(row["negative"] in texts[20:] for row in rows)
    assert all(row["negative"] != row["positive"] for row in rows)
    read = Embedding().read([out], columns={})
    assert [texts_of(row) for row in read] == [(row["anchor"], row["positive"], row["negative"]) for row in rows]
    graded = mine(model, pairs, out=tmp_path / "graded.csv", rows="graded", negatives=2, margin=0.0, **HERE)
    read = Ranking().read([tmp_path / "graded.csv"], columns={})
    assert [row.values for row in read] == [
        {"text": row["query"], "text_b": row["passage"], "label": str(row["grade"])} for row in graded
    ]
    assert Ranking().label_names(read) == ()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv"])
def test_tuples_have_all_negatives_of_a_query_in_one_row(model, texts, tmp_path, suffix, capsys):
    """A query with several positives has a row for each; one with too few negatives has none, and is counted."""
    positives = [texts[0], texts[1], texts[2], texts[3], 'a "quoted", [bracketed] text']
    pairs = {"text": ["the dog", "the dog", "a poem", "the sea", "rain"], "text_b": positives}
    few = mine(model, pairs, out=None, negatives=4, margin=0.0, rows="triplets", **HERE)
    found = Counter(row["anchor"] for row in few)
    counts = {query: found[query] // number for query, number in Counter(pairs["text"]).items()}
    wanted = max(counts.values())
    whole = [query for query, count in counts.items() if count == wanted]
    path, out = tmp_path / "pairs.jsonl", tmp_path / f"tuples{suffix}"
    path.write_text("\n".join(json.dumps({"anchor": a, "positive": b}) for a, b in zip(*pairs.values(), strict=True)))
    options = ["--rows", "tuples", "--negatives", str(wanted), "--margin", "0", "--device", "cpu", "--out", str(out)]
    assert main(["mine", "--model", str(model), "--data", str(path), *options]) == 0
    shown = capsys.readouterr().err
    assert (f"queries have fewer than {wanted} negatives" in shown) == (len(whole) < 4)
    read = Embedding().read([out], columns={})
    assert [row.values["text"] for row in read] == [query for query in pairs["text"] if query in whole]
    for row in read:
        mined = [of["negative"] for of in few if (of["anchor"], of["positive"]) == tuple(row.values.values())]
        assert list(row.negatives) == mined[:wanted] and len(row.negatives) == wanted
    with pytest.raises(UserError, match=r"no query has 9 negatives; lower negatives, or pass rows=.triplets."):
        mine(model, pairs, out=None, negatives=9, margin=0.0, rows="tuples", **HERE)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_a_teacher_scores_all_texts_of_a_tuple(model, texts, tmp_path, recipe, tokenizer, suffix, capsys):
    encoder, task = build_encoder(recipe.encoder, tokenizer.size), Ranking(length=32)
    teacher = Model(encoder, tokenizer, {"ranking": task.build(encoder.head, ()).published()}, task=task)
    save_model(tmp_path / "teacher", teacher, "")
    pairs, out = {"text": [text[:20] for text in texts[:9]], "text_b": texts[:9]}, tmp_path / f"tuples{suffix}"
    options = {"rows": "tuples", "negatives": 2, "margin": 0.0, "teacher": tmp_path / "teacher", **HERE}
    rows = mine(model, pairs, out=out, **options | {"quiet": False})
    assert not any(line.endswith(" ") for line in capsys.readouterr().err.splitlines()), "a note without a statement"
    read = Embedding().read([out], columns={})
    assert [(texts_of(row), row.scores) for row in read] == [
        ((row["anchor"], row["positive"], row["negative_1"], row["negative_2"]), tuple(row["teacher_scores"]))
        for row in rows
    ]
    predictor = load(tmp_path / "teacher", device="cpu")
    for row in rows:
        passages = [row[name] for name in ("positive", "negative_1", "negative_2")]
        scored = predictor.predict([row["anchor"]] * 3, passages)
        assert row["teacher_scores"] == pytest.approx([each.score for each in scored], rel=1e-4, abs=1e-5)
    with pytest.raises(UserError, match=r"teacher has no effect without rows=.tuples., with which"):
        mine(model, pairs, out=None, **options | {"rows": "triplets"})
    with pytest.raises(UserError, match="teacher is no cross-encoder"):
        mine(model, pairs, out=None, **options | {"teacher": model})


def test_a_collection_is_mined(model, texts, tmp_path):
    path = tmp_path / "collection"
    (path / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    queries = [{"_id": f"q{number}", "text": f"{texts[number][:15]} {number}"} for number in range(5)]
    for name, records in (("corpus", corpus), ("queries", queries)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    judgments = [f"q{number}\td{number}\t1" for number in range(5)]
    (path / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judgments]))
    rows = mine(model, f"{path}#train", out=None, negatives=1, margin=0.0, **HERE)
    assert {row["anchor"] for row in rows} <= {query["text"] for query in queries}
    assert all(row["positive"] != row["negative"] and row["negative"] in texts for row in rows)
    number = int(rows[0]["anchor"].split()[-1])
    judgments[number] = f"q{number}\tabsent\t1"
    (path / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judgments]))
    others = [row for row in rows if row["anchor"] != rows[0]["anchor"]]
    assert others and mine(model, f"{path}#train", out=None, negatives=1, margin=0.0, **HERE) == others
    with pytest.raises(UserError, match=r"^corpus has no effect on the collection .*; omit it"):
        mine(model, path, out=None, corpus=path / "corpus.jsonl", **HERE)


def test_what_is_left_out_is_counted(model, texts, tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("\n".join(["anchor\tpositive", *(f"{text[:20]}\t{text}" for text in texts[:10])]))
    out = tmp_path / "out.tsv"
    options = ["--out", str(out), "--negatives", "9", "--margin", "0.001", "--device", "cpu"]
    assert main(["mine", "--model", str(model), "--data", str(pairs), *options]) == 0
    shown = capsys.readouterr().err
    assert "candidates are nearly as similar as the positive, and were left out" in shown
    assert "queries have fewer than 9 negatives" in shown
    assert f"{len(out.read_text().splitlines()) - 1} rows: {out}" in shown
    with pytest.raises(UserError, match=r"no negative was found; give more texts \(corpus\), or lower margin or skip"):
        mine(model, pairs, out=None, margin=1.0, **HERE)


@pytest.mark.parametrize("broken", ["query", "positive", "corpus", "collection"])
def test_texts_that_tsv_cannot_hold_are_refused_before_anything_is_computed(broken, tmp_path, monkeypatch):
    monkeypatch.setattr(mining, "open_predictor", lambda *given, **more: pytest.fail("computed"))
    queries, positives, more = ["a dog", "a cat"], ["the dog", "the cat"], {"text": ["a sea", "rain"]}
    {"query": queries, "positive": positives}.get(broken, more["text"])[1] += "\tx"
    data = {"text": queries, "text_b": positives}
    if broken == "collection":
        (tmp_path / "qrels").mkdir()
        for name, text in (("corpus", "a\rcat"), ("queries", "dog")):
            (tmp_path / f"{name}.jsonl").write_text(json.dumps({"_id": "d", "text": text}))
        (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nd\td\t1\n")
        data, more = tmp_path, ()
    with pytest.raises(UserError, match=r"TSV cannot hold the tab or line break in '.*'; write \.csv, \.jsonl or"):
        mine("model", data, corpus=more, out=tmp_path / "a.tsv", **HERE)


def test_empty_documents_are_no_negatives(model, tmp_path):
    """Collections have some; a row with one is refused in training."""
    texts = ["a cat", "the dog", *[" "] * 12, "rain"]
    (tmp_path / "corpus.jsonl").write_text(
        "\n".join(json.dumps({"_id": f"d{number}", "text": text}) for number, text in enumerate(texts))
    )
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "a dog"}')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td1\t1\n")
    mined = mine(model, tmp_path, out=None, margin=0.0, **HERE)
    assert {row["negative"] for row in mined} <= {"a cat", "rain"}


def test_the_document_that_is_the_query_is_no_negative(model, tmp_path):
    """As in ArguAna, where it has a title, so that its text is another one."""
    documents = [("q", "the cat", "a dog"), ("d1", "", "the dog"), ("d2", "", "rain"), ("d3", "", "the sea")]
    records = [{"_id": name, "title": title, "text": text} for name, title, text in documents]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "a dog"}')
    (tmp_path / "qrels").mkdir()
    judgments = tmp_path / "qrels/test.tsv"
    for relevant, expected in (("d1", {"rain", "the sea"}), ("q\t1\nq\td1", {"rain", "the sea"})):
        judgments.write_text(f"query-id\tcorpus-id\tscore\nq\t{relevant}\t1\n")
        mined = mine(model, tmp_path, out=None, rows="graded", margin=0.0, easy=9, **HERE)
        assert {row["passage"] for row in mined if row["grade"] == 0} == expected


def test_pairs_that_do_not_belong_together_are_refused(model):
    graded = {"query": ["a dog", "a dog", "a cat"], "passage": ["the dog", "the cat", "the cat"]}
    with pytest.raises(
        UserError, match=r"the pairs have different labels \('1' and '0'\), but all are taken to belong"
    ):
        mine(model, {**graded, "grade": [1, 0, 1]}, out=None, **HERE)
    corpus = {"text": ["rain", "the sea"]}
    assert mine(model, {**graded, "grade": [1, 1, 1]}, out=None, margin=0.0, corpus=corpus, **HERE) == mine(
        model, graded, out=None, margin=0.0, corpus=corpus, **HERE
    )


def test_what_cannot_be_mined_is_refused(model, tmp_path, recipe, tokenizer):
    pairs = {"text": ["a dog", "a cat"], "text_b": ["the dog", "the cat"]}
    for options, message in (
        ({"negatives": 0}, "negatives=0: not a whole number from 1 to 1,000"),
        ({"skip": -1}, "skip=-1: not a whole number from 0 to 10,000"),
        ({"margin": 1.5}, r"margin=1\.5: not a number from 0 to 1"),
        ({"rows": "pairs"}, 'rows="pairs": unknown'),
        ({"out": tmp_path / "a.txt"}, r"rows are not written as \.txt; use \.jsonl, \.csv"),
        ({"corpus": pairs}, "the texts of the corpus are pairs"),
    ):
        with pytest.raises(UserError, match=message):
            mine(model, pairs, **{"out": None, **options}, **HERE)
    with pytest.raises(UserError, match="there are no pairs of texts; give the second text"):
        mine(model, {"text": ["a dog"]}, out=None, **HERE)
    heads = {"classification": ClassificationHead(recipe.encoder.head, 2).state_dict()}
    encoder, task = build_encoder(recipe.encoder, tokenizer.size), Classification(length=16)
    save_model(tmp_path / "other", Model(encoder, tokenizer, heads, ("a", "b"), task), "")
    with pytest.raises(UserError, match="this model is for classification, and makes no vectors for search"):
        mine(tmp_path / "other", pairs, out=None, **HERE)


def test_texts_at_random_are_negatives_of_graded_rows_too(model, texts):
    pairs = {"query": [text[:20] for text in texts[:8]], "passage": texts[:8]}
    options = {"out": None, "rows": "graded", "corpus": {"text": texts[8:]}, "negatives": 2, "margin": 0.0, **HERE}
    hard, usual, more = (mine(model, pairs, easy=easy, **options) for easy in (0, None, 3))
    for query in pairs["query"]:
        of = [[(row["passage"], row["grade"]) for row in rows if row["query"] == query] for rows in (hard, usual, more)]
        assert of[1][: len(of[0])] == of[2][: len(of[0])] == of[0], "positives and hard negatives are the same"
        assert [len(rows) - len(of[0]) for rows in of] == ([0, 1, 3] if of[0] else [0, 0, 0])
        assert all(len({text for text, _ in rows}) == len(rows) for rows in of)
        assert all(grade == 0 for rows in of[1:] for _, grade in rows[len(of[0]) :])
    assert hard and mine(model, pairs, easy=3, **options) == more, "drawn with the same seed"
    with pytest.raises(UserError, match=r"easy has no effect without rows="):
        mine(model, pairs, out=None, easy=3, **HERE)
