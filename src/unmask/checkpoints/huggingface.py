"""BERT in Hugging Face's directories: `config.json`, `model.safetensors`, and a tokenizer beside them.

In: a directory, with or without the `bert.` prefix, with the old names `gamma` and `beta`, with any set of heads.
Out: settings, the encoder's tensors under our names, and those heads that we know. And the way back.

Nothing of a directory is executed: `config.json` is read as data (`auto_map` and its like are ignored), pickled weights
are refused unless they are asked for, and then read with `weights_only`.

Names: modeling_bert.py of transformers 5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import safetensors.torch
import torch
from torch import Tensor

from unmask.checkpoints.safetensors_file import checked, read_shapes, read_tensors
from unmask.encoders.transformer import Transformer, TransformerSettings
from unmask.errors import UserError
from unmask.layers.block import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
"""hidden_act to ours."""

EMBEDDINGS = {
    "embeddings.words.weight": "embeddings.word_embeddings.weight",
    "embeddings.positions.weight": "embeddings.position_embeddings.weight",
    "embeddings.segments.weight": "embeddings.token_type_embeddings.weight",
    "embeddings.norm": "embeddings.LayerNorm",
}
BLOCK = {
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
QKV = ("query", "key", "value")
HEADS = {
    "masked_lm": {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
    },
    "next_sentence": {"out": "cls.seq_relationship"},
    "classification": {"out": "classifier"},
    "regression": {"out": "classifier"},
    "token_classification": {"out": "classifier"},
    "question_answering": {"out": "qa_outputs"},
}
"""Our heads: each of our parts to theirs. A name without `.weight` or `.bias` stands for both."""

WITHOUT_POOLER = ("BertForTokenClassification", "BertForQuestionAnswering")
"""What reads every token has no use for the pooled [CLS]."""
OUR_KEY = "unmask"
"""Under this name config.json holds what the model is for."""
OWN = "unmask."
"""So begin the tensors of what transformers knows not: of a downstream model and the head on it, and of pretraining
heads that are not BERT's own. There the directory is what remains without them."""
DECODER = "cls.predictions.decoder.weight"
ARCHITECTURES = {
    ("classification",): "BertForSequenceClassification",
    ("regression",): "BertForSequenceClassification",
    ("token_classification",): "BertForTokenClassification",
    ("question_answering",): "BertForQuestionAnswering",
    ("masked_lm", "next_sentence"): "BertForPreTraining",
    ("masked_lm",): "BertForMaskedLM",
    (): "BertModel",
}


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


def read(directory: Path, *, allow_pickle: bool = False) -> Pretrained:
    """Read a directory.

    Raises:
        UserError: not a BERT, a damaged or incomplete file, shapes that do not fit the config; names file and tensor.
    """
    config_file = directory / "config.json"
    config = _read_config(config_file)
    settings, vocabulary = _settings(config, config_file)
    path, shapes, pickled = _open(directory, allow_pickle)
    theirs = {_modern(name): name for name in shapes}
    if len(theirs) != len(shapes):
        raise UserError("two tensors have the same name but for the 'bert.' prefix or gamma and beta", file=path)
    _check(settings, vocabulary, {name: shapes[old] for name, old in theirs.items()}, path)

    known = [name for name in theirs if _ours(name)]
    if pickled is None:
        found = read_tensors(path, [theirs[name] for name in known])
    else:
        found = {theirs[name]: checked(pickled[theirs[name]], name, path) for name in known}
    tensors = {name: found[theirs[name]] for name in known}
    _check_decoder(tensors, path)
    task = config.get(OUR_KEY)
    heads = _own_names(tensors)
    if not isinstance(task, dict) or "downstream" not in task:
        heads |= _head_names(tensors, path, _of_classifier(config, tensors))
    return Pretrained(
        settings,
        vocabulary,
        {ours: _take(tensors, names) for ours, names in _encoder_names(settings).items() if names[0] in tensors},
        {head: {ours: tensors[name] for ours, name in names.items()} for head, names in heads.items()},
        _labels(config, config_file, tensors, heads),
        task if isinstance(task, dict) else None,
    )


def write(
    directory: Path,
    encoder: Transformer,
    heads: Mapping[str, Mapping[str, Tensor]],
    labels: Sequence[str] = (),
    task: Mapping[str, Any] | None = None,
) -> None:
    """Write `config.json` and `model.safetensors`; the tied decoder is not stored.

    Args:
        directory: is created.
        encoder: the body.
        heads: tensors by our head's name and part, as in `Pretrained`; with a "downstream" the names are ours.
        labels: of the classification or token classification head, in order.
        task: what the model is for, written into config.json for us.
    """
    directory.mkdir(parents=True, exist_ok=True)
    known = () if "downstream" in heads else tuple(sorted(heads.keys() & HEADS.keys()))
    architecture = ARCHITECTURES.get(known, "BertModel")
    prefix = "" if architecture == "BertModel" else "bert."
    state = encoder.state_dict()
    tensors = {}
    for ours, names in _encoder_names(encoder.settings).items():
        if architecture in WITHOUT_POOLER and ours.startswith("pooler."):
            continue
        for name, value in zip(names, state[ours].chunk(len(names)), strict=True):
            tensors[prefix + name] = value
    for head, values in heads.items():
        for ours, value in values.items():
            tensors[_head_name(head, ours) if head in known else f"{OWN}{head}.{ours}"] = value
    plain = {name: value.detach().cpu().float().contiguous() for name, value in tensors.items()}
    config = _config(encoder.settings, encoder.vocabulary, architecture, labels)
    if "regression" in heads:
        config |= {"problem_type": "regression", "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    if task is not None:
        config[OUR_KEY] = task
    (directory / "model.safetensors").write_bytes(safetensors.torch.save(plain, {"format": "pt"}))
    (directory / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf8")


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


def _settings(config: Mapping[str, Any], path: Path) -> tuple[TransformerSettings, int]:
    if config.get("model_type", "bert") != "bert":
        raise UserError(f"model_type is {config['model_type']!r}, not 'bert'", file=path)
    if config.get("position_embedding_type", "absolute") != "absolute" or config.get("is_decoder"):
        raise UserError("relative positions or a decoder: not a BERT of the paper", file=path)
    names = {
        "layers": "num_hidden_layers",
        "width": "hidden_size",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "positions": "max_position_embeddings",
        "segments": "type_vocab_size",
        "dropout": "hidden_dropout_prob",
        "epsilon": "layer_norm_eps",
        "deviation": "initializer_range",
    }
    table = {ours: config[theirs] for ours, theirs in names.items() if theirs in config}
    activation = config.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise UserError(f"hidden_act {activation!r} is not known", file=path, remedy=f"known: {', '.join(ACTIVATIONS)}")
    vocabulary = config.get("vocab_size")
    if not isinstance(vocabulary, int) or vocabulary < 1:
        raise UserError("vocab_size is missing or no positive number", file=path)
    try:
        table |= {"kind": "transformer", "activation": ACTIVATIONS[activation]}
        return msgspec.convert(table, TransformerSettings), vocabulary
    except msgspec.ValidationError as error:
        raise UserError(f"not the config of a BERT: {error}", file=path) from error


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


def _modern(name: str) -> str:
    """Their name without the prefix, LayerNorm's parameters as weight and bias."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _ours(name: str) -> bool:
    if name == DECODER:
        return True
    heads = tuple(theirs for names in HEADS.values() for theirs in names.values())
    return name.startswith(("embeddings.", "encoder.layer.", "pooler.", OWN, *heads)) and not name.endswith(
        "position_ids"
    )


def _encoder_names(settings: TransformerSettings) -> dict[str, tuple[str, ...]]:
    """Our tensors to theirs; of several the rows are joined."""
    names: dict[str, tuple[str, ...]] = {}
    for kind in ("weight", "bias"):
        for ours, theirs in EMBEDDINGS.items():
            if ours.endswith("weight"):
                names[ours] = (theirs,)
            else:
                names[f"{ours}.{kind}"] = (f"{theirs}.{kind}",)
        for number in range(settings.layers):
            theirs = f"encoder.layer.{number}"
            parts = tuple(f"{theirs}.attention.self.{part}.{kind}" for part in QKV)
            names[f"blocks.{number}.attention.qkv.{kind}"] = parts
            for ours, name in BLOCK.items():
                names[f"blocks.{number}.{ours}.{kind}"] = (f"{theirs}.{name}.{kind}",)
        names[f"pooler.{kind}"] = (f"pooler.dense.{kind}",)
    return names


def _shape(settings: TransformerSettings, vocabulary: int, name: str) -> tuple[int, ...]:
    """What shape one of their encoder's tensors must have."""
    width, inner = settings.width, settings.feed_forward
    tables = {
        "word_embeddings": vocabulary,
        "position_embeddings": settings.positions,
        "token_type_embeddings": settings.segments,
    }
    part = name.split(".")[-2]
    if part in tables:
        return tables[part], width
    if part == "LayerNorm":
        return (width,)
    rows, columns = (inner, width) if ".intermediate." in name else (width, width)
    if re.search(r"\d\.output\.dense", name):
        columns = inner
    return (rows, columns) if name.endswith("weight") else (rows,)


def _check(settings: TransformerSettings, vocabulary: int, shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Refuse weights that do not fit the config, before anything is allocated."""
    layers = {match[1] for name in shapes if (match := re.match(r"encoder\.layer\.(\d+)\.", name))}
    if len(layers) != settings.layers or layers != set(map(str, range(settings.layers))):
        raise UserError(f"config.json says {settings.layers} layers, the weights have {len(layers)}", file=path)
    expected = [name for names in _encoder_names(settings).values() for name in names]
    has_pooler = any(name.startswith("pooler.") for name in shapes)
    missing = [name for name in expected if name not in shapes and (has_pooler or not name.startswith("pooler."))]
    if missing:
        raise UserError(
            f"{len(missing)} tensors of the encoder are missing, the first is {missing[0]}",
            file=path,
            remedy="the file is not whole or not a BERT: download it again",
        )
    for name in expected:
        if name in shapes and shapes[name] != (shape := _shape(settings, vocabulary, name)):
            raise UserError(f"tensor {name} has shape {shapes[name]}, by config.json it is {shape}", file=path)
    for name, shape in _head_shapes(settings.width, vocabulary).items():
        if name in shapes and shapes[name] != shape:
            raise UserError(f"tensor {name} has shape {shapes[name]}, by config.json it is {shape}", file=path)
    for head in ("classifier", "qa_outputs"):
        rows = shapes.get(f"{head}.weight", (0, 0))
        if len(rows) != 2 or (rows[0] and (rows[1] != settings.width or shapes.get(f"{head}.bias") != (rows[0],))):
            raise UserError(f"the weight of {head}, of shape {rows}, does not fit", file=path)
    if shapes.get("qa_outputs.weight", (2,))[0] != 2:
        raise UserError("qa_outputs has not two rows, one for the start and one for the end", file=path)


def _head_shapes(width: int, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """What shape the tensors of the pretraining heads must have."""
    return {
        "cls.predictions.transform.dense.weight": (width, width),
        "cls.predictions.transform.dense.bias": (width,),
        "cls.predictions.transform.LayerNorm.weight": (width,),
        "cls.predictions.transform.LayerNorm.bias": (width,),
        "cls.predictions.bias": (vocabulary,),
        "cls.seq_relationship.weight": (2, width),
        "cls.seq_relationship.bias": (2,),
        DECODER: (vocabulary, width),
    }


def _check_decoder(tensors: dict[str, Tensor], path: Path) -> None:
    decoder = tensors.pop(DECODER, None)
    if decoder is not None and not torch.equal(decoder, tensors["embeddings.word_embeddings.weight"]):
        raise UserError("the decoder is not tied to the word embeddings: not a BERT of the paper", file=path)


def _take(tensors: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
    return tensors[names[0]] if len(names) == 1 else torch.cat([tensors[name] for name in names])


def _head_name(head: str, ours: str) -> str:
    """Their name of one of our head's tensors."""
    names = HEADS[head]
    if ours in names:
        return names[ours]
    part, _, kind = ours.rpartition(".")
    return f"{names[part]}.{kind}" if part in names else ""


def _head_names(tensors: Mapping[str, Tensor], path: Path, classifier: str) -> dict[str, dict[str, str]]:
    """Return the heads that are there: our names to theirs. Half of one is refused.

    Args:
        tensors: by their names.
        path: where they are from.
        classifier: which of our heads their `classifier` is.
    """
    found = {}
    for head, parts in HEADS.items():
        if parts == {"out": "classifier"} and head != classifier:
            continue
        ours = [name for part in parts for name in ([part] if part == "bias" else [f"{part}.weight", f"{part}.bias"])]
        names = {name: _head_name(head, name) for name in ours}
        missing = [name for name in names.values() if name not in tensors]
        if not missing:
            found[head] = names
        elif len(missing) < len(names):
            raise UserError(f"tensor {missing[0]} of the {head} head is missing", file=path, remedy="download it again")
    return found


def _own_names(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, str]]:
    """Return the heads that only we know: our names to those in the file."""
    found: dict[str, dict[str, str]] = {}
    for name in tensors:
        if name.startswith(OWN):
            head, _, ours = name.removeprefix(OWN).partition(".")
            found.setdefault(head, {})[ours] = name
    return found


def _of_classifier(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Say which of our heads their `classifier` is: several have this name."""
    architectures = tuple(str(name) for name in config.get("architectures") or ())
    if any(name.endswith("TokenClassification") for name in architectures):
        return "token_classification"
    other = any(name.endswith("MultipleChoice") for name in architectures)
    other = other or config.get("problem_type") == "multi_label_classification"
    if other or "pooler.dense.weight" not in tensors:
        return ""
    rows = tensors.get("classifier.weight")
    return "classification" if rows is None or len(rows) > 1 else "regression"


def _labels(
    config: Mapping[str, Any], path: Path, tensors: Mapping[str, Tensor], heads: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    head = next((heads[name] for name in ("classification", "token_classification") if name in heads), None)
    if head is None:
        return ()
    number = len(tensors[head["out.weight"]]) if "out.weight" in head else 0
    names = config.get("id2label") or {str(index): f"LABEL_{index}" for index in range(number)}
    try:
        labels = tuple(str(names[str(index)]) for index in range(number))
    except (KeyError, TypeError) as error:
        raise UserError(f"id2label does not name the {number} labels of the classifier", file=path) from error
    if len(set(labels)) != number:
        raise UserError("id2label names a label twice", file=path)
    return labels


def _config(settings: TransformerSettings, vocabulary: int, architecture: str, labels: Sequence[str]) -> dict[str, Any]:
    theirs = {ours: name for name, ours in reversed(ACTIVATIONS.items())}
    config: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": "bert",
        "vocab_size": vocabulary,
        "num_hidden_layers": settings.layers,
        "hidden_size": settings.width,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.feed_forward,
        "max_position_embeddings": settings.positions,
        "type_vocab_size": settings.segments,
        "hidden_act": theirs[settings.activation],
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
        "layer_norm_eps": settings.epsilon,
        "initializer_range": settings.deviation,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    }
    if labels:
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    return config
