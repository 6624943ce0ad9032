"""The checks of parts: those of unmask pass them, and planted faults are found."""

import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import SingleSettings
from unmask.data.batches.masking import Masking, TokenMaskingSettings
from unmask.data.batches.registries import LAYOUTS, MASKINGS
from unmask.data.batches.rng import SampleRng
from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.text.record_files import READERS
from unmask.families import FAMILIES
from unmask.families.bert import BertSettings
from unmask.model.model import Model, load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import Objective, Part
from unmask.support.plugins import missing_members
from unmask.tasks.classification import Classification
from unmask.testing import (
    check_exporter,
    check_family,
    check_layout,
    check_masking,
    check_objective,
    check_optimizer,
    check_reader,
)
from unmask.training.optimizer import Optimizer
from unmask.training.settings import OPTIMIZERS
from unmask.workflows import EXPORTERS

SHAPES = {"bert": {"layers": 2, "width": 32, "heads": 2, "feed_forward": 64, "positions": 64, "dropout": 0.0}}
SHAPES["modernbert"] = SHAPES["bert"]
MORE = {kind: {"streams": 2} for kind in ("contiguous", "sentence_streams")}
MORE["paired_streams"] = {"streams": 2, "reuse": 8}


@pytest.mark.parametrize("kind", list(MASKINGS))
def test_maskings(kind):
    check_masking(kind)


@pytest.mark.parametrize("kind", list(LAYOUTS))
def test_layouts(kind):
    check_layout(kind, **MORE.get(kind, {}))


@pytest.mark.parametrize("kind", SHAPES)
def test_families(kind):
    check_family(kind, **SHAPES[kind])


@pytest.fixture
def masked():
    """Samples with masked tokens."""
    masking = TokenMaskingSettings().build(vocabulary=100, mask=4, special=frozenset(range(5)), begins=np.ones_like)
    texts = [np.arange(10, 10 + length) for length in (20, 9, 30)]
    return masking(list(map(Frame(2, 3).wrap, texts)), SampleRng(0, "masking", [(len(ids),) for ids in texts]))


def body():
    torch.manual_seed(0)
    return BertSettings(**SHAPES["bert"], init_std=0.2).build(100)


def test_objectives(masked):
    check_objective("masked_lm", body(), masked)
    check_objective("masked_lm")
    with pytest.raises(AssertionError, match="no masking gives next_sentence: pass samples"):
        check_objective("next_sentence")


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers(kind):
    check_optimizer(kind)


def test_state_that_an_optimizer_does_not_save_is_found(monkeypatch):
    monkeypatch.setattr(Optimizer, "load", lambda self, state: None)
    with pytest.raises(AssertionError, match="differs after the state was saved and loaded"):
        check_optimizer("muon", learning_rate=1e-2)


def test_faults_of_maskings_are_found(monkeypatch):
    def in_place(self, samples, rng):
        samples[0].ids[3] = self.mask
        return samples

    def by_index(self, text, masked, rng):
        return rng.uniform("replacement", 0 * masked, masked)

    monkeypatch.setattr(TokenMaskingSettings, "draw", by_index)
    with pytest.raises(AssertionError, match="depends on the others"):
        check_masking("token")
    draws = itertools.cycle([0.0, 0.95])  # every token is masked, then every one stays
    monkeypatch.setattr(TokenMaskingSettings, "draw", lambda self, text, masked, rng: np.full(len(masked), next(draws)))
    with pytest.raises(AssertionError, match="another source than its rng"):
        check_masking("token")
    monkeypatch.setattr(Masking, "__call__", in_place)
    with pytest.raises(AssertionError, match="changes its input"):
        check_masking("token")


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda indices: indices[::-1], "choose returns indices that are not in order, or twice"),
        (
            lambda indices: np.repeat(indices, 2),
            "choose returns indices that are not in order, or twice",
        ),
        (lambda indices: np.append(0, indices), "TokenMaskingSettings.choose returns other indices than those"),
        (lambda indices: indices[:0], "no position is given in a text of"),
    ],
)
def test_what_a_masking_chooses_is_checked(monkeypatch, choose, message):
    """Indices in another order are those of other samples, and those of tokens twice count twice in the loss."""
    right = TokenMaskingSettings.choose
    monkeypatch.setattr(TokenMaskingSettings, "choose", lambda *args: choose(right(*args)))
    with pytest.raises(AssertionError, match=message):
        check_masking("token")


def changed(samples, change):
    return [sample.add(ids=change(sample.ids)) for sample in samples]


def test_faults_of_layouts_are_found(monkeypatch):
    wrap, rng = SingleSettings.samples, np.random.default_rng(0)
    faults = {
        "another source than its rng": rng.permutation,
        "not in the vocabulary": lambda ids: ids + 1000,
        r"has \d+ tokens, but was cut as one of \d+": lambda ids: ids[:-1],
    }
    for message, fault in faults.items():
        monkeypatch.setattr(SingleSettings, "samples", lambda *args, fault=fault: changed(wrap(*args), fault))
        with pytest.raises(AssertionError, match=message):
            check_layout("single")


def test_tensors_that_a_format_forgets_are_found(monkeypatch):
    """They were lost in directories."""
    form = FAMILIES["bert"].format
    names = {name: stored for name, stored in form.tensors.items() if name != "blocks.{}.feed_forward.up"}
    assert len(names) == len(form.tensors) - 1
    monkeypatch.setitem(FAMILIES._components, "bert", replace(FAMILIES["bert"], format=replace(form, tensors=names)))
    with pytest.raises(AssertionError, match=r"of bert has no name for blocks\.0\.feed_forward\.up\.weight"):
        check_family("bert", **SHAPES["bert"])


def test_samples_that_are_too_long_are_found(monkeypatch):
    monkeypatch.setattr(Frame, "capacity", lambda self, length, *, texts: 10 * length)
    with pytest.raises(AssertionError, match=r"a sample has \d+ tokens, but the length is 24"):
        check_layout("single")


def test_faults_of_objectives_are_found(masked, monkeypatch):
    score = MaskedLM.score
    monkeypatch.setattr(
        MaskedLM, "score", lambda self, *others: (part := score(self, *others))._replace(sum=part.sum.square())
    )
    with pytest.raises(AssertionError, match="not a sum over the samples"):
        check_objective("masked_lm", body(), masked)


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("score", lambda self, *others: torch.zeros(()), "score returns no Part"),
        ("score", lambda self, *others: Part(torch.zeros(()), {}), "the loss has no gradient"),
        ("score", lambda self, *others: Part(torch.ones(2), {}), "the loss is not one finite number"),
        ("score", lambda self, *others: Part(torch.tensor(np.nan), {}), "the loss is not one finite number"),
        ("prepare", lambda self, sample, name: None, "prepare returns no Sample"),
    ],
)
def test_what_an_objective_returns_is_checked(masked, monkeypatch, member, value, message):
    monkeypatch.setattr(MaskedLM, member, value)
    with pytest.raises(AssertionError, match=message):
        check_objective("masked_lm", body(), masked)


def test_settings_that_build_no_objective_are_found(masked, monkeypatch):
    monkeypatch.setattr(OBJECTIVES["masked_lm"], "build", lambda self, context: None)
    with pytest.raises(AssertionError, match="its settings build no Objective"):
        check_objective("masked_lm", body(), masked)


def test_flops_that_do_not_add_up_are_found(masked, monkeypatch):
    monkeypatch.setattr("unmask.testing.parts.head_flops", lambda head, encoder, batch: len(batch.keys) ** 2)
    with pytest.raises(AssertionError, match="FLOPs do not add up"):
        check_objective("masked_lm", body(), masked)


def test_a_forgotten_member_is_found():
    class Forgetful(Objective):
        def prepare(self, sample, name):
            return sample

        def predict(self, encoder, encoded, batch):
            return encoded.last

    class Settings(msgspec.Struct):
        def build(self, context) -> Forgetful:
            return Forgetful()

    Settings.build.__annotations__["return"] = Forgetful
    assert "Forgetful.score" in missing_members(Settings)
    assert missing_members(MASKINGS["token"]) == missing_members(LAYOUTS["single"]) == []


def test_readers(tmp_path, monkeypatch):
    path = tmp_path / "rows.lines"
    path.write_text("good day=1\nbad day=0\n")
    monkeypatch.setitem(READERS._components, "lines", read_lines)
    check_reader("lines", path)
    (first, second) = Classification().read([path], columns={})
    assert (first.values, second.line) == ({"text": "good day", "label": "1"}, 2)
    assert list(read_documents([path], TextOptions(), Skipped())) == ["good day", "bad day"]
    monkeypatch.setitem(
        READERS._components, "lines", lambda path: ((number + 1, row) for number, row in read_lines(path))
    )
    with pytest.raises(AssertionError, match="not numbered from 1"):
        check_reader("lines", path)


def test_exporters(tokenizer, tmp_path, monkeypatch):
    save_model(tmp_path / "model", Model(BertSettings(**SHAPES["bert"]).build(tokenizer.size), tokenizer), "")
    check_exporter("huggingface", tmp_path / "model", tmp_path)
    assert load_model(tmp_path / "huggingface-1").fingerprint() == load_model(tmp_path / "model").fingerprint()

    def write_other(model, folder):
        (folder / "file").write_text(folder.name)
        return []

    def write_changed(model, folder):
        (folder / "file").touch()
        next(model.encoder.parameters()).data.zero_()
        return []

    faults = {
        "writes no file": lambda model, folder: [],
        "not return a sequence of notes": lambda model, folder: "a note",
        "does not return a sequence": lambda model, folder: None,
        "other files": write_other,
        "changes the model": write_changed,
    }
    for number, (message, exporter) in enumerate(faults.items()):
        monkeypatch.setitem(EXPORTERS._components, f"faulty-{number}", exporter)
        with pytest.raises(AssertionError, match=message):
            check_exporter(f"faulty-{number}", tmp_path / "model", tmp_path)


def read_lines(path):
    """Read lines such as `text=label`."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text, _, label = line.partition("=")
        yield number, {"text": text, "label": label}
