"""The loop learns, repeats itself to the bit, follows its settings, and counts what it leaves out."""

import itertools
import math
import re

import msgspec
import numpy as np
import pytest
import torch

from unmask.batches import sources
from unmask.batches.batch import Sample, collate
from unmask.batches.feed import Feed
from unmask.batches.sources import ExampleSource
from unmask.corpus.build import build_corpus
from unmask.errors import UnmaskError, UserError
from unmask.pretraining.learner import build_learner
from unmask.pretraining.pretrain import pretrain
from unmask.recipe import Recipe, read_recipe
from unmask.runs.directory import RunDirectory
from unmask.runs.display import Display
from unmask.settings import parse_overrides, write
from unmask.training import calibration, loop, memory
from unmask.training.checkpoint import load_checkpoint, newest_checkpoint
from unmask.training.evaluate import evaluate
from unmask.training.loop import MAY_CHANGE, Trainer
from unmask.training.machine import Machine
from unmask.training.patience import Patience
from unmask.training.plan import Plan
from unmask.training.settings import (
    BatchSettings,
    BudgetSettings,
    OptimizerSettings,
    ScheduleSettings,
    TrainingSettings,
)

CPU = Machine(torch.device("cpu"), "float32")
BF16 = Machine(torch.device("cpu"), "bf16")


@pytest.fixture
def small(recipe):
    """The recipe with changes: `small(budget=dict(steps=3))`."""

    def change(**tables):
        table = msgspec.to_builtins(recipe)
        for name, values in tables.items():
            if isinstance(values, dict):
                table[name] = values if name == "budget" else table[name] | values
            else:
                table[name] = values
        return msgspec.convert(table, type(recipe))

    return change


@pytest.fixture
def trainer(corpus, tmp_path):
    """Makes a trainer on the corpus, or on a source of one's own."""
    runs = []

    def make(recipe, *, source=None, heldout=False, machine=CPU, out="run", resume=False):
        learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
        feed = Feed(recipe.layout, recipe.masking, recipe.seed, corpus.tokenizer, learner.prepare)
        while runs:
            runs.pop().close()
        path, text = tmp_path / out, write(recipe)
        run = RunDirectory.resume(path, text, {}, MAY_CHANGE) if resume else RunDirectory.create(path, text, {}, {})
        runs.append(run)
        return Trainer(
            learner,
            source or feed.source(corpus.train),
            prepare=feed.prepare() if source is None else lambda sample: sample,
            heldout=feed.heldout(corpus.heldout, 1000) if heldout else [],
            settings=recipe,
            run=run,
            machine=machine,
            display=Display(quiet=True),
        )

    yield make
    while runs:
        runs.pop().close()


def weights(trainer):
    return {name: value.clone() for name, value in trainer.learner.state_dict().items()}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.equal(second[name]), name


def losses(run, kind="train"):
    return [{key: line[key] for key in line if "loss" in key or "accuracy" in key} for line in run.read_metrics(kind)]


def overfit(trainer, recipe):
    """Train on the first step's sequences alone, hidden once; return what they score before and after."""
    one = trainer(recipe, out="unused")
    samples, _ = one.source.take(one.source.start, sequences=recipe.batch.sequences)
    fixed = [one.prepare(sample) for sample in samples]  # masks stay
    overfitted = trainer(recipe, source=ExampleSource(fixed, seed=0))
    before = evaluate(overfitted.learner, [collate(fixed)], CPU)
    overfitted.start()
    overfitted.train()
    return before, evaluate(overfitted.learner, [collate(fixed)], CPU)


def test_a_tiny_bert_overfits_32_sequences(small, trainer):
    recipe = small(
        encoder={"dropout": 0.0, "width": 64},
        batch={"tokens": None, "sequences": 32},
        optimizer={"learning_rate": 5e-3, "weight_decay": 0.0},
        schedule={"warmup": 0.1},
        budget={"steps": 150},
    )
    _, metrics = overfit(trainer, recipe)
    assert metrics["masked_lm_accuracy"] > 0.9
    assert metrics["next_sentence_accuracy"] > 0.9
    assert metrics["loss"] < 0.5


TINY = [
    *("encoder.layers=2", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=128", "encoder.positions=64"),
    *("encoder.dropout=0", "layout.length=48", "batch.sequences=8", "budget.steps=80"),
    *("optimizer.learning_rate=1.5e-2", "optimizer.weight_decay=0", "schedule.warmup=0.1"),
]
FAMILY = {
    "spanbert-mini": [],
    "albert-mini": ["encoder.embedding=16"],
    "electra-mini": [
        *("encoder.embedding=16", "objective.replaced_token.generator_size=0.5"),
        # so many are replaced that to call every token original is right in three quarters only
        *("masking.rate=0.3", "batch.sequences=4", "optimizer.learning_rate=1e-2"),
    ],
    "gpt-mini": [],
}


@pytest.mark.parametrize("name", FAMILY)
def test_the_tiny_family_overfits_a_few_sequences(trainer, name):
    inner = [text for text in TINY if "feed_forward" in text and name.startswith("gpt")]  # there it has no setting
    recipe = read_recipe(name, parse_overrides([text for text in (*TINY, *FAMILY[name]) if text not in inner]))
    before, after = overfit(trainer, recipe)
    assert after["loss"] < before["loss"] / 3
    for part in recipe.objectives:
        assert after[f"{part}_accuracy"] > 0.9, part
    if "generator_loss" in after:  # which fills the same places otherwise as it learns
        assert after["generator_loss"] < 0.7 * before["generator_loss"]


@pytest.mark.parametrize("machine", [CPU, BF16], ids=["float32", "bf16"])
def test_the_same_seed_gives_the_same_run(small, trainer, machine):
    recipe = small(budget={"steps": 4})
    made = []
    for out, seed in (("a", 0), ("b", 0), ("c", 1)):
        one = trainer(msgspec.structs.replace(recipe, seed=seed), out=out, heldout=True, machine=machine)
        one.start()
        torch.manual_seed(len(made))  # whatever else draws from the global generator
        one.train()
        made.append((losses(one.run), losses(one.run, "heldout"), weights(one)))
    first, second, other = made
    assert first[:2] == second[:2]
    assert_equal(first[2], second[2])
    assert all(a["loss"] != b["loss"] for a, b in zip(first[0], other[0], strict=True))


def test_pieces_give_the_step_of_the_whole(small, trainer):
    found = []
    for micro_tokens in (10_000, 200, 1):
        recipe = small(encoder={"dropout": 0.0}, batch={"micro_tokens": micro_tokens}, budget={"steps": 3})
        one = trainer(recipe, out=str(micro_tokens))
        one.start()
        one.train()
        found.append(one.run.read_metrics("train"))
    for one in found[1:]:
        for mine, whole in zip(one, found[0], strict=True):
            assert mine["tokens"] == whole["tokens"]
            for name in ("loss", "masked_lm_loss", "next_sentence_loss", "gradient_norm"):
                assert mine[name] == pytest.approx(whole[name], rel=2e-5)


def test_a_short_run_writes_its_first_and_its_last_checkpoint_only(small, trainer):
    one = trainer(small(budget={"steps": 20}), heldout=True)
    saved, save = [], one.saver.save

    def noted(model, optimizer, progress, carry):
        saved.append(progress.step)
        save(model, optimizer, progress, carry)

    one.saver.save = noted
    one.start()
    one.train()
    assert set(saved) == {0, 20}
    assert len(one.run.read_metrics("heldout")) == 21


def test_more_is_hidden_along_the_run(small, trainer):
    one = trainer(small(masking={"rate": 0.1, "final_rate": 0.5}, budget={"steps": 10}))
    one.start()
    steps = [one.feed.next(one.progress) for _ in range(10)]
    shares = [step.counts["masked_lm"] / step.tokens for step in steps]
    assert shares == pytest.approx([0.1 + 0.04 * number for number in range(10)], abs=0.02)


@pytest.mark.parametrize("clip", [0.01, 1000.0, 0.0])
def test_the_gradient_is_clipped(small, trainer, clip):
    one = trainer(small(optimizer={"clip": clip}, budget={"steps": 1}))
    one.start()
    one.train()
    norm = one.run.read_metrics("train")[0]["gradient_norm"]
    assert 0.5 < norm < 1000
    moments = [value for name, value in one.optimizer.state().items() if name.endswith(".exp_avg")]
    first = math.sqrt(sum(float(moment.square().sum()) for moment in moments)) / (1 - one.settings.optimizer.betas[0])
    assert first == pytest.approx(min(norm, clip or norm), rel=1e-4)
    assert all(parameter.grad is None for parameter in one.learner.parameters())


def test_the_rate_follows_the_schedule(small, trainer):
    one = trainer(small(schedule={"warmup": 0.5}, optimizer={"learning_rate": 0.01}, budget={"steps": 4}))
    one.start()
    one.train()
    rates = [line["learning_rate"] for line in one.run.read_metrics("train")]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.005])


@pytest.mark.parametrize(("layer_decay", "shares"), [(1.0, {1.0}), (0.5, {0.125, 0.25, 0.5, 1.0})])
def test_rates_follow_the_depth_in_the_encoder(small, trainer, layer_decay, shares):
    one = trainer(small(optimizer={"layer_decay": layer_decay}))
    assert {group.factor for group in one.optimizer.groups} == shares


def plan(trainer, recipe, **settings):
    one = trainer(recipe, **settings)
    one.start()
    return one


def test_budget_in_steps_and_tokens(small, trainer):
    assert plan(trainer, small(budget={"steps": 7}), out="a").progress.total == 7
    one = plan(trainer, small(budget={"tokens": 5000.0}), out="b")
    one.train()
    assert one.progress.tokens == pytest.approx(5000, rel=0.05)
    assert one.progress.step == one.progress.total


@pytest.mark.parametrize(("examples", "epochs", "steps"), [(33, 2.0, 5), (32, 2.0, 4), (33, 0.4, 1), (5, 3.0, 1)])
def test_budget_in_epochs(examples, epochs, steps):
    samples = [Sample(key=(), ids=np.arange(4), segments=np.zeros(4)) for _ in range(examples)]
    settings = TrainingSettings(
        batch=BatchSettings(sequences=16),
        optimizer=OptimizerSettings(),
        schedule=ScheduleSettings(),
        budget=BudgetSettings(epochs=epochs),
    )
    assert Plan(ExampleSource(samples, seed=0), settings).steps(None) == steps


def test_budget_in_minutes_is_turned_into_steps_once(small, trainer, monkeypatch):
    clock = itertools.count(0, 0.5)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: next(clock))
    one = trainer(small(budget={"minutes": 2.0}, schedule={"warmup": 0.9}))
    start = weights(one)
    one.start()
    # each step reads the clock twice, and its timing once
    assert one.progress.total == 120 / 1.5
    assert (one.progress.step, one.progress.tokens, one.progress.cursor) == (0, 0, one.source.start)
    assert_equal(weights(one), start)
    assert one.optimizer.state() == {}
    first = one.step()
    fresh = trainer(small(budget={"steps": one.progress.total}, schedule={"warmup": 0.9}), out="fresh")
    fresh.start()
    assert fresh.step()["loss"] == first["loss"], "timing leaves no trace"


def test_each_step_logs_its_operations_a_second(small, trainer):
    one = trainer(small(batch={"micro_tokens": 100}, budget={"steps": 2}))
    one.start()
    samples, _ = one.source.take(one.source.start, tokens=512)
    whole = collate([one.prepare(sample) for sample in samples])
    one.train()
    first = one.run.read_metrics("train")[0]
    assert first["tokens"] == len(whole.tokens.ids)
    operations = 3 * one.learner.forward_flops(whole)
    # times the rate of tokens, which is rounded too
    assert first["flops_per_second"] == pytest.approx(
        operations * first["tokens_per_second"] / first["tokens"], rel=1e-3
    )


def test_evaluations_take_a_tenth_of_a_run_at_most(small, trainer):
    one = trainer(small(budget={"steps": 200}), heldout=True)
    one.start()
    calculated = one.calibration.plan
    tokens = calculated.tokens_until(200)(200)
    assert [calculated.evaluate_every(200, round(tokens / times), closely=False) for times in (1000, 20, 1)] == [
        200 // 20,
        200 // 6,
        200 // 5,
    ]
    assert calculated.evaluate_every(200, round(tokens), closely=True) == 200 // 20, "what may end a run early"


@pytest.mark.parametrize(("steps", "measured"), [(4, True), (3, False)])
def test_the_peak_is_measured_where_steps_are_timed(small, trainer, monkeypatch, steps, measured):
    monkeypatch.setattr(calibration, "MIN_TIMED", 4)
    peaks, shown = iter([8e11, 7e11]), []
    monkeypatch.setattr(Machine, "matmul_peak", lambda self: next(peaks))
    bar = Display.bar
    monkeypatch.setattr(
        Display, "bar", lambda self, standing, peak, work: (shown.append(peak), bar(self, standing, peak, work))[1]
    )
    recipe = small(budget={"steps": steps})
    one = trainer(recipe)
    one.start()
    one.train()
    machine = one.run.read_provenance().machine
    assert machine == (CPU.describe() | {"matmul_flops_per_second": 800_000_000_000} if measured else {})
    again = trainer(small(budget={"steps": steps + 1}), resume=True)  # the run is still the one that was started
    again.resume()
    again.train()
    assert again.run.read_provenance().machine["matmul_flops_per_second"] == (7e11 if measured else 8e11)
    assert shown == ([8e11, 7e11] if measured else [None, 8e11])


STAGES = [{"share": 0.75, "length": 16}, {"share": 0.25, "length": 48}]


@pytest.fixture
def staged(small, monkeypatch):
    """The recipe with two stages, over a corpus of several blocks."""
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 1500)

    def change(kind="sentence_pairs", **tables):
        layout = {"length": None, "stages": STAGES, "kind": kind}
        if kind == "sentence_pairs":
            return small(layout=layout, **tables)
        table = msgspec.to_builtins(small(**tables))
        return msgspec.convert(table | {"layout": layout, "objective": {"masked_lm": {}}}, Recipe)

    return change


def longest(trainer):
    """Let each step's longest sample be written down."""
    seen, take = [], trainer.feed.take

    def taking(step, cursor):
        samples, cursor = take(step, cursor)
        seen.append(max(map(len, samples)))
        return samples, cursor

    trainer.feed.take = taking
    return seen


@pytest.mark.parametrize("kind", ["sentence_pairs", "document_sentences"])
def test_each_stage_has_its_length_and_its_share_of_the_steps(staged, trainer, kind):
    one = trainer(staged(kind, budget={"steps": 8}), heldout=True)
    one.start()
    seen = longest(one)
    one.train()
    assert max(seen[:6]) <= 16 < min(seen[6:]) <= max(seen) <= 48
    assert max(batch.tokens.offsets.diff().max() for batch in one.heldout) > 16, "held out: the final length"


def test_a_larger_budget_shares_its_steps_out_anew(staged, trainer):
    plan(trainer, staged(budget={"steps": 4})).train()
    larger = trainer(staged(budget={"steps": 12}), resume=True)
    larger.resume()
    seen = longest(larger)
    larger.train()
    assert [length > 16 for length in seen] == [False] * 5 + [True] * 3


def test_a_budget_in_tokens_counts_those_of_each_stage(staged, trainer):
    batch = {"tokens": None, "sequences": 8}
    one = plan(trainer, staged(budget={"tokens": 10_000.0}, batch=batch), out="a")
    one.train()
    assert one.progress.tokens == pytest.approx(10_000, rel=0.05)
    tokens = np.diff([0, *(line["tokens"] for line in one.run.read_metrics("train"))])
    assert tokens[-1] > 2 * tokens[0], "steps differ by so much"


@pytest.fixture
def slow(monkeypatch):
    """A clock by which a step takes 1 s at the short length and 5 s at the long one."""
    monkeypatch.setattr(Machine, "matmul_peak", lambda self: 1e12)
    now, backward = 0.0, Trainer._backward

    def timed(self, pieces, counts, **settings):
        nonlocal now
        now += 5.0 if max(piece.tokens.offsets.diff().max() for piece in pieces) > 16 else 1.0
        return backward(self, pieces, counts, **settings)

    monkeypatch.setattr(loop.time, "perf_counter", lambda: now)
    monkeypatch.setattr(Trainer, "_backward", timed)


def test_a_budget_in_minutes_times_each_stage(staged, trainer, slow):
    one = trainer(staged(budget={"minutes": 10.0}))
    start = weights(one)
    one.start()
    assert one.progress.total == 300  # 225 s and 375 s
    assert (one.progress.step, one.progress.cursor) == (0, one.source.start)
    assert_equal(weights(one), start)
    assert one.optimizer.state() == {}


def test_a_larger_budget_in_minutes_times_each_stage_again(staged, trainer, slow):
    one = plan(trainer, staged(budget={"minutes": 8 / 60}))
    one.train()
    assert one.progress.step == 4
    larger = trainer(staged(budget={"minutes": 24 / 60}), resume=True)
    larger.resume()
    assert (larger.progress.total, larger.progress.cursor) == (12, one.progress.cursor)


def test_how_a_step_fits_into_memory_changes_no_budget_in_minutes(staged, trainer, slow, monkeypatch):
    one = plan(trainer, staged(budget={"minutes": 8 / 60}))
    one.train()
    monkeypatch.setattr(Trainer, "_seconds_per_step", lambda self, stage: 0.01)  # a faster machine
    again = trainer(staged(budget={"minutes": 8 / 60}, batch={"tokens": 512, "micro_tokens": 100}), resume=True)
    again.run.changed = frozenset({"batch.micro_tokens"})
    again.resume()
    assert (again.progress.total, again.progress.micro_tokens) == (4, 100)


def test_what_a_process_tries_alone_waits_for_no_other(small, trainer, monkeypatch):
    """How much it tries depends on its own samples: another one may try nothing."""
    monkeypatch.setattr(memory, "SMALL", 64)
    monkeypatch.setattr(memory, "PROBE", 256)
    one = trainer(small(batch={"micro_tokens": "auto"}, budget={"steps": 2}))
    told, backward = [], one.replicas.backward

    def noted(batch, factors, *, last):
        told.append(last)
        return backward(batch, factors, last=last)

    one.replicas.backward = noted
    one.start()
    assert told == [False, False]
    one.step()
    assert told[-1]


@pytest.mark.parametrize(
    ("found", "over", "best"),
    [([3.0, 2.0, None], False, 1), ([None, None, None], True, None), ([3.0, None, 4.0], True, 0)],
)
def test_T14_a_heldout_loss_that_is_not_finite_is_the_worst(small, trainer, found, over, best):
    one = trainer(small())
    patience = Patience(one.run, 2, one.processes)
    one.run.checkpoints.mkdir(exist_ok=True)
    for step, loss in enumerate(found):
        one.run.log({"kind": "heldout", "step": step, "loss": math.nan if loss is None else loss})
        patience.update(one.learner)
    assert patience.is_over() == over
    assert patience.take_best(one.learner) == best


def test_the_plan_tells_the_steps_of_each_stage(staged, trainer, capsys):
    one = trainer(staged(budget={"steps": 8}, batch={"tokens": None, "sequences": 8}))
    one.display = Display()
    one.start()
    one.train()
    tokens = np.diff([0, *(line["tokens"] for line in one.run.read_metrics("train"))])
    first, *stages = capsys.readouterr().err.splitlines()
    mean = float(re.search(r"8 steps of (\d+) tokens, ", first)[1])
    assert mean == pytest.approx(tokens.mean(), rel=0.1)
    for line, expected in zip(stages, ((16, 6, tokens[:6].mean()), (48, 2, tokens[6:].mean())), strict=True):
        said = [float(number) for number in re.fullmatch(r"length (\d+): (\d+) steps of (\d+) tokens", line).groups()]
        assert said == pytest.approx(expected, rel=0.15)
    reckoned = one.calibration.plan.tokens_until(8)  # for the time left
    assert [reckoned(step) for step in (6, 8)] == pytest.approx([tokens[:6].sum(), tokens.sum()], rel=0.15)


def poison(trainer, steps):
    """Make the loss of chosen steps NaN."""
    forward = trainer.learner.forward

    def poisoned(batch):
        parts = forward(batch)
        if trainer.progress.step in steps:
            parts.update({name: part._replace(sum=part.sum * math.nan) for name, part in parts.items()})
        return parts

    trainer.learner.forward = poisoned


@pytest.mark.parametrize("bias_correction", [True, False])
def test_T14_a_step_that_is_not_finite_is_left_out_and_counted(small, trainer, bias_correction):
    recipe = small(
        optimizer={"bias_correction": bias_correction},
        encoder={"dropout": 0.0},
        masking={"rate": 0.15, "final_rate": 0.15},  # the other run reads the same samples at other steps
        budget={"steps": 4},
        schedule={"kind": "constant", "warmup": 0.0},
    )
    one = trainer(recipe)
    poison(one, {0, 2})
    one.start()
    before = weights(one)
    one.step()
    assert_equal(weights(one), before)
    one.train()
    assert (one.progress.skipped, one.progress.step) == (2, 4)
    lines = one.run.read_metrics("train")
    assert [line["learning_rate"] > 0 for line in lines] == [True, False, True]
    # the same as a run that never saw these samples
    other = trainer(recipe, out="other")
    other.progress.micro_tokens = one.progress.micro_tokens
    take = other.source.take
    other.source.take = lambda cursor, **limits: take(take(cursor, **limits)[1], **limits)
    other.step()
    other.step()
    assert_equal(weights(other), weights(one))


def test_T14_ten_in_a_row_stop_the_run(small, trainer):
    one = trainer(small(budget={"steps": 30}))
    one.start()
    poison(one, range(3, 30))
    with pytest.raises(UnmaskError, match=r"not finite in 10 consecutive steps.*learning_rate") as error:
        one.train()
    assert error.value.status == 1
    path, damaged = newest_checkpoint(one.run.checkpoints)
    assert damaged == []
    assert all(value.isfinite().all() for value in load_checkpoint(path)[0].values())


def test_T14_a_run_with_a_step_left_out_ends_with_its_plots(corpus, recipe, tmp_path, monkeypatch):
    step = Trainer.step

    def poisoned(self):
        if self.progress.step == 4:
            poison(self, {4})
        return step(self)

    monkeypatch.setattr(Trainer, "step", poisoned)
    pretrain(recipe, corpus, tmp_path / "run", machine=CPU, quiet=True)
    assert "1 steps were not finite" in (tmp_path / "run" / "report.md").read_text()
    assert (tmp_path / "run" / "plots" / "training.png").stat().st_size > 1000


def test_a_lone_held_out_document_is_no_hindrance(documents, tokenizer, recipe, tmp_path, capsys):
    (tmp_path / "three.txt").write_text("\n\n".join(documents[:3]))
    corpus = build_corpus([tmp_path / "three.txt"], tokenizer, tmp_path / "corpus")
    assert len(corpus.heldout) == 1
    pretrain(recipe, corpus, tmp_path / "run", machine=CPU)
    assert "the held-out text is too short for this layout" in capsys.readouterr().err
    report = (tmp_path / "run" / "report.md").read_text()
    assert "10 steps" in report
    assert "held out" not in report


def test_evaluation_equals_a_hand_computation(small, trainer):
    one = trainer(small(objective={"masked_lm": {"weight": 2.0}, "next_sentence": {"weight": 0.5}}))
    samples = [one.prepare(sample) for sample in one.source.take(one.source.start, sequences=15)[0]]
    batch = collate(samples)
    metrics = evaluate(one.learner, [collate(samples[:4]), collate(samples[4:])], CPU)
    learner = one.learner.eval()
    with torch.inference_mode():
        encoded = learner.encoder(batch.tokens)
        expected = {"loss": 0.0}
        for name, part in learner.parts.items():
            logits = part.predict(learner.encoder, encoded, batch).double().numpy()
            gold = batch.labels[{"masked_lm": "masked"}.get(name, name)].numpy()
            probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            expected[f"{name}_loss"] = -np.log(probabilities[np.arange(len(gold)), gold]).mean()
            expected[f"{name}_accuracy"] = (logits.argmax(1) == gold).mean()
            expected["loss"] += {"masked_lm": 2.0, "next_sentence": 0.5}[name] * expected[f"{name}_loss"]
    assert metrics == pytest.approx(expected, rel=1e-5)
    one.learner.train()
    evaluate(one.learner, [batch], CPU)
    assert one.learner.training


def test_a_budget_may_grow_but_not_shrink(small, trainer):
    one = plan(trainer, small(budget={"steps": 4}))
    one.train()
    smaller = trainer(small(budget={"steps": 3}), resume=True)
    with pytest.raises(UserError, match="was 4 steps and would be 3; it may only grow"):
        smaller.resume()
    larger = trainer(small(budget={"steps": 6}), resume=True)
    larger.resume()
    larger.train()
    assert [line["step"] for line in larger.run.read_metrics("train")] == [1, 2, 3, 4, 5, 6]
    assert larger.run.read_metrics("train")[-1]["learning_rate"] == pytest.approx(1e-3 / 6)


def test_a_larger_budget_is_not_forgotten_when_its_resume_is_killed(small, trainer, monkeypatch):
    one = plan(trainer, small(budget={"steps": 2}))
    one.train()
    larger = trainer(small(budget={"steps": 4}), resume=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_plan", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        larger.resume()
    again = trainer(small(budget={"steps": 4}), resume=True)
    again.resume()
    assert again.progress.total == 4
