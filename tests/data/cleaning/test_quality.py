"""The student of a classifier drops the documents that it scores low, and says so."""

import msgspec
import numpy as np
import pytest

from unmask.data.cleaning.quality import CHARACTERS, STUDENT, TOKENIZER, WEIGHTS, Quality, Student
from unmask.data.cleaning.rule import Document
from unmask.data.cleaning.rules import read_rules
from unmask.support.errors import UserError


@pytest.fixture
def student(tmp_path, tokenizer):
    """A student that likes the word "the"."""
    folder = tmp_path / "student"
    tokenizer.save(folder / TOKENIZER)
    weights = np.zeros(tokenizer.size, np.float32)
    weights[tokenizer.encode("the")[0]] = 1
    np.save(folder / WEIGHTS, weights)
    (folder / STUDENT).write_bytes(msgspec.json.encode(Student("", "good", -0.25, 0.0, [])))
    return folder


def test_documents_are_judged_by_the_mean_weight_of_their_tokens(student):
    judge = Quality(student=str(student)).build()
    assert judge(Document("the the dog dog")).dropped == ""
    assert judge(Document("the dog dog dog")).dropped == ""  # a quarter, and the bias
    assert judge(Document("the dog dog dog dog")).dropped == "not good"
    assert judge(Document("")).dropped == "not good"
    assert (
        judge(Document("dog " * CHARACTERS + "the " * 9 * CHARACTERS)).dropped == "not good"
    )  # the start alone is read


def test_a_table_names_a_student(student, tmp_path):
    (tmp_path / "rules.toml").write_text(f'[quality]\nstudent = "{student.as_posix()}"\n')
    rules = read_rules([tmp_path / "rules.toml"])
    assert list(rules.judges()) == ["quality"] and len(rules.files) == 2
    (student / WEIGHTS).unlink()
    with pytest.raises(UserError, match="does not exist"):
        read_rules([tmp_path / "rules.toml"])
    with pytest.raises(UserError, match=r"quality.*pass quality=MODEL"):
        read_rules(["quality"])


def test_a_damaged_student_is_named(student):
    np.save(student / WEIGHTS, np.zeros(3, np.float32))
    with pytest.raises(UserError, match=r"weights.npy: is not a weight for each"):
        Quality(student=str(student)).build()
    (student / STUDENT).write_text("{}")
    with pytest.raises(UserError, match=r"student.json: is not the student"):
        Quality(student=str(student)).build()
