"""Replaced token detection, compared with the generator and discriminator of transformers; draws from the generator."""

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from transformers import ElectraForMaskedLM, ElectraForPreTraining

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import Masking, TokenMaskingSettings
from unmask.data.batches.rng import SampleRng
from unmask.families.albert import AlbertSettings
from unmask.families.checkpoints import huggingface
from unmask.families.electra import ElectraSettings
from unmask.nn.layers.vocabulary import draw
from unmask.objectives.learner import Learner, loss_weights
from unmask.objectives.objective import BuildContext
from unmask.objectives.replaced_token import GENERATOR, ReplacedTokenSettings, num_heads

VOCABULARY = 120
WORDS = "encoder.embeddings.words.weight"
SETTINGS = ElectraSettings(layers=2, width=64, heads=4, feed_forward=128, positions=64, embedding=16, dropout=0.0)
SHAPES = {"narrow": SETTINGS, "not narrow": msgspec.structs.replace(SETTINGS, embedding=None)}


def build(settings=SETTINGS, size=0.5):
    torch.manual_seed(0)
    objective = ReplacedTokenSettings(generator_size=size).build(BuildContext(settings.build(VOCABULARY)))
    learner = Learner(settings.build(VOCABULARY), {"replaced_token": objective}).eval()
    with torch.no_grad():
        for module in learner.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.mul_(5)
            if isinstance(module, torch.nn.Linear | torch.nn.LayerNorm):
                module.bias.normal_(0, 0.3)
        objective.generator.bias.normal_()
    return learner


def samples(number=6, seed=0):
    rng = np.random.default_rng(seed)
    mask = Masking(TokenMaskingSettings(rate=0.3), vocabulary=VOCABULARY, mask=4, special=frozenset(range(5)))
    made = []
    for index in range(number):
        sample = Frame(2, 3).wrap(*(rng.integers(5, VOCABULARY, rng.integers(1, 25)) for _ in range(2)))
        made.append(sample.named((0, index)))
    return mask(made, SampleRng(seed, "masking", [sample.key for sample in made]))


def theirs_of(learner, directory):
    """Return the generator and discriminator of transformers with our weights."""
    encoder, part = learner.encoder, learner.objectives["replaced_token"]
    huggingface.write(directory / "discriminator", encoder, {"replaced_token": part.state_dict()})
    width = part.generator.dense.in_features
    shape = msgspec.structs.replace(
        encoder.settings,
        width=width,
        heads=num_heads(width),
        feed_forward=part.generator.blocks[0].feed_forward.up.out_features,
        embedding=None if width == encoder.words.embedding_dim else encoder.words.embedding_dim,
    )
    shadow, own = shape.build(VOCABULARY), part.generator.state_dict()
    state = {name: value for name, value in own.items() if name.startswith("blocks.")}
    state |= {f"embeddings.{name}": value for name, value in own.items() if name.startswith("project.")}
    state |= {
        name: value
        for name, value in encoder.state_dict().items()
        if name.startswith("embeddings.") and "project" not in name
    }
    missing, unexpected = shadow.load_state_dict(state, strict=False)
    assert (set(missing), unexpected) == ({"pooler.weight", "pooler.bias"}, [])
    head = {name: value for name, value in own.items() if not name.startswith(("blocks.", "project."))}
    huggingface.write(directory / "generator", shadow, {"masked_lm": head})
    return (
        ElectraForMaskedLM.from_pretrained(directory / "generator").eval(),
        ElectraForPreTraining.from_pretrained(directory / "discriminator").eval(),
    )


def their_gradients(theirs, generator, directory):
    """Return gradients by our names; apart from embeddings, those of the generator belong to the objective."""
    directory.mkdir()  # gradients saved and read as weights get our names
    gradients = {key: value.grad for key, value in theirs.named_parameters() if value.grad is not None}
    safetensors.torch.save_file(gradients, directory / "model.safetensors")
    theirs.config.save_pretrained(directory)
    read, own, found = huggingface.read(directory), "objectives.replaced_token.", {}
    for key, value in read.encoder.items():
        if generator and key.startswith(("blocks.", "embeddings.project.")):
            found[f"{own}generator.{key.removeprefix('embeddings.')}"] = value
        else:
            found[f"encoder.{key}"] = value
    head = read.heads["masked_lm" if generator else "replaced_token"]
    return found | {f"{own}{'generator.' * generator}{key}": value for key, value in head.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_losses_are_those_of_transformers(shape, tmp_path):
    learner = build(SHAPES[shape])
    their_generator, discriminator = theirs_of(learner, tmp_path)
    prepared = [learner.prepare(sample) for sample in samples(60)]
    batch = collate(prepared)
    parts = learner(batch)
    sums = {"replaced_token": 0.0, GENERATOR: 0.0}
    replaced = 0
    for sample in prepared:
        asked = {"token_type_ids": torch.from_numpy(sample.segments)[None]}
        masked = torch.from_numpy(sample.positions["masked"])
        gold = torch.from_numpy(sample.labels["masked"])
        logits = their_generator(input_ids=torch.from_numpy(sample.ids)[None], **asked).logits[0, masked]
        sums[GENERATOR] = sums[GENERATOR] + cross_entropy(logits, gold, reduction="sum")
        below = logits.softmax(1).double().cumsum(1) <= torch.from_numpy(sample.labels["uniform"])[:, None]
        drawn = below.sum(1)
        ids = torch.from_numpy(sample.ids).index_copy(0, masked, drawn)
        labels = torch.zeros(len(ids)).index_copy(0, masked, (drawn != gold).float())
        replaced += int(labels.sum())
        found = discriminator(input_ids=ids[None], **asked).logits[0]
        sums["replaced_token"] = sums["replaced_token"] + binary_cross_entropy_with_logits(
            found, labels, reduction="sum"
        )
    assert 0 < replaced < batch.counts[GENERATOR], "some draws are correct, and count as original"
    assert batch.counts["replaced_token"] == sum(map(len, prepared)), "every token, including special ones"
    for name, value in sums.items():
        torch.testing.assert_close(parts[name].sum, value, rtol=2e-5, atol=0)
    assert int(parts["replaced_token"].metrics["baseline"]) == batch.counts["replaced_token"] - replaced
    for name, theirs in (("replaced_token", discriminator), (GENERATOR, their_generator)):
        learner.zero_grad()
        parts[name].sum.backward(retain_graph=True)
        sums[name].backward()
        expected = their_gradients(theirs, name == GENERATOR, tmp_path / f"{name} gradients")
        found = {key: value.grad.to_dense() for key, value in learner.named_parameters() if value.grad is not None}
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            first = int(key == WORDS)  # in transformers the embedding of padding, which may be drawn, has no gradient
            assert (found[key] - value)[first:].norm() <= 1e-4 * value[first:].norm(), key


def test_no_gradient_flows_through_the_draws():
    learner = build()
    learner(collate([learner.prepare(sample) for sample in samples()]))["replaced_token"].sum.backward()
    own = dict(learner.objectives["replaced_token"].named_parameters())
    assert {name for name, value in own.items() if value.grad is None} == {
        name for name in own if name.startswith("generator.")
    }


def test_the_weights_are_the_papers():
    assert loss_weights({"replaced_token": ReplacedTokenSettings()}) == {"replaced_token": 50.0, GENERATOR: 1.0}
    half = ReplacedTokenSettings(weight=2.0, generator_weight=3.0)
    assert loss_weights({"replaced_token": half}) == {"replaced_token": 2.0, GENERATOR: 3.0}


def test_weights_initialized_by_glorots_rule():
    """As tf.layers.dense does without an initializer; all other weights are initialized as in BERT."""
    shape = ElectraSettings(layers=1, width=256, heads=4, feed_forward=1024, embedding=128)
    head, encoder = ReplacedTokenSettings().build(BuildContext(shape.build(100))), shape.build(100)
    for layer in (encoder.embeddings.project, head.generator.project, head.out):
        variance = 2 / sum(layer.weight.shape)
        assert layer.weight.abs().max() <= (3 * variance) ** 0.5
        assert layer.weight.var().item() == pytest.approx(variance, rel=4 / layer.weight.numel() ** 0.5)
    assert max(layer.weight.abs().max() for layer in (head.dense, head.generator.dense)) <= 0.04
    albert = AlbertSettings(layers=1, width=256, heads=4, feed_forward=1024, embedding=128).build(100)
    assert albert.embeddings.project.weight.abs().max() <= 0.04


def test_the_generators_size():
    """A quarter as wide as the encoder, as many layers, heads of width 64 (section 3.2 and table 6)."""
    shape = ElectraSettings(layers=3, width=256, heads=4, feed_forward=1024, embedding=128)
    with torch.device("meta"):
        own = ReplacedTokenSettings().build(BuildContext(shape.build(VOCABULARY))).generator
    assert (
        len(own.blocks),
        own.dense.in_features,
        own.blocks[0].feed_forward.up.out_features,
        own.blocks[0].attention.spec.heads,
    ) == (3, 64, 256, 1)
    assert own.dense.out_features == 128


def test_draws_follow_their_probabilities():
    probabilities = torch.tensor([[0.5, 0.25, 0.0, 0.25], [0.0, 0.0, 1.0, 0.0]]).repeat(20_000, 1)
    drawn = draw(probabilities, torch.from_numpy(np.random.default_rng(0).random(40_000).astype(np.float32)))
    shares = torch.bincount(drawn[::2], minlength=4) / 20_000
    assert shares.tolist() == pytest.approx([0.5, 0.25, 0.0, 0.25], abs=0.01)
    assert set(drawn[1::2].tolist()) == {2}
    edges = draw(torch.tensor([[0.0, 0.5, 0.5, 0.0]] * 2), torch.tensor([0.0, 1 - 1e-7]))
    assert edges.tolist() == [1, 2], "never an id of probability 0"


def test_draws_differ_between_samples_and_epochs_but_not_between_splits():
    learner = build()

    def probabilities(seed, epoch=0):
        return [
            learner.prepare(sample.named((epoch, *sample.key[1:]))).labels["uniform"] for sample in samples(seed=seed)
        ]

    assert all(np.array_equal(one, other) for one, other in zip(probabilities(0), probabilities(0), strict=True))
    assert not any(
        np.array_equal(one, other) for one, other in zip(probabilities(0), probabilities(0, epoch=1), strict=True)
    )
    assert len({tuple(one[:1]) for one in probabilities(0)}) == len(probabilities(0))
    prepared = [learner.prepare(sample) for sample in samples()]
    whole, _ = learner.objectives["replaced_token"].before(learner.encoder, collate(prepared))
    ids = dict(zip(whole.keys, torch.split(whole.tokens.ids, whole.tokens.offsets.diff().tolist()), strict=True))
    for sample in prepared:
        alone, _ = learner.objectives["replaced_token"].before(learner.encoder, collate([sample]))
        assert alone.tokens.ids.tolist() == ids[sample.key].tolist()
        rest = np.setdiff1d(np.arange(len(sample)), sample.positions["masked"])
        assert np.array_equal(alone.tokens.ids.numpy()[rest], sample.ids[rest])


def objective():
    with torch.device("meta"):
        return ReplacedTokenSettings().build(BuildContext(SETTINGS.build(VOCABULARY)))


def test_a_discriminator_that_learned_nothing_causes_a_warning():
    one = objective()
    assert not objective().warnings("replaced_token", {"generator_loss": 0.5})
    # with one of eight tokens replaced, the loss of a constant is -(1/8 ln 1/8 + 7/8 ln 7/8) = 0.3768 nats
    found = [
        one.warnings("replaced_token", {"replaced_token_loss": loss, "replaced_token_baseline": 0.875})
        for loss in (0.339, 0.340)
    ]
    assert not found[0]
    assert "Start as a masked LM" in found[1][0]


def test_the_report_gives_the_accuracy_of_always_predicting_original():
    notes = objective().notes("replaced_token", {"replaced_token_baseline": 0.878}, {})
    assert notes == ["Always predicting that a token was not replaced would be right for 87.80 % of all tokens."]
