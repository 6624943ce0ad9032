"""Vectors trained on pairs: both losses beside formulas of their own, training, saved directories, what is refused."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from torch.nn.functional import cosine_similarity

import unmask
from unmask.cli.main import main
from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row, read_rows
from unmask.families.checkpoints.sentence_files import read_pooling
from unmask.families.checkpoints.sentence_modules import Pooling, write_pooling
from unmask.model.model import Model, save_model
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.tasks.embedding import Embedding
from unmask.tasks.mistakes import worst_first
from unmask.tasks.rows import texts_of
from unmask.tasks.text_pairs import POOL, Similarity
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
PAIRS = [("the dog sees", "the cat"), ("a poem", "the old town"), ("the river near the sea", "rain"), ("a", "dog")]
SCORES = ("0.5", "5", "3", "1")


def make(pairs, scores=None):
    rows = [dict(zip(("text", "text_b"), texts, strict=False)) for texts in pairs]
    rows = rows if scores is None else [{**row, "label": label} for row, label in zip(rows, scores, strict=True)]
    return [
        Row(values, "a.tsv", line, negatives=tuple(texts[2:])) if texts[2:] else Row(values, "a.tsv", line)
        for line, (values, texts) in enumerate(zip(rows, pairs, strict=True), 2)
    ]


def scored(rows, tokenizer, recipe, **settings):
    """Return the loss of rows in one batch, the batch, and the vectors of their texts, each text computed alone."""
    task = Embedding(length=32, **settings).settle(rows, ())
    encoder = recipe.encoder.build(tokenizer.size)
    learner = Learner(encoder, {"embedding": task.build(encoder.head, ())}).eval()
    samples = task.frame(tokenizer, rows, (), gold=True).samples
    batch = collate([learner.prepare(sample) for sample in samples])
    alone = [collate([sample]) for sample in task.frame(tokenizer, rows, (), gold=False).samples]
    states = [encoder(one.tokens).last for one in alone]
    vectors = torch.stack([it[0] if task.pooling == "cls" else it.mean(0) for it in states])  # (2 * pairs, width)
    return learner(batch)["embedding"], batch, vectors


def table(vectors):
    return cosine_similarity(vectors[::2, None], vectors[None, 1::2], dim=2)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_without_scores_second_texts_are_ranked(tokenizer, recipe, pooling, symmetric):
    part, batch, vectors = scored(make(PAIRS), tokenizer, recipe, pooling=pooling, symmetric=symmetric)
    assert (batch.counts, len(batch.keys)) == ({"embedding": 4}, 8)
    cosines = (table(vectors) / 0.05).detach().double().numpy()
    rows = [np.log(np.exp(cosines).sum(axis)) - np.diag(cosines) for axis in (1, 0)]
    expected = (rows[0].sum() + rows[1].sum()) / 2 if symmetric else rows[0].sum()
    assert float(part.sum.detach()) == pytest.approx(expected, rel=1e-3)
    assert int(part.metrics["accuracy"]) == (cosines.argmax(1) == np.arange(4)).sum()


def test_with_scores_the_loss_is_the_squared_error_of_the_cosine(tokenizer, recipe):
    part, _, vectors = scored(make(PAIRS, SCORES), tokenizer, recipe)
    targets = torch.tensor([0, 1, 2.5 / 4.5, 0.5 / 4.5])
    expected = (cosine_similarity(vectors[::2], vectors[1::2]) - targets).square().sum()
    torch.testing.assert_close(part.sum, expected, rtol=1e-4, atol=1e-5)
    part, _, _ = scored(make(PAIRS, SCORES), tokenizer, recipe, least=0.0, most=10.0)
    assert float(part.sum.detach()) != pytest.approx(float(expected.detach()), rel=1e-3)


@pytest.mark.parametrize("kind", ["ranking", "symmetric", "cosine"])
def test_the_losses_are_those_of_sentence_transformers(tokenizer, recipe, kind):
    losses = pytest.importorskip("sentence_transformers.losses", reason="sentence-transformers is not installed")
    rows = make(PAIRS, SCORES if kind == "cosine" else None)
    part, _, vectors = scored(rows, tokenizer, recipe, **({"symmetric": True} if kind == "symmetric" else {}))
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    chosen = losses.CosineSimilarityLoss if kind == "cosine" else losses.MultipleNegativesRankingLoss
    theirs = chosen(torch.nn.Identity(), **(both if kind == "symmetric" else {}))
    targets = torch.tensor([0, 1, 2.5 / 4.5, 0.5 / 4.5])
    expected = theirs.compute_loss_from_embeddings([vectors[::2], vectors[1::2]], targets)
    torch.testing.assert_close(part.sum / 4, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("least", [None, 0.0])
@pytest.mark.parametrize("scored", [False, True])
def test_prompts_of_queries_begin_pairs_without_scores_alone(tokenizer, least, scored):
    """A pair with a score has no query: the cosine of a text with itself is 1, and no order of the texts matters."""
    task = Embedding(prompt="the ", query_prompt="a poem ", document_prompt="rain ", least=least, most=1.0)
    rows = make(PAIRS, SCORES if scored else None)
    first, second = ("the ", "the ") if scored or least is not None else ("a poem ", "rain ")
    plain = make([(first + a, second + b) for a, b in PAIRS])
    for found, wanted in zip(
        task.frame(tokenizer, rows, (), gold=False).samples,
        Embedding().frame(tokenizer, plain, (), gold=False).samples,
        strict=True,
    ):
        np.testing.assert_array_equal(found.ids, wanted.ids)


@pytest.mark.parametrize(
    "shared", [("the dog sees", "rain"), ("the river", "the cat"), ("the cat", "rain"), ("the river", "the dog sees")]
)
def test_pairs_that_share_a_text_are_no_negatives(tokenizer, recipe, shared):
    """The loss is that of a matrix without the two cosines between the first pair and the last, which shares a text."""
    part, _, vectors = scored(make([*PAIRS[:2], shared]), tokenizer, recipe)
    logits = table(vectors) / 0.05
    logits[0, 2] = logits[2, 0] = -torch.inf
    torch.testing.assert_close(part.sum, -logits.log_softmax(1).diagonal().sum(), rtol=1e-3, atol=1e-4)


TRIPLETS = [(*pair, third) for pair, third in zip(PAIRS, ("sea", "the dog", "old town", "the river"), strict=True)]


@pytest.mark.parametrize("symmetric", [False, True])
def test_negatives_join_those_of_the_batch(tokenizer, recipe, symmetric):
    """`MultipleNegativesRankingLoss` on triplets, in numpy: all second and all third texts compete."""
    part, batch, vectors = scored(make(TRIPLETS), tokenizer, recipe, symmetric=symmetric)
    assert (batch.counts, len(batch.keys)) == ({"embedding": 4}, 12)
    unit = vectors.detach().double().numpy()
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit[::3] @ np.concatenate([unit[1::3], unit[2::3]]).T / 0.05  # (4, 8)
    expected = (np.log(np.exp(cosines).sum(1)) - np.diag(cosines)).sum()
    back = (np.log(np.exp(cosines[:, :4]).sum(0)) - np.diag(cosines)).sum()
    assert float(part.sum.detach()) == pytest.approx((expected + back) / 2 if symmetric else expected, rel=1e-3)
    assert int(part.metrics["accuracy"]) == (cosines.argmax(1) == np.arange(4)).sum()
    without = np.log(np.exp(cosines[:, :4]).sum(1)) - np.diag(cosines)
    assert expected != pytest.approx(without.sum(), rel=1e-2), "the negatives matter"


def test_a_negative_that_is_a_text_of_another_pair_is_none_of_its_negatives(tokenizer, recipe):
    rows = make([("the dog sees", "the cat", "a poem"), ("a poem", "the old town", "the cat")])
    part, _, vectors = scored(rows, tokenizer, recipe)
    cosines = cosine_similarity(vectors[::3, None], torch.cat([vectors[1::3], vectors[2::3]])[None], dim=2) / 0.05
    cosines[0, 3] = cosines[1, 2] = -torch.inf
    torch.testing.assert_close(part.sum, -cosines.log_softmax(1).diagonal().sum(), rtol=1e-3, atol=1e-4)


def test_a_negative_alone_gives_a_gradient(tokenizer, recipe):
    """Unlike a pair alone, which has no negatives."""
    part, batch, _ = scored(make(TRIPLETS[:1]), tokenizer, recipe)
    assert len(batch.keys) == 3 and float(part.sum.detach()) > 0


def test_the_gradient_is_that_of_the_formula_and_comes_from_the_batch_alone(tokenizer, recipe):
    """A pair that is alone in a batch has no negatives, and so no gradient."""
    rows = make(PAIRS)
    task = Embedding(length=32).settle(rows, ())
    encoder = recipe.encoder.build(tokenizer.size)
    learner = Learner(encoder, {"embedding": task.build(encoder.head, ())}).eval()
    weight = encoder.words.weight
    samples = [learner.prepare(sample) for sample in task.frame(tokenizer, rows, (), gold=True).samples]
    (found,) = torch.autograd.grad(learner(collate(samples))["embedding"].sum, weight)
    texts = [collate([sample]) for sample in task.frame(tokenizer, rows, (), gold=False).samples]
    vectors = torch.stack([encoder(one.tokens).last.mean(0) for one in texts])
    (expected,) = torch.autograd.grad(-(table(vectors) / 0.05).log_softmax(1).diagonal().sum(), weight)
    assert float(found.abs().max()) > 0
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    alone = [learner(collate([sample]))["embedding"].sum for sample in samples]
    assert [float(loss.detach()) for loss in alone] == pytest.approx([0] * 4, abs=1e-5)
    assert float(torch.autograd.grad(sum(alone), weight)[0].abs().max()) == pytest.approx(0, abs=1e-5)


def test_scores_are_those_of_scipy():
    rng = np.random.default_rng(0)
    gold, ours = rng.integers(0, 6, 50), rng.normal(size=50)
    rows = make([("a", "b")] * 50, [str(value) for value in gold])
    found = Embedding().measure(rows, [Similarity("a", "b", value) for value in ours], ())(np.arange(50))
    assert found["spearman"] == pytest.approx(100 * scipy.stats.spearmanr(gold, ours).statistic)
    assert found["pearson"] == pytest.approx(100 * scipy.stats.pearsonr(gold, ours).statistic)


def test_ranks_without_scores(tokenizer):
    rows = make([("a", "b"), ("b", "c"), ("c", "c")])
    unit = np.eye(3, dtype=np.float32)
    vectors = [unit[0], unit[0], unit[1], unit[2], unit[1], unit[1]]
    found = Embedding().frame(tokenizer, rows, (), gold=False).read([vector[None] for vector in vectors])
    assert [one.score for one in found] == [1, 0, 1]
    assert [one.rank for one in found] == [1, 2, 1]
    measured = Embedding().measure(rows, found, ())(np.arange(3))
    assert measured == {"accuracy": pytest.approx(200 / 3), "reciprocal_rank": pytest.approx(250 / 3)}
    (mistake,) = Embedding().mistakes(rows, found, ())
    assert (mistake.caption, mistake.score, mistake.gold) == ("a.tsv:3", 1, "")
    assert Embedding().frame(tokenizer, [], (), gold=False).read([]) == []


def test_negatives_are_ranked_too(tokenizer):
    rows, unit = make([("a", "b", "x"), ("b", "c", "y")]), np.eye(3, dtype=np.float32)
    vectors = [unit[0], unit[1], unit[0], unit[1], unit[1], unit[2]]
    found = Embedding().frame(tokenizer, rows, (), gold=False).read([vector[None] for vector in vectors])
    assert [(one.score, one.rank) for one in found] == [(0, 2), (1, 1)]


def test_a_perfect_model_finds_every_one_of_several_answers(tokenizer):
    rows = make([(f"question {number // 3}", f"answer {number}") for number in range(12)])
    questions = np.repeat(np.eye(4, dtype=np.float32), 3, 0)  # (pairs, 4)
    answers = questions * np.tile([1.0, 0.9, 0.8], 4).astype(np.float32)[:, None]
    vectors = [vector[None] for pair in zip(questions, answers, strict=True) for vector in pair]
    found = Embedding().frame(tokenizer, rows, (), gold=False).read(vectors)
    assert Embedding().measure(rows, found, ())(np.arange(12)) == {"accuracy": 100, "reciprocal_rank": 100}


def test_ranks_are_among_pools(tokenizer):
    rows, same = make([(f"a {number}", "b") for number in range(POOL + 2)]), np.ones((1, 1), np.float32)
    vectors = [same] * (2 * POOL + 3) + [-same]  # the last second text is the least similar
    found = Embedding().frame(tokenizer, rows, (), gold=False).read(vectors)
    assert {one.rank for one in found[:-1]} == {1}
    assert found[-1].rank == 2, "the pool of the last pair has two pairs"


def test_mistakes_are_ordered_by_the_difference_of_ranks():
    rows = make([("a", "b")] * 3, ["0", "5", "3"])
    found = worst_first(Embedding().mistakes(rows, [Similarity("a", "b", score) for score in (0.9, 0.8, 0.1)], ()))
    assert [(mistake.caption, mistake.score) for mistake in found] == [("a.tsv:2", 2), ("a.tsv:3", 1), ("a.tsv:4", 1)]


WORDS = ["dog", "cat", "teacher", "doctor", "poem", "bridge", "river", "garden"]


def write_pairs(path, *, scores):
    """Write pairs of which each has a word in common; with scores, also pairs without one."""
    lines = ["text\ttext_b" + ("\tscore" if scores else "")]
    for number in range(24):
        word = WORDS[number % 8]
        other = word if not scores or number % 2 else WORDS[(number + 3) % 8]
        score = f"\t{5 if other == word else 0}" if scores else ""
        lines.append(f"the {word} is near the sea\tunder a tree sees {other}{score}")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module", params=["ranking", "scores"])
def trained(request, fine_tuned, tmp_path_factory):
    here = tmp_path_factory.mktemp("embedding")
    data = write_pairs(here / "train.tsv", scores=request.param == "scores")
    sets = ["budget.steps=60", "task.length=24", "optimizer.learning_rate=2e-3"]
    return fine_tuned("embedding", data, here / "run", *sets), data, request.param


def test_a_model_learns_to_rank(trained):
    run, _, kind = trained
    result = json.loads((run / "dev.json").read_text())
    assert (result["task"], result["examples"]) == ("embedding", 24)
    name, least = {"ranking": ("accuracy", 90), "scores": ("spearman", 80)}[kind]
    assert result["metrics"][name] > least
    assert result["intervals"].keys() == result["metrics"].keys()


def test_vectors_of_a_saved_model_give_its_predictions(trained):
    run, _, _ = trained
    assert read_pooling(run / "model") == Pooling(kind="mean", normalize=True, length=24)
    model = unmask.load(run, device="cpu")
    assert (type(model.task), model.task.pooling) == (Embedding, "mean")
    first, second = ["the dog is near the sea", "a poem"], ["the cat", "under a tree " * 20]
    with pytest.warns(unmask.InputWarning, match="1 of 4 texts is longer than 24 tokens and was cut"):
        found = model.predict(first, second)
    with pytest.warns(unmask.InputWarning, match="1 of 2 texts is longer than 24 tokens and was cut"):
        vectors = model.embed(first), model.embed(second)
    np.testing.assert_allclose(np.linalg.norm(vectors[0], axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose([one.score for one in found], (vectors[0] * vectors[1]).sum(1), atol=1e-5)
    assert [one.cut for one in found] == [False, True]


def test_sentence_transformers_reads_the_directory(trained):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    texts = ["the dog is near the sea", "under a tree sees poem"]
    theirs = library.SentenceTransformer(str(trained[0] / "model"), device="cpu").encode(texts)
    np.testing.assert_allclose(unmask.load(trained[0], device="cpu").embed(texts), theirs, atol=1e-5)


def test_the_command_line(trained, tmp_path, capsys):
    run, data, _ = trained
    page = tmp_path / "errors.html"
    assert main(["evaluate", "--model", str(run), "--data", str(data), "--errors", str(page)]) == 0
    assert page.exists()
    capsys.readouterr()
    asked = ["predict", "--model", str(run), "the dog"]
    assert main([*asked, "--text-b", "the cat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() >= {"text", "text_b", "score"}
    assert main(asked) == 2
    assert "one text, but the model was trained on pairs of texts" in capsys.readouterr().err


def finetune(model, train, out, *settings, **options):
    sets = parse_overrides(["budget.steps=1", "task.length=24", *settings])
    unmask.finetune(
        "embedding", model, [train], out, settings=sets, quiet=True, device="cpu", precision="float32", **options
    )
    return out


@pytest.fixture
def base(recipe, tokenizer, tmp_path) -> Path:
    """A model without pooling files."""
    save_model(tmp_path / "base", Model(recipe.encoder.build(tokenizer.size), tokenizer), "")
    return tmp_path / "base"


def test_the_pooling_of_the_model_is_kept(base, tmp_path):
    data = write_pairs(tmp_path / "train.tsv", scores=False)
    write_pooling(base, Pooling(kind="cls", normalize=False, length=20), 32)
    own = unmask.finetune(
        "embedding", base, data, tmp_path / "own", settings={"budget.steps": 1}, quiet=True, device="cpu"
    )
    assert read_pooling(own) == Pooling(kind="cls", length=20)
    run = finetune(base, data, tmp_path / "run")
    assert read_pooling(run / "model") == Pooling(kind="cls", length=24)
    write_pooling(base, Pooling(dimensions=8, similarity="dot", normalize=False), 32)
    run = finetune(base, data, tmp_path / "cut", "task.matryoshka=[4]")
    assert read_pooling(run / "model") == Pooling(length=24, dimensions=8), "what is trained are cosines"
    (base / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": ["mean", "max"]}))
    with pytest.raises(UserError, match="the vectors of this model need pooling by mean and max,"):
        finetune(base, data, tmp_path / "other")
    run = finetune(base, data, tmp_path / "chosen", "task.pooling=mean")
    assert read_pooling(run / "model").kind == "mean"
    write_pooling(base, Pooling(query="the dog ", prompt="rain ", dimensions=8), 32)
    run = finetune(base, data, tmp_path / "prompts", "task.pooling=cls")
    named = Pooling(kind="cls", query="the dog ", prompt="rain ", dimensions=8, length=24)
    assert read_pooling(run / "model") == named, "a pooling is no reason to leave out prompts"


def test_seeds_are_chosen_without_scores_too(base, tmp_path):
    data = write_pairs(tmp_path / "train.tsv", scores=False)
    run = finetune(base, data, tmp_path / "run", dev=[data], seeds=2)
    assert "the best by accuracy on the dev data" in (run / "report.md").read_text()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['{"text": "a", "text_b": "b", "score": 1}', '{"text": "a", "text_b": "b"}'],
            r"a\.jsonl:2: rows with and without a label are mixed",
        ),
        (['{"text": "a", "text_b": "b", "score": "high"}'], r"a\.jsonl:1: the label 'high' is not a number"),
        (['{"text": "a", "score": 1}'], r"a\.jsonl:1: one text, but vectors are trained and evaluated on pairs"),
        (['{"text": "a"}'], r"a\.jsonl:1: one text, but vectors"),
        (['{"text": "a", "text_b": "b", "score": 1}'] * 2, r"all 2 examples have the same number"),
        (
            ['{"anchor": "a", "positive": "b", "negative": "c"}', '{"anchor": "a", "positive": "b"}'],
            r"a\.jsonl:2: pairs with and without a negative are mixed: .*a\.jsonl:1 is of the other kind",
        ),
        (
            ['{"anchor": "a", "positive": "b", "negative": " "}'],
            r"a\.jsonl:1: the text_c is empty; fix or remove the row",
        ),
        (
            ['{"text": "a", "text_b": "b", "text_c": "c", "score": 1}', '{"text": "a", "text_b": "b", "score": 1}'],
            r"a\.jsonl:2: pairs with and without a negative are mixed",
        ),
        (
            ['{"text": "a", "text_b": "b", "text_c": "c", "score": 1}'],
            r"a\.jsonl:1: negatives have no effect: the pairs have scores; rename or remove one",
        ),
        (
            ['{"text": "a", "text_b": "b", "text_c": "b"}'],
            r"a\.jsonl:1: the negative is the first or the second text; remove the row",
        ),
    ],
)
def test_unsuitable_files_are_refused(tmp_path, lines, message):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match=message):
        Embedding().label_names(Embedding().read([path], columns={}))


def test_columns_by_number_need_no_scores(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\nc\td\n")
    rows = Embedding().read([path], columns={"text": "0", "text_b": "1"})
    assert [dict(row.values) for row in rows] == [{"text": "a", "text_b": "b"}, {"text": "c", "text_b": "d"}]


def test_triplets_are_read_by_their_names_and_trained_on(base, tmp_path):
    path = tmp_path / "triplets.tsv"
    lines = [f"the {word}\t{word} near the sea\t{other} near the sea" for word, other in pairwise(WORDS)]
    path.write_text("\n".join(["anchor\tpositive\tnegative", *lines * 3]))
    rows = Embedding().read([path], columns={})
    assert (dict(rows[0].values), rows[0].negatives) == (
        {"text": "the dog", "text_b": "dog near the sea"},
        ("cat near the sea",),
    )
    (tmp_path / "plain.tsv").write_text("\n".join(lines))
    numbered = Embedding().read([tmp_path / "plain.tsv"], columns={"text": "0", "text_b": "1", "text_c": "2"})
    assert [texts_of(one) for one in numbered] == [texts_of(one) for one in rows[: len(lines)]]
    run = finetune(base, path, tmp_path / "run", dev=[write_pairs(tmp_path / "dev.tsv", scores=False)])
    found = unmask.evaluate(run, path, quiet=True)
    assert (found["examples"], list(found["metrics"])) == (3 * len(lines), ["accuracy", "reciprocal_rank"])


def test_a_third_column_is_for_vectors_alone(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\ttext_b\ttext_c\tlabel\na\tb\tc\t1\n")
    assert texts_of(read_rows([path], columns={})[0]) == ("a", "b")
    with pytest.raises(UserError, match=r"^columns=.*text_c.* has no effect: this task reads no negatives"):
        read_rows([path], columns={"text_c": "text_c"})


def test_settings_without_effect_are_refused(base, tmp_path, tokenizer):
    scored = make(PAIRS, SCORES)
    with pytest.raises(UserError, match=r"^task\.temperature and task\.symmetric have no effect: the pairs have sc"):
        Embedding(temperature=0.1).settle(scored, ())
    with pytest.raises(UserError, match=r"^task\.least and task\.most have no effect: the pairs have no scores"):
        Embedding(least=0.0).settle(make(PAIRS), ())
    with pytest.raises(UserError, match=r"a\.tsv: the pairs have no scores, but the training examples have"):
        Embedding().settle(scored, ()).frame(tokenizer, make(PAIRS), (), gold=True)
    data = write_pairs(tmp_path / "train.tsv", scores=False)
    with pytest.raises(UserError, match=r"^objective\.masked_lm does not work with embedding, whose examples"):
        finetune(base, data, tmp_path / "run", "objective.masked_lm.weight=1")
    for options in ({"frozen": True}, {"downstream": "rnn"}):
        with pytest.raises(UserError, match="vectors are those of the encoder itself"):
            finetune(base, data, tmp_path / "run", **options)


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"least": 2.0, "most": 1.0}, {"most": float("nan")}])
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        Embedding(**settings)
