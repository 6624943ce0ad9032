"""Metrics of rankings beside trec_eval's, on random runs with ties, unjudged documents and negative grades."""

import numpy as np
import pytest

from unmask.metrics.intervals import intervals, measure_all
from unmask.metrics.retrieval import in_order, measure_queries, query_metrics


def cases():
    """Yield 300 random queries as (run, judgments), each a mapping of ids of documents to scores or grades."""
    rng = np.random.default_rng(0)
    names = [f"d{number}" for number in range(150)] + ["ä", "Z", "_", "é1", "~", "文"]
    for case in range(300):
        ranked = rng.choice(names, rng.integers(1, 140), replace=False)
        judged = rng.choice(names, rng.integers(1, 30), replace=False)
        scores = rng.integers(0, 6, len(ranked)) / 3 if case % 2 else rng.normal(size=len(ranked))
        scores = scores + 1e-10 * rng.normal(size=len(scores))  # differences that single precision does not have
        grades = rng.integers(-1, 4, len(judged))
        yield dict(zip(ranked, scores.tolist(), strict=True)), dict(zip(judged, grades.tolist(), strict=True))


def score(run, judgments):
    ids = np.argsort(np.argsort(list(run)))
    order = in_order(np.array(list(run.values())), ids)
    names = [list(run)[index] for index in order]
    ranked = np.array([judgments.get(name, 0) for name in names])
    return query_metrics(ranked, np.array(list(judgments.values())))


def test_all_metrics_are_those_of_trec_eval():
    trec = pytest.importorskip("pytrec_eval", reason="pytrec-eval-terrier is not installed")
    queries = {str(number): case for number, case in enumerate(cases())}
    judgments = {query: {str(name): grade for name, grade in of.items()} for query, (_, of) in queries.items()}
    runs = {query: {str(name): value for name, value in of.items()} for query, (of, _) in queries.items()}
    evaluator = trec.RelevanceEvaluator(judgments, {"ndcg_cut.10", "map", "recall.10,100", "recip_rank"})
    theirs = evaluator.evaluate(runs)
    names = {"ndcg@10": "ndcg_cut_10", "map": "map", "recall@10": "recall_10", "recall@100": "recall_100"}
    for query, (run, of) in queries.items():
        ours = score(run, of)
        for name, other in names.items():
            assert ours[name] == pytest.approx(theirs[query][other], abs=1e-12), (query, name)
        first = theirs[query]["recip_rank"]
        assert ours["mrr@10"] == pytest.approx(first if first >= 0.1 else 0), query


def test_values_from_the_definitions():
    ranked, judged = np.array([0, 3, 1, 0, 2]), np.array([1, 2, 3, 2, 0])
    gain, ideal = 3 / np.log2(3) + 1 / 2 + 2 / np.log2(6), 3 + 2 / np.log2(3) + 2 / 2 + 1 / np.log2(5)
    assert query_metrics(ranked, judged) == pytest.approx(
        {
            "ndcg@10": gain / ideal,
            "mrr@10": 1 / 2,
            "map": (1 / 2 + 2 / 3 + 3 / 5) / 4,
            "recall@10": 3 / 4,
            "recall@100": 3 / 4,
        }
    )
    assert set(query_metrics(np.array([], int), judged).values()) == {0.0}


def test_equal_scores_are_ordered_by_descending_id():
    assert in_order(np.array([1.0, 2.0, 1.0 + 1e-12]), np.array([0, 1, 2])).tolist() == [1, 2, 0]


def test_means_over_queries_have_intervals():
    measure = measure_queries([query_metrics(np.array([grade]), np.array([1])) for grade in [1, 0, 1, 1]])
    assert measure_all(measure, 4)["ndcg@10"] == 75
    low, high = intervals(measure, 4)["ndcg@10"]
    assert 20 < low < 75 < high < 100
