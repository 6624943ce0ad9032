"""Compatible and incompatible parts of recipes."""

import pytest

from unmask.recipes.requirements import RecipePart, check
from unmask.support.messages import in_command, rendered

OFFERS = {
    "masked": [{"masking.kind": "token"}, {"masking.kind": "span"}],
    "ask pairs": [{"objective.pairs.weight": 1}],
}


def part(name="a", provides=(), requires=(), exclusive=(), without=()):
    return RecipePart(name, frozenset(provides), frozenset(requires), frozenset(exclusive), dict(without))


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [part()],
        [part(provides=["x"]), part("b", requires=["x"])],
        [part("b", requires=["x"]), part(provides=["x"])],  # in either order
        [part(provides=["x"], requires=["x"])],  # of the part itself
        [part(provides=["x"])],  # nothing asks for it, which is allowed
        [part(provides=["x"]), part("b", requires=["x"]), part("c", requires=["x"])],
        [part(provides=["x"]), part("b", requires=["x"], exclusive=["x"])],  # it takes what it asks for
        [part(provides=["x"]), part("b", exclusive=["x"])],
        [part(provides=["x"], without={"a.kind": "none"}), part("b", requires=["x"])],
        [part(without={"a.kind": "none"})],
    ],
)
def test_compatible_parts_pass(parts):
    check(parts, {})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            [part("objective.lm", requires=["masked"])],
            "objective.lm needs masked tokens, which nothing in this recipe provides: pass --set masking.kind=token "
            "(or span), or --set objective.lm=false",
        ),
        (
            [part("objective.lm", requires=["scores"])],
            "objective.lm needs 'scores' labels, which nothing in this recipe provides: pass --set objective.lm=false",
        ),
        (
            [part(provides=["x"]), part("b", requires=["y", "x", "w"])],
            "b needs 'w' labels, which nothing in this recipe provides",
        ),
        (
            [part(provides=["x"]), part("b", requires=["x"], exclusive=["x"]), part("c", requires=["x"])],
            "b leaves no 'x' labels for c: pass --set c=false",
        ),
        (
            [part("layout", provides=["pairs"], without={"layout.second": "next"})],
            "layout provides 'pairs' labels, which no objective uses: pass --set layout.second=next, or "
            "--set objective.pairs.weight=1",
        ),
        (
            [part("layout", provides=["x"], without={"layout.second": "next"}), part("b")],
            "layout provides 'x' labels, which no objective uses: pass --set layout.second=next",
        ),
    ],
)
def test_incompatible_parts_are_refused_with_what_to_set(parts, message):
    with pytest.raises(ValueError) as error:
        check(parts, OFFERS)
    assert rendered(str(error.value), in_command) == message


def test_both_of_two_that_take_the_same_are_refused():
    greedy = {"requires": ["x"], "exclusive": ["x"]}
    with pytest.raises(ValueError, match="b leaves no 'x' labels for c"):
        check([part(provides=["x"]), part("b", **greedy), part("c", **greedy)], {})
