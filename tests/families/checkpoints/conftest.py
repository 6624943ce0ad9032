"""Models of all families, saved; helpers that change saved models, and that check how they are refused."""

import json
from functools import partial

import pytest
import safetensors.torch
import torch

from unmask.families import family_of
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.checkpoints import huggingface
from unmask.families.checkpoints.safetensors_file import INDEX
from unmask.families.deberta import DebertaSettings
from unmask.families.distilbert import DistilBertSettings
from unmask.families.electra import ElectraSettings
from unmask.families.eurobert import EuroBertSettings
from unmask.families.gpt import GptSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.mpnet import MpnetSettings
from unmask.families.neobert import NeoBertSettings
from unmask.families.nomicbert import NomicBertSettings
from unmask.families.roberta import RobertaSettings
from unmask.families.roformer import RoFormerSettings
from unmask.families.xlnet import XlnetSettings
from unmask.model.model import Model, load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, ClassificationHead

from ...hub_server import hub  # noqa: F401

SHAPES = {
    "roberta": RobertaSettings,
    "albert": partial(AlbertSettings, embedding=4),
    "albert, not shared": partial(AlbertSettings, embedding=4, shared="none"),
    "electra": partial(ElectraSettings, embedding=4),
    "distilbert": DistilBertSettings,
    "roformer": partial(RoFormerSettings, embedding=4),
    "openai-gpt": GptSettings,
    "modernbert": partial(ModernBertSettings, dropout=0.1),
    "mpnet": MpnetSettings,
    "nomic_bert": partial(NomicBertSettings, dropout=0.1),
    "eurobert": partial(EuroBertSettings, key_heads=1, dropout=0.1),
    "neobert": partial(NeoBertSettings, dropout=0.1),
    "deberta": partial(DebertaSettings, segments=2, buckets=4, distances=6, convolution=3),
    "xlnet": partial(XlnetSettings, memory=5),
}
UNTIED = ("eurobert", "neobert")
"""Families whose masked-LM head has a decoder of its own."""
HEADS = {"openai-gpt": "causal_lm", "electra": "replaced_token", "xlnet": "permutation_lm"}
VOCABULARY = 11


def small(settings, layers=2, **more):
    """Return settings of a small body; the width of GPT's feed-forward layers is not a setting."""
    inner = {} if settings is GptSettings else {"feed_forward": 16}
    return settings(layers=layers, width=8, heads=2, positions=12, **inner, **more)


def shape_of(name):
    return small(SHAPES[name])


def form_of(name):
    return family_of(shape_of(name)).format


BODIES = {
    **SHAPES,
    "bert": BertSettings,
    "electra, embeddings not narrow": partial(ElectraSettings, embedding=8),
    "albert, embeddings not narrow": partial(AlbertSettings, embedding=8),
    "all layers shared": AlbertSettings,
    "attention shared": partial(AlbertSettings, shared="attention"),
    "attention shared, embeddings narrow": partial(AlbertSettings, shared="attention", embedding=4),
}


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


def only_on_meta(encoder):
    assert all(value.is_meta for value in encoder.parameters()), "memory was allocated"
    return encoder


SMALL = BertSettings(layers=2, width=16, heads=2, feed_forward=24, positions=20)
DECODER = "cls.predictions.decoder.weight"
WORDS = "bert.embeddings.word_embeddings.weight"


def model(tokenizer, settings=SMALL, heads=("masked_lm", "next_sentence"), labels=()):
    encoder = settings.build(tokenizer.size)
    made = {name: OBJECTIVES[name]().build(BuildContext(settings.build(tokenizer.size))) for name in heads}
    if labels:
        made["classification"] = ClassificationHead(settings.head, len(labels))
    task = Classification(length=settings.positions) if labels else None
    for part in (encoder, *made.values()):
        for parameter in part.parameters():
            torch.nn.init.normal_(parameter)
    return Model(encoder, tokenizer, {name: head.state_dict() for name, head in made.items()}, labels, task)


def assert_same_model(found, expected):
    for ours, theirs in ((found.encoder, expected.encoder), *((found.heads[n], h) for n, h in expected.heads.items())):
        ours, theirs = (part if isinstance(part, dict) else part.state_dict() for part in (ours, theirs))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    assert found.heads.keys() == expected.heads.keys()
    assert found.labels == expected.labels


@pytest.fixture(autouse=True)
def _without_checksums(request, monkeypatch):
    """Let all tests but those of checksums change saved models."""
    if not request.module.__name__.endswith("test_checksums"):
        monkeypatch.setattr("unmask.model.directory.check_checksums", lambda directory: None)


@pytest.fixture(params=SHAPES)
def name(request):
    """The name of each family in turn."""
    return request.param


@pytest.fixture
def family_directory(name, tmp_path):
    """A model of the family `name` as `huggingface.write` writes it."""
    write(name, tmp_path)
    return tmp_path


@pytest.fixture
def directory(tokenizer, tmp_path):
    """A pretrained BERT as `save_model` saves it."""
    save_model(tmp_path / "saved", model(tokenizer), "card")
    return tmp_path / "saved"


def assert_read_refused(directory, *parts, **options):
    """Check that `huggingface.read` raises an error that names the directory and contains all parts."""
    with pytest.raises(UserError) as caught:
        huggingface.read(directory, **options)
    assert str(caught.value).startswith(str(directory))
    for part in parts:
        assert part in str(caught.value)


def assert_load_refused(directory, *parts, **options):
    """Check that `load_model` raises an error of one line that contains all parts; return it."""
    with pytest.raises(UserError) as caught:
        load_model(directory, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert all(str(part) in message for part in parts), message
    return message


def in_shards(directory, content, count=3):
    """Write the content of a safetensors file to a directory as shards with their index, as transformers does."""
    tensors, files = safetensors.torch.load(content), {}
    for number in range(count):
        name = f"model-{number + 1:05}-of-{count:05}.safetensors"
        part = {tensor: tensors[tensor] for tensor in sorted(tensors)[number::count]}
        safetensors.torch.save_file(part, directory / name)
        files |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": 0}, "weight_map": files}
    (directory / INDEX).write_text(json.dumps(index), encoding="utf8")
    return files
