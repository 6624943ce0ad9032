"""Steps are shared among processes by what samples cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.families.bert import BertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.objectives.flops import body_flops, cost_of_lengths
from unmask.recipes.recipe import read_recipe
from unmask.training.processes import Processes, divide

from ..nn.layers.conftest import tokens_of

SHAPE = {"layers": 3, "width": 32, "heads": 2, "feed_forward": 128, "positions": 2048}


def slowest(costs, parts):
    """Return the cost of the slowest process, as a multiple of the mean."""
    loads = [sum(costs[index] for index in part) for part in parts]
    return max(loads) / (sum(loads) / len(loads))


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=80), st.integers(1, 12))
def test_each_item_is_in_one_process_and_none_has_much_more_than_the_others(costs, number):
    parts = divide(costs, number)
    assert sorted(index for part in parts for index in part) == list(range(len(costs)))
    assert all(part == sorted(part) for part in parts)
    assert sum(map(bool, parts)) == min(number, len(costs)), "no process is idle while another has two"
    least = max(max(costs), sum(costs) / number)  # of any division
    assert max(sum(costs[index] for index in part) for part in parts) <= (2 - 1 / number) * least * (1 + 1e-9)


def test_a_process_gets_its_own_items_in_order():
    items, costs = "abcdef", [1, 2, 3, 4, 5, 9]
    assert [Processes(rank, 2).share(items, costs) for rank in range(2)] == [["c", "f"], ["a", "b", "d", "e"]]
    assert Processes().share(items, costs) == list(items)


@pytest.mark.seeds(3)
@pytest.mark.parametrize("each", [8, 32])
def test_64_processes_end_within_a_fiftieth_of_the_mean(seed, each):
    lengths = np.sort(np.random.default_rng(seed).gamma(2, 40, 64 * each).astype(int).clip(3, 512))
    costs = [length * (1 + length / 4608) for length in lengths.tolist()]
    assert slowest(costs, divide(costs, 64)) <= 1.02
    assert slowest(costs, [range(rank, len(costs), 64) for rank in range(64)]) > 1.02, "every 64th is worse"


@pytest.mark.parametrize("lengths", [(64, 128, 512), (512, 1024)])
def test_costs_are_those_of_the_operations(lengths):
    """The products with weights are 24 times the square of the width per token and layer, as in BERT."""
    encoder = BertSettings(**SHAPE).build(50)
    costs, flops = cost_of_lengths(encoder)(np.array(lengths)), [body_flops(encoder, tokens_of((n,))) for n in lengths]
    assert costs / costs[0] == pytest.approx(np.array(flops) / flops[0], rel=0.02)


def test_local_attention_costs_the_same_for_each_token():
    local = ModernBertSettings(**SHAPE, window=8, global_every=3).build(50)
    assert cost_of_lengths(local)(np.array([300])) == pytest.approx(300 * (1 + 300 / (3 * 6 * 32)))
    recurrent = read_recipe("elmo-mini").encoder.build(50)
    assert cost_of_lengths(recurrent)(np.array([300])) == [300]
