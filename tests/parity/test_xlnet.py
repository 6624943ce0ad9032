"""XLNet in pretraining beside transformers: both streams, memory, hidden states, gradients, directories.

Windows are those of the layout and of the masking, in both directions; the permutation mask and the target mapping that
transformers wants are written here from the order. Outputs agree within 1e-5 of their largest magnitude, gradients
within 1e-4 of their norm.
"""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch
import transformers

import unmask
from unmask.data.batches.batch import TARGETS, collate, collate_readings
from unmask.data.batches.frame import Frame
from unmask.data.batches.paired_streams import PairedStreamsSettings
from unmask.data.batches.permutation_masking import PermutationMaskingSettings
from unmask.data.batches.rng import SampleRng
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.unigram import train_unigram
from unmask.families.checkpoints import huggingface
from unmask.families.xlnet import XlnetSettings
from unmask.model.model import Model, save_model
from unmask.nn.encoders import two_streams
from unmask.nn.encoders.encoder import Keep
from unmask.nn.layers import relative, relative_kernels
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.tasks.classification import Classification

from .conftest import assert_same_gradients, gradients_by_our_names, our_gradients, scale

VOCABULARY, LENGTH, REUSE, MEMORY, STREAMS = 300, 24, 10, 14, 4
CLS, SEP = 3, 4


def theirs_of():
    torch.manual_seed(0)
    config = transformers.XLNetConfig(
        vocab_size=VOCABULARY, d_model=48, n_layer=3, n_head=4, d_inner=96, mem_len=MEMORY, reuse_len=REUSE
    )
    return scale(transformers.XLNetLMHeadModel(config), 4)


def from_theirs(theirs, directory):
    """Return our learner with the weights of transformers' model, read from the directory that it writes."""
    theirs.save_pretrained(directory)
    found = huggingface.read(directory)
    encoder = found.settings.build(found.vocabulary)
    missing, unexpected = encoder.load_state_dict(found.encoder, strict=False)
    assert (unexpected, set(missing)) == ([], {"pooler.weight", "pooler.bias"})
    head = OBJECTIVES["permutation_lm"]().build(BuildContext(encoder))
    head.load_state_dict(found.heads["permutation_lm"])
    return Learner(encoder, {"permutation_lm": head}).eval()


def windows(step):
    """Return a window of each stream, half of them backwards."""
    rng = np.random.default_rng(step)
    frame, text = Frame(CLS, SEP, last=True), PairedStreamsSettings(length=LENGTH, streams=2, reuse=REUSE)
    mask = PermutationMaskingSettings().build(
        vocabulary=VOCABULARY, mask=6, special=frozenset(range(7)), begins=np.ones_like
    )

    def rows():
        size = text.capacity(frame)
        return np.stack([rng.integers(7, VOCABULARY, size), rng.random(size) < 0.2], 1)

    made = [
        text.window(frame, rows(), number >= STREAMS // 2, rng, rows).named((0, step, number))
        for number in range(STREAMS)
    ]
    masked = mask(made, SampleRng(step, "masking", [sample.key for sample in made]))
    return [replace(sample, stream=number) for number, sample in enumerate(masked)]


def inputs_of(samples):
    """Return what transformers reads of the same windows."""
    ids, segments = (torch.tensor(np.stack([getattr(one, name) for one in samples])) for name in ("ids", "segments"))
    order = torch.tensor(np.stack([one.reading.order for one in samples]))
    is_target = torch.zeros_like(ids, dtype=torch.bool)
    for row, sample in zip(is_target, samples, strict=True):
        row[sample.positions[TARGETS]] = True
    hidden = order[:, None] > order[:, :, None]
    own = torch.eye(LENGTH, dtype=torch.bool) & is_target[:, :, None]
    targets = is_target.nonzero()[:, 1].view(STREAMS, -1)
    return {
        "input_ids": ids,
        "token_type_ids": segments,
        "perm_mask": (hidden | own).float(),
        "target_mapping": torch.nn.functional.one_hot(targets, LENGTH).float(),
    }


def run_ours(learner, steps=4):
    """Return logits, both streams, hidden states and memory of successive windows."""
    carry, found = learner.encoder.start(STREAMS), []
    for step in range(steps):
        batch = collate([learner.prepare(sample) for sample in windows(step)])
        assert batch.tokens.reading.backward == STREAMS // 2
        encoded = learner.encoder(batch.tokens, Keep(layers=frozenset(range(4))), carry)
        carry, size = encoded.carry, int(encoded.carry[two_streams.REMEMBERED][0])
        found.append(
            {
                "logits": learner.parts["permutation_lm"]
                .predict(learner.encoder, encoded, batch)
                .view(STREAMS, -1, VOCABULARY),
                "queries": encoded.queries.view(STREAMS, -1, 48),
                **{f"layer {number}": x.view(STREAMS, LENGTH, -1) for number, x in encoded.layers.items()},
                **{f"memory {number}": carry[f"memory.{number}"][:, -size:] for number in range(3)},
            }
        )
    return found


def run_theirs(theirs, steps=4):
    theirs.transformer.bi_data, mems, found = True, None, []
    for step in range(steps):
        out = theirs.transformer(**inputs_of(windows(step)), mems=mems, use_mems=True, output_hidden_states=True)
        mems = out.mems
        found.append(
            {
                "logits": theirs.lm_loss(out.last_hidden_state),
                "queries": out.last_hidden_state,
                **{f"layer {number}": out.hidden_states[2 * number] for number in range(4)},
                **{f"memory {number}": memory.transpose(0, 1) for number, memory in enumerate(mems)},
            }
        )
    return found


def assert_close(ours, theirs):
    for step, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name].shape == value.shape, (step, name)
            assert (found[name] - value).abs().max() <= 1e-5 * max(1, value.abs().max()), (step, name)
            assert name.startswith("memory 0") or value.std() > 5e-3


def backward(outputs):
    """Compute the gradients of a sum of the logits of all windows, each weighted at random."""
    rng = np.random.default_rng(1)
    weighted = [
        (step["logits"] * torch.from_numpy(rng.normal(size=tuple(step["logits"].shape))).float()).sum()
        for step in outputs
    ]
    sum(weighted).backward()


def assert_parity(learner, theirs, directory):
    ours, expected = run_ours(learner), run_theirs(theirs)
    assert_close(ours, expected)
    backward(ours)
    backward(expected)
    theirs.transformer.bi_data = False
    assert_same_gradients(our_gradients(learner), gradients_by_our_names(theirs, directory), slack=1e-6)


def test_parity_of_their_directory(tmp_path):
    theirs = theirs_of()
    assert_parity(from_theirs(theirs, tmp_path / "theirs"), theirs, tmp_path / "gradients")


def test_parity_of_our_directory(tmp_path):
    learner = from_theirs(theirs_of(), tmp_path / "theirs")
    heads = {name: part.state_dict() for name, part in learner.parts.items()}
    huggingface.write(tmp_path / "ours", learner.encoder, heads)
    theirs, report = transformers.XLNetLMHeadModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert (theirs.config.mem_len, theirs.config.d_head) == (MEMORY, 12)
    theirs.transformer.reuse_len = REUSE  # a property of the text
    assert_parity(learner, theirs.eval(), tmp_path / "gradients")


def test_the_loss_is_theirs(tmp_path):
    theirs = theirs_of()
    learner = from_theirs(theirs, tmp_path / "theirs")
    batch = collate([learner.prepare(sample) for sample in windows(0)])
    part = learner(batch)["permutation_lm"]
    theirs.transformer.bi_data = True
    expected = theirs(**inputs_of(windows(0)), labels=batch.labels[TARGETS].view(STREAMS, -1)).loss
    torch.testing.assert_close(part.sum / batch.counts["permutation_lm"], expected)


def test_long_texts_are_read_in_windows_as_by_transformers(tmp_path):
    """Texts of up to three windows, each with the previous ones' states as memory; gradients flow through all."""
    theirs = theirs_of()
    learner = from_theirs(theirs, tmp_path / "theirs")
    encoder = learner.encoder
    encoder.settings = msgspec.structs.replace(encoder.settings, window=10)
    rng, frame = np.random.default_rng(0), Frame(CLS, SEP, last=True)
    samples = [frame.wrap(rng.integers(7, VOCABULARY, n)).named((n,)) for n in (5, 8, 13, 18, 18, 26)]
    tokens = collate(samples).tokens
    found = encoder(tokens, Keep(layers=frozenset({1}))).last.split(tokens.offsets.diff().tolist())
    theirs.transformer.reuse_len = None
    expected = []
    for sample in samples:
        mems, parts = None, []
        ids, segments = torch.tensor(sample.ids)[None], torch.tensor(sample.segments)[None]
        for start in range(0, len(sample), 10):
            part = slice(start, start + 10)
            out = theirs.transformer(ids[:, part], token_type_ids=segments[:, part], mems=mems, use_mems=True)
            parts.append(out.last_hidden_state[0])
            mems = out.mems
        expected.append(torch.cat(parts))
    for ours, value in zip(found, expected, strict=True):
        assert (ours - value).abs().max() <= 1e-5 * max(1, value.abs().max())
    (gradient,) = torch.autograd.grad(found[-1][-1].square().sum(), encoder.words.weight)
    assert gradient[samples[-1].ids[0]].any(), "three windows back"


FAULTS = {
    "directions alike": lambda patch: patch.setattr(relative_kernels.torch.Tensor, "flip", lambda self, *axes: self),
    "longer waves": lambda patch: patch.setattr(relative, "BASE", 20_000.0),
    "all is remembered": lambda patch: patch.setattr(
        "unmask.data.batches.batch.collate_readings", lambda *args: replace(collate_readings(*args), remember=None)
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault, tmp_path, monkeypatch):
    theirs = theirs_of()
    learner, expected = from_theirs(theirs, tmp_path / "theirs"), run_theirs(theirs, 2)
    FAULTS[fault](monkeypatch)
    with torch.no_grad(), pytest.raises(AssertionError):
        assert_close(run_ours(learner, 2), expected)


TEXTS = ["The teacher sees the engine near the sea.", "The dog finds a house in the old town."]


@pytest.fixture(scope="module")
def tokenizer_of_theirs(tmp_path_factory):
    """A tokenizer as transformers saves XLNet's."""
    definition = train_unigram(TEXTS * 30, size=80).definition
    special = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
    learned = [tuple(one) for one in definition["model"]["vocab"] if one[0][0] not in "[<"]
    folder = tmp_path_factory.mktemp("tokenizer")
    transformers.XLNetTokenizer(vocab=[*((token, 0.0) for token in special), *learned]).save_pretrained(folder)
    return folder


def test_texts_have_the_ids_and_segments_of_their_tokenizer(tokenizer_of_theirs):
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tokenizer_of_theirs), load_tokenizer(tokenizer_of_theirs)
    for pair in ((TEXTS[0],), tuple(TEXTS), ("A <mask> sees it.", "the sea")):
        expected = theirs(*pair, return_token_type_ids=True)
        sample = Frame.of(ours, "last").wrap(*map(ours.encode, pair))
        assert sample.ids.tolist() == expected["input_ids"]
        assert sample.segments.tolist() == expected["token_type_ids"]


def test_a_classifier_of_ours_classifies_padded_batches_in_transformers(tokenizer_of_theirs, tmp_path):
    """They are padded on the left, so that the last token is [CLS]."""
    tokenizer = load_tokenizer(tokenizer_of_theirs)
    tokenizer.summary = "last"
    torch.manual_seed(0)
    encoder = XlnetSettings(layers=2, width=32, heads=2, feed_forward=64, init_std=0.3).build(tokenizer.size)
    task = Classification(length=64)
    head = task.build(encoder.head, ("a", "b", "c"))
    save_model(tmp_path, Model(encoder, tokenizer, {task.part: head.published()}, ("a", "b", "c"), task), "card")
    ours = unmask.load(tmp_path).predict([TEXTS[0], "The sea."])
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path)(
        [TEXTS[0], "The sea."], padding=True, return_tensors="pt"
    )
    assert not inputs["attention_mask"].all()
    with torch.no_grad():
        expected = theirs(**inputs).logits.softmax(1)
    for found, row in zip(ours, expected, strict=True):
        assert [found.scores[label] for label in ("a", "b", "c")] == pytest.approx(row.tolist(), abs=1e-4)
