"""Checks of maskings, layouts, objectives, families, optimizers and readers, most of them on made-up text.

Input: the name of a part; the package that has it is installed. Output: nothing, or an `AssertionError`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.data.batches.batch import Batch, Sample, collate
from unmask.data.batches.frame import Frame
from unmask.data.batches.registries import LAYOUTS, MASKINGS
from unmask.data.batches.rng import SampleRng, derive_rng
from unmask.data.corpus.build import write_corpus
from unmask.data.text.record_files import READERS
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families import FAMILIES
from unmask.families.bert import BertSettings
from unmask.inference.load import load
from unmask.metrics import METRICS
from unmask.model.model import Model, load_model, save_model
from unmask.nn.encoders.encoder import BOTH_SIDES, Encoder
from unmask.objectives import OBJECTIVES
from unmask.objectives.flops import head_flops
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext, Objective, Part
from unmask.support.fingerprint import fingerprint
from unmask.training.optimizer import Optimizer
from unmask.training.settings import OPTIMIZERS
from unmask.workflows import EXPORTERS

NOUNS = ("dog", "cat", "poem", "river")
TEXTS = [f"The {noun} sees the sea. A {noun} finds a town. It likes the {noun}." for noun in NOUNS]
LENGTH = 24
"""Number of tokens of the sequences that layouts cut."""
BODY = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=128, init_std=0.2)
"""A small body for objectives."""
SHARE = 1e-5
"""Largest difference that is rounding, as a share of the number."""


def check_masking(kind: str) -> None:
    """Check a masking: what it makes of a sample is a pure function of it and of its rng, and is what its settings say.

    Raises:
        AssertionError: it does not; or masks special tokens, or changes those that it does not name.
    """
    settings, tokenizer = MASKINGS[kind](), _tokenizer()
    masking = _masker(settings, tokenizer)
    texts = [" ".join(TEXTS), TEXTS[0]]
    samples = [Frame.of(tokenizer).wrap(tokenizer.encode(text)).named((0, key)) for key, text in enumerate(texts)]
    sample, ids = samples[0], samples[0].ids.copy()
    first, again = (masking(samples, SampleRng(0, "masking", [(0, 0), (0, 1)]))[0] for _ in range(2))
    assert (sample.ids == ids).all(), "the masking changes its input; return sample.add(ids=…)"
    _assert_same(first, again, "the masking draws from another source than its rng")
    for order in ([0], [1, 0]):  # as in other micro-batches and processes
        rng = SampleRng(0, "masking", [(0, number) for number in order])
        other = masking([samples[number] for number in order], rng)[-1]
        _assert_same(first, other, "what is masked of a sample depends on the others: draw by its key and its places")
    assert len(first.ids) == len(ids), "the number of tokens differs"
    special = np.isin(ids, list(tokenizer.special_ids))
    assert (first.ids[special] == ids[special]).all(), "a special token is replaced"
    changed, named = np.flatnonzero(first.ids != ids), [np.zeros(0, np.int64), *first.positions.values()]
    assert np.isin(changed, np.concatenate(named)).all(), "tokens are replaced whose positions are not given"
    provided = sorted(filter(str.isidentifier, settings.provides))
    for name in provided:
        assert name in first.positions, f"its settings say that it gives '{name}', but no positions have this name"
        number = len(first.positions[name])
        assert number == len(first.labels.get(name, first.positions[name])), f"'{name}' has not a label per position"
    positions = sum(len(first.positions[name]) for name in provided)
    assert positions or not provided, f"no position is given in a text of {len(ids)} tokens"


def check_layout(kind: str, **settings: Any) -> None:
    """Check a layout: its samples are not too long, hold tokens of the text, and depend on documents and rng alone.

    Args:
        kind: its name.
        settings: settings besides `length`, if it needs some.

    Raises:
        AssertionError: it does not do this, or does not give the labels that its settings say.
    """
    layout, tokenizer = LAYOUTS[kind](length=LENGTH, **settings), _tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("\n\n".join([*TEXTS, " ".join(TEXTS)]), encoding="utf8")  # the last is longer than a sample
        documents = write_corpus(text, tokenizer, Path(folder) / "corpus", heldout=None).train
        sources = [layout.source(documents, Frame.of(tokenizer), seed=0) for _ in range(2)]
        samples, again = (source.take(source.start, sequences=len(TEXTS))[0] for source in sources)
        assert len(samples), "no sample is cut"
    assert len(samples) == len(again), "the layout draws from another source than its rng"
    for sample, other, length in zip(samples, again, samples.lengths.tolist(), strict=True):
        _assert_same(sample, other, "the layout draws from another source than its rng")
        assert len(sample) == length, f"a sample has {len(sample)} tokens, but was cut as one of {length}"
        assert 0 < len(sample) <= LENGTH, f"a sample has {len(sample)} tokens, but the length is {LENGTH}"
        assert ((sample.ids >= 0) & (sample.ids < tokenizer.size)).all(), "an id is not in the vocabulary"
        missing = {name for name in layout.provides if name.isidentifier()} - sample.labels.keys()
        assert not missing, f"its settings say that it gives {', '.join(sorted(missing))}"


def check_family(kind: str, **settings: Any) -> None:
    """Check a family: a small body of it reads texts alone as in a batch, is trained, and is restored from a directory.

    Args:
        kind: its name.
        settings: settings of a small body, for example `layers=2, width=32`.

    Raises:
        AssertionError: it does not do this.
    """
    tokenizer = _tokenizer()
    shape = FAMILIES[kind].settings(**settings)
    torch.manual_seed(0)
    encoder = shape.build(tokenizer.size)
    assert isinstance(encoder, Encoder), "its settings build no Encoder"
    with torch.no_grad():
        for weight in encoder.parameters():  # norms and biases are then restored only if they are read
            weight.add_(torch.randn_like(weight), alpha=0.1)
    samples = [Frame.of(tokenizer).wrap(tokenizer.encode(text)).named((0, n)) for n, text in enumerate(TEXTS)]
    encoder.eval()
    with torch.no_grad():
        together = encoder(collate(samples).tokens).last
        alone = torch.cat([encoder(collate([sample]).tokens).last for sample in samples])
    assert together.shape == (sum(map(len, samples)), encoder.width), "the output is not (tokens, width)"
    assert torch.allclose(together, alone, atol=1e-4), "a text has other outputs alone than in a batch"
    torch.autograd.backward(encoder(collate(samples).tokens).last.square().sum())
    assert any(weight.grad is not None and bool(weight.grad.any()) for weight in encoder.parameters()), "no gradient"
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "model", Model(encoder, tokenizer), "A toy.")
        restored = load_model(Path(folder) / "model").encoder.eval()
    assert restored.settings == encoder.settings, "a directory has other settings"
    with torch.no_grad():
        output = restored(collate(samples).tokens).last
    assert torch.allclose(output, together, atol=SHARE), "a body that is restored from a directory has other outputs"


def check_objective(kind: str, encoder: Encoder | None = None, samples: list[Sample] | None = None) -> None:
    """Check an objective: preparation is pure, and losses are sums over the counted targets, however they are split.

    Args:
        kind: its name.
        encoder: a body that it goes with; None: a small BERT.
        samples: two or more samples, with what the layout and the masking give; None: made-up texts, with the first
            masking that gives what the objective requires.

    Raises:
        AssertionError: it does not do this, its FLOPs do not add up, the gradient does not reach its head, or a
            directory does not restore it.
    """
    torch.manual_seed(0)
    settings, tokenizer = OBJECTIVES[kind](), _tokenizer()
    encoder = BODY.build(tokenizer.size) if encoder is None else encoder
    samples = _masked(settings.requires, tokenizer) if samples is None else samples
    objective = settings.build(BuildContext(encoder))
    assert isinstance(objective, Objective), "its settings build no Objective"
    learner = Learner(encoder, {kind: objective}).eval()
    ids_before = samples[0].ids.copy()
    prepared = [learner.prepare(sample.named((0, number))) for number, sample in enumerate(samples)]
    assert all(isinstance(sample, Sample) for sample in prepared), "prepare returns no Sample"
    assert (samples[0].ids == ids_before).all() and not samples[0].counts, "prepare changes its input"
    assert all(kind in sample.counts for sample in prepared), "prepare counts no terms of the loss"
    batch, singles = collate(prepared), [collate([sample]) for sample in prepared]
    losses = _losses(learner, batch)
    separate = [_losses(learner, single) for single in singles]
    for name, loss in losses.items():
        summed = torch.stack([parts[name] for parts in separate]).sum()
        assert torch.isclose(loss, summed, rtol=1e-3), "the loss is not a sum over the samples"
    operations = sum(head_flops(objective, encoder, single) for single in singles)
    assert head_flops(objective, encoder, batch) == operations, "FLOPs do not add up over the samples"
    learner.zero_grad()
    torch.autograd.backward(list(losses.values()))
    for name, weight in objective.named_parameters():
        assert weight.grad is not None, f"the gradient does not reach {name}"
    published = objective.published()
    other = settings.build(BuildContext(encoder))
    other.adopt(published)
    for name, tensor in other.published().items():
        assert torch.equal(tensor, published[name]), f"adopt does not restore {name}"


def check_optimizer(kind: str, **settings: Any) -> None:
    """Check an optimizer: it changes all weights to finite values, and what it saves is all that it needs to go on.

    Args:
        kind: its name.
        settings: settings of it, for example `learning_rate=1e-3`.

    Raises:
        AssertionError: it does not do this.
    """
    tokenizer, chosen = _tokenizer(), OPTIMIZERS[kind](**settings)
    batch = collate(_masked(frozenset({BOTH_SIDES}), tokenizer))

    def begin() -> tuple[Encoder, Optimizer]:
        torch.manual_seed(0)
        encoder = BODY.build(tokenizer.size).eval()  # without dropout
        return encoder, chosen.build(encoder, encoder.layer_groups)

    def train(encoder: Encoder, optimizer: Optimizer) -> None:
        for _ in range(2):
            torch.autograd.backward(encoder(batch.tokens).last.square().mean())
            optimizer.clip()
            optimizer.step(0.5)

    encoder, optimizer = begin()
    before = {name: weight.clone() for name, weight in encoder.state_dict().items()}
    train(encoder, optimizer)
    resumed, other = begin()
    resumed.load_state_dict(encoder.state_dict())
    other.load({name: tensor.clone() for name, tensor in optimizer.state().items()})
    train(encoder, optimizer)
    train(resumed, other)
    for name, weight in encoder.state_dict().items():
        assert bool(weight.isfinite().all()), f"{name} is not finite after four steps"
        assert torch.equal(weight, resumed.state_dict()[name]), f"{name} differs after the state was saved and loaded"
    inside = [name for name in before if name.startswith("blocks.")]
    unchanged = [name for name in inside if torch.equal(before[name], encoder.state_dict()[name])]
    assert not unchanged, f"{', '.join(unchanged)} are not trained"


def check_reader(suffix: str, path: str | Path) -> None:
    """Check a reader of files: it yields numbered records of texts, numbers, truth values and lists of them.

    Args:
        suffix: its name, the suffix of its files without the dot.
        path: a file with at least one record.

    Raises:
        AssertionError: it does not do this, or yields other records when it is called again.
    """
    assert suffix == suffix.lower() and "." not in suffix, "the name of a reader is a suffix in lower case, without dot"
    records, again = (list(READERS[suffix](path)) for _ in range(2))
    assert records, "there are no records"
    assert records == again, "the records are others when they are read again"
    assert [number for number, _ in records] == list(range(1, len(records) + 1)), "records are not numbered from 1"
    for number, record in records:
        assert all(isinstance(name, str) for name in record), f"record {number}: a column has no name"
        for name, value in record.items():
            values = value if isinstance(value, list | tuple) else [value]
            plain = all(item is None or isinstance(item, str | int | float | bool) for item in values)
            assert plain, f"record {number}: '{name}' is neither a text, a number, a truth value nor a list of them"


def check_metric(name: str, model: str | Path, data: str | Path) -> None:
    """Check a metric: a number for each selection of examples, whatever their order, and nothing is changed by it.

    Args:
        name: its name.
        model: directory of a model of a task that it is for.
        data: labeled examples of this task, at least two.

    Raises:
        AssertionError: it does not do this.
    """
    predictor = load(model)
    task, labels = predictor.model.task, predictor.model.labels
    assert task is not None, "the model was not fine-tuned for a task"
    examples = task.read([data], columns={})
    predictions = predictor.run(examples)
    before = repr((examples, predictions))
    metric, count = METRICS[name](examples, predictions, labels), len(examples)
    assert callable(metric), "it returns no function of a selection of the examples"
    rng = derive_rng(0, "metric", 0)
    for indices in (np.arange(count), *(rng.integers(count, size=count) for _ in range(20))):
        value = metric(indices)
        assert isinstance(value, float), f"its value is of the type {type(value).__name__}, not float"
        assert np.isclose(value, metric(indices[::-1]), equal_nan=True), "it depends on the order of examples"
    assert before == repr((examples, predictions)), "it changes examples or predictions"


def check_exporter(name: str, model: str | Path, folder: str | Path) -> None:
    """Check an exporter: it writes the same files each time, and does not change the model.

    Args:
        name: name of the format.
        model: directory of a model that it writes.
        folder: an existing directory, in which it writes.

    Raises:
        AssertionError: it does not do this.
    """
    loaded, contents = load_model(model), []
    before = fingerprint(loaded.weights())
    for number in range(2):
        out = Path(folder) / f"{name}-{number}"
        out.mkdir()
        notes = EXPORTERS[name](loaded, out)
        is_sequence = isinstance(notes, Sequence) and not isinstance(notes, str)
        assert is_sequence, "it does not return a sequence of notes, which may be empty"
        contents.append({path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()})
    assert contents[0], "it writes no file"
    assert contents[0] == contents[1], "it writes other files when it is called again"
    assert before == fingerprint(loaded.weights()), "it changes the model"


def _masked(requires: frozenset[str], tokenizer: Tokenizer) -> list[Sample]:
    """Return made-up texts, with the first masking that gives what an objective on `BODY` requires."""
    kinds = [kind for kind, settings in MASKINGS.items() if requires <= settings.provides | BODY.provides]
    assert kinds, f"no masking gives {', '.join(sorted(requires - BODY.provides))}: pass samples"
    masking = _masker(MASKINGS[kinds[0]](), tokenizer)
    texts = [" ".join(TEXTS[: number + 1]) for number in range(len(TEXTS))]
    keys = [(number,) for number in range(len(TEXTS))]
    samples = [Frame.of(tokenizer).wrap(tokenizer.encode(text)) for text in texts]
    made: list[Sample] = masking(samples, SampleRng(0, "masking", keys))
    return made


def _losses(learner: Learner, batch: Batch) -> dict[str, torch.Tensor]:
    parts = learner(batch)
    for part in parts.values():
        assert isinstance(part, Part), "score returns no Part"
        assert part.sum.shape == () and bool(part.sum.isfinite()), "the loss is not one finite number"
        assert part.sum.requires_grad, "the loss has no gradient"
    return {name: part.sum for name, part in parts.items()}


def _tokenizer() -> Tokenizer:
    return train_wordpiece(TEXTS, size=100)


def _masker(settings: Any, tokenizer: Tokenizer) -> Any:
    return settings.build(
        vocabulary=tokenizer.size,
        mask=tokenizer.mask,
        special=frozenset(tokenizer.special_ids),
        begins=lambda ids: np.ones(len(ids), bool),
    )


def _assert_same(first: Sample, second: Sample, message: str) -> None:
    assert (first.ids.shape == second.ids.shape) and (first.ids == second.ids).all(), message
    for values, other_values in ((first.labels, second.labels), (first.positions, second.positions)):
        assert values.keys() == other_values.keys(), message
        assert all(np.array_equal(value, other_values[name]) for name, value in values.items()), message
