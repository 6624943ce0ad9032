"""Specification of a run: checks that need no file."""

import pytest

from unmask.support.errors import UserError
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, LabelledFiles


def job_of(task="classification", **options):
    return FinetuningJob(task, InitialModel("nowhere"), LabelledFiles(["nothing.tsv"]), **options)


@pytest.mark.parametrize(
    ("model", "expected"), [("random:bert-tiny", False), ("runs/random", True), ("a/b", True), ("random", True)]
)
def test_only_random_models_are_not_pretrained(model, expected):
    assert InitialModel(model).pretrained is expected


def test_consistent_jobs_pass():
    job_of().check()
    job_of("regression", settings={"seed": 1, "budget.epochs": 5}).check()
    job_of(downstream="rnn", settings={"downstream.width": 8}).check()
    job_of(frozen=True, settings={"downstream.layers": [-1]}).check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "clasification"}, r"^unknown task 'clasification'; did you mean 'classification'\?$"),
        (
            {"task": "poetry"},
            "^unknown task 'poetry'; known: answer-beams, classification, ",
        ),
        ({"downstream": "tree"}, "^unknown downstream model 'tree'; known: average, difference, linear, rnn$"),
        (
            {"settings": {"downstream.width": 3}},
            "^downstream.… has no effect without a downstream model; pass frozen=True or downstream=KIND$",
        ),
        (
            {"settings": {"frozen": True}},
            '^settings={"frozen": True} is not allowed; pass frozen=True or downstream=KIND$',
        ),
        (
            {"frozen": True, "settings": {"downstream.kind": "rnn"}},
            '^settings={"downstream.kind": "rnn"} is not allowed; pass frozen=True or downstream=KIND$',
        ),
        ({"examples": -1}, "^examples=-1: not a whole number of 1 or more$"),
        ({"settings": ["seed=1"]}, "settings must be a mapping"),
    ],
)
def test_inconsistent_jobs_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        job_of(**options).check()
