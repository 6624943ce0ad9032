"""Sparse encoders: the loss and directories beside sentence-transformers, training, search, predictions, the server."""

import json

import numpy as np
import pytest
import torch

from unmask.cli.main import main
from unmask.data.batches.batch import collate
from unmask.families.bert import BertSettings
from unmask.inference.evaluation.evaluate_model import evaluate
from unmask.inference.load import load
from unmask.inference.search import NearestSparse, embed_sparse
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.serving.metrics import Meter
from unmask.serving.served import Served
from unmask.serving.types import Limits
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.tasks.sparse import WARMUP, Sparse, SparseRequest, SparseValue
from unmask.workflows.finetuning.finetune import finetune

from .conftest import assert_gradient_of_the_whole_step, pair_rows

SHAPE = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=64)
PAIRS = [("the dog sees", "the cat"), ("a poem", "the old town"), ("the river", "rain"), ("a", "dog")]
TEXTS = ["the dog is near the sea", "under a tree sees poem"]


@pytest.fixture
def learner(recipe, tokenizer):
    """A learner whose decoder has a few positive logits."""
    encoder = build_encoder(recipe.encoder, tokenizer.size, dropout=0.0)
    task = Sparse(length=24, query_flops=0.3, document_flops=0.2)
    head = task.build_on(encoder, ())
    torch.nn.init.normal_(head.bias, std=0.3)
    return Learner(encoder, {"sparse": head}).train()


def framed(learner, tokenizer, rows, done=1.0):
    task = learner.parts["sparse"].task
    return [learner.prepare(sample.at(done)) for sample in task.frame(tokenizer, rows, (), gold=True).samples]


@pytest.mark.parametrize("negatives", [False, True])
def test_the_loss_is_that_of_sentence_transformers(learner, tokenizer, negatives):
    losses = pytest.importorskip("sentence_transformers.sparse_encoder.losses", reason="needs sentence-transformers")
    poolings = pytest.importorskip("sentence_transformers.sparse_encoder.modules")
    rows = pair_rows(PAIRS, negatives=negatives)
    part = learner(collate(framed(learner, tokenizer, rows)))["sparse"]
    head, pooling, vectors = learner.parts["sparse"], poolings.SpladePooling(), []
    for sample in head.task.frame(tokenizer, rows, (), gold=False).samples:
        batch = collate([sample])
        logits = torch.nn.functional.linear(*head.project(learner.encoder, learner.encoder(batch.tokens).last))[None]
        features = {"token_embeddings": logits, "attention_mask": torch.ones(1, logits.shape[1])}
        vectors.append(pooling(features)["sentence_embedding"][0])
    count = len(vectors) // 4
    columns = [torch.stack(vectors[side::count]) for side in range(count)]
    inner = losses.SparseMultipleNegativesRankingLoss(torch.nn.Identity())
    splade = losses.SpladeLoss(torch.nn.Identity(), inner, 0.2, 0.3)
    expected = (
        inner.compute_loss_from_embeddings(columns, None)
        + 0.3 * splade.query_regularizer.compute_loss_from_embeddings(columns[0])
        + 0.2 * splade.document_regularizer.compute_loss_from_embeddings(torch.cat(columns[1:]))
    )
    torch.testing.assert_close(part.sum / 4, expected, rtol=1e-4, atol=1e-5)
    assert float(part.metrics["query_tokens"]) == pytest.approx(float((columns[0] > 0).sum()))


def test_flops_grow_with_the_square_of_the_time(learner, tokenizer):
    shares = [
        framed(learner, tokenizer, pair_rows(PAIRS, negatives=False), done)[0].labels[WARMUP][0]
        for done in (0, 1 / 6, 1 / 3, 1)
    ]
    assert shares == pytest.approx([0, 0.25, 1, 1])
    first, middle, last = (
        float(
            learner(collate(framed(learner, tokenizer, pair_rows(PAIRS, negatives=True), done)))["sparse"].sum.detach()
        )
        for done in (0, 1 / 6, 1)
    )
    assert first < middle < last and middle - first == pytest.approx((last - first) / 4, rel=1e-3)


def test_the_gradient_is_that_of_the_whole_step(learner, tokenizer):
    samples = framed(learner, tokenizer, pair_rows(PAIRS, negatives=True))
    assert_gradient_of_the_whole_step(learner, "sparse", samples)


@pytest.fixture(scope="module")
def base(tokenizer, tmp_path_factory):
    """A masked language model."""
    folder = tmp_path_factory.mktemp("base")
    encoder = build_encoder(SHAPE, tokenizer.size)
    head = MaskedLM(BuildContext(encoder))
    torch.nn.init.normal_(head.bias, std=0.3)
    save_model(folder / "base", Model(encoder, tokenizer, {"masked_lm": head.published()}), "")
    return folder / "base"


@pytest.fixture(scope="module")
def run(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparse")
    data = folder / "pairs.tsv"
    data.write_text("\n".join(["query\tpassage", *("\t".join(pair) for pair in PAIRS * 6)]))
    sets = parse_overrides(["budget.steps=40", "task.length=24", "optimizer.learning_rate=3e-3"])
    finetune("sparse", base, [data], folder / "run", settings=sets, quiet=True, device="cpu", precision="float32")
    return folder / "run"


def dense_weights(directory, texts):
    predictor = load(directory, device="cpu")
    return embed_sparse(predictor, texts, []).dense(slice(None)).numpy()


def test_a_model_learns_and_is_read_again(run, base):
    result = json.loads((run / "dev.json").read_text())
    assert result["metrics"]["accuracy"] == 100
    model = load_model(run)
    assert isinstance(model.task, Sparse) and model.heads["sparse"] == {} and "masked_lm" in model.heads
    assert not torch.equal(
        model.heads["masked_lm"]["dense.weight"], load_model(base).heads["masked_lm"]["dense.weight"]
    )
    assert load(run, device="cpu").fill(["the [MASK] sees"])
    before, after = ((dense_weights(of, TEXTS) > 0).sum() if of == run else 0 for of in (base, run))
    assert before < after


def test_sentence_transformers_reads_and_writes_the_directory(run, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    theirs = library.SparseEncoder(str(run / "model"), device="cpu", local_files_only=True)
    assert theirs.max_seq_length == 24 and theirs.similarity_fn_name == "dot"
    expected = theirs.encode(TEXTS).to_dense().numpy()
    assert (expected > 0).any()
    theirs.save_pretrained(str(tmp_path / "theirs"))
    for directory in (run, tmp_path / "theirs"):
        np.testing.assert_allclose(dense_weights(directory, TEXTS), expected, atol=1e-5)
    config = tmp_path / "theirs" / "config.json"
    config.write_text(json.dumps({k: v for k, v in json.loads(config.read_text()).items() if k != "unmask"}))
    np.testing.assert_allclose(dense_weights(tmp_path / "theirs", TEXTS), expected, atol=1e-5)
    path = tmp_path / "theirs" / "config_sentence_transformers.json"
    stated = path.read_text()
    path.write_text(json.dumps({**json.loads(stated), "prompts": {"query": "the dog ", "document": ""}}))
    prompted = library.SparseEncoder(str(tmp_path / "theirs"), device="cpu", local_files_only=True)
    assert not np.allclose(prompted.encode_query(TEXTS).to_dense().numpy(), expected)
    with pytest.raises(UserError, match="the sparse vectors of this model need the prompt 'the dog '"):
        load(tmp_path / "theirs", device="cpu")
    path.write_text(stated)
    path = tmp_path / "theirs" / "1_SpladePooling" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pooling_strategy": "sum"}))
    with pytest.raises(UserError, match="the sparse vectors of this model need pooling_strategy: 'sum'"):
        load(tmp_path / "theirs", device="cpu")


def test_tokens_are_predicted_with_their_weights(run, tmp_path, capsys):
    predictor, expected = load(run, device="cpu"), dense_weights(run, TEXTS)
    for vector, row in zip(predictor.predict(TEXTS), expected, strict=True):
        assert list(vector.weights.values()) == sorted(row[row > 0].tolist(), reverse=True)
        assert vector.weights == dict(
            zip(predictor.model.tokenizer.tokens(vector.ids), row[list(vector.ids)], strict=True)
        )
    (pair,) = predictor.predict(TEXTS[:1], TEXTS[1:])
    assert pair.score == pytest.approx(float(expected[0] @ expected[1]), rel=1e-4)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    out = tmp_path / "out.jsonl"
    command = [
        "predict",
        "--model",
        str(run),
        "--data",
        str(tmp_path / "texts.txt"),
        "--out",
        str(out),
        "--device",
        "cpu",
    ]
    assert main(command) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["text"] for line in lines] == TEXTS and lines[0]["weights"]
    assert main(["predict", "--model", str(run), TEXTS[0], "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith(f"{TEXTS[0]}\t")


def test_search_is_by_exact_products(run, documents, tmp_path):
    texts = [f"{sentence} ." for text in documents for sentence in text.split(". ")][:60]
    vectors = embed_sparse(load(run, device="cpu"), texts, [])
    dense = vectors.dense(slice(None))
    np.testing.assert_allclose(vectors.tensor().to_dense(), dense)
    nearest = NearestSparse(embed_sparse(load(run, device="cpu"), texts[:5], []), 7)
    for start in range(0, 60, 25):
        nearest.add(embed_sparse(load(run, device="cpu"), texts[start : start + 25], []))
    products = (dense[:5] @ dense.T).numpy()
    for row, (found, scores) in zip(products, nearest.results(), strict=True):
        np.testing.assert_allclose(scores, np.sort(row)[::-1][:7], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(row[found], scores, rtol=1e-4, atol=1e-5)
    path = tmp_path / "collection"
    (path / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    queries = [{"_id": f"q{number}", "text": texts[number][:15]} for number in range(5)]
    for name, records in (("corpus", corpus), ("queries", queries)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    judgments = [f"q{number}\td{number}\t1" for number in range(5)]
    (path / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judgments]))
    result = evaluate(run, path, quiet=True, device="cpu")
    assert result["metrics"]["recall@100"] == 100 and any("tokens with a weight" in note for note in result["notes"])


def test_the_server_has_the_shapes_of_text_embeddings_inference(run):
    served = Served("sparse", load(run, device="cpu"), Limits(), Meter())
    served.warm_up()
    assert served.has("/embed_sparse")
    assert not any(map(served.has, ("/embed", "/similarity"))), "it makes no dense vectors"
    job = served.ask(SparseRequest(inputs=TEXTS))
    answer = job.read(served.compute(job.head, job.samples))
    for found, row in zip(answer, dense_weights(run, TEXTS), strict=True):
        assert {of.index for of in found} == set(np.flatnonzero(row).tolist())
        assert all(isinstance(of, SparseValue) and of.value == pytest.approx(float(row[of.index])) for of in found)


def test_what_cannot_be_is_refused(base, run, recipe, tokenizer, tmp_path):
    data, predictor = run.parent / "pairs.tsv", load(run, device="cpu")
    with pytest.raises(UserError, match="sparse vectors, which predict returns"):
        predictor.embed(TEXTS)
    assert predictor.embed(TEXTS, pooling="mean").shape == (len(TEXTS), 16)
    save_model(tmp_path / "bare", Model(build_encoder(recipe.encoder, tokenizer.size), tokenizer), "")
    with pytest.raises(UserError, match="sparse needs the masked_lm head of the model, which it has not"):
        finetune("sparse", tmp_path / "bare", [data], tmp_path / "run", quiet=True, device="cpu")
    with pytest.raises(UserError, match="vectors are those of the encoder itself"):
        finetune("sparse", base, [data], tmp_path / "run", frozen=True, quiet=True, device="cpu")
    for settings in ({"temperature": 0.0}, {"query_flops": -1.0}, {"flops_warmup": 2.0}):
        with pytest.raises(ValueError, match="must"):
            Sparse(**settings)
