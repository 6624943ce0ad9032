import re
from pathlib import Path

import msgspec
import pytest

from unmask.serving.endpoints import ENDPOINTS
from unmask.serving.pipelines import PIPELINES
from unmask.serving.types import Limits

from .conftest import KINDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
ALL = (*ENDPOINTS, *PIPELINES.values())
COMMANDS = re.findall(r"^curl localhost:8080(\S+) -H '(\S+): (\S+)' -d '(.*)'$", PAGE.read_text(encoding="utf8"), re.M)


@pytest.mark.parametrize("endpoint", ALL, ids=lambda endpoint: endpoint.path)
def test_the_example_of_each_route_is_answered(client, endpoint):
    assert isinstance(endpoint.decoder.decode(msgspec.json.encode(endpoint.example)), endpoint.request)
    found = client(*KINDS, "sparse").post(endpoint.path, json=endpoint.example)
    assert found.status_code == 200, found.text
    msgspec.json.decode(found.content, type=endpoint.response)


def test_the_commands_of_the_page_are_answered(client):
    assert [path for path, *_ in COMMANDS] == [endpoint.path for endpoint in ALL]
    one = client(*KINDS, "sparse")
    for path, header, value, body in COMMANDS:
        found = one.post(path, content=body, headers={header: value})
        assert found.status_code == 200, (path, found.text)


def test_the_page_states_the_limits():
    limits = Limits()
    text = PAGE.read_text(encoding="utf8")
    for value in msgspec.to_builtins(limits).values():
        assert f"{value:,.0f}" in text or value == limits.wait, value
