"""The loss of a step over weighted examples, computed by hand from predictions."""

import json

import numpy as np
import pytest

from unmask.data.labelled.table import ExampleTable
from unmask.inference.predictor import Predictor
from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.tasks.classification import Classification
from unmask.workflows.finetuning.examples import read_examples
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.job import LabelledFiles

from .conftest import CPU


@pytest.mark.parametrize("micro_tokens", [60, 100_000])
@pytest.mark.parametrize("unit", [1, 1000])
def test_it_is_their_weighted_mean_whatever_the_micro_batches(classifier, tmp_path, micro_tokens, unit):
    """Of a step with all examples; a mean of the micro-batches' means would be another, as short texts weigh less."""
    rng, predictor = np.random.default_rng(0), Predictor(load_model(classifier), CPU)
    texts = [" ".join(rng.choice(["river", "dog", "cat", "garden"], size)) for size in rng.integers(1, 20, 40)]
    labels, weights = rng.choice(["long", "brief"], 40).tolist(), np.array([len(text) for text in texts]) * unit
    finetune(
        "classification",
        classifier,
        {"text": texts, "label": labels, "importance": weights.tolist()},
        tmp_path / "run",
        settings=parse_overrides(
            ["budget.steps=1", "batch.sequences=40", f"batch.micro_tokens={micro_tokens}", "dropout=0.0"]
        ),
        columns={"text": "text", "label": "label", "weight": "importance"},
        all_examples=True,
        device="cpu",
        precision="float32",
        quiet=True,
    )
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    loss = next(line["loss"] for line in lines if line.get("step") == 1)
    predictions = predictor.predict(texts)
    losses = [-np.log(prediction.scores[label]) for prediction, label in zip(predictions, labels, strict=True)]
    expected = np.average(losses, weights=weights)
    assert loss == pytest.approx(expected, rel=1e-4) and abs(np.mean(losses) - expected) > 1e-3 * expected


@pytest.mark.parametrize("files", ["dev", "held out", "choosing"])
def test_what_is_not_trained_on_has_no_weights(classifier, tmp_path, files):
    """Files of dev examples need no column of them; a tenth that is held out counts each example once, too."""
    rows = {"text": [f"river {'dog ' * number}" for number in range(20)], "label": ["long", "brief"] * 10}
    train = ExampleTable("<train>", {**rows, "importance": [*range(1, 21)]})
    dev = [ExampleTable("<dev>", rows)] if files == "dev" else []
    columns = {"text": "text", "label": "label", "weight": "importance"}
    files_read, base = LabelledFiles([train], dev, columns), load_model(classifier)
    read = read_examples(Classification(), files_read, base)
    if files == "choosing":
        read = read.inner(Classification())
    assert read.held and all("weight" not in row.values for row in read.held)
    assert len({row.values["weight"] for row in read.train}) == len(read.train)
    with pytest.raises(UserError, match="no column named importance"):
        read_examples(Classification(), LabelledFiles([ExampleTable("<train>", rows)], [], columns), base)
