"""What BERT's directories survive (test_huggingface.py), those of its family do: RELIABILITY C4 to C7, C15, C16."""

import json
import socket
import struct
from functools import partial

import msgspec
import pytest
import safetensors.torch
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.checkpoints import huggingface
from unmask.errors import UserError
from unmask.evaluation.model import evaluate_encoder
from unmask.families import family_of
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.distilbert import DistilBertSettings
from unmask.families.electra import ElectraSettings
from unmask.families.gpt import GptSettings
from unmask.families.roberta import RobertaSettings
from unmask.families.roformer import RoFormerSettings
from unmask.model import Model, load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.pretraining.pretrain import pretrain
from unmask.recipe import read_recipe
from unmask.settings import parse_overrides
from unmask.tasks.classification import ClassificationHead
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.train import train_tokenizer
from unmask.training.machine import choose_machine

SHAPES = {
    "roberta": RobertaSettings,
    "albert": partial(AlbertSettings, embedding=4),
    "albert, not shared": partial(AlbertSettings, embedding=4, shared="none"),
    "electra": partial(ElectraSettings, embedding=4),
    "distilbert": DistilBertSettings,
    "roformer": partial(RoFormerSettings, embedding=4),
    "openai-gpt": GptSettings,
}
HEADS = {"openai-gpt": "causal_lm", "electra": "replaced_token"}
VOCABULARY = 11


def small(settings, layers=2, **more):
    """A body of one of the families; GPT's feed-forward layers have their width by themselves."""
    inner = {} if settings is GptSettings else {"feed_forward": 16}
    return settings(layers=layers, width=8, heads=2, positions=12, **inner, **more)


def shape_of(name):
    return small(SHAPES[name])


def form_of(name):
    return family_of(shape_of(name)).format


@pytest.fixture(params=SHAPES)
def name(request):
    return request.param


@pytest.fixture
def directory(name, tmp_path):
    write(name, tmp_path)
    return tmp_path


def write(name, directory):
    head = HEADS.get(name, "masked_lm")
    encoder = shape_of(name).build(VOCABULARY)
    part = OBJECTIVES[head]().build(BuildContext(encoder))
    huggingface.write(directory, encoder, {head: part.state_dict()})


def weights(directory):
    return safetensors.torch.load_file(directory / "model.safetensors")


def put(directory, tensors):
    safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})


def configure(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(directory, *said, **options):
    with pytest.raises(UserError) as caught:
        huggingface.read(directory, **options)
    assert str(caught.value).startswith(str(directory))
    for text in said:
        assert text in str(caught.value)


@pytest.mark.parametrize("layers", [1, 3, 10**9, 10**18])
def test_C4_another_number_of_layers(name, directory, layers):
    family = form_of(name)
    key = family.config["layers"]
    configure(directory, **{key: layers})
    if name == "albert" and layers < 10:  # of layers that are the same one is stored, whatever their number
        assert huggingface.read(directory).settings.layers == layers
        configure(directory, **{key: 3, "num_hidden_groups": 3})
    if name == "albert, not shared":
        configure(directory, num_hidden_groups=layers)
    refused(directory, "layers")


def only_on_meta(encoder):
    assert all(value.is_meta for value in encoder.parameters()), "memory was allocated"
    return encoder


def test_C5_a_huge_size_is_refused_before_allocation(name, directory, monkeypatch):
    build = type(shape_of(name)).build
    monkeypatch.setattr(type(shape_of(name)), "build", lambda *args: only_on_meta(build(*args)))
    monkeypatch.setattr(huggingface, "read_tensors", lambda *args: pytest.fail("weights were read"))
    family = form_of(name)
    every = ("width", "embedding", "feed_forward", "positions", "segments")
    sizes = [family.config[key] for key in every if key in family.config]
    assert ("embedding_size" in sizes) == (family.model_type in ("albert", "electra"))
    whole = (directory / "config.json").read_text()
    for key in ("vocab_size", *sizes):
        configure(directory, **{key: 10**10})
        refused(directory, *(("has shape", str(10**10)) if key == "vocab_size" else ("must be at most", "not")))
        (directory / "config.json").write_text(whole)


@pytest.fixture
def no_network(monkeypatch):
    """Notes whoever asks for the network, should the refusal be caught, and fails in the end."""
    asked = []

    def refuse(*arguments, **options):
        asked.append(arguments)
        raise OSError("no network here")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    yield
    assert not asked


@pytest.mark.usefixtures("no_network")
def test_C6_code_beside_the_weights_is_not_executed(directory, tmp_path):
    marker = tmp_path / "executed"
    (directory / "modeling_evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    code = {"AutoConfig": "nobody/evil--modeling_evil.Config", "AutoModel": "modeling_evil.Model"}
    configure(directory, auto_map=code, trust_remote_code=True)
    huggingface.read(directory)
    assert not marker.exists()


def word_bpe(directory):
    """GPT's kind, which is not trained here."""
    letters = "abcdefghijklmnopqrstuvwxyz.,"
    pieces = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>"]
    (directory / "vocab.json").write_text(json.dumps({piece: id for id, piece in enumerate(pieces)}))
    (directory / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\n")
    return load_tokenizer(directory)


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        *(("wordpiece", "vocab.txt"), ("bpe", "vocab.json"), ("word_bpe", "vocab.json")),
        *((kind, "tokenizer.json") for kind in ("wordpiece", "bpe", "word_bpe", "unigram")),
    ],
)
@pytest.mark.usefixtures("no_network")
def test_C6_code_beside_the_tokenizer_is_not_executed(kind, file, documents, tmp_path):
    """Nor is it looked for elsewhere, where `auto_map` says that another repository has it."""
    (tmp_path / "words").mkdir()
    if kind == "word_bpe":
        tokenizer = word_bpe(tmp_path / "words")
    else:
        tokenizer = train_tokenizer(kind, documents, size=350, lowercase=True)
    directory, marker = tmp_path / "model", tmp_path / "executed"
    shape = msgspec.structs.replace(shape_of("roberta"), offset=tokenizer.pad + 1)
    save_model(directory, Model(shape.build(tokenizer.size), tokenizer), "")
    (directory / "tokenization_evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    path, code = directory / "tokenizer_config.json", ["nobody/evil--tokenization_evil.Slow", "tokenization_evil.Fast"]
    more = {"tokenizer_class": "Fast", "auto_map": {"AutoTokenizer": code}, "trust_remote_code": True}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    if file != "tokenizer.json":
        (directory / "tokenizer.json").unlink()
    found = load_model(directory).tokenizer
    assert (found.kind.name, found.encode("The dog.").tolist()) == (kind, tokenizer.encode("The dog.").tolist())
    assert not marker.exists()


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit",)


def test_C7_pickles_are_read_on_request_and_hold_tensors_alone(directory):
    state = weights(directory)
    expected = huggingface.read(directory)
    (directory / "model.safetensors").unlink()
    torch.save(state, directory / "pytorch_model.bin")
    refused(directory, "pickled weights can execute arbitrary code")
    found = huggingface.read(directory, allow_pickle=True)
    assert found.encoder.keys() == expected.encoder.keys()
    assert all(torch.equal(value, expected.encoder[key]) for key, value in found.encoder.items())
    torch.save({**state, "evil": Evil()}, directory / "pytorch_model.bin")
    refused(directory, "contains other objects than tensors", allow_pickle=True)


def test_C15_partial_weights_are_refused(name, directory):
    """Whichever tensor of the encoder is missing, or part of the head."""
    tensors, family = weights(directory), form_of(name)
    head = family.heads[HEADS.get(name, "masked_lm")]
    optional = ("unmask.", "roformer.encoder.embed_positions")  # what follows from the settings
    lacking = [key for key in tensors if not key.startswith(optional)]
    assert len(lacking) > 10
    for key in lacking:
        put(directory, {other: value for other, value in tensors.items() if other != key})
        refused(directory, key.removeprefix(family.prefix), "missing")
    assert all(any(key.startswith(part) for key in lacking) for part in head.values())


@pytest.mark.parametrize("family", ["roberta", "electra", "albert", "distilbert"])
def test_C15_a_classifier_without_what_it_reads_is_refused(family, tmp_path):
    encoder, names = shape_of(family).build(VOCABULARY), form_of(family)
    head = ClassificationHead(encoder.head, 2)
    huggingface.write(tmp_path, encoder, {"classification": head.state_dict()}, ("a", "b"))
    assert "classification" in huggingface.read(tmp_path).heads
    tensors, pooler = weights(tmp_path), names.head_pooler or names.pooler
    lost = {name for name in tensors if name.removeprefix(names.prefix).startswith(f"{pooler}.")}
    put(tmp_path, {name: value for name, value in tensors.items() if name not in lost})
    refused(tmp_path, f"{pooler}.weight, which the classifier reads, is missing")


def test_positions_begin_after_the_padding_of_the_vocabulary(tokenizer, tmp_path):
    """In transformers the id of padding decides; another one than the tokenizer's shifts all positions."""
    shape = msgspec.structs.replace(shape_of("roberta"), offset=tokenizer.pad + 1)
    save_model(tmp_path, Model(shape.build(tokenizer.size), tokenizer), "")
    assert load_model(tmp_path).encoder.settings.offset == 1
    configure(tmp_path, pad_token_id=1, max_position_embeddings=shape.positions + 1)
    with pytest.raises(UserError, match=r"the padding id in config.json differs from that of the tokenizer, 0"):
        load_model(tmp_path)
    tokenizer.save(tmp_path / "words")
    with pytest.raises(
        UserError, match=r"of roberta-mini does not match the padding id of this vocabulary, 0; .* offset=1"
    ):
        load_model("random:roberta-mini", tokenizer=tmp_path / "words")
    for strange in (None, "1"):
        configure(tmp_path, pad_token_id=strange)
        refused(tmp_path, "pad_token_id must be an integer")


HEAD_DROPOUTS = {
    "albert": "classifier_dropout_prob",
    "distilbert": "seq_classif_dropout",
    "openai-gpt": "unmask_head_dropout",  # it has none of its own
}


def test_dropout_before_the_last_layer_is_read_and_written(name, directory):
    key = HEAD_DROPOUTS.get(name.partition(",")[0], "classifier_dropout")
    settings = huggingface.read(directory).settings
    assert (settings.dropout, settings.head_dropout, settings.before_last) == (0.1, None, 0.1)
    configure(directory, **{key: 0.3})
    settings = huggingface.read(directory).settings
    assert (settings.dropout, settings.before_last) == (0.1, 0.3)
    assert ClassificationHead(settings.head, 2).dropout.rate == 0.3
    huggingface.write(directory / "again", settings.build(VOCABULARY), {})
    assert huggingface.read(directory / "again").settings == settings
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({one: value for one, value in config.items() if one != key}))
    expected = {"albert": 0.1, "distilbert": 0.2}.get(name.partition(",")[0], 0.1)
    assert huggingface.read(directory).settings.before_last == expected, "what transformers takes then"
    for wrong in (1.0, -0.1, "0.1"):
        configure(directory, **{key: wrong})
        refused(directory, "not a valid config of a")


BODIES = {
    **SHAPES,
    "bert": BertSettings,
    "electra, embeddings not narrow": partial(ElectraSettings, embedding=8),
    "albert, embeddings not narrow": partial(AlbertSettings, embedding=8),
    "all layers shared": AlbertSettings,
    "attention shared": partial(AlbertSettings, shared="attention"),
    "attention shared, embeddings narrow": partial(AlbertSettings, shared="attention", embedding=4),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_body_comes_back_as_it_was(body, tmp_path):
    encoder = small(BODIES[body], init_std=0.5).build(VOCABULARY)
    huggingface.write(tmp_path, encoder, {})
    found = huggingface.read(tmp_path)
    assert found.settings == encoder.settings
    if body not in ("all layers shared", "attention shared"):  # that nothing is projected there only the weights tell
        assert huggingface.read_settings(tmp_path) == encoder.settings
    again, state = found.settings.build(VOCABULARY), encoder.state_dict()
    missing, unknown = again.load_state_dict(found.encoder, strict=False)
    assert not unknown and all(name.startswith("pooler.") for name in missing)
    assert again.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in found.encoder.items())


@pytest.mark.parametrize("shape", ["electra", "albert", "bert"])
def test_C15_the_pooler_that_a_head_reads_must_be_there(shape, tokenizer, tmp_path):
    encoder = small(BODIES[shape], layers=1).build(tokenizer.size)
    heads = {name: OBJECTIVES[name]().build(BuildContext(encoder)) for name in ("masked_lm", "sentence_order")}
    save_model(tmp_path, Model(encoder, tokenizer, {name: part.published() for name, part in heads.items()}), "")
    load_model(tmp_path)
    put(tmp_path, {name: value for name, value in weights(tmp_path).items() if "pooler" not in name})
    with pytest.raises(UserError, match=r"model.safetensors: the pooler that the sentence_order head reads is missing"):
        load_model(tmp_path)


@pytest.mark.parametrize("shape", ["roberta", "electra", "distilbert", "bert"])
@pytest.mark.parametrize("head", ["next_sentence", "sentence_order"])
def test_a_head_that_reads_the_pooler_comes_back_with_it(shape, head, tmp_path):
    encoder = small(BODIES[shape], layers=1).build(VOCABULARY)
    parts = {name: OBJECTIVES[name]().build(BuildContext(encoder)) for name in (head, "masked_lm")}
    huggingface.write(tmp_path, encoder, {name: part.published() for name, part in parts.items()})
    found = huggingface.read(tmp_path)
    assert found.heads.keys() == parts.keys()
    assert torch.equal(found.encoder["pooler.weight"], encoder.pooler.weight)
    assert torch.equal(found.encoder["pooler.bias"], encoder.pooler.bias)
    if (own := "unmask.pooler.weight") in (tensors := weights(tmp_path)):
        put(tmp_path, {**tensors, own: torch.zeros(3, 8)})
        refused(tmp_path, own, "has shape (3, 8)")


@pytest.fixture
def pretrained(tokenizer, tmp_path):
    """Writes a model with a span boundary head or a generator, with tensors changed; returns what reads it."""

    def write(head, **changes):
        encoder = BertSettings(layers=1, width=8, heads=2, feed_forward=16, positions=12).build(tokenizer.size)
        part = OBJECTIVES[head]().build(BuildContext(encoder))
        save_model(tmp_path, Model(encoder, tokenizer, {head: part.published()}), "")
        kept = weights(tmp_path) | {f"unmask.{name}": value for name, value in changes.items()}
        put(tmp_path, {name: value for name, value in kept.items() if value is not None})
        (tmp_path / "text.txt").write_text("The dog. The cat.\n\nThe sea. The house.\n")
        return lambda: evaluate_encoder(load_model(tmp_path), [tmp_path / "text.txt"])

    return write


@pytest.mark.parametrize(
    ("head", "name", "value", "message"),
    [
        (
            "span_boundary",
            "span_boundary.first.weight",
            torch.zeros(3, 3),
            "first.weight of the span_boundary head has",
        ),
        ("span_boundary", "span_boundary.places.weight", torch.zeros(3), "the tensors of the span_boundary head are"),
        ("span_boundary", "span_boundary.bias", None, "bias of the span_boundary head is missing"),
        ("span_boundary", "span_boundary.more", torch.zeros(3), "more of the span_boundary head is unknown"),
        ("replaced_token", "replaced_token.generator.dense.weight", torch.zeros(3), "the replaced_token head"),
        ("replaced_token", "replaced_token.generator.dense.weight", torch.zeros(4, 99), "the tensors of the replaced"),
        ("replaced_token", "replaced_token.generator.bias", None, "generator.bias of the replaced_token head is miss"),
        (
            "replaced_token",
            "replaced_token.generator.bias",
            torch.zeros(7),
            r"generator.bias of the replaced_token head has shape \(7,\), but its settings imply",
        ),
        ("span_boundary", "nonsense.a", torch.zeros(3), "unknown head 'nonsense'"),
    ],
)
def test_C15_damaged_heads_of_ours_are_refused(pretrained, head, name, value, message):
    with pytest.raises(UserError, match=message):
        pretrained(head, **{name: value})()


def test_a_generator_with_another_vocabulary_does_not_go_on(pretrained, corpus, tmp_path):
    pretrained("replaced_token", **{"replaced_token.generator.bias": torch.zeros(7)})
    recipe = read_recipe("electra-mini", parse_overrides(["layout.length=12", "budget.steps=1"]))
    with pytest.raises(UserError, match=r"generator.bias of the replaced_token head has shape \(7,\)"):
        pretrain(recipe, corpus, tmp_path / "run", init=tmp_path, machine=choose_machine("cpu", "float32"), quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_head_of_other_settings_does_not_go_on(pretrained, tmp_path):
    pretrained("span_boundary")
    other = OBJECTIVES["span_boundary"](places=10)
    base = load_model(tmp_path)
    with pytest.raises(UserError, match=r"places.weight of the span_boundary head has shape .* use the settings of"):
        base.take("span_boundary", other.build(BuildContext(base.encoder)))


def test_a_wrong_shape_is_refused(name, directory):
    tensors, family = weights(directory), form_of(name)
    for key in tensors:
        if key.startswith("unmask."):
            continue
        put(directory, tensors | {key: torch.ones(3, 5)})
        refused(directory, key.removeprefix(family.prefix).rpartition(".")[0])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A directory of each family, with its file's content."""
    found = {}
    for name in SHAPES:
        directory = tmp_path_factory.mktemp("tiny")
        write(name, directory)
        found[name] = directory, (directory / "model.safetensors").read_bytes()
    return found


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(SHAPES)),
    flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_C16_flipped_bytes_of_the_header_raise_nothing_but_user_errors(tiny, name, flips):
    directory, whole = tiny[name]
    content = bytearray(whole)
    for place, byte in flips:
        content[int(place * (8 + struct.unpack("<Q", whole[:8])[0]))] = byte
    (directory / "model.safetensors").write_bytes(content)
    try:
        found = huggingface.read(directory)
    except UserError as error:
        assert str(error).startswith(f"{directory}/model.safetensors: ")
    else:  # what was hit is not the encoder's
        assert found.encoder.keys() <= found.settings.build(VOCABULARY).state_dict().keys()


def assert_read_as(found, expected):
    assert found.settings == expected.settings
    assert found.heads.keys() == expected.heads.keys()
    for ours, theirs in [(found.encoder, expected.encoder), *((found.heads[n], h) for n, h in expected.heads.items())]:
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[key]) for key, value in ours.items())


def position_ids(family):
    inside = "" if family.model_type == "openai-gpt" else "embeddings."
    return {f"{family.prefix}{inside}position_ids": torch.arange(12)[None]}


DECODER_BIASES = {"roberta": "lm_head.decoder.bias", "albert": "predictions.decoder.bias"}
"""What is tied to the head's bias; in the other families that is the decoder's own."""
VARIANTS = {  # as published files have them; BERT's are in test_huggingface.py
    "without the prefix": lambda family, tensors: {
        name.removeprefix(family.prefix): value for name, value in tensors.items()
    },
    "position ids": lambda family, tensors: tensors | position_ids(family),
    "position ids, without the prefix": lambda family, tensors: {
        name.removeprefix(family.prefix): value for name, value in (tensors | position_ids(family)).items()
    },
    "a tied decoder": lambda family, tensors: (
        tensors | {family.decoder: tensors[family.prefix + family.embeddings["embeddings.words.weight"]].clone()}
    ),
    "its bias": lambda family, tensors: (
        tensors | {DECODER_BIASES[family.model_type]: tensors[family.heads["masked_lm"]["bias"]].clone()}
    ),
}


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        (name, one)
        for one in VARIANTS
        for name in SHAPES
        if one != "its bias" or name.partition(",")[0] in DECODER_BIASES
    ],
)
def test_variants_are_read(name, variant, directory):
    expected, before = huggingface.read(directory), weights(directory)
    put(directory, after := VARIANTS[variant](form_of(name), before))
    assert after.keys() != before.keys()
    assert_read_as(huggingface.read(directory), expected)


def test_all_that_their_state_holds_is_read(name, directory, tmp_path):
    """With what is tied, as older versions of transformers stored it."""
    (kind,) = json.loads((directory / "config.json").read_text())["architectures"]
    theirs, family = getattr(transformers, kind).from_pretrained(directory), form_of(name)
    theirs.save_pretrained(tmp_path / "theirs")
    expected, state = huggingface.read(tmp_path / "theirs"), theirs.state_dict()
    tied = {family.decoder, DECODER_BIASES.get(family.model_type, family.decoder)}
    assert (tied <= state.keys()) == (name != "electra"), "whose discriminator has no decoder"
    put(tmp_path / "theirs", {key: value.clone() for key, value in state.items()})
    assert_read_as(huggingface.read(tmp_path / "theirs"), expected)


def test_the_decoder_serves_where_the_table_of_tokens_is_not_stored(name, directory):
    """Of tied tensors transformers stores one, and not always the same."""
    tensors, family = weights(directory), form_of(name)
    words = next(key for key in tensors if key.endswith(family.embeddings["embeddings.words.weight"]))
    expected = huggingface.read(directory).encoder["embeddings.words.weight"]
    put(directory, {**{key: value for key, value in tensors.items() if key != words}, family.decoder: tensors[words]})
    assert torch.equal(huggingface.read(directory).encoder["embeddings.words.weight"], expected)
