"""Few labels: a logistic regression on frozen features, whose strength predicts best what it was not fitted on."""

import json

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from transformers import AutoModel, AutoTokenizer

from unmask.data.labelled.labelled_file import Row
from unmask.families.gpt import GptSettings
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.inference.load import load
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.support.errors import UserError
from unmask.tasks.holding_out import assign_folds
from unmask.tasks.tuning import UNKNOWN, find_temperature
from unmask.training.settings import BudgetSettings
from unmask.workflows.finetuning import probe
from unmask.workflows.finetuning.announcements import describe_overfitting, describe_plateau
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.job import FewLabels, FinetuningJob, InitialModel, LabelledFiles, defaults, few_labels
from unmask.workflows.finetuning.probe import LOWER, MAX_FOLDS, STRENGTHS, HeadInputs, cross_validate

from ...conftest import MEANINGS


def texts_of(rng, labels, each):
    """Return texts of random words, most of them of their label."""
    rows = []
    for label in labels:
        others = " ".join(MEANINGS[other] for other in labels).split()
        for _ in range(each):
            own = rng.choice(MEANINGS[label].split(), 4).tolist()
            rows.append((" ".join(rng.permutation([*own, *rng.choice(others, 3)])), label))
    return [rows[index] for index in rng.permutation(len(rows))]


def write(path, rows):
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf8")
    return path


def mean_layers(model, texts, texts_b=None):
    """Return the normalized means of the last four layers, computed with transformers; of pairs, their differences."""
    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    rows = []
    with torch.inference_mode():
        for pair in zip(texts, *(() if texts_b is None else (texts_b,)), strict=True):
            inputs = tokenizer(*pair, return_tensors="pt")
            states = torch.stack(encoder(**inputs, output_hidden_states=True).hidden_states[-4:])[:, 0]
            texts_of_tokens = inputs["token_type_ids"][0]
            means = [states[:, texts_of_tokens == number].mean(1) for number in range(len(pair))]
            u, *v = (mean / mean.norm(dim=1, keepdim=True) for mean in means)  # (layers, width)
            rows.append((u - v[0]).abs() if v else u)
    return torch.stack(rows).numpy()  # (texts, layers, width)


def distance_to_sklearn(ours, features, gold, fresh, strength):
    """Return how far probabilities are from those of scikit-learn's regression at the nearest temperature."""
    logits = np.log(predictions_of_sklearn(features, gold, fresh, strength))
    return minimize_scalar(lambda t: np.abs(softmax(logits / t, 1) - ours).max(), bounds=(0.05, 20)).fun


def predictions_of_sklearn(features, gold, fresh, strength):
    """Return the probabilities of a regression on features, (texts, layers, width), the last layer weighted most."""
    shares = np.array([LOWER] * 3 + [1.0]) / np.linalg.norm([LOWER] * 3 + [1.0])
    scales = shares / np.sqrt(np.square(features).sum(2).mean(0))  # (layers,)
    train, test = ((part * scales[:, None]).reshape(len(part), -1) for part in (features, fresh))
    # of two classes scikit-learn fits one vector of weights, the difference of our two, whose norms are half of its
    fitted = LogisticRegression(C=1 / strength * (1 if len(set(gold)) > 2 else 2), max_iter=5000, tol=1e-8)
    return fitted.fit(train, gold).predict_proba(test)


@pytest.mark.parametrize("labels", [("good", "bad"), ("good", "bad", "odd")])
def test_few_labels_give_the_regression_of_scikit_learn(published, tmp_path, labels):
    rng = np.random.default_rng(len(labels))
    train, test = texts_of(rng, labels, 6), texts_of(rng, labels, 10)
    run = tmp_path / "run"
    finetune("classification", published, write(tmp_path / "train.tsv", train), run, all_examples=True, quiet=True)
    features, fresh = (mean_layers(published, [text for text, _ in part]) for part in (train, test))
    predictions = load(run).predict([text for text, _ in test])
    ours = np.array([[prediction.scores[label] for label in sorted(labels)] for prediction in predictions])
    gold = [label for _, label in train]
    distances = [distance_to_sklearn(ours, features, gold, fresh, strength) for strength in STRENGTHS]
    assert min(distances) < 2e-2  # stored features are float16, and the fit ends at a tolerance


def test_a_head_without_a_bias_is_fitted_without_one(tokenizer, documents, tmp_path):
    """That of GPT: the bias of the regression was left out, and with it how rare a label is."""
    shape = GptSettings(layers=1, width=32, heads=2, positions=64, init_std=0.2)
    save_model(tmp_path / "start", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    texts = [text[:40] for text in documents]
    rows = write(tmp_path / "train.tsv", zip(texts, ["rare", *["usual"] * 9] * 12, strict=True))
    settings = {"probe": True, "budget.epochs": 0, "task.length": 32, "objective.causal_lm": False}
    options = {"settings": settings, "frozen": False, "all_examples": True, "device": "cpu", "quiet": True}
    finetune("classification", tmp_path / "start", rows, tmp_path / "run", precision="float32", **options)
    model = load(tmp_path / "run")
    assert "out.bias" not in model.model.heads["classification"]
    probable = [prediction.scores["rare"] for prediction in model.predict(texts)]
    assert np.mean(probable) == pytest.approx(0.1, abs=0.03)


def test_without_training_steps_only_the_result_is_shown(published, tmp_path, capsys):
    """No held-out loss of a step 0 of 0, which is on a sample, before the scores."""
    rows = write(tmp_path / "train.tsv", texts_of(np.random.default_rng(3), ("good", "bad"), 10))
    settings = {"probe": True, "budget.epochs": 0}
    for resume in (False, True):
        finetune("classification", published, rows, tmp_path / "run", settings=settings, frozen=True, resume=resume)
        printed = capsys.readouterr().err
        assert "held out: loss" not in printed and (resume or printed.count("dev: ") == 1)
    assert "accuracy" in (tmp_path / "run" / "report.md").read_text()


def test_few_pairs_are_told_apart_by_the_differences_of_their_texts(published, tmp_path, capsys):
    rng = np.random.default_rng(7)

    def pairs(each):
        texts = {label: [text for text, _ in texts_of(rng, (label,), 2 * each)] for label in ("good", "bad")}
        alike = [
            (*texts[label][2 * number : 2 * number + 2], "alike") for label in texts for number in range(each // 2)
        ]
        apart = [(*pair, "apart") for pair in zip(texts["good"][each:], texts["bad"][each:], strict=True)]
        return [*alike, *apart]

    train, test = pairs(16), pairs(30)
    path = tmp_path / "train.tsv"
    path.write_text("text\ttext_b\tlabel\n" + "".join("\t".join(row) + "\n" for row in train))
    finetune("classification", published, path, tmp_path / "run", all_examples=True)
    assert "under a logistic regression of the differences between the two texts" in capsys.readouterr().err
    first, second, gold = (list(column) for column in zip(*test, strict=True))
    model = load(tmp_path / "run")
    predictions = model.predict(first, second)
    ours = np.array([[prediction.scores[label] for label in ("alike", "apart")] for prediction in predictions])
    assert np.mean([prediction.label == label for prediction, label in zip(predictions, gold, strict=True)]) > 0.8
    a, b, known = (list(column) for column in zip(*train, strict=True))
    features, fresh = mean_layers(published, a, b), mean_layers(published, first, second)
    distances = [distance_to_sklearn(ours, features, known, fresh, strength) for strength in STRENGTHS]
    assert min(distances) < 1e-2
    with pytest.raises(UserError, match="the model was trained on pairs of texts"):
        model.predict(first)


def test_pairs_of_a_model_without_segment_ids_are_not_compared(tmp_path, recipe, tokenizer):
    shape = recipe.encoder.__class__(layers=2, width=32, heads=2, feed_forward=64, positions=64, segments=1)
    save_model(tmp_path / "start", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    assert not load_model(tmp_path / "start").marks_pairs
    path = tmp_path / "train.tsv"
    path.write_text("text\ttext_b\tlabel\n" + "".join(f"a day\tnight {n}\t{'ab'[n % 2]}\n" for n in range(20)))
    with pytest.raises(UserError, match="needs segment ids, by which this model does not tell"):
        finetune("classification", tmp_path / "start", path, tmp_path / "run", downstream="difference")


def test_the_first_line_tells_how_rare_the_rarest_label_is(published, tmp_path, capsys):
    rng = np.random.default_rng(3)
    uneven = [*texts_of(rng, ("good",), 12), *texts_of(rng, ("bad",), 2)]
    finetune("classification", published, write(tmp_path / "train.tsv", uneven), tmp_path / "run", all_examples=True)
    told = "few labels, 7 examples of each on average, 2 of the rarest: the encoder stays frozen"
    assert told in capsys.readouterr().err


def test_with_more_labels_training_is_brief_and_begins_at_the_regression(published, tmp_path, capsys):
    labels = ("good", "bad")
    train = write(tmp_path / "train.tsv", texts_of(np.random.default_rng(3), labels, 40))
    finetune("classification", published, train, tmp_path / "run", all_examples=True)
    said = capsys.readouterr().err
    assert "few labels, 40 examples of each: a logistic regression on the encoder's features, then 2 epochs" in said
    tuned, before = load_model(tmp_path / "run"), load_model(published)
    assert tuned.downstream.kind == "average"
    moved = [
        (tuned.encoder.state_dict()[name] - value).abs().max() for name, value in before.encoder.state_dict().items()
    ]
    assert max(moved) > 1e-5
    assert evaluate_task(tuned, [train])["metrics"]["accuracy"] > 90
    few = write(tmp_path / "few.tsv", texts_of(np.random.default_rng(4), labels, 4))
    finetune("classification", tmp_path / "run", few, tmp_path / "again", all_examples=True)
    said = capsys.readouterr().err
    assert f"a logistic regression replaces the classification head of {tmp_path / 'run'}, which has the same" in said
    assert "all other weights from" in said and "newly initialized" not in said


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(5, 50))]
)
def test_strength_and_temperature_are_those_of_the_smallest_held_out_loss(seed):
    rng = np.random.default_rng(seed)
    classes, each = int(rng.integers(2, 5)), int(rng.integers(2, 9))
    gold = rng.permutation(np.repeat(np.arange(classes), each))
    vectors = rng.normal(size=(len(gold), 12)) + rng.normal(size=(classes, 12))[gold] * rng.uniform(0, 2)
    vectors /= np.sqrt(np.square(vectors).sum(1).mean())
    names = [f"text {index // 2}" if rng.random() < 0.2 else f"own {index}" for index in range(len(gold))]
    features = HeadInputs(
        torch.from_numpy(vectors).float(),
        torch.nn.functional.one_hot(torch.from_numpy(gold)).float(),
        torch.ones(len(gold)),
        True,
    )
    strength, temperature, number = cross_validate(features, names)
    if number == 0:
        assert (strength, temperature) == (0.1, 1.0)
        return
    assert number <= MAX_FOLDS
    folds = assign_folds(names, gold.tolist(), number, seed=0)
    losses, held = [], np.zeros((len(STRENGTHS), len(gold), classes))
    for number, tried in enumerate(STRENGTHS):
        loss = 0.0
        for fold in np.unique(folds):
            c = 1 / tried * (2 if len(set(gold[folds != fold])) == 2 and classes == 2 else 1)
            fitted = LogisticRegression(C=c, max_iter=5000, tol=1e-8).fit(vectors[folds != fold], gold[folds != fold])
            rows = np.flatnonzero(folds == fold)
            sure = fitted.predict_log_proba(vectors[rows])
            loss -= sum(sure[place, list(fitted.classes_).index(gold[row])] for place, row in enumerate(rows))
            held[number][rows] = -50.0
            held[number][np.ix_(rows, fitted.classes_)] = sure
        losses.append(loss)
    chosen = losses[STRENGTHS.index(strength)]
    assert chosen <= min(losses) * (1 + 2e-3)
    logits, examples = held[STRENGTHS.index(strength)], len(gold)
    targets = (np.eye(classes)[gold] * examples + UNKNOWN / classes) / (examples + UNKNOWN)

    def loss_at(t):
        return -(targets * log_softmax(logits / t, 1)).sum()

    assert loss_at(temperature) <= minimize_scalar(loss_at, bounds=(0.05, 20)).fun * (1 + 2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_labels_with_a_single_text_do_not_judge(seed):
    rng = np.random.default_rng(seed)
    gold = np.append(rng.permutation(np.repeat(np.arange(3), 6)), [3, 4, 4])
    texts = [*range(18), "a", "b", "b"]
    vectors = torch.from_numpy(rng.normal(size=(21, 12)) + rng.normal(size=(5, 12))[gold]).float()
    features = HeadInputs(
        vectors, torch.nn.functional.one_hot(torch.from_numpy(gold)).float(), torch.ones(len(gold)), True
    )
    strength, temperature, number = cross_validate(features, texts)
    assert number == 6, "not the usual strength, and probabilities that are too sure"
    folds, held = assign_folds(texts, gold.tolist(), number, seed=0), {}
    for tried in STRENGTHS:
        held[tried] = np.empty((21, 5))
        for fold in range(number):
            (fitted,) = features.part(np.flatnonzero(folds != fold)).fit([tried])
            held[tried][folds == fold] = log_softmax(fitted.logits(vectors[torch.from_numpy(folds == fold)]).numpy(), 1)
    losses = {tried: -logits[np.arange(18), gold[:18]].sum() for tried, logits in held.items()}
    assert strength == min(losses, key=losses.get)
    own, every = (find_temperature(np.exp(held[strength][:count]), gold[:count]) for count in (18, 21))
    assert temperature == pytest.approx(own, rel=1e-3) and every > 1.05 * own


def test_a_single_example_of_a_label_leaves_nothing_to_choose_by(published, tmp_path, capsys):
    train = write(tmp_path / "train.tsv", [("a good day", "good"), ("a bad day", "bad"), ("a bad night", "bad")])
    finetune("classification", published, train, tmp_path / "run", all_examples=True)
    said = capsys.readouterr().err
    assert "few labels, 2 examples of each" in said
    assert "C = 10, the usual one; to choose it, and to calibrate probabilities, two labels need two texts each" in said
    assert load(tmp_path / "run").predict(["a bad day"])[0].label == "bad"


def job(model="DIRECTORY", task="classification", **more):
    return FinetuningJob(task, InitialModel(model), LabelledFiles(["x.tsv"]), **more)


def examples(number, *more):
    return [Row({"text": f"text {index}", **dict(more), "label": "a"}, "x.tsv", index) for index in range(number)]


def rule(number, *more, tokens=None, marked=True, labels=2, **options):
    return few_labels(job(**options), examples(number, *more), labels, tokens=tokens, marked=marked)


def test_labels_are_few_unless_something_says_how_to_train():
    frozen, brief = FewLabels("average", 0.0), FewLabels("average", 2.0)
    assert rule(64) == rule(64, settings={"task.length": 64, "seed": 3}) == rule(64, task="multi-label") == frozen
    assert rule(65) == rule(512) == rule(512, marked=False) == brief
    assert rule(64, tokens=100_000_000) == rule(512, tokens=1000) == rule(65, tokens=0) == FewLabels()
    assert rule(513) is rule(513, tokens=1000) is None
    assert rule(65, tokens=200_000_000) == brief and rule(64, tokens=200_000_000) == frozen
    pair = ("text_b", "another")
    assert (rule(64, pair), rule(65, pair)) == (FewLabels("difference", 0.0), FewLabels("difference", 2.0))
    assert rule(64, pair, marked=False) == FewLabels() and rule(513, pair) is None
    assert rule(64, model="random:bert-mini") is rule(10, task="regression", labels=0) is None
    for more in ({"frozen": False}, {"frozen": True}, {"downstream": "rnn"}, {"settings": {"budget.epochs": 3}}):
        assert rule(64, **more) is rule(500, **more) is None


def test_of_a_small_encoder_all_parameters_are_trained_from_the_regression_on(published):
    shape = load_model(published).encoder.settings
    few = defaults("classification", shape, 64, pretrained=True, tokens=1000, few=FewLabels())
    usual = defaults("classification", shape, 64, pretrained=True, tokens=1000)
    assert few == {**usual, "probe": True, "task": {**usual["task"], "temperature": "tuned"}}


def test_a_multi_label_model_of_few_labels(published, tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "MAX_FOLDS", 2)  # each of the folds that thresholds are tuned on has as many again
    rng = np.random.default_rng(5)
    rows = texts_of(rng, ("good", "bad"), 8)
    both = [
        (f"{first[0]} {second[0]}", ",".join(sorted({first[1], second[1]}))) for first in rows for second in rows[:3]
    ]
    train = write(tmp_path / "train.tsv", both)
    finetune("multi-label", published, train, tmp_path / "run", all_examples=True, quiet=True)
    model = load_model(tmp_path / "run")
    assert model.downstream is not None and model.downstream.kind == "average"
    assert evaluate_task(model, [train])["metrics"]["f1_micro"] > 80


def test_weights_and_soft_labels_count_in_the_regression(published, tmp_path):
    rows = [("a fine day", "good"), ("a warm day", "good"), ("a cold day", "bad"), ("a dark day", "bad")] * 2
    hard = write(tmp_path / "hard.tsv", rows)
    scores = {}
    for name, weights in (("equal", ()), ("heavy", ("task.weights=[20.0, 1.0]",))):
        settings = {key: json.loads(value) for key, value in (each.split("=") for each in weights)}
        finetune("classification", published, hard, tmp_path / name, all_examples=True, quiet=True, settings=settings)
        scores[name] = load(tmp_path / name).predict(["a day"])[0].scores["bad"]
    assert scores["heavy"] > scores["equal"] + 0.05
    soft = tmp_path / "soft.jsonl"
    lines = [{"text": text, "label": {label: 0.8, ("bad" if label == "good" else "good"): 0.2}} for text, label in rows]
    soft.write_text("".join(json.dumps(line) + "\n" for line in lines))
    finetune("classification", published, soft, tmp_path / "soft", all_examples=True, quiet=True)
    assert 0.5 < load(tmp_path / "soft").predict(["a cold day"])[0].scores["bad"] < 0.85


def test_examples_of_weight_0_are_neither_learned_nor_judged_by(published, tmp_path, capsys):
    rng = np.random.default_rng(3)
    rows = texts_of(rng, ("good", "bad"), 8)
    wrong = [(text, "good" if label == "bad" else "bad") for text, label in texts_of(rng, ("good", "bad"), 2)]
    weighted = {
        "text": [text for text, _ in rows + wrong],
        "label": [label for _, label in rows + wrong],
        "importance": [1.0] * len(rows) + [0.0] * len(wrong),
    }
    options = {"columns": {"weight": "importance"}, "all_examples": True}
    finetune("classification", published, weighted, tmp_path / "weighted", **options)
    assert "logistic regression on 16 examples" in capsys.readouterr().err
    train = write(tmp_path / "train.tsv", rows)
    finetune("classification", published, train, tmp_path / "alone", all_examples=True, quiet=True)
    ours, alone = (
        np.array([list(each.scores.values()) for each in load(tmp_path / run).predict(weighted["text"])])
        for run in ("weighted", "alone")
    )
    assert np.abs(ours - alone).max() < 0.06 and np.ptp(alone) > 0.3, "weights relative to their mean are 1.25 and 0"


def test_the_same_command_with_resume_ends_in_the_same_model(published, tmp_path):
    train = write(tmp_path / "train.tsv", texts_of(np.random.default_rng(1), ("good", "bad"), 4))
    first = finetune("classification", published, train, tmp_path / "run", quiet=True)
    before = (first / "model.safetensors").read_bytes()
    (tmp_path / "run/dev.json").unlink()
    again = finetune("classification", published, train, tmp_path / "run", quiet=True, resume=True)
    assert (again / "model.safetensors").read_bytes() == before


def test_no_epochs_need_a_probe_and_a_probe_a_classifier(published, tmp_path):
    train = write(tmp_path / "train.tsv", texts_of(np.random.default_rng(1), ("good", "bad"), 8))
    with pytest.raises(UserError, match="budget must be positive"):
        finetune("classification", published, train, tmp_path / "a", settings={"budget.epochs": 0})
    numbers = tmp_path / "numbers.tsv"
    numbers.write_text("text\tscore\n" + "".join(f"text {n}\t{n}\n" for n in range(20)))
    with pytest.raises(UserError, match="probe fits heads that classify texts"):
        finetune("regression", published, numbers, tmp_path / "b", settings={"probe": True})


def lines_of(*losses):
    return [{"step": 10 * index, "loss": loss} for index, loss in enumerate(losses)]


def test_overfitting_is_a_loss_that_rose_by_more_than_a_fifth():
    epochs = BudgetSettings(epochs=10)
    text = describe_overfitting(lines_of(0.7, 0.68, 0.9, 1.71), 100, epochs)
    assert "rose from 0.68 at step 10 to 1.71" in text and "3.3" in text
    assert describe_overfitting(lines_of(0.7, 0.5, 0.45, 0.5), 100, epochs) == ""
    assert describe_overfitting(lines_of(0.7, 0.68, 0.9, 1.71), 20, epochs) == ""
    assert describe_overfitting(lines_of(0.7, 0.68, 0.9, 1.71), 100, BudgetSettings(epochs=10, patience=3)) == ""
    assert describe_overfitting(lines_of(0.7, None), 100, epochs) == ""
    assert describe_overfitting(lines_of(0.7, 0.0, 0.004), 100, epochs) == "", "nothing that anybody would notice"
    assert describe_overfitting([], 100, epochs) == ""


def test_a_plateau_is_a_loss_that_stays_where_it_began():
    text = describe_plateau([0.69, 0.70] * 50)
    assert "has not fallen (0.694 in the first steps, 0.695 in the last third)" in text
    assert describe_plateau([0.69, 0.70] * 29) == "", "too few steps to tell"
    assert describe_plateau([0.69] * 5 + [0.6] * 95) == "", "what is learned at once counts"
    assert describe_plateau([0.69] * 50 + [1.5] * 50) != ""
    assert describe_plateau([0.69] * 99 + [None]) == "" == describe_plateau([0.0] * 100)
