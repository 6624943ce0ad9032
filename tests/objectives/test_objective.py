"""Properties of all objectives and heads: pure preparation, sums over counted targets, any split into micro-batches.

All registered objectives are tested, including those of installed packages (docs/extending.md).
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from unmask.data.batches.batch import add_counts, collate
from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import MASKED, MaskingSettings
from unmask.data.batches.permutation_masking import PermutationMaskingSettings
from unmask.data.batches.registries import MASKINGS
from unmask.data.batches.rng import SampleRng
from unmask.data.batches.tokens import Reading
from unmask.data.tokenizers.word_level import train_words
from unmask.data.tokenizers.words import spell
from unmask.families.bert import BertSettings
from unmask.families.elmo import ElmoSettings
from unmask.families.gpt import GptSettings
from unmask.families.xlnet import XlnetSettings
from unmask.model.model import Model, load_model, save_model
from unmask.nn.encoders.encoder import LEFT_TO_RIGHT, POOLER
from unmask.nn.encoders.two_lms import TwoLms
from unmask.objectives import OBJECTIVES
from unmask.objectives.flops import body_flops, forward_flops, head_flops
from unmask.objectives.learner import Learner, loss_weights
from unmask.objectives.objective import BuildContext, VocabularyObjective
from unmask.objectives.replaced_token import GENERATOR
from unmask.objectives.teacher import TEACHER
from unmask.tasks.answer_head import AnswerHead
from unmask.tasks.classification import ClassificationHead
from unmask.tasks.regression import RegressionHead
from unmask.tasks.token_classification import TokenClassificationHead
from unmask.testing import check_objective
from unmask.training.carry import CarryTable
from unmask.training.loop import Trainer
from unmask.training.machine import choose_machine
from unmask.training.processes import Processes
from unmask.training.replicas import Replicas

SUMMED = {"regression": lambda found, gold: (found.squeeze(1) - gold).square().sum()}
"""Losses other than the cross-entropy."""
HEADS = {
    "classification": lambda settings: ClassificationHead(settings.head, num_labels=3),
    "regression": lambda settings: RegressionHead(settings.head),
    "question_answering": lambda settings: AnswerHead(settings.head),
    "token_classification": lambda settings: TokenClassificationHead(settings.head, num_labels=3),
}
NAMES = [*(name for name, one in OBJECTIVES.items() if TEACHER not in one.requires), *HEADS]
"""All except those that learn from a teacher, which test_taught.py has."""
OWNERS = [name for name in NAMES if name != "causal_lm"]
"""All except the one without parameters and labels of its own."""
WITHOUT_POOLER = {name for name, one in OBJECTIVES.items() if not one.requires & {POOLER, LEFT_TO_RIGHT}}
WITHOUT_POOLER |= {"question_answering", "token_classification"}
GOLD = {"span_boundary": "span_gold", "bidirectional_lm": "following"}
"""Labels of the targets, if they have not the name of the objective; see `gold_of`."""
SETTINGS = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, dropout=0.0, init_std=0.2)
CAUSAL = GptSettings(layers=2, width=32, heads=2, positions=64, dropout=0.0, init_std=0.2)
"""The body for `causal_lm` alone. On the common body it can see its targets, which does not affect any sum."""
VOCABULARY = 100
TWO_LMS = ElmoSettings(layers=2, width=32, cells=24, characters=4, filters=((1, 8), (2, 8)), dropout=0.0)
"""The body for `bidirectional_lm`, which no other objective shares."""
TWO_STREAMS = XlnetSettings(layers=2, width=32, heads=2, feed_forward=64, dropout=0.0, init_std=0.2)
"""The body for `permutation_lm`, which no other objective shares."""
OTHER_BODIES = {"causal_lm": CAUSAL, "bidirectional_lm": TWO_LMS, "permutation_lm": TWO_STREAMS}
SPELLED = torch.tensor(np.array([spell(f"word{number}".encode()) for number in range(VOCABULARY)])).long()
TOGETHER = tuple(name for name in NAMES if name not in ("bidirectional_lm", "permutation_lm"))
LENGTHS = (3, 40, 5, 61, 17, 17, 2, 30, 9, 55)
SHIFTS = {"encoder.blocks.1.feed_forward_norm.bias", "objectives.question_answering.out.bias"}
"""Parameters that shift all tokens equally, which a softmax over tokens cancels: their gradient is 0 up to rounding."""
OWN_TESTS = ("question_answering", "replaced_token")
"""Losses that are recomputed in their own test files."""
MASKS = {kind: one for kind, one in MASKINGS.items() if issubclass(one, MaskingSettings)}
PROVIDED = {name for mask in MASKS.values() for name in mask.provides}
ASKED = {name for one in OBJECTIVES.values() for name in one.requires} & PROVIDED
MASKING = next(one for one in MASKS.values() if one.provides >= ASKED)
"""The first masking that gives everything that objectives ask of one: BERT's, unless packages are installed."""
SPLITS = {"one": [10], "four": [1, 2, 3, 4], "each": [1] * 10}


def build(name, seed=1, settings=SETTINGS, vocabulary=VOCABULARY):
    torch.manual_seed(seed)
    if name in HEADS:
        return HEADS[name](settings)
    settings = settings if name in TOGETHER else OTHER_BODIES[name]
    return OBJECTIVES[name]().build(BuildContext(settings.build(vocabulary)))


class Spelling(TwoLms):
    """Spells words by itself, so that all bodies read the same samples."""

    def forward(self, tokens, *others):
        return super().forward(replace(tokens, ids=SPELLED[tokens.ids]), *others)


@body_flops.register
def _(encoder: Spelling, tokens, rows=None):
    return body_flops.dispatch(TwoLms)(encoder, replace(tokens, ids=SPELLED[tokens.ids]))


def gold_of(name):
    """Return the name of the labels of an objective's targets."""
    objective = build(name)
    return objective.at if isinstance(objective, VocabularyObjective) else GOLD.get(name, name)


def body_of(*names, vocabulary=VOCABULARY):
    """Return the body for objectives."""
    body = (OTHER_BODIES.get(names[0], SETTINGS) if len(names) == 1 else SETTINGS).build(vocabulary)
    if names == ("bidirectional_lm",):
        body.__class__ = Spelling
    return body


def learner_of(*names, weight=1.0):
    weights = dict.fromkeys(HEADS, weight)
    weights |= loss_weights({name: OBJECTIVES[name](weight=weight) for name in names if name not in HEADS})
    return Learner(body_of(*names), {name: build(name) for name in names}, weights).eval()


def samples(seed=0):
    """Return samples of different lengths, with 1 to 9 masked tokens; all tokens except [CLS] are the passage."""
    rng, frame = np.random.default_rng(0), Frame(cls=2, sep=3)
    special = {"vocabulary": VOCABULARY, "mask": 4, "special": frozenset(range(5)), "begins": np.ones_like}
    mask, permute = MASKING().build(**special), PermutationMaskingSettings().build(**special)
    made = []
    for number, length in enumerate(LENGTHS):
        sample = frame.wrap(rng.integers(5, VOCABULARY, length)).named((0, number))
        labels = {name: rng.integers(0, 2, 1) for name in ("next_sentence", "sentence_order")}
        labels["classification"] = rng.integers(0, 3, 1)
        labels |= {"regression": rng.normal(size=1).astype(np.float32)}
        first = 1 + np.flatnonzero(rng.random(length) < 0.7)  # tokens that begin a word
        labels["token_classification"] = rng.integers(0, 3, len(first))
        labels["question_answering"] = np.sort(rng.integers(1, length + 1, 2))
        labels["following"] = rng.integers(5, VOCABULARY, length + 2)
        positions = {"first": first, "passage": np.arange(1, length + 2)}
        made.append(replace(sample.add(positions=positions, labels=labels), reading=Reading(backward=bool(number % 2))))
    keys = [sample.key for sample in made]
    return mask(permute(made, SampleRng(seed, "order", keys)), SampleRng(seed, "masking", keys))


def empty(sample):
    """Return a copy of the sample without targets."""
    none = {name: value[:0] for name, value in sample.labels.items()}
    nowhere = {name: value[:0] for name, value in sample.positions.items()}
    return replace(sample, positions=nowhere, labels=none, counts={})


def run(learner, batch):
    encoded = learner.encoder(batch.tokens)
    return {name: part.predict(learner.encoder, encoded, batch) for name, part in learner.parts.items()}


def gradient(learner):
    return {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}


def assert_equal_batches(first, second):
    assert (first.keys, first.counts) == (second.keys, second.counts)
    assert torch.equal(first.tokens.ids, second.tokens.ids)
    for ours, theirs in ((first.positions, second.positions), (first.labels, second.labels)):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize("name", [name for name in NAMES if name in OBJECTIVES])
def test_objectives_pass_the_check_for_packages(name):
    check_objective(name, body_of(name), samples())


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_batch_and_preparation_is_pure(name):
    learner = learner_of(name)

    def batch(samples):
        return collate([learner.prepare(sample) for sample in samples])

    assert_equal_batches(batch(samples()), batch(samples()))
    once = samples()
    assert_equal_batches(batch(once), batch(once))
    assert all(not sample.counts for sample in once)
    with pytest.raises(AssertionError):  # the masks differ
        assert_equal_batches(batch(samples()), batch(samples(seed=1)))


@pytest.mark.parametrize("name", [name for name in OWNERS if name != "permutation_lm"])  # it begins with zeros
def test_same_seed_same_head(name):
    first, again, other = (build(name, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    assert not all(torch.equal(value, other[key]) for key, value in first.items())


@pytest.mark.parametrize("name", OWNERS)
def test_an_objective_reads_the_labels_that_it_needs(name):
    learner = learner_of(name)
    needed = MASKED if name in ("span_boundary", "replaced_token") else gold_of(name)
    lacking = [sample.named(sample.key) for sample in samples()]
    for sample in lacking:
        sample.labels.pop(needed)
    with pytest.raises(KeyError, match=needed):
        learner(collate([learner.prepare(sample) for sample in lacking]))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN_TESTS])
def test_the_sum_runs_over_the_counted_targets(name):
    learner = learner_of(name)
    prepared = [learner.prepare(sample) for sample in samples()]
    batch = collate(prepared)
    logits, gold = run(learner, batch)[name], batch.labels[gold_of(name)]
    assert batch.counts[name] == len(logits) == len(gold) == sum(sample.counts[name] for sample in prepared)
    part = learner(batch)[name]
    summed = SUMMED.get(name, partial(cross_entropy, reduction="sum"))
    torch.testing.assert_close(part.sum, summed(logits.double(), gold).float())
    if name not in SUMMED:
        assert int(part.metrics["accuracy"]) == int((logits.argmax(1) == gold).sum())
    assert not any(value.requires_grad for value in part.metrics.values())
    assert part.sum.dtype == learner.bfloat16()(batch)[name].sum.dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_gradient_reaches_the_encoder_and_the_whole_head(name):
    learner = learner_of(name)
    sum(part.sum for part in learner(collate([learner.prepare(sample) for sample in samples()])).values()).backward()
    idle = {key for key, p in learner.named_parameters() if p.grad is None or not p.grad.any()}
    if name == "question_answering":
        idle -= SHIFTS
    idle = {key for key in idle if ".attention.segment" not in key}  # the samples have a single one
    pooler = {"encoder.pooler.weight", "encoder.pooler.bias"} & dict(learner.named_parameters()).keys()
    assert idle == (pooler if name in WITHOUT_POOLER else set())


def gather(learner, micro_batches, counts):
    """Return the gradient as the training loop accumulates it."""
    learner.zero_grad()
    machine = choose_machine("cpu", "float32")
    trainer = SimpleNamespace(
        learner=learner,
        replicas=Replicas(learner, machine, Processes()),
        machine=machine,
        settings=SimpleNamespace(seed=0),
        progress=SimpleNamespace(step=0, micro_tokens=0),
        processes=Processes(),
        carry=CarryTable(0),
    )
    for micro_batch, count in zip(micro_batches, counts, strict=True):
        Trainer._backward(trainer, micro_batch, count, learner.weights)
    return {key: value.clone() for key, value in gradient(learner).items()}


def assert_same_gradient(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert (found[key] - value).norm() <= 2e-6 * value.norm() + (5e-8 if key in SHIFTS else 2e-8), key


def split_step(names, split):
    """Return a learner, micro-batches of a step, its counts, and the gradient of the means over the step."""
    learner = learner_of(*names, weight=0.7).double()  # in float32 terms that cancel differ between processors
    prepared = [learner.prepare(sample) for sample in samples()]
    whole = collate(prepared)
    sum(learner.weights[name] * part.sum / whole.counts[name] for name, part in learner(whole).items()).backward()
    expected = {key: value.clone() for key, value in gradient(learner).items()}
    micro_batches = [collate(prepared[start:stop]) for start, stop in pairwise(np.cumsum([0, *SPLITS[split]]))]
    return learner, micro_batches, add_counts(prepared), expected


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("names", [*((name,) for name in NAMES), TOGETHER], ids="+".join)
def test_the_gradient_does_not_depend_on_the_split_into_micro_batches(names, split):
    learner, micro_batches, counts, expected = split_step(names, split)
    assert_same_gradient(gather(learner, [micro_batches], [counts]), expected)


@pytest.mark.parametrize("names", [*((name,) for name in NAMES), TOGETHER], ids="+".join)
def test_a_mean_per_micro_batch_is_noticed(names):
    learner, micro_batches, _, expected = split_step(names, "four")
    own = [
        {name: count * len(micro_batches) for name, count in micro_batch.counts.items()}
        for micro_batch in micro_batches
    ]
    with pytest.raises(AssertionError):
        assert_same_gradient(gather(learner, [[micro_batch] for micro_batch in micro_batches], own), expected)


def test_one_count_for_all_objectives_is_noticed():
    learner, micro_batches, counts, expected = split_step(TOGETHER, "four")
    with pytest.raises(AssertionError):
        assert_same_gradient(gather(learner, [micro_batches], [dict.fromkeys(counts, sum(counts.values()))]), expected)


@pytest.mark.parametrize("name", NAMES)
def test_without_targets_the_sum_is_0_with_graph(name):
    learner = learner_of(name)
    batch = collate([empty(learner.prepare(sample)).add(counts={name: 0}) for sample in samples()])
    parts = learner(batch).values()
    assert not any(value for part in parts for value in (part.sum.detach(), *part.metrics.values()))
    sum(part.sum for part in parts).backward()
    assert gradient(learner).keys() >= {f"objectives.{name}.{key}" for key, _ in learner.parts[name].named_parameters()}
    assert all(not value.any() for value in gradient(learner).values())
    assert {"encoder.embeddings.words.weight", "encoder.characters.characters.weight"} & gradient(learner).keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_micro_batch_without_targets_changes_nothing(name):
    learner = learner_of(name)
    prepared = [learner.prepare(sample) for sample in samples()]
    more = collate([empty(learner.prepare(sample)).add(counts={name: 0}) for sample in samples()])
    expected = gather(learner, [[collate(prepared)]], [add_counts(prepared)])
    assert_same_gradient(gather(learner, [[collate(prepared), more]], [add_counts(prepared)]), expected)


@pytest.mark.parametrize("name", OWNERS)
def test_a_head_is_the_same_saved_and_loaded(name, tokenizer, tmp_path):
    if name == "bidirectional_lm":
        tokenizer = train_words(["word" + " other" * 2], size=VOCABULARY)
    encoder = body_of(name, vocabulary=tokenizer.size)
    head = build(name, vocabulary=tokenizer.size)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    labels = ("O", "B-X", "I-X") if name in HEADS else ()
    save_model(tmp_path, Model(encoder, tokenizer, {name: head.state_dict()}, labels), "card")
    loaded = load_model(tmp_path)
    loaded.encoder.__class__ = type(encoder)
    fresh = build(name, seed=2, vocabulary=tokenizer.size)
    batch = collate([Learner(encoder, {name: head}).prepare(sample) for sample in samples()])
    before = run(Learner(encoder, {name: head}).eval(), batch)[name]
    assert not torch.equal(run(Learner(loaded.encoder, {name: fresh}).eval(), batch)[name], before)
    assert not loaded.take(name, fresh)
    assert torch.equal(run(Learner(loaded.encoder, {name: fresh}).eval(), batch)[name], before)
    assert all(loaded.take(other, build(other)) for other in OWNERS if other != name)


@pytest.mark.parametrize("name", NAMES)
def test_operations_add_up_over_micro_batches_and_are_0_without_targets(name):
    learner = learner_of(name)
    (part,) = learner.parts.values()
    prepared = [learner.prepare(sample) for sample in samples()]
    whole = collate(prepared)
    micro_batches = [collate(prepared[:5]), collate(prepared[5:])]  # without targets, all rows would be computed
    separately = sum(forward_flops(learner, batch) for batch in micro_batches)
    if name in ("bidirectional_lm", "permutation_lm"):  # bodies compute each distinct word or distance of a batch once
        assert forward_flops(learner, whole) < separately
    else:
        assert forward_flops(learner, whole) == separately
    assert head_flops(part, learner.encoder, whole) > 0
    nothing = collate([empty(sample).add(counts={name: 0}) for sample in prepared])
    assert head_flops(part, learner.encoder, nothing) == 0
    assert forward_flops(learner, nothing) == body_flops(learner.encoder, nothing.tokens)


@pytest.mark.parametrize(
    ("name", "part"), [("masked_lm", "masked_lm"), ("replaced_token", GENERATOR), ("causal_lm", "causal_lm")]
)
def test_the_report_gives_the_accuracy_of_the_most_frequent_token(name, part):
    notes = build(name).notes(name, {}, {f"{part}_accuracy": 0.0946})
    assert notes[0] == f"Always predicting the most frequent token would be right for 9.46 % of the targets of {part}."


def test_the_report_has_no_baseline_for_pairs_or_without_held_out_text():
    assert not build("next_sentence").notes("next_sentence", {}, {"next_sentence_accuracy": 0.5})
    assert not build("masked_lm").notes("masked_lm", {}, {})
