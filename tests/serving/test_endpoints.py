import msgspec
import pytest

from unmask.serving.endpoints import DECODERS, ENDPOINTS


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_the_example_of_each_route_is_answered(client, endpoint):
    assert isinstance(DECODERS[endpoint.path].decode(msgspec.json.encode(endpoint.example)), endpoint.request)
    found = client().post(endpoint.path, json=endpoint.example)
    assert found.status_code == 200, found.text
    msgspec.json.decode(found.content, type=endpoint.response)
