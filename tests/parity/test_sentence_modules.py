"""Pooling, dense layers, excluded prompts and cut vectors beside sentence-transformers, read, trained and written."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.data.labelled.labelled_file import Row
from unmask.families.checkpoints.sentence_files import read_pooling
from unmask.families.checkpoints.sentence_modules import MODES, Pooling
from unmask.inference.evaluation.evaluate_model import evaluate
from unmask.inference.load import load
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.nn.encoders.pooled import ACTIVATIONS, Dense, pool
from unmask.nn.encoders.stored import padded_tokens
from unmask.objectives.learner import Learner
from unmask.serving.bodies import Refusal
from unmask.serving.metrics import Meter
from unmask.serving.served import Served
from unmask.serving.types import EmbedRequest, Limits
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.tasks.embedding import Embedding
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.formats import export

from .published import copied, write

sentences = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
encoders = pytest.importorskip("sentence_transformers.base.modules", reason="sentence-transformers is older than 5.4")
poolings = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
losses = pytest.importorskip("sentence_transformers.losses")
TEXTS = ["The cats sat.", "Café THE mat!", "the cat " * 30]
pytestmark = pytest.mark.filterwarnings("ignore::unmask.support.errors.InputWarning")
ENDS = ("cls", "lasttoken")
PROMPTS, POOLING = "config_sentence_transformers.json", "1_Pooling/config.json"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Directories of transformers by name."""
    folder, known = tmp_path_factory.mktemp("encoders"), {}

    def get(name):
        if name not in known:
            known[name] = write(name, folder / name)
        return str(known[name])

    return get


def build(encoder, folder, *layers, mode="mean", **options):
    """Write a model of sentence-transformers."""
    modules = [encoders.Transformer(encoder), poolings.Pooling(16, mode), *layers]
    model = sentences.SentenceTransformer(modules=modules, device="cpu", **options)
    model.max_seq_length = 20
    model.save(str(folder))
    return folder


def theirs(directory, texts=TEXTS, **options):
    model = sentences.SentenceTransformer(str(directory), device="cpu", local_files_only=True)
    return np.stack([model.encode(text, **options) for text in texts])


def close(ours, expected):
    np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-4)


def kinds_of_dense():
    identity, gelu = torch.nn.Identity(), torch.nn.GELU()
    return {
        "tanh": [encoders.Dense(16, 12)],
        "two": [encoders.Dense(16, 24, bias=False, activation_function=identity), encoders.Dense(24, 8)],
        "normalized": [encoders.Dense(16, 10, activation_function=gelu), encoders.Normalize()],
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("bert", kind) for kind in ("tanh", "two", "normalized")),
        ("xlnet", "two"),
        *(pytest.param("xlnet", kind, marks=pytest.mark.exhaustive) for kind in ("tanh", "normalized")),
    ],
)
def test_dense_layers_are_read_and_written(name, kind, encoder, tmp_path):
    directory = build(encoder(name), tmp_path / "m", *kinds_of_dense()[kind], mode="lasttoken")
    save_model(tmp_path / "again", load_model(directory), "# Vectors")
    for source in (directory, tmp_path / "again"):
        close(load(source, device="cpu").embed(TEXTS), theirs(directory))
    close(theirs(tmp_path / "again"), theirs(directory))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if name == "bert" or kind in ("cls", "last") else pytest.mark.exhaustive)
        for name in ("bert", "xlnet")
        for _, kind in MODES.values()
    ],
)
def test_all_kinds_of_pooling_are_written(name, kind, encoder, tmp_path):
    model = load_model(encoder(name))
    model = Model(model.encoder, model.tokenizer, pooling=Pooling(kind=kind, normalize=False, length=20))
    save_model(tmp_path / "m", model, "# Vectors")
    close(load(tmp_path / "m", device="cpu").embed(TEXTS), theirs(tmp_path / "m"))


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_all_activations_are_written(activation, encoder, tmp_path):
    model, dense = load_model(encoder("bert")), Dense(width=6, activation=activation)
    tensors = {"dense.linear.0.weight": torch.randn(6, 16), "dense.linear.0.bias": torch.randn(6)}
    pooling = Pooling(dense=(dense,), length=20)
    save_model(tmp_path / "m", Model(model.encoder, model.tokenizer, {"embedding": tensors}, pooling=pooling), "")
    close(load(tmp_path / "m", device="cpu").embed(TEXTS), theirs(tmp_path / "m"))


def test_pooling_is_the_same_for_padded_input():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([3, 7, 1])
    real = torch.arange(7) < lengths[:, None]
    padded = torch.randn(3, 7, 4, generator=generator)
    samples = [
        Sample(key=(number,), ids=np.zeros(length, np.int64), positions={"summary": np.zeros(1, np.int64)})
        for number, length in enumerate(lengths.tolist())
    ]
    batch = collate(samples)
    rows = torch.cat([padded[key[0], : len(samples[key[0]])] for key in batch.keys])
    order = [key[0] for key in batch.keys]
    tokens = padded_tokens(torch.zeros(3, 7, dtype=torch.int64), real)
    for _, kind in MODES.values():
        ragged = pool(kind, rows, batch.tokens, batch.positions["summary"])
        stored = pool(kind, padded.view(-1, 4), tokens, torch.arange(3) * 7)
        torch.testing.assert_close(ragged, stored[order])


PROMPTED = [(name, kind) for name in ("bert", "roberta", "xlnet") for kind, _ in MODES.values()]
"""Encoders and kinds of pooling; which kind it is matters to one encoder as to another, except for first and last."""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if name == "bert" or kind in ENDS else pytest.mark.exhaustive)
        for name, kind in PROMPTED
        if (name, kind) != ("xlnet", "cls")  # its first token is no kind of pooling here
    ],
)
def test_the_tokens_of_prompts_may_be_left_out(name, kind, encoder, tmp_path):
    """Also with prompts for queries alone, where texts without one were refused."""
    prompts = {"query": "the cat: ", "document": ""}
    directory = build(encoder(name), tmp_path / "m", encoders.Normalize(), mode=kind, prompts=prompts)
    directory = copied(directory, POOLING, {"include_prompt": False}, tmp_path / "n")
    save_model(tmp_path / "again", load_model(directory), "# Vectors")
    for source in (directory, tmp_path / "again"):
        ours = load(source, device="cpu")
        close(ours.embed(TEXTS), theirs(directory))
        close(ours.embed(TEXTS, prompt_name="query"), theirs(directory, prompt_name="query"))
    longer = copied(directory, PROMPTS, {"prompts": {"query": "the cat " * 20}}, tmp_path / "longer")
    with pytest.raises(UserError, match="the prompt is so long that none of the text is read"):
        load(longer, device="cpu").embed(TEXTS, prompt_name="query")


def test_the_server_refuses_prompts_that_are_left_out(encoder, tmp_path):
    directory = build(encoder("bert"), tmp_path / "m", prompts={"query": "the cat: ", "document": ""})
    directory = copied(directory, POOLING, {"include_prompt": False}, tmp_path / "n")
    served = Served("vectors", load(directory, device="cpu"), Limits(), Meter())
    job = served.embed(EmbedRequest(inputs=TEXTS[:2]))
    close(job.read(served.compute(job.head, job.samples)), theirs(directory, TEXTS[:2], normalize_embeddings=True))
    with pytest.raises(Refusal, match="which the server cannot leave out"):
        served.embed(EmbedRequest(inputs=TEXTS[:2], prompt_name="query"))


@pytest.mark.exhaustive
def test_an_exported_encoder_keeps_them(encoder, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    prompts = {"query": "the cat: ", "document": ""}
    directory = build(encoder("bert"), tmp_path / "m", encoders.Dense(16, 12), mode="max", prompts=prompts)
    export(directory, tmp_path / "e", "onnx", head="features", quiet=True)
    for name in (None, "query"):
        close(load(tmp_path / "e").embed(TEXTS, prompt_name=name), theirs(directory, prompt_name=name))


@pytest.mark.parametrize("normalize", [False, True])
def test_vectors_are_cut_and_then_normalized(normalize, encoder, tmp_path):
    """sentence-transformers normalizes vectors that are cut only if it is asked to."""
    directory = build(encoder("bert"), tmp_path / "m", *([encoders.Normalize()] if normalize else []))
    expected = theirs(directory, truncate_dim=5, normalize_embeddings=normalize)
    close(load(directory, device="cpu").embed(TEXTS, dimensions=5), expected)
    close(load(directory, device="cpu").with_dimensions(5).embed(TEXTS), expected)
    stated = copied(directory, PROMPTS, {"truncate_dim": 5}, tmp_path / "n")
    save_model(tmp_path / "again", load_model(stated), "# Vectors")
    for source in (stated, tmp_path / "again"):
        close(load(source, device="cpu").embed(TEXTS), expected)
    for wrong in (0, 17):
        with pytest.raises(UserError, match=f"^dimensions={wrong}: the vectors of this model have 16 dimensions"):
            load(directory, device="cpu").embed(TEXTS, dimensions=wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_residual": True}, "use_residual: True"),
        ({"activation_function": "mine.Activation"}, "activation_function: 'mine.Activation'"),
        ({"module_output_name": "token_embeddings"}, "module_output_name: 'token_embeddings'"),
        ({"out_features": 13}, r"model\.safetensors: the tensors are not those of a layer from 16 to 13 numbers"),
        ({"bias": False}, r"the tensors are not those of a layer"),
        ({"out_features": "many"}, "out_features: 'many' is not the width of a layer"),
    ],
)
def test_other_dense_layers_are_refused(settings, message, encoder, tmp_path):
    directory = build(encoder("bert"), tmp_path / "m", encoders.Dense(16, 12))
    directory = copied(directory, "2_Dense/config.json", settings, tmp_path / "n")
    with pytest.raises(UserError, match=message):
        load(directory, device="cpu").embed(TEXTS)


def test_pickled_weights_of_a_dense_layer_are_refused(encoder, tmp_path):
    directory = build(encoder("bert"), tmp_path / "m", encoders.Dense(16, 12))
    (directory / "2_Dense" / "model.safetensors").rename(directory / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"weights of 2_Dense that are not in model\.safetensors"):
        load(directory, device="cpu").embed(TEXTS)


PAIRS = [("the dog sees", "the cat"), ("a poem", "the old town"), ("the river", "rain"), ("a", "dog")]


@pytest.mark.parametrize("negatives", [False, True])
@pytest.mark.parametrize("weights", [(), (0.5, 2.0)])
def test_the_matryoshka_loss_is_that_of_sentence_transformers(tokenizer, recipe, weights, negatives):
    rows = [Row({"text": first, "text_b": second}, "a.tsv", 2) for first, second in PAIRS]
    if negatives:
        rows = [Row(row.values, "a.tsv", 2, negatives=(f"sea {number}",)) for number, row in enumerate(rows)]
    task = Embedding(length=32, temperature=0.05, matryoshka=(4, 8), matryoshka_weights=weights)
    body = recipe.encoder.build(tokenizer.size)
    learner = Learner(body, {"embedding": task.build(body.head, ())}).eval()
    samples = [learner.prepare(sample) for sample in task.frame(tokenizer, rows, (), gold=True).samples]
    part = learner(collate(samples))["embedding"]
    alone = [collate([sample]) for sample in task.frame(tokenizer, rows, (), gold=False).samples]
    vectors = torch.stack([body(one.tokens).last.mean(0) for one in alone])
    count = len(vectors) // 4
    features = [{"sentence_embedding": vectors[side::count]} for side in range(count)]
    inner = losses.MultipleNegativesRankingLoss(Given(vectors.shape[1]))
    whole = losses.MatryoshkaLoss(inner.model, inner, [vectors.shape[1], 8, 4], [1.0, *((weights or (1.0, 1.0))[::-1])])
    torch.testing.assert_close(part.sum / 4, whole(features, None), rtol=1e-3, atol=1e-4)


class Given(torch.nn.Module):
    """A model whose features have their vectors already."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, features):
        return dict(features)

    def get_embedding_dimension(self):
        return self.width


@pytest.fixture(scope="module")
def trained(encoder, tmp_path_factory):
    """A model with a dense layer and prompts, and what a run with further settings made of it."""
    folder = tmp_path_factory.mktemp("trained")
    prompts = {"query": "the cat: ", "document": "the mat "}
    base = build(encoder("bert"), folder / "base", encoders.Dense(16, 12), mode="max", prompts=prompts)
    data = folder / "pairs.tsv"
    lines = [f"the cat {number}\tcats {number} sat\tthe mat" for number in range(24)]
    data.write_text("\n".join(["anchor\tpositive\tnegative", *lines]))
    sets = ["budget.steps=3", "task.length=20", "task.matryoshka=[4]", "optimizer.learning_rate=1e-2"]
    finetune("embedding", base, [data], folder / "run", settings=parse_overrides(sets), quiet=True, device="cpu")
    return base, folder / "run", data


def test_dense_layers_pooling_and_prompts_are_trained_and_written(trained):
    base, run, data = trained
    before, after = load_model(base), load_model(run)
    assert (after.task.pooling, after.task.dense, after.task.matryoshka) == ("max", before.pooling.dense, (4,))
    assert (after.pooling.query, after.pooling.document) == ("the cat: ", "the mat ")
    name = "dense.linear.0.weight"
    assert not torch.equal(before.heads["embedding"][name], after.heads["embedding"][name])
    ours, model = load(run, device="cpu"), run / "model"
    for prompt in (None, "query", "document"):
        close(ours.embed(TEXTS, prompt_name=prompt), theirs(model, prompt_name=prompt))
    (found,) = ours.with_dimensions(4).predict(["the cat 3"], ["cats 3 sat"])
    query, document = (
        ours.embed([text], prompt_name=name, dimensions=4)[0]
        for text, name in (("the cat 3", "query"), ("cats 3 sat", "document"))
    )
    assert found.score == pytest.approx(float(query @ document), abs=1e-5)
    metrics = [evaluate(run, data, dimensions=number, quiet=True, device="cpu")["metrics"] for number in (None, 12, 1)]
    assert metrics[0] == metrics[1] and metrics[0].keys() == metrics[2].keys()
    with pytest.raises(UserError, match="the vectors of this model have 12 dimensions"):
        evaluate(run, data, dimensions=13, quiet=True)


def test_settings_that_do_not_fit_are_refused(recipe, tokenizer, trained, tmp_path):
    spec = build_encoder(recipe.encoder, tokenizer.size).head
    for settings, message in (
        ({"matryoshka": (spec.width,)}, f"task.matryoshka has {spec.width}, but whole vectors have {spec.width}"),
        ({"dimensions": 4, "matryoshka": (5,)}, "task.matryoshka has 5, but whole vectors have 4 dimensions"),
        ({"dimensions": spec.width + 1}, f"but the vectors of this model have {spec.width}"),
    ):
        with pytest.raises(UserError, match=message):
            Embedding(**settings).build(spec, ())
    for settings in (
        {"matryoshka": (4, 4)},
        {"matryoshka": (0,)},
        {"matryoshka": (4,), "matryoshka_weights": (1.0, 2.0)},
        {"matryoshka": (4,), "matryoshka_weights": (0.0,)},
        {"dimensions": 0},
    ):
        with pytest.raises(ValueError, match="must be"):
            Embedding(**settings)
    base, _, data = trained
    excluded = copied(base, POOLING, {"include_prompt": False}, tmp_path / "m")
    with pytest.raises(UserError, match="does not pool the tokens of its prompts"):
        finetune("embedding", excluded, [data], tmp_path / "run", quiet=True, device="cpu")
    assert read_pooling(excluded).include_prompt is False
