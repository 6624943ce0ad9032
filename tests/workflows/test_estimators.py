"""Estimators: scikit-learn's own checks that apply, and fits on texts inside its tools."""

import importlib.util
import pickle
import sys

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import unmask
from unmask.families.bert import BertSettings
from unmask.model.model import Model, build_encoder, save_model
from unmask.support.errors import UserError

NUMBERS = "fits numbers, but texts are read; tested below on texts"
SPARSE = "fits a sparse matrix of numbers, but texts are read"
FAILED = {
    **dict.fromkeys(
        (
            *("check_fit_score_takes_y", "check_estimators_overwrite_params", "check_dont_overwrite_parameters"),
            *("check_estimators_fit_returns_self", "check_readonly_memmap_input", "check_positive_only_tag_during_fit"),
            *("check_estimators_dtypes", "check_pipeline_consistency", "check_estimators_pickle"),
            *("check_f_contiguous_array_estimator", "check_classifier_data_not_an_array", "check_classifiers_classes"),
            *("check_classifiers_train", "check_methods_sample_order_invariance", "check_methods_subset_invariance"),
            *("check_fit2d_1sample", "check_fit2d_1feature", "check_dict_unchanged", "check_fit_idempotent"),
            *("check_fit_check_is_fitted", "check_regressors_train", "check_regressor_data_not_an_array"),
            *("check_regressors_no_decision_function", "check_supervised_y_no_nan", "check_regressors_int"),
            *("check_sample_weights_pandas_series", "check_sample_weights_not_an_array", "check_sample_weights_list"),
            *("check_sample_weights_not_overwritten", "check_sample_weights_shape"),
            *(f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")),
        ),
        NUMBERS,
    ),
    **dict.fromkeys(
        ("check_estimator_sparse_tag", "check_estimator_sparse_array", "check_estimator_sparse_matrix"), SPARSE
    ),
    **dict.fromkeys(
        ("check_classifiers_one_label", "check_classifiers_one_label_sample_weights"),
        "nothing can be learned from a single label, so it is refused",
    ),
    "check_all_zero_sample_weights_error": "weights of 0 alone are refused, but by a UserError, which is no ValueError",
}
TEXTS, LABELS = ["good day", "bad day"] * 10, [1, 0] * 10
FAST = {"budget.steps": 20, "optimizer.learning_rate": 1e-2}


def checked(kind):
    """Return an estimator whose tags make scikit-learn run all its checks: those that declare texts skip them."""

    def tags(self):
        found = kind.__sklearn_tags__(self)
        found.input_tags.two_d_array = True
        return found

    return type(kind.__name__, (kind,), {"__sklearn_tags__": tags})()


@parametrize_with_checks(
    [checked(kind) for kind in (unmask.TextClassifier, unmask.TextRegressor, unmask.TokenClassifier)]
)
def test_checks_of_scikit_learn(estimator, check):
    """Checks in `FAILED` are not marked as such: for each mark, pytest would format the traceback of a failure."""
    try:
        check(estimator)
    except Exception:
        if check.func.__name__ not in FAILED:
            raise


@pytest.fixture(scope="module")
def start(tmp_path_factory, tokenizer):
    """A tiny encoder."""
    path = tmp_path_factory.mktemp("estimators") / "start"
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=16, positions=32, init_std=0.2)
    save_model(path, Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    return path


@pytest.fixture(scope="module")
def fitted(start):
    """A fitted classifier."""
    return unmask.TextClassifier(start, settings=FAST, device="cpu", precision="float32").fit(TEXTS, LABELS)


def test_a_classifier_keeps_the_type_of_its_labels_and_scores(fitted):
    assert fitted.classes_.tolist() == [0, 1]
    found = fitted.predict_proba(np.array(["good day", "bad day", "good day"]))
    assert found.shape == (3, 2)
    assert found.sum(1) == pytest.approx(1, abs=1e-12), "scikit-learn's log_loss warns of sums as of float32"
    assert found[0] == pytest.approx(found[2])
    assert fitted.predict(["good day", "bad day"]).dtype == fitted.classes_.dtype
    assert fitted.score(TEXTS, LABELS) == np.mean(fitted.predict(TEXTS) == LABELS)
    assert fitted.predict([]).shape == (0,)
    assert fitted.get_params()["settings"] == FAST  # not changed by fitting


def test_a_fit_can_be_repeated_and_pickled(fitted):
    again = clone(fitted).fit(pandas.Series(TEXTS), pandas.Series(LABELS))
    expected = fitted.predict_proba(TEXTS[:2])
    assert again.predict_proba(TEXTS[:2]) == pytest.approx(expected)
    assert pickle.loads(pickle.dumps(fitted)).predict_proba(TEXTS[:2]) == pytest.approx(expected)


def test_weights_decide_between_contradictory_labels(start):
    opposite = [1 - label for label in LABELS]
    for weights, expected in (([1] * 20 + [0] * 20, [1, 0]), (np.repeat([0.0, 5.0], 20), [0, 1])):
        model = unmask.TextClassifier(start, settings=FAST, device="cpu", precision="float32")
        model.fit(TEXTS * 2, LABELS + opposite, sample_weight=weights)
        assert model.predict(["good day", "bad day"]).tolist() == expected
        number = unmask.TextRegressor(start, settings=FAST, device="cpu", precision="float32")
        found = number.fit(TEXTS * 2, LABELS + opposite, sample_weight=weights).predict(["good day", "bad day"])
        assert (found[0] > found[1]) == (expected[0] > expected[1])


def test_equal_weights_change_nothing(start, fitted):
    again = clone(fitted).fit(TEXTS, LABELS, sample_weight=pandas.Series([7] * 20))
    assert again.predict_proba(TEXTS[:2]) == pytest.approx(fitted.predict_proba(TEXTS[:2]), abs=1e-5)


@pytest.mark.parametrize("weights", [[1] * 19, [0] * 20, [1] * 19 + [-1], [1] * 19 + [np.nan], np.ones((20, 1))])
def test_what_is_no_weight_of_each_example_is_refused(start, weights):
    with pytest.raises(UserError, match="<fit>: sample_weight is not a number of 0 or more for each of 20 examples"):
        unmask.TextClassifier(start).fit(TEXTS, LABELS, sample_weight=weights)


def test_it_works_in_a_pipeline_and_in_cross_validation(start):
    model = unmask.TextClassifier(start, settings={"budget.steps": 2}, device="cpu")
    steps = Pipeline([("lower", FunctionTransformer(np.char.lower)), ("model", model)])
    scores = cross_val_score(steps, np.array(TEXTS), np.array(["yes", "no"] * 10), cv=2)
    assert scores.shape == (2,)
    assert ((scores >= 0) & (scores <= 1)).all()  # NaN if a fit failed


def test_a_regressor_reads_pairs_and_writes_its_run(start, tmp_path):
    pairs = pandas.DataFrame({"one": TEXTS, "other": TEXTS[::-1]})
    model = unmask.TextRegressor(start, settings={"budget.steps": 2}, device="cpu", out=tmp_path / "run")
    found = model.fit(pairs, [0.5, 1.5] * 10).predict(pairs)
    assert found.shape == (20,) and np.isfinite(found).all()
    assert "train: <fit>, 20 rows" in (tmp_path / "run" / "provenance.json").read_text()
    with pytest.raises(UserError, match="one text, but the model was trained on pairs"):
        model.predict(TEXTS)
    with pytest.raises(UserError, match="the columns of X are other, one, but the model was fitted on one, other"):
        model.predict(pairs[["other", "one"]])  # the order of the texts matters
    assert model.predict(pairs.to_numpy()) == pytest.approx(found)


def test_tags_come_back_for_each_word(start):
    words = [["good", "day", "."], ["day", "."]] * 10
    tags = [["O", "I-TIME", "O"], ["S-TIME", "O"]] * 10
    tags = [[tag.replace("S-", "I-") for tag in one] for one in tags]
    model = unmask.TokenClassifier(start, settings=FAST, device="cpu").fit(words, tags)
    found = model.predict(words)
    assert [len(one) for one in found] == [3, 2] * 10
    assert {tag for one in found for tag in one} <= {"O", "B-TIME", "I-TIME"}
    right = [["O", "B-TIME", "O"], ["B-TIME", "O"]] * 10
    assert (model.score(words, tags) == 1) == (found == right)
    assert model.score(words, found) == 1
    assert model.classes_.tolist() == ["TIME"]
    assert model.predict([]) == []


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (np.zeros((2, 3)), [0, 1], r"X has the shape \(2, 3\)"),
        (["a", 3], [0, 1], "<fit>:2: 'text' is int, not text"),
        (["a", "b"], [[0, 1], [1, 0]], r"y has the shape \(2, 2\)"),
        (["a"], [0, 1], "different numbers of rows"),
        (["a", "b"], [0, 0], "all 2 examples have the label '0'"),
    ],
)
def test_unusable_examples_are_refused(start, texts, labels, message):
    with pytest.raises(UserError, match=message):
        unmask.TextClassifier(start, device="cpu").fit(texts, labels)


def test_a_model_is_needed_and_a_fit_before_a_prediction():
    with pytest.raises(UserError, match=r"write TextClassifier\(model=MODEL\)"):
        unmask.TextClassifier().fit(["a", "b"], [0, 1])
    with pytest.raises(NotFittedError):
        unmask.TextRegressor().predict(["a"])


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    spec = importlib.util.spec_from_file_location("copy", sys.modules["unmask.workflows.estimators"].__file__)
    with pytest.raises(UserError, match=r"the estimators need scikit-learn; pip install 'unmask\[sklearn\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.parametrize(
    ("words", "tags", "message"),
    [
        ([["a", "b"], "ab"], [["O", "B-X"], ["O", "B-X"]], "<fit>:2: 'words' is not a list of strings"),
        ([["a", "b"], ["a", "b"]], ["OO", ["O", "B-X"]], "<fit>:1: 'tags' is not a list of strings"),
        ([["a", "b"], ["a", "b"]], [["O", "B-X"], None], "<fit>:2: 'tags'"),
        ([["a", "b"], ["a", "b"]], [["O", "B-X"], ["O", np.nan]], "<fit>:2: 'tags' is not a list of strings"),
    ],
)
def test_text_in_place_of_words_or_tags_is_refused(start, words, tags, message):
    with pytest.raises(UserError, match=message):
        unmask.TokenClassifier(start, device="cpu").fit(words, tags)


@pytest.mark.parametrize("column, dtype", [("Int8", "int8"), ("float32", "float32"), ("boolean", "bool")])
def test_columns_keep_the_size_of_their_numbers(start, column, dtype):
    labels = pandas.Series(LABELS, dtype=column)
    model = unmask.TextClassifier(start, settings={"budget.steps": 2}, device="cpu").fit(TEXTS, labels)
    assert model.classes_.dtype == model.predict(TEXTS).dtype == dtype
    assert model.classes_.tolist() == [0, 1]
