"""Log-probabilities of tokens beside plain loops over transformers' models, one text and one token at a time."""

import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM, OpenAIGPTLMHeadModel, RobertaForMaskedLM, XLNetLMHeadModel

from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.bert import BertSettings
from unmask.families.gpt import GptSettings
from unmask.families.roberta import RobertaSettings
from unmask.families.xlnet import XlnetSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.evaluation.likelihood import Likelihood
from unmask.model.model import Model, load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.training.machine import choose_machine

SHAPE = {"layers": 2, "width": 32, "heads": 4, "positions": 64, "dropout": 0.0, "init_std": 0.3}
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture
def sentences(documents):
    """36 texts of 1 to 12 words, some of them cut within a sentence; several words are of several tokens."""
    rng = np.random.default_rng(0)
    words = " ".join(documents).split()
    starts = rng.integers(0, len(words) - 40, 36)
    return [" ".join(words[start : start + 1 + number % 12]) for number, start in enumerate(starts)]


@pytest.fixture
def both(tokenizer, tmp_path):
    """Returns our model of a family, read from its directory, and transformers' of the same directory."""

    def build(settings, head, theirs, tokenizer=tokenizer):
        torch.manual_seed(0)
        encoder = settings.build(tokenizer.size)
        objective = OBJECTIVES[head]().build(BuildContext(encoder))
        for weight in objective.parameters():
            torch.nn.init.normal_(weight, std=0.3)
        save_model(tmp_path / "model", Model(encoder, tokenizer, {head: objective.published()}), "")
        other, report = theirs.from_pretrained(tmp_path / "model", output_loading_info=True)
        assert not report["missing_keys"]
        return load_model(tmp_path / "model"), other.eval()

    return build


def scores(model, texts, pll=None):
    likelihood = Likelihood(TorchBackend(model, choose_machine("cpu", "float32")), pll)
    return likelihood(likelihood.encode(texts))


@torch.no_grad()
def pseudo_loop(theirs, tokenizer, text, by_word):
    """Return log-probabilities, each token masked by itself, or with the later tokens of the same word."""
    ((ids, words),) = tokenizer.encode_words([text])
    found = []
    for index, id in enumerate(ids.tolist()):
        read = torch.tensor([[tokenizer.cls, *ids.tolist(), tokenizer.sep]])
        for other in range(index, len(ids)):
            if other == index or (by_word and words[other] == words[index]):
                read[0, 1 + other] = tokenizer.mask
        found.append(float(theirs(input_ids=read).logits[0, 1 + index].log_softmax(0)[id]))
    return found


@pytest.mark.parametrize("pll", ["original", "word-l2r"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pseudo_log_likelihood(both, documents, sentences, family, pll):
    if family == "bert":
        tokenizer = train_wordpiece(documents, size=100)
        model, other = both(BertSettings(**SHAPE, feed_forward=64), "masked_lm", BertForMaskedLM, tokenizer)
    else:
        tokenizer = train_bpe(documents, size=400)
        settings = RobertaSettings(**SHAPE, feed_forward=64)
        model, other = both(settings, "masked_lm", RobertaForMaskedLM, tokenizer)
    plain, found = scores(model, sentences), scores(model, sentences, pll)
    several = [len(ids) > len(set(words.tolist())) for ids, words in tokenizer.encode_words(sentences)]
    for text, values, original, has in zip(sentences, found, plain, several, strict=True):
        np.testing.assert_allclose(values, pseudo_loop(other, tokenizer, text, pll == "word-l2r"), **CLOSE)
        assert np.array_equal(values, original) == (pll == "original" or not has)
    assert sum(several) > 18


def test_causal_log_likelihood_is_the_loss_of_transformers(both, tokenizer, sentences):
    model, other = both(GptSettings(**SHAPE), "causal_lm", OpenAIGPTLMHeadModel)
    for text, values in zip(sentences, scores(model, sentences), strict=True):
        ids = torch.tensor([[tokenizer.cls, *tokenizer.encode(text).tolist()]])
        with torch.no_grad():
            loss = float(other(input_ids=ids, labels=ids).loss)
        assert -values.mean() == pytest.approx(loss, abs=1e-5)


def test_without_a_trained_start_token_the_first_token_is_uniform(both, tokenizer, sentences):
    model, other = both(GptSettings(**SHAPE), "causal_lm", OpenAIGPTLMHeadModel)
    published = Model(model.encoder, model.tokenizer, model.heads, created=("4 special tokens",))
    for text, values in zip(sentences, scores(published, sentences), strict=True):
        ids = torch.tensor([tokenizer.encode(text).tolist()])
        assert values[0] == pytest.approx(-np.log(tokenizer.size))
        with torch.no_grad():
            logits = other(input_ids=ids).logits[0, :-1].log_softmax(1)
        np.testing.assert_allclose(values[1:], logits.gather(1, ids[0, 1:, None])[:, 0], **CLOSE)


def test_the_factorization_of_xlnet_is_from_left_to_right(both, tokenizer, sentences):
    """Where a query sees nothing, transformers attends to all tokens: the first one is compared with no others."""
    settings = XlnetSettings(layers=2, width=32, heads=4, feed_forward=64, dropout=0.0, init_std=0.3)
    model, other = both(settings, "permutation_lm", XLNetLMHeadModel)
    found = scores(model, sentences)
    for text, values in zip(sentences, found, strict=True):
        ids = tokenizer.encode(text).tolist()
        read = torch.tensor([[*ids, tokenizer.sep, tokenizer.cls]])
        length = read.shape[1]
        perm_mask = torch.ones(1, length, length).triu()
        targets = torch.eye(length)[None, : len(ids)]
        segments = torch.tensor([[0] * (length - 1) + [2]])
        with torch.no_grad():
            out = other(input_ids=read, token_type_ids=segments, perm_mask=perm_mask, target_mapping=targets)
        theirs = out.logits[0].log_softmax(1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        np.testing.assert_allclose(values[1:], theirs[1:], **CLOSE)
    first = {text.split()[0]: [] for text in sentences}
    for text, values in zip(sentences, found, strict=True):
        first[text.split()[0]].append(values[0])
    assert all(np.ptp(values) < 1e-5 for values in first.values()), "nothing is seen of what follows"
