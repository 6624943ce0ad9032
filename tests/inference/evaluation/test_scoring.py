"""Evaluation of one model, of two models on the same examples, and the page of mistakes."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from unmask.data.batches.curriculum import Feed
from unmask.data.batches.layout import DocumentSentencesSettings
from unmask.data.batches.masking import NoMaskingSettings
from unmask.data.corpus.build import write_corpus
from unmask.families.bert import BertSettings
from unmask.families.gpt import GptSettings
from unmask.inference.evaluation.scoring import constant_scores, evaluate_encoder, evaluate_task, score_examples
from unmask.inference.predictor import Predictor
from unmask.metrics import METRICS
from unmask.metrics.intervals import measure_all
from unmask.model.model import Model, load_model, save_model
from unmask.objectives.causal_lm import CausalLM
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification
from unmask.tasks.mistakes import worst_first
from unmask.tasks.multi_label import MultiLabel
from unmask.tasks.regression import Regression
from unmask.tasks.token_classification import TokenClassification
from unmask.testing import check_metric
from unmask.training.evaluate import evaluate
from unmask.training.machine import choose_machine

SETTINGS = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32, dropout=0.0, init_std=0.9)
NLI = ("entailment", "neutral", "contradiction")


def model(tokenizer, task, labels=(), seed=0):
    torch.manual_seed(seed)
    head = task.build(SETTINGS.head, labels)
    torch.nn.init.normal_(head.out.weight)
    return Model(SETTINGS.build(tokenizer.size), tokenizer, {task.part: head.state_dict()}, labels, task)


@pytest.fixture
def pairs(tmp_path, documents):
    """40 pairs with one of three labels and a number each, one pair without a gold label."""
    rng = np.random.default_rng(0)
    lines = ["sentence1\tsentence2\tgold_label\tscore"]
    for number in range(40):
        gold = "-" if number == 7 else NLI[rng.integers(3)]
        lines.append(f"{documents[number][:60]}\t{documents[number + 1][:40]}\t{gold}\t{rng.random():.3f}")
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines))
    return path


def test_against_scores_both_on_the_same_examples(tokenizer, pairs):
    first = model(tokenizer, Classification(length=16), NLI)
    second = model(tokenizer, Classification(length=24), NLI[::-1], seed=1)
    result = evaluate_task(first, [pairs], columns={}, against=second)
    alone = [evaluate_task(it, [pairs], columns={}) for it in (first, second)]
    assert result["metrics"] == alone[0]["metrics"] != alone[1]["metrics"]
    assert result["examples"] == 39
    assert result["against"]["metrics"] == alone[1]["metrics"], "labels in another order are the same labels"
    for name, found in result["against"]["differences"].items():
        assert found["difference"] == alone[0]["metrics"][name] - alone[1]["metrics"][name]
        assert found["interval"][0] <= found["interval"][1]
        assert 0 < found["p"] <= 1
    assert result["notes"] == alone[0]["notes"]
    assert result["notes"][0] == f"{pairs}: omitted, as the format specifies: 1 pair without a label"
    same = evaluate_task(first, [pairs], columns={}, against=first)["against"]["differences"]
    for found in same.values():
        assert (found["difference"], found["p"]) == (0, 1)
        assert found["interval"][1] == -found["interval"][0] > 0, "39 examples do not prove that models are the same"


def test_labels_that_no_example_has_are_noted(tokenizer, tmp_path):
    (tmp_path / "a.csv").write_text("text,a,b\nx,1,0\ny,0,1\n")
    several = model(tokenizer, MultiLabel(length=16, threshold=0.5), ("a", "b", "c"))
    notes = evaluate_task(several, [tmp_path / "a.csv"], columns={"text": "text", "label": "a,b"})["notes"]
    assert "1 label of the model that no example has: 'c'" in notes
    (tmp_path / "a.conll").write_text("Rome\tB-LOC\n\nEve\tO\n")
    with pytest.raises(UserError, match=r"weight.* has no effect: scores count each example once; omit it"):
        evaluate_task(several, [tmp_path / "a.csv"], columns={"text": "text", "label": "a,b", "weight": "a"})
    labels = ("O", "B-LOC", "I-LOC", *(f"{role}-{kind}" for kind in "DEFGHIJ" for role in "BI"))
    notes = evaluate_task(model(tokenizer, TokenClassification(length=16), labels), [tmp_path / "a.conll"])["notes"]
    assert "7 labels of the model that no example has: 'D', 'E', 'F', 'G', 'H', …" in notes


def share_of_first(examples, predictions, labels):
    """The share of examples with the first label that were predicted so, as another package may define it."""
    gold = np.array([row.values["label"] == NLI[0] for row in examples])
    right = gold & np.array([prediction.label == NLI[0] for prediction in predictions])
    return lambda chosen: 100 * float(right[chosen].sum() / max(1, gold[chosen].sum()))


@pytest.mark.parametrize(
    ("task", "labels", "lines", "biases", "told"),
    [
        (Classification(length=16), ("no", "yes"), ["text\tlabel", "a\tno", "b\tyes"], [0, 99], "'yes' is"),
        (MultiLabel(length=16), ("no", "yes"), ["text\tlabel", "a\tno", "b\tyes,no"], [-99, -99], "no label is"),
        (MultiLabel(length=16), ("no", "yes"), ["text\tlabel", "a\tno", "b\tyes,no"], [99, 99], "'no, yes' is"),
        (TokenClassification(length=16), ("B-X", "O"), ["a B-X", "", "b O", ""], [0, 99], "no label is"),
    ],
)
def test_the_same_prediction_for_all_examples_is_noted(tokenizer, tmp_path, task, labels, lines, biases, told):
    path = tmp_path / ("data.conll" if isinstance(task, TokenClassification) else "data.tsv")
    path.write_text("\n".join(lines))
    constant = model(tokenizer, task, labels)
    constant.heads[task.part]["out.bias"] = torch.tensor(biases, dtype=torch.float32)
    note = f"{told} predicted for all 2 examples: the model tells none of them apart"
    assert evaluate_task(constant, [path], columns={})["warnings"] == [note]
    examples = task.read([path], columns={})
    assert score_examples(Predictor(constant), examples)["warnings"] == [note]
    assert note not in score_examples(Predictor(constant), examples[:1]).get("warnings", ())


def test_undefined_correlations_are_noted(tokenizer, tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("text\tscore\na\t1\nb\t1.0\n")
    note = "the gold number of all 2 examples is the same: correlations are undefined, and reported as 0"
    assert note in evaluate_task(model(tokenizer, Regression(length=16)), [path], columns={})["warnings"]


@pytest.mark.parametrize(
    ("task", "labels", "lines"),
    [
        (MultiLabel(length=16), ("no", "yes"), ["text\tlabel", "a\t", "b\t"]),
        (TokenClassification(length=16), ("B-X", "O"), ["a O", "", "b O", ""]),
    ],
)
def test_nothing_to_find_is_noted(tokenizer, tmp_path, task, labels, lines):
    path = tmp_path / ("data.conll" if isinstance(task, TokenClassification) else "data.tsv")
    path.write_text("\n".join(lines))
    note = "none of the 2 examples has a label: recall and F1 are undefined, and reported as 0"
    assert note in evaluate_task(model(tokenizer, task, labels), [path], columns={})["warnings"]


def test_a_file_is_scored_once(tokenizer, tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("text\tscore\na\t1\nb\t2\n")
    with pytest.raises(UserError, match=r"data\.tsv: the file is given twice"):
        evaluate_task(model(tokenizer, Regression(length=16)), [path, str(path)], columns={})


def test_a_tagger_whose_labels_have_no_names_is_refused(tokenizer, tmp_path):
    path = tmp_path / "data.conll"
    path.write_text("a B-X\n\nb O\n")
    unnamed = model(tokenizer, TokenClassification(length=16), ("LABEL_0", "LABEL_1"))
    with pytest.raises(UserError, match=r"a label of this model: 'LABEL_0' is not a tag .*; name its labels under id2"):
        evaluate_task(unnamed, [path], columns={})


def test_the_score_of_one_prediction_for_all_examples(tmp_path):
    """In 30 draws: the highest that scikit-learn finds over all predictions of that kind."""
    rng = np.random.default_rng(0)
    for number in range(30):
        names = [f"label{index}" for index in range(rng.integers(2, 5))]
        one, several = tmp_path / f"one{number}.tsv", tmp_path / f"several{number}.tsv"
        golds, lines = [], []
        for index in range(40):
            has = rng.random(len(names)) < np.linspace(0.8, 0.1, len(names))
            golds.append(has | (np.arange(len(names)) == index if index < len(names) else False))
            lines.append(",".join(np.array(names)[golds[-1]]))
        chosen = [*range(len(names)), *rng.choice(len(names), 36)]
        one.write_text("\n".join(["text\tlabel", *(f"t{i}\t{names[c]}" for i, c in enumerate(chosen))]))
        several.write_text("\n".join(["text\tlabel", *(f"t{i}\t{line}" for i, line in enumerate(lines))]))

        task, labels = Classification(), tuple(names)
        rows = task.read([one], columns={})
        found = constant_scores(task, rows, rows, labels)
        constants = [[label] * len(chosen) for label in range(len(names))]
        assert found["accuracy"] == pytest.approx(100 * max(accuracy_score(chosen, same) for same in constants))
        macro = max(f1_score(chosen, same, average="macro", zero_division=0) for same in constants)
        assert found["f1_macro"] == pytest.approx(100 * macro)
        assert found["matthews_correlation"] == 0

        task, gold = MultiLabel(), np.array(golds)
        rows = task.read([several], columns={})
        order = np.argsort(-gold.sum(0), kind="stable")
        sets = [np.isin(np.arange(len(names)), order[: size + 1]) for size in range(len(names))]
        best = max(f1_score(gold, np.tile(one_set, (len(gold), 1)), average="micro") for one_set in sets)
        assert constant_scores(task, rows, rows, labels)["f1_micro"] == pytest.approx(100 * best)
    assert constant_scores(Regression(), [], [], ()) == {}


def test_metrics_of_other_packages_are_added(tokenizer, pairs, tmp_path, monkeypatch):
    monkeypatch.setitem(METRICS._components, "share_of_first", share_of_first)
    first, second = (model(tokenizer, Classification(length=16), NLI, seed=seed) for seed in (0, 1))
    plain = evaluate_task(first, [pairs], against=second)
    result = evaluate_task(first, [pairs], against=second, metrics=["share_of_first"], trained_on=[pairs])
    value = result["metrics"].pop("share_of_first")
    assert result["metrics"] == plain["metrics"]
    low, high = result["intervals"]["share_of_first"]
    assert low <= value <= high
    assert value == pytest.approx(result["by_label"][NLI[0]]["recall"])
    other = result["against"]["metrics"]["share_of_first"]
    assert result["against"]["differences"]["share_of_first"]["difference"] == pytest.approx(value - other)
    save_model(tmp_path / "model", first, "")
    check_metric("share_of_first", tmp_path / "model", pairs)
    for metric, message in (
        (lambda *of: lambda chosen: float(chosen[0]), "depends on the order"),
        (lambda *of: len, "is of the type int"),
        (lambda examples, *of: (examples.pop(), lambda chosen: 1.0)[1], "changes examples"),
    ):
        monkeypatch.setitem(METRICS._components, "share_of_first", metric)
        with pytest.raises(AssertionError, match=message):
            check_metric("share_of_first", tmp_path / "model", pairs)
    monkeypatch.setitem(METRICS._components, "accuracy", share_of_first)
    with pytest.raises(UserError, match="the task has a metric of this name"):
        evaluate_task(first, [pairs], metrics=["accuracy"])
    with pytest.raises(UserError, match=r"share.*: unknown"):
        evaluate_task(first, ["missing.tsv"], metrics=["share"])


def test_f1_of_two_labels_is_that_of_the_first_models_second_label(tokenizer, tmp_path, documents):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text[:40]}\t{n % 3 == 0}\n" for n, text in enumerate(documents[:60])))
    first = model(tokenizer, Classification(length=16), ("False", "True"))
    second = model(tokenizer, Classification(length=16), ("True", "False"), seed=2)
    examples = Classification().read([path], columns={})
    predictions = Predictor(second).run(examples)
    expected = measure_all(Classification().measure(examples, predictions, first.labels), len(examples))
    result = evaluate_task(first, [path], columns={}, against=second)
    assert result["against"]["metrics"] == expected
    assert expected["f1"] != evaluate_task(second, [path], columns={})["metrics"]["f1"]


def test_taggers_of_other_schemes_are_compared_by_their_entities(tokenizer, tmp_path):
    (tmp_path / "a.conll").write_text("The O\ndog B-PER\nsees O\nParis B-LOC\n\n" * 3)
    schemes = (
        ("O", "B-LOC", "B-PER", "I-LOC", "I-PER"),
        ("O", *(f"{role}-{kind}" for role in "BIES" for kind in ("LOC", "PER"))),
    )
    first, second = (model(tokenizer, TokenClassification(length=16), labels) for labels in schemes)
    result = evaluate_task(first, [tmp_path / "a.conll"], columns={}, against=second)
    assert result["against"]["metrics"] == evaluate_task(second, [tmp_path / "a.conll"], columns={})["metrics"]
    other = model(tokenizer, TokenClassification(length=16), ("O", "B-PER", "I-PER"))
    with pytest.raises(UserError, match="the first model has the labels LOC, PER; the second has the labels PER"):
        evaluate_task(first, [tmp_path / "a.conll"], columns={}, against=other)


def test_models_that_cannot_be_compared_are_refused_before_anything_is_read(tokenizer):
    classes, other = (model(tokenizer, Classification(length=16), labels) for labels in (NLI, ("no", "yes")))
    number = model(tokenizer, Regression(length=16))
    untrained = Model(classes.encoder, tokenizer)
    for first, second, message in (
        (
            classes,
            other,
            "the first model has the labels contradiction, .*; the second has the labels no, yes",
        ),
        (classes, number, "the first model is for classification; the second is for regression; compare models"),
        (number, classes, "the first model is for regression; the second is for classification; compare models"),
        (classes, untrained, "against: the second was not fine-tuned for a task"),
    ):
        with pytest.raises(UserError, match=message):
            evaluate_task(first, ["missing.tsv"], columns={}, against=second)


@pytest.mark.parametrize("kind", [Classification, Regression])
def test_the_page_has_the_worst_first(tokenizer, pairs, tmp_path, kind):
    labels = NLI if kind is Classification else ()
    made = model(tokenizer, kind(length=16), labels)
    page = tmp_path / "errors.html"
    result = evaluate_task(made, [pairs], columns={}, errors=page)
    text = page.read_text(encoding="utf8")
    examples = made.task.read([pairs], columns={})
    mistakes = worst_first(made.task.mistakes(examples, Predictor(made).run(examples), labels))
    offsets = [text.index(f"<bdi>{mistake.caption}</bdi>") for mistake in mistakes]
    assert offsets == sorted(offsets)
    assert f"{len(examples)} examples" in text
    metric, value = next(iter(result["metrics"].items()))
    assert f"{metric} {value:.2f}" in text
    if kind is Classification:
        assert len(mistakes) == round(len(examples) * (1 - result["metrics"]["accuracy"] / 100))
    assert result == evaluate_task(made, [pairs], columns={}), "writing the page does not change the scores"
    scored = score_examples(Predictor(made), examples)
    assert scored == {name: it for name, it in result.items() if name not in ("notes", "calibration")}


def test_several_files_are_one_set(tokenizer, pairs, tmp_path):
    made, again = model(tokenizer, Regression(length=16)), tmp_path / f"again{pairs.suffix}"
    again.write_bytes(pairs.read_bytes())
    one, two = (evaluate_task(made, paths, columns={}) for paths in ([pairs], [pairs, again]))
    assert two["examples"] == 2 * one["examples"] == 80
    # in percent; scores in batches of other shapes are rounded differently, and those of random weights hardly differ
    assert two["metrics"] == pytest.approx(one["metrics"], abs=1e-3)


def test_plain_text_is_framed_for_gpt_as_in_pretraining(tokenizer, text_file, tmp_path):
    """It ends with [SEP]; the model's tokenizer ends the texts of a task with [MASK], which was not pretrained."""
    settings = GptSettings(layers=1, width=16, heads=2, positions=32, dropout=0.0, init_std=0.9)
    torch.manual_seed(0)
    save_model(tmp_path / "gpt", Model(settings.build(tokenizer.size), tokenizer, {"causal_lm": {}}), "")
    gpt = load_model(tmp_path / "gpt")
    corpus = write_corpus(text_file, tokenizer, tmp_path / "corpus", heldout=None)
    learner = Learner(gpt.encoder, {"causal_lm": CausalLM()})
    layout, machine, expected = DocumentSentencesSettings(length=32), choose_machine("cpu", "float32"), []
    for words, last in ((tokenizer, tokenizer.sep), (gpt.tokenizer, tokenizer.mask)):
        batches = Feed(layout, NoMaskingSettings(), 0, words, learner.prepare).heldout(corpus.train, 10**6)
        for batch in batches:
            assert set(batch.tokens.ids[batch.tokens.offsets[1:].long() - 1].tolist()) == {last}
        expected.append(evaluate(learner, batches, machine)["causal_lm_loss"])
    found = evaluate_encoder(gpt, [text_file], machine=machine)["metrics"]["causal_lm_loss"]
    assert found == pytest.approx(expected[0])
    assert found != pytest.approx(expected[1], rel=1e-3)


def test_text_without_a_known_token_has_no_loss(tokenizer, tmp_path):
    """Unknown tokens are not masked, and the loss would be 0, as that of a perfect model."""
    encoder = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32).build(tokenizer.size)
    model = Model(encoder, tokenizer, {"masked_lm": MaskedLM(BuildContext(encoder)).published()})
    (tmp_path / "text.txt").write_text("ж ж", encoding="utf8")
    with pytest.raises(UserError, match="too little text to score"):
        evaluate_encoder(model, [tmp_path / "text.txt"], machine=choose_machine("cpu", "float32"))
