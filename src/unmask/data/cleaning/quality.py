"""Documents that a classifier of your own would keep: others are dropped.

In: documents, and a static student of the classifier (workflows/corpora/student.py): a weight for each token. Out:
those whose score, the mean weight of their tokens and a bias, is at least its threshold. No layer is computed, so that
a core judges megabytes in a second. Filters of web text are classifiers as small since Brown et al. 2020 (appendix A),
who used a linear one; Penedo et al. 2024 (section 4) label text by a large model, and filter by a smaller one.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.words import WordCache
from unmask.support.errors import UserError

STUDENT, WEIGHTS, TOKENIZER = "student.json", "weights.npy", "tokenizer"
"""Files of a student."""
CHARACTERS = 2000
"""Number of characters of a document that are read, from its start."""


class Student(msgspec.Struct, frozen=True):
    """What student.json says.

    Attributes:
        key: a fingerprint of what it was made from.
        kept: what documents are that stay, such as the label "good".
        bias, threshold: the score of a text without tokens, and that from which on documents stay.
        notes: how well it agrees with the classifier.
    """

    key: str
    kept: str
    bias: float
    threshold: float
    notes: list[str]


class Quality(RuleSettings, frozen=True, kw_only=True):
    """The table [quality].

    Attributes:
        student: directory of the student.
    """

    student: str

    @property
    def files(self) -> tuple[str, ...]:
        """The files that decide."""
        return tuple(str(Path(self.student) / name) for name in (STUDENT, WEIGHTS))

    def build(self) -> Judge:
        """See `RuleSettings`."""
        folder = Path(self.student)
        student, tokenizer = read_student(folder), load_tokenizer(folder / TOKENIZER).closed
        weights, words = np.load(folder / WEIGHTS, allow_pickle=False), WordCache(tokenizer, "<i4")
        if weights.shape != (tokenizer.size,) or weights.dtype != np.float32:
            raise UserError(f"is not a weight for each of {tokenizer.size:,} tokens", file=folder / WEIGHTS)

        def judge(document: Document) -> Verdict:
            ids = np.frombuffer(words.encode(document.text[:CHARACTERS]), "<i4")
            score = student.bias + (float(weights[ids].mean()) if len(ids) else 0.0)
            return Verdict(document, "" if score >= student.threshold else f"not {student.kept}")

        return judge


def read_student(folder: Path) -> Student:
    """Read what is known of a student.

    Raises:
        UserError: there is none, or it is damaged.
    """
    try:
        return msgspec.json.decode((folder / STUDENT).read_bytes(), type=Student)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"is not the student of a classifier ({error})", file=folder / STUDENT) from error
