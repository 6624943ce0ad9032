"""The benchmark of reading runs at toy size, and measures every step."""


def test_reading(benchmark_module, monkeypatch, run_main, records):
    module = benchmark_module("reading")
    monkeypatch.setattr(module, "sentences", lambda: (f"Sentence {number} – é" for number in range(500)))
    monkeypatch.setattr(module, "ROWS", 300)
    run_main(module)
    assert [record["step"] for record in records("reading")] == [*module.STEPS]
