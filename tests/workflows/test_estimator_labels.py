"""Labels in memory: of every type, in every kind of column, as in files."""

import random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.table import as_sources
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification
from unmask.workflows.estimators import TextClassifier

TYPES = {
    "text": ["a", "b", "c d"],
    "blanks": ["pos ", " neg", "x"],
    "integer": [0, 1, -7],
    "float": [0.0, 1.0, 2.5],
    "truth": [True, False, True],
}
MAKERS = {
    "list": list,
    "array": np.array,
    "objects": lambda values: np.array(values, object),
    "series": pd.Series,
    "nullable": lambda values: pd.Series(values).convert_dtypes(),
    "arrow": lambda values: pd.Series(values).convert_dtypes(dtype_backend="pyarrow"),
    "categorical": lambda values: pd.Series(pd.Categorical(values, categories=[*dict.fromkeys(values), *OTHERS])),
    "column": lambda values: pd.DataFrame({"y": values}),
    "polars": pl.Series,
}
OTHERS = ["unused"]


class Learned(TextClassifier):
    """A classifier whose run takes no time: it predicts the labels in turn."""

    def _fit(self, columns):
        rows = read_rows(as_sources(columns), columns={})
        names = sorted({row.values["label"] for row in rows})
        scores = {name: 1 / len(names) for name in names}

        def predict(texts):
            chosen = [names[i % len(names)] for i in range(len(texts))]
            return [SimpleNamespace(label=name, scores=scores | {name: 1.0}) for name in chosen]

        self.predictor_ = SimpleNamespace(predict=predict)


def texts(number):
    return [f"text {i}" for i in range(number)]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(2))
def test_labels_come_back_in_their_own_type(kind, maker, seed):
    labels = random.Random(seed).choices(TYPES[kind], k=12) + TYPES[kind]
    model = Learned().fit(texts(len(labels)), MAKERS[maker](labels))
    assert model.classes_.tolist() == sorted(set(labels))
    assert [type(label) for label in model.classes_.tolist()] == [type(labels[0])] * len(set(labels))
    assert set(model.predict(texts(10)).tolist()) == set(labels)


@pytest.mark.parametrize("maker", ["list", "array", "objects", "series", "polars"])
def test_whole_numbers_of_both_types_are_the_same_labels(maker):
    labels = [0, 1.0, 2, 0.0, 1, 2.0]
    model = Learned().fit(texts(6), MAKERS[maker]([*map(float, labels)] if maker == "polars" else labels))
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(texts(6)).sum(1) == pytest.approx(5 / 3)  # of these predictions: no class is left out
    assert set(model.predict(texts(6)).tolist()) == {0, 1, 2}


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT, np.float32("nan")])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("maker", ["list", "objects", "series", "nullable", "arrow", "categorical", "column"])
def test_a_missing_label_is_refused_with_its_row(kind, missing, maker):
    labels = pd.Series([*TYPES[kind], missing], dtype=object)
    if maker == "categorical":
        given = pd.Series(pd.Categorical(labels))
    elif maker in ("nullable", "arrow"):
        backend = {"nullable": "numpy_nullable", "arrow": "pyarrow"}[maker]
        given = labels.where(labels.notna(), None).convert_dtypes(dtype_backend=backend)
    else:
        given = MAKERS[maker](labels.tolist())
    with pytest.raises(UserError, match=r"<fit>:4: the label is (missing|NaTType)"):
        Learned().fit(texts(4), given)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["pos", "pos ", "x"], r"'pos' and 'pos ' \[U\+0020\] differ only in spaces"),
        (["a", 1, "b"], r"several types: text \(row 1\), a number \(row 2\)"),
        ([True, 1, False], r"several types: a truth value \(row 1\), a number \(row 2\)"),
        ([10**5000, 1, 2], "thousands of digits"),
        ([b"a", b"b", b"c"], "<fit>:1: the label is bytes"),
        ([["a"], ["b"], ["c", "d"]], "several labels in a row"),
        (pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]), "<fit>:1: the label is Timestamp"),
        (["a", "", "b"], ":2: the label is empty"),
        (["a", "nan", "b"], ":2: the label is 'nan'"),
        (['{"a": 1}', '{"b": 1}', "c"], "the label '{\"a\": 1}' is an object, which is read as the probabilities"),
    ],
)
def test_labels_that_cannot_come_back_are_refused(labels, message):
    with pytest.raises(UserError, match=message):
        Learned().fit(texts(3), labels)


@pytest.mark.parametrize("maker", [np.array, pd.Series, list])
@pytest.mark.parametrize("scale", [1, 0.5, -1.0])
def test_numbers_are_in_the_order_of_the_model(maker, scale):
    values = [scale * number for number in random.Random(0).sample(range(30), 12)]
    rows = read_rows(as_sources({"text": texts(12), "label": values}), columns={})
    names = Classification(pairs=False).label_names(rows)
    assert tuple(map(str, Learned().fit(texts(12), maker(values)).classes_.tolist())) == names


def test_weights_in_another_order_than_the_classes_are_refused():
    names = ["9", "10", "9", "10"]
    for settings in ({"task.weights": [1, 2]}, {"task.threshold": np.array([0.1, 0.9])}):
        with pytest.raises(
            UserError, match=r"task\.\w+ is in the order of the model's labels, 9, 10, which is not that"
        ):
            Learned(settings=settings).fit(texts(4), names)
        assert Learned(settings=settings).fit(texts(4), [*map(int, names)]).classes_.tolist() == [9, 10]
    assert Learned(settings={"task.weights": "balanced"}).fit(texts(4), names).classes_.tolist() == ["10", "9"]


def test_integers_and_floats_in_one_list_are_numbers():
    model = Learned().fit(texts(4), [0, 1, 0.0, 1.0])
    assert model.classes_.tolist() == [0.0, 1.0] and model.predict(texts(2)).tolist() == [0.0, 1.0]


def test_labels_of_thousands_of_digits_are_texts():
    names = [str(number) * 5000 for number in (2, 10)]
    assert Learned().fit(texts(4), names * 2).predict(texts(2)).tolist() == sorted(names)
    task = Classification(pairs=False)
    rows = read_rows(as_sources({"text": texts(4), "label": names * 2}), columns={})
    assert task.label_names(rows) == tuple(sorted(names))


@pytest.mark.parametrize("frame", ["pandas", "arrow"])
def test_columns_of_one_name_are_refused(frame):
    given = pd.DataFrame([["a", "x", "y"]], columns=["text", "label", "label"])
    if frame == "arrow":
        pyarrow = pytest.importorskip("pyarrow")
        given = pyarrow.table([["a"], ["x"], ["y"]], names=["text", "label", "label"])
    with pytest.raises(UserError, match="2 columns are named label"):
        as_sources(given)


def read(source):
    try:
        return [(row.values["text"], row.values["label"]) for row in read_rows(as_sources(source), columns={})]
    except UserError:
        return "refused"


@pytest.mark.seeds(60)
def test_frames_and_their_files_are_read_alike(seed, tmp_path):
    rng = random.Random(seed)
    values = [*rng.choice(list(TYPES.values())), *rng.choice([[], [], [None], [" "]])]
    labels = pd.Series(rng.choices(values, k=9), dtype=object)
    frame = pd.DataFrame({"id": range(9), "text": [f" t{i}, é " for i in range(9)], "label": labels})
    if rng.random() < 0.5:
        frame["label"] = frame["label"].convert_dtypes()
    expected = read(frame)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True, force_ascii=False)
    sources = ["a.csv", "a.tsv", "a.jsonl"]
    if len({type(label) for label in labels.dropna()}) < 2:
        frame.to_parquet(tmp_path / "a.parquet")
        sources.append("a.parquet")
    assert {name: read(tmp_path / name) for name in sources} == dict.fromkeys(sources, expected)
