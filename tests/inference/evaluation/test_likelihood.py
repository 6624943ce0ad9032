"""Log-probabilities of tokens: ELMo's directions, batches, and which models are refused; see also tests/parity."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.tokens import Reading
from unmask.data.tokenizers.word_level import train_words
from unmask.families.bert import BertSettings
from unmask.families.elmo import ElmoSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.evaluation import likelihood as module
from unmask.inference.evaluation.likelihood import Likelihood
from unmask.model.model import Model
from unmask.objectives.bidirectional_lm import BidirectionalLM
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display

CPU = choose_machine("cpu", "float32")
SETTINGS = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=32, dropout=0.0, init_std=0.5)


def masked_lm(tokenizer):
    torch.manual_seed(0)
    encoder = SETTINGS.build(tokenizer.size)
    return Model(encoder, tokenizer, {"masked_lm": MaskedLM(BuildContext(encoder)).published()})


@pytest.fixture
def elmo(documents):
    torch.manual_seed(0)
    words = train_words(documents, size=30)
    encoder = ElmoSettings(layers=2, width=32, cells=24, characters=4, filters=((1, 8), (2, 8)), dropout=0.0).build(
        words.size
    )
    head = BidirectionalLM(16, 20)
    torch.nn.init.normal_(head.decoder)
    return Model(encoder, words, {"bidirectional_lm": head.published()}), head


def direction(model, head, ids, *, backward):
    """Return the log-probabilities of words in the order in which one direction reads them, a text alone."""
    order = [*ids[::-1]] if backward else [*ids]
    read = np.array([model.tokenizer.sep if backward else model.tokenizer.cls, *order])
    sample = Sample(key=(), ids=model.tokenizer.spell(read), reading=Reading(backward=backward))
    with torch.no_grad():
        states = model.encoder.eval()(collate([sample]).tokens).last[:-1]  # (words, width / 2)
        logits = (states @ head.decoder.T + head.bias).log_softmax(1)
    return [float(row[min(word, 19)]) for row, word in zip(logits, order, strict=True)]


def test_elmo_is_the_mean_of_both_directions(elmo, documents):
    model, head = elmo
    texts = [text[: 20 + number] for number, text in enumerate(documents[:60])]
    likelihood = Likelihood(TorchBackend(model, CPU))
    encoded = likelihood.encode(texts)
    for text, values in zip(encoded, likelihood(encoded), strict=True):
        forward = direction(model, head, text.ids.tolist(), backward=False)
        backward = direction(model, head, text.ids.tolist(), backward=True)
        np.testing.assert_allclose(values, (np.array(forward) + backward[::-1]) / 2, atol=1e-5)
    unknown = [likelihood.is_unknown(text.ids) for text in encoded]
    assert all((found == (text.ids >= 19)).all() for text, found in zip(encoded, unknown, strict=True))
    assert likelihood.description == "mean of both directions"


def test_blocks_batches_and_single_texts_have_the_same_scores(tokenizer, documents, monkeypatch):
    likelihood = Likelihood(TorchBackend(masked_lm(tokenizer), CPU))
    texts = likelihood.encode([text[: 5 + 3 * (number % 9)] for number, text in enumerate(documents[:60])])
    together = likelihood(texts)
    monkeypatch.setattr(module, "BLOCK", 100)
    blocks = list(likelihood.in_blocks(texts, Display(quiet=True)))
    for text, one, two in zip(texts, together, blocks, strict=True):
        assert one.dtype == np.float64
        np.testing.assert_allclose(one, two, atol=1e-5)
        np.testing.assert_allclose(one, likelihood([text])[0], atol=1e-5)
    assert list(likelihood.in_blocks([], Display(quiet=True))) == []


def test_a_text_without_tokens_has_no_scores(tokenizer, elmo):
    for model in (masked_lm(tokenizer), elmo[0]):
        likelihood = Likelihood(TorchBackend(model, CPU))
        (values,) = likelihood(likelihood.encode([" "]))
        assert values.shape == (0,)


def test_outputs_that_are_no_numbers_are_refused(tokenizer):
    model = masked_lm(tokenizer)
    with torch.no_grad():
        model.encoder.words.weight[tokenizer.mask] = float("nan")
    likelihood = Likelihood(TorchBackend(model, CPU))
    with pytest.raises(UserError, match="outputs are not numbers"):
        likelihood(likelihood.encode(["the dog"]))


def test_models_without_a_language_model_are_refused(tokenizer, elmo):
    model = masked_lm(tokenizer)
    for other, message in (
        (replace(model, heads={**model.heads, "replaced_token": {}}), "the discriminator of ELECTRA"),
        (replace(model, heads={}), "has no head of a language model; use a pretrained model"),
        (replace(model, heads={}, task=Classification()), "the model is fine-tuned, and has no head"),
        (replace(model, created=("the pooler", "1 special tokens")), "no trained weights of its special tokens"),
    ):
        with pytest.raises(UserError, match=message):
            Likelihood(TorchBackend(other, CPU))
    with pytest.raises(UserError, match="pll has no effect: the model is no masked language model"):
        Likelihood(TorchBackend(elmo[0], CPU), "original")
