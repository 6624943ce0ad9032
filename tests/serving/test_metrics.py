from unmask.serving.metrics import Meter, note


def test_what_is_counted_is_shown():
    meter = Meter()
    meter.enter()
    assert b"unmask_open_requests 1.0" in meter.text()
    meter.leave("/embed", 200, 0.02)
    meter.batch("model", 100, 4, 0.5)
    meter.queue("model", 7)
    meter.disconnect()
    text = meter.text().decode()
    for line in (
        'unmask_requests_total{route="/embed",status="200"} 1.0',
        'unmask_request_seconds_bucket{le="0.025",route="/embed"} 1.0',
        'unmask_request_seconds_bucket{le="0.01",route="/embed"} 0.0',
        "unmask_open_requests 0.0",
        'unmask_tokens_total{model="model"} 100.0',
        'unmask_samples_total{model="model"} 4.0',
        'unmask_queue_tokens{model="model"} 7.0',
        "unmask_disconnects_total 1.0",
    ):
        assert line in text


def test_S19_line_ends_in_logs_are_escaped(client, capsys):
    one = client("masked", meter=Meter(log=True))
    one.get("/a%0Aunmask:%20forged%20200")
    one.post("/embed", json={"inputs": "secret", "model": "x\nforged"})
    note("one\nunmask: forged\x1b[31m")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ")[1:3] for line in lines[:2]] == [["other", "404"], ["/embed", "404"]]
    assert lines[2:] == ["unmask: one\\nunmask: forged\\x1b[31m"]
    assert "secret" not in "".join(lines)


def test_requests_are_logged_only_on_demand(client, capsys):
    client("masked").get("/info")
    assert capsys.readouterr().err == ""
