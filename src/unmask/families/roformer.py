"""RoFormer (Su et al. 2021, arXiv 2104.09864): BERT with rotary instead of learned positions, and its format.

There is no table of positions: queries and keys are rotated in adjacent pairs of dimensions, so `positions` is only
the maximum sequence length. Directories (modeling_roformer.py of transformers 5) contain the table of the rotations'
sines and cosines. Sequence-level heads have a dense layer of their own with the activation of the layers, preceded by
dropout too; in transformers the body has no pooler. Embeddings may be narrower than the layers there; this is read as
`embedding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unmask.families.bert import NARROW_CONFIG, NarrowBertSettings, read_embedding, write_embedding
from unmask.families.body import check_rotary
from unmask.families.format import (
    BERT_LM,
    BERT_TENSORS,
    DENSE_HEADS,
    Family,
    Format,
    Tensors,
    architectures,
)
from unmask.nn.encoders.encoder import HeadSpec
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.pooler import Pooler
from unmask.nn.layers.rotary import Rotation

SINUSOIDS = "encoder.embed_positions.weight"
"""Their name of the table of sines and cosines."""


class RoFormerSettings(NarrowBertSettings, frozen=True, kw_only=True, tag="roformer"):
    """The recipe's [encoder] for `kind = "roformer"`; see `NarrowBertSettings`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rotary(self.width, self.heads)

    @property
    def rotation(self) -> Rotation:
        """See `TransformerSettings`."""
        return Rotation(interleaved=True)

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`."""
        return replace(super().head, pooler_dropout=self.before_last)

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = self.embeddings(vocabulary, narrow=self.embedding)
        return self.compose(vocabulary, embeddings, self.blocks(), Pooler(self.width, self.activation))


def read(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the width of the embeddings, or None if it equals that of the layers.

    Raises:
        TypeError: values are rotated too, which no published model does.
    """
    if config.get("rotary_value"):
        raise TypeError("rotary_value: values are rotated too")
    return read_embedding(config, table)


def write(settings: RoFormerSettings) -> dict[str, Any]:
    """Return the keys of config.json for the embeddings and the rotation."""
    return {**write_embedding(settings), "rotary_value": False}


def sinusoids(settings: RoFormerSettings) -> Tensor:
    """Return the table of sines and cosines stored in directories, (positions, width of a head)."""
    like = torch.empty(0)
    cos, sin = settings.rotation.tables(settings.positions, settings.width // settings.heads, like)
    return torch.cat([sin, cos], 1)


def without_sinusoids(settings: RoFormerSettings, tensors: Tensors) -> tuple[RoFormerSettings, Tensors]:
    """Return the settings unchanged, and the tensors without the table, after checking it.

    Raises:
        ValueError: the table of the directory is not that of our rotations.
    """
    expected = sinusoids(settings)
    if not torch.allclose(tensors.get(SINUSOIDS, expected).float(), expected, atol=1e-3):  # may be stored in float16
        raise ValueError(f"{SINUSOIDS} is not the table of rotary positions")
    return settings, {name: value for name, value in tensors.items() if name != SINUSOIDS}


ROFORMER = Family(
    RoFormerSettings,
    Format(
        model_type="roformer",
        prefix="roformer.",
        config=NARROW_CONFIG,
        defaults={"max_position_embeddings": 1536},
        tensors={
            **{own_name: stored_name for own_name, stored_name in BERT_TENSORS.items() if "positions" not in own_name},
            "embeddings.project": "embeddings_project",
        },
        optional=(SINUSOIDS,),
        head_pooler="classifier.dense",
        heads={"masked_lm": BERT_LM, **DENSE_HEADS},
        decoder="cls.predictions.decoder.weight",
        architectures=architectures("RoFormer"),
        read=read,
        write=write,
        to_hf=lambda settings, tensors: {**tensors, SINUSOIDS: sinusoids(settings)},
        from_hf=without_sinusoids,
    ),
)
