"""Compatible and incompatible parts of recipes."""

import pytest

from unmask.recipes.requirements import Part, check
from unmask.support.messages import in_command, rendered

OFFERS = {
    "masked": [{"masking.kind": "token"}, {"masking.kind": "span"}],
    "ask pairs": [{"objective.pairs.weight": 1}],
}


def part(name="a", gives=(), asks=(), takes=(), without=()):
    return Part(name, frozenset(gives), frozenset(asks), frozenset(takes), dict(without))


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [part()],
        [part(gives=["x"]), part("b", asks=["x"])],
        [part("b", asks=["x"]), part(gives=["x"])],  # in either order
        [part(gives=["x"], asks=["x"])],  # of the part itself
        [part(gives=["x"])],  # nothing asks for it, which is allowed
        [part(gives=["x"]), part("b", asks=["x"]), part("c", asks=["x"])],
        [part(gives=["x"]), part("b", asks=["x"], takes=["x"])],  # it takes what it asks for
        [part(gives=["x"]), part("b", takes=["x"])],
        [part(gives=["x"], without={"a.kind": "none"}), part("b", asks=["x"])],
        [part(without={"a.kind": "none"})],
    ],
)
def test_compatible_parts_pass(parts):
    check(parts, {})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            [part("objective.lm", asks=["masked"])],
            "objective.lm needs masked tokens, which nothing in this recipe provides: pass --set masking.kind=token "
            "(or span), or --set objective.lm=false",
        ),
        (
            [part("objective.lm", asks=["scores"])],
            "objective.lm needs 'scores' labels, which nothing in this recipe provides: pass --set objective.lm=false",
        ),
        (
            [part(gives=["x"]), part("b", asks=["y", "x", "w"])],
            "b needs 'w' labels, which nothing in this recipe provides",
        ),
        (
            [part(gives=["x"]), part("b", asks=["x"], takes=["x"]), part("c", asks=["x"])],
            "b leaves no 'x' labels for c: pass --set c=false",
        ),
        (
            [part("layout", gives=["pairs"], without={"layout.second": "next"})],
            "layout provides 'pairs' labels, which no objective uses: pass --set layout.second=next, or "
            "--set objective.pairs.weight=1",
        ),
        (
            [part("layout", gives=["x"], without={"layout.second": "next"}), part("b")],
            "layout provides 'x' labels, which no objective uses: pass --set layout.second=next",
        ),
    ],
)
def test_incompatible_parts_are_refused_with_what_to_set(parts, message):
    with pytest.raises(ValueError) as error:
        check(parts, OFFERS)
    assert rendered(str(error.value), in_command) == message


def test_both_of_two_that_take_the_same_are_refused():
    greedy = {"asks": ["x"], "takes": ["x"]}
    with pytest.raises(ValueError, match="b leaves no 'x' labels for c"):
        check([part(gives=["x"]), part("b", **greedy), part("c", **greedy)], {})
