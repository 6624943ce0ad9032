"""General distillation runs: the student approaches its teacher, the run is resumed exactly, and what cannot work."""

import json

import msgspec
import pytest
import torch
from transformers import AutoModelForMaskedLM

from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.elmo import ElmoSettings
from unmask.families.gpt import GptSettings
from unmask.families.xlnet import XlnetSettings
from unmask.model.model import Model, load_model, save_model
from unmask.objectives.objective import BuildContext
from unmask.objectives.permutation_lm import PermutationLMSettings
from unmask.objectives.teacher import Teacher
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.distillation.general import check_student, distill_encoder

from .conftest import CPU, SHAPE, recipe_of


def distill(recipe, teacher, corpus, out, **more):
    return distill_encoder(recipe, teacher, corpus, out, machine=CPU, quiet=True, **more)


@pytest.mark.parametrize("name", ["distilbert-mini", "tinybert-mini"])
def test_a_student_approaches_its_teacher(name, teacher, corpus, tmp_path):
    recipe = recipe_of(name, budget__steps=12, optimizer__learning_rate=2e-3)
    distill(recipe, teacher, corpus, tmp_path / "run", layers=2)
    lines = RunDirectory(tmp_path / "run").read_metrics("heldout")
    assert lines[-1]["loss"] < 0.9 * lines[0]["loss"]
    student = load_model(tmp_path / "run")
    assert (student.encoder.num_layers, student.encoder.width) == (2, 32)
    assert student.encoder.settings.__struct_config__.tag == ("distilbert" if "distil" in name else "bert")
    assert student.heads.keys() == ({"masked_lm"} if "distil" in name else set()), "nothing of the distillation"
    report = (tmp_path / "run/report.md").read_text()
    assert f"# {name}, distilled from {teacher} on " in report
    assert "The student has 2 layers, width 32, 2 heads and" in report
    card = (tmp_path / "run/model/README.md").read_text()
    assert f"Distilled from {teacher} on {corpus.manifest.sources[0]} with unmask" in card and f"# {name}" in card
    if "distil" in name:
        assert "soft_targets_agreement" in report
        loaded, notes = AutoModelForMaskedLM.from_pretrained(tmp_path / "run/model", output_loading_info=True)
        assert not notes["missing_keys"] and not notes["unexpected_keys"]
        assert loaded.num_parameters() > 0


def test_narrow_students_learn_through_a_projection(teacher, corpus, tmp_path):
    recipe = recipe_of(
        "tinybert-mini", encoder__width=16, encoder__heads=2, encoder__feed_forward=24, encoder__layers=2
    )
    distill(msgspec.structs.replace(recipe), teacher, corpus, tmp_path / "run")
    saved = RunDirectory(tmp_path / "run").checkpoints / "step-00000006/model.safetensors"
    assert b"objectives.layer_matching.project_hidden.weight" in saved.read_bytes()[:20000]
    assert load_model(tmp_path / "run").encoder.width == 16


def test_T1_a_resumed_distillation_equals_an_unbroken_one(teacher, corpus, tmp_path, stopped_at):
    recipe = recipe_of("distilbert-mini", objective__layer_matching__weight=1, encoder__dropout=0.1)
    whole = distill(recipe, teacher, corpus, tmp_path / "whole", layers=2)
    with stopped_at(3):
        distill(recipe, teacher, corpus, tmp_path / "cut", layers=2)
    resumed = distill(recipe, teacher, corpus, tmp_path / "cut", layers=2, resume=True)
    assert load_model(whole.parent).fingerprint() == load_model(resumed.parent).fingerprint()
    lines = [RunDirectory(path.parent).read_metrics("train") for path in (whole, resumed)]
    assert [line["loss"] for line in lines[0]] == [line["loss"] for line in lines[1]]


def test_the_teacher_is_not_changed_and_another_one_is_refused(teacher, teacher_model, corpus, tmp_path, monkeypatch):
    seen, real = [], Teacher.fingerprint
    monkeypatch.setattr(Teacher, "fingerprint", lambda self: seen.append(self) or real(self))
    distill(recipe_of("distilbert-mini"), teacher, corpus, tmp_path / "run", layers=2)
    before = json.loads((tmp_path / "run/provenance.json").read_text())["inputs"]["teacher"]
    assert real(seen[0]) == before, "all weights are bit-equal after the run"
    torch.manual_seed(9)
    save_model(
        tmp_path / "other",
        Model(SHAPE.build(teacher_model.tokenizer.size), teacher_model.tokenizer, teacher_model.heads),
        "",
    )
    more = recipe_of("distilbert-mini", budget__steps=8)
    with pytest.raises(UserError, match=r"inputs.teacher was \w{12}, now \w{12}"):
        distill(more, tmp_path / "other", corpus, tmp_path / "run", layers=2, resume=True)
    distill(more, teacher, corpus, tmp_path / "run", layers=2, resume=True)


def test_a_student_continues_from_another_model(teacher, corpus, tmp_path):
    recipe = recipe_of("tinybert-mini")
    distill(recipe, teacher, corpus, tmp_path / "first", layers=2)
    distill(recipe, teacher, corpus, tmp_path / "second", init=tmp_path / "first")
    assert "The student continues from" in (tmp_path / "second/report.md").read_text()
    assert load_model(tmp_path / "second").fingerprint() != load_model(tmp_path / "first").fingerprint()


@pytest.fixture
def xlnet(tokenizer, tmp_path):
    """The directory of an XLNet with memory."""
    torch.manual_seed(0)
    shape = XlnetSettings(layers=4, width=32, heads=2, feed_forward=64, memory=16, window=32, init_std=0.2)
    encoder = shape.build(tokenizer.size)
    head = PermutationLMSettings().build(BuildContext(encoder))
    save_model(tmp_path / "xlnet", Model(encoder, tokenizer, {"permutation_lm": head.state_dict()}), "")
    return tmp_path / "xlnet"


def test_an_xlnet_teaches_what_it_predicts_in_any_order(xlnet, corpus, tmp_path):
    recipe = recipe_of("distilxlnet-mini", budget__steps=10, optimizer__learning_rate=3e-3)
    distill(recipe, xlnet, corpus, tmp_path / "run", layers=2)
    lines = RunDirectory(tmp_path / "run").read_metrics("heldout")
    assert lines[-1]["soft_targets_loss"] < 0.9 * lines[0]["soft_targets_loss"]
    student = load_model(tmp_path / "run")
    assert student.heads.keys() == {"permutation_lm"} and student.encoder.settings.memory == 0
    assert "it has no memory, as samples are independent" in (tmp_path / "run/report.md").read_text()
    states = {"objective__layer_matching__attention": 0, "budget__steps": 2}
    distill(recipe_of("tinybert-mini", **states), xlnet, corpus, tmp_path / "tiny", layers=2)
    distill(recipe_of("tinybert-mini", **states), xlnet, corpus, tmp_path / "again", init=xlnet)
    assert load_model(tmp_path / "again").encoder.num_layers == 4


def test_what_an_xlnet_cannot_teach_is_refused_with_the_reason(xlnet, corpus, tmp_path):
    streams = read_recipe("xlnet-mini", {"objective.soft_targets.weight": 1})
    for recipe, more, message in (
        (
            recipe_of("tinybert-mini"),
            {"layers": 2},
            "has no attention scores to compare; pass settings=..objective.lay",
        ),
        (recipe_of("distilbert-mini"), {"layers": 2}, "the teacher has no masked_lm head; adapt it first"),
        (recipe_of("distilbert-mini"), {}, "at its last token, but the student at its first one"),
        (
            streams,
            {"layers": 2},
            'independent samples, not contiguous streams; pass settings={"layout.kind": "document_sen',
        ),
    ):
        with pytest.raises(UserError, match=message):
            distill(recipe, xlnet, corpus, tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()


def test_a_body_that_needs_streams_is_refused(tokenizer):
    elmo = ElmoSettings(layers=2, width=32, cells=24, characters=4, filters=((1, 8),))
    model = Model(elmo.build(tokenizer.size), tokenizer)
    with pytest.raises(
        UserError, match="the student needs contiguous streams, but on text a teacher reads independent"
    ):
        check_student(model, model, "elmo")


def test_what_cannot_work_is_refused_with_the_reason(teacher, teacher_model, corpus, documents, tmp_path):
    tokenizer = teacher_model.tokenizer
    save_model(tmp_path / "headless", Model(SHAPE.build(tokenizer.size), tokenizer), "")
    other = train_wordpiece(documents[:30], size=150)
    save_model(tmp_path / "foreign", Model(SHAPE.build(other.size), other), "")
    short = msgspec.structs.replace(SHAPE, positions=32)
    save_model(tmp_path / "short", Model(short.build(tokenizer.size), tokenizer), "")
    gpt = GptSettings(layers=2, width=32, heads=2, positions=64)
    save_model(tmp_path / "gpt", Model(gpt.build(tokenizer.size), tokenizer), "")
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(documents[:40]))
    foreign = write_corpus([text], other, tmp_path / "corpus")
    tiny = recipe_of("tinybert-mini")
    for recipe, model, data, more, message in (
        (
            recipe_of("distilbert-mini"),
            "headless",
            corpus,
            {"layers": 2},
            "the teacher has no masked_lm head; adapt it",
        ),
        (tiny, "headless", foreign, {"layers": 2}, r"the corpus was not built with the tokenizer of .*headless"),
        (tiny, "headless", foreign, {"init": tmp_path / "foreign"}, "the vocabulary of the student is not that of"),
        (tiny, "short", corpus, {"layers": 2}, "length 48 exceeds the 32 positions of .*short"),
        (tiny, "gpt", corpus, {}, "reads the vector of a text at its extract token, but the student at its first one"),
        (
            recipe_of("tinybert-mini", objective__layer_matching__layers=[3]),
            "headless",
            corpus,
            {"layers": 2},
            "layers must name one of the teacher's layers 1 to 4 for each of the student's 2 layers, not",
        ),
        (tiny, "headless", corpus, {"layers": 9}, "layers=9, but the teacher has 4 layers"),
        (recipe_of("bert-tiny"), "headless", corpus, {}, "no objective of the recipe bert-tiny learns from a teacher"),
    ):
        with pytest.raises(UserError, match=message):
            distill(recipe, tmp_path / model, data, tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()
