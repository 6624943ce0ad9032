"""The benchmark of reading runs at toy size, and measures every step."""

import json


def test_reading(benchmark_module, monkeypatch, tmp_path):
    module = benchmark_module("reading")
    monkeypatch.setattr(module, "sentences", lambda: (f"Sentence {number} – é" for number in range(500)))
    monkeypatch.setattr("sys.argv", ["reading.py", "--rows", "300", "--rounds", "1"])
    written = []
    monkeypatch.setattr(module, "add", lambda name, key, record: written.append((name, json.dumps(key | record))))
    module.main()
    steps = [json.loads(record)["step"] for name, record in written if name == "reading"]
    assert steps == [*module.STEPS]
