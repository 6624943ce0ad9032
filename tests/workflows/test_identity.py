"""Stored results are continued only if all that they depend on has the same content, wherever it is."""

import os
import random
import shutil
from dataclasses import replace
from functools import partial

import msgspec
import pytest
import torch

import unmask
from unmask.data.tokenizers.train import train_wordpiece
from unmask.families.bert import BertSettings
from unmask.families.checkpoints.sentence_modules import Pooling
from unmask.inference.predictor import Predictor
from unmask.inference.stream import identity
from unmask.model.model import Model, load_model, save_model
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.workflows.finetuning.examples import read_examples
from unmask.workflows.finetuning.job import LabelledFiles
from unmask.workflows.pretraining import search

from ..killing import kill

HERE = {"device": "cpu", "precision": "float32", "quiet": True}
WORDS = ("dog", "cat", "sea", "river", "house", "market", "garden", "teacher", "road", "hill")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(Predictor, "window", 8)


def classifier(tokenizer, seed=0, **shape):
    """Return a classifier with random weights."""
    torch.manual_seed(seed)
    sizes = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "positions": 64, "init_std": 0.2, **shape}
    encoder = BertSettings(**sizes).build(tokenizer.size)
    heads = {"classification": ClassificationHead(encoder.head, 2).state_dict()}
    return Model(encoder, tokenizer, heads, ("a", "b"), Classification(length=32))


def rows(rng, number=40):
    """Return the lines of a file of labeled examples."""
    lines = [
        f"the {rng.choice(WORDS)} near the {rng.choice(WORDS)} {index}\t{'ab'[index % 2]}" for index in range(number)
    ]
    return ["text\tlabel", *lines]


def edited(lines, rng):
    """Return lines of which one was changed, added or removed, or two were swapped."""
    index, kind = rng.randrange(1, len(lines) - 2), rng.randrange(4)
    if kind == 0:
        return [*lines[:index], "the other " + lines[index], *lines[index + 1 :]]
    if kind == 1:
        return [*lines[:index], "another text\ta", *lines[index:]]
    if kind == 2:
        return [*lines[:index], *lines[index + 1 :]]
    return [*lines[:index], lines[index + 1], lines[index], *lines[index + 2 :]]


def changed_models(model):
    """Yield models that differ from one in a single weight, setting, label or token."""
    for name, value in model.encoder.state_dict().items():
        if value.is_floating_point():
            other = classifier(model.tokenizer)
            other.encoder.state_dict()[name].view(-1)[-1] += 1e-3
            yield name, other
    for name, value in model.heads["classification"].items():
        yield name, replace(model, heads={"classification": {**model.heads["classification"], name: value + 1e-3}})
    for shape in ({"activation": "relu"}, {"heads": 4}, {"segments": 3}, {"summary": "last"}):
        if all(name in BertSettings.__struct_fields__ for name in shape):
            yield str(shape), classifier(model.tokenizer, **shape)
    yield "labels", replace(model, labels=("b", "a"))
    yield "task", replace(model, task=Classification(length=31))
    for pooling in (Pooling(), Pooling(kind="cls"), Pooling(prompt="query: "), Pooling(normalize=False)):
        yield str(pooling), replace(model, pooling=pooling)
    for seed in range(50):
        rng = random.Random(seed)
        texts = [" ".join(rng.choices(WORDS, k=6)) + f" {rng.randrange(1000)}" for _ in range(50)]
        yield f"tokenizer {seed}", replace(model, tokenizer=train_wordpiece(texts, size=model.tokenizer.size))


def test_whatever_outputs_depend_on_changes_the_fingerprint_of_a_model(tokenizer):
    model = classifier(tokenizer)
    assert model.fingerprint() == classifier(tokenizer).fingerprint()
    assert model.fingerprint() == classifier(tokenizer, dropout=0.3).fingerprint()
    prints = {name: other.fingerprint() for name, other in changed_models(model)}
    assert len(prints) >= 80 and model.fingerprint() not in prints.values()
    assert len({*prints.values()}) == len(prints)


def test_a_saved_model_keeps_its_fingerprint_wherever_it_is(tokenizer, tmp_path):
    save_model(tmp_path / "one", classifier(tokenizer), "card")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    os.utime(tmp_path / "two" / "model.safetensors", (1, 1))
    one, two = (load_model(tmp_path / name) for name in ("one", "two"))
    assert one.fingerprint() == two.fingerprint() == load_model(tmp_path / "one", dropout=0.4).fingerprint()


@pytest.mark.seeds(60)
def test_data_are_known_by_their_content(seed, tokenizer, tmp_path):
    rng = random.Random(seed)
    lines = rows(rng)
    one, moved, other = (tmp_path / name for name in ("one.tsv", "moved.tsv", "other.tsv"))
    for path, content in ((one, lines), (moved, lines), (other, edited(lines, rng))):
        path.write_text("\n".join(content))
        os.utime(path, (seed, seed))
    assert identity("model", one) == identity("model", moved) != identity("model", other)
    model = classifier(tokenizer)
    prints = [
        read_examples(Classification(), LabelledFiles([path]), model).fingerprints() for path in (one, moved, other)
    ]
    assert prints[0] == prints[1] != prints[2]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, tokenizer, text_file, corpus):
    """A folder with a classifier, another one, labeled examples and text."""
    folder = tmp_path_factory.mktemp("inputs")
    for seed, name in enumerate(("model", "other")):
        save_model(folder / name, classifier(tokenizer, seed), "")
    (folder / "rows.tsv").write_text("\n".join(rows(random.Random(0))))
    (folder / "text.txt").write_text("\n\n".join(text_file.read_text().split("\n\n")[:40]))
    shutil.copytree(corpus.directory, folder / "corpus")
    return folder


def predict(folder, **more):
    """Predict the labels of a file."""
    unmask.predict(folder / "model", folder / "rows.tsv", out=folder / "out.jsonl", **{**HERE, **more})


def finetune(folder, steps=2, **more):
    """Fine-tune a classifier."""
    settings = {"task.length": 16, "budget.steps": steps}
    unmask.finetune(
        "classification", folder / "model", folder / "rows.tsv", folder / "out", settings=settings, **HERE, **more
    )


def pretrain(folder, steps=2, **more):
    """Pretrain on text."""
    shape = {"encoder.layers": 1, "encoder.width": 16, "encoder.heads": 2, "encoder.positions": 64}
    settings = {**shape, "layout.length": 48, "batch.tokens": 512, "budget.steps": steps, "tokenizer.vocabulary": 150}
    unmask.pretrain("bert-tiny", out=folder / "out", text=folder / "text.txt", settings=settings, **HERE, **more)


def distill(folder, steps=2, **more):
    """Distill the classifier."""
    settings = {"budget.steps": steps, "objective.layer_matching": False}
    given = {"train": folder / "rows.tsv", "targets": folder / "targets", "layers": 1}
    unmask.distill("tinybert-mini", folder / "model", folder / "out", settings=settings, **given, **HERE, **more)


def replace_model(folder):
    """Put another model in the place of the model."""
    shutil.rmtree(folder / "model")
    shutil.copytree(folder / "other", folder / "model")


def edit(name, separator):
    """Return a function that edits a file."""

    def change(folder):
        lines = (folder / name).read_text().split(separator)
        (folder / name).write_text(separator.join(edited(lines, random.Random(name))))

    return change


EDIT_ROWS, EDIT_TEXT = edit("rows.tsv", "\n"), edit("text.txt", "\n\n")
REPLACED = {
    "predict, model": (predict, replace_model, "another one: model was"),
    "predict, data": (predict, EDIT_ROWS, "another one: data was"),
    "finetune, model": (finetune, replace_model, "inputs.model was"),
    "finetune, data": (finetune, EDIT_ROWS, "inputs.train was"),
    "pretrain, text": (pretrain, EDIT_TEXT, "text.txt: is not the text that this run was started on"),
    "distill, teacher": (distill, replace_model, "predictions are of another teacher"),
    "distill, data": (distill, EDIT_ROWS, "predictions are of another data set"),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_was_replaced_at_the_same_path_is_refused(name, inputs, tmp_path):
    call, change, message = REPLACED[name]
    folder = tmp_path / "folder"
    shutil.copytree(inputs, folder)
    if call is predict:
        kill(folder, partial(predict, folder), 8)
        assert (folder / ".out.jsonl.part").exists()
    else:
        call(folder)
    change(folder)
    more = {} if call is predict else {"steps": 4}
    with pytest.raises(UserError, match=message):
        call(folder, resume=True, **more)


def test_other_options_and_versions_are_refused(inputs, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    shutil.copytree(inputs, folder)
    kill(folder, partial(predict, folder), 8)
    with pytest.raises(UserError, match=r"columns was \{\}, now"):
        predict(folder, resume=True, columns={"text": "text"})
    with monkeypatch.context() as patch, pytest.raises(UserError, match="precision was float32, now bf16"):
        patch.setattr("unmask.training.machine.emulates_bf16", lambda: False)
        predict(folder, resume=True, precision="bf16")
    with monkeypatch.context() as patch, pytest.raises(UserError, match=r"unmask was [\d.]+\S*, now 99"):
        patch.setattr("unmask.support.fingerprint.__version__", "99")
        predict(folder, resume=True)
    with pytest.raises(UserError, match="standard input: resume=True: what is read from here cannot be compared"):
        unmask.predict(folder / "model", "-", out=folder / "out.jsonl", resume=True, **HERE)
    predict(folder, resume=True)
    assert len((folder / "out.jsonl").read_text().splitlines()) == 40


def test_a_run_goes_on_with_text_that_has_moved_or_with_its_corpus(inputs, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(inputs, folder)
    pretrain(folder)
    moved = (folder / "text.txt").rename(folder / "moved.txt")
    given = {"out": folder / "out", "settings": {"budget.steps": 3}, "resume": True, **HERE}
    unmask.pretrain(text=moved, **given)
    with pytest.raises(UserError, match=r"text.txt: cannot be compared with the text .* corpus=.*out/text/corpus"):
        unmask.pretrain(text=folder / "text.txt", **given)
    with pytest.raises(UserError, match="other settings: documents was auto, now line"):
        unmask.pretrain(text=moved, documents="line", **given)
    given["settings"] = {"budget.steps": 4}
    unmask.pretrain(corpus=folder / "out" / "text" / "corpus", **given)


def test_a_search_of_the_learning_rate_on_other_text_is_not_continued(inputs, tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    shutil.copytree(inputs, folder)
    monkeypatch.setattr(search, "SEARCH_SHARE", 1.0)
    real = search.with_rates

    def interrupted(recipe, factor):
        if factor == search.SHORTER:
            raise KeyboardInterrupt
        return real(recipe, factor)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(search, "with_rates", interrupted)
        pretrain(folder, steps=3, search=True)
    first = (folder / "out/search/rates.json").read_bytes()
    EDIT_TEXT(folder)
    pretrain(folder, steps=3, search=True)
    losses = msgspec.json.decode((folder / "out/search/rates.json").read_bytes())
    assert losses["0.5"] != msgspec.json.decode(first)["0.5"]
