"""ELMo equals AllenNLP's and bilm-tf's: recorded states of small published models, whose state goes on from text to
text, read from their files, and read again from ours."""

import json

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.tokens import Reading
from unmask.families.checkpoints import allennlp
from unmask.model.model import load_model
from unmask.nn.layers import lstm

h5py = pytest.importorskip("h5py")
SENTENCES = {"allennlp": "sentences.json", "bilm-tf": "lm_embeddings_sentences.json"}
STREAMS, TEXTS = 3, 10
"""Each stream reads ten texts, one after the other."""


def samples(tokenizer, text):
    """Return a text of separate words to be read forwards, and the same to be read backwards."""
    ids = np.concatenate([[tokenizer.cls], *tokenizer.encode_separately(text.split()), [tokenizer.sep]])
    forward, backward = tokenizer.spell(ids), tokenizer.spell(ids[::-1])
    return [
        Sample(key=(0,), ids=forward, reading=Reading(backward=False)),
        Sample(key=(1,), ids=backward, reading=Reading(backward=True)),
    ]


@torch.no_grad()
def differences(model, folder, sentences, streams=STREAMS):
    """Return the largest difference to each recorded text in each direction."""
    texts, body, found = json.loads((folder / sentences).read_text()), model.encoder.eval(), []
    for stream in range(streams):
        recorded, carry = h5py.File(folder / f"lm_embeddings_{stream}.hdf5"), body.start(2)
        for index, text in enumerate(texts[stream]):
            encoded = body(collate(samples(model.tokenizer, text)).tokens, carry=carry)
            carry = encoded.carry
            forward, backward = encoded.last.chunk(2)  # (tokens, width) each
            states = torch.stack([forward[1:-1], backward.flip(0)[1:-1]])  # (directions, words, width)
            theirs = torch.from_numpy(recorded[str(index)][()])
            found += (states - theirs).abs().amax((1, 2)).tolist()
    return found


@pytest.fixture
def fixture(shared, request):
    """A model of a published directory, the directory, and the file of its texts."""
    folder = shared / "checkpoints" / f"elmo-fixture-{request.param}"
    return load_model(folder), folder, SENTENCES[request.param]


@pytest.mark.shared
@pytest.mark.parametrize("fixture", SENTENCES, indirect=True)
def test_recorded_states(fixture, tmp_path):
    model, folder, sentences = fixture
    found = differences(model, folder, sentences)
    assert len(found) == STREAMS * TEXTS * 2
    assert max(found) < 3e-6
    allennlp.write(tmp_path, model.encoder, model.tokenizer.tokens(range(model.tokenizer.size)))
    assert differences(load_model(tmp_path), folder, sentences) == found


@pytest.mark.shared
@pytest.mark.parametrize("fixture", ["allennlp"], indirect=True)
def test_recorded_vectors_of_words(fixture):
    """The convolutions alone: AllenNLP's own, over the words of a file."""
    model, folder, _ = fixture
    words = (folder / "vocab_test.txt").read_text().splitlines()
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        theirs = torch.from_numpy(file["embedding"][()])
    ids = np.concatenate(model.tokenizer.encode_separately(words))
    with torch.no_grad():
        ours = model.encoder.characters(torch.from_numpy(model.tokenizer.spell(ids)).long())
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.shared
@pytest.mark.parametrize("fixture", ["allennlp"], indirect=True)
@pytest.mark.parametrize("planted", ["clip", "residual", "forget", "state", "direction"])
def test_the_comparison_notices(fixture, planted, monkeypatch):
    model, folder, sentences = fixture
    body = model.encoder
    if planted == "clip":
        monkeypatch.setattr(lstm, "_clip", lambda x, limit: None)
    elif planted == "residual":
        body.residual = False
    elif planted == "forget":
        body.forward_lm[0].input.bias.data[64:128] -= 1
    elif planted == "state":
        forward, fresh = body.forward, body.start(2)
        monkeypatch.setattr(body, "forward", lambda tokens, carry: forward(tokens, carry=fresh))
    else:
        body.forward_lm, body.backward_lm = body.backward_lm, body.forward_lm
    assert max(differences(model, folder, sentences, streams=1)) > 1e-5
