"""Fine-tuning with a frozen encoder: it stays unchanged, its features are computed once, the result is a full model."""

import json
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.families.modernbert import ModernBertSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.load import load
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.nn.encoders.encoder import token_vectors
from unmask.objectives.objective import Objective, classify
from unmask.support.errors import InputWarning, UserError
from unmask.support.settings import parse_overrides
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.runs.display import Display
from unmask.workflows.finetuning import frozen
from unmask.workflows.finetuning.finetune import finetune, run_trials
from unmask.workflows.finetuning.prepare import build_learner

from .conftest import CPU, job_of, recipe_of, tune

KINDS = ("linear", "average", "rnn")
TEXTS = ["house dog river market house", "garden river cat", "dog"]


def same_encoder(one, other):
    """Return whether two models have bitwise identical encoders."""
    first, second = one.encoder.state_dict(), other.encoder.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


RATES = {"linear": 3e-2, "average": 1e-1, "rnn": 2e-2}


@pytest.mark.parametrize("kind", [pytest.param("linear", marks=pytest.mark.exhaustive), "average", "rnn"])
def test_each_kind_learns_and_the_encoder_stays(start, task, tmp_path, kind):
    more = ["downstream.width=16"] if kind == "rnn" else []
    steps = {"linear": 200, "average": 80, "rnn": 50}[kind]
    rate = f"optimizer.learning_rate={RATES[kind]}"
    tuned = tune(start, task, tmp_path / "run", f"budget.steps={steps}", rate, *more, downstream=kind)
    assert same_encoder(tuned, load_model(start))
    score = json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["accuracy"]
    assert score > 95 if kind != "linear" else score > 70  # with random weights, [CLS] contains little of the words
    assert not (tmp_path / "run/features").exists()


@pytest.mark.parametrize("layers", [pytest.param("[0]", marks=pytest.mark.exhaustive), "[0, -1]"])
def test_static_embeddings_and_mixtures_learn(start, task, tmp_path, layers):
    mixed = ["downstream.combine=mix"] if "," in layers else []
    settings = [f"downstream.layers={layers}", "budget.steps=60", "optimizer.learning_rate=1e-1"]
    tuned = tune(start, task, tmp_path / "run", *settings, *mixed, downstream="average")
    assert json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["accuracy"] > 95
    assert tuned.downstream.combine == ("mix" if mixed else "concatenate")
    assert bool(tuned.heads["downstream"]) == bool(mixed)
    if mixed:
        assert tuned.heads["downstream"]["mix.weights"].any()  # is trained


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_is_loaded_unchanged_with_its_encoder(start, task, tmp_path, kind):
    more = ["downstream.width=8"] if kind == "rnn" else []
    tuned = tune(start, task, tmp_path / "run", "budget.steps=5", *more, downstream=kind)
    before = load(tmp_path / "run", device="cpu").predict(TEXTS)
    save_model(tmp_path / "again", tuned, "card")
    assert load(tmp_path / "again", device="cpu").predict(TEXTS) == before
    single = [load(tmp_path / "run", device="cpu").predict(text)[0].scores["good"] for text in TEXTS]
    assert single == pytest.approx([one.scores["good"] for one in before], abs=1e-6)  # whatever else is in the batch
    theirs, report = AutoModel.from_pretrained(tmp_path / "run/model", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert torch.equal(theirs.embeddings.word_embeddings.weight, tuned.encoder.words.weight)
    if kind == "linear":  # only the head of the task, which transformers can load
        words = AutoTokenizer.from_pretrained(tmp_path / "run/model")
        whole = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run/model").eval()
        with torch.no_grad():
            probabilities = whole(**words(TEXTS, padding=True, return_tensors="pt")).logits.softmax(1)
        torch.testing.assert_close(torch.tensor([list(one.scores.values()) for one in before]), probabilities)


def assert_stored_is_computed(start, tmp_path, kind, *settings):
    recipe, base = recipe_of(f"downstream.kind={kind}", *settings), load_model(start)
    rows = [Row({"text": text, "label": label}, "a.tsv", 1) for text, label in zip(TEXTS, "aba", strict=True)]
    samples = recipe.task.frame(base.tokenizer, rows, ("a", "b"), gold=True).samples
    logits = {}
    for name in ("encoder", "stored", "again"):
        learner, _ = build_learner(base, ("a", "b"), recipe)
        mine = samples
        if name != "encoder":
            (mine, held), _ = frozen.freeze(
                learner,
                base,
                recipe,
                (samples[:2], samples[2:]),
                tmp_path / name,
                base.fingerprint(),
                CPU,
                Processes(),
                Display(quiet=True),
            )
            mine = [*mine, *held]
        batch = collate([learner.eval().prepare(sample) for sample in mine])
        logits[name] = learner.parts["classification"].predict(learner.encoder, learner.encoder(batch.tokens), batch)
        assert batch.counts == {"classification": 3}
    stored, again = (next((tmp_path / name).rglob("*.safetensors")).read_bytes() for name in ("stored", "again"))
    assert stored == again, "bitwise identical"
    assert torch.equal(logits["stored"], logits["again"])
    if kind == "linear" and not recipe.task.grouped:  # one row per text, ordered by length: all lengths are 1 now
        order = np.argsort([len(sample) for sample in samples], kind="stable")
        logits["stored"] = logits["stored"][order]
    torch.testing.assert_close(logits["stored"], logits["encoder"], rtol=0, atol=2e-3)  # rounding to float16
    assert not torch.equal(logits["stored"], logits["encoder"])


@pytest.mark.parametrize("kind", KINDS)
def test_stored_features_equal_recomputed_ones(start, tmp_path, kind):
    assert_stored_is_computed(start, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_features_of_windows_equal_recomputed_ones(start, tmp_path, kind):
    assert_stored_is_computed(start, tmp_path, kind, "task.length=4", "task.windows=4")


def modern(tokenizer, directory, **settings):
    """Save a ModernBERT, whose heads read tokens through the pooler too; return the directory."""
    shape = ModernBertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, init_std=0.2, **settings)
    save_model(directory, Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    return directory


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_stored_features_of_modernbert_equal_recomputed_ones(tokenizer, tmp_path, kind, pooling):
    start = modern(tokenizer, tmp_path / "start", classifier_pooling=pooling)
    assert_stored_is_computed(start, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_another_text_are_noticed(start, tmp_path, monkeypatch, kind):
    right = frozen._by_row
    monkeypatch.setattr(frozen, "_by_row", lambda sample, first, at: right(sample, max(0, first - 1), at))
    with pytest.raises(AssertionError):
        assert_stored_is_computed(start, tmp_path, kind)


class Tagger(Objective):
    """Head that reads the tokens at "first", as for token classification."""

    at = "first"

    def __init__(self, encoder, *_):
        super().__init__()
        self.out = torch.nn.Linear(encoder.width, 3)

    def prepare(self, sample, name):
        return sample.add(counts={name: len(sample.positions["first"])})

    def predict(self, encoder, encoded, batch):
        return self.out(token_vectors(encoder, encoded.last, batch, "first"))

    def score(self, encoder, encoded, batch):
        return classify(self.predict(encoder, encoded, batch), batch.labels["tags"])


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("settings", ["downstream.layers=[-1]", "downstream.layers=[0]", "downstream.kind=rnn"])
def test_heads_that_read_other_tokens_work_on_stored_features(
    start, tokenizer, tmp_path, monkeypatch, settings, family
):
    start = start if family == "bert" else modern(tokenizer, tmp_path / family)
    recipe, base = recipe_of("downstream.kind=linear", settings), load_model(start)
    monkeypatch.setattr(type(recipe.task), "build", lambda task, encoder, labels: Tagger(encoder))
    rows = [Row({"text": text, "label": "a"}, "a.tsv", 1) for text in TEXTS]
    framed = recipe.task.frame(base.tokenizer, rows, ("a", "b"), gold=True).samples
    samples = [
        sample.add(positions={"first": np.arange(1, len(sample) - 1, 2)}, labels={"tags": np.zeros(3, np.int64)})
        for sample in framed
    ]
    logits = []
    for stored in (False, True):
        learner, _ = build_learner(base, ("a", "b"), recipe)
        mine = samples
        if stored:
            (mine, _), _ = frozen.freeze(
                learner,
                base,
                recipe,
                (samples, []),
                tmp_path,
                base.fingerprint(),
                CPU,
                Processes(),
                Display(quiet=True),
            )
        batch = collate([learner.eval().prepare(sample) for sample in mine])
        logits.append(learner.parts["classification"].predict(learner.encoder, learner.encoder(batch.tokens), batch))
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=2e-3)


def losses(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [(line["step"], line["loss"]) for line in map(json.loads, lines) if line["kind"] == "train"]


def test_an_interrupted_run_resumes_with_the_same_numbers(start, task, tmp_path, monkeypatch, stopped_at):
    settings = ["budget.steps=12", "downstream.width=8"]
    whole = tune(start, task, tmp_path / "whole", *settings, downstream="rnn")
    with stopped_at(5):
        tune(start, task, tmp_path / "cut", *settings, downstream="rnn")
    for left in ("features", "damaged features", "features without a checksum", "nothing"):
        out, said = shutil.copytree(tmp_path / "cut", tmp_path / left), []
        (path,) = (out / "features").glob("*.safetensors")
        with monkeypatch.context() as patch:
            if left == "features":
                patch.setattr(TorchBackend, "layers", lambda *given, **more: pytest.fail("computed again"))
            elif left == "damaged features":  # C9
                path.write_bytes(path.read_bytes()[:-1] + b"x")
            else:
                (path if left == "nothing" else path.with_suffix(".sha256")).unlink()
            patch.setattr(Display, "say", lambda self, *texts, said=said: said.extend(texts))
            resumed = tune(start, task, out, *settings, downstream="rnn", resume=True)
        assert losses(out) == losses(tmp_path / "whole"), left
        assert any("stored features are damaged" in text for text in said) == (left == "damaged features")
        for head, state in whole.heads.items():
            assert all(torch.equal(value, resumed.heads[head][name]) for name, value in state.items()), left


def test_several_runs_compute_features_once(start, task, tmp_path, monkeypatch):
    calls, real = [], TorchBackend.layers
    monkeypatch.setattr(TorchBackend, "layers", lambda *given, **more: calls.append(1) or real(*given, **more))

    short = ("budget.steps=2", "downstream.width=8")
    run_trials(job_of(start, task, *short, downstream="rnn"), tmp_path / "runs", seeds=2)
    assert len(calls) == 1
    assert not (tmp_path / "runs/features").exists()
    shared = {"features": tmp_path / "shared", "downstream": "rnn"}
    tune(start, task, tmp_path / "one", *short, **shared)
    tune(start, task, tmp_path / "two", *short, "seed=1", **shared)
    tune(start, task, tmp_path / "other", *short, "downstream.layers=[0]", **shared)
    tune(start, task, tmp_path / "cut", *short, "task.length=5", **shared)
    assert len(calls) == 4


def test_checkpoints_hold_the_small_model_alone(start, task, tmp_path):
    tune(start, task, tmp_path / "run", "budget.steps=2", "downstream.width=8", downstream="rnn")
    (path, *_) = sorted((tmp_path / "run/checkpoints").glob("step-*/model.safetensors"))
    names = safetensors.torch.load_file(path)
    assert names and all(name.startswith(("encoder.lstm.", "objectives.")) for name in names)


def test_in_bf16_too(start, task, tmp_path):
    machine = Machine(torch.device("cpu"), "bf16")
    tune(start, task, tmp_path / "run", "budget.steps=3", "downstream.width=8", downstream="rnn", machine=machine)
    assert load(tmp_path / "run", device="cpu").predict(TEXTS)[0].label in ("good", "bad")
    assert same_encoder(load_model(tmp_path / "run"), load_model(start))


def test_without_frozen_both_are_tuned(start, task, tmp_path):
    rate = "optimizer.learning_rate=1e-2"
    tuned = tune(
        start, task, tmp_path / "run", "budget.steps=2", "downstream.width=8", rate, frozen=False, downstream="rnn"
    )
    assert not same_encoder(tuned, load_model(start))
    assert tuned.downstream.kind == "rnn"


def test_regression_too(start, task, tmp_path):
    numbers = tmp_path / "numbers.tsv"
    numbers.write_text(task.read_text().replace("good", "1.5").replace("bad", "-1"))
    settings = ["task.length=24", "budget.steps=60", "optimizer.learning_rate=1e-1"]
    finetune(
        *("regression", start, [numbers], tmp_path / "run"),
        **{"dev": [numbers], "frozen": True, "downstream": "average", "settings": parse_overrides(settings)},
        **{"device": "cpu", "precision": "float32", "quiet": True},
    )
    assert json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["pearson"] > 90


@pytest.mark.parametrize("damage", ["tensor", "head", "settings", "labels"])
def test_a_damaged_model_is_refused(start, task, tmp_path, damage):
    tune(start, task, tmp_path / "run", "budget.steps=1", "downstream.width=8", downstream="rnn")
    weights, config = (tmp_path / "run/model" / name for name in ("model.safetensors", "config.json"))
    tensors, table = safetensors.torch.load_file(weights), json.loads(config.read_text())
    if damage == "tensor":
        del tensors["unmask.downstream.lstm.lstm.weight_hh_l0"]
    elif damage == "head":
        tensors = {name: value for name, value in tensors.items() if not name.startswith("unmask.classification")}
    elif damage == "settings":
        table["unmask"]["downstream"]["width"] = 9
    else:
        tensors["unmask.classification.out.weight"] = torch.zeros(2, 5)
    safetensors.torch.save_file(tensors, weights, {"format": "pt"})
    config.write_text(json.dumps(table))
    (config.parent / "checksums.json").unlink()
    with pytest.raises(UserError, match=r"do not match the weights|head on the downstream model is missing"):
        load_model(tmp_path / "run")


def write_tagged(path):
    rng, lines = np.random.default_rng(0), []
    for _ in range(60):
        words = rng.permutation(["dog", *rng.choice(["river", "house", "teacher", "market"], rng.integers(1, 6))])
        lines += [f"{word} {'B-PET' if word == 'dog' else 'O'}" for word in words] + [""]
    path.write_text("\n".join(lines))
    return path


def write_questions(path):
    passages = []
    for number, word in enumerate(["river", "house", "teacher", "market"] * 5):
        text = f"the dog near the {word}"
        question = {"id": str(number), "question": "where?", "answers": [{"text": word, "answer_start": 17}]}
        passages.append({"context": text, "qas": [question]})
    path.write_text(json.dumps({"data": [{"paragraphs": passages}]}))
    return path


@pytest.mark.parametrize("kind", ["linear", "rnn"])
def test_entities_are_found_by_small_models(start, tmp_path, kind):
    path = write_tagged(tmp_path / "train.conll")
    settings = ["budget.steps=60", "optimizer.learning_rate=3e-2", "task.length=24"]
    more = ["downstream.width=16"] if kind == "rnn" else []
    options = {
        "dev": [path],
        "frozen": True,
        "downstream": kind,
        "device": "cpu",
        "precision": "float32",
        "quiet": True,
    }
    finetune(
        "token-classification", start, [path], tmp_path / "run", settings=parse_overrides([*settings, *more]), **options
    )
    assert json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["f1"] > 95
    found = load(tmp_path / "run", device="cpu").tag("market dog house").entities
    assert [(one.label, one.text) for one in found] == [("PET", "dog")]


def test_entities_need_more_than_an_average(start, tmp_path):
    with pytest.raises(
        UserError, match=r"average.* yields one vector per text, but token classification needs one per token"
    ):
        path = write_tagged(tmp_path / "train.conll")
        finetune(
            "token-classification",
            start,
            [path],
            tmp_path / "run",
            frozen=True,
            downstream="average",
            device="cpu",
            precision="float32",
            quiet=True,
        )


def test_questions_are_answered_by_a_linear_model(start, tmp_path):
    path = write_questions(tmp_path / "train.json")
    settings = ["budget.steps=150", "optimizer.learning_rate=3e-2", "task.length=24"]
    finetune(
        "question-answering",
        start,
        [path],
        tmp_path / "run",
        settings=parse_overrides(settings),
        dev=[path],
        frozen=True,
        device="cpu",
        precision="float32",
        quiet=True,
    )
    assert json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["f1"] > 80
    with pytest.warns(InputWarning, match="questions truncated to 4 tokens: 1"):
        assert load(tmp_path / "run", device="cpu").answer("where?", "the dog near the house").answer == "house"
