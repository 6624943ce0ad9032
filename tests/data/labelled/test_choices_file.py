"""Multiple-choice files: SWAG's rows and RACE's articles; mistakes are named."""

import csv
import json

import pytest

from unmask.data.labelled.choices_file import Choices, read_choices
from unmask.support.errors import UserError

SWAG = {
    **{"": "0", "video-id": "v1", "fold-ind": "3415", "startphrase": "A cat sits. It", "sent1": "A cat sits."},
    **{"sent2": "It", "gold-source": "gold", "ending0": "sleeps.", "ending1": "flies, far.", "ending2": "reads."},
    **{"ending3": "sings.", "label": "1"},
}
RACE = {
    "id": "middle1.txt",
    "article": "Eve lives in Rome.",
    "questions": ["Where does Eve live?", "Eve lives in _ ."],
    "options": [["In Paris.", "In Rome."], ["Rome", "Paris", "a house"]],
    "answers": ["B", "A"],
}


def swag(path, *rows):
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_swag(tmp_path):
    (found,) = read_choices([swag(tmp_path / "train.csv", SWAG)])
    endings = ("sleeps.", "flies, far.", "reads.", "sings.")
    assert found == Choices("v1 3415 1", "A cat sits.", "It", endings, 1, str(tmp_path / "train.csv"), "row 1")
    bare = {name: value for name, value in SWAG.items() if name not in ("label", "gold-source")}
    (found,) = read_choices([swag(tmp_path / "test.csv", bare)], gold=False)
    assert found.gold is None


def test_rows_of_swag_with_another_number_of_cells_are_refused(tmp_path):
    path = swag(tmp_path / "train.csv", SWAG, SWAG)
    header, first, second = path.read_text().splitlines()
    path.write_text("\n".join([header, first, second.replace("reads.", "reads, 2, 3")]))  # the last cell is a number
    with pytest.raises(UserError, match=r"train\.csv:3: 14 columns where there should be 12"):
        read_choices([path])
    path.write_text(";".join(header.split(",")) + "\n" + first.replace('"flies, far."', "flies").replace(",", ";"))
    assert read_choices([path])[0].choices[1] == "flies"


def test_race(tmp_path):
    (tmp_path / "high").mkdir()
    (tmp_path / "1.txt").write_text(json.dumps(RACE))
    (tmp_path / "high/2.txt").write_text(json.dumps({**RACE, "id": "high2.txt"}))
    first, second, third, _ = read_choices([tmp_path])
    assert (first.question, first.choices, first.gold) == ("Where does Eve live?", ("In Paris.", "In Rome."), 1)
    assert (second.gold, second.place, second.part, third.part) == (0, "question 2", "middle", "high")
    assert first.passage == "Eve lives in Rome."
    (tmp_path / "1.txt").write_text(json.dumps({name: RACE[name] for name in RACE if name != "answers"}))
    assert read_choices([tmp_path / "1.txt"], gold=False)[0].gold is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "4"}, r"row 1: the label '4' is none of the 4 choices \(0, 1, 2, 3\); correct it"),
        ({"label": "x"}, "the label 'x' is none of the 4 choices"),
        ({"ending2": " "}, "the ending2 is empty"),
    ],
)
def test_what_is_wrong_with_swag_is_named(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read_choices([swag(tmp_path / "train.csv", SWAG | change)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": ["C", "A"]}, "question 1: the answer 'C' is none of the 2 options"),
        ({"answers": ["A"]}, "2 questions, 2 lists of options, 1 answers; files must be in RACE"),
        ({"options": [["a"], ["b", "c"]]}, "question 1: not a list of two options or more"),
        ({"article": ""}, "the article is empty"),
    ],
)
def test_what_is_wrong_with_race_is_named(tmp_path, change, message):
    (tmp_path / "1.txt").write_text(json.dumps(RACE | change))
    with pytest.raises(UserError, match=message):
        read_choices([tmp_path / "1.txt"])


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label\na,b\n")
    with pytest.raises(UserError, match="row 1: the keys text, label are not those of a question with choices"):
        read_choices([path])
    path.write_bytes(b"\xff\xff")
    with pytest.raises(UserError, match=r"1: not UTF-8 \(byte 1 of the line\)"):
        read_choices([path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"there are no \.txt, \.json, \.csv files in the directory; unpack"):
        read_choices([tmp_path / "empty"])
    (tmp_path / "1.txt").write_text(json.dumps(RACE))
    with pytest.raises(UserError, match=r"the id 'middle1\.txt 0' is also that of question 1"):
        read_choices([tmp_path / "1.txt", tmp_path / "1.txt"])
