"""The files of sentence-transformers are read and written; vectors are those of transformers with this pooling."""

import json

import numpy as np
import pytest
import torch
import transformers

from unmask.families.bert import BertSettings
from unmask.families.checkpoints.sentence_files import read_pooling
from unmask.families.checkpoints.sentence_modules import Pooling, write_pooling
from unmask.inference.load import load
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.support.errors import InputWarning, UserError


@pytest.mark.parametrize("kind", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("length", [None, 40])
def test_what_is_written_is_read(tmp_path, kind, normalize, length):
    pooling = Pooling(kind=kind, normalize=normalize, length=length)
    assert read_pooling(tmp_path) is None
    write_pooling(tmp_path, pooling, 48)
    assert read_pooling(tmp_path) == pooling
    config = json.loads((tmp_path / "1_Pooling/config.json").read_text())
    assert config["word_embedding_dimension"] == 48
    assert config["pooling_mode_cls_token"] == (kind == "cls") != config["pooling_mode_mean_tokens"]


@pytest.mark.parametrize(
    ("config", "found", "unsupported"),
    [
        ({"pooling_mode": "cls"}, "cls", ""),
        ({"pooling_mode_max_tokens": True}, "max", ""),
        ({"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}, "mean", "pooling by cls and max"),
    ],
)
def test_other_kinds_of_pooling_are_noted(tmp_path, config, found, unsupported):
    write_pooling(tmp_path, Pooling(), 48)
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(config))
    pooling = read_pooling(tmp_path)
    assert pooling.kind == found
    assert pooling.unsupported.startswith(unsupported) and bool(pooling.unsupported) == bool(unsupported)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not valid JSON"),
        ("{}{}", "not valid JSON"),
        ("[3]", "not a list of modules"),
        ('[{"type": "x.Pooling", "path": "a", "path": "b"}]', "duplicate key 'path'"),
        ('[{"type": "x.Pooling", "path": "../a"}]', r"the path '\.\./a' is outside of the directory"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, message):
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read_pooling(tmp_path)


TEXTS = ["A man is playing a guitar.", "Someone plays music!", "The stock market fell " * 90]


def test_vectors_are_those_of_the_published_model(minilm, tmp_path):
    predictor = load(minilm, device="cpu")
    assert predictor.model.pooling == Pooling(kind="mean", normalize=True, length=256)
    with pytest.warns(InputWarning, match="1 of 3 texts is longer than 256 tokens"):
        found = predictor.embed(TEXTS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    theirs = transformers.AutoModel.from_pretrained(minilm).eval()
    with torch.no_grad():
        inputs = tokenizer(TEXTS, padding=True, truncation=True, max_length=256, return_tensors="pt")
        states, mask = theirs(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
    mean = (states * mask).sum(1) / mask.sum(1)
    expected = torch.nn.functional.normalize(mean).numpy()
    assert np.abs(found - expected).max() < 1e-5
    assert found[0] @ found[1] > found[0] @ found[2]
    first = predictor.embed(TEXTS[:2], pooling="cls", normalize=False)
    assert np.abs(first - states[:2, 0].numpy()).max() < 1e-4
    save_model(tmp_path / "saved", predictor.model, "# Vectors")
    assert load_model(tmp_path / "saved").pooling == predictor.model.pooling


@pytest.mark.parametrize("name", ["model_head.pkl", "config_setfit.json"])
def test_a_classifier_of_setfit_is_named_and_never_opened(tokenizer, tmp_path, name):
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=16, positions=16)
    save_model(tmp_path, Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    write_pooling(tmp_path, Pooling(), 16)
    (tmp_path / name).write_bytes(b"not a pickle")
    with pytest.warns(InputWarning, match=r"SetFit's classifier \(model_head\.pkl\) is not read, .* fine-tune it for"):
        assert load_model(tmp_path).task is None
