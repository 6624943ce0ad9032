"""The rows of new tokens are means, the predictions of old tokens hardly change, and layers are those of the model.

The learner starts from random weights or from a model, and reports what the model lacks.
"""

import msgspec
import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.extend import learn_tokens, old_ids
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.deberta import DebertaSettings
from unmask.families.distilbert import DistilBertSettings
from unmask.families.electra import ElectraSettings
from unmask.families.elmo import ElmoSettings
from unmask.families.gpt import GptSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.mpnet import MpnetSettings
from unmask.families.roberta import RobertaSettings
from unmask.families.roformer import RoFormerSettings
from unmask.model.model import Model, load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.workflows.pretraining import start
from unmask.workflows.pretraining.start import (
    adapt,
    begin_decoders,
    build_learner,
    extend_vocabulary,
    load_base,
    spread,
)

SIZE = {"layers": 4, "width": 32, "heads": 4, "positions": 32, "init_std": 0.3}
INNER = {**SIZE, "feed_forward": 48}
FAMILIES = {
    "bert": (BertSettings(**INNER), ("masked_lm", "next_sentence")),
    "spanbert": (BertSettings(**INNER), ("masked_lm", "span_boundary")),
    "roberta": (RobertaSettings(**INNER), ("masked_lm",)),
    "albert": (AlbertSettings(**INNER, embedding=16), ("masked_lm", "sentence_order")),
    "albert, not shared": (AlbertSettings(**INNER, embedding=16, shared="none"), ("masked_lm",)),
    "electra": (ElectraSettings(**INNER, embedding=16), ("replaced_token",)),
    "roformer": (RoFormerSettings(**INNER), ("masked_lm",)),
    "mpnet": (MpnetSettings(**INNER), ("masked_lm",)),
    "deberta": (DebertaSettings(**INNER, buckets=8, distances=16), ("masked_lm",)),
    "distilbert": (DistilBertSettings(**INNER), ("masked_lm",)),
    "gpt": (GptSettings(**SIZE), ("causal_lm",)),
}
TIED = {"masked_lm", "span_boundary", "causal_lm"}
"""Heads with logits over the vocabulary."""


def objectives(names):
    return {name: OBJECTIVES[name]() for name in names}


def make(tokenizer, settings, names, more=0):
    """Return a random model whose vocabulary has `more` rows beyond those of the tokenizer."""
    torch.manual_seed(1)
    body = settings.build(tokenizer.size + more)
    heads = {name: OBJECTIVES[name]().build(BuildContext(body, None, tokenizer.size)) for name in names}
    for module in (body, *heads.values()):
        for value in module.parameters():
            torch.nn.init.normal_(value, std=0.3)
    return Model(body.eval(), tokenizer, {name: head.state_dict() for name, head in heads.items()})


@pytest.fixture(scope="session")
def extended(tokenizer):
    """The tokenizer of the tests, extended by two words."""
    return learn_tokens(tokenizer, ["The hepatitis near the nephritis."] * 5, add=2).tokenizer


def predict(model, name, ids):
    """Return the logits of a head at each token of a text of two tokens or more."""
    sample = Frame(cls=2, sep=3).wrap(np.array(ids)).named((0,))
    inside = np.arange(1, len(sample) - 1)
    spans = {"span_left": inside - 1, "span_right": inside + 1}
    sample = sample.add(
        positions={"masked": inside, "next": inside, **spans}, labels={"span_place": inside * 0, "masked": inside}
    )
    head = OBJECTIVES[name]().build(BuildContext(model.encoder))
    model.take(name, head)
    batch = collate([sample])
    with torch.no_grad():
        encoded = model.encoder.eval()(batch.tokens)
        return head.eval().predict(model.encoder, encoded, batch)


@pytest.mark.parametrize("more", [0, 1, 8], ids=["no spare rows", "one", "more than needed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_new_rows_are_the_means_of_old_ones(tokenizer, extended, family, more):
    settings, names = FAMILIES[family]
    old = make(tokenizer, settings, names, more)
    new, changes = adapt(old, "MODEL", extended, objectives(names))
    assert changes == ["vocabulary extended by 2 tokens; their rows are the means of their old tokens' rows"]
    assert new.tokenizer.sha256 == extended.sha256
    assert new.encoder.vocabulary == tokenizer.size + max(2, more)
    parts = old_ids(tokenizer, extended)
    before, after = old.encoder.state_dict(), new.encoder.state_dict()
    for name in ("embeddings.words.weight", *(["bias"] if TIED & {*names} else [])):
        if name == "bias":
            head = next(iter(TIED & {*names}))
            if "bias" not in old.heads[head]:  # the causal LM's decoder has none
                continue
            first, then = old.heads[head][name], new.heads[head][name]
        else:
            first, then = before[name], after[name]
        assert torch.equal(then[: tokenizer.size], first[: tokenizer.size])
        for row, ids in zip(then[tokenizer.size :], parts, strict=False):
            fewer = np.log(len(ids)) if name == "bias" else 0
            assert torch.allclose(row, first[ids].mean(0) - fewer, atol=1e-6)
        assert torch.equal(then[tokenizer.size + 2 :], first[tokenizer.size + 2 :])
    same = [name for name in before if name != "embeddings.words.weight"]
    assert all(torch.equal(before[name], after[name]) for name in same)


def test_both_biases_of_electra_s_generator_and_of_span_boundaries_grow(tokenizer, extended):
    parts = old_ids(tokenizer, extended)
    for family, head, name in (
        ("electra", "replaced_token", "generator.bias"),
        ("spanbert", "span_boundary", "bias"),
    ):
        old = make(tokenizer, *FAMILIES[family])
        new = extend_vocabulary(old, extended, objectives(FAMILIES[family][1]))
        bias = new.heads[head][name]
        assert bias.shape == (extended.size,)
        for value, ids in zip(bias[tokenizer.size :], parts, strict=True):
            assert torch.allclose(value, old.heads[head][name][ids].mean() - np.log(len(ids)))


def test_tensors_of_the_size_of_the_vocabulary_by_accident_are_kept(tokenizer, extended):
    """Here the vocabulary is as large as a layer is wide: shapes alone do not tell them apart."""
    settings = BertSettings(layers=1, width=tokenizer.size, heads=1, feed_forward=tokenizer.size, positions=8)
    old = make(tokenizer, settings, ("masked_lm",))
    new = extend_vocabulary(old, extended, objectives(["masked_lm"]))
    kept = {name for name, value in old.heads["masked_lm"].items() if torch.equal(value, new.heads["masked_lm"][name])}
    assert old.heads["masked_lm"].keys() - kept == {"bias"}
    assert new.heads["masked_lm"]["norm.weight"].shape == (tokenizer.size,)


@pytest.mark.parametrize("family", [name for name, (_, heads) in FAMILIES.items() if TIED & {*heads}])
def test_the_logit_of_a_new_token_follows_from_those_of_its_old_tokens(tokenizer, extended, family):
    settings, names = FAMILIES[family]
    name = next(iter(TIED & {*names}))
    old = make(tokenizer, settings, names)
    new = extend_vocabulary(old, extended, objectives(names))
    text = tokenizer.encode("the dog sees the cat near the sea").tolist()
    before, after = predict(old, name, text), predict(new, name, text)
    assert torch.allclose(after[:, : tokenizer.size], before, atol=1e-5)
    parts = old_ids(tokenizer, extended)
    share = [1 if name == "causal_lm" else len(ids) for ids in parts]  # whose decoder has no bias
    for logit, ids, number in zip(after[:, tokenizer.size :].T, parts, share, strict=True):
        assert torch.allclose(logit, before[:, ids].mean(1) - np.log(number), atol=1e-4)
    # so the loss at old tokens rises by at most log(1 + the sum of the mean probabilities of the old tokens)
    probabilities = before.softmax(1)
    bound = torch.log1p(sum(probabilities[:, ids].mean(1) / number for ids, number in zip(parts, share, strict=True)))
    rises = after.logsumexp(1) - before.logsumexp(1)
    assert ((rises >= -1e-5) & (rises <= bound + 1e-5)).all()


@pytest.mark.parametrize("fault", ["sum", "old rows", "one id too early", "biases without log k"])
def test_a_planted_fault_is_found(tokenizer, extended, monkeypatch, fault):
    def wrong(value, first, parts, unknown, right=start.with_means):
        if fault == "sum":
            return torch.cat([value[:first], torch.stack([value[ids].sum(0) for ids in parts])])
        if fault == "biases without log k":
            return torch.cat([value[:first], torch.stack([value[ids].mean(0) for ids in parts])])
        if fault == "old rows":
            return right(value.flip(0), first, parts, unknown)
        return torch.cat([value[: first - 1], right(value, first, parts, unknown)[first:], value[first - 1 : first]])

    monkeypatch.setattr(start, "with_means", wrong)
    with pytest.raises(AssertionError):
        test_new_rows_are_the_means_of_old_ones(tokenizer, extended, "bert", 0)


def test_rows_of_unknown_characters_are_drawn_like_the_old_ones(tokenizer):
    letters = [chr(code) for code in range(0x10D0, 0x10F0)]
    extended = learn_tokens(
        tokenizer, [" ".join(f"{first}{second}" for first in letters for second in letters)], add=64
    )
    new = extended.tokenizer
    assert new.size == tokenizer.size + 64
    assert old_ids(tokenizer, new) == [[tokenizer.unk]] * 64
    model = make(tokenizer, *FAMILIES["bert"])
    grown = extend_vocabulary(model, new, objectives(FAMILIES["bert"][1]))
    old, rows = model.encoder.words.weight, grown.encoder.words.weight[tokenizer.size :]
    assert len(rows.unique(dim=0)) == 64, "the model can tell them apart"
    assert torch.allclose(rows.mean(), old.mean(), atol=0.05)
    assert torch.allclose(rows.std(), old.std(), rtol=0.1)
    biases = grown.heads["masked_lm"]["bias"][tokenizer.size :]
    assert torch.allclose(biases, model.heads["masked_lm"]["bias"].mean().expand(64), atol=1e-6)
    again = extend_vocabulary(model, new, objectives(FAMILIES["bert"][1]))
    assert torch.equal(again.encoder.words.weight[tokenizer.size :], rows)


def test_transformers_reads_the_extended_model(tokenizer, extended, tmp_path):
    model = extend_vocabulary(make(tokenizer, *FAMILIES["bert"]), extended, objectives(FAMILIES["bert"][1]))
    save_model(tmp_path, model, "")
    theirs = BertForMaskedLM.from_pretrained(tmp_path).eval()
    ids = extended.encode("the hepatitis near the nephritis").tolist()
    framed = torch.tensor([[extended.cls, *ids, extended.sep]])
    with torch.no_grad():
        expected = theirs(framed).logits[0, 1:-1]
    assert expected.shape[1] == extended.size
    assert torch.allclose(predict(model, "masked_lm", ids), expected, atol=1e-4)
    assert torch.allclose(predict(load_model(tmp_path), "masked_lm", ids), expected, atol=1e-4)


def test_layers_are_spread_evenly():
    assert spread(6, 12) == [0, 2, 4, 7, 9, 11], "as in the initialization of DistilBERT"
    assert spread(4, 22, 3) == [0, 1, 2, 21]
    assert spread(10, 22, 3) == [0, 1, 2, 9, 10, 11, 18, 19, 20, 21], "whole periods of ModernBERT's layers"
    assert [spread(count, 4) for count in (1, 2, 3)] == [[0], [0, 3], [0, 2, 3]]
    for total in range(2, 50):
        for count in range(2, total):
            kept = spread(count, total)
            assert (kept[0], kept[-1], len({*kept})) == (0, total - 1, count)
            assert kept == sorted(kept)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "albert"])
def test_the_kept_layers_compute_as_before(tokenizer, family):
    settings, names = FAMILIES[family]
    old = make(tokenizer, settings, names)
    new, changes = adapt(old, "MODEL", tokenizer, objectives(names), layers=3)
    assert changes == ["the new body has layers 1, 3, 4 of the 4 layers of MODEL"]
    assert (new.encoder.num_layers, new.encoder.settings.layers) == (3, 3)
    old.encoder.blocks = torch.nn.ModuleList(old.encoder.blocks[number] for number in (0, 2, 3))
    old.encoder.num_layers = 3
    assert new.encoder.state_dict().keys() == old.encoder.state_dict().keys()
    assert all(torch.equal(value, new.encoder.state_dict()[name]) for name, value in old.encoder.state_dict().items())
    if family != "electra":
        assert new.heads == old.heads
        return
    generator = {name for name in new.heads["replaced_token"] if name.startswith("generator.blocks.")}
    assert {name.split(".")[2] for name in generator} == {"0", "1", "2"}
    for name in generator:
        number = int(name.split(".")[2])
        source = name.replace(f"blocks.{number}", f"blocks.{(0, 2, 3)[number]}")
        assert torch.equal(new.heads["replaced_token"][name], old.heads["replaced_token"][source])
    OBJECTIVES["replaced_token"]().build(BuildContext(new.encoder)).load_state_dict(new.heads["replaced_token"])


def test_layers_that_alternate_keep_their_pattern(tokenizer):
    """ModernBERT's global and local layers, with their rotations and the two that normalize input and output."""
    shape = {"width": 16, "heads": 2, "feed_forward": 24, "global_every": 2, "window": 2}
    model = Model(ModernBertSettings(layers=7, **shape).build(tokenizer.size), tokenizer, {})
    with pytest.raises(UserError, match=r"layers=4: the layers of MODEL alternate .* a period of 2; choose 1, 3, 5"):
        adapt(model, "MODEL", tokenizer, {}, layers=4)
    new, _ = adapt(model, "MODEL", tokenizer, {}, layers=5)
    body = model.encoder
    tokens = collate([Sample(key=(0,), ids=np.arange(5, 17))]).tokens
    body.blocks = torch.nn.ModuleList(body.blocks[number] for number in (0, 1, 4, 5, 6))
    body.num_layers = 5
    assert new.encoder.eval()(tokens).last.equal(body.eval()(tokens).last)


def test_the_kept_layers_of_two_language_models_compute_as_before(tokenizer):
    shape = ElmoSettings(layers=3, width=16, cells=16, filters=((1, 8), (3, 24)))
    old = Model(shape.build(20), tokenizer, {})
    new, _ = adapt(old, "MODEL", tokenizer, {}, layers=2)
    body = old.encoder
    body.forward_lm, body.backward_lm = (
        torch.nn.ModuleList(layers[number] for number in (0, 2)) for layers in (body.forward_lm, body.backward_lm)
    )
    expected = body.state_dict()
    assert new.encoder.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in new.encoder.state_dict().items())


@pytest.mark.parametrize(
    ("family", "layers", "message"),
    [
        ("bert", 0, "layers=0: not a whole number of 1 or more"),
        ("bert", 4, "layers=4 is not smaller than the number of layers of MODEL, 4; omit it, or choose"),
        ("bert", 5, "layers=5 is not smaller"),
        ("albert", 2, "layers cannot select layers of MODEL, because they share their weights; omit layers"),
    ],
)
def test_layers_that_cannot_be_selected(tokenizer, family, layers, message):
    settings, names = FAMILIES[family]
    with pytest.raises(UserError, match=message):
        adapt(make(tokenizer, settings, names), "MODEL", tokenizer, objectives(names), layers=layers)


def test_a_corpus_of_another_tokenizer_is_refused_with_the_difference(tokenizer, corpus, tmp_path):
    model = {**tokenizer.definition["model"]}
    vocabulary = {**model["vocab"], "dog": model["vocab"]["cat"], "cat": model["vocab"]["dog"]}
    other = tokenizer.with_model({**model, "vocab": vocabulary})
    save_model(tmp_path / "model", Model(FAMILIES["bert"][0].build(other.size), other), "")
    message = (
        r"the tokenizer of .* or with one that extends it: token \d+ is '(cat|dog)' instead of '(cat|dog)'; rebuild"
    )
    with pytest.raises(UserError, match=message):
        load_base(tmp_path / "model", read_recipe("bert-tiny", {"layout.length": 32}), corpus, allow_pickle=False)


def test_a_published_discriminator_keeps_its_head(corpus, tmp_path):
    """It comes without its generator, which is newly initialized."""
    shape = ["encoder.layers=1", "encoder.width=64", "encoder.heads=2", "stages=[]"]
    recipe = read_recipe("electra-mini", parse_overrides(shape))
    first, _ = build_learner(recipe, corpus.tokenizer.size, None)
    head = {
        name: value for name, value in first.parts["replaced_token"].state_dict().items() if "generator" not in name
    }
    save_model(tmp_path, Model(first.encoder, corpus.tokenizer, {"replaced_token": head}), "")
    learner, created = build_learner(recipe, corpus.tokenizer.size, load_model(tmp_path))
    assert created == ["the pooler", "the generator"]
    for name, value in learner.parts["replaced_token"].state_dict().items():
        assert torch.equal(value, head[name]) if name in head else name.startswith("generator.")
    assert len(head) == 4


@pytest.mark.parametrize("more", [0, 8])
def test_decoders_begin_at_the_frequencies_of_tokens(more):
    """Rows of a published model that are no tokens are as rare as tokens that do not occur."""
    head = OBJECTIVES["masked_lm"]().build(BuildContext(BertSettings(**INNER).build(100 + more), tokenizer_size=100))
    counts = np.arange(100)
    begin_decoders([head], counts)
    smoothed = np.append(counts, np.zeros(more)) + 0.1
    np.testing.assert_allclose(head.bias.softmax(0).detach().numpy(), smoothed / smoothed.sum(), rtol=1e-5)


def test_a_learner_from_scratch_is_determined_by_the_seed(recipe, corpus):
    def weights(seed):
        learner, created = build_learner(msgspec.structs.replace(recipe, seed=seed), corpus.tokenizer.size, None)
        assert created == []
        assert learner.parts.keys() == recipe.objectives.keys()
        return learner.state_dict()

    first, again, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    for name in ("encoder.embeddings.words.weight", "objectives.masked_lm.dense.weight"):
        assert not torch.equal(first[name], other[name]), name
