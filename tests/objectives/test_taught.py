"""Properties of all objectives that learn from a teacher: gradients, any split into micro-batches, precision."""

import copy
from itertools import pairwise, product

import msgspec
import numpy as np
import pytest
import torch

from unmask.data.batches.batch import add_counts, collate
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.distilbert import DistilBertSettings
from unmask.families.electra import ElectraSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.roberta import RobertaSettings
from unmask.families.roformer import RoFormerSettings
from unmask.families.xlnet import XlnetSettings
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.objectives.teacher import TEACHER, Teacher

from .test_objective import SETTINGS, SPLITS, VOCABULARY, assert_same_gradient, build, gather, gradient, samples

NAMES = [name for name, one in OBJECTIVES.items() if TEACHER in one.requires]
COMBINATIONS = [(name,) for name in NAMES] + [("masked_lm", "next_sentence", *NAMES)]
DEEP = msgspec.structs.replace(SETTINGS, layers=4)


SHAPE = {"layers": 2, "width": 32, "heads": 2, "positions": 64, "dropout": 0.0}
FAMILIES = {
    "bert": BertSettings(**SHAPE, feed_forward=64),
    "roberta": RobertaSettings(**SHAPE, feed_forward=64, offset=2),
    "albert": AlbertSettings(**SHAPE, feed_forward=48, embedding=16, shared="all"),
    "electra": ElectraSettings(**SHAPE, feed_forward=64, embedding=16),
    "distilbert": DistilBertSettings(**SHAPE, feed_forward=32),
    "roformer": RoFormerSettings(**SHAPE, feed_forward=64),
    "modernbert": ModernBertSettings(**SHAPE | {"layers": 4}, feed_forward=48, window=4),
    "xlnet": XlnetSettings(**SHAPE, feed_forward=64),
}


def learner_of(dtype=torch.float32):
    """Return a learner with all objectives, and the teacher; both in evaluation mode."""
    torch.manual_seed(7)
    teacher = Teacher(Learner(DEEP.build(VOCABULARY), {"masked_lm": build("masked_lm", seed=3)}).to(dtype))
    built = {name: build(name, seed=4) for name in ("masked_lm", "next_sentence")}
    context = BuildContext(SETTINGS.build(VOCABULARY), teacher, built=built)
    for name in NAMES:
        built[name] = OBJECTIVES[name]().build(context)
    return Learner(context.body, built).eval().to(dtype), teacher


def prepared(learner, names):
    return [learner.prepare(sample, names) for sample in samples()]


@pytest.mark.parametrize(
    ("teacher", "student"),
    [
        pytest.param(*pair, marks=() if "bert" in pair or pair[0] == pair[1] else pytest.mark.exhaustive)
        for pair in product(FAMILIES, repeat=2)
    ],
)
def test_any_family_learns_from_any_other(teacher, student):
    settings, other = FAMILIES[student], FAMILIES[teacher]
    torch.manual_seed(0)
    taught = Teacher(Learner(other.build(VOCABULARY), {"masked_lm": build("masked_lm", settings=other)}))
    built = {"masked_lm": build("masked_lm", settings=settings)}
    context = BuildContext(settings.build(VOCABULARY), taught, built=built)
    # Some layers of a ModernBERT attend to fewer tokens, and the scores of an XLNet are those of distances, too.
    other_scores = {"modernbert", "xlnet"} & {teacher, student}
    more = {"attention": 0.0 if other_scores else 1.0}
    more |= {"layers": (1, 2, 2, 2)} if student == "modernbert" != teacher else {}
    for name in NAMES:
        chosen = more if name == "layer_matching" else {}
        built[name] = OBJECTIVES[name](**chosen).build(context)
    learner = Learner(context.body, built).eval()
    parts = learner(collate(prepared(learner, NAMES)))
    sum(part.sum for part in parts.values()).backward()
    assert all(torch.isfinite(part.sum) and part.sum > 0 for part in parts.values())
    reached = gradient(learner)
    assert reached["encoder.embeddings.words.weight"].any()
    assert any(value.any() for name, value in reached.items() if "blocks.1." in name or "blocks.0." in name)


def test_they_are_those_of_the_two_papers():
    assert set(NAMES) >= {"soft_targets", "hidden_cosine", "layer_matching"}


@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
@pytest.mark.parametrize("split", SPLITS)
def test_the_gradient_does_not_depend_on_the_split_into_micro_batches(names, split):
    learner, _ = learner_of(torch.float64)
    ready = prepared(learner, names)
    whole = collate(ready)
    sum(learner.weights[name] * part.sum / whole.counts[name] for name, part in learner(whole).items()).backward()
    wanted = {key: value.clone() for key, value in gradient(learner).items()}
    micro_batches = [collate(ready[start:stop]) for start, stop in pairwise(np.cumsum([0, *SPLITS[split]]))]
    found = gather(learner, [micro_batches], [add_counts(ready)])
    assert_same_gradient(found, wanted)
    if split == "four" and len(names) > 1:
        other = gather(learner, [micro_batches], [add_counts(ready) | {names[-1]: 1}])
        with pytest.raises(AssertionError):
            assert_same_gradient(other, wanted)


@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
def test_the_gradient_reaches_the_student_and_never_the_teacher(names):
    learner, teacher = learner_of()
    before = teacher.fingerprint()
    batch = collate(prepared(learner, names))
    parts = learner(batch)
    assert parts.keys() == set(names) == batch.counts.keys()
    assert all(part.sum.dtype == torch.float32 and part.sum > 0 for part in parts.values())
    sum(part.sum for part in parts.values()).backward()
    reached = gradient(learner)
    assert reached["encoder.blocks.0.attention.qkv.weight"].any()
    assert all(value.grad is None for value in teacher.learner.parameters())
    torch.optim.AdamW(learner.parameters(), lr=0.1).step()
    assert teacher.fingerprint() == before
    assert not torch.equal(learner(batch)[names[0]].sum, parts[names[0]].sum)


@pytest.mark.parametrize("name", NAMES)
def test_preparation_is_pure_and_equal_for_equal_samples(name):
    learner, _ = learner_of()
    once = samples()
    first, again = (collate([learner.prepare(sample, [name]) for sample in once]) for _ in range(2))
    assert first.counts == again.counts and not any(sample.counts for sample in once)
    assert first.counts[name] > 0


def test_the_working_copy_in_bf16_shares_the_teacher_and_uses_its_own_head():
    learner, teacher = learner_of()
    working = copy.deepcopy(learner).to(torch.bfloat16)
    for name in NAMES:
        assert working.parts[name].teacher is teacher
    assert working.parts["soft_targets"].head is working.parts["masked_lm"] is not learner.parts["masked_lm"]
    batch = collate(prepared(learner, NAMES))
    for name, part in working(batch).items():
        assert part.sum.dtype == torch.float32
        assert float(part.sum.detach()) == pytest.approx(float(learner(batch)[name].sum.detach()), rel=0.05)
    assert teacher.encoder.words.weight.dtype == torch.float32, "it computes in its own precision"


def test_nothing_of_the_teacher_or_twice_is_in_the_state():
    learner, _ = learner_of()
    state = learner.state_dict()
    assert len({value.data_ptr() for value in state.values()}) == len(state)
    assert not any(name.startswith(tuple(f"objectives.{name}." for name in NAMES)) for name in state)
    assert len(list(learner.parameters())) == len(state)
