"""ELMo's layers equal bilm-tf's: recorded states of small published models, whose state goes on from text to text."""

import json

import numpy as np
import pytest
import torch

from unmask.layers import lstm
from unmask.layers.characters import CharacterCnn
from unmask.layers.lstm import Lstm
from unmask.tokenizers.spelling import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD, PADDING

h5py = pytest.importorskip("h5py")
FILTERS = [(1, 4), (2, 8), (3, 16), (4, 32), (5, 64)]
SENTENCES = {"allennlp": "sentences.json", "bilm-tf": "lm_embeddings_sentences.json"}
STREAMS, TEXTS = 3, 10
"""Each stream reads ten texts, one after the other."""


def word(content):
    ids = [BEGIN_WORD, *content[:48], END_WORD]
    return ids + [PADDING] * (50 - len(ids))


def load_cnn(weights):
    cnn = CharacterCnn(4, FILTERS, 2, 16)
    state = {"characters.weight": weights["char_embed"][:]}
    for number in range(len(FILTERS)):
        kernel = weights[f"CNN/W_cnn_{number}"][0]  # (size, width of the embeddings, filters)
        state[f"filters.{number}.weight"] = kernel.transpose(2, 1, 0).reshape(kernel.shape[2], -1)
        state[f"filters.{number}.bias"] = weights[f"CNN/b_cnn_{number}"][:]
    for number in range(2):
        for ours, theirs in (("gate", "carry"), ("transform", "transform")):
            state[f"highways.{number}.{ours}.weight"] = weights[f"CNN_high_{number}/W_{theirs}"][:].T
            state[f"highways.{number}.{ours}.bias"] = weights[f"CNN_high_{number}/b_{theirs}"][:]
    state["project.weight"], state["project.bias"] = weights["CNN_proj/W_proj"][:].T, weights["CNN_proj/b_proj"][:]
    cnn.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in state.items()})
    return cnn


def load_lstm(weights, direction, number):
    cell = weights[f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"]
    layer = Lstm(16, 64, clip=3.0)

    def rows(x):  # theirs: input, new, forget (to which TensorFlow adds 1), output
        enter, new, forget, leave = np.split(x, 4)
        return np.concatenate([enter, forget, leave, new])

    bias = rows(cell["B"][:])
    bias[64:128] += 1
    gates = rows(cell["W_0"][:].T)
    state = {
        "input.weight": gates[:, :16],
        "input.bias": bias,
        "recurrent.weight": gates[:, 16:],
        "project.weight": cell["W_P_0"][:].T,
    }
    layer.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in state.items()})
    return layer


@torch.no_grad()
def differences(folder, sentences):
    """Return the largest difference to each recorded text."""
    options = json.loads((folder / "options.json").read_text())
    texts = json.loads((folder / sentences).read_text())
    found = []
    with h5py.File(folder / "lm_weights.hdf5") as weights:
        cnn = load_cnn(weights)
        layers = {direction: [load_lstm(weights, direction, number) for number in range(2)] for direction in (0, 1)}
    for stream in range(STREAMS):
        recorded = h5py.File(folder / f"lm_embeddings_{stream}.hdf5")
        states = {direction: [layer.start(1) for layer in layers[direction]] for direction in layers}
        for index, text in enumerate(texts[stream]):
            words = [word(each.encode()) for each in text.split()]
            x = cnn(torch.tensor([word([BEGIN_SENTENCE]), *words, word([END_SENTENCE])]))
            for direction in layers:
                y = x.flip(0) if direction else x
                for number, layer in enumerate(layers[direction]):
                    out, states[direction][number] = layer(y, [1] * len(y), states[direction][number])
                    y = out + y if number and options["lstm"]["use_skip_connections"] else out
                y = y.flip(0) if direction else y
                theirs = torch.from_numpy(recorded[str(index)][direction])
                found.append((y[1:-1] - theirs).abs().max().item())
    return found


@pytest.mark.parametrize("name", SENTENCES)
def test_layers_reproduce_recorded_states(shared, name):
    found = differences(shared / "checkpoints" / f"elmo-fixture-{name}", SENTENCES[name])
    assert len(found) == STREAMS * TEXTS * 2
    assert max(found) < 3e-6


def test_the_comparison_notices_states_that_are_not_clipped(shared, monkeypatch):
    monkeypatch.setattr(lstm, "_clip", lambda x, limit: None)
    found = differences(shared / "checkpoints" / "elmo-fixture-allennlp", SENTENCES["allennlp"])
    assert max(found) > 1e-5
