"""Hugging Face's directories: `config.json`, `model.safetensors`, and a tokenizer beside them.

In: a directory of one of the families in this room, with or without the prefix of its body, with the old names `gamma`
and `beta`, with any set of heads. Out: settings, the encoder's tensors under our names, and those heads that we know.
And the way back: which family an encoder is written as follows from its settings.

Nothing of a directory is executed: `config.json` is read as data (`auto_map` and its like are ignored), pickled weights
are refused unless they are asked for, and then read with `weights_only`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import safetensors.torch
import torch
from torch import Tensor

from unmask.checkpoints.albert import ALBERT
from unmask.checkpoints.bert import BERT
from unmask.checkpoints.check import check, check_decoder
from unmask.checkpoints.distilbert import DISTILBERT
from unmask.checkpoints.electra import ELECTRA
from unmask.checkpoints.family import Family
from unmask.checkpoints.heads import (
    OWN,
    OWN_POOLER,
    POOLED,
    find_heads,
    find_own,
    head_name,
    of_classifier,
    read_labels,
)
from unmask.checkpoints.openai_gpt import OPENAI_GPT
from unmask.checkpoints.roberta import ROBERTA
from unmask.checkpoints.safetensors_file import checked, read_shapes, read_tensors
from unmask.encoders.transformer import Transformer, TransformerSettings
from unmask.errors import UserError, nearest

FAMILIES = {family.model_type: family for family in (BERT, ROBERTA, ALBERT, ELECTRA, DISTILBERT, OPENAI_GPT)}
"""By model_type in config.json."""
OUR_KEY = "unmask"
"""Under this name config.json holds what the model is for."""
SHARED_KEY = "unmask_shared"
"""Under this name config.json says which sublayer is the same in all layers, where transformers has a copy in each."""


@dataclass(frozen=True)
class Pretrained:
    """What a directory holds.

    Attributes:
        settings, vocabulary: the encoder's shape.
        encoder: its tensors under our names; the pooler's may be missing.
        heads: tensors of each head found, under our names.
        labels: of the classification or token classification head, in order.
        task: how we wrote down what the model is for; none where others made the directory.
    """

    settings: TransformerSettings
    vocabulary: int
    encoder: Mapping[str, Tensor]
    heads: Mapping[str, Mapping[str, Tensor]]
    labels: tuple[str, ...] = field(default=())
    task: Mapping[str, Any] | None = None


def read_settings(directory: Path) -> TransformerSettings:
    """Read the shape of a directory's encoder from its config alone.

    Raises:
        UserError: see `read`.
    """
    path = directory / "config.json"
    config = _read_config(path)
    return _settings(_family(config, path), config, path)[0]


def read(directory: Path, *, allow_pickle: bool = False) -> Pretrained:
    """Read a directory.

    Raises:
        UserError: not of a family that is known, a damaged or incomplete file, shapes that do not fit the config;
            names file and tensor.
    """
    config_file = directory / "config.json"
    config = _read_config(config_file)
    family = _family(config, config_file)
    settings, vocabulary = _settings(family, config, config_file)
    path, shapes, pickled = _open(directory, allow_pickle)
    theirs = {_modern(family, name): name for name in shapes}
    if len(theirs) != len(shapes):
        raise UserError(
            f"two tensors have the same name but for the '{family.prefix}' prefix or gamma and beta", file=path
        )
    words = family.embeddings["embeddings.words.weight"]
    if words not in theirs and family.decoder in theirs:  # of what is tied a file may hold either
        theirs[words] = theirs.pop(family.decoder)
    check(family, settings, vocabulary, {name: shapes[old] for name, old in theirs.items()}, path)

    known = [name for name in theirs if _is_known(family, name)]
    if pickled is None:
        found = read_tensors(path, [theirs[name] for name in known])
    else:
        found = {theirs[name]: checked(pickled[theirs[name]], name, path) for name in known}
    tensors = {name: found[theirs[name]] for name in known}
    check_decoder(family, tensors, path)
    if settings.shared == "all" and settings.embedding == settings.width and _projects_nothing(family, tensors):
        settings = msgspec.structs.replace(settings, embedding=None)
    task = config.get(OUR_KEY)
    heads = find_own(tensors)
    if not isinstance(task, dict) or "downstream" not in task:
        for head, names in find_heads(family, tensors, path, of_classifier(family, config, tensors, path)).items():
            heads[head] = {**names, **heads.get(head, {})}  # of ELECTRA's the generator is our own
    return Pretrained(
        settings,
        vocabulary,
        _take_encoder(family, settings, tensors, path),
        {head: {ours: tensors[name] for ours, name in names.items()} for head, names in heads.items()},
        read_labels(config, config_file, tensors, heads),
        task if isinstance(task, dict) else None,
    )


def write(
    directory: Path,
    encoder: Transformer,
    heads: Mapping[str, Mapping[str, Tensor]],
    labels: Sequence[str] = (),
    task: Mapping[str, Any] | None = None,
    pad: int = 0,
) -> None:
    """Write `config.json` and `model.safetensors`; the tied decoder is not stored.

    Args:
        directory: is created.
        encoder: the body.
        heads: tensors by our head's name and part, as in `Pretrained`; with a "downstream" the names are ours.
        labels: of the classification or token classification head, in order.
        task: what the model is for, written into config.json for us.
        pad: the id of padding.
    """
    directory.mkdir(parents=True, exist_ok=True)
    settings, state = encoder.settings, encoder.state_dict()
    family = family_of(settings)
    known = () if "downstream" in heads else tuple(sorted(heads.keys() & family.heads.keys()))
    architecture = family.architectures.get(known, family.architectures[()])
    prefix = "" if architecture == family.architectures[()] else family.prefix
    if settings.embedding is None:  # ALBERT's projection, where none is needed
        state["embeddings.project.weight"] = torch.eye(settings.width)
        state["embeddings.project.bias"] = torch.zeros(settings.width)
    tensors = {}
    for ours, names in family.tensors(settings):
        for name, value in zip(names, state[ours].chunk(len(names)), strict=True):
            tensors[prefix + name] = (value.t() if family.lies_across(ours) else value).clone()
    pooler = _pooler(family, architecture, prefix, known)
    if not pooler and heads.keys() & POOLED:
        pooler = OWN_POOLER
    if pooler:
        tensors |= {f"{pooler}.{kind}": state[f"pooler.{kind}"] for kind in ("weight", "bias")}
    for head, values in heads.items():
        for ours, value in values.items():
            name = head_name(family, head, ours) if head in known else ""
            tensors[name or f"{OWN}{head}.{ours}"] = value
    plain = {name: value.detach().cpu().float().contiguous() for name, value in tensors.items()}
    config = {"pad_token_id": pad, **_config(family, settings, encoder.vocabulary, architecture, labels)}
    if "regression" in heads:
        config |= {"problem_type": "regression", "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    if task is not None:
        config[OUR_KEY] = task
    (directory / "model.safetensors").write_bytes(safetensors.torch.save(plain, {"format": "pt"}))
    (directory / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf8")


def family_of(settings: TransformerSettings) -> Family:
    """Return the family whose directories hold an encoder of this shape."""
    if settings.causal:
        return OPENAI_GPT
    if settings.pooling == "relu":
        return DISTILBERT
    if settings.pooling == "gelu":
        return ELECTRA
    if settings.offset:
        return ROBERTA
    return ALBERT if settings.shared == "all" or settings.embedding is not None else BERT


def _pooler(family: Family, architecture: str, prefix: str, heads: Sequence[str]) -> str:
    """Return what the pooler is called in a directory, nothing where it is not stored."""
    if family.head_pooler and ("classification" in heads or "regression" in heads):
        return family.head_pooler
    return prefix + family.pooler if family.pooler and architecture not in family.without_pooler else ""


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf8"))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"not valid JSON ({error})", file=path) from error
    if not isinstance(config, dict):
        raise UserError("not a JSON object", file=path)
    return config


def _family(config: Mapping[str, Any], path: Path) -> Family:
    kind = config.get("model_type", "bert")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UserError(f"model_type {kind!r} is not known here", file=path, remedy=nearest(str(kind), FAMILIES))
    return FAMILIES[kind]


def _settings(family: Family, config: Mapping[str, Any], path: Path) -> tuple[TransformerSettings, int]:
    if config.get("position_embedding_type", "absolute") != "absolute" or config.get("is_decoder"):
        raise UserError("relative positions or a decoder: not an encoder of the papers", file=path)
    config = {**family.defaults, **config}
    table = {ours: config[name] for ours, name in family.config.items() if name in config}
    activation = table.pop("activation", "gelu")
    if not isinstance(activation, str) or activation not in family.activations:
        raise UserError(
            f"{family.config['activation']} {activation!r} is not known",
            file=path,
            remedy=f"known: {', '.join(family.activations)}",
        )
    vocabulary = config.get("vocab_size")
    if not isinstance(vocabulary, int) or vocabulary < 1:
        raise UserError("vocab_size is missing or no positive number", file=path)
    try:
        table |= {"kind": "transformer", "activation": family.activations[activation]}
        if SHARED_KEY in config:
            table["shared"] = config[SHARED_KEY]
        if config.get(family.head_dropout) is not None and config[family.head_dropout] != table.get("dropout", 0.1):
            table["head_dropout"] = config[family.head_dropout]
        table |= _own_settings(family, config, table)
        return msgspec.convert(table, TransformerSettings), vocabulary
    except (msgspec.ValidationError, TypeError) as error:
        raise UserError(f"not the config of a {family.model_type} model: {error}", file=path) from error


def _own_settings(family: Family, config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a family has beyond BERT's."""
    if family is ROBERTA:
        padding = config.get("pad_token_id", 1)
        if not isinstance(padding, int):
            raise TypeError("pad_token_id must be a number: positions begin after it")
        offset = padding + 1
        return {"offset": offset, "positions": table.get("positions", 512 + offset) - offset}
    if family is ELECTRA:
        narrow = None if table["embedding"] == table.get("width") else table["embedding"]
        return {"embedding": narrow, "pooling": "gelu"}
    if family is DISTILBERT:
        return {"segments": 0, "pooling": "relu"}
    if family is OPENAI_GPT:
        return {"feed_forward": 4 * table["width"], "segments": 0, "pooling": "none", "causal": True}
    if family is ALBERT:
        groups = config.get("num_hidden_groups", 1)
        if config.get("inner_group_num", 1) != 1 or groups not in (1, table.get("layers")):
            raise TypeError("layers in several groups, or several in a group")
        return {"shared": "all"} if groups == 1 else {}
    return {}


def _open(directory: Path, allow_pickle: bool) -> tuple[Path, dict[str, tuple[int, ...]], dict[str, Tensor] | None]:
    path = directory / "model.safetensors"
    if path.exists():
        return path, read_shapes(path), None
    path = directory / "pytorch_model.bin"
    if not path.exists():
        raise UserError("no model.safetensors is in this directory", file=directory)
    if not allow_pickle:
        raise UserError(
            "pickled weights can run any program when they are read",
            file=path,
            remedy="take the model.safetensors of this model, or pass --allow-pickle, which reads tensors only",
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
        if any(value.untyped_storage().nbytes() < value.nbytes for value in tensors.values()):
            raise ValueError("a tensor is larger than what is stored of it")
    except Exception as error:  # whatever a file that somebody made may cause
        raise UserError("not a pickle of tensors alone", file=path) from error
    return path, {name: tuple(value.shape) for name, value in tensors.items()}, tensors


def _modern(family: Family, name: str) -> str:
    """Their name without the prefix, LayerNorm's parameters as weight and bias."""
    name = name.removeprefix(family.prefix)
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _is_known(family: Family, name: str) -> bool:
    if name == family.decoder:
        return True
    heads = tuple(theirs for names in family.heads.values() for theirs in names.values())
    body = (*family.embeddings.values(), family.layer.partition("{")[0], family.project, family.pooler)
    inside = (OWN, *heads, *filter(None, (*body, family.head_pooler)))
    return name.startswith(inside) and not name.endswith(".attn.bias")  # GPT's table of what is later


def _projects_nothing(family: Family, tensors: Mapping[str, Tensor]) -> bool:
    """Say whether ALBERT's projection is the one that `write` puts where a body has none."""
    weight, bias = (tensors[f"{family.project}.{kind}"] for kind in ("weight", "bias"))
    return torch.equal(weight, torch.eye(len(weight), dtype=weight.dtype)) and not bias.any()


def _take_encoder(
    family: Family, settings: TransformerSettings, tensors: Mapping[str, Tensor], path: Path
) -> dict[str, Tensor]:
    """Return the encoder's tensors under our names."""
    found: dict[str, Tensor] = {}
    for ours, names in family.tensors(settings):
        if settings.embedding is None and ours.startswith("embeddings.project"):
            continue
        value = tensors[names[0]] if len(names) == 1 else torch.cat([tensors[name] for name in names])
        if family.lies_across(ours):
            value = value.t().contiguous()
        if ours in found and not torch.equal(found[ours], value):
            raise UserError(f"{names[0]} should be the same in all layers, by {SHARED_KEY} in config.json", file=path)
        found[ours] = value
    for pooler in filter(None, (family.pooler, family.head_pooler, OWN_POOLER)):
        if f"{pooler}.weight" in tensors:
            found |= {f"pooler.{kind}": tensors[f"{pooler}.{kind}"] for kind in ("weight", "bias")}
    return found


def _config(
    family: Family, settings: TransformerSettings, vocabulary: int, architecture: str, labels: Sequence[str]
) -> dict[str, Any]:
    ours = {name: getattr(settings, name) for name in settings.__struct_fields__}
    ours["activation"] = {ours: name for name, ours in reversed([*family.activations.items()])}[settings.activation]
    ours["embedding"] = settings.embedding_width
    ours["positions"] = settings.offset + settings.positions
    config: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": family.model_type,
        "vocab_size": vocabulary,
        **{name: ours[part] for part, name in family.config.items()},
        "tie_word_embeddings": True,
        **family.always,
    }
    config |= dict.fromkeys(family.dropouts, settings.dropout)
    config[family.head_dropout] = settings.before_last
    if family is ROBERTA:
        config["pad_token_id"] = settings.offset - 1
    if family is ALBERT:
        config["num_hidden_groups"] = family.stored_layers(settings)
    if settings.shared in ("attention", "feed_forward"):
        config[SHARED_KEY] = settings.shared
    if labels:
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    return config
