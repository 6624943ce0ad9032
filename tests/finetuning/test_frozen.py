"""Frozen fine-tuning: the encoder stays, its features are computed once, and what is left is a whole model."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from unmask.batches.batch import collate
from unmask.encoders.downstream_kind import DOWNSTREAM_KINDS
from unmask.errors import InputWarning, UserError
from unmask.finetuning import frozen
from unmask.finetuning.finetune import finetune, run_job
from unmask.finetuning.job import Job, LabelledFiles, Start
from unmask.finetuning.learner import build_learner
from unmask.finetuning.rule import FROZEN_RATES, defaults
from unmask.finetuning.trials import several
from unmask.inference.backend import TorchBackend
from unmask.inference.predictor import load
from unmask.labelled.labelled_file import Row
from unmask.model import Model, build_encoder, load_model, save_model
from unmask.objectives.objective import Objective, classify
from unmask.recipe import FinetuningRecipe
from unmask.runs.display import Display
from unmask.settings import convert, parse_overrides, put
from unmask.training.machine import choose_machine
from unmask.training.processes import Processes

CPU = choose_machine("cpu", "float32")
KINDS = ("linear", "average", "rnn")
TEXTS = ["house dog river market house", "garden river cat", "dog"]


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """120 texts of several lengths, told apart by one word somewhere among others."""
    rng = np.random.default_rng(0)
    lines = ["text\tlabel"]
    for number in range(120):
        word, label = (("dog", "good"), ("cat", "bad"))[number % 2]
        words = [word, *rng.choice(["river", "house", "teacher", "market", "garden"], rng.integers(2, 7))]
        lines.append(f"{' '.join(rng.permutation(words))}\t{label}")
    path = tmp_path_factory.mktemp("task") / "train.tsv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def start(tmp_path, recipe, tokenizer):
    """An encoder whose random weights are large enough to tell words apart."""
    shape = recipe.encoder.__class__(layers=2, width=32, heads=2, feed_forward=64, positions=64, init_std=0.2)
    save_model(tmp_path / "start", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    return tmp_path / "start"


def tune(start, task, out, *settings, resume=False, features=None, **options):
    run_job(job_of(start, task, *settings, **options), out, resume=resume, features=features)
    return load_model(out)


def same_encoder(one, other):
    """Whether two models have the same encoder, to the bit."""
    theirs = other.encoder.state_dict()
    found = one.encoder.state_dict()
    return found.keys() == theirs.keys() and all(torch.equal(found[name], theirs[name]) for name in theirs)


def job_of(start, task, *settings, **options):
    settings = parse_overrides(["task.length=24", *settings])
    more = {"frozen": True, "machine": CPU, "quiet": True, **options}
    return Job("classification", Start(start), LabelledFiles([task], [task]), settings, **more)


RATES = {"linear": 3e-2, "average": 3e-2, "rnn": 1e-2}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_learns_and_the_encoder_stays(start, task, tmp_path, kind):
    more = ["downstream.width=16"] if kind == "rnn" else []
    steps = {"linear": 200, "average": 200, "rnn": 80}[kind]
    rate = f"optimizer.learning_rate={RATES[kind]}"
    tuned = tune(start, task, tmp_path / "run", f"budget.steps={steps}", rate, *more, downstream=kind)
    assert same_encoder(tuned, load_model(start))
    score = json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["accuracy"]
    assert score > 95 if kind != "linear" else score > 70  # [CLS] of random weights hardly knows the words
    assert not (tmp_path / "run/features").exists()


@pytest.mark.parametrize("layers", ["[0]", "[0, -1]"])
def test_static_embeddings_and_mixtures_learn(start, task, tmp_path, layers):
    mixed = ["downstream.combine=mix"] if "," in layers else []
    settings = [f"downstream.layers={layers}", "budget.steps=150", "optimizer.learning_rate=3e-2"]
    tuned = tune(start, task, tmp_path / "run", *settings, *mixed, downstream="average")
    assert json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["accuracy"] > 95
    assert tuned.downstream.combine == ("mix" if mixed else "concatenate")
    assert bool(tuned.heads["downstream"]) == bool(mixed)
    if mixed:
        assert tuned.heads["downstream"]["mix.weights"].any()  # has learnt


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_is_loaded_the_same_and_holds_the_encoder(start, task, tmp_path, kind):
    tuned = tune(start, task, tmp_path / "run", "budget.steps=5", downstream=kind)
    before = load(tmp_path / "run", device="cpu").predict(TEXTS)
    save_model(tmp_path / "again", tuned, "card")
    assert load(tmp_path / "again", device="cpu").predict(TEXTS) == before
    single = [load(tmp_path / "run", device="cpu").predict(text)[0].scores["good"] for text in TEXTS]
    assert single == pytest.approx([one.scores["good"] for one in before], abs=1e-6)  # whatever is beside it
    theirs, report = AutoModel.from_pretrained(tmp_path / "run/model", output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert torch.equal(theirs.embeddings.word_embeddings.weight, tuned.encoder.words.weight)
    if kind == "linear":  # the task's own head: transformers knows it
        words = AutoTokenizer.from_pretrained(tmp_path / "run/model")
        whole = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run/model").eval()
        with torch.no_grad():
            probabilities = whole(**words(TEXTS, padding=True, return_tensors="pt")).logits.softmax(1)
        torch.testing.assert_close(torch.tensor([list(one.scores.values()) for one in before]), probabilities)


def recipe_of(*settings):
    table = {
        "task": {"kind": "classification", "length": 24},
        "batch": {"sequences": 16},
        "optimizer": {"kind": "adamw"},
        "schedule": {"kind": "constant", "warmup": 0.0},
        "budget": {"steps": 1},
        "frozen": True,
    }
    return convert(put(table, parse_overrides(settings), FinetuningRecipe), FinetuningRecipe, "test")


def assert_stored_is_computed(start, tmp_path, kind):
    recipe, base = recipe_of(f"downstream.kind={kind}"), load_model(start)
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
    assert stored == again  # to the bit
    assert torch.equal(logits["stored"], logits["again"])
    if kind == "linear":  # one row a text: in the order of the lengths, which are all 1 now
        order = np.argsort([len(sample) for sample in samples], kind="stable")
        logits["stored"] = logits["stored"][order]
    torch.testing.assert_close(logits["stored"], logits["encoder"], rtol=0, atol=2e-3)  # of rounding to float16
    assert not torch.equal(logits["stored"], logits["encoder"])


@pytest.mark.parametrize("kind", KINDS)
def test_stored_features_are_those_computed_anew(start, tmp_path, kind):
    assert_stored_is_computed(start, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_another_text_are_noticed(start, tmp_path, monkeypatch, kind):
    right = frozen._by_row
    monkeypatch.setattr(frozen, "_by_row", lambda sample, first, at: right(sample, max(0, first - 1), at))
    with pytest.raises(AssertionError):
        assert_stored_is_computed(start, tmp_path, kind)


class Tagger(Objective):
    """Reads the tokens at "first", as a head of tagging does."""

    at = "first"

    def __init__(self, encoder, *_):
        super().__init__()
        self.out = torch.nn.Linear(encoder.width, 3)

    def prepare(self, sample, name):
        return sample.add(counts={name: len(sample.positions["first"])})

    def predict(self, encoder, encoded, batch):
        return self.out(encoded.last.index_select(0, batch.positions["first"]))

    def score(self, encoder, encoded, batch):
        return classify(self.predict(encoder, encoded, batch), batch.labels["tags"])

    def forward_flops(self, encoder, batch):
        return 0


@pytest.mark.parametrize("settings", ["downstream.layers=[-1]", "downstream.layers=[0]", "downstream.kind=rnn"])
def test_heads_that_read_other_tokens_sit_on_stored_features(start, tmp_path, monkeypatch, settings):
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


@pytest.mark.parametrize("kept", [True, False], ids=["features kept", "features gone"])
def test_a_run_that_was_stopped_goes_on_with_the_same_numbers(start, task, tmp_path, monkeypatch, stopped_at, kept):
    settings = ["budget.steps=12", "downstream.width=8"]
    whole = tune(start, task, tmp_path / "whole", *settings, downstream="rnn")
    with stopped_at(5):
        tune(start, task, tmp_path / "cut", *settings, downstream="rnn")
    (path,) = (tmp_path / "cut/features").glob("*.safetensors")
    if kept:
        monkeypatch.setattr(TorchBackend, "layers", lambda *given, **more: pytest.fail("computed again"))
    else:
        path.unlink()
    resumed = tune(start, task, tmp_path / "cut", *settings, downstream="rnn", resume=True)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    for head, state in whole.heads.items():
        assert all(torch.equal(value, resumed.heads[head][name]) for name, value in state.items())


def test_several_runs_compute_features_once(start, task, tmp_path, monkeypatch):
    calls, real = [], TorchBackend.layers
    monkeypatch.setattr(TorchBackend, "layers", lambda *given, **more: calls.append(1) or real(*given, **more))

    several(job_of(start, task, "budget.steps=2", downstream="rnn"), tmp_path / "runs", seeds=3)
    assert len(calls) == 1
    assert not (tmp_path / "runs/features").exists()
    shared = {"features": tmp_path / "shared", "downstream": "rnn"}
    tune(start, task, tmp_path / "one", "budget.steps=2", **shared)
    tune(start, task, tmp_path / "two", "budget.steps=2", "seed=1", **shared)
    tune(start, task, tmp_path / "other", "budget.steps=2", "downstream.layers=[0]", **shared)
    tune(start, task, tmp_path / "cut", "budget.steps=2", "task.length=5", **shared)
    assert len(calls) == 4


def test_checkpoints_hold_the_small_model_alone(start, task, tmp_path):
    tune(start, task, tmp_path / "run", "budget.steps=2", downstream="rnn")
    (path, *_) = sorted((tmp_path / "run/checkpoints").glob("step-*/model.safetensors"))
    names = safetensors.torch.load_file(path)
    assert names and all(name.startswith(("encoder.lstm.", "objectives.")) for name in names)


def test_in_bf16_too(start, task, tmp_path):
    tune(start, task, tmp_path / "run", "budget.steps=3", downstream="rnn", machine=choose_machine("cpu", "bf16"))
    assert load(tmp_path / "run", device="cpu").predict(TEXTS)[0].label in ("good", "bad")
    assert same_encoder(load_model(tmp_path / "run"), load_model(start))


def test_without_frozen_both_are_tuned(start, task, tmp_path):
    rate = "optimizer.learning_rate=1e-2"
    tuned = tune(start, task, tmp_path / "run", "budget.steps=2", rate, frozen=False, downstream="rnn")
    assert not same_encoder(tuned, load_model(start))
    assert tuned.downstream.kind == "rnn"


def test_a_model_trained_further_keeps_its_own_small_model(start, task, tmp_path):
    slow = ["budget.steps=1", "optimizer.learning_rate=1e-9"]
    first = tune(start, task, tmp_path / "first", "budget.steps=3", downstream="rnn")
    second = tune(tmp_path / "first", task, tmp_path / "second", *slow, downstream="rnn")
    for name, value in first.heads["downstream"].items():
        assert (second.heads["downstream"][name] - value).abs().max() < 1e-6
    third = tune(tmp_path / "first", task, tmp_path / "third", *slow, downstream="average")
    assert (third.downstream.kind, third.heads["downstream"]) == ("average", {})
    plain = tune(tmp_path / "first", task, tmp_path / "plain", *slow, frozen=False)
    assert plain.downstream is None


def test_regression_too(start, task, tmp_path):
    numbers = tmp_path / "numbers.tsv"
    numbers.write_text(task.read_text().replace("good", "1.5").replace("bad", "-1"))
    settings = ["task.length=24", "budget.steps=150", "optimizer.learning_rate=3e-2"]
    finetune(
        *("regression", start, [numbers], tmp_path / "run"),
        **{"dev": [numbers], "frozen": True, "downstream": "average", "settings": parse_overrides(settings)},
        **{"machine": CPU, "quiet": True},
    )
    assert json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["pearson"] > 90


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        ({"downstream": "tree"}, [], "unknown downstream model 'tree'; known: average, linear, rnn"),
        ({"downstream": "rnn"}, ["downstream.layers=[3]"], "there is no layer 3; this model has 0"),
        ({"downstream": "linear"}, ["downstream.layers=[0]"], r"layer 0 of \[CLS\] is the same for every text"),
        ({"downstream": "linear", "frozen": False}, [], "--downstream linear has no effect without --frozen"),
        ({}, ["optimizer.layer_decay=0.9"], "optimizer.layer_decay has no effect on a frozen encoder"),
        ({}, ["batch.recompute=true"], "batch.recompute has no effect on a frozen encoder"),
        ({}, ["frozen=false"], "--set frozen=false is an option of its own; pass --frozen"),
        ({}, ["downstream.kind=rnn"], "pass --frozen or --downstream KIND"),
        ({"downstream": "average"}, ["downstream.width=3"], "width has no effect on kind"),
        ({"frozen": False}, ["downstream.width=3"], "without a downstream model; pass --frozen or --downstream KIND"),
    ],
)
def test_what_has_no_effect_or_no_sense_is_refused(start, task, tmp_path, options, settings, message):
    with pytest.raises(UserError, match=message):
        tune(start, task, tmp_path / "run", *settings, **options)
    assert not (tmp_path / "run").exists()


def test_an_average_cannot_tag(start, monkeypatch):
    recipe, base = recipe_of("downstream.kind=average"), load_model(start)
    task = type(recipe.task)
    build = task.build

    def tagger(self, *given):  # a head that reads other tokens than the first
        head = build(self, *given)
        head.at = "first"
        return head

    monkeypatch.setattr(task, "build", tagger)
    with pytest.raises(UserError, match=r"--downstream average is one vector a text, classification needs one a token"):
        build_learner(base, ("a", "b"), recipe)
    build_learner(base, ("a", "b"), recipe_of("downstream.kind=linear", "downstream.layers=[0]"))  # a static tagger


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
    with pytest.raises(UserError, match=r"does not fit the weights|head on the downstream model is missing"):
        load_model(tmp_path / "run")


def test_the_command_line_offers_every_kind():
    assert set(KINDS) == set(FROZEN_RATES) == set(DOWNSTREAM_KINDS)


def test_small_models_have_a_rule_of_their_own(recipe):
    shape = recipe.encoder  # two layers
    for kind, layers in (("linear", [-1]), ("average", [-2, -1]), ("rnn", [-2, -1])):
        rule = defaults("classification", shape, 5000, pretrained=True, frozen=True, downstream=kind)
        assert rule["downstream"] == {"kind": kind, "layers": layers}
        assert (rule["frozen"], rule["budget"]) == (True, {"epochs": 13.0})
        assert rule["optimizer"]["learning_rate"] == FROZEN_RATES[kind]
    tuned = defaults("classification", shape, 5000, pretrained=True, downstream="rnn")
    assert tuned["optimizer"] == defaults("classification", shape, 5000, pretrained=True)["optimizer"]
    assert "downstream" not in defaults("classification", shape, 5000, pretrained=True)


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
    options = {"dev": [path], "frozen": True, "downstream": kind, "machine": CPU, "quiet": True}
    finetune(
        "token-classification", start, [path], tmp_path / "run", settings=parse_overrides([*settings, *more]), **options
    )
    assert json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["f1"] > 95
    found = load(tmp_path / "run", device="cpu").tag("market dog house").entities
    assert [(one.label, one.text) for one in found] == [("PET", "dog")]


def test_entities_need_more_than_an_average(start, tmp_path):
    with pytest.raises(UserError, match="average is one vector a text, token classification needs one a token"):
        path = write_tagged(tmp_path / "train.conll")
        finetune(
            "token-classification",
            start,
            [path],
            tmp_path / "run",
            frozen=True,
            downstream="average",
            machine=CPU,
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
        machine=CPU,
        quiet=True,
    )
    assert json.loads((tmp_path / "run/dev.json").read_text())["metrics"]["f1"] > 80
    with pytest.warns(InputWarning, match="questions truncated to 4 tokens: 1"):
        assert load(tmp_path / "run", device="cpu").answer("where?", "the dog near the house").answer == "house"
