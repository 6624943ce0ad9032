"""Numbers as labels: validation, normalization, training and predictions."""

import json
import math
import warnings
from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.table import ExampleTable
from unmask.families.bert import BertSettings
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides, write
from unmask.tasks.embedding import Embedding
from unmask.tasks.mistakes import worst_first
from unmask.tasks.ranking import Ranking
from unmask.tasks.regression import Regression, RegressionHead, Score, numbers
from unmask.training.machine import choose_machine
from unmask.workflows.finetuning.finetune import finetune

TASK = Regression()
CPU = choose_machine("cpu", "float32")
SETTINGS = ["budget.epochs=15", "optimizer.learning_rate=3e-3", "task.length=24", "dropout=0.0"]


def make(*values):
    return [
        Row({"text": "dog", "text_b": "cat", "label": value}, "a.tsv", line) for line, value in enumerate(values, 2)
    ]


@pytest.mark.parametrize("value", ["high", "inf", "-inf", "1,5", "1.5 points", "0x3"])
@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_D17_a_label_that_is_not_a_number_is_named(tmp_path, value, name):
    good, bad = (json.dumps({"text": "dog", "score": it}) for it in (1.5, value))
    lines = ["text\tscore", "dog\t1.5", f"cat\t{value}"] if name == "a.tsv" else [good, good, bad]
    (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(UserError) as error:
        TASK.read([tmp_path / name], columns={})
    remedy = "a decimal point, and nothing between thousands" if "," in value else "the number alone; "
    assert str(error.value).startswith(f"{tmp_path / name}:3: the label '{value}' is not a number; write {remedy}")
    assert len(TASK.read([tmp_path / name], columns={}, gold=False)) == 2 + (name == "a.jsonl"), (
        "labels are not read for prediction"
    )


@pytest.mark.parametrize("value", ["-1.5e2", " 3 ", "+.5"])
def test_numbers_as_people_write_them(tmp_path, value):
    path = tmp_path / "a.tsv"
    path.write_text(f"sentence\tsimilarity\ndog\t{value}\n")
    (row,) = TASK.read([path], columns={})
    assert float(row.values["label"]) == float(value)


@given(st.lists(st.decimals(-(10**6), 10**6, places=2), min_size=1), st.booleans())
def test_decimal_commas_of_spreadsheets_are_points(values, whole):
    texts = ["7"] * whole + [str(value).replace(".", ",") for value in values]
    table, notes = ExampleTable("<test>", {"text": ["a"] * len(texts), "score": texts}), []
    assert numbers(TASK.read([table], columns={}, notes=notes)) == [7.0] * whole + [float(value) for value in values]
    assert notes == ["<test>: the commas in its numbers are read as decimal points"]


@pytest.mark.parametrize(
    "labels",
    [["1,500", "2,250"], ["1,500", "12,250.5"], ["1,5", "2.5"], ["1,5,0"], ["1,5", "1.234,5"], ["1,5", "two"], ["1,"]],
)
def test_commas_that_may_separate_thousands_are_refused(labels):
    count = len(labels)
    table = ExampleTable("<test>", {"text": ["a"] * count, "text_b": ["b"] * count, "score": labels})
    for task in (TASK, Ranking(), Embedding()):
        with pytest.raises(UserError, match="is not a number"):
            task.read([table], columns={})


def test_each_file_has_its_own_decimal_sign():
    tables = [
        ExampleTable(name, {"text": ["a", "b"], "score": labels})
        for name, labels in (("<a>", ["0,125", "1,500"]), ("<b>", ["1.5", "2"]))
    ]
    assert numbers(TASK.read(tables, columns={})) == [0.125, 1.5, 1.5, 2.0]


@pytest.mark.parametrize(
    ("scores", "found"),
    [([0, 5], ["from 0 to 5 in <a>, and from 0 to 100 in <b>"]), ([0, 30], []), ([7], []), ([-100, 0], [])],
)
def test_files_with_numbers_on_other_scales_are_noted(scores, found):
    tables = [
        ExampleTable(name, {"text": ["a"] * 10, "score": [str(values[at % len(values)]) for at in range(10)]})
        for name, values in (("<a>", scores), ("<b>", [0, 100]))
    ]
    for sources in (tables, tables[::-1]):
        notes = []
        TASK.read(sources, columns={}, notes=notes)
        assert notes == [f"the numbers are {ranges}: if these are other scales, bring them to one" for ranges in found]
    tables[0] = ExampleTable("<a>", {name: values[:9] for name, values in tables[0].columns.items()})
    notes = []
    TASK.read(tables, columns={}, notes=notes)
    assert notes == [], "too few numbers"


def test_decimals_of_databases_are_numbers():
    table = ExampleTable("<test>", {"text": ["a", "b"], "label": [Decimal("1.50"), Decimal(2)]})
    assert numbers(Regression().read([table], columns={})) == [1.5, 2.0]


def test_numbers_that_are_all_equal_are_refused():
    with pytest.raises(UserError, match=r"a\.tsv: all 3 examples have the same number; is it the right column\?"):
        TASK.label_names(make("1", "1.0", "1"))
    assert TASK.label_names(make("1", "2")) == ()
    with pytest.raises(ValueError, match="at least 3"):
        Regression(length=2)


def test_samples_carry_their_numbers(tokenizer):
    samples = TASK.frame(tokenizer, make("1.5", "-2"), (), gold=True).samples
    assert [sample.labels["regression"].tolist() for sample in samples] == [[1.5], [-2]]
    assert {sample.labels["regression"].dtype for sample in samples} == {np.dtype(np.float32)}
    framed = TASK.frame(tokenizer, make("1.5", "-2"), (), gold=False)
    assert all(not sample.labels for sample in framed.samples)
    read = framed.read([np.array([[0.25]], np.float32), np.array([[4]], np.float32)])
    assert read == [Score("dog", 0.25, "cat"), Score("dog", 4.0, "cat")]


def test_the_loss_is_the_squared_error(tokenizer):
    settings = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32, dropout=0.0)
    learner = Learner(settings.build(tokenizer.size), {"regression": RegressionHead(settings.head)}).eval()
    samples = TASK.frame(tokenizer, make("1.5", "-2"), (), gold=True).samples
    batch = collate([learner.prepare(sample) for sample in samples])
    part = learner(batch)["regression"]
    found = learner.parts["regression"].predict(learner.encoder, learner.encoder(batch.tokens), batch)
    assert batch.counts == {"regression": 2}
    expected = (found[0, 0] - 1.5) ** 2 + (found[1, 0] + 2) ** 2
    torch.testing.assert_close(part.sum, expected)


def test_with_a_sigmoid_the_losses_are_cross_entropies_of_probabilities(tokenizer):
    """Of labels, and of the probabilities of a teacher: minimal, and without a gradient, where they are the same."""
    task, rows = Regression(length=24, activation="sigmoid"), make("0", "0.25", "1")
    task = task.settle(rows, ())
    assert (task.mean, task.deviation, task.activation) == (None, None, "sigmoid")
    body = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=24).build(tokenizer.size).eval()
    head = task.build(body.head, ()).eval()
    batch = collate([head.prepare(of, "regression") for of in task.frame(tokenizer, rows, (), gold=True).samples])
    encoded = body(batch.tokens)
    logits = head.predict(body, encoded, batch)
    gold, taught = torch.tensor([0, 0.25, 1])[:, None], torch.tensor([0.5, 0.125, 0.75])[:, None]
    theirs = torch.nn.BCELoss(reduction="sum")
    expected = [theirs(logits.sigmoid(), targets).item() for targets in (gold, taught)]
    assert head.score(body, encoded, batch).sum.item() == pytest.approx(expected[0], rel=1e-5)
    assert head.imitate(logits, taught.logit(), batch, 1.0).sum.item() == pytest.approx(expected[1], rel=1e-5)
    head.imitate(logits, logits.detach(), batch, 1.0).sum.backward()
    assert head.out.weight.grad.abs().max() < 1e-5


def test_labels_of_a_sigmoid_are_probabilities():
    task = Regression(activation="sigmoid")
    with pytest.raises(UserError, match=r"^a.tsv:3: the label 1.5 is not a probability, .*; scale the labels to the"):
        task.check_gold(make("0", "1.5"))
    with pytest.raises(UserError, match=r"task\.mean and task\.deviation have no effect with task\.activation; remove"):
        Regression(activation="sigmoid", mean=0.5).settle(make("0", "1"), ())


def test_a_text_in_windows_has_the_number_that_it_is_trained_on(tokenizer):
    """With a sigmoid, too: that of the mean of the logits, not the mean of their sigmoids."""
    rng, words = np.random.default_rng(0), ["dog", "cat", "sea", "river", "house", "poem"]
    texts = [" ".join(rng.choice(words, size)) for size in (1, 5, 9, 17, 30)]
    rows = [Row({"text": text, "label": "0.5"}, "a.tsv", 2) for text in texts]
    settings = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=12, init_std=0.3, dropout=0.0)
    for activation in (None, "sigmoid"):
        task = Regression(length=12, windows=4, activation=activation)
        torch.manual_seed(0)
        body = settings.build(tokenizer.size)
        head = task.build(body.head, ())
        torch.nn.init.normal_(head.out.weight, std=2)
        learner = Learner(body, {"regression": head}).eval()
        samples = [learner.prepare(of) for of in task.frame(tokenizer, rows, (), gold=True).samples]
        batch = collate(samples)
        expected = head.predict(body, body(batch.tokens), batch).squeeze(1)
        expected = expected.sigmoid() if activation else expected
        model = Model(body, tokenizer, {"regression": head.published()}, (), task)
        scores = [found.score for found in Predictor(model, CPU).predict(texts)]
        np.testing.assert_allclose(scores, expected.detach().numpy(), atol=1e-5)


def test_probabilities_near_1_are_ranked_by_their_logits(tokenizer):
    """In float32 all logits from 17 on have the probability 1."""
    rows, task = make("0", "1", "0.5", "0"), Regression(activation="sigmoid")
    logits = [np.array([[number]], np.float32) for number in (17.5, 21.0, 21.001, -100.0)]
    framed = task.frame(tokenizer, rows, (), gold=False)
    np.testing.assert_allclose(task.rankable(framed.read(logits)), np.concatenate(logits)[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(framed.outputs(logits), np.concatenate(logits))


def test_mistakes_come_worst_first():
    predictions = [Score("dog", value, "cat") for value in (1.0, 4.5, 2.0)]
    found = worst_first(TASK.mistakes(make("1.5", "1", "2"), predictions, ()))
    assert [mistake.caption for mistake in found] == ["a.tsv:3", "a.tsv:2", "a.tsv:4"]
    assert [mistake.score for mistake in found] == [3.5, 0.5, 0.0]
    assert (found[0].gold, found[0].predicted, found[0].measure) == ("1", "4.500", "error")


def learn(shape, here, tokenizer):
    """Fine-tune on train.tsv of a folder; `shape` is the folder of the recipe."""
    start = f"random:{shape / 'tiny.toml'}"
    about = {
        "tokenizer": tokenizer,
        "settings": parse_overrides(SETTINGS),
        "device": "cpu",
        "precision": "float32",
        "quiet": True,
    }
    finetune("regression", start, [here / "train.tsv"], here / "run", **about)


@pytest.fixture(scope="module")
def trained(tokenizer, tokenizer_directory, tmp_path_factory):
    """A run on pairs whose number depends on the first word."""
    here, rng = tmp_path_factory.mktemp("regression"), np.random.default_rng(0)
    lines = ["sentence1\tsentence2\tscore"]
    for _ in range(160):
        word = rng.choice(["dog", "cat"])
        lines.append(f"{word} near the sea\tthe {rng.choice(['river', 'house'])}\t{3 if word == 'dog' else 1}")
    (here / "train.tsv").write_text("\n".join(lines))
    shape = ["encoder.layers=1", "encoder.width=32", "encoder.feed_forward=64", "encoder.positions=64"]
    (here / "tiny.toml").write_text(write(read_recipe("bert-tiny", parse_overrides([*shape, "layout.length=48"]))))
    learn(here, here, tokenizer_directory)
    return here


def test_labels_are_normalized_by_mean_and_standard_deviation(recipe):
    rows = [Row({"text": "x", "label": label}, "a.tsv", 2) for label in ("100", "300")]
    task = Regression().settle(rows, ())
    assert (task.mean, task.deviation) == (200, 100)
    head = task.build(recipe.encoder.head, ())
    assert head.published()["out.bias"].item() == 200
    settled = Regression(mean=1.0, deviation=2.0).settle(rows, ())
    assert settled == Regression(mean=1.0, deviation=2.0, pairs=False)
    with pytest.raises(ValueError, match="deviation must be above 0"):
        Regression(deviation=0.0)


def test_a_regression_learns_and_is_loaded_again(trained):
    result = json.loads((trained / "run" / "dev.json").read_text())
    assert result["task"] == "regression"
    assert result["metrics"]["pearson"] > 95
    assert "labels" not in result
    model = load(trained / "run", device="cpu")
    task = model.model.task
    assert (model.labels, type(task), task.length) == ((), Regression, 24)
    values = [float(row.values["label"]) for row in task.read([trained / "train.tsv"], columns={})]
    assert (task.mean, task.deviation) == pytest.approx((np.mean(values), np.std(values)), abs=0.05)
    high, low = model.predict(["dog near the sea", "cat near the sea"], ["the river"] * 2)
    assert (high.score, low.score) == pytest.approx((3, 1), abs=0.4)
    assert (high.text, high.text_b) == ("dog near the sea", "the river")
    assert "A regression on texts" in (trained / "run" / "model" / "README.md").read_text()


@pytest.mark.parametrize("scale", [1000.0, pytest.param(1e-3, marks=pytest.mark.exhaustive)])
def test_training_is_independent_of_the_scale_of_the_numbers(trained, tokenizer_directory, tmp_path, scale):
    header, *lines = (trained / "train.tsv").read_text().splitlines()
    scaled = [f"{line.rpartition(chr(9))[0]}\t{scale * float(line.rpartition(chr(9))[2])}" for line in lines]
    (tmp_path / "train.tsv").write_text("\n".join([header, *scaled]))
    learn(trained, tmp_path, tokenizer_directory)
    texts = ["dog near the sea", "cat near the sea"], ["the river"] * 2
    expected, found = (
        [it.score for it in load(run / "run", device="cpu").predict(*texts)] for run in (trained, tmp_path)
    )
    assert found == pytest.approx([scale * score for score in expected], rel=1e-3)


def test_a_head_is_published_without_normalization(recipe):
    task = Regression(mean=200.0, deviation=50.0)
    head, again = (task.build(recipe.encoder.head, ()) for _ in range(2))
    torch.nn.init.normal_(head.out.bias)
    published = head.published()
    torch.testing.assert_close(published["out.weight"], 50 * head.out.weight)
    torch.testing.assert_close(published["out.bias"], 50 * head.out.bias + 200)
    again.adopt(published)
    torch.testing.assert_close(again.state_dict(), head.state_dict(), rtol=1e-5, atol=1e-6)


@given(st.lists(st.tuples(st.sampled_from(["1", "1.0", "2"]), st.sampled_from([0.5, 0.25])), min_size=2, max_size=5))
def test_undefined_correlations_are_told(pairs):
    """They are undefined where scipy's is no number."""
    rows = make(*(gold for gold, _ in pairs))
    told = TASK.undefined(rows, [Score("dog", score) for _, score in pairs])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        is_undefined = math.isnan(pearsonr(numbers(rows), [score for _, score in pairs]).statistic)
    assert bool(told) == is_undefined
    if told:
        assert f"all {len(rows)} examples" in told
        assert told.endswith(": correlations are undefined, and reported as 0")
        assert ("gold" in told) == (len(set(numbers(rows))) == 1)


def test_equal_numbers_are_refused_after_holding_out_too():
    with pytest.raises(UserError, match="all 2 examples have the same number"):
        TASK.settle(make("1", "1.0"), ())


def test_what_to_do_about_words_is_said():
    with pytest.raises(UserError, match=r"the label '4 stars' is not a number; write the number alone; names of cl"):
        numbers(make("4", "4 stars"))


@pytest.mark.parametrize(("value", "message"), [("1_0", "is not a number"), ("1e60", "is too large")])
def test_python_notation_and_huge_numbers_are_refused(value, message):
    with pytest.raises(UserError, match=rf"a\.tsv:2: the label '{value}' {message}"):
        TASK.label_names(make(value, "1"))


@pytest.mark.parametrize("values", [["1700000001", "1700000002"], ["1e-44", "2e-44"], ["1e-200", "3e-200"]])
def test_numbers_that_float32_cannot_distinguish_are_refused(values):
    rows = [Row({"text": "a", "label": value}, "a.tsv", 2) for value in values]
    with pytest.raises(UserError, match=r"float32 cannot distinguish these numbers.*subtract"):
        Regression().settle(rows, ())


@pytest.mark.parametrize("settings", [{"mean": math.nan}, {"deviation": 1e-60}, {"deviation": 0.0}])
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        Regression(**settings)
