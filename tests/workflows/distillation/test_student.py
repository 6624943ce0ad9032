"""Students begin with the weights of their teacher wherever shapes and kinds of layers agree."""

from copy import copy

import msgspec
import numpy as np
import pytest
import torch
from transformers import DistilBertModel

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.frame import Frame
from unmask.families.albert import AlbertSettings
from unmask.families.distilbert import DistilBertSettings
from unmask.families.elmo import ElmoSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.roberta import RobertaSettings
from unmask.families.xlnet import XlnetSettings
from unmask.model.model import Model, save_model
from unmask.nn.encoders.encoder import Keep
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.workflows.distillation.student import student_of, student_settings

from .conftest import SHAPE

DISTIL = DistilBertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, dropout=0.0)


@pytest.fixture
def batch(tokenizer):
    samples = [Frame.of(tokenizer).wrap(torch.arange(5, 5 + n).numpy()).named((n,)) for n in (4, 9)]
    return collate([Sample(key=one.key, ids=one.ids, segments=one.segments) for one in samples])


def layer(model, batch, number):
    """Return a layer of a model, (tokens, width)."""
    return model.encoder.eval()(batch.tokens, Keep(frozenset({number}))).layers[number]


def test_six_of_twelve_layers_are_those_of_the_paper(teacher_model):
    deep = msgspec.structs.replace(SHAPE, layers=12)
    teacher = Model(deep.build(50), teacher_model.tokenizer)
    student, about = student_of(teacher, msgspec.structs.replace(DISTIL, layers=6), "BERT")
    for number, layer in enumerate([0, 2, 4, 7, 9, 11]):
        theirs = teacher.encoder.blocks[layer].state_dict()
        assert all(
            torch.equal(value, theirs[name]) for name, value in student.encoder.blocks[number].state_dict().items()
        )
    assert about.endswith("begins with the embeddings and layers 1, 3, 5, 8, 10, 12 of BERT")


def test_a_distilbert_has_no_segments_and_the_embeddings_of_segment_0(teacher_model, batch, tmp_path):
    student, about = student_of(teacher_model, DISTIL, "TEACHER")
    assert "layers 1, 4 of TEACHER" in about and "2 layers, width 32, 2 heads and 0.0 million" in about
    ours, theirs = (
        one.encoder.eval()(batch.tokens, Keep(frozenset({0}))).layers[0] for one in (student, teacher_model)
    )
    torch.testing.assert_close(ours, theirs)
    assert student.heads.keys() == {"masked_lm"}
    assert student.tokens == teacher_model.tokens
    save_model(tmp_path, student, "card")
    found = DistilBertModel.from_pretrained(tmp_path)
    assert not any("token_type" in name or "pool" in name for name, _ in found.named_parameters())
    ids = batch.tokens.ids[:6][None]
    torch.testing.assert_close(
        found.eval()(ids).last_hidden_state[0], student.encoder(batch.tokens).last[:6], atol=1e-5, rtol=1e-5
    )


def test_the_first_layers_output_is_that_of_the_teacher(teacher_model, batch):
    student, _ = student_of(teacher_model, msgspec.structs.replace(SHAPE, layers=3), "TEACHER")
    ours, theirs = (
        one.encoder.eval()(batch.tokens, Keep(frozenset({1}))).layers[1] for one in (student, teacher_model)
    )
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(student.encoder.pooler.weight, teacher_model.encoder.pooler.weight)


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ({"layers": 2}, "begins with the embeddings and layers 1, 4 and the pooler of T"),
        ({"layers": 2, "feed_forward": 32}, "begins with the embeddings and the pooler of T"),
        ({"layers": 2, "heads": 4}, "begins with the embeddings and the pooler of T"),
        ({"layers": 2, "activation": "relu"}, "begins with the embeddings and the pooler of T"),
        ({"layers": 2, "positions": 32}, "begins with the vectors of words and layers 1, 4 and the pooler of T"),
        ({"layers": 2, "width": 16}, "begins with the vectors of words of T"),
        ({"layers": 2, "width": 64}, "begins with random weights, as its shape is not that of T"),
        ({"layers": 5}, "begins with the embeddings and the pooler of T"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_newly_initialized(teacher_model, shape, taken):
    student, about = student_of(teacher_model, msgspec.structs.replace(SHAPE, **shape), "T")
    assert about.endswith(taken)
    assert bool(student.heads) == ("layers 1" in taken) == (student.tokens == 1000)
    assert student.encoder.vocabulary == teacher_model.encoder.vocabulary


def test_a_narrow_student_begins_with_the_best_table_of_its_width(teacher_model):
    """Inner products of the words of the narrow table are those of numpy's closest matrix of its rank."""
    student, _ = student_of(teacher_model, msgspec.structs.replace(SHAPE, width=16), "T")
    wide = teacher_model.encoder.embeddings.words.weight.detach().numpy().astype("float64")
    left, sizes, right = np.linalg.svd(wide, full_matrices=False)
    closest = left[:, :16] * sizes[:16] @ right[:16]
    narrow = student.encoder.embeddings.words.weight.detach().numpy()
    np.testing.assert_allclose(narrow @ narrow.T, closest @ closest.T, atol=1e-5)


def test_newly_initialized_weights_depend_on_the_seed_alone(teacher_model):
    narrow = msgspec.structs.replace(SHAPE, width=16)
    first, again, other = (student_of(teacher_model, narrow, "T", seed=seed)[0].fingerprint() for seed in (0, 0, 1))
    assert first == again != other


def test_other_families(tokenizer):
    albert = AlbertSettings(layers=6, width=32, heads=2, feed_forward=64, positions=64, embedding=16, shared="all")
    student, about = student_of(Model(albert.build(50), tokenizer), msgspec.structs.replace(albert, layers=2), "T")
    assert "the embeddings and the shared layers and the pooler of T" in about and student.encoder.num_layers == 2
    modern = ModernBertSettings(layers=7, width=32, heads=2, feed_forward=48, positions=64, window=4, global_every=3)
    teacher = Model(modern.build(50), tokenizer)
    assert "layers 1, 2, 3, 7 and" in student_of(teacher, msgspec.structs.replace(modern, layers=4), "T")[1]
    assert "layers" not in student_of(teacher, msgspec.structs.replace(modern, layers=3), "T")[1].partition("begins")[2]
    memory = XlnetSettings(layers=4, width=32, heads=2, feed_forward=64, memory=16, window=32)
    student = msgspec.structs.replace(memory, layers=2, memory=0, window=None)  # as recipes on text have it
    about = student_of(Model(memory.build(50), tokenizer), student, "T")[1]
    assert about.endswith("begins with the embeddings and layers 1, 4 and the pooler of T")
    student, about = student_of(teacher, SHAPE, "T")
    assert about.endswith("begins with the vectors of words of T")
    assert torch.equal(student.encoder.embeddings.words.weight, teacher.encoder.embeddings.words.weight)


def test_a_student_of_another_family_frames_texts_in_its_own_way(tokenizer):
    xlnet = XlnetSettings(layers=2, width=32, heads=2, feed_forward=64)
    words = copy(tokenizer)
    words.summary = "last"
    teacher = Model(xlnet.build(tokenizer.size), words)
    student, _ = student_of(teacher, SHAPE, "T")
    assert (student.tokenizer.summary, teacher.tokenizer.summary) == ("first", "last")
    assert student_of(teacher, xlnet, "T")[0].tokenizer.summary == "last"


def test_a_body_that_cannot_read_the_vocabulary_is_refused(teacher_model):
    roberta = RobertaSettings(layers=2, width=32, heads=2, feed_forward=64)
    with pytest.raises(UserError, match="does not match the vocabulary, in which the padding token has id 0; pass"):
        student_of(teacher_model, roberta, "T")
    elmo = ElmoSettings(layers=2, width=32, cells=24, characters=4, filters=((1, 8),))
    with pytest.raises(UserError, match="an encoder of the kind elmo cannot read a vocabulary of the kind wordpiece"):
        student_of(teacher_model, elmo, "T")


def test_the_shape_of_a_student_by_its_number_of_layers():
    recipe = read_recipe("distilbert").encoder
    assert student_settings(recipe, SHAPE, None) is recipe
    found = student_settings(recipe, SHAPE, 2)
    assert found == msgspec.structs.replace(DISTIL, dropout=0.1, init_std=0.2)
    assert student_settings(read_recipe("tinybert-mini").encoder, SHAPE, 3) == msgspec.structs.replace(
        SHAPE, layers=3, dropout=0.0
    )
    roberta = RobertaSettings(layers=4, width=32, heads=2, feed_forward=64, offset=2)
    assert student_settings(recipe, roberta, 2) == msgspec.structs.replace(roberta, layers=2)
    for layers in (0, 5):
        with pytest.raises(UserError, match=f"layers={layers}, but the teacher has 4 layers; choose fewer"):
            student_settings(recipe, SHAPE, layers)
