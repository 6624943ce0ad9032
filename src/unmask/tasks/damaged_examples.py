"""Notes about examples whose texts look damaged (`unmask.data.text.damage`); they are used as they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from unmask.data.text.damage import DamagedTexts, find_damage
from unmask.tasks.holding_out import place_of

Example = TypeVar("Example")


def count_damaged(
    examples: Iterable[Example], texts: Callable[[Example], Sequence[str]], damaged: DamagedTexts
) -> Iterator[Example]:
    """Yield the examples, and count those that look damaged.

    Args:
        examples: the examples.
        texts: returns the texts of an example, such as `Task.texts`.
        damaged: receives the count.
    """
    for example in examples:
        for text in texts(example):
            if damage := find_damage(text):
                damaged.add(damage, place_of(example))
                break
        yield example


def describe_damaged(examples: Iterable[Example], texts: Callable[[Example], Sequence[str]]) -> list[str]:
    """Return a note about the examples that look damaged, if there are any; see `count_damaged`."""
    damaged = DamagedTexts()
    deque(count_damaged(examples, texts, damaged), 0)
    return damaged.notes("example")
