"""Cross-encoders trained here, as sentence-transformers and transformers read them: equal scores and losses."""

import json
from itertools import chain

import numpy as np
import pytest
import torch
import transformers

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.load import load_tokenizer
from unmask.inference.load import load
from unmask.model.model import Model, save_model
from unmask.objectives.learner import Learner
from unmask.tasks.ranking import Ranking
from unmask.tasks.regression import Regression
from unmask.workflows.finetuning.finetune import finetune

from .published import copied, write

sentences = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")
QUERIES = ["the cat", "a mat sat", "Café"]
PASSAGES = [["The cats sat.", "dog ate", "the mat!"], ["a cat on a mat", "é", "A dog"], ["The caf sat", "the", "a !"]]
GRADES = [[2.0, 0.0, 1.0], [0.0, 2.0, 1.0], [1.0, 2.0, 0.0]]
ROWS = [
    Row({"text": query, "text_b": passage, "label": str(grade)}, "a.tsv", 1)
    for query, passages, grades in zip(QUERIES, PASSAGES, GRADES, strict=True)
    for passage, grade in zip(passages, grades, strict=True)
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns a learner and the directory of a cross-encoder of random weights, by the loss that it learns by."""
    folder = tmp_path_factory.mktemp("model")
    write("bert", folder / "encoder")

    def make(loss):
        encoder = load(folder / "encoder", device="cpu").model.encoder
        task = Ranking(length=32, loss=loss).settle(ROWS, ())
        torch.manual_seed(0)
        head = task.build(encoder.head, ())
        torch.nn.init.normal_(head.out.weight)
        tokenizer = load_tokenizer(folder / "encoder")
        model = Model(encoder, tokenizer, {"ranking": head.published()}, task=task)
        save_model(folder / loss, model, "A cross-encoder.")
        samples = task.frame(tokenizer, ROWS, (), gold=True).samples
        return Learner(encoder, {"ranking": head}).eval(), samples, folder / loss

    return make


def score(made, kind):
    learner, samples, directory = made(kind)
    part = learner(collate([learner.prepare(sample) for sample in samples]))["ranking"]
    return part.sum.item() / (9 if kind == "binary" else 3), sentences.CrossEncoder(str(directory), device="cpu").eval()


@pytest.mark.parametrize("kind", ["binary", "margin"])
def test_scores_are_those_of_sentence_transformers_and_transformers(made, kind, tmp_path):
    *_, directory = made(kind)
    theirs, ours = sentences.CrossEncoder(str(directory), device="cpu"), load(directory, device="cpu")
    assert isinstance(ours.task, Ranking)
    pairs = [(row.values["text"], row.values["text_b"]) for row in ROWS]
    scores = [prediction.score for prediction in ours.predict(*map(list, zip(*pairs, strict=True)))]
    np.testing.assert_allclose(scores, theirs.predict(pairs), atol=1e-5)
    assert (min(scores) > 0 and max(scores) < 1) == (kind == "binary")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(directory)
    words = transformers.AutoTokenizer.from_pretrained(directory)
    encoded = words(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**encoded).logits
    classify = transformers.pipeline("text-classification", str(directory), device="cpu")
    texts = [dict(zip(("text", "text_pair"), pair, strict=True)) for pair in pairs]
    np.testing.assert_allclose([found["score"] for found in classify(texts)], scores, atol=1e-5)
    framed = ours.task.frame(ours.model.tokenizer, ROWS, (), gold=False)
    outputs = framed.outputs(ours.backend.logits("ranking", framed.samples))
    np.testing.assert_allclose(outputs, logits.numpy(), atol=1e-5)
    theirs.save_pretrained(str(tmp_path / "again"))
    again = load(tmp_path / "again", device="cpu").predict(*map(list, zip(*pairs, strict=True)))
    np.testing.assert_allclose([prediction.score for prediction in again], scores, atol=1e-5)


def test_a_published_one_is_trained_from_its_head_on(made, tmp_path):
    *_, directory = made("binary")
    config = json.loads((directory / "config.json").read_text())
    published = copied(directory, "config.json", {"unmask": ...}, tmp_path / "published")
    (published / "checksums.json").unlink()
    assert "unmask" in config and isinstance(load(published, device="cpu").task, Regression)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row.values) + "\n" for row in ROWS))
    settings = {"budget.steps": 1, "optimizer.learning_rate": 1e-9, "task.length": 32, "task.activation": "sigmoid"}
    files = {"train": tmp_path / "a.jsonl", "dev": tmp_path / "a.jsonl"}
    run = finetune("ranking", published, out=tmp_path / "run", settings=settings, quiet=True, device="cpu", **files)
    pairs = [[row.values[name] for row in ROWS] for name in ("text", "text_b")]
    before, after = ([one.score for one in load(of, device="cpu").predict(*pairs)] for of in (directory, run))
    np.testing.assert_allclose(after, before, atol=1e-4)


def test_the_binary_loss_is_theirs(made):
    ours, model = score(made, "binary")
    queries = [row.values["text"] for row in ROWS]
    labels = torch.tensor(GRADES).flatten() / 2
    theirs = losses.BinaryCrossEntropyLoss(model)([queries, [*chain(*PASSAGES)]], labels)
    assert ours == pytest.approx(theirs.item(), rel=1e-4)


def test_the_listwise_loss_is_theirs(made):
    ours, model = score(made, "listwise")
    theirs = losses.ListNetLoss(model)([QUERIES, PASSAGES], [torch.tensor(grades) for grades in GRADES])
    assert ours == pytest.approx(theirs.item(), rel=1e-4)


def test_the_pairwise_loss_is_theirs(made):
    ours, model = score(made, "pairwise")
    theirs = losses.RankNetLoss(model, reduction_log="natural")(
        [QUERIES, PASSAGES], [torch.tensor(grades) for grades in GRADES]
    )
    assert ours == pytest.approx(theirs.item(), rel=1e-4)


def test_the_margin_loss_is_theirs(made):
    """Over all pairs of a query: theirs is called for each."""
    ours, model = score(made, "margin")
    loss, values = losses.MarginMSELoss(model), []
    for first, second in ((0, 1), (0, 2), (1, 2)):
        texts = [QUERIES, *([passages[index] for passages in PASSAGES] for index in (first, second))]
        values.append(loss(texts, torch.tensor([grades[first] - grades[second] for grades in GRADES])).item())
    assert ours == pytest.approx(np.mean(values), rel=1e-4)
