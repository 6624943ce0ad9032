"""Ranking of passages: losses beside sums over pairs, groups of passages, metrics beside trec_eval, what is refused."""

import math
from itertools import product

import numpy as np
import pytest
import torch

import unmask
from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row, read_rows
from unmask.metrics.intervals import intervals, measure_all
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.tasks.embedding import Embedding
from unmask.tasks.mistakes import worst_first
from unmask.tasks.ranking import Ranking, ranking_loss
from unmask.tasks.regression import Score, logits_of

from .conftest import hold_out


def rows(*graded):
    """Return rows of (query, passage, grade)."""
    names = ("text", "text_b", "label")
    return [Row(dict(zip(names, map(str, row), strict=True)), "a.tsv", line) for line, row in enumerate(graded, 2)]


def scored(examples, scores):
    return [Score(row.values["text"], score, row.values["text_b"]) for row, score in zip(examples, scores, strict=True)]


def by_loops(loss, scores, grades, query):
    """Return a loss as a sum over the pairs of each query, in Python."""
    total = 0.0
    for number in set(query):
        members = [index for index, of in enumerate(query) if of == number]
        if loss in ("softmax", "listwise"):
            gold = [grades[index] if loss == "softmax" else math.exp(grades[index]) for index in members]
            sizes = [math.exp(scores[index]) for index in members]
            for weight, size in zip(gold, sizes, strict=True):
                total -= weight / sum(gold) * math.log(size / sum(sizes))
            continue
        terms = []
        for first, second in product(members, repeat=2):
            difference, gap = scores[first] - scores[second], grades[first] - grades[second]
            if loss == "pairwise" and gap > 0:
                terms.append(math.log(1 + math.exp(-difference)))
            if loss == "margin" and first != second:
                terms.append((difference - gap) ** 2)
        total += sum(terms) / max(1, len(terms))
    return total


@pytest.mark.parametrize("loss", ["softmax", "pairwise", "listwise", "margin"])
def test_losses_are_means_over_the_pairs_of_each_query(loss):
    rng = np.random.default_rng(0)
    for _ in range(60):
        query = rng.integers(0, 4, rng.integers(1, 14)).tolist()
        scores, grades = rng.normal(size=len(query)), rng.integers(loss == "softmax", 3, len(query)).astype(float)
        arrays = torch.tensor(scores, dtype=torch.float32), torch.tensor(grades, dtype=torch.float32)
        found = float(ranking_loss(loss, *arrays, torch.tensor(query)))
        assert found == pytest.approx(by_loops(loss, scores, grades, query), rel=1e-4, abs=1e-5)


GRADED = rows(
    ("where is the dog", "the dog is in the house", 2),
    ("where is the dog", "a cat", 0),
    ("who sees a poem", "the teacher sees a poem", 1),
    ("where is the dog", "the river", 1),
    ("who sees a poem", "the market", 0),
)


@pytest.mark.parametrize("loss", ["binary", "softmax", "pairwise", "listwise", "margin"])
def test_the_loss_of_a_batch(tokenizer, recipe, loss):
    task = Ranking(length=32, loss=loss).settle(GRADED, ())
    assert (task.least, task.most, task.activation) == (0, 2, "sigmoid" if loss == "binary" else "identity")
    encoder = recipe.encoder.build(tokenizer.size)
    torch.manual_seed(0)
    learner = Learner(encoder, {"ranking": task.build(encoder.head, ())}).eval()
    torch.nn.init.normal_(learner.parts["ranking"].out.weight)
    samples = [learner.prepare(sample) for sample in task.frame(tokenizer, GRADED, (), gold=True).samples]
    batch = collate(samples)
    alone = [collate([sample]) for sample in task.frame(tokenizer, GRADED, (), gold=False).samples]
    head = learner.parts["ranking"]
    scores = [head.predict(encoder, encoder(one.tokens), one).item() for one in alone]
    grades = [2, 0, 1, 1, 0]
    if loss == "binary":
        probabilities = [1 / (1 + math.exp(-score)) for score in scores]
        expected = -sum(
            grade / 2 * math.log(chance) + (1 - grade / 2) * math.log(1 - chance)
            for grade, chance in zip(grades, probabilities, strict=True)
        )
        assert batch.counts == {"ranking": 5}
    else:
        expected = by_loops(loss, scores, grades, [0, 0, 1, 0, 1])
        assert batch.counts == {"ranking": 2}
    assert learner(batch)["ranking"].sum.item() == pytest.approx(expected, rel=1e-4)


def test_the_default_loss_compares_passages_unless_many_queries_have_nothing_to_compare():
    single = [(f"the cat {number}", "rain", number % 2) for number in range(3)]
    task, few = Ranking(), rows(*[(f"who {of}", f"rain {of}", grade) for of in range(14) for grade in (0, 1)])
    assert task.settle([*few, *rows(*single)], ()).loss == "softmax"  # 28 of 31 are compared
    mixed = [*few[:26], *rows(*single)]
    assert task.settle(mixed, ()).loss == "binary"
    assert task.settle(mixed, ()).activation == "sigmoid"
    assert Ranking(loss="softmax").settle(mixed, ()).loss == "softmax"


def test_a_step_has_as_many_passages_whatever_the_loss():
    graded = rows(*[(f"who {of}", f"rain {number}", int(number == 2)) for of in range(5) for number in range(4)])
    assert [Ranking(loss=loss).examples_per_sample(graded) for loss in ("binary", "margin", None)] == [1, 4, 4]
    assert Ranking(passages=3).examples_per_sample(graded) == 3


def test_grades_below_the_least_are_refused():
    for loss in ("binary", "softmax"):
        with pytest.raises(UserError, match="grade 0 is not from"):
            Ranking(loss=loss, least=1).settle(GRADED, ()).check_gold(GRADED)


@pytest.mark.parametrize("loss", ["binary", "softmax", "pairwise", "listwise", "margin"])
def test_dev_examples_may_have_grades_beyond_those_of_training(loss, tokenizer, recipe):
    """Their loss is a number, and theirs that are below the least one are as irrelevant as it."""
    graded = rows(("a dog", "rain", 1), ("a dog", "sea", 3))
    other = rows(
        ("a dog", "rain", 0), ("a dog", "sea", 3), ("sea", "a", 5), ("sea", "b", 1), ("cat", "a", 0), ("cat", "b", 1)
    )
    task = Ranking(length=16, loss=loss).settle(graded, ())
    body = recipe.encoder.build(tokenizer.size).eval()
    head = task.build(body.head, ()).eval()
    batch = collate([head.prepare(of, "ranking") for of in task.frame(tokenizer, other, (), gold=True).samples])
    assert 0 <= head.score(body, body(batch.tokens), batch).sum.item() < math.inf
    clipped = rows(*((row.values["text"], row.values["text_b"], max(1, float(row.values["label"]))) for row in other))
    first, second = (measure_all(task.measure(of, scored(of, np.arange(6) / 8), ()), 6) for of in (other, clipped))
    assert first == second


def test_many_passages_are_dealt_out_with_the_best_one(tokenizer):
    graded = [("the dog", f"the cat {number}", int(number == 3)) for number in range(10)]
    examples = rows(*graded, ("a river", "rain", 1), ("a poem", "rain", 1), ("a poem", "sea", 1))
    task = Ranking(length=32, loss="pairwise", passages=4).settle(examples, ())
    framed = task.frame(tokenizer, examples, (), gold=True)
    assert [sample.labels["ranking"].tolist() for sample in framed.samples] == [[1, 0, 0, 0]] * 3
    assert sum(len(sample.parts) - 1 for sample in framed.samples) == 9
    unused = "2 of 3 queries have a single passage, or passages with equal grades, and are not trained on"
    assert unused in framed.notes
    margins = Ranking(length=32, loss="margin").settle(examples, ()).frame(tokenizer, examples, (), gold=True)
    assert [len(sample.parts) for sample in margins.samples] == [6, 5, 2]


def test_metrics_are_those_of_trec_eval():
    trec = pytest.importorskip("pytrec_eval", reason="pytrec-eval-terrier is not installed")
    rng = np.random.default_rng(0)
    graded = [(f"q{rng.integers(60)}", f"p{number}", rng.integers(0, 3)) for number in range(900)]
    examples, scores = rows(*graded), rng.normal(size=900)
    judgments, run = {}, {}
    for (query, passage, grade), score in zip(graded, scores.tolist(), strict=True):
        judgments.setdefault(query, {})[passage] = int(grade)
        run.setdefault(query, {})[passage] = score
    theirs = trec.RelevanceEvaluator(judgments, {"ndcg_cut.10", "map", "recall.10"}).evaluate(run)
    theirs = [theirs[query] for query, of in judgments.items() if any(of.values())]
    task = Ranking(activation="identity").settle(examples, ())
    measure = task.measure(examples, scored(examples, scores.tolist()), ())
    ours = measure_all(measure, 900)
    for name, other in {"ndcg@10": "ndcg_cut_10", "map": "map", "recall@10": "recall_10"}.items():
        assert ours[name] == pytest.approx(100 * np.mean([of[other] for of in theirs]))
    low, high = intervals(measure, 900, groups=task.groups(examples))["map"]
    assert low < ours["map"] < high
    chosen = np.flatnonzero([query == "q3" for query, *_ in graded])
    assert measure(np.concatenate([chosen, chosen])) == pytest.approx(measure(chosen))


def test_grades_that_are_scores_of_a_teacher_have_gains_above_the_least():
    examples = rows(("a", "x", -1.5), ("a", "y", 0.25), ("b", "x", 2.5), ("b", "z", -1.5))
    task = Ranking(loss="margin").settle(examples, ())
    measure = measure_all(task.measure(examples, scored(examples, [3.0, 1.0, 2.0, 1.0]), ()), 4)
    assert measure == {"ndcg@10": pytest.approx(100 * (1 / math.log2(3) + 1) / 2)}


def test_equal_scores_are_no_advantage():
    """A model that scores all passages the same is as bad as can be, though files have relevant passages first."""
    examples = rows(("a", "x", 1), ("a", "y", 0), ("a", "z", 0))
    measure = measure_all(Ranking().settle(examples, ()).measure(examples, scored(examples, [0.5] * 3), ()), 3)
    assert measure["mrr@10"] == pytest.approx(100 / 3)


def test_probabilities_near_1_are_ranked_by_their_logits(tokenizer):
    """In float32 all logits from 17 on have the probability 1."""
    examples = rows(("q", "a", 0), ("q", "b", 1), ("q", "c", 2), ("q", "d", 0))
    task = Ranking(least=0, most=2, activation="sigmoid")
    logits = [np.array([[number]], np.float32) for number in (17.5, 21.0, 21.001, -100.0)]
    predictions = task.frame(tokenizer, examples, (), gold=False).read(logits)
    np.testing.assert_allclose(task.rankable(predictions), np.concatenate(logits)[:, 0], rtol=1e-6)
    assert task.measure(examples, predictions, ())(np.arange(4))["ndcg@10"] == pytest.approx(100)
    np.testing.assert_allclose(logits_of(np.array([1.0, 0.5], np.float32)), [np.log(2.0**24 - 1), 0])


@pytest.mark.parametrize("activation", ["sigmoid", "identity"])
def test_a_student_learns_the_distribution_over_the_passages_of_a_query(activation, tokenizer):
    examples = rows(("q", "a", 1), ("r", "b", 5), ("q", "c", 2))
    task = Ranking(length=32, loss="softmax", least=1, most=5, activation=activation)
    logits = [np.array([[number]], np.float32) for number in (math.log(3), 2.0, 0.0)]
    labelled = task.labelled(examples, task.frame(tokenizer, examples, (), gold=False).read(logits))
    assert [float(row.values["label"]) for row in labelled] == pytest.approx([4, 5, 2])
    task.settle(labelled, ()).check_gold(labelled)


@pytest.mark.parametrize("activation", ["sigmoid", "identity"])
def test_grades_that_a_model_gives_are_from_the_least_to_the_most(activation, tokenizer):
    """Where the probabilities were grades, those below 1 were refused, and others were of low grades."""
    examples = rows(("q", "a", 1), ("q", "b", 5), ("q", "c", 2))
    task = Ranking(length=32, loss="binary", least=1, most=5, activation=activation)
    logits = [np.array([[number]], np.float32) for number in (-100.0, 0.0, 100.0)]
    labelled = task.labelled(examples, task.frame(tokenizer, examples, (), gold=False).read(logits))
    assert [float(row.values["label"]) for row in labelled] == pytest.approx([1, 3, 5])
    task.settle(labelled, ()).check_gold(labelled)
    samples = task.settle(labelled, ()).frame(tokenizer, labelled, (), gold=True).samples
    assert [float(sample.labels["ranking"][0]) for sample in samples] == pytest.approx([0, 0.5, 1], abs=1e-6)


def test_mistakes_are_relevant_passages_with_less_relevant_ones_above():
    examples = rows(("a", "x", 2), ("a", "y", 1), ("a", "z", 0), ("b", "x", 1), ("b", "y", 0))
    mistakes = worst_first(Ranking().mistakes(examples, scored(examples, [0.1, 0.2, 0.3, 0.9, 0.1]), ()))
    assert [(one.caption, one.score, one.gold) for one in mistakes] == [("a.tsv:2", 2, "2"), ("a.tsv:3", 1, "1")]
    assert [passage.name for passage in mistakes[0].passages] == ["query", "passage"]


def test_a_tenth_of_the_queries_is_held_out():
    examples = rows(*((f"q{number % 40}", f"p{number}", number % 3) for number in range(200)))
    train, held = hold_out(Ranking(), examples, 0)
    assert len(held) == 20
    assert not {row.values["text"] for row in train} & {row.values["text"] for row in held}


def test_columns_have_the_usual_names(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"query": "a", "passage": "b", "relevance": 2}\n{"query": "a", "passage": "c", "relevance": 0}\n')
    assert [row.values for row in Ranking().read([path], columns={})] == [
        {"text": "a", "text_b": "b", "label": "2"},
        {"text": "a", "text_b": "c", "label": "0"},
    ]
    assert len(read_rows([path], columns={"label": "relevance"})) == 2


def test_what_cannot_be_ranked_is_refused():
    for examples, message in (
        (rows(("a", "x", 1), ("b", "y", 0)), "no query has two passages with different grades"),
        (rows(("a", "x", 1), ("a", "y", 1)), "all 2 examples have the same number"),
        (rows(("a", "x", 1), ("a", "y", "no")), r"a\.tsv:3: the label 'no' is not a number"),
        ([Row({"text": "a", "label": "1"}, "a.tsv", 2)], r"a\.tsv:2: one text, but the model was trained on pairs"),
    ):
        with pytest.raises(UserError, match=message):
            Ranking().label_names(examples)
    with pytest.raises(UserError, match=r"a\.tsv:2: the grade 2 is not from task\.least = 0 to task\.most = 1"):
        Ranking(most=1.0).settle(GRADED, ()).check_gold(GRADED)
    with pytest.raises(UserError, match=r"no query has a relevant passage; set task\.least lower"):
        Ranking(least=2.0, most=3.0).measure(GRADED, scored(GRADED, [0.0] * 5), ())
    for settings in ({"passages": 1}, {"least": 1.0, "most": 1.0}, {"windows": 2, "length": 64}, {"pairs": False}):
        with pytest.raises(ValueError, match=r"must be|are a pair"):
            Ranking(**settings)


PASSAGES = list(product(("window", "market"), ("near the sea", "in the old town")))


@pytest.mark.parametrize("loss", ["binary", "pairwise"])
def test_it_is_learned(fine_tuned, tmp_path, loss):
    """Passages near the sea are relevant, whatever the query."""
    lines = ["query\tpassage\tscore"]
    for query in ("the dog", "a cat", "the river", "one house", "the poem", "a garden"):
        lines += [f"{query}\tthe {word} {place}\t{int('sea' in place)}" for word, place in PASSAGES]
    path = tmp_path / "graded.tsv"
    path.write_text("\n".join(lines))
    settings = ("batch.sequences=6", "budget.steps=20", f"task.loss={loss}", "task.length=24")
    out = fine_tuned("ranking", path, tmp_path / "run", *settings)
    result = unmask.evaluate(out, path, device="cpu", precision="float32", quiet=True)
    assert (result["task"], result["examples"]) == ("ranking", 24)
    assert result["metrics"]["ndcg@10"] == 100, "at random it is 76"
    scores = [one.score for one in unmask.load(out).predict(["the dog"] * 2, ["the sea", "the town"])]
    assert all(0 < score < 1 for score in scores) == (loss == "binary")


@pytest.mark.parametrize("task", [Ranking, Embedding])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"least": 5.0}, r"task\.least = 5 is not below task\.most = 2; the examples have numbers from 0 to 2"),
        ({"most": -1.0}, r"task\.least = 0 is not below task\.most = -1; the examples"),
    ],
)
def test_an_extreme_beyond_the_others_is_named(task, given, message):
    """Not as if all examples had the same number."""
    with pytest.raises(UserError, match=message):
        task(**given).settle(GRADED, ())
