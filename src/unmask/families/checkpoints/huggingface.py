"""Hugging Face directories: `config.json`, `model.safetensors` or its shards, and a tokenizer beside them.

Reading takes a directory of one of `FAMILIES`, with or without the prefix of the body, with the old names `gamma` and
`beta`, and with any set of heads; it returns the settings, the encoder's tensors under our names, and the known heads.
Writing is the inverse.

The prefixes of torch.compile and of DistributedDataParallel (`_orig_mod.`, `module.`) are removed, with a note.
Tensors of heads that are not known are left out, with a warning if the model was fine-tuned, for them or for a head
that is known. Those in the body that are not read, and adapters, are refused.

Nothing in a directory is executed: `config.json` is read as data (`auto_map` and the like are ignored), and pickled
weights are refused unless explicitly allowed, and then read with `weights_only`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from unmask.data.text.whole_files import read_object, write_json
from unmask.families import FAMILIES, BodySettings, Family, family_of
from unmask.families.checkpoints.check import BUFFERS, body_on_meta, check, take_decoder
from unmask.families.checkpoints.config_file import (
    CLASSES,
    MULTI_LABEL,
    NEW_KEY,
    check_config,
    check_files,
    read_activation,
    with_arguments,
)
from unmask.families.checkpoints.heads import (
    NUMBERS,
    OUR_KEY,
    OWN,
    OWN_POOLER,
    POOLED,
    classifier_head,
    find_heads,
    find_own,
    head_name,
    read_labels,
    warn_of_left_out,
)
from unmask.families.checkpoints.hub import ARGUMENTS, revision_of
from unmask.families.checkpoints.safetensors_file import (
    INDEX,
    WEIGHTS,
    Load,
    checked,
    read_index,
    read_shapes,
    read_shard_shapes,
    read_shard_tensors,
    read_tensors,
    weights_file,
    without_prefixes,
)
from unmask.families.format import SHARED_KEY, TASK_HEADS, Format, Pretrained
from unmask.nn.encoders.encoder import POOLER, Encoder
from unmask.objectives import OBJECTIVES
from unmask.support.beside import OTHER_WEIGHTS
from unmask.support.durable import replaced_file
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument
from unmask.support.tensor_file import save_tensors

POOLED_TASKS = ("regression", "classification", "multi_label")
"""Heads that score whole texts."""
SCORES = NUMBERS | {"multi_label"}
"""Those whose scores are not shares of one whole, and have an activation of their own."""
TOKENS_KEY = "unmask_pretrained_tokens"
"""Key of config.json for the number of tokens that the encoder was pretrained on."""


def by_model_type(families: Iterable[Family]) -> dict[str, Family]:
    """Return the families by their model_type in config.json.

    Raises:
        UserError: two families have the same model_type.
    """
    table: dict[str, Family] = {}
    for family in families:
        if (other := table.setdefault(family.format.model_type, family)) is not family:
            raise UserError(
                f"the families {other.kind} and {family.kind} have the same model_type, '{family.format.model_type}'",
                remedy="change the model_type of one of their formats",
            )
    return table


MODEL_TYPES = by_model_type(FAMILIES.values())
"""Families by model_type in config.json."""


def read_settings(directory: Path) -> BodySettings:
    """Read the encoder settings of a directory from its config alone.

    Raises:
        UserError: see `read`.
    """
    path = directory / "config.json"
    config = _read_config(path)
    return _settings(_family(config, path), config, path)[0]


def read(directory: Path, *, allow_pickle: bool = False) -> Pretrained:
    """Read a directory.

    Raises:
        UserError: the family is unknown, a file is damaged or incomplete, or shapes do not match the config; names the
            file and the tensor.
    """
    config_file = directory / "config.json"
    check_files(directory)
    config = _read_config(config_file)
    if (arguments := directory / ARGUMENTS).is_file():
        config = with_arguments(config, _read_config(arguments), arguments)
    family = _family(config, config_file)
    form = family.format
    settings, vocabulary = _settings(family, config, config_file)
    path, shapes, load = without_prefixes(*_open(directory, allow_pickle))
    stored_names = {_modern(form, name): name for name in shapes}
    if len(stored_names) != len(shapes):
        raise UserError(
            f"two tensors have the same name apart from the prefix '{form.prefix}' or gamma and beta", file=path
        )
    if form.words not in stored_names and form.decoder in stored_names:  # a file may store either of the tied tensors
        stored_names[form.words] = stored_names.pop(form.decoder)
    of_decoder, of_head = form.decoder_biases
    if of_head and of_decoder in stored_names:  # the one that transformers adds, whether or not it is tied to the other
        stored_names[of_head] = stored_names.pop(of_decoder)
    shape = body_on_meta(settings, vocabulary)
    check(form, settings, shape, {name: shapes[old] for name, old in stored_names.items()}, path)
    _check_tied(form, config, stored_names, path)

    known = [name for name in stored_names if _is_known(form, name)]
    stored = load([stored_names[name] for name in known])
    tensors = {name: stored[stored_names[name]] for name in known}
    untied = take_decoder(form, config, tensors, path)
    try:
        settings, body = form.loaded(settings, tensors, shape.state_dict())
    except ValueError as error:
        raise UserError(str(error), file=path) from error
    for pooler in filter(None, (form.pooler, form.head_pooler, OWN_POOLER)):
        if f"{pooler}.{form.pooler_parts[0]}" in tensors:
            body |= {f"pooler.{part}": tensors[f"{pooler}.{part}"] for part in form.pooler_parts}
    task, tokens = config.get(OUR_KEY), config.get(TOKENS_KEY)
    heads = find_own(tensors)
    if not isinstance(task, dict) or "downstream" not in task:
        for head, names in find_heads(form, tensors, path, classifier_head(form, config, tensors, path)).items():
            heads[head] = {**names, **heads.get(head, {})}  # some parts may be in our own format
    if untied:
        heads = {head: names for head, names in heads.items() if head not in OBJECTIVES}
    in_heads = {name for names in heads.values() for name in names.values()}
    left_out = [
        name
        for name in stored_names.keys() - in_heads
        if not name.endswith(BUFFERS) and (_is_classifier(form, name) or not _is_known(form, name))
    ]
    warn_of_left_out(config, sorted(left_out), heads, path)
    activation = "" if isinstance(task, dict) else _activation(config, directory, tensors, heads)
    return Pretrained(
        settings,
        vocabulary,
        body,
        {head: {tensor_part: tensors[name] for tensor_part, name in names.items()} for head, names in heads.items()},
        read_labels(config, config_file, tensors, heads),
        task if isinstance(task, dict) else None,
        tokens if isinstance(tokens, int) and tokens >= 0 else None,
        activation,
    )


def _check_tied(form: Format, config: Mapping[str, Any], names: Iterable[str], path: Path) -> None:
    """Refuse a masked-LM head whose decoder is neither stored nor that of the embeddings.

    Raises:
        UserError: it is.
    """
    if form.decoder and config.get("tie_word_embeddings") is False and form.decoder not in names:
        head = form.heads.get("masked_lm", {}).get("bias", "")
        if head in names:
            raise UserError(
                f"tie_word_embeddings is false, but {path.name} has no {form.decoder}",
                file=path.with_name("config.json"),
                remedy="the file is incomplete: download it again",
            )


def _activation(
    config: Mapping[str, Any], directory: Path, tensors: Mapping[str, Tensor], heads: Mapping[str, Mapping[str, str]]
) -> str:
    """Return the activation of a classifier of another program; see `Pretrained`."""
    head = next((name for name in POOLED_TASKS if "out.weight" in heads.get(name, {})), "")
    outputs = len(tensors[heads[head]["out.weight"]]) if head else 0
    activation = read_activation(config, directory, outputs, several=head == "multi_label") if head else ""
    return activation if head in NUMBERS else ""


def write(
    directory: Path,
    encoder: Encoder,
    heads: Mapping[str, Mapping[str, Tensor]],
    labels: Sequence[str] = (),
    task: Mapping[str, Any] | None = None,
    pad: int = 0,
    tokens: int | None = None,
) -> None:
    """Write `config.json` and `model.safetensors`; the tied decoder is not stored.

    Args:
        directory: directory to write to; created if missing.
        encoder: the body.
        heads: tensors of each head under our names, as in `Pretrained`; with a "downstream" head all are stored under
            our names.
        labels: labels of the classification or token classification head, in order.
        task: settings of the task, stored in config.json under a key of our own.
        pad: the padding id.
        tokens: number of tokens that the encoder was pretrained on, if known.
    """
    directory.mkdir(parents=True, exist_ok=True)
    settings = encoder.settings
    form = family_of(settings).format
    known = () if "downstream" in heads else tuple(sorted(heads.keys() & form.heads.keys()))
    architecture = form.architectures.get(known, form.architectures[()])
    prefix = "" if architecture == form.architectures[()] else form.prefix
    state = encoder.state_dict()
    tensors = {prefix + name: value for name, value in form.stored(settings, state).items()}
    pooler, own = _pooler(form, architecture, prefix, known), {name for name, values in heads.items() if values}
    if not pooler and POOLER in encoder.provides and (own - {*known} - (OBJECTIVES.keys() - POOLED)):
        pooler = OWN_POOLER  # which heads for tasks that the format has no name for may read, too
    if pooler:
        tensors |= {f"{pooler}.{part}": state[f"pooler.{part}"] for part in form.pooler_parts}
    for head, values in heads.items():
        for tensor_part, value in values.items():
            name = head_name(form, head, tensor_part) if head in known else ""
            tensors[name or f"{OWN}{head}.{tensor_part}"] = value
    with replaced_file(directory / WEIGHTS) as file:
        plain = {name: value.detach().cpu().float() for name, value in tensors.items()}
        save_tensors(file, plain, {"format": "pt"})
    write_config(directory, encoder, heads, labels, task, pad, tokens)


def write_config(
    directory: Path,
    encoder: Encoder,
    heads: Iterable[str],
    labels: Sequence[str] = (),
    task: Mapping[str, Any] | None = None,
    pad: int = 0,
    tokens: int | None = None,
) -> None:
    """Write `config.json` alone; the arguments are those of `write`, but of the heads only the names are needed."""
    form = family_of(encoder.settings).format
    heads = set(heads)
    known = () if "downstream" in heads else tuple(sorted(heads & form.heads.keys()))
    architecture = form.architectures.get(known, form.architectures[()])
    config = {"pad_token_id": pad, **_config(form, encoder.settings, encoder.vocabulary, architecture, labels)}
    if heads & SCORES:
        activation = "sigmoid" if "multi_label" in heads else (task or {}).get("activation") or "identity"
        if activation == "identity":  # otherwise a pipeline of transformers returns the sigmoid of the number
            config["problem_type"] = "regression"
        if task is not None:  # otherwise a CrossEncoder returns the sigmoid of one number, and several as they are
            config[NEW_KEY] = {"activation_fn": CLASSES[activation]}
    if heads & NUMBERS:
        config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    if "multi_label" in heads:
        config["problem_type"] = MULTI_LABEL
    if task is not None:
        config[OUR_KEY] = task
    if tokens is not None:
        config[TOKENS_KEY] = tokens
    write_json(directory / "config.json", config)


def _pooler(form: Format, architecture: str, prefix: str, heads: Sequence[str]) -> str:
    """Return the name of the pooler in a directory; "" if it is not stored."""
    if form.head_pooler and set(heads) & set(form.pooled):
        return form.head_pooler
    return prefix + form.pooler if form.pooler and architecture not in form.without_pooler else ""


def _read_config(path: Path) -> dict[str, Any]:
    config = read_object(path)
    try:
        json.dumps(config, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UserError("a text contains a lone surrogate, which is not a valid character", file=path) from error
    return config


def _family(config: Mapping[str, Any], path: Path) -> Family:
    kind = config.get("model_type", "bert")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise UserError(f"unknown model_type {kind!r}", file=path, remedy=nearest(str(kind), MODEL_TYPES))
    return MODEL_TYPES[kind]


def _settings(family: Family, config: Mapping[str, Any], path: Path) -> tuple[BodySettings, int]:
    form = family.format
    check_config(form, config, path)
    learned = bool(form.names("embeddings.positions.weight"))  # in other families the key has no effect
    if (learned and config.get("position_embedding_type", "absolute") != "absolute") or config.get("is_decoder"):
        raise UserError("relative positions and decoders are not supported", file=path)
    config = {**form.defaults, **config}
    table = {setting: config[name] for setting, name in form.config.items() if name in config}
    activation = table.pop("activation", "gelu")
    if not isinstance(activation, str) or activation not in form.activations:
        raise UserError(
            f"unknown {form.config['activation']} {activation!r}",
            file=path,
            remedy=f"known: {', '.join(form.activations)}",
        )
    vocabulary = config.get("vocab_size")
    if not isinstance(vocabulary, int) or isinstance(vocabulary, bool) or not 1 <= vocabulary < 1 << 40:
        raise UserError("vocab_size is missing or not a positive integer", file=path)
    try:
        table |= {"kind": family.kind, "activation": form.activations[activation]}
        if config.get(form.head_dropout) is not None and config[form.head_dropout] != table.get("dropout", 0.1):
            table["head_dropout"] = config[form.head_dropout]
        table |= form.read(config, table)
        if SHARED_KEY in config and "shared" not in table:
            raise TypeError(f"{SHARED_KEY}: {family.kind} models of this version cannot share sublayers")
        return msgspec.convert(table, FAMILIES[table["kind"]].settings), vocabulary
    except (msgspec.ValidationError, TypeError) as error:
        raise UserError(f"not a valid config of a {form.model_type} model: {error}", file=path) from error


def _open(directory: Path, allow_pickle: bool) -> tuple[Path, dict[str, tuple[int, ...]], Load]:
    """Return the file that errors name, the shapes of the tensors in it, and the function that reads them."""
    path = weights_file(directory)
    if path is None:
        raise _without_weights(directory)
    if path.name == WEIGHTS:
        return path, read_shapes(path), partial(read_tensors, path)
    if path.name == INDEX:
        files = read_index(path)
        return path, read_shard_shapes(files), partial(read_shard_tensors, files)
    if not allow_pickle:
        raise UserError(
            "pickled weights can execute arbitrary code when they are loaded",
            file=path,
            remedy=f"use the model.safetensors of this model, or pass {argument('allow_pickle', True)}, which reads "
            "only tensors",
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
        if any(value.untyped_storage().nbytes() < value.nbytes for value in tensors.values()):
            raise ValueError("a tensor is larger than its stored data")
    except Exception as error:  # a crafted file may raise anything
        raise UserError("contains other objects than tensors, or is damaged", file=path) from error
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    return path, shapes, lambda names: {name: checked(tensors[name], name, path) for name in names}


def _without_weights(directory: Path) -> UserError:
    """Return the error that there are no weights that are read, which names others that are there."""
    problem, remedy = "no model.safetensors in this directory", "copy the weights of the model into it"
    if revision_of(directory):
        remedy = f"{argument('allow_pickle', True)} also downloads a pytorch_model.bin"
    for pattern, what in OTHER_WEIGHTS.items():
        if other := next(iter(sorted(directory.glob(pattern))), None):
            problem, remedy = f"{problem}, and {other.relative_to(directory)} is not read", what
            break
    return UserError(problem, file=directory, remedy=remedy)


def _modern(form: Format, name: str) -> str:
    """Return their present name without the prefix, and with LayerNorm parameters called weight and bias."""
    name = name.removeprefix(form.prefix)
    for former, now in form.former.items():
        if name.startswith(former):
            name = now + name.removeprefix(former)
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _is_known(form: Format, name: str) -> bool:
    if name == form.decoder:
        return True
    heads = {stored_name for names in form.heads.values() for stored_name in names.values()}
    inside = (OWN, *filter(None, (*form.beginnings, form.pooler, form.head_pooler)))
    known = name.startswith(inside) or not heads.isdisjoint((name, name.rpartition(".")[0]))
    return known and not name.endswith(".attn.bias")  # GPT's causal mask


def _is_classifier(form: Format, name: str) -> bool:
    """Return whether a tensor is part of the last layer of a head for a task."""
    return name.rpartition(".")[0] in {form.heads[head]["out"] for head in TASK_HEADS.keys() & form.heads.keys()}


def _config(form: Format, settings: Any, vocabulary: int, architecture: str, labels: Sequence[str]) -> dict[str, Any]:
    values = {key: getattr(settings, key) for key in settings.__struct_fields__}
    values["activation"] = {name: key for key, name in reversed([*form.activations.items()])}[settings.activation]
    config: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": form.model_type,
        "vocab_size": vocabulary,
        **{key: values[part] for part, key in form.config.items()},
        "tie_word_embeddings": True,
        **form.always,
    }
    config |= dict.fromkeys(form.dropouts, settings.dropout)
    config[form.head_dropout] = settings.before_last
    config |= form.write(settings)
    if labels:
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    return config
