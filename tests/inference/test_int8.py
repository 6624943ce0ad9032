"""In int8 a model computes nearly what it computes in float32; what has no int8 is refused."""

import numpy as np
import pytest
import torch

import unmask
from unmask.cli.main import main
from unmask.families.deberta import DebertaSettings
from unmask.families.elmo import ElmoSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.xlnet import XlnetSettings
from unmask.inference.backend import BATCH_TOKENS, TorchBackend
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, save_model
from unmask.support import panels
from unmask.support.errors import UserError
from unmask.training import machine as machines
from unmask.training.machine import Machine, choose_inference_machine, choose_machine

from .conftest import CPU, SETTINGS, TEXTS
from .test_backend import framed

has_int8 = pytest.mark.skipif(not panels.multiplies(torch.int8), reason="the processor has no VNNI of AVX-512")
INT8 = Machine(torch.device("cpu"), "int8")
WIDE = {"layers": 3, "width": 64, "heads": 2, "feed_forward": 96, "positions": 32, "init_std": 0.2}
BODIES = {
    "bert": SETTINGS,
    "modernbert": ModernBertSettings(**WIDE, window=4),
    "deberta": DebertaSettings(**WIDE),
}
OTHERS = [
    ElmoSettings(layers=1, width=16, cells=8, filters=((1, 4), (2, 4)), highways=1),
    XlnetSettings(layers=1, width=16, heads=2, feed_forward=32),
]


@pytest.fixture(params=["float32", "bf16"])
def numbers(request, monkeypatch):
    """Set the type of what is not rounded to bytes."""
    if request.param == "bf16" and not panels.multiplies(torch.bfloat16):
        pytest.skip("the processor does not multiply bf16")
    monkeypatch.setattr(machines, "multiplies_bf16", lambda: request.param == "bf16")
    return machines.DTYPES[request.param]


@has_int8
@pytest.mark.parametrize("body", BODIES)
def test_int8_is_close_to_float32_and_a_text_does_not_depend_on_the_others(make, tokenizer, body, numbers, monkeypatch):
    model, samples = make(settings=BODIES[body]), framed(tokenizer)
    exact, backend = TorchBackend(model, CPU), TorchBackend(model, INT8)
    assert {weight.dtype for weight in backend.encoder.parameters()} == {numbers} and backend.precision == "int8"
    together = backend.logits("classification", samples)
    error = np.concatenate(together) - np.concatenate(exact.logits("classification", samples))
    assert 0 < np.abs(error).max() < 0.05 * np.abs(np.concatenate(together)).max()
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 1)  # each sample is a batch
    for rows, sample in zip(together, samples, strict=True):
        np.testing.assert_allclose(backend.logits("classification", [sample])[0], rows, rtol=0, atol=0.02)
    layers = range(backend.encoder.num_layers + 1)
    pairs = zip(backend.layers(samples, layers), exact.layers(samples, layers), strict=True)
    for (_, found), (_, expected) in pairs:
        assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)


@has_int8
def test_the_model_is_not_changed_and_changes_of_it_are_noticed(make, tokenizer, monkeypatch):
    monkeypatch.setattr(machines, "multiplies_bf16", lambda: False)
    model, samples = make(), framed(tokenizer)
    before = {name: weight.clone() for name, weight in model.encoder.state_dict().items()}
    backend = TorchBackend(model, INT8)
    first = backend.logits("classification", samples)
    assert all(weight.equal(before[name]) for name, weight in model.encoder.state_dict().items())
    with torch.no_grad():
        model.encoder.blocks[0].feed_forward.up.weight.mul_(-1)
    changed = backend.logits("classification", samples)
    exact = TorchBackend(model, CPU).logits("classification", samples)
    assert not np.allclose(changed, first, atol=0.1)
    np.testing.assert_allclose(changed, exact, rtol=0, atol=0.1 * np.abs(exact).max())


@has_int8
def test_all_that_computes_with_a_finished_model_computes_in_int8(make, tmp_path):
    save_model(tmp_path / "model", make(), "A test.")
    predictor = unmask.load(tmp_path / "model", device="cpu", precision="int8")
    assert predictor.backend.precision == "int8"
    exact = unmask.load(tmp_path / "model", device="cpu").predict(TEXTS)
    for one, other in zip(predictor.predict(TEXTS), exact, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=0.02)
    (tmp_path / "data.tsv").write_text("text\tlabel\n" + "".join(f"{text}\tyes\n" for text in TEXTS), encoding="utf8")
    found = unmask.evaluate(tmp_path / "model", [tmp_path / "data.tsv"], precision="int8", device="cpu", quiet=True)
    assert found["examples"] == len(TEXTS)
    assert main(["predict", "--model", str(tmp_path / "model"), "--precision", "int8", *TEXTS]) == 0
    of = {
        kind: unmask.embed(tmp_path / "model", {"text": TEXTS}, out=None, precision=kind)
        for kind in ("int8", "float32")
    }
    rows, expected = map(np.asarray, of.values())
    assert 0 < np.linalg.norm(rows - expected) < 0.05 * np.linalg.norm(expected)


@has_int8
@pytest.mark.parametrize("settings", OTHERS, ids=lambda settings: type(settings).__name__)
def test_models_without_such_layers_are_refused(tokenizer, settings):
    with pytest.raises(UserError, match="no layers that can be computed in int8"):
        Predictor(Model(settings.build(tokenizer.size), tokenizer, {}, (), None), INT8)


def test_processors_without_byte_products_and_training_are_refused(monkeypatch, capsys):
    with pytest.raises(UserError, match="precision"):
        choose_machine("cpu", "int8")
    with pytest.raises(SystemExit):
        main(["finetune", "classification", "--model", "m", "--train", "t", "--out", "o", "--precision", "int8"])
    assert "int8 is for finished models" in capsys.readouterr().err
    monkeypatch.setattr(panels, "multiplies", lambda dtype: False)
    with pytest.raises(UserError, match="needs VNNI of AVX-512"):
        choose_inference_machine("cpu", "int8")
    monkeypatch.setattr(machines, "_device", lambda name: torch.device("meta"))
    monkeypatch.setattr(machines, "choose_machine", lambda device, precision: Machine(torch.device("meta"), precision))
    with pytest.raises(UserError, match="needs a CPU"):
        choose_inference_machine("cuda", "int8")
