"""The benchmark of the LSTM runs at toy size; what it compares computes the same."""

import torch


def test_three_layers_take_turns(benchmark_module, records, run_main, monkeypatch):
    module = benchmark_module("recurrence")
    for name, value in (("STREAMS", 2), ("LENGTH", 3), ("ROUNDS", 2)):
        monkeypatch.setattr(module, name, value)
    run_main(module, "elmo-mini")
    found = records("recurrence")
    assert {(one["precision"], one["engine"]) for one in found} == {
        (precision, engine)
        for precision in ("float32", "bf16")
        for engine in ("unmask", "unmask, clipped", "torch.nn.LSTM")
    }
    assert all(one["seconds"] > 0 and one["shape"] == "128 / 512" for one in found)


def test_all_of_them_compute_an_lstm_of_this_shape(benchmark_module):
    module = benchmark_module("recurrence")
    x = torch.randn(3 * 2, 4, requires_grad=True)
    for run in module.engines(4, 6, streams=2, length=3, dtype=torch.float32).values():
        outputs = run(x).reshape(6, 4)
        (grad,) = torch.autograd.grad(outputs[4].sum(), x)
        assert grad.any(1).tolist() == [True, False, True, False, True, False], "the other stream is not read"
