"""Names of the downstream models (`nn/encoders/downstream.py`), available without importing torch."""

from __future__ import annotations

from typing import Literal, get_args

DownstreamKind = Literal["linear", "average", "difference", "rnn"]

DOWNSTREAM_KINDS: tuple[str, ...] = get_args(DownstreamKind)
