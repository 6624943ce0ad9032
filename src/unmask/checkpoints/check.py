"""Refuse a directory whose weights do not fit its config, before anything is allocated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unmask.checkpoints.heads import OWN_POOLER
from unmask.errors import UserError
from unmask.families import BodySettings
from unmask.families.format import TASK_HEADS, Format

Shapes = Mapping[str, tuple[int, ...]]


def body_shapes(settings: BodySettings, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a body's tensors, by our names; no memory is taken for them."""
    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in settings.build(vocabulary).state_dict().items()}


def check(form: Format, settings: BodySettings, vocabulary: int, shapes: Shapes, path: Path) -> None:
    """Refuse weights that do not fit the config.

    Args:
        form: of the family's directories.
        settings, vocabulary: what the config says.
        shapes: of the tensors that are there, by their names.
        path: the file that they are in.

    Raises:
        UserError: a tensor is missing or of another shape; names it.
    """
    pattern = re.escape(form.layer).replace(r"\{\}", r"(\d+)") + r"\."
    layers = {match[1] for name in shapes if (match := re.match(pattern, name))}
    stored = form.count_layers(settings)
    if len(layers) != stored or layers != set(map(str, range(stored))):
        raise UserError(f"config.json says {stored} layers, the weights have {len(layers)}", file=path)
    ours = body_shapes(settings, vocabulary)
    lacking = form.lacking(settings)
    ours |= {name: tuple(value.shape) for name, value in lacking.items()}
    wanted: dict[str, tuple[int, ...]] = {}
    for name, theirs in form.tensors(settings, ours):
        first, *others = ours[name]
        shape = (first // len(theirs), *others)
        wanted |= dict.fromkeys(theirs, shape[::-1] if form.is_transposed(name) else shape)
    for pooler in filter(None, (form.pooler, form.head_pooler, OWN_POOLER)):
        if any(name.startswith(f"{pooler}.") for name in shapes):
            wanted |= {f"{pooler}.{kind}": ours[f"pooler.{kind}"] for kind in ("weight", "bias")}
    optional = {name for ours, theirs in form.tensors(settings, lacking) if ours in lacking for name in theirs}
    missing = [name for name in wanted if name not in shapes and name not in optional]
    if missing:
        raise UserError(
            f"{len(missing)} tensors of the encoder are missing, the first is {missing[0]}",
            file=path,
            remedy=f"the file is not whole or not of a {form.model_type} model: download it again",
        )
    narrow = ours["embeddings.words.weight"][1]
    for name, shape in {**wanted, **_head_shapes(form, settings.width, narrow, vocabulary)}.items():
        if name in shapes and shapes[name] != shape:
            raise UserError(f"tensor {name} has shape {shapes[name]}, by config.json it is {shape}", file=path)
    for head in {form.heads[name]["out"] for name in TASK_HEADS if name in form.heads}:
        rows = shapes.get(f"{head}.weight", (0, 0))
        bias = (rows[0],) if head in form.unbiased else shapes.get(f"{head}.bias")
        if len(rows) != 2 or (rows[0] and (rows[1] != settings.width or bias != (rows[0],))):
            raise UserError(f"the weight of {head}, of shape {rows}, does not fit", file=path)
    if shapes.get("qa_outputs.weight", (2,))[0] != 2:
        raise UserError("qa_outputs has not two rows, one for the start and one for the end", file=path)


def _head_shapes(form: Format, width: int, narrow: int, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Return what shapes the tensors of the pretraining heads must have, `narrow` being the embeddings' width."""
    shapes: dict[str, tuple[int, ...]] = {form.decoder: (vocabulary, narrow)}
    if words := form.heads.get("masked_lm"):
        shapes |= {
            f"{words['dense']}.weight": (narrow, width),
            f"{words['dense']}.bias": (narrow,),
            f"{words['norm']}.weight": (narrow,),
            f"{words['norm']}.bias": (narrow,),
            words["bias"]: (vocabulary,),
        }
    if parts := form.heads.get("replaced_token"):
        shapes |= {f"{parts['dense']}.weight": (width, width), f"{parts['dense']}.bias": (width,)}
        shapes |= {f"{parts['out']}.weight": (1, width), f"{parts['out']}.bias": (1,)}
    for head in ("next_sentence", "sentence_order"):
        if head in form.heads:
            name = form.heads[head]["out"]
            shapes |= {f"{name}.weight": (2, width), f"{name}.bias": (2,)}
    return shapes


def check_decoder(form: Format, tensors: dict[str, Tensor], path: Path) -> None:
    """Take the vocabulary's decoder away, and refuse one that is not the table of token embeddings."""
    decoder = tensors.pop(form.decoder, None)
    if decoder is not None and not torch.equal(decoder, tensors[form.words]):
        raise UserError("the decoder is not tied to the word embeddings: not a model of the papers", file=path)
