import json

import numpy as np
import pytest

from unmask.batches.batch import Sample
from unmask.errors import UserError
from unmask.serving.pooling import Pooling, read_pooling

ROWS = [np.arange(6.0).reshape(3, 1, 2), np.array([[[3.0, 4.0]]])]
SAMPLES = [Sample(key=(), ids=np.zeros(len(rows)), positions={"summary": np.array([len(rows) - 1])}) for rows in ROWS]


def test_vectors_are_means_or_those_of_cls():
    mean = Pooling().vectors(ROWS, SAMPLES, normalize=False, dimensions=None)
    assert mean.tolist() == [[2, 3], [3, 4]]
    last = Pooling("cls").vectors(ROWS, SAMPLES, normalize=False, dimensions=None)
    assert last.tolist() == [[4, 5], [3, 4]]
    assert Pooling().vectors(ROWS, SAMPLES, normalize=True, dimensions=None)[1].tolist() == [0.6, 0.8]
    assert Pooling().vectors(ROWS, SAMPLES, normalize=True, dimensions=1).tolist() == [[1], [1]]


def test_sentence_transformers_files_are_read(tmp_path):
    assert read_pooling(tmp_path) == Pooling("mean", None)
    (tmp_path / "1_Pooling").mkdir()
    file = tmp_path / "1_Pooling" / "config.json"
    file.write_text(json.dumps({"word_embedding_dimension": 8, "pooling_mode_cls_token": True}))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 99}')
    assert read_pooling(tmp_path) == Pooling("cls", 99)
    for bad in ({"pooling_mode_max_tokens": True}, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}):
        file.write_text(json.dumps(bad))
        with pytest.raises(UserError, match="pooling is not supported"):
            read_pooling(tmp_path)
    file.write_text("[")
    with pytest.raises(UserError, match="not a JSON object"):
        read_pooling(tmp_path)


@pytest.mark.minilm
def test_a_published_model_states_mean_pooling_of_256_tokens(minilm):
    assert read_pooling(minilm) == Pooling("mean", 256)
