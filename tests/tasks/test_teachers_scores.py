"""The scores that a teacher gives to the texts of a row: read from files, and learned from."""

import json
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.model.model import build_encoder
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.tasks.embedding import Embedding
from unmask.tasks.late_interaction import LateInteraction
from unmask.tasks.sparse import Sparse


def make(texts):
    return [Row({"text": a, "text_b": b}, "a.tsv", 2, negatives=tuple(of)) for a, b, *of in texts]


def losses_and_vectors(some, tokenizer, recipe):
    """Return the loss of each of some rows in one batch, and the vectors of their texts, each computed alone."""
    task = Embedding(length=32, temperature=0.05)
    encoder = recipe.encoder.build(tokenizer.size)
    learner = Learner(encoder, {"embedding": task.build(encoder.head, ())}).eval()
    samples = [task.frame(tokenizer, rows, (), gold=True).samples for rows in some]
    parts = [learner(collate([learner.prepare(sample) for sample in of]))["embedding"] for of in samples]
    alone = [collate([sample]) for sample in task.frame(tokenizer, some[0], (), gold=False).samples]
    return parts, torch.stack([encoder(one.tokens).last.mean(0) for one in alone])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"teacher_scores": [1, 2]},
            r"a\.jsonl:1: teacher_scores is not a list of 3 numbers: those of the",
        ),
        ({"teacher_scores": 3}, "is not a list of 3 numbers"),
        ({"teacher_scores": None}, "is not a list of 3 numbers"),
        ({"teacher_scores": [1, 2, True]}, "is not a list of 3 numbers"),
        ({"teacher_scores": "[1, 2, NaN]"}, "is not a list of 3 numbers"),
        ({"teacher_scores": [1, 2, 3], "negatives": []}, "the text_c is empty"),
    ],
)
def test_unsuitable_scores_of_a_teacher_are_refused(tmp_path, record, message):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "a", "text_b": "b", "negatives": ["c", "d"], **record}))
    with pytest.raises(UserError, match=message):
        Embedding().read([path], columns={})


def test_scores_of_a_teacher_need_negatives_and_are_given_to_all_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "text_b": "b", "teacher_scores": [1]}')
    with pytest.raises(UserError, match=r"a\.jsonl:1: teacher_scores has no effect: there are no negatives"):
        Embedding().read([path], columns={})
    rows = [
        {"text": "a", "text_b": "b", "text_c": "c", "teacher_scores": [1, 2.5]},
        {"text": "a", "text_b": "b", "text_c": "d"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=r"a\.jsonl:2: pairs with and without teacher_scores are mixed"):
        Embedding().read([path], columns={})
    path.write_text(json.dumps(rows[0]))
    assert [row.scores for row in Embedding().read([path], columns={})] == [(1.0, 2.5)]
    cells = tmp_path / "a.csv"
    cells.write_text('text,text_b,negative_1,negative_2,teacher_scores\na,b,c,d,"[1, 2, 3]"\ne,f,g,,"[1, -2e1]"\n')
    assert [row.scores for row in Embedding().read([cells], columns={})] == [(1, 2, 3), (1, -20)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_teachers_loss_is_that_of_sentence_transformers(tokenizer, recipe, documents, count):
    losses = pytest.importorskip("sentence_transformers.losses", reason="sentence-transformers is not installed")
    texts = [" ".join(of.split()[:6]) for of in documents[: 3 * (2 + count)]]
    rows, rng = make([texts[start::3] for start in range(3)]), np.random.default_rng(count)
    scores = rng.normal(scale=3, size=(3, 1 + count)).astype(np.float32)
    taught = [msgspec.structs.replace(row, scores=tuple(of.tolist())) for row, of in zip(rows, scores, strict=True)]
    (plain, part), vectors = losses_and_vectors([rows, taught], tokenizer, recipe)
    by_column = [vectors[column :: 2 + count] for column in range(2 + count)]
    cosine = torch.nn.functional.cosine_similarity
    loss = losses.DistillKLDivLoss(torch.nn.Identity(), similarity_fct=lambda a, b: cosine(a, b) / 0.05)
    expected = loss.compute_loss_from_embeddings(by_column, torch.from_numpy(scores))
    torch.testing.assert_close((part.sum - plain.sum) / 3, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "task", [Embedding(length=32, temperature=0.05), Sparse(length=32), LateInteraction(length=32, query_length=12)]
)
def test_a_teacher_is_learned_from_beside_a_loop(task, tokenizer, recipe):
    """The scores of a row are those of its own texts, however many it has, and wherever it is in the step."""
    texts = [("a dog", "the cat", "rain", "sea"), ("a poem", "the old town", "a dog"), ("tree", "sea", "a", "b")]
    scores = [(2.0, -1.0, 0.5), (1.0, 1.5), (0.0, 4.0, 1.0)]
    rows = [msgspec.structs.replace(row, scores=of) for row, of in zip(make(texts), scores, strict=True)]
    encoder = build_encoder(recipe.encoder, tokenizer.size, dropout=0.0)
    head = task.build_on(encoder, ())
    learner = Learner(encoder, {task.part: head}).eval()

    def loss(some, *cuts):
        samples = [learner.prepare(sample.at(0.0)) for sample in task.frame(tokenizer, some, (), gold=True).samples]
        batches = [collate(samples[start:end]) for start, end in pairwise((0, *cuts, len(samples)))]
        outputs = [head.predict(encoder, encoder(batch.tokens), batch) for batch in batches]
        return float(head.compare(torch.cat(outputs), batches).sum.detach())

    alone = [collate([sample]) for sample in task.frame(tokenizer, rows, (), gold=False).samples]
    compare = task.comparison([head.predict(encoder, encoder(one.tokens), one).detach().numpy() for one in alone])
    expected, start = 0.0, 0
    for of in scores:
        end = start + 1 + len(of)
        own = compare(np.array([start]), np.arange(start + 1, end))[0] / task.temperature
        teacher, student = (np.exp(each) / np.exp(each).sum() for each in (np.array(of), own.astype(np.float64)))
        expected, start = expected + (teacher * np.log(teacher / student)).sum(), end
    without = loss([msgspec.structs.replace(row, scores=()) for row in rows])
    for cuts in ((), (1,), (1, 2)):
        assert loss(rows, *cuts) - without == pytest.approx(expected, rel=1e-3, abs=1e-4)
