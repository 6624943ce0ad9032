"""What type checkers know of predictions: mypy reads this file, which `make check` names; nothing runs it."""

from typing import Any, assert_type

import unmask
from unmask.inference.predictor import Predictor
from unmask.tasks.answer_head import KindAnswered
from unmask.tasks.classification import Prediction
from unmask.tasks.dialogues import QuacAnswered
from unmask.tasks.extraction import Answered
from unmask.tasks.hotpotqa import HotpotAnswered
from unmask.tasks.late_interaction import TokenVectors
from unmask.tasks.multi_label import Labels
from unmask.tasks.multiple_choice import Chosen
from unmask.tasks.regression import Score
from unmask.tasks.sparse import SparseVector
from unmask.tasks.tagged import Tagged
from unmask.tasks.text_pairs import Similarity

assert_type(unmask.load("run", "classification").predict(["a"]), list[Prediction])
assert_type(unmask.load("run", task="multi-label", device="cpu").predict("a")[0].labels, tuple[str, ...])
assert_type(unmask.load("run", "multi-label").predict("a"), list[Labels])
assert_type(unmask.load("run", "ranking", precision="bf16").predict(["a"], ["b"]), list[Score])
assert_type(unmask.load("run", "token-classification").predict(["a"]), list[Tagged])
assert_type(unmask.load("run", "question-answering").answer("a", "b"), Answered)
assert_type(unmask.load("run", "multiple-choice").choose("a", ["b", "c"]), Chosen)
assert_type(unmask.load("run", "quac").answer("a", "b"), QuacAnswered)
assert_type(unmask.load("run", "coqa").answer("a", "b"), KindAnswered)
assert_type(unmask.load("run", "hotpotqa").answer("a", ["b"]), HotpotAnswered)
assert_type(unmask.load("run", "sparse").predict("a"), list[SparseVector | Similarity])
assert_type(unmask.load("run", "late-interaction").predict("a"), list[TokenVectors | Similarity])
assert_type(unmask.load("run").predict(["a"]), list[Any])
assert_type(unmask.load("run", "a task of a package").predict(["a"]), list[Any])

assert_type(unmask.load("run", "classification").predict(["a"])[0].score, Any)  # type: ignore[attr-defined]
unmask.load("run", "classification", colour="red")  # type: ignore[call-overload]


def first_label(model: Predictor[Prediction]) -> str:
    """Return the label of a text; a predictor of any model is accepted, too."""
    return model.predict("a")[0].label


first_label(unmask.load("run"))
first_label(unmask.load("run", "ranking"))  # type: ignore[arg-type]
