"""Search on a collection: vectors, BM25 and runs, beside trec_eval and sentence-transformers; the command line."""

import json
import shutil

import numpy as np
import pytest
import torch

from unmask.cli.main import main
from unmask.data.labelled.retrieval_files import read_collection
from unmask.families.checkpoints.sentence_modules import Pooling
from unmask.inference import search
from unmask.inference.evaluation import retrieval
from unmask.inference.evaluation.evaluate_model import evaluate
from unmask.inference.load import load
from unmask.model.model import Model, build_encoder, save_model
from unmask.support.errors import UserError
from unmask.tasks.ranking import Ranking, RankingHead
from unmask.tasks.regression import Regression, RegressionHead
from unmask.tasks.rows import as_rows

HERE = {"device": "cpu", "precision": "float32", "quiet": True}
JUDGED = 12
"""Number of queries with judgments."""


@pytest.fixture(scope="module")
def collection(documents, tmp_path_factory):
    """The documents of the tests; the queries are sentences of them."""
    path = tmp_path_factory.mktemp("search")
    (path / "qrels").mkdir()
    corpus = [{"_id": f"d{number}", "title": "", "text": text} for number, text in enumerate(documents)]
    queries = [{"_id": f"q{number}", "text": documents[number].split(".")[1]} for number in range(20)]
    for name, records in (("corpus", corpus), ("queries", queries)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    judgments = [
        f"q{number}\td{document}\t{2 - (document != number)}" for number in range(JUDGED) for document in (number, 50)
    ]
    (path / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judgments]))
    return path


@pytest.fixture
def encoder(tmp_path, recipe, tokenizer):
    """A model of random weights, with a prompt for queries."""
    model = Model(build_encoder(recipe.encoder, tokenizer.size), tokenizer, pooling=Pooling(query="the dog : "))
    save_model(tmp_path / "encoder", model, "")
    return tmp_path / "encoder"


def trec_eval(path, run):
    """Return the metrics of a run file, read and computed by another program."""
    trec = pytest.importorskip("pytrec_eval", reason="pytrec-eval-terrier is not installed")
    judgments, ranked = {}, {}
    for line in (path / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        judgments.setdefault(query, {})[document] = int(grade)
    for line in run.read_text().splitlines():
        query, _, document, _, score, _ = line.split(" ")
        ranked.setdefault(query, {})[document] = float(score)
    scores = trec.RelevanceEvaluator(judgments, {"ndcg_cut.10", "map", "recall.10,100"}).evaluate(ranked)
    names = {"ndcg@10": "ndcg_cut_10", "map": "map", "recall@10": "recall_10", "recall@100": "recall_100"}
    means = {name: 100 * np.mean([of[other] for of in scores.values()]) for name, other in names.items()}
    return means, ranked


def test_vectors_are_searched_exactly_in_blocks(collection, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "BLOCK", 7)
    run = tmp_path / "my.run"
    result = evaluate(encoder, collection, run_file=run, **HERE)
    means, ranked = trec_eval(collection, run)
    assert (result["task"], result["examples"], result["documents"]) == ("retrieval", JUDGED, 120)
    assert {name: result["metrics"][name] for name in means} == pytest.approx(means)
    low, high = result["intervals"]["ndcg@10"]
    assert low < result["metrics"]["ndcg@10"] < high
    predictor = load(encoder, device="cpu", precision="float32")
    texts = [json.loads(line)["text"] for line in (collection / "corpus.jsonl").read_text().splitlines()]
    query = json.loads((collection / "queries.jsonl").read_text().splitlines()[3])["text"]
    cosines = (predictor.vectors(texts)[0] @ predictor.embed([f"the dog : {query.strip()}"])[0]).tolist()
    assert ranked["q3"] == pytest.approx({f"d{number}": cosine for number, cosine in enumerate(cosines)}, abs=1e-5)
    assert result["milliseconds_per_query"] > 0
    assert "8 of 20 queries have no judgments in test.tsv" in result["notes"]


def test_relevant_documents_that_are_absent_are_not_found(collection, encoder, tmp_path):
    """Metrics are those of trec_eval, which does not know which documents there are."""
    shutil.copytree(collection, tmp_path / "absent")
    with (tmp_path / "absent/qrels/test.tsv").open("a") as file:
        file.write("\nq0\tabsent\t2\nq1\tother\t1\nq12\tother\t1\n")
    result = evaluate(encoder, tmp_path / "absent", run_file=tmp_path / "my.run", **HERE)
    means, _ = trec_eval(tmp_path / "absent", tmp_path / "my.run")
    assert {name: result["metrics"][name] for name in means} == pytest.approx(means)
    assert result["examples"] == JUDGED + 1
    assert any("3 of 27 judged documents are not in corpus.jsonl" in note for note in result["notes"])


def test_unknown_prompts_are_refused(encoder):
    with pytest.raises(UserError, match='prompt_name="passage": unknown; choose one of query, document'):
        load(encoder, device="cpu", precision="float32").embed(["a dog"], prompt_name="passage")


def test_systems_are_compared_on_the_same_queries(collection, encoder, tmp_path):
    pytest.importorskip("bm25s", reason="bm25s is not installed")
    run = tmp_path / "bm25.run"
    result = evaluate("bm25", collection, run_file=run, against=encoder, **HERE)
    means, _ = trec_eval(collection, run)
    assert {name: result["metrics"][name] for name in means} == pytest.approx(means)
    assert result["metrics"]["mrr@10"] > 30, "the queries are sentences of the documents, some of which are in several"
    assert result["metrics"]["ndcg@10"] - result["against"]["metrics"]["ndcg@10"] == pytest.approx(
        result["against"]["differences"]["ndcg@10"]["difference"]
    )
    assert evaluate(run, collection, **HERE)["metrics"] == result["metrics"]
    assert "milliseconds_per_query" not in evaluate(run, collection, **HERE)
    short = evaluate("bm25", collection, run_file=run, depth=3, **HERE)
    assert {len(of) for of in trec_eval(collection, run)[1].values()} == {3}
    assert short["metrics"]["recall@100"] == short["metrics"]["recall@10"]


def test_a_query_that_is_a_document_is_not_ranked_for_itself(encoder, tmp_path):
    path = tmp_path / "questions"
    (path / "qrels").mkdir(parents=True)
    records = "".join(
        json.dumps({"_id": name, "text": text}) + "\n" for name, text in (("a", "the dog"), ("b", "rain"))
    )
    for name in ("corpus", "queries"):
        (path / f"{name}.jsonl").write_text(records)
    (path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\na\tb\t1\n")
    result = evaluate(encoder, path, depth=1, **HERE)
    assert result["metrics"]["mrr@10"] == 100
    assert (
        "1 of 1 query is among the documents, too, and is omitted from the ranking for the same query"
        in result["notes"]
    )


def test_a_run_does_not_overwrite_what_is_read(collection, encoder, tmp_path):
    run = tmp_path / "first.run"
    evaluate("bm25", collection, run_file=run, **HERE)
    (tmp_path / "link.run").symlink_to(run)
    judgments = next((collection / "qrels").iterdir())
    for written, system, read in (
        (run, {"first_stage": run}, "first_stage"),
        (tmp_path / "link.run", {"against": run}, "against"),
        (run, {"fuse_with": run}, "fuse_with"),
        (judgments, {}, "data"),
        (collection / "corpus.jsonl", {}, "data"),
    ):
        before = written.read_bytes()
        with pytest.raises(UserError, match=f"run_file is the same file as {read}"):
            evaluate(encoder, collection, run_file=written, **system, **HERE)
        assert written.read_bytes() == before


def test_what_has_no_effect_is_refused(collection, encoder, tmp_path, recipe, tokenizer, text_file):
    for options, message in (
        ({"columns": {"text": "a"}}, "columns has no effect: this is a collection for search"),
        ({"encoding": "latin-1"}, "encoding has no effect: this is a collection"),
        ({"field": "body"}, "field has no effect: this is a collection"),
        ({"depth": 0}, "depth=0: not a whole number of 1 or more"),
        ({"run_file": tmp_path}, "run_file is a directory; name a file"),
        ({"run_file": tmp_path / "none/a.run"}, "there is no such directory; create it, or name another run_file"),
    ):
        with pytest.raises(UserError, match=message):
            evaluate(encoder, collection, **options, **HERE)
    with pytest.raises(UserError, match=r"depth, run_file have no effect: data is no directory with corpus.jsonl"):
        evaluate(encoder, text_file, depth=3, run_file="x", **HERE)
    with pytest.raises(UserError, match="one collection at a time"):
        evaluate(encoder, [collection, text_file], **HERE)
    heads = {"regression": RegressionHead(recipe.encoder.head).state_dict()}
    model = Model(
        build_encoder(recipe.encoder, tokenizer.size), tokenizer, heads, (), Regression(length=16, pairs=False)
    )
    save_model(tmp_path / "regression", model, "")
    with pytest.raises(UserError, match="this model is for regression, and makes no vectors for search"):
        evaluate(tmp_path / "regression", collection, **HERE)
    with pytest.raises(UserError, match="first_stage has no effect: no model reranks what it finds"):
        evaluate(encoder, collection, first_stage=encoder, **HERE)


def ranked(run):
    """Return the documents of a run file by query, the best first, as trec_eval orders them."""
    lines = [line.split(" ") for line in run.read_text().splitlines()]
    best = sorted(((query, float(score), document) for query, _, document, _, score, _ in lines), reverse=True)
    return {query: [document for of, _, document in best if of == query] for query, _, _ in best}


def test_rankings_are_fused_by_reciprocal_ranks(collection, encoder, tmp_path, text_file):
    runs = {name: tmp_path / f"{name}.run" for name in ("vectors", "bm25", "fused")}
    evaluate(encoder, collection, run_file=runs["vectors"], depth=30, **HERE)
    alone = evaluate("bm25", collection, run_file=runs["bm25"], depth=7, **HERE)
    result = evaluate(
        runs["vectors"], collection, fuse_with=runs["bm25"], against="bm25", run_file=runs["fused"], depth=30, **HERE
    )
    assert result["task"] == "retrieval"
    assert "milliseconds_per_query" not in result
    vectors, bm25, fused = (ranked(runs[name]) for name in ("vectors", "bm25", "fused"))
    for query, documents in vectors.items():
        scores = {}
        for ranking in (documents, bm25.get(query, [])[:30]):
            for rank, document in enumerate(ranking, 1):
                scores[document] = scores.get(document, 0) + 1 / (60 + rank)
        expected = sorted(scores, key=lambda document: (round(scores[document], 9), document), reverse=True)
        assert fused[query] == expected[:30]
    means, _ = trec_eval(collection, runs["fused"])
    assert {name: result["metrics"][name] for name in means} == pytest.approx(means)
    assert result["against"]["metrics"]["recall@10"] >= alone["metrics"]["recall@10"]
    live = evaluate(encoder, collection, fuse_with="bm25", **HERE)
    assert live["milliseconds_per_query"] > 0
    with pytest.raises(UserError, match="fuse_with has no effect: data is no directory"):
        evaluate(encoder, text_file, fuse_with=encoder, **HERE)


@pytest.fixture(params=["ranking", "regression"])
def reranker(request, tmp_path, recipe, tokenizer):
    """A cross-encoder of random weights."""
    encoder = build_encoder(recipe.encoder, tokenizer.size)
    torch.manual_seed(0)
    if request.param == "ranking":
        task, head = Ranking(length=48, activation="sigmoid"), RankingHead(recipe.encoder.head, "binary")
    else:
        task, head = Regression(length=48), RegressionHead(recipe.encoder.head)
    torch.nn.init.normal_(head.out.weight)
    save_model(tmp_path / "reranker", Model(encoder, tokenizer, {task.part: head.published()}, (), task), "")
    return tmp_path / "reranker"


def test_a_cross_encoder_orders_what_the_first_stage_finds(collection, encoder, reranker, tmp_path, monkeypatch):
    monkeypatch.setattr(retrieval, "DEPTHS", (3, 7))
    first, run = tmp_path / "first.run", tmp_path / "my.run"
    whole = evaluate(encoder, collection, run_file=first, depth=12, **HERE)
    result = evaluate(reranker, collection, first_stage=first, depth=12, run_file=run, against=first, **HERE)
    means, ranked = trec_eval(collection, run)
    assert (result["task"], result["examples"]) == ("reranking", JUDGED)
    assert {name: result["metrics"][name] for name in means} == pytest.approx(means)
    assert result["against"]["metrics"] == whole["metrics"]
    found = trec_eval(collection, first)[1]
    assert {query: of.keys() for query, of in found.items()} == {query: of.keys() for query, of in ranked.items()}
    predictor = load(reranker, device="cpu", precision="float32")
    texts = {f"d{number}": text for number, text in enumerate(read_collection(collection).texts())}
    query = read_collection(collection).queries[2]
    scores = predictor.run(as_rows([query] * 12, [texts[name] for name in ranked["q2"]]))
    assert predictor.task.rankable(scores) == pytest.approx([*ranked["q2"].values()], abs=1e-4)
    table = result["by_depth"]
    assert [*table] == ["first stage", "3 reranked", "7 reranked", "12 reranked"]
    assert table["first stage"] == whole["metrics"], "a run file has no time"
    times = [of["milliseconds_per_query"] for of in [*table.values()][1:]]
    assert 0 < times[0] < times[1] < times[2] == result["milliseconds_per_query"]
    assert table["12 reranked"] == pytest.approx(result["metrics"] | {"milliseconds_per_query": times[2]})
    mixed = tmp_path / "mixed.run"
    lines = []
    for name, of in found.items():
        best = sorted([*of][:3], key=lambda document: -ranked[name][document])
        lines += [f"{name} 0 {document} 1 {-rank} x" for rank, document in enumerate([*best, *[*of][3:]])]
    mixed.write_text("\n".join(lines))
    three = evaluate(mixed, collection, **HERE)["metrics"]
    assert table["3 reranked"] == pytest.approx(three | {"milliseconds_per_query": times[0]})
    assert {len(of) for of in ranked.values()} == {12}


@pytest.mark.parametrize("system", ["bm25", "a.run"])
def test_a_search_needs_a_collection(collection, system, tmp_path):
    """A path that is mistyped is named, not the system, as if it were a model that does not exist."""
    run = tmp_path / "a.run"
    run.write_text("q1 Q0 d1 1 1 x\n")
    system = run if system == "a.run" else system
    for data, message in (
        (tmp_path / "none", f"{tmp_path / 'none'}: does not exist; a collection is a directory with corpus.jsonl"),
        (run, "a.run: is no collection for search; a collection is a directory with corpus.jsonl"),
        ({"text": ["a"], "label": ["b"]}, "a search is evaluated on a collection"),
    ):
        with pytest.raises(UserError) as caught:
            evaluate(system, data, quiet=True)
        assert message in str(caught.value)


def test_a_cross_encoder_needs_a_first_stage(collection, encoder, reranker):
    with pytest.raises(UserError, match='documents that another system has found; pass first_stage="bm25", a run'):
        evaluate(reranker, collection, **HERE)
    with pytest.raises(UserError, match="documents that another system has found"):
        evaluate(reranker, collection, first_stage=reranker, **HERE)
    with pytest.raises(UserError, match="dimensions has no effect: no model makes vectors of texts"):
        evaluate(reranker, collection, first_stage="bm25", dimensions=4, **HERE)
    short = evaluate(reranker, collection, first_stage=encoder, depth=2, dimensions=8, **HERE)
    assert [*short["by_depth"]] == ["first stage", "2 reranked"]
    assert short["by_depth"]["first stage"]["milliseconds_per_query"] < short["milliseconds_per_query"]


def test_what_cannot_be_is_refused_before_anything_is_computed(collection, encoder, reranker, tmp_path, monkeypatch):
    monkeypatch.setattr(retrieval, "_rank", lambda *given, **more: pytest.fail("computed"))
    for system, options, message in (
        (encoder, {"against": reranker}, "documents that another system has found"),
        (encoder, {"against": "bm25", "first_stage": "bm25"}, "first_stage has no effect"),
        (encoder, {"against": "nothing"}, "no directory 'nothing'"),
        ("bm25", {"dimensions": 4}, "dimensions has no effect"),
    ):
        with pytest.raises(UserError, match=message):
            evaluate(system, collection, **options, **HERE)
    spaced = shutil.copytree(collection, tmp_path / "spaced")
    with (spaced / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "a b", "text": "rain"}\n')
    with pytest.raises(UserError, match="the id 'a b' has a space"):
        evaluate("bm25", spaced, run_file=tmp_path / "a.run", **HERE)


def test_from_the_command_line(collection, encoder, capsys):
    assert main(["evaluate", "--model", str(encoder), "--data", str(collection), "--device", "cpu"]) == 0
    shown, notes = capsys.readouterr()
    assert shown.startswith(f"retrieval: {JUDGED} examples")
    assert "ndcg@10" in shown and "ms per query, after" in notes
