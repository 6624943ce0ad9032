"""Initial token embeddings: counts, mutual information and factors as independent implementations compute them."""

import time
from collections import Counter

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.extmath import randomized_svd

from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.corpus import DocumentBlock
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.training.settings import BudgetSettings
from unmask.workflows.pretraining import pretrain, token_vectors
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.workflows.pretraining.start import begin_from_text, build_learner
from unmask.workflows.pretraining.token_vectors import begin_embeddings, factor, mutual_information, neighbor_counts

VOCABULARY = 12
IDS = st.integers(0, VOCABULARY - 1)
DOCUMENTS = st.lists(st.lists(IDS, min_size=1, max_size=9), min_size=1, max_size=5)


def block(documents):
    """Documents of a single sentence each, as a corpus reads them."""
    bounds = np.cumsum([0, *map(len, documents)])
    return DocumentBlock(0, np.concatenate([np.array(each, np.int32) for each in documents]), bounds, bounds)


def frequencies(documents):
    return np.bincount(np.concatenate(documents), minlength=VOCABULARY)


@given(DOCUMENTS, DOCUMENTS, st.integers(1, VOCABULARY))
@settings(max_examples=60)
def test_neighbors_are_counted_inside_documents_on_either_side_by_their_distance(first, second, contexts):
    counted = frequencies([*first, *second])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_vectors, "CONTEXTS", contexts)
        counts = neighbor_counts([block(first), block(second)], counted)
    most_frequent = sorted(range(VOCABULARY), key=lambda token: (-counted[token], token))[:contexts]
    expected = Counter()
    for document in [*first, *second]:
        for place, token in enumerate(document):
            for other, neighbor in enumerate(document):
                if 1 <= abs(other - place) <= token_vectors.WINDOW and neighbor in most_frequent:
                    side = 0 if other > place else 1
                    expected[token, side, most_frequent.index(neighbor)] += 1 / abs(other - place)
    assert counts.shape == (VOCABULARY, 2, contexts)
    assert {cell: pytest.approx(expected[cell]) for cell in np.ndindex(*counts.shape)} == {
        cell: float(counts[cell]) for cell in np.ndindex(*counts.shape)
    }


@given(st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=2, max_size=6))
def test_mutual_information_is_that_of_the_definition(rows):
    counts = np.array(rows, np.float64)
    expected = np.zeros_like(counts)
    smoothed = counts.sum(0) ** 0.75
    for token, context in zip(*counts.nonzero(), strict=True):
        together = counts[token, context] / counts.sum()
        apart = counts[token].sum() / counts.sum() * smoothed[context] / smoothed.sum()
        expected[token, context] = max(0.0, np.log(together / apart))
    np.testing.assert_allclose(mutual_information(torch.tensor(rows).float()).numpy(), expected, atol=1e-5)


def test_vectors_are_singular_vectors_times_the_root_of_the_values():
    rng = np.random.default_rng(0)
    matrix = (rng.normal(size=(60, 8)) * 2.0 ** -np.arange(8)) @ rng.normal(size=(8, 40))
    left, values, _ = randomized_svd(matrix, 5, random_state=0)
    before = torch.get_rng_state()
    vectors = factor(torch.from_numpy(matrix), 5).numpy()
    np.testing.assert_allclose(vectors @ vectors.T, left * values @ left.T, atol=1e-5)
    assert torch.equal(torch.get_rng_state(), before), "the order of training samples does not depend on it"


def test_tokens_with_the_same_neighbors_are_similar_and_unseen_ones_keep_their_rows(corpus):
    tokenizer = corpus.tokenizer
    words = torch.nn.Embedding(tokenizer.size, 32)
    torch.nn.init.normal_(words.weight, std=0.02)
    initial = words.weight.detach().clone()
    counts = corpus.train.token_counts()
    known = begin_embeddings(words, corpus.train, counts)
    assert known == (counts > 0).sum()
    unseen = torch.from_numpy(counts == 0)
    assert unseen[[tokenizer.pad, tokenizer.mask, tokenizer.cls]].all()
    assert torch.equal(words.weight[unseen], initial[unseen])
    torch.testing.assert_close(
        words.weight[~unseen].pow(2).mean(1).sqrt(), initial.std().expand(known), rtol=1e-3, atol=0
    )

    def similarity(first, second):
        rows = words.weight.detach()[[tokenizer.find(word) for word in (first, second)]]
        return float(torch.cosine_similarity(*rows, dim=0))

    assert similarity("dog", "cat") > similarity("dog", "the") + 0.3  # nouns are drawn from the same places


@pytest.mark.parametrize(("text", "known"), [("dog dog dog dog.", 2), ("dog", 0)])
def test_texts_with_few_or_no_neighbors_keep_random_values(text, known, tmp_path, tokenizer):
    path = tmp_path / "text.txt"
    path.write_text(f"{text}\n\n" * 12)
    corpus = write_corpus([path], tokenizer, tmp_path / "corpus")
    words = torch.nn.Embedding(tokenizer.size, 32)
    initial = words.weight.detach().clone()
    assert begin_embeddings(words, corpus.train, corpus.train.token_counts()) == known
    changed = (words.weight != initial).any(1)
    assert changed.sum() == known
    assert words.weight.isfinite().all()


def recipe(*changes):
    small = ["encoder.layers=1", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=64", "layout.length=48"]
    return read_recipe("modernbert-tiny", parse_overrides([*small, "batch.tokens=512", "budget.steps=2", *changes]))


def test_a_run_begins_at_the_statistics_of_its_text(corpus, tmp_path, capsys):
    tokenizer = corpus.tokenizer
    learner, _ = build_learner(recipe(), tokenizer.size, None)
    assert begin_from_text(learner, corpus.train) == (
        f"token embeddings begin at the neighbors of {(corpus.train.token_counts() > 0).sum()} tokens in the text"
    )
    frequency = learner.parts["masked_lm"].token_bias.softmax(0)
    counts = torch.from_numpy(corpus.train.token_counts()).float()
    torch.testing.assert_close(frequency, (counts + 0.1) / (counts + 0.1).sum())

    pretrain_corpus(recipe(), corpus, tmp_path / "text")
    assert "token embeddings begin at the neighbors" in capsys.readouterr().err
    pretrain_corpus(recipe(), corpus, tmp_path / "again", init=tmp_path / "text")
    assert "token embeddings begin" not in capsys.readouterr().err, "a model has embeddings"
    pretrain_corpus(recipe("initial_embeddings=random"), corpus, tmp_path / "random")
    assert "token embeddings begin" not in capsys.readouterr().err


@pytest.mark.parametrize("minutes", [1.0, 0.001])
def test_a_budget_in_minutes_includes_the_embeddings(corpus, tmp_path, monkeypatch, minutes):
    given = []

    def trainer(*parts, settings, run, **options):
        given.append((60 * settings.budget.minutes, run.read_metrics("start")))
        raise LookupError("enough")

    def slow(learner, documents):
        time.sleep(0.2)
        return "done"

    monkeypatch.setattr(pretrain, "Trainer", trainer)
    monkeypatch.setattr(pretrain, "begin_from_text", slow)
    timed = msgspec.structs.replace(recipe(), budget=BudgetSettings(minutes=minutes))
    with pytest.raises(LookupError, match="enough"):
        pretrain_corpus(timed, corpus, tmp_path / "run")
    ((left, (line,)),) = given
    assert line["seconds"] > 0.19
    assert left == pytest.approx(max(60 * minutes - line["seconds"], 0.06))


def test_a_body_without_token_embeddings_is_refused():
    with pytest.raises(UserError, match=r"this encoder has no token embeddings.*random"):
        read_recipe("elmo-mini", parse_overrides(["initial_embeddings=cooccurrence"]))
