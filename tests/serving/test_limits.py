import pytest

from unmask.serving.bodies import invalid, overloaded, too_large, unhealthy
from unmask.serving.types import Limits


def test_refusals_have_the_statuses_of_their_kinds():
    found = [(one.status, one.kind, one.retry) for one in (invalid("a"), too_large("b"), unhealthy("c"))]
    assert found == [(422, "Validation", None), (413, "Validation", None), (503, "Unhealthy", 1)]
    assert (overloaded("d", 7).status, overloaded("d", 7).retry) == (429, 7)


def test_the_largest_request_fits_into_the_queue_and_its_body_into_memory():
    limits = Limits()
    assert limits.request_tokens <= limits.queue_tokens and limits.body <= limits.bodies


@pytest.mark.parametrize(
    ("kind", "path", "body", "beside"),
    [
        ("masked", "/embed", lambda text: {"inputs": text}, 2),
        ("classes", "/predict", lambda text: {"inputs": text}, 2),
        ("windows", "/predict", lambda text: {"inputs": text}, 2),
        ("pairs", "/predict", lambda text: {"inputs": ["the", text]}, 4),
        ("ranks", "/rerank", lambda text: {"query": "the", "texts": [text]}, 4),
        ("sparse", "/embed_sparse", lambda text: {"inputs": text}, 2),
    ],
)
def test_the_longest_input_is_that_of_the_description(kind, path, body, beside, client):
    """`beside` is the number of tokens beside those of the text."""
    asked = client(kind)
    longest = asked.get("/info").json()["max_input_length"]
    statuses = [asked.post(path, json=body("the " * (longest - beside + more))).status_code for more in (0, 1)]
    assert statuses == [200, 422]
