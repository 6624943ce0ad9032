"""A curriculum in a run: each stage has its own samples, objectives and weights; the last one is evaluated."""

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch

from unmask.data.batches import sources
from unmask.model.model import load_model
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import read_recipe
from unmask.support.settings import parse_overrides
from unmask.training import loop
from unmask.training.machine import choose_machine
from unmask.workflows.pretraining.checks import build_curriculum, describe
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.workflows.pretraining.start import build_learner

SMALL = ["encoder.layers=1", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=64", "encoder.positions=64"]
SMALL += ["layout.length=32", "batch.tokens=512", "optimizer.learning_rate=1e-3", "budget.steps=6"]
FIRST = "layout={kind='document_sentences',length=16},masking={rate=0.4,final_rate=0.2},objective={next_sentence=false}"
PAIRS = f"stages=[{{share=0.5,{FIRST}}},{{share=0.5}}]"
ELECTRA = "stages=[{share=0.5,masking={rate=0.4},objective={masked_lm={},replaced_token=false}},{share=0.5}]"


def read(*settings, name="bert-tiny"):
    small = [*SMALL, "encoder.embedding=16"] if name.startswith("electra") else SMALL
    return read_recipe(name, parse_overrides([*small, *settings]))


def lines(run, kind="train"):
    found = [msgspec.json.decode(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    timing = ("seconds", "tokens_per_second", "flops_per_second")
    return [{key: line[key] for key in line if key not in timing} for line in found if line["kind"] == kind]


def losses(line):
    return {name.removesuffix("_loss") for name in line if name.endswith("_loss")}


@pytest.fixture
def run(corpus, tmp_path, monkeypatch):
    """Pretrains on a corpus of several blocks."""
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 1500)

    def start(recipe, name="run", workers=0):
        machine = choose_machine("cpu", "float32", workers)
        pretrain_corpus(recipe, corpus, tmp_path / name, machine=machine, quiet=True)
        return tmp_path / name

    return start


def weights(run):
    return safetensors.torch.load_file(run / "checkpoints" / "step-00000006" / "model.safetensors")


def test_a_single_stage_changes_nothing(run):
    plain, one = run(read("masking.final_rate=0.1"), "plain"), run(read("masking.final_rate=0.1", "stages=[{share=1}]"))
    assert lines(one) == lines(plain)
    assert lines(one, "heldout") == lines(plain, "heldout")
    assert all(value.equal(weights(plain)[name]) for name, value in weights(one).items())


def test_equal_stages_on_one_block_change_nothing_but_the_order(corpus, tmp_path):
    """The first steps of the run are those of a run without stages, at the same masking rates."""
    same = read("masking.final_rate=0.1", "stages=[{share=0.5},{share=0.5}]")
    for name, recipe in (("same", same), ("plain", read("masking.final_rate=0.1"))):
        pretrain_corpus(recipe, corpus, tmp_path / name, machine=choose_machine("cpu", "float32"), quiet=True)
    assert lines(tmp_path / "same")[:3] == lines(tmp_path / "plain")[:3]
    assert lines(tmp_path / "same")[3:] != lines(tmp_path / "plain")[3:]


def check_stages(found, ends=3):
    """Check the metrics of each step against the recipe with `PAIRS`."""
    for number, line in enumerate(found):
        assert losses(line) == ({"masked_lm"} if number < ends else {"masked_lm", "next_sentence"})
        total = sum(line[f"{name}_loss"] for name in losses(line))
        assert line["loss"] == pytest.approx(total)


def test_an_objective_begins_with_its_stage(run):
    out = run(read(PAIRS))
    check_stages(lines(out))
    assert all(losses(line) == {"masked_lm", "next_sentence"} for line in lines(out, "heldout"))
    assert lines(out, "baseline")[0].keys() >= {"masked_lm_accuracy", "next_sentence_accuracy"}
    report = (out / "report.md").read_text()
    assert "- length 16, layout document_sentences, objectives masked_lm, masking rate 0.4 to 0.2: 3 steps of" in report
    assert (
        "- length 32, layout sentence_pairs, objectives masked_lm and next_sentence, masking rate 0.4 to 0.15: 3 steps"
        in report
    )
    assert "| next_sentence_loss |" in report
    assert (out / "plots" / "training.svg").exists()


def leak(monkeypatch):
    """Plant a fault: every objective runs in every stage."""
    prepare = Learner.prepare
    monkeypatch.setattr(Learner, "prepare", lambda self, sample, objectives=None: prepare(self, sample))


def share(monkeypatch):
    """Plant a fault: the first stage ends a step too early."""
    ends = loop.StepFeed.take
    monkeypatch.setattr(loop.StepFeed, "take", lambda self, step, cursor: ends(self, step + 1, cursor))


def test_an_objective_of_another_stage_is_noticed(run, monkeypatch):
    leak(monkeypatch)
    with pytest.raises(KeyError, match="next_sentence"):
        run(read(PAIRS))


@pytest.mark.parametrize("fault", [False, True])
def test_an_objective_on_the_same_labels_does_not_begin_early(run, monkeypatch, fault):
    if fault:
        leak(monkeypatch)
    stages = "stages=[{share=0.5,objective={span_boundary=false}},{share=0.5}]"
    found = [losses(line) for line in lines(run(read("masking.kind=span", "objective.span_boundary.weight=1", stages)))]
    both = {"masked_lm", "next_sentence", "span_boundary"}
    assert found[3:] == [both] * 3
    assert found[:3] == [both if fault else both - {"span_boundary"}] * 3


def test_a_wrong_share_is_noticed(run, monkeypatch):
    share(monkeypatch)
    found = lines(run(read(PAIRS)))
    with pytest.raises(AssertionError):
        check_stages(found)
    check_stages(found, ends=2)


def test_a_head_is_neither_trained_nor_decayed_before_its_stage(corpus, tmp_path):
    recipe = read(PAIRS, "optimizer.weight_decay=0.5", "budget.steps=2")
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    start = {name: value.clone() for name, value in learner.state_dict().items()}
    pretrain_corpus(recipe, corpus, tmp_path / "run", machine=choose_machine("cpu", "float32"), quiet=True)
    short = read(PAIRS.replace("share=0.5", "share=0.999", 1).replace("share=0.5", "share=0.001"), "budget.steps=2")
    out = tmp_path / "short"
    pretrain_corpus(short, corpus, out, machine=choose_machine("cpu", "float32"), quiet=True)
    checkpoint = out / "checkpoints" / "step-00000002"
    after = safetensors.torch.load_file(checkpoint / "model.safetensors")
    moments = safetensors.torch.load_file(checkpoint / "optimizer.safetensors")
    for name, value in start.items():
        used = not name.startswith(("objectives.next_sentence", "encoder.pooler"))
        assert after[name].equal(value) != used, name
        assert (f"{name}.step" in moments) == used, name
    assert "next_sentence" not in load_model(out).heads, "it was never trained"
    moments = safetensors.torch.load_file(tmp_path / "run" / "checkpoints" / "step-00000002" / "optimizer.safetensors")
    taken = {name: int(value) for name, value in moments.items() if name.endswith(".step")}
    assert taken["objectives.next_sentence.out.weight.step"] == 1
    assert taken["objectives.masked_lm.dense.weight.step"] == 2


def test_a_masked_lm_becomes_a_discriminator(run, tmp_path):
    out = run(read(ELECTRA, name="electra-mini"))
    found = lines(out)
    assert [losses(line) for line in found[:3]] == [{"masked_lm"}] * 3
    assert [losses(line) for line in found[3:]] == [{"generator", "replaced_token"}] * 3
    assert all(losses(line) == {"generator", "replaced_token"} for line in lines(out, "heldout"))
    model = load_model(out)
    assert set(model.heads) == {"masked_lm", "replaced_token"}
    report = (out / "report.md").read_text()
    assert (
        "- the masked_lm head is that of step 3: it belongs to an earlier stage, and the encoder has changed" in report
    )
    assert "unmask fill" in report
    head = {
        name.removeprefix("objectives.masked_lm."): value for name, value in weights(out).items() if "masked_lm" in name
    }
    assert head.keys() == model.heads["masked_lm"].keys()
    assert all(value.equal(model.heads["masked_lm"][name]) for name, value in head.items())
    # a discriminator that starts from this run has both heads
    again = run(read("stages=[]", name="electra-mini"), "again")
    assert set(load_model(again).heads) == {"replaced_token"}


def test_weights_are_those_of_the_stage(run):
    weighted = PAIRS.replace("next_sentence=false", "next_sentence=false,masked_lm={weight=3.0}")
    out = run(read(weighted, "objective.next_sentence.weight=0.5"))
    for number, line in enumerate(lines(out)):
        expected = (
            3 * line["masked_lm_loss"] if number < 3 else line["masked_lm_loss"] + 0.5 * line["next_sentence_loss"]
        )
        assert line["loss"] == pytest.approx(expected)


def test_workers_change_nothing(run):
    first, second = run(read(PAIRS), "alone"), run(read(PAIRS), "workers", workers=2)
    assert lines(first) == lines(second)
    assert all(value.equal(weights(second)[name]) for name, value in weights(first).items())


def test_the_pipelines_are_those_of_the_stages(corpus):
    recipe = read(PAIRS.replace("next_sentence=false", "next_sentence=false,masked_lm={weight=3.0}"))
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    assert set(learner.parts) == {"masked_lm", "next_sentence"}
    curriculum = build_curriculum(recipe, corpus.tokenizer, learner)
    first, last = curriculum.stages
    assert (first.share, first.length, first.weights) == (0.5, 16, {"masked_lm": 3.0})
    assert (last.share, last.length, last.weights) == (0.5, 32, {})
    source, prepare = curriculum.source(corpus.train), curriculum.prepare()
    for stage, names in enumerate(({"masked_lm"}, {"masked_lm", "next_sentence"})):
        samples, _ = source.take(source.enter(source.start, stage), sequences=5)
        prepared = prepare(samples)
        assert all(sample.counts.keys() == names for sample in prepared)
        assert max(map(len, samples)) <= (16, 32)[stage]
    shares = [sample.counts["masked_lm"] / len(sample) for sample in prepared]
    torch.testing.assert_close(np.mean(shares), 0.4, atol=0.1, rtol=0)


@pytest.mark.parametrize(
    ("settings", "texts"),
    [
        ([], ["length 32"]),
        (["stages=[{share=0.5},{share=0.5}]"], ["length 32", "length 32"]),
        (["stages=[{share=0.9,layout={length=16}},{share=0.1}]"], ["length 16", "length 32"]),
        (
            ["stages=[{share=0.9,masking={kind='whole_word',rate=0.25,final_rate=false}},{share=0.1}]"],
            ["masking whole_word, masking rate 0.25", "masking token, masking rate 0.4 to 0.15"],
        ),
        (
            ["stages=[{share=0.9,objective={masked_lm={weight=2}}},{share=0.1}]"],
            ["objective.masked_lm.weight 2.0", "objective.masked_lm.weight 1.0"],
        ),
        (
            ["stages=[{share=0.9,layout={short_probability=0.5}},{share=0.1}]"],
            ["layout.short_probability 0.5", "layout.short_probability 0.1"],
        ),
    ],
)
def test_what_distinguishes_a_stage(settings, texts):
    assert describe(read(*settings).every_stage) == texts
