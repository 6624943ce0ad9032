import msgspec
import pytest

from unmask.serving import types
from unmask.tasks.routes import PredictRequest, Request


@pytest.mark.parametrize("kind", Request.__subclasses__())
def test_unknown_fields_are_refused(kind):
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"no_such_field": 1}, kind)


def test_defaults_are_those_of_text_embeddings_inference():
    embed = msgspec.convert({"inputs": "a"}, types.EmbedRequest)
    assert (embed.normalize, embed.truncate) == (True, False)
    predict = msgspec.convert({"inputs": "a"}, PredictRequest)
    assert (predict.raw_scores, predict.truncate) == (False, False)
