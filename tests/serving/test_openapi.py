import json
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.serving.conftest import KINDS, testclient
from unmask.serving.app import create_app, describe
from unmask.serving.endpoints import ENDPOINTS
from unmask.serving.pipelines import PIPELINES


@pytest.fixture(scope="module")
def client(serving):
    """A client of all models."""
    with testclient.TestClient(create_app(serving(*KINDS)), base_url="http://localhost") as opened:
        yield opened


@cache
def described():
    """Return the description as schemathesis reads it."""
    schemathesis = pytest.importorskip("schemathesis", reason="it is not installed")
    return schemathesis.openapi.from_dict(describe()), list(schemathesis.GenerationMode)


def test_the_description_has_all_routes_and_resolves():
    found = describe()
    assert set(found["paths"]) == {
        *(endpoint.path for endpoint in (*ENDPOINTS, *PIPELINES.values())),
        *("/health", "/info", "/metrics", "/openapi.json", "/v1/models", "/v1/models/{name}"),
        *("/", "/models/{name}", "/models/{name}/info", "/models/{name}/health", "/models/{name}/pipeline/{task}"),
    }
    text = json.dumps(found)
    for reference in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert reference in found["components"]["schemas"]
    embed = found["components"]["schemas"]["EmbedRequest"]
    assert embed["required"] == ["inputs"] and embed["additionalProperties"] is False
    assert "truncation_direction: the end at which" in embed["description"], "the fields are described"


@pytest.mark.parametrize("path", ["/models/{name}/health", "/models/{name}/info", "/v1/models/{name}"])
def test_an_unknown_model_is_described(client, path):
    status = client.get(path.format(name="unknown")).status_code
    assert status == 404 and str(status) in describe()["paths"][path]["get"]["responses"]


@pytest.mark.parametrize("path", [*(endpoint.path for endpoint in (*ENDPOINTS, *PIPELINES.values())), "/"])
def test_S3_generated_requests_never_cause_a_500(client, path):
    """schemathesis generates requests that follow the description, and requests that do not."""
    schema, modes = described()
    operation, documented = schema[path]["POST"], describe()["paths"][path]["post"]["responses"]

    @given(case=st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes)))
    @settings(
        max_examples=settings.default.max_examples // 4,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        sent = case.as_transport_kwargs(base_url="http://localhost")
        body = {"json": sent["json"]} if "json" in sent else {"content": sent.get("data")}
        found = client.request(sent["method"], sent["url"], headers=dict(sent["headers"]), **body)
        assert found.status_code < 500, found.text
        assert str(found.status_code) in documented or found.status_code == 405

    ask()
