"""What is written is read back, and is the same each time."""

import numpy as np
from unmask_structbert.word2vec import write_word2vec

from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model
from unmask.testing import check_exporter


def test_the_vectors_are_those_of_the_model(tmp_path):
    tokenizer = train_wordpiece(["the cat sat on the mat"], size=40)
    body = BertSettings(layers=1, width=8, heads=2, feed_forward=16, positions=16).build(tokenizer.size + 3)
    model = Model(body, tokenizer)
    assert write_word2vec(model, tmp_path) == ["layers and heads are left out"]
    header, *lines = (tmp_path / "vectors.txt").read_text(encoding="utf8").splitlines()
    assert header == f"{tokenizer.size} 8" and len(lines) == tokenizer.size
    for number, line in enumerate(lines):
        token, *values = line.split(" ")
        assert token == tokenizer.token(number)
        np.testing.assert_allclose(np.array(values, float), body.words.weight[number].tolist(), rtol=1e-5)
    save_model(tmp_path / "model", model, "")
    check_exporter("word2vec", tmp_path / "model", tmp_path)
