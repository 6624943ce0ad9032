"""docs/security.md states the bounds that the code has."""

import re
from pathlib import Path

import pytest

from unmask.data.tokenizers.bounds import MAX_GROWTH, MAX_PIECE, MAX_WORD
from unmask.data.tokenizers.words import MAX_CACHED, MAX_CACHED_WORD
from unmask.inference.explanation import MAX_OCCLUDED, STEP_TOKENS
from unmask.inference.fill import MAX_LOGITS
from unmask.inference.predictor import MAX_SCORES, SCORE_BYTES
from unmask.serving.endpoints import ENDPOINTS
from unmask.serving.playground import ENDPOINTS as VIEWS
from unmask.serving.playground import MAX_WEIGHTS, MAX_WORDS
from unmask.serving.service import LARGE_AT_ONCE
from unmask.serving.types import Limits
from unmask.tasks.classification import MAX_CONFUSION
from unmask.workflows.comparing.checks import MAX_MODELS
from unmask.workflows.comparing.design import MAX_ARMS
from unmask.workflows.finetuning.examples import MAX_LABELS

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
CONSTANTS = {
    **{f"Limits.{name}": value for name, value in vars(Limits()).items()},
    **{"MAX_GROWTH": MAX_GROWTH, "MAX_PIECE": MAX_PIECE, "MAX_WORD": MAX_WORD, "MAX_LOGITS": MAX_LOGITS},
    **{"MAX_SCORES": MAX_SCORES, "MAX_CONFUSION": MAX_CONFUSION, "MAX_LABELS": MAX_LABELS},
    **{"MAX_OCCLUDED": MAX_OCCLUDED, "STEP_TOKENS": STEP_TOKENS, "MAX_ARMS": MAX_ARMS, "MAX_MODELS": MAX_MODELS},
    **{"MAX_CACHED": MAX_CACHED, "MAX_CACHED_WORD": MAX_CACHED_WORD},
    **{"MAX_WEIGHTS": MAX_WEIGHTS, "MAX_WORDS": MAX_WORDS, "LARGE_AT_ONCE": LARGE_AT_ONCE, "SCORE_BYTES": SCORE_BYTES},
}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf8").partition("### Products")[2].partition("\n## ")[0].splitlines()
    if line.startswith("|")
][2:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_bound_is_that_of_the_code(row):
    for name in re.findall("`(.*?)`", row[3]):
        assert f"{CONSTANTS[name]:,}" in row[2], name


def test_each_route_is_bounded():
    paths = {endpoint.path for endpoint in (*ENDPOINTS, *VIEWS)}
    stated = set(re.findall("`(/[^`]*)`", " ".join(row[0] for row in ROWS)))
    assert stated <= paths
    assert {"/fill", "/predict", "/explain", "/embed", "/v1/embeddings", "/features"} <= stated
