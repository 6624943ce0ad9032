"""Directories as sentence-transformers writes them, with one setting changed: equal vectors and scores, or an error."""

import json
import shutil
from functools import cache

import numpy as np
import pytest
import torch
import transformers

from unmask.inference.load import load
from unmask.inference.search import check_vectors, embed_side
from unmask.model.model import load_model, save_model
from unmask.serving.metrics import Meter
from unmask.serving.rerank import RerankRequest, rerank
from unmask.serving.served import Served
from unmask.serving.types import EmbedRequest, Limits
from unmask.support.errors import UserError
from unmask.tasks.multi_label import MultiLabel
from unmask.workflows.formats import export

from .published import copied, quietly, write

sentences = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
encoders = pytest.importorskip("sentence_transformers.base.modules", reason="sentence-transformers is older than 5.4")
poolings = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
PROMPTS, ENCODER, POOLING = "config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json"
CONFIG = "tokenizer_config.json"
TEXTS = ["The cats sat.", "Café THE mat!", "the cat " * 30]
PAIRS = [("the cat", "a mat sat"), ("The mat!", "é"), ("cats", "cats, the cat."), ("the cat " * 30, "a mat")]

VECTORS = [
    ("bert", PROMPTS, {"prompts": {"q": "the mat: "}, "default_prompt_name": "q"}, "equal"),
    ("bert", PROMPTS, {"prompts": {"query": "A cat "}, "default_prompt_name": "query"}, "equal"),
    ("bert", PROMPTS, {"prompts": {"query": "A cat "}}, "equal"),
    ("bert", PROMPTS, {"default_prompt_name": "query"}, "equal"),
    ("bert", PROMPTS, {"default_prompt_name": "none"}, "theirs"),
    ("bert", PROMPTS, {"truncate_dim": 0}, "refused"),
    ("bert", PROMPTS, {"truncate_dim": True}, "refused"),
    ("bert", PROMPTS, {"similarity_fn_name": "dot"}, "equal"),
    ("bert", PROMPTS, {"model_type": "SparseEncoder"}, "refused"),
    ("bert", PROMPTS, {"author": "somebody"}, "equal"),
    ("bert", ENCODER, {"max_seq_length": 8}, "equal"),
    ("bert", ENCODER, {"max_seq_length": 2}, "refused"),
    ("bert", ENCODER, {"max_seq_length": None}, "equal"),
    ("bert", ENCODER, {"do_lower_case": True}, "equal"),
    ("bert, cased", ENCODER, {"do_lower_case": True}, "refused"),
    ("bert", ENCODER, {"transformer_task": "fill-mask"}, "theirs"),
    ("bert", ENCODER, {"module_output_name": "sentence_embedding"}, "theirs"),
    ("bert", ENCODER, {"processing_kwargs": {"text": {"max_length": 6}}}, "refused"),
    ("bert", ENCODER, {"processor_kwargs": {"do_lower_case": False}}, "refused"),
    ("bert", ENCODER, {"tokenizer_args": {"model_max_length": 7}}, "refused"),
    ("bert", ENCODER, {"model_args": {"add_pooling_layer": False}}, "equal"),
    ("bert", ENCODER, {"config_args": {"num_hidden_layers": 1}}, "refused"),
    ("bert", ENCODER, {"unpad_inputs": False}, "equal"),
    ("bert", ENCODER, {"query_length": 5, "document_length": 6}, "equal"),
    ("bert", ENCODER, {"query_expansion": {"strategy": "fixed", "length": 9}}, "refused"),
    *(
        ("bert", POOLING, {"pooling_mode": kind}, "equal")
        for kind in ("cls", ["mean"], "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")
    ),
    ("bert", POOLING, {"pooling_mode": ["mean", "cls"]}, "refused"),
    ("bert", POOLING, {"include_prompt": False}, "equal"),
    ("bert", POOLING, {"pooling_mode": ..., "pooling_mode_cls_token": True}, "equal"),
    ("bert", POOLING, {"pooling_mode": ..., "pooling_mode_cls_token": False}, "equal"),
    ("bert", POOLING, {"pooling_mode": ..., "pooling_mode_max_tokens": True}, "equal"),
    ("bert", CONFIG, {"model_max_length": 6}, "equal"),
    ("bert", CONFIG, {"model_max_length": 10**30}, "equal"),
    ("bert", CONFIG, {"model_max_length": ...}, "equal"),
    ("bert", CONFIG, {"model_max_length": 2}, "refused"),
    ("bert", CONFIG, {"truncation_side": "left"}, "refused"),
    ("bert", "2_Normalize/config.json", {"module_output_name": "other"}, "refused"),
    ("roberta", PROMPTS, {"prompts": {"q": "the mat: "}, "default_prompt_name": "q"}, "equal"),
    ("roberta", ENCODER, {"do_lower_case": True}, "refused"),
    ("xlnet", POOLING, {"pooling_mode": "lasttoken"}, "equal"),
    ("xlnet", POOLING, {"pooling_mode": "cls"}, "refused"),
    ("xlm-roberta", ENCODER, {"do_lower_case": True}, "refused"),
    ("mpnet", POOLING, {"pooling_mode": "cls"}, "equal"),
    ("albert", ENCODER, {"do_lower_case": True}, "equal"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A function that returns a directory of sentence-transformers with the encoder of this name."""
    kept = {}

    def get(name):
        if name not in kept:
            folder = tmp_path_factory.mktemp("model")
            write(name, folder / "encoder")
            modules = [
                encoders.Transformer(str(folder / "encoder")),
                poolings.Pooling(16, "mean"),
                encoders.Normalize(),
            ]
            model = sentences.SentenceTransformer(modules=modules, device="cpu")
            model.max_seq_length = 20
            model.save(str(folder / "m"))
            kept[name] = folder / "m"
        return kept[name]

    return get


def vectors(directory):
    model = sentences.SentenceTransformer(str(directory), device="cpu", local_files_only=True)
    return np.stack([model.encode(text) for text in TEXTS])


def compared(theirs, ours):
    """Return "equal", "refused" or, if the other library fails, "theirs"; results that differ are an error."""
    theirs, ours = quietly(theirs), quietly(ours)
    if isinstance(theirs, Exception):
        return "theirs"
    if isinstance(ours, UserError):
        return "refused"
    assert np.shape(ours) == np.shape(theirs), ours
    assert np.abs(np.array(ours) - np.array(theirs)).max() < 1e-4
    return "equal"


def of_both(directory):
    return compared(lambda: vectors(directory), lambda: load(directory, device="cpu").embed(TEXTS))


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta", "mpnet", "xlnet"])
def test_models_of_sentence_transformers_are_read(name, made, tmp_path):
    assert of_both(made(name)) == "equal"
    save_model(tmp_path / "again", load_model(made(name)), "# Vectors")
    assert of_both(tmp_path / "again") == "equal"


@pytest.mark.parametrize(("name", "file", "settings", "expected"), VECTORS)
def test_vectors_are_those_of_sentence_transformers_or_refused(name, file, settings, expected, made, tmp_path):
    assert of_both(copied(made(name), file, settings, tmp_path / "m")) == expected


def test_the_prompt_is_kept_and_served(made, tmp_path):
    prompt = {"prompts": {"q": "the mat: "}, "default_prompt_name": "q"}
    directory = copied(made("bert"), PROMPTS, prompt, tmp_path / "m")
    save_model(tmp_path / "again", load_model(directory), "# Vectors")
    assert of_both(tmp_path / "again") == "equal"
    meter = Meter()
    served = Served("vectors", load(directory, device="cpu"), Limits(), meter)
    (ours,) = (job.read(served.compute(job.head, job.samples)) for job in [served.embed(EmbedRequest(inputs=TEXTS[0]))])
    assert np.allclose(ours, vectors(directory)[:1], atol=1e-5)


@pytest.mark.parametrize(
    "prompts",
    [
        {"query": "the cat ", "document": "the mat: "},
        {"query": "the cat "},
        {"document": ""},
        {"query": "the cat ", "passage": "the mat: ", "document": "a "},
    ],
)
def test_queries_and_documents_have_prompts(prompts, made, tmp_path):
    directory = copied(made("bert"), PROMPTS, {"prompts": prompts}, tmp_path / "m")
    save_model(tmp_path / "again", load_model(directory), "# Vectors")
    for source in (directory, tmp_path / "again"):
        theirs = sentences.SentenceTransformer(str(source), device="cpu", local_files_only=True)
        ours = load(source, device="cpu")
        for name, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
            expected = np.stack([encode(text) for text in TEXTS])
            np.testing.assert_allclose(ours.vectors(TEXTS, prompt_name=name)[0], expected, atol=1e-5)


def test_passages_have_their_prompt(made, tmp_path):
    """sentence-transformers 6.2 has an empty prompt for documents if the stated one is named passage."""
    directory = copied(made("bert"), PROMPTS, {"prompts": {"passage": "the mat: "}}, tmp_path / "m")
    ours = load(directory, device="cpu")
    expected = ours.vectors([f"the mat: {text}" for text in TEXTS])[0]
    np.testing.assert_array_equal(ours.vectors(TEXTS, prompt_name="document")[0], expected)


@pytest.mark.parametrize(
    ("stated", "normalized"),
    [
        *((stated, True) for stated in (..., None, "cosine", "dot", "euclidean", "manhattan")),
        *((stated, False) for stated in (..., "dot", "euclidean")),
        *(pytest.param(stated, False, marks=pytest.mark.exhaustive) for stated in (None, "cosine", "manhattan")),
    ],
)
def test_searches_compare_vectors_as_sentence_transformers(stated, normalized, made, tmp_path):
    """By cosines, unless the model states otherwise, also if it has no step that normalizes; saved models keep it."""
    directory = copied(made("bert"), PROMPTS, {"similarity_fn_name": stated}, tmp_path / "m")
    steps = json.loads((directory / "modules.json").read_text())
    (directory / "modules.json").write_text(json.dumps(steps if normalized else steps[:2]))
    theirs = sentences.SentenceTransformer(str(directory), device="cpu", local_files_only=True)
    expected = theirs.similarity(*(np.stack([theirs.encode(text) for text in TEXTS]) for _ in range(2))).numpy()
    save_model(tmp_path / "again", load_model(directory), "# Vectors")
    for source in (directory, tmp_path / "again"):
        ours = load(source, device="cpu", precision="float32")
        if stated == "manhattan" or (stated == "euclidean" and not normalized):
            with pytest.raises(UserError, match=f"compared by '{stated}' .*, which is not supported in searches"):
                check_vectors(ours)
            continue
        assert bool(check_vectors(ours)) == (stated in (..., None) and not normalized)
        queries, documents = (embed_side(ours, TEXTS, name, []) for name in ("query", "document"))
        products = queries @ documents.T
        if stated == "euclidean":
            products = -np.sqrt(np.maximum(2 - 2 * products, 0))
        np.testing.assert_allclose(products, expected, atol=2e-3 if stated == "euclidean" else 1e-4)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["Transformer", "Pooling"], "equal"),
        (["Transformer", "Pooling", "Dropout", "Normalize"], "equal"),
        (["Transformer", "Normalize", "Pooling"], "theirs"),
        (["Transformer"], "theirs"),
    ],
)
def test_steps_in_any_order_are_followed_or_refused(kinds, expected, made, tmp_path):
    shutil.copytree(made("bert"), tmp_path / "m")
    folders = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dropout": "3_Dropout"}
    (tmp_path / "m" / "3_Dropout").mkdir()
    (tmp_path / "m" / "3_Dropout" / "config.json").write_text('{"dropout": 0.5}')
    steps = [
        {"idx": number, "name": str(number), "path": folders[kind], "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    (tmp_path / "m" / "modules.json").write_text(json.dumps(steps))
    found = of_both(tmp_path / "m")
    assert found == expected or found == "refused"
    if kinds[1:2] != ["Pooling"]:
        with pytest.raises(UserError, match=r"the modules Transformer.* in this order"):
            load(tmp_path / "m", device="cpu").embed(TEXTS)


@pytest.mark.parametrize("settings", [{"pooling_mode": ["mean", "cls"]}, {"pooling_mode": "median"}])
def test_what_cannot_be_written_is_not_left_out(settings, made, tmp_path):
    """The export would have other vectors, in sentence-transformers and here."""
    directory = copied(made("bert"), POOLING, settings, tmp_path / "m")
    with pytest.raises(UserError, match=r"the vectors of this model need pooling by .*, which cannot be written"):
        export(directory, tmp_path / "out", "huggingface", quiet=True)
    assert not (tmp_path / "out").exists()


def test_an_encoder_in_a_folder_of_its_own_is_read(made, tmp_path):
    directory, steps = tmp_path / "m", json.loads((made("bert") / "modules.json").read_text())
    shutil.copytree(made("bert"), directory)
    (directory / "0_Transformer").mkdir()
    for path in [path for path in directory.iterdir() if path.is_file() and path.name not in ("modules.json", PROMPTS)]:
        path.rename(directory / "0_Transformer" / path.name)
    steps[0]["path"] = "0_Transformer"
    (directory / "modules.json").write_text(json.dumps(steps))
    assert of_both(directory) == "equal"
    shutil.copytree(directory, tmp_path / "two")
    for path in (tmp_path / "two" / "0_Transformer").iterdir():
        shutil.copy(path, tmp_path / "two" / path.name)
    with pytest.raises(UserError, match="the encoder in 0_Transformer"):
        load(tmp_path / "two", device="cpu").embed(TEXTS)


def sigmoid(name="Sigmoid"):
    return f"torch.nn.modules.activation.{name}"


SCORES = [
    (1, "config.json", {"sentence_transformers": {"activation_fn": sigmoid()}}, "equal"),
    (1, "config.json", {"sentence_transformers": {"version": "4.1.0"}}, "equal"),
    (1, "config.json", {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "equal"),
    (1, "config.json", {"sentence_transformers": {"activation_fn": sigmoid("Tanh")}}, "refused"),
    (1, "config.json", {"sentence_transformers": {"activation_fn": "mine.Sigmoid"}}, "refused"),
    (1, "config.json", {"sbert_ce_default_activation_function": sigmoid()}, "equal"),
    (1, "config.json", {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "equal"),
    (1, "config.json", {"sbert_ce_default_activation_function": sigmoid("ReLU")}, "refused"),
    (1, "config.json", {"sbert_ce_default_activation_function": None}, "equal"),
    (1, PROMPTS, {"model_type": "CrossEncoder", "activation_fn": sigmoid()}, "equal"),
    (1, PROMPTS, {"model_type": "CrossEncoder", "activation_fn": sigmoid("Tanh")}, "refused"),
    (1, PROMPTS, {"model_type": "CrossEncoder"}, "equal"),
    (1, PROMPTS, {"model_type": "CrossEncoder", "prompts": {"q": "the "}, "default_prompt_name": "q"}, "refused"),
    (3, "config.json", {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "equal"),
    (3, "config.json", {"sentence_transformers": {"activation_fn": sigmoid()}}, "refused"),
]


@pytest.fixture(scope="module")
def scoring(tmp_path_factory):
    """A function that returns the directory of a cross-encoder with this number of labels."""

    @cache
    def get(labels):
        directory = tmp_path_factory.mktemp("scoring") / "m"
        return write("bert", directory, model=transformers.AutoModelForSequenceClassification, num_labels=labels)

    return get


@pytest.fixture(scope="module")
def saved_scoring(scoring, tmp_path_factory):
    """The directory of a cross-encoder as sentence-transformers saves it."""
    directory = tmp_path_factory.mktemp("saved") / "m"
    sentences.CrossEncoder(str(scoring(1)), device="cpu").save_pretrained(str(directory))
    return directory


def scores(directory):
    model = sentences.CrossEncoder(str(directory), device="cpu", local_files_only=True)
    return np.stack([model.predict([pair])[0] for pair in PAIRS])


def own_scores(directory):
    predictor = load(directory, device="cpu")
    found = predictor.predict([first for first, _ in PAIRS], [second for _, second in PAIRS])
    if predictor.task.part == "regression":
        return [one.score for one in found]
    return np.array([[one.scores[label] for label in predictor.labels] for one in found])


@pytest.mark.parametrize(("labels", "file", "settings", "expected"), SCORES)
def test_scores_are_those_of_cross_encoders_or_refused(labels, file, settings, expected, scoring, tmp_path):
    directory = copied(scoring(labels), file, settings, tmp_path / "m")

    def theirs():
        found = scores(directory)
        return found if labels == 1 else torch.tensor(found).softmax(-1).numpy()  # unmask returns probabilities

    assert compared(theirs, lambda: own_scores(directory)) == expected
    if expected == "equal":
        save_model(tmp_path / "again", load_model(directory), "# Scores")
        assert np.allclose(scores(tmp_path / "again"), scores(directory), atol=1e-5)


@pytest.mark.parametrize("problem", [None, "regression"])
def test_a_checkpoint_that_states_no_activation_keeps_its_number(problem, scoring, tmp_path):
    """`CrossEncoder` returns its sigmoid, as the server does; of what is written here, the number too."""
    directory = scoring(1)
    copied(directory, "config.json", {"problem_type": problem}, tmp_path / "m")
    numbers = np.array(quietly(lambda: own_scores(tmp_path / "m")))
    np.testing.assert_allclose(1 / (1 + np.exp(-numbers)), scores(tmp_path / "m"), atol=1e-5)
    served = Served("m", load(tmp_path / "m", device="cpu"), Limits(), Meter())
    query, text = PAIRS[0]
    job = rerank(served, RerankRequest(query=query, texts=[text]))
    (answer,) = job.read(served.compute(job.head, job.samples))
    assert answer.score == pytest.approx(scores(tmp_path / "m")[0], abs=1e-5)
    save_model(tmp_path / "again", load_model(tmp_path / "m"), "# Scores")
    np.testing.assert_allclose(scores(tmp_path / "again"), numbers, atol=1e-5)


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("stated", [{"activation_fn": sigmoid()}, {"version": "4.1.0"}])
def test_labels_that_are_decided_on_separately_have_a_sigmoid(labels, stated, scoring, tmp_path):
    settings = {"problem_type": "multi_label_classification", "sentence_transformers": stated}
    directory = copied(scoring(labels), "config.json", settings, tmp_path / "m")
    save_model(tmp_path / "again", load_model(directory), "# Labels")
    expected = quietly(lambda: own_scores(directory))
    assert isinstance(load(directory, device="cpu").task, MultiLabel)
    assert np.allclose(quietly(lambda: own_scores(tmp_path / "again")), expected)
    assert np.allclose(scores(tmp_path / "again").reshape(expected.shape), expected, atol=1e-5)
    if labels == 1 or "activation_fn" in stated:
        assert np.allclose(scores(directory).reshape(expected.shape), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("file", "settings", "expected"),
    [
        (ENCODER, {"max_seq_length": 12}, "equal"),
        (ENCODER, {"max_seq_length": None}, "equal"),
        (ENCODER, {"do_lower_case": True}, "equal"),
        (ENCODER, {"unpad_inputs": False}, "equal"),
        (ENCODER, {"processing_kwargs": {"text": {"max_length": 12}}}, "refused"),
        (ENCODER, {"tokenizer_args": {"model_max_length": 12}}, "refused"),
        (ENCODER, {"transformer_task": "feature-extraction"}, "theirs"),
        (CONFIG, {"model_max_length": 12}, "equal"),
        (CONFIG, {"model_max_length": 10**30}, "equal"),
    ],
)
def test_the_settings_of_a_saved_cross_encoder_are_obeyed_or_refused(file, settings, expected, saved_scoring, tmp_path):
    directory = copied(saved_scoring, file, settings, tmp_path / "n")
    assert compared(lambda: scores(directory), lambda: own_scores(directory)) == expected
    if expected == "equal":
        save_model(tmp_path / "again", load_model(directory), "# Scores")
        assert np.allclose(scores(tmp_path / "again"), scores(directory), atol=1e-5)


@pytest.mark.filterwarnings("ignore::unmask.support.errors.InputWarning")
def test_a_cross_encoder_of_several_modules_is_refused(made, tmp_path):
    directory = copied(made("bert"), PROMPTS, {"model_type": "CrossEncoder"}, tmp_path / "m")
    with pytest.raises(UserError, match="the scores of this model need the modules Transformer, Pooling, Normalize"):
        load(directory, device="cpu")


def test_a_saved_cross_encoder_is_read_and_saved(saved_scoring, tmp_path):
    assert compared(lambda: scores(saved_scoring), lambda: own_scores(saved_scoring)) == "equal"
    save_model(tmp_path / "again", load_model(saved_scoring), "# Scores")
    assert np.allclose(quietly(lambda: own_scores(tmp_path / "again")), scores(saved_scoring), atol=1e-5)
