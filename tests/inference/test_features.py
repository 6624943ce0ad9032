"""Features equal the hidden states of transformers and the word ids of its tokenizer, in memory and in a file."""

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModel, AutoTokenizer

import unmask
from unmask.data.labelled.labelled_file import Row
from unmask.families.bert import BertSettings
from unmask.inference import features as module
from unmask.inference.backend import BATCH_TOKENS, TorchBackend
from unmask.inference.features import FILE, frame_words, open_table, write_features
from unmask.model.model import Model, save_model
from unmask.support.errors import UnmaskError, UserError

SETTINGS = BertSettings(layers=3, width=32, heads=4, feed_forward=64, positions=32, init_std=0.3)
TEXTS = ["The dog sees the unbelievably-good cat, near the sea.", "poem", "", "A [MASK] 北京 garden! " * 20, "x y"]
SECOND = ["Cat.", "The garden opens the letter. " * 20, "a", "the sea", "poem"]


@pytest.fixture(scope="module")
def directory(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    save_model(path, Model(SETTINGS.build(tokenizer.size), tokenizer), "card")
    return path


@pytest.fixture
def predictor(directory):
    return unmask.load(directory, device="cpu")


def assert_features_match(predictor, directory, layers, second=None):
    found = predictor.features(TEXTS, layers, second)
    reader, model = AutoTokenizer.from_pretrained(directory), AutoModel.from_pretrained(directory).eval()
    for number, text in enumerate(TEXTS):
        pair = [second[number]] if second else []
        inputs = reader(text, *pair, truncation=True, max_length=SETTINGS.positions, return_tensors="pt")
        with torch.no_grad():
            states = model(**inputs, output_hidden_states=True).hidden_states
        start, stop = found.offsets[number : number + 2].tolist()
        expected = torch.stack([states[layer][0] for layer in layers], 1)
        torch.testing.assert_close(found.values[start:stop], expected, rtol=0, atol=1e-5)
        ids = [-1 if word is None else word for word in inputs.word_ids()]
        assert found.word_ids[start:stop].tolist() == ids
    assert found.offsets[-1] == len(found.values) == len(found.word_ids)
    return found


@pytest.mark.parametrize("layers", [(-1,), (0,), (0, 1, 2, 3), (-1, -4)])
def test_features_are_the_hidden_states_of_transformers(predictor, directory, layers):
    found = assert_features_match(predictor, directory, layers)
    assert found.cut == 1 and found.values.shape[1:] == (len(layers), 32)


def test_features_of_pairs(predictor, directory):
    assert assert_features_match(predictor, directory, (-1, 1), SECOND).cut == 2
    with pytest.raises(UserError, match="2 texts cannot be paired with 1 second text"):
        predictor.features(["a", "b"], (-1,), ["c"])


@pytest.mark.parametrize("planted", ["layer", "words", "order"])
def test_the_comparison_notices_a_planted_fault(predictor, directory, monkeypatch, planted):
    from unmask.inference import encoder_model as inference

    if planted == "layer":
        right = inference.resolve_layers
        monkeypatch.setattr(inference, "resolve_layers", lambda *given: [max(0, one - 1) for one in right(*given)])
    elif planted == "words":
        monkeypatch.setattr(module.Frame, "spread", lambda *given: np.zeros(2 + len(given[1]), np.int64))
    else:
        right = TorchBackend.layers
        monkeypatch.setattr(TorchBackend, "layers", lambda *given: [(0, rows) for _, rows in right(*given)])
    with pytest.raises((AssertionError, ValueError)):
        assert_features_match(predictor, directory, (1, -1))


def test_one_text_and_no_texts(predictor):
    assert predictor.features("poem").values.shape == predictor.features(["poem"]).values.shape
    nothing = predictor.features([])
    assert (nothing.values.shape, nothing.offsets.tolist()) == ((0, 1, 32), [0])


@pytest.mark.parametrize("order", [1, -1])
def test_pairs_among_single_texts_are_refused(tokenizer, order):
    rows = [Row({"text": "The dog."}, "a.tsv", 1), Row({"text": "The dog.", "text_b": "A cat."}, "b.tsv", 2)][::order]
    with pytest.raises(UserError, match=f"{rows[1].file}.*, but the first example is"):
        frame_words(tokenizer, rows, 32)


def test_the_file_holds_the_same(predictor, tmp_path, monkeypatch):
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 40)  # several batches, written out of order
    rows = [Row({"text": text}, "a.tsv", 1) for text in TEXTS]
    counts = predictor.write_features(rows, (0, -1), tmp_path / "new" / FILE)
    expected = predictor.features(TEXTS, (0, -1))
    with safe_open(tmp_path / "new" / FILE, framework="pt") as file:
        assert set(file.keys()) == {"values", "offsets", "word_ids"}
        assert all(torch.equal(file.get_tensor(name), getattr(expected, name)) for name in file.keys())  # noqa: SIM118
        about = file.metadata()
    assert about["model"] == predictor.model.fingerprint()
    assert (about["layers"], about["texts"], about["cut"]) == ("0,3", "5", "1")
    tokens, notes = counts
    assert tokens == len(expected.values)
    assert notes[0] == "1 of 5 texts is longer than 32 tokens and was cut"
    assert [path.name for path in (tmp_path / "new").iterdir()] == [FILE]
    assert np.array_equal(open_table(tmp_path / "new" / FILE), expected.values.numpy())


@pytest.mark.bf16
def test_the_file_of_a_bf16_predictor_names_the_model_and_the_precision(directory, predictor, tmp_path):
    bf16 = unmask.load(directory, device="cpu", precision="bf16")
    bf16.write_features([Row({"text": text}, "a.tsv", 1) for text in TEXTS], (0, -1), tmp_path / FILE)
    with safe_open(tmp_path / FILE, framework="pt") as file:
        values, about = file.get_tensor("values"), file.metadata()
    assert (about["model"], about["precision"]) == (predictor.model.fingerprint(), "bf16")
    assert torch.equal(values, bf16.features(TEXTS, (0, -1)).values)
    torch.testing.assert_close(values, predictor.features(TEXTS, (0, -1)).values, rtol=0.1, atol=0.1)


def test_the_same_features_twice_are_equal_to_the_bit(predictor, tokenizer, tmp_path):
    words = frame_words(tokenizer, [Row({"text": text}, "", 0) for text in TEXTS], SETTINGS.positions)
    for name in ("a", "b"):
        rows = predictor.backend.layers(words.samples, (1, 3))
        write_features(tmp_path / name, rows, words.offsets, (2, 32), half=True)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    again = predictor.features(TEXTS, (1, 3)).values.half().numpy()
    assert np.array_equal(open_table(tmp_path / "a"), again)
    assert open_table(tmp_path / "a").dtype == np.float16


def test_rows_are_streamed_and_a_full_disk_leaves_nothing(predictor, tmp_path, monkeypatch):
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 16)
    words = frame_words(predictor.model.tokenizer, [Row({"text": text}, "", 0) for text in TEXTS], 32)
    computed = []

    def rows():
        for number, values in predictor.backend.layers(words.samples, (0,)):
            computed.append(number)
            if len(computed) == 3:
                assert (tmp_path / f".{FILE}.part").stat().st_size > 0  # rows are written as they are computed
                raise OSError(28, "No space left on device")
            yield number, values

    with pytest.raises(OSError, match="No space left"):
        write_features(tmp_path / FILE, rows(), words.offsets, (1, 32))
    assert not list(tmp_path.iterdir())


def test_values_out_of_range_of_float16_are_refused(tmp_path):
    rows = iter([(0, np.full((1, 1, 2), 1e6, np.float32))])
    with pytest.raises(UnmaskError, match="not finite in float16"):
        write_features(tmp_path / FILE, rows, np.array([0, 1]), (1, 2), half=True)


def test_a_layer_that_does_not_exist_is_refused(predictor):
    with pytest.raises(UserError, match="there is no layer 4; this model has 0"):
        predictor.features(["a"], [4])
