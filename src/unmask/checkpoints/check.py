"""Refuse a directory whose weights do not fit its config, before anything is allocated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unmask.checkpoints.family import TASK_HEADS, Family, shape_of
from unmask.checkpoints.heads import OWN_POOLER
from unmask.encoders.transformer import TransformerSettings
from unmask.errors import UserError


def check(
    family: Family, settings: TransformerSettings, vocabulary: int, shapes: Mapping[str, tuple[int, ...]], path: Path
) -> None:
    """Refuse weights that do not fit the config, before anything is allocated."""
    pattern = re.escape(family.layer).replace(r"\{\}", r"(\d+)") + r"\."
    layers = {match[1] for name in shapes if (match := re.match(pattern, name))}
    stored = family.stored_layers(settings)
    if len(layers) != stored or layers != set(map(str, range(stored))):
        raise UserError(f"config.json says {stored} layers, the weights have {len(layers)}", file=path)
    expected = {name: ours for ours, names in family.tensors(settings) for name in names}
    parts = {name: len(names) for _, names in family.tensors(settings) for name in names}
    for pooler in filter(None, (family.pooler, family.head_pooler, OWN_POOLER)):
        if any(name.startswith(f"{pooler}.") for name in shapes):
            expected |= {f"{pooler}.{kind}": f"pooler.{kind}" for kind in ("weight", "bias")}
    missing = [name for name in expected if name not in shapes]
    if missing:
        raise UserError(
            f"{len(missing)} tensors of the encoder are missing, the first is {missing[0]}",
            file=path,
            remedy=f"the file is not whole or not of a {family.model_type} model: download it again",
        )
    wanted: dict[str, tuple[int, ...]] = {}
    for name, ours in expected.items():
        first, *others = shape_of(ours, settings, vocabulary)
        shape = (first // parts.get(name, 1), *others)
        wanted[name] = shape[::-1] if family.lies_across(ours) else shape
    for name, shape in {**wanted, **_head_shapes(family, settings, vocabulary)}.items():
        if name in shapes and shapes[name] != shape:
            raise UserError(f"tensor {name} has shape {shapes[name]}, by config.json it is {shape}", file=path)
    for head in {family.heads[name]["out"] for name in TASK_HEADS if name in family.heads}:
        rows = shapes.get(f"{head}.weight", (0, 0))
        bias = (rows[0],) if head in family.unbiased else shapes.get(f"{head}.bias")
        if len(rows) != 2 or (rows[0] and (rows[1] != settings.width or bias != (rows[0],))):
            raise UserError(f"the weight of {head}, of shape {rows}, does not fit", file=path)
    if shapes.get("qa_outputs.weight", (2,))[0] != 2:
        raise UserError("qa_outputs has not two rows, one for the start and one for the end", file=path)


def _head_shapes(family: Family, settings: TransformerSettings, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """What shape the tensors of the pretraining heads must have."""
    width, narrow = settings.width, settings.embedding_width
    shapes: dict[str, tuple[int, ...]] = {family.decoder: (vocabulary, narrow)}
    if words := family.heads.get("masked_lm"):
        shapes |= {
            f"{words['dense']}.weight": (narrow, width),
            f"{words['dense']}.bias": (narrow,),
            f"{words['norm']}.weight": (narrow,),
            f"{words['norm']}.bias": (narrow,),
            words["bias"]: (vocabulary,),
        }
    if parts := family.heads.get("replaced_token"):
        shapes |= {f"{parts['dense']}.weight": (width, width), f"{parts['dense']}.bias": (width,)}
        shapes |= {f"{parts['out']}.weight": (1, width), f"{parts['out']}.bias": (1,)}
    for head in ("next_sentence", "sentence_order"):
        if head in family.heads:
            name = family.heads[head]["out"]
            shapes |= {f"{name}.weight": (2, width), f"{name}.bias": (2,)}
    return shapes


def check_decoder(family: Family, tensors: dict[str, Tensor], path: Path) -> None:
    """Take the vocabulary's decoder away, and refuse one that is not the table of token embeddings."""
    decoder = tensors.pop(family.decoder, None)
    words = family.embeddings["embeddings.words.weight"]
    if decoder is not None and not torch.equal(decoder, tensors[words]):
        raise UserError("the decoder is not tied to the word embeddings: not a model of the papers", file=path)
