"""Beside scikit-learn, and what is refused."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from unmask_structbert.ordinal import Ranked
from unmask_structbert.quadratic_kappa import quadratic_kappa

from unmask.data.labelled.labelled_file import Row
from unmask.support.errors import UserError

LABELS = ("1", "2", "3", "10")


@pytest.mark.parametrize("seed", range(50))
def test_it_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    gold, predicted = rng.integers(4, size=(2, 30))
    examples = [Row({"text": "a", "label": LABELS[rank]}, "a.tsv", 1) for rank in gold]
    metric = quadratic_kappa(examples, [Ranked("a", LABELS[rank], {}) for rank in predicted], LABELS)
    chosen = rng.integers(30, size=30)
    expected = 100 * cohen_kappa_score(gold[chosen], predicted[chosen], labels=range(4), weights="quadratic")
    assert metric(chosen) == pytest.approx(expected)
    assert metric(np.array([0])) == pytest.approx(0.0) if gold[0] != predicted[0] else np.isnan(metric(np.array([0])))


def test_other_predictions_are_refused():
    with pytest.raises(UserError, match="a metric of ranks"):
        quadratic_kappa([Row({"text": "a", "label": "1"}, "a.tsv", 1)], ["1"], LABELS)
