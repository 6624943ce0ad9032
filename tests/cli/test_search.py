"""`unmask evaluate` on collections with bad input: by vectors of texts and of tokens, sparse vectors, and BM25.

What is wrong is an error that names the place, or is counted.
"""

import json
from dataclasses import replace

import pytest
import torch

from unmask.model.model import Model, build_encoder, save_model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.tasks.embedding import Embedding
from unmask.tasks.late_interaction import LateInteraction
from unmask.tasks.sparse import Sparse

from .conftest import run

TASKS = {
    "embedding": Embedding(length=16),
    "sparse": Sparse(length=16),
    "late": LateInteraction(length=16, query_length=12, query_prompt="", document_prompt=""),
}
CORPUS = {"d1": "the dog sees the river", "d2": "a poem", "d3": "the cat is near the sea", "d4": "under a tree"}
QUERIES = {"q1": "a river", "q2": "the cat"}
QRELS = [("q1", "d1", 1), ("q2", "d3", 1)]


@pytest.fixture
def models(tmp_path, recipe, tokenizer):
    """Random models by kind, and one whose vectors are too large."""
    encoder = build_encoder(recipe.encoder, tokenizer.size)
    lm = MaskedLM(BuildContext(encoder)).published()
    heads = {
        "embedding": {"embedding": {}},
        "sparse": {"masked_lm": lm, "sparse": {}},
        "late": {"late_interaction": TASKS["late"].build(encoder.head, ()).published()},
    }
    built = {kind: Model(encoder, tokenizer, heads[kind], (), task) for kind, task in TASKS.items()}
    built["embedding"] = replace(built["embedding"], pooling=TASKS["embedding"].vectors.pooling)
    for kind, model in built.items():
        save_model(tmp_path / kind, model, "")
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            if name.startswith("blocks.1") and "norm" in name and name.endswith("weight"):
                value.fill_(1e30)
    save_model(tmp_path / "huge", built["embedding"], "")
    return {**{kind: tmp_path / kind for kind in (*TASKS, "huge")}, "bm25": "bm25"}


def write(folder, corpus=(), queries=(), qrels=()):
    """Write the collection with further documents, queries and judgments."""
    (folder / "qrels").mkdir(parents=True)
    for name, texts, more in (("corpus", CORPUS, corpus), ("queries", QUERIES, queries)):
        lines = [json.dumps({"_id": id, "text": text}) for id, text in (*texts.items(), *more)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in (*QRELS, *qrels))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows))
    return folder


LONG = "the dog sees the sea " * 10
REFUSED = {
    "queries.jsonl:3: the query 'q3' is empty; remove it": {"queries": [("q3", " ")], "qrels": [("q3", "d2", 1)]},
    "corpus.jsonl:5: the id 'd1' is also that of line 1": {"corpus": [("d1", "rain")]},
    "test.tsv:4: there is no query 'q9' in queries.jsonl": {"qrels": [("q9", "d1", 1)]},
    "test.tsv:4: 'd1' is judged twice": {"qrels": [("q1", "d1", 1)]},
}
COUNTED = {
    "1 of 3 judged documents is not in corpus.jsonl and is counted as not found": {"qrels": [("q1", "d9", 1)]},
    "documents: 1 of 5 texts is longer than 16 tokens and was cut": {"corpus": [("d5", LONG)]},
    "queries: 1 of 3 texts is longer than": {"queries": [("q3", LONG)], "qrels": [("q3", "d2", 1)]},
    "1 of 5 documents has the text of an earlier one": {"corpus": [("d5", CORPUS["d2"])]},
    "1 of 5 documents is empty": {"corpus": [("d5", "")]},
    "1 of 3 judged queries has no relevant document": {"queries": [("q3", "rain")], "qrels": [("q3", "d2", 0)]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_collections_are_refused(models, tmp_path, message):
    data = write(tmp_path / "data", **REFUSED[message])
    for model in ("late", "bm25"):
        assert message in run("evaluate", "--model", models[model], "--data", data, "--device", "cpu", status=2).err


@pytest.mark.parametrize("message", COUNTED)
def test_what_is_odd_is_counted(models, tmp_path, message):
    data = write(tmp_path / "data", **COUNTED[message])
    for kind, model in models.items():
        if kind != "huge" and (kind != "bm25" or "longer" not in message):
            printed = run("evaluate", "--model", model, "--data", data, "--device", "cpu")
            assert message in printed.err and "ndcg@10" in printed.out, kind


def test_vectors_that_are_no_numbers_and_too_many_dimensions_are_refused(models, tmp_path):
    data = write(tmp_path / "data")
    given = ("evaluate", "--data", data, "--device", "cpu", "--model")
    assert "the model's outputs are not numbers (overflow)" in run(*given, models["huge"], status=2).err
    width = json.loads((models["embedding"] / "config.json").read_text())["hidden_size"]
    for dimensions in (width + 1, 0):
        error = run(*given, models["embedding"], "--dimensions", dimensions, status=2).err
        assert f"--dimensions {dimensions}: the vectors of this model have {width} dimensions" in error
    for kind in ("late", "sparse"):
        error = run(*given, models[kind], "--dimensions", 4, status=2).err
        assert "--dimensions has no effect: no model makes vectors of texts; omit it" in error
    texts = tmp_path / "texts.txt"
    texts.write_text("the dog")
    embed = ("embed", "--data", texts, "--device", "cpu", "--out", tmp_path / "a.npy", "--model")
    assert "outputs are not numbers" in run(*embed, models["huge"], status=2).err
    assert f"have {width} dimensions" in run(*embed, models["embedding"], "--dimensions", width + 1, status=2).err
