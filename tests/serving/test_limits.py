from unmask.serving.refusals import invalid, overloaded, too_large, unhealthy
from unmask.serving.types import Limits


def test_refusals_have_the_statuses_of_their_kinds():
    found = [(one.status, one.kind, one.retry) for one in (invalid("a"), too_large("b"), unhealthy("c"))]
    assert found == [(422, "Validation", None), (413, "Validation", None), (503, "Unhealthy", 1)]
    assert (overloaded("d", 7).status, overloaded("d", 7).retry) == (429, 7)


def test_the_largest_request_fits_into_the_queue_and_its_body_into_memory():
    limits = Limits()
    assert limits.request_tokens <= limits.queue_tokens and limits.body <= limits.bodies
