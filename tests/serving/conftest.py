"""Small random models of each kind by name, and a service with them."""

import pytest
import torch

pytest.importorskip("starlette", reason="starlette is not installed (the extra serve)")
from unmask.families.bert import BertSettings
from unmask.families.elmo import ElmoSettings
from unmask.families.xlnet import XlnetSettings
from unmask.inference.predictor import Predictor
from unmask.model import Model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.serving.app import Service
from unmask.serving.limits import Limits
from unmask.serving.metrics import Meter
from unmask.serving.served import Served
from unmask.tasks.classification import Classification
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.token_classification import TokenClassification
from unmask.tokenizers.word_level import train_words
from unmask.training.machine import choose_machine

SHAPE = {"layers": 2, "width": 32, "heads": 4, "feed_forward": 32, "positions": 128, "init_std": 0.3}
TASKS = {
    "classifier": (Classification(length=64, pairs=False), ("bad", "good")),
    "tagger": (TokenClassification(length=64), ("O", "B-ANIMAL", "I-ANIMAL", "B-PLANT", "I-PLANT", "B-SEA", "I-SEA")),
    "reader": (QuestionAnswering(length=64, question=16), ()),
}


def predictor(encoder, tokenizer, head, task=None, labels=()):
    """Return a predictor of a random encoder with a random head."""
    part = OBJECTIVES[head]().build(BuildContext(encoder)) if task is None else task.build(encoder.head, labels)
    model = Model(encoder, tokenizer, {head: part.published()}, labels, task)
    return Predictor(model, choose_machine("cpu", "float32"))


@pytest.fixture(scope="session")
def predictors(tokenizer, documents):
    """The models by name."""
    torch.manual_seed(3)
    bert, xlnet = BertSettings(**SHAPE).build(tokenizer.size), XlnetSettings(**SHAPE).build(tokenizer.size)
    words = train_words(documents, size=200)
    elmo = ElmoSettings(width=16, cells=16, filters=((1, 4), (2, 4)), characters=4).build(words.size)
    found = {
        "masked": predictor(bert, tokenizer, "masked_lm"),
        "permuted": predictor(xlnet, tokenizer, "permutation_lm"),
        "words": Predictor(Model(elmo, words), choose_machine("cpu", "float32")),
    }
    for name, (task, labels) in TASKS.items():
        found[name] = predictor(BertSettings(**SHAPE).build(tokenizer.size), tokenizer, task.part, task, labels)
    return found


@pytest.fixture(scope="session")
def playground(predictors):
    """The service of all models."""
    limits, meter = Limits(), Meter()
    service = Service([Served(name, one, limits, meter) for name, one in predictors.items()], limits, meter)
    yield service
    service.close()
