"""Names of the small models over an encoder's layers (`encoders/downstream.py`), known without torch."""

from __future__ import annotations

from typing import Literal, get_args

DownstreamKind = Literal["linear", "average", "rnn"]

DOWNSTREAM_KINDS: tuple[str, ...] = get_args(DownstreamKind)
