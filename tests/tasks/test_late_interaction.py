"""Late interaction: MaxSim, the loss and directories beside sentence-transformers, training, search, the server."""

import json
import shutil
import string

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.cli.main import main
from unmask.data.batches.batch import collate
from unmask.families.bert import BertSettings
from unmask.inference.embed import embed
from unmask.inference.evaluation.evaluate_model import evaluate
from unmask.inference.load import load
from unmask.inference.search import NearestTokens
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.nn.layers.vocabulary import max_sim
from unmask.objectives.learner import Learner
from unmask.serving.bodies import Refusal
from unmask.serving.endpoints import embed_all
from unmask.serving.metrics import Meter
from unmask.serving.rerank import CohereRequest, RerankRequest, cohere, rerank
from unmask.serving.served import Served
from unmask.serving.types import EmbedAllRequest, Limits
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.tasks.late_interaction import LateInteraction
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.multitask.multitask import multitask

from .conftest import assert_gradient_of_the_whole_step, pair_rows

SHAPE = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=64)
PAIRS = [("the dog sees", "the cat."), ("a poem", "the old, old town"), ("the river", "rain"), ("a", "dog sees it")]
TEXTS = ["the dog is near the sea, or not", "under a tree sees poem.", "a"]
SETTINGS = ["task.length=24", "task.query_length=16", "task.dense=[{width=8, activation='identity', bias=false}]"]


@st.composite
def ragged(draw, width):
    """Vectors of some texts, and how many each has."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    return torch.randn(sum(sizes), width, generator=generator, requires_grad=True), sizes


@given(ragged(3), ragged(3))
def test_max_sim_and_its_gradient_are_those_of_a_loop(queries, documents):
    found = max_sim(*queries, *documents)
    rows = [
        torch.stack([(query @ document.T).amax(1).sum() for document in documents[0].split(documents[1])])
        for query in queries[0].split(queries[1])
    ]
    expected = torch.stack(rows)
    torch.testing.assert_close(found, expected)
    weights = torch.arange(found.numel()).view_as(found).float()
    of = (queries[0], documents[0])
    for ours, theirs in zip(
        *(torch.autograd.grad((scores * weights).sum(), of) for scores in (found, expected)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.fixture
def learner(recipe, tokenizer):
    encoder = build_encoder(recipe.encoder, tokenizer.size, dropout=0.0)
    task = LateInteraction(length=24, query_length=12, query_prompt="", document_prompt="")
    return Learner(encoder, {"late_interaction": task.build_on(encoder, ())}).train()


def framed(learner, tokenizer, rows):
    task = learner.parts["late_interaction"].task
    return [learner.prepare(sample) for sample in task.frame(tokenizer, rows, (), gold=True).samples]


@pytest.mark.parametrize("negatives", [False, True])
def test_the_loss_is_that_of_sentence_transformers(learner, tokenizer, negatives):
    scoring = pytest.importorskip(
        "sentence_transformers.multi_vector_encoder.scoring", reason="needs sentence-transformers"
    )
    rows = pair_rows(PAIRS, negatives=negatives)
    part = learner(collate(framed(learner, tokenizer, rows)))["late_interaction"]
    head = learner.parts["late_interaction"]
    with torch.no_grad():
        vectors = []
        for sample in head.task.frame(tokenizer, rows, (), gold=False).samples:
            batch = collate([sample])
            vectors.append(head.predict(learner.encoder, learner.encoder(batch.tokens), batch))
    count = len(vectors) // 4
    longest = max(map(len, vectors))
    padded = torch.stack([torch.nn.functional.pad(rows, (0, 0, 0, longest - len(rows))) for rows in vectors])
    mask = torch.tensor([[place < len(rows) for place in range(longest)] for rows in vectors])
    padded, mask = padded.view(4, count, longest, -1), mask.view(4, count, longest)
    scores = scoring.colbert_scores(padded[:, 0], padded[:, 1:], mask[:, 0], mask[:, 1:])
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(4) * (count - 1))
    torch.testing.assert_close(part.sum.detach() / 4, expected, rtol=1e-4, atol=1e-5)


def test_the_gradient_is_that_of_the_whole_step(learner, tokenizer):
    samples = framed(learner, tokenizer, pair_rows(PAIRS, negatives=True))
    assert_gradient_of_the_whole_step(learner, "late_interaction", samples)


@pytest.fixture(scope="module")
def base(tokenizer, tmp_path_factory):
    """An encoder whose vocabulary lacks the tokens that queries and documents begin with."""
    folder = tmp_path_factory.mktemp("base")
    save_model(folder, Model(build_encoder(SHAPE, tokenizer.size), tokenizer), "")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    path.write_text("\n".join(["query\tpassage", *("\t".join(pair) for pair in PAIRS * 6)]))
    return path


def trained(base, data, out, *more):
    sets = parse_overrides(["budget.steps=60", "optimizer.learning_rate=5e-3", *SETTINGS, *more])
    finetune("late-interaction", base, [data], out, settings=sets, quiet=True, device="cpu", precision="float32")
    return out


@pytest.fixture(scope="module")
def run(base, data, tmp_path_factory):
    return trained(base, data, tmp_path_factory.mktemp("late") / "run")


def test_a_model_learns_and_is_read_again(run, base, data, tmp_path):
    assert json.loads((run / "dev.json").read_text())["metrics"]["accuracy"] == 100
    model = load_model(run)
    assert isinstance(model.task, LateInteraction) and model.task.width == 8 and model.task.query_length == 16
    assert model.tokenizer.size == load_model(base).tokenizer.size + 2 == model.encoder.vocabulary
    assert model.tokenizer.find("[Q] ") == model.tokenizer.size - 2
    # a model that continues it takes over its settings and its layer
    more = parse_overrides(["budget.steps=1", "optimizer.learning_rate=1e-9"])
    finetune("late-interaction", run, [data], tmp_path / "more", settings=more, quiet=True, device="cpu")
    continued = load_model(tmp_path / "more")
    assert continued.task == model.task and continued.encoder.vocabulary == model.encoder.vocabulary
    name = "dense.linear.0.weight"
    torch.testing.assert_close(
        continued.heads["late_interaction"][name], model.heads["late_interaction"][name], rtol=0, atol=1e-6
    )


def check_equal(directory, theirs, queries=TEXTS, documents=TEXTS):
    predictor = load(directory, device="cpu")
    for texts, name, encode in (
        (queries, "query", theirs.encode_query),
        (documents, "document", theirs.encode_document),
    ):
        ours = predictor.embed_tokens(texts, prompt_name=name)
        for found, expected in zip(ours, encode(texts), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    return predictor


@pytest.mark.parametrize(
    "more", [(), ("task.attend=true",), ("task.expand=false", 'task.query_prompt="a query: "'), ("task.skiplist=[]",)]
)
def test_sentence_transformers_reads_and_writes_the_directory(base, data, run, tmp_path, more):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    if not hasattr(library, "MultiVectorEncoder"):
        pytest.skip("sentence-transformers has no MultiVectorEncoder")
    run = trained(base, data, tmp_path / "run", "budget.steps=1", *more) if more else run
    theirs = library.MultiVectorEncoder(str(run / "model"), device="cpu", local_files_only=True)
    check_equal(run, theirs)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    for without in ((), ("unmask",)):
        config = tmp_path / "theirs" / "config.json"
        content = json.loads(config.read_text())
        config.write_text(json.dumps({key: value for key, value in content.items() if key not in without}))
        read = check_equal(tmp_path / "theirs", theirs)
        assert read.task.interaction == load(run, device="cpu").task.interaction


def test_the_files_are_those_of_pylate(run):
    """`ColBERT.save` of lightonai/pylate writes these keys, and reads them with these meanings."""
    read = {
        path: json.loads((run / "model" / path).read_text())
        for path in ("modules.json", "config_sentence_transformers.json", "1_Dense/config.json")
    }
    assert [step["type"] for step in read["modules.json"]] == [
        "sentence_transformers.models.Transformer",
        "pylate.models.Dense.Dense",
    ]
    settings = read["config_sentence_transformers.json"]
    assert settings == {
        "model_type": "ColBERT",
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 16,
        "document_length": 24,
        "attend_to_expansion_tokens": False,
        "do_query_expansion": True,
        "skiplist_words": list(string.punctuation),
    }
    assert read["1_Dense/config.json"] == {
        "in_features": 16,
        "out_features": 8,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    assert safetensors.torch.load_file(run / "model" / "1_Dense" / "model.safetensors").keys() == {"linear.weight"}


def test_a_directory_of_colbert_is_read(run, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    if not hasattr(library, "MultiVectorEncoder"):
        pytest.skip("sentence-transformers has no MultiVectorEncoder")
    for path in (run / "model").iterdir():
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json", "checksums.json"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    layer = safetensors.torch.load_file(run / "model" / "1_Dense" / "model.safetensors")
    tensors = {
        f"bert.{name.removeprefix('bert.')}": value
        for name, value in safetensors.torch.load_file(run / "model" / "model.safetensors").items()
    }
    safetensors.torch.save_file({**tensors, **layer}, tmp_path / "model.safetensors", {"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    config = {key: value for key, value in config.items() if key != "unmask"} | {"architectures": ["HF_ColBERT"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    metadata = {"query_token_id": "[Q]", "doc_token_id": "[D]", "query_maxlen": 16, "doc_maxlen": 24}
    (tmp_path / "artifact.metadata").write_text(json.dumps({**metadata, "mask_punctuation": True}))
    tokenizer = (tmp_path / "tokenizer.json").read_text().replace('"[Q] "', '"[Q]"').replace('"[D] "', '"[D]"')
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    theirs = library.MultiVectorEncoder(str(tmp_path), device="cpu", local_files_only=True)
    check_equal(tmp_path, theirs)
    (tmp_path / "artifact.metadata").write_text(json.dumps({"similarity": "l2"}))
    with pytest.raises(UserError, match="similarity: 'l2' is not supported"):
        load(tmp_path, device="cpu")


@pytest.fixture(scope="module")
def collection(run, documents, tmp_path_factory):
    """A collection of sentences, some of which are the queries."""
    path = tmp_path_factory.mktemp("collection")
    texts = [f"{sentence} ." for text in documents for sentence in text.split(". ")][:40]
    (path / "qrels").mkdir()
    corpus = [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    queries = [{"_id": f"q{number}", "text": texts[number][:15]} for number in range(5)]
    for name, records in (("corpus", corpus), ("queries", queries)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    judgments = [f"q{number}\td{number}\t1" for number in range(5)]
    (path / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judgments]))
    return path


def similarities(predictor, queries, documents):
    ours = [predictor.embed_tokens(of, prompt_name=name) for of, name in ((queries, "query"), (documents, "document"))]
    return np.array([[(query @ document.T).max(1).sum() for document in ours[1]] for query in ours[0]])


def test_search_and_reranking_are_exact(run, collection, tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.inference.search.TOKEN_BLOCK", 7)
    predictor = load(run, device="cpu")
    read = {name: (collection / f"{name}.jsonl").read_text().splitlines() for name in ("corpus", "queries")}
    documents, queries = ([json.loads(line)["text"] for line in read[name]] for name in ("corpus", "queries"))
    table = similarities(predictor, queries, documents)
    nearest = NearestTokens(predictor.embed_tokens(queries, prompt_name="query"), 9)
    for start in range(0, 40, 15):
        nearest.add(predictor.embed_tokens(documents[start : start + 15]))
    for row, (found, scores) in zip(table, nearest.results(), strict=True):
        np.testing.assert_allclose(scores, np.sort(row)[::-1][:9], rtol=1e-5)
        np.testing.assert_allclose(row[found], scores, rtol=1e-5)
    here = {"quiet": True, "device": "cpu"}
    result = evaluate(run, collection, **here, run_file=tmp_path / "late.run")
    assert result["task"] == "retrieval" and result["metrics"]["recall@100"] == 100
    assert any(note.startswith("vectors: 16 of a query, ") for note in result["notes"])
    # reranking everything that it has found changes nothing
    again = evaluate(run, collection, first_stage=tmp_path / "late.run", depth=40, **here)
    assert again["task"] == "reranking" and again["metrics"] == result["metrics"]
    assert again["by_depth"]["20 reranked"]["ndcg@10"] == pytest.approx(result["metrics"]["ndcg@10"])
    with pytest.raises(UserError, match="dimensions has no effect: no model makes vectors of texts"):
        evaluate(run, collection, dimensions=4, **here)


def test_tokens_are_predicted_with_their_vectors(run, tmp_path, capsys):
    predictor = load(run, device="cpu")
    expected = predictor.embed_tokens(TEXTS)
    for prediction, vectors in zip(predictor.predict(TEXTS), expected, strict=True):
        np.testing.assert_allclose(prediction.vectors, vectors, atol=1e-6)
        assert prediction.tokens[:2] == ["[CLS]", "[D] "] and not set(prediction.tokens) & set(string.punctuation)
    pair, other = predictor.predict(TEXTS[:2], TEXTS[1:])
    assert pair.score == pytest.approx(similarities(predictor, TEXTS[:1], TEXTS[1:2])[0, 0], rel=1e-5)
    assert {pair.rank, other.rank} <= {1, 2}
    assert main(["predict", "--model", str(run), "a poem.", "--device", "cpu"]) == 0
    assert capsys.readouterr().out == "a poem.\t5 vectors of 8 numbers\n"


def test_vectors_are_written_with_their_offsets(run, tmp_path, capsys):
    texts, out = tmp_path / "texts.txt", tmp_path / "vectors.safetensors"
    texts.write_text("\n".join(TEXTS))
    command = ["embed", "--model", str(run), "--data", str(texts), "--device", "cpu"]
    assert main([*command, "--out", str(out), "--prompt-name", "query"]) == 0
    written = safetensors.torch.load_file(out)
    expected = load(run, device="cpu").embed_tokens(TEXTS, prompt_name="query")
    np.testing.assert_allclose(written["vectors"].numpy(), np.concatenate(expected), atol=1e-6)
    assert written["offsets"].tolist() == [0, 16, 32, 48]
    assert "48 vectors of 8 numbers" in capsys.readouterr().err
    assert [len(vectors) for vectors in embed(run, {"text": TEXTS}, out=None, device="cpu", quiet=True)][1] == 8
    for options, message in (
        (["--out", str(tmp_path / "v.npy")], "different numbers of vectors of tokens"),
        (["--out", str(tmp_path / "v.safetensors"), "--pooling", "cls"], "--pooling has no effect: this model makes"),
    ):
        assert main([*command, *options]) == 2
        assert message in capsys.readouterr().err


def test_the_server_embeds_tokens_and_reranks(run):
    predictor = load(run, device="cpu")
    served = Served("late", predictor, Limits(), Meter())
    served.warm_up()
    assert served.has("/embed_all") and served.has("/rerank") and not served.reranks
    assert not any(map(served.has, ("/embed", "/similarity"))), "it makes no vectors of texts"
    for name, expected in (("query", "query"), (None, "document")):
        job = embed_all(served, EmbedAllRequest(inputs=TEXTS, prompt_name=name))
        answer = job.read(served.compute(job.head, job.samples))
        for found, vectors in zip(answer, predictor.embed_tokens(TEXTS, prompt_name=expected), strict=True):
            np.testing.assert_allclose(found, vectors, atol=1e-6)
    scores = similarities(predictor, TEXTS[:1], TEXTS[1:])[0]
    job = rerank(served, RerankRequest(query=TEXTS[0], texts=TEXTS[1:]))
    answer = job.read(served.compute(job.head, job.samples))
    assert [of.score for of in answer] == pytest.approx(sorted(scores.tolist(), reverse=True), rel=1e-5)
    cut = cohere(served, CohereRequest(query=TEXTS[0], documents=TEXTS[1:], max_tokens_per_doc=2))
    assert list(map(len, cut.samples)) == [16, 5, 4]
    long = "the sea " * 20
    for refused, message in (
        (lambda: embed_all(served, EmbedAllRequest(inputs=long)), "24 tokens"),
        (lambda: embed_all(served, EmbedAllRequest(inputs=long, truncate=True, truncation_direction="left")), "right"),
        (lambda: embed_all(served, EmbedAllRequest(inputs=[[1, 2]])), "pass texts"),
        (lambda: rerank(served, RerankRequest(query=long, texts=["a"])), "16 tokens"),
        (lambda: rerank(served, RerankRequest(query="a", texts=[])), "no text to compare"),
    ):
        with pytest.raises(Refusal, match=message):
            refused()


def test_what_cannot_be_is_refused(base, run, data, tmp_path):
    here = {"quiet": True, "device": "cpu"}
    with pytest.raises(UserError, match="vectors of tokens, which embed_tokens returns"):
        load(run, device="cpu").embed(TEXTS)
    with pytest.raises(UserError, match="vectors are those of the encoder itself"):
        finetune("late-interaction", base, [data], tmp_path / "run", frozen=True, **here)
    with pytest.raises(UserError, match=r"task\.query_length is 99, but the model has 64 positions"):
        finetune("late-interaction", base, [data], tmp_path / "run", settings={"task.query_length": 99}, **here)
    for settings in ({"temperature": 0.0}, {"query_length": 3}, {"expand": False, "attend": True}, {"dense": ()}):
        with pytest.raises(ValueError, match=r"must|no effect"):
            LateInteraction(**settings)
    without = shutil.copytree(run / "model", tmp_path / "without", ignore=lambda *_: ["modules.json", "checksums.json"])
    with pytest.raises(UserError, match="the dense layers over the vectors of tokens are missing"):
        load(without, device="cpu")
    shutil.copy(run / "model" / "config_sentence_transformers.json", without)
    steps = json.loads((run / "model" / "modules.json").read_text())
    (without / "modules.json").write_text(json.dumps(steps[:1]))
    with pytest.raises(UserError, match="dense must have at least one layer"):
        load(without, device="cpu")


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config_sentence_transformers.json", {"prompts": {"query": "q: "}}, "the prompt 'q: ' beside prefixes"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "meanmaxsim"}, "similarity_fn_name: 'meanmaxsim'"),
        (
            "config_sentence_transformers.json",
            {"query_length": "long"},
            "vectors of tokens are damaged",
        ),
        (
            "config_sentence_transformers.json",
            {"query_length": 3},
            "length and query_length must be at least 4",
        ),
        ("1_Dense/config.json", {"use_residual": True}, "use_residual: True"),
        ("1_Dense/config.json", {"out_features": 9}, "not those of a layer from 16 to 9 numbers"),
    ],
)
def test_directories_that_are_not_understood_are_refused(run, tmp_path, file, change, message):
    for path in (run / "model").rglob("*"):
        if path.is_file():
            target = tmp_path / path.relative_to(run / "model")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    (tmp_path / file).write_text(json.dumps(json.loads((tmp_path / file).read_text()) | change))
    (tmp_path / "checksums.json").unlink()
    with pytest.raises(UserError, match=message):
        load(tmp_path, device="cpu")


def test_several_tasks_share_the_tokens_that_queries_and_documents_begin_with(base, data, tmp_path):
    labelled = tmp_path / "labelled.tsv"
    labelled.write_text("text\tlabel\n" + "".join(f"the dog {number}\t{'ab'[number % 2]}\n" for number in range(24)))
    tables = {
        "late": {"task": "late-interaction", "train": [str(data)], "settings": {"length": 24, "query_length": 16}},
        "labels": {"task": "classification", "train": [str(labelled)], "settings": {"length": 16}},
    }
    multitask(tables, base, tmp_path / "run", settings={"budget.steps": 2}, device="cpu", quiet=True)
    late, labels = (load_model(tmp_path / "run" / "model" / name) for name in tables)
    assert late.tokenizer.find("[D] ") == labels.tokenizer.find("[D] ") == late.encoder.vocabulary - 1
    assert load(tmp_path / "run" / "model" / "late", device="cpu").predict(["a"])[0].tokens[1] == "[D] "
