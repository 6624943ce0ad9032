"""Collections in BEIR's layout and runs of trec_eval: what is read, counted and refused."""

import gzip
import json

import numpy as np
import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.retrieval_files import (
    check_run,
    find_collection,
    read_collection,
    read_run,
    write_run,
)
from unmask.support.errors import UserError

HEADER = "query-id\tcorpus-id\tscore"


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def make(tmp_path):
    """Writes a collection of three documents and two queries, with other content of some files."""

    def write(**files):
        content = {
            "corpus.jsonl": lines(
                [{"_id": "d1", "title": "A", "text": "cat"}, {"_id": "d2", "text": "dog"}, {"_id": 3, "text": "fox"}]
            ),
            "queries.jsonl": lines([{"_id": "q1", "text": "a cat"}, {"_id": "q2", "text": "a fox"}]),
            "qrels/test.tsv": f"{HEADER}\nq1\td1\t2\nq1\td2\t0\nq2\t3\t1\n",
        } | {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
        for name, text in content.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            if text is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(text, encoding="utf8")
        return tmp_path

    return write


def test_a_collection_is_read(make):
    collection = read_collection(make())
    assert (collection.ids, [*collection.texts()]) == (["d1", "d2", "3"], ["A cat", "dog", "fox"])
    assert (collection.query_ids, collection.queries) == (["q1", "q2"], ["a cat", "a fox"])
    assert [(of.documents.tolist(), of.grades.tolist()) for of in collection.judgments] == [
        ([0, 1], [2, 0]),
        ([2], [1]),
    ]
    assert (collection.identical, collection.notes) == ([-1, -1], ())
    ranking = collection.rank(0, np.array([1, 2, 0]), np.array([0.5, 1, 0.5]))
    assert (ranking.documents.tolist(), collection.graded(0, ranking).tolist()) == ([2, 1, 0], [0, 0, 2])
    assert collection.texts_of({0, 2}) == {0: "A cat", 2: "fox"}


def test_compressed_files_and_splits(make):
    path = make(qrels__dev_tsv=f"{HEADER}\nq2\td2\t1\n")
    (path / "corpus.jsonl.gz").write_bytes(gzip.compress((path / "corpus.jsonl").read_bytes()))
    (path / "corpus.jsonl").unlink()
    assert find_collection(f"{path}#dev") == find_collection(path) == path
    assert find_collection(path / "qrels") is None
    collection = read_collection(f"{path}#dev")
    assert (collection.query_ids, collection.ids) == (["q2"], ["d1", "d2", "3"])
    assert collection.notes == ("1 of 2 queries has no judgments in dev.tsv",)
    with pytest.raises(UserError, match=f"there is no split 'x'; name one of {path}#dev, {path}#test"):
        read_collection(f"{path}#x")
    (path / "qrels/test.tsv").rename(path / "qrels/train.tsv")
    with pytest.raises(UserError, match="which of the splits is meant"):
        read_collection(path)


@pytest.mark.parametrize("split", ["", "#test"])
def test_a_collection_is_not_labeled_examples(make, split):
    with pytest.raises(
        UserError, match=r"a collection for search, not labeled examples; make rows of it by unmask\.mine"
    ):
        read_rows([f"{make()}{split}"], columns={})


def test_copies_of_judgments_are_no_judgments(make):
    """What editors and `cp` leave beside a file is not read in its place, nor is it another split."""
    path = make()
    for name in ("test.tsv~", "test.tsv.bak", "test.tsv.orig"):
        (path / "qrels" / name).write_text(f"{HEADER}\nq1\td2\t1\n")
    (path / "qrels/test.tsv.gz").write_bytes(gzip.compress(f"{HEADER}\nq1\td2\t1\n".encode()))
    collection = read_collection(path)
    assert collection.judgments_file == path / "qrels/test.tsv"
    assert collection.query_ids == ["q1", "q2"]


def test_a_titled_document_is_the_query_itself(make):
    """As in ArguAna, whose queries are the texts of its documents without their titles."""
    corpus = [
        {"_id": "q1", "title": "animals environment", "text": " a cat\n"},
        {"_id": "q2", "title": "a fox", "text": "and a dog"},
        {"_id": "d1", "title": "A", "text": "a cat"},
    ]
    judgments = f"{HEADER}\nq1\td1\t1\nq2\td1\t1\n"
    collection = read_collection(make(corpus_jsonl=lines(corpus), qrels__test_tsv=judgments))
    assert collection.identical == [0, -1]
    assert collection.rank(0, np.array([0, 2]), np.array([1, 0.5])).documents.tolist() == [2]
    assert (
        "1 of 2 queries is among the documents, too, and is omitted from the ranking for the same query"
        in collection.notes
    )


@pytest.mark.parametrize("divider", [" ", "\t", "  "])
def test_judgments_of_trec_eval_have_four_columns_and_no_header(make, divider):
    graded = [("q1", "d1", 2), ("q1", "d2", 0), ("q2", "d2", 1)]
    trec = "".join(divider.join((query, "0", document, str(grade))) + "\n" for query, document, grade in graded)
    beir = HEADER + "".join(f"\n{query}\t{document}\t{grade}" for query, document, grade in graded)
    read, expected = (read_collection(make(qrels__test_tsv=text)) for text in (trec, beir))
    assert read.query_ids == expected.query_ids == ["q1", "q2"]
    for own, other in zip(read.judgments, expected.judgments, strict=True):
        assert own.documents.tolist() == other.documents.tolist()
        assert own.grades.tolist() == other.grades.tolist()


def test_what_is_unusual_is_counted(make):
    corpus = [{"_id": name, "text": text} for name, text in (("d1", "cat"), ("d2", "cat"), ("q2", "a fox"), ("e", ""))]
    judgments = f"{HEADER}\nq1\td1\t1\nq2\tq2\t0\nq2\td2\t1\nq3\td1\t0\nq3\td2\t-1\n"
    queries = [{"_id": f"q{number}", "text": text} for number, text in enumerate(("a cat", "a fox", "x", "  "), 1)]
    collection = read_collection(
        make(corpus_jsonl=lines(corpus), queries_jsonl=lines(queries), qrels__test_tsv=judgments)
    )
    assert collection.notes == (
        "1 of 4 documents has the text of an earlier one",
        "1 of 4 documents is empty",
        "1 of 3 judged queries has no relevant document and is not searched",
        "1 of 4 queries has no judgments in test.tsv",
        "1 of 2 queries is among the documents, too, and is omitted from the ranking for the same query",
    )
    assert collection.rank(1, np.array([0, 2]), np.array([1, 2])).documents.tolist() == [0]


def test_a_query_that_is_judged_relevant_for_itself_is_ranked(make):
    """As where questions and answers have numbers of their own, and one of them is the same text."""
    corpus = [{"_id": 1, "text": "a cat"}, {"_id": 2, "text": "a fox"}]
    collection = read_collection(
        make(corpus_jsonl=lines(corpus), queries_jsonl=lines(corpus), qrels__test_tsv=f"{HEADER}\n1\t1\t1\n2\t1\t1\n")
    )
    assert collection.identical == [-1, 1]
    assert collection.rank(0, np.array([0, 1]), np.array([2, 1])).documents.tolist() == [0, 1]
    assert collection.notes == (
        "1 of 2 queries is among the documents, too, and is omitted from the ranking for the same query",
    )


def test_spaces_around_ids_are_not_part_of_them(make):
    corpus = [{"_id": " d1", "text": "a cat"}, {"_id": "d2 ", "text": "a fox"}]
    collection = read_collection(make(corpus_jsonl=lines(corpus), qrels__test_tsv=f"{HEADER}\nq1 \t d1\t1\n"))
    assert (collection.ids, collection.judgments[0].documents.tolist()) == (["d1", "d2"], [0])


def test_queries_are_read_without_titles(make):
    """As BEIR does; those of documents belong to their texts."""
    queries = [{"_id": "q1", "title": "Title", "text": "a cat"}, {"_id": "q2", "title": "", "text": "a fox"}]
    assert read_collection(make(queries_jsonl=lines(queries))).queries == ["a cat", "a fox"]


def test_judged_documents_may_be_absent(make):
    """As in ArguAna; a query whose relevant documents all are is searched, too."""
    path = make(qrels__test_tsv=f"{HEADER}\nq1\tx\t2\nq1\td2\t1\nq2\ty\t1\n")
    collection = read_collection(path)
    assert [(of.documents.tolist(), of.grades.tolist()) for of in collection.judgments] == [
        ([-1, 1], [2, 1]),
        ([-1], [1]),
    ]
    assert collection.notes == (
        "2 of 3 judged documents are not in corpus.jsonl and are counted as not found (test.tsv:2)",
    )


REFUSED = {
    "corpus.jsonl:2: the id 'd1' is also that of line 1": {
        "corpus_jsonl": lines([{"_id": "d1", "text": "a"}, {"_id": "d1", "text": "b"}])
    },
    "queries.jsonl:2: the id 'q1' is also that of line 1": {
        "queries_jsonl": lines([{"_id": "q1", "text": "a"}, {"_id": "q1", "text": "b"}])
    },
    "corpus.jsonl:1: 'text' is missing": {"corpus_jsonl": lines([{"_id": "d1"}])},
    "corpus.jsonl:1: '_id' is missing, or is no text": {"corpus_jsonl": lines([{"text": "a"}])},
    "corpus.jsonl:2: '_id' is missing, or is no text": {
        "corpus_jsonl": lines([{"_id": "d1", "text": "a"}, {"_id": " ", "text": "b"}])
    },
    "corpus.jsonl:1: 'title' is int, not str": {"corpus_jsonl": lines([{"_id": "d1", "text": "a", "title": 3}])},
    "corpus.jsonl:1: broken JSON": {"corpus_jsonl": "{"},
    "corpus.jsonl: there are no records": {"corpus_jsonl": "\n"},
    "there is no queries.jsonl": {"queries_jsonl": None},
    "qrels: there are no judgments": {"qrels__test_tsv": None},
    "test.tsv:1: the header is not query-id, corpus-id, score": {"qrels__test_tsv": "q1\td1\t1\n"},
    "test.tsv:1: the header is not query-id, corpus-id, score, divided by tabs": {"qrels__test_tsv": "q1 0 d1 x\n"},
    "test.tsv:2: 3 cells, not 4; divide them by spaces": {"qrels__test_tsv": "q1 0 d1 1\nq2\td1\t1\n"},
    "test.tsv:2: 4 cells, not 3": {"qrels__test_tsv": f"{HEADER}\nq1\t0\td1\t1\n"},
    "test.tsv:2: the score '0.5' is no whole number": {"qrels__test_tsv": f"{HEADER}\nq1\td1\t0.5\n"},
    "test.tsv:3: there is no query 'q9' in queries.jsonl": {"qrels__test_tsv": f"{HEADER}\nq1\td1\t1\nq9\td1\t1\n"},
    "test.tsv:2: there is no document 'd9' in corpus.jsonl": {"qrels__test_tsv": f"{HEADER}\nq1\td9\t1\n"},
    "test.tsv:3: 'd1' is judged twice for the query 'q1', first in line 2": {
        "qrels__test_tsv": f"{HEADER}\nq1\td1\t1\nq1\td1\t1\n"
    },
    "test.tsv: there are no judgments": {"qrels__test_tsv": HEADER},
    "test.tsv: no document is relevant for a query": {"qrels__test_tsv": f"{HEADER}\nq1\td1\t0\n"},
    "queries.jsonl:1: the query 'q1' is empty": {
        "queries_jsonl": lines([{"_id": "q1", "text": " "}, {"_id": "q2", "text": "a"}])
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_malformed_is_refused(make, message):
    with pytest.raises(UserError) as caught:
        read_collection(make(**REFUSED[message]))
    assert message in str(caught.value)


def test_runs_are_written_and_read(make, tmp_path):
    collection, path = read_collection(make()), tmp_path / "my.run"
    rng = np.random.default_rng(0)
    for _ in range(15):
        rankings = [collection.rank(query, np.arange(3), rng.integers(0, 2, 3) + rng.normal() / 3) for query in (0, 1)]
        write_run(path, collection, rankings, "my system")
        again, notes = read_run(path, collection)
        assert notes == []
        for first, second in zip(rankings, again, strict=True):
            assert first.documents.tolist() == second.documents.tolist()
            assert first.scores.tolist() == second.scores.tolist()
    best = rankings[0]
    first = f"q1 Q0 {collection.ids[best.documents[0]]} 1 {float(best.scores[0])!r} my-system"
    assert path.read_text().splitlines()[0] == first


def test_runs_of_other_systems(make, tmp_path):
    collection, path = read_collection(make()), tmp_path / "my.run"
    path.write_text("q1 0 d2 7 0.5 x\nq9 0 d9 1 1 x\n\nq1\tQ0\t3\t1\t1e3 x\n")
    rankings, notes = read_run(path, collection)
    assert [of.documents.tolist() for of in rankings] == [[2, 1], []]
    assert notes == [
        f"{path}: 1 of its queries are not searched",
        f"1 of 2 queries is not in {path}, and is counted as 0",
    ]
    for text, message in {
        "q1 d2 1 1 x": "my.run:1: 5 columns, not the 6 of a run",
        "q1 0 d9 1 1 x": "my.run:1: there is no document 'd9'",
        "q1 0 d2 1 nan x": "my.run:1: the score 'nan' is no number",
        "q1 0 d2 1 x x": "my.run:1: the score 'x' is no number",
        "q1 0 d2 1 1 x\nq1 0 d2 2 0 x": "my.run:2: 'd2' is there twice for the query 'q1'",
        "q9 0 d2 1 1 x": "the run has no query of the collection",
    }.items():
        path.write_text(text)
        with pytest.raises(UserError) as caught:
            read_run(path, collection)
        assert message in str(caught.value)
    with pytest.raises(UserError, match="the id 'd 1' has a space"):
        spaced = read_collection(
            make(corpus_jsonl=lines([{"_id": "d 1", "text": "a"}]), qrels__test_tsv=f"{HEADER}\nq1\td 1\t1\n")
        )
        check_run(path, spaced)


def test_ids_are_read_as_id_too(make):
    corpus = [{"id": "d1", "text": "a cat"}, {"_id": "d2", "id": 7, "text": "a fox"}]
    queries = lines([{"id": "q1", "text": "x"}])
    collection = read_collection(
        make(corpus_jsonl=lines(corpus), queries_jsonl=queries, qrels__test_tsv=f"{HEADER}\nq1\td2\t1\n")
    )
    assert collection.ids == ["d1", "d2"] and collection.query_ids == ["q1"]
    with pytest.raises(UserError, match=r"corpus\.jsonl:1: '_id' is missing, or is no text; keys: docid, text; give"):
        read_collection(
            make(corpus_jsonl=lines([{"docid": "d2", "text": "a"}]), qrels__test_tsv=f"{HEADER}\nq1\td2\t1\n")
        )
