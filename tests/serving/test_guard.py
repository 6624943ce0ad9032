import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from unmask.serving.bodies import Refusal
from unmask.serving.guard import Keys, host_name

KEY = "a-key-of-enough-characters"


def test_S13_a_request_needs_a_key_and_metrics_hold_no_text(client):
    one = client("masked", keys=Keys([KEY]))
    body, right = {"inputs": "secret words"}, {"Authorization": f"Bearer {KEY}"}
    refused = one.post("/embed", json=body)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert one.post("/embed", json=body, headers={"Authorization": f"Bearer {KEY}x"}).status_code == 401
    assert one.post("/embed", json=body, headers=right).status_code == 200
    assert one.get("/health").status_code == 200
    for path in ("/metrics", "/info", "/openapi.json", "/secret"):
        assert one.get(path).status_code == 401
    one.get("/secret-path", headers=right)
    metrics = one.get("/metrics", headers=right).text
    assert 'unmask_requests_total{route="/embed",status="200"} 1.0' in metrics
    assert "secret" not in metrics and KEY not in metrics


def test_routes_that_do_not_exist_and_other_methods_are_refused_with_what_there_is(client):
    one = client("masked")
    found = one.post("/v1/chat/completions", json={})
    assert found.status_code == 404
    assert found.json()["error"]["message"] == "there is no such route; /openapi.json lists the routes"
    for method, path, allowed in (
        ("GET", "/embed", "POST"),
        ("PUT", "/models/masked", "POST"),
        ("POST", "/info", "GET"),
    ):
        found = one.request(method, path)
        assert found.status_code == 405 and allowed in found.headers["allow"]
        assert found.json() == {"error": f"this route takes {found.headers['allow']}", "error_type": "Validation"}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "", "localhost.evil.example", "[::2]:80"])
def test_S18_other_host_names_are_refused(client, host):
    """A page of another site could otherwise reach the server by resolving its own name to 127.0.0.1."""
    assert client("masked").get("/info", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080"])
def test_S18_the_names_of_this_machine_are_allowed(client, host):
    assert client("masked").get("/info", headers={"host": host}).status_code == 200
    assert client("masked", hosts=("*",)).get("/info", headers={"host": "any.example"}).status_code == 200


def test_S18_pages_of_other_sites_are_not_allowed_to_read(client):
    one, origin = client("masked"), {"Origin": "https://evil.example"}
    found = one.post("/embed", json={"inputs": "a"}, headers=origin)
    asked = one.options("/embed", headers={**origin, "Access-Control-Request-Method": "POST"})
    assert asked.status_code == 405
    assert not any(name.startswith("access-control") for answer in (found, asked) for name in answer.headers)


def test_S17_pages_may_load_nothing_from_elsewhere(client):
    for path in ("/health", "/nothing", "/info"):
        headers = client("masked").get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_S15_a_bug_is_answered_without_a_trace_and_logged_without_its_message(client, capsys):
    def broken(request):
        raise ValueError("secret text of a user")

    pages = [Route("/broken", broken), Route("/page", lambda request: PlainTextResponse("ok"))]
    one = client("masked", pages=pages, public=("/page",), keys=Keys([KEY]))
    assert one.get("/page").text == "ok"
    found = one.get("/broken", headers={"Authorization": f"Bearer {KEY}"})
    assert found.status_code == 500
    assert found.json() == {"error": "internal error", "error_type": "Backend"}
    logged = capsys.readouterr().err
    assert logged.startswith("unmask: /broken: ValueError in broken (test_guard.py:") and "secret" not in logged
    assert one.get("/health").status_code == 200


def test_the_name_in_a_host_header():
    assert [host_name(host) for host in ("A.b:1", "[::1]:2", "c", "")] == ["a.b", "::1", "c", ""]
    assert Refusal(429, "Overloaded", "wait", retry=3).retry == 3
