"""The simulation of shares runs at toy size."""


def test_shares_by_cost_wait_less(benchmark_module, records, run_main):
    module = benchmark_module("balance")
    run_main(module, "bert-mini", "--processes", "4", "--each", "8", "--steps", "2")
    (found,) = records("balance")
    assert (found["recipe"], found["processes"], found["each"]) == ("bert-mini", 4, 8)
    assert 1 <= found["by_cost"] < found["by_length"]  # of the documentation, which changes
