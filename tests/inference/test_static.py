"""Static encoders: the table beside formulas of its own, directories beside sentence-transformers, search, refusals."""

import copy
import json
import pickle
import shutil

import msgspec
import numpy as np
import pytest
import safetensors.torch
import sklearn.decomposition
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.cli.main import main
from unmask.families.bert import BertSettings
from unmask.families.checkpoints.sentence_modules import Pooling
from unmask.inference.evaluation.evaluate_model import evaluate
from unmask.inference.load import load
from unmask.inference.static import StaticPredictor, distill_tokens, principal_components, sif_weights
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.workflows.formats import export

SHAPE = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=64)
TEXTS = ["The dog is near the sea.", "a poem", "under the old tree of the garden", "Ω unknown", ""]

UNCHECKED = shutil.ignore_patterns("checksums.json")
"""What is left out of copies that are changed."""


@pytest.fixture(scope="module")
def directories(tokenizer, tmp_path_factory):
    """A model and its static encoder."""
    folder = tmp_path_factory.mktemp("static")
    pooling = Pooling(kind="cls", query="the dog : ")
    save_model(folder / "m", Model(build_encoder(SHAPE, tokenizer.size), tokenizer, pooling=pooling), "")
    assert main(["export", "--model", str(folder / "m"), "--format", "static", "--out", str(folder / "s")]) == 0
    return folder / "m", folder / "s"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(1, 8))
def test_components_are_those_of_scikit_learn(seed, count, width):
    rows = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    kept = min(count, width)
    ours, theirs = principal_components(rows, kept), sklearn.decomposition.PCA(kept).fit_transform(rows)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-3)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-3)


def test_weights_fall_with_frequency():
    ranks = np.arange(1, 1001)
    p = 1 / (ranks + 1) / (1 / (ranks + 1)).sum()
    np.testing.assert_allclose(sif_weights(1000), 1e-4 / (1e-4 + p), rtol=1e-6)


def test_the_table_is_made_of_tokens_that_are_read_alone(directories):
    model, table = load_model(directories[0]), distill_tokens(load_model(directories[0]))
    words = model.tokenizer
    used = np.array([id not in words.special_ids for id in range(words.size)])
    assert not table[~used].any() and len(table) == words.size
    alone = [id for id in np.flatnonzero(used) if not words.tokens([id])[0].startswith("##")]
    rows = load(directories[0], device="cpu").embed([words.tokens([id])[0] for id in alone], normalize=True)
    order = np.searchsorted(np.flatnonzero(used), alone)
    centered = table[alone] / sif_weights(int(used.sum()))[order, None]
    distances = ((rows[:9, None] - rows[None, :9]) ** 2).sum(2)
    found = ((centered[:9, None] - centered[None, :9]) ** 2).sum(2)
    if table.shape[1] == model.encoder.width:  # a projection to all components keeps distances
        plain = load(directories[0], device="cpu").embed([words.tokens([id])[0] for id in alone], normalize=False)
        distances = ((plain[:9, None] - plain[None, :9]) ** 2).sum(2)
        np.testing.assert_allclose(found, distances, rtol=1e-2, atol=1e-3)


def test_sentence_transformers_reads_and_writes_the_directory(directories, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    theirs = library.SentenceTransformer(str(directories[1]), device="cpu", local_files_only=True)
    ours = load(directories[1], device="cpu")
    assert isinstance(ours, StaticPredictor)
    filled = TEXTS[:-1]
    np.testing.assert_allclose(ours.embed(filled), theirs.encode(filled), atol=1e-5)
    query = theirs.encode(filled, prompt_name="query")
    np.testing.assert_allclose(ours.embed(filled, prompt_name="query"), query, atol=1e-5)
    cut = theirs.encode(filled, truncate_dim=3, normalize_embeddings=True)
    np.testing.assert_allclose(ours.embed(filled, dimensions=3), cut, atol=1e-5)
    np.testing.assert_allclose(ours.with_dimensions(3).embed(filled), cut, atol=1e-5)


@pytest.mark.parametrize("direction", ["Right", "Left"])
def test_the_truncation_of_the_tokenizer_is_obeyed_or_refused(direction, directories, tmp_path):
    """`StaticEmbedding` obeys that of `tokenizer.json`, and removes its padding."""
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    shutil.copytree(directories[1], tmp_path / "s", ignore=UNCHECKED)
    words = tokenizers.Tokenizer.from_file(str(tmp_path / "s" / "tokenizer.json"))
    words.enable_truncation(3, direction=direction.lower())
    words.enable_padding(length=9)
    words.save(str(tmp_path / "s" / "tokenizer.json"))
    if direction == "Left":
        with pytest.raises(UserError, match=r"the vectors of this model need truncation: .* which is not supported"):
            load(tmp_path / "s", device="cpu")
        return
    theirs = library.SentenceTransformer(str(tmp_path / "s"), device="cpu", local_files_only=True)
    found, notes = load(tmp_path / "s", device="cpu").vectors(TEXTS)
    np.testing.assert_allclose(found[:-1], theirs.encode(TEXTS[:-1]), atol=1e-5)
    assert "texts are longer than 3 tokens and were cut" in str(notes[0])


@pytest.mark.parametrize("parts", [(), ("mapping",), ("weights",), ("mapping", "weights")])
def test_the_files_of_model2vec_are_read(parts, directories, tmp_path):
    """As sentence-transformers reads them: rows that tokens may share, and what they are multiplied by."""
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    shutil.copytree(directories[1], tmp_path / "s", ignore=UNCHECKED)
    path, generator = tmp_path / "s" / "model.safetensors", torch.Generator().manual_seed(0)
    table = safetensors.torch.load_file(path)["embedding.weight"]
    tensors = {
        "mapping": torch.randint(len(table), (len(table),), generator=generator),
        "weights": torch.rand(len(table), generator=generator, dtype=torch.float64),
    }
    stored = {"embeddings": table, **{name: tensors[name] for name in parts}}
    safetensors.torch.save_file(stored, path)
    theirs = library.SentenceTransformer(str(tmp_path / "s"), device="cpu", local_files_only=True)
    vectors = load(tmp_path / "s", device="cpu").embed(TEXTS[:-1])
    np.testing.assert_allclose(vectors, theirs.encode(TEXTS[:-1]), atol=1e-5)
    plain = load(directories[1], device="cpu").embed(TEXTS[:-1])
    assert (np.abs(vectors - plain).max() > 0.1) == bool(parts)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mapping", torch.full((900,), 899), "tensor mapping is not a list of numbers from 0 to"),
        ("mapping", torch.full((900,), -1), "tensor mapping is not a list of numbers from 0 to"),
        ("mapping", torch.zeros(900), "tensor mapping is not a list of numbers from 0 to"),
        ("mapping", torch.zeros(3, dtype=torch.int64), "not a table with a row for each of the"),
        ("weights", torch.ones(3), r"weights has shape \(3,\), not one number for each token"),
        ("bias", torch.ones(3), "not a table with a row for each of the"),
    ],
)
def test_files_of_model2vec_that_are_damaged_are_refused(name, value, message, directories, tmp_path):
    shutil.copytree(directories[1], tmp_path / "s", ignore=UNCHECKED)
    path = tmp_path / "s" / "model.safetensors"
    table = safetensors.torch.load_file(path)["embedding.weight"]
    safetensors.torch.save_file({"embeddings": table, name: value}, path)
    with pytest.raises(UserError, match=rf"model\.safetensors: {message}"):
        load(tmp_path / "s", device="cpu")


def test_the_tokenizer_is_read_as_it_is(directories, tmp_path):
    """`StaticEmbedding` reads `tokenizer.json` alone, whatever the files of a class of transformers say beside it."""
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    shutil.copytree(directories[1], tmp_path / "s", ignore=UNCHECKED)
    (tmp_path / "s" / "config.json").write_text('{"model_type": "model2vec"}')
    content = {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "extra_special_tokens": ["poem"]}
    (tmp_path / "s" / "tokenizer_config.json").write_text(json.dumps(content))
    theirs = library.SentenceTransformer(str(tmp_path / "s"), device="cpu", local_files_only=True)
    texts = ["The DOG is near the Sea.", "A poem", "poems"]
    np.testing.assert_allclose(load(tmp_path / "s", device="cpu").embed(texts), theirs.encode(texts), atol=1e-5)


def test_it_is_used_as_a_model_of_vectors(directories, tmp_path, capsys):
    with pytest.warns(UserWarning, match="1 of 5 texts is empty"):
        vectors = load(directories[1], device="cpu").embed(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 1, 0], atol=1e-5)
    path = tmp_path / "collection"
    (path / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", TEXTS[:3]), ("queries", ["the dog is near", "poem"])):
        lines = (json.dumps({"_id": f"{name}{number}", "text": text}) for number, text in enumerate(texts))
        (path / f"{name}.jsonl").write_text("\n".join(lines))
    (path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nqueries0\tcorpus0\t1\nqueries1\tcorpus1\t1\n")
    result = evaluate(directories[1], path, quiet=True, device="cpu")
    assert result["documents"] == 3 and result["metrics"]["recall@10"] == 100
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:3]))
    out = tmp_path / "vectors.npy"
    command = ["embed", "--model", str(directories[1]), "--data", str(tmp_path / "texts.txt"), "--out", str(out)]
    assert main([*command, "--dimensions", "5"]) == 0
    assert np.load(out).shape == (3, 5)


def test_it_is_pickled_and_shown(directories):
    predictor = load(directories[1], device="cpu")
    assert repr(predictor).startswith(f"StaticPredictor('{directories[1]}', ")
    for kept in (predictor, predictor.with_dimensions(3)):
        again = pickle.loads(pickle.dumps(kept))
        np.testing.assert_array_equal(again.embed(TEXTS[:2]), kept.embed(TEXTS[:2]))


def test_the_fingerprint_covers_all_that_vectors_depend_on(directories, tokenizer):
    predictor = load(directories[1], device="cpu")
    other = copy.copy(tokenizer)
    other.sha256 = "another"
    table, pooling = torch.from_numpy(predictor.table), predictor.model.pooling
    assert StaticPredictor(table, tokenizer, pooling).fingerprint() == predictor.fingerprint()
    changed = [
        StaticPredictor(table + 1, tokenizer, pooling),
        StaticPredictor(table, other, pooling),
        StaticPredictor(table, tokenizer, msgspec.structs.replace(pooling, normalize=not pooling.normalize)),
        predictor.with_dimensions(3),
    ]
    assert len({one.fingerprint() for one in (predictor, *changed)}) == 5


def test_what_cannot_be_is_refused(directories, recipe, tokenizer, tmp_path):
    encoder = build_encoder(recipe.encoder, tokenizer.size)
    head = ClassificationHead(encoder.head, 2).published()
    save_model(
        tmp_path / "c", Model(encoder, tokenizer, {"classification": head}, ("a", "b"), Classification(length=32)), ""
    )
    with pytest.raises(UserError, match="this model is for classification, and makes no vectors of texts"):
        export(tmp_path / "c", tmp_path / "out", "static", quiet=True)
    with pytest.raises(UserError, match="the vectors of a static encoder are means"):
        load(directories[1], device="cpu").embed(TEXTS, pooling="max")
    path = directories[1] / "modules.json"
    steps = json.loads(path.read_text())
    steps[1]["type"] = "sentence_transformers.models.LSTM"
    (tmp_path / "s").mkdir()
    for file in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "s" / file).write_bytes((directories[1] / file).read_bytes())
    (tmp_path / "s" / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(UserError, match="the modules StaticEmbedding, LSTM"):
        load(tmp_path / "s", device="cpu")
    (tmp_path / "s" / "modules.json").write_bytes(path.read_bytes())
    (tmp_path / "s" / "config_sentence_transformers.json").write_text('{"truncate_dim": "8"}')
    with pytest.raises(UserError, match="the vectors of this model need truncate_dim: '8'"):
        load(tmp_path / "s", device="cpu")
