"""Rows of QuAC, CoQA and HotpotQA, as `datasets` stores them, as the records that the published files have.

Input: JSON Lines, Parquet, Arrow, a split of a data set, or examples in memory. A row is a dialogue of QuAC or CoQA, or
a question of HotpotQA; what a published file has as a list of objects is an object of lists there, or a list of objects
as well. Output: records in the form of the published files, with their locations.

- QuAC: `dialogue_id`, `context`, `turn_ids`, `questions`, `answers` (`texts`, `answer_starts`), `orig_answers`,
  `yesnos`, `followups`;
- CoQA: `source`, `story`, `questions`, `answers` (`input_text`, `answer_start`, `answer_end`); dialogues are numbered;
- HotpotQA: `id`, `question`, `answer`, `type`, `context` (`title`, `sentences`), `supporting_facts` (`title`,
  `sent_id`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unmask.data.labelled.json_file import Place
from unmask.support.errors import counted

Record = dict[str, Any]
ANSWER = {"texts": "text", "answer_starts": "answer_start"}
RATIONALE = {"input_text": "input_text", "answer_start": "span_start", "answer_end": "span_end"}


def quac_paragraph(row: Record, place: Place) -> Record:
    """Return a row of QuAC as a paragraph of its files.

    Raises:
        UserError: it is none, or a list has not as many values as there are questions.
    """
    name, questions = place.text(row, "dialogue_id"), place.take(row, "questions", list)
    ids = row.get("turn_ids") or [f"{name}_q#{number}" for number in range(len(questions))]
    columns: dict[str, Sequence[Any]] = {"question": questions, "id": ids}
    for key, ours in (("yesnos", "yesno"), ("followups", "followup")):
        if row.get(key) is not None:
            columns[ours] = place.take(row, key, list)
    if row.get("orig_answers") is not None:
        columns["orig_answer"] = _objects(row, "orig_answers", ANSWER, place)
    if row.get("answers") is not None:
        of_turns = _objects(row, "answers", dict(zip(ANSWER, ANSWER, strict=True)), place)
        columns["answers"] = [_objects({"answers": turn}, "answers", ANSWER, place) for turn in of_turns]
    for ours, values in columns.items():
        if len(values) != len(questions):
            place.refuse(f"{counted(len(questions), 'question')}, but '{ours}' has {counted(len(values), 'value')}")
    turns = zip(*columns.values(), strict=True)
    return {"id": name, "context": row.get("context"), "qas": [dict(zip(columns, turn, strict=True)) for turn in turns]}


def coqa_story(row: Record, place: Place, number: int) -> Record:
    """Return a row of CoQA, of this number, as a story of its files.

    Raises:
        UserError: it is none.
    """
    questions = [
        {"input_text": text, "turn_id": turn} for turn, text in enumerate(place.take(row, "questions", list), 1)
    ]
    story = {key: row[key] for key in ("story", "source") if key in row} | {"id": str(number), "questions": questions}
    if row.get("answers") is not None:
        story["answers"] = _objects(row, "answers", RATIONALE, place)
    return story


def hotpot_record(row: Record, place: Place) -> Record:
    """Return a row of HotpotQA as a question of its files, and such a question as it is.

    Raises:
        UserError: its lists have different lengths.
    """
    record = dict(row) if "_id" in row or "id" not in row else {**row, "_id": row["id"]}
    for key, ours in (("context", ("title", "sentences")), ("supporting_facts", ("title", "sent_id"))):
        if isinstance(row.get(key), Mapping):
            record[key] = [
                list(each.values()) for each in _objects(row, key, dict(zip(ours, ours, strict=True)), place)
            ]
    return record


def _objects(row: Record, key: str, names: Mapping[str, str], place: Place) -> list[Record]:
    """Return a list of objects that may be stored as an object of lists, with their values by our names."""
    if isinstance(row.get(key), list):
        return [{ours: value.get(name) for name, ours in names.items()} for _, value in place.each(row, key, key)]
    inside = place.inner(key)
    lists = [inside.take(place.take(row, key, dict), name, list) for name in names]
    if len(set(map(len, lists))) > 1:
        inside.refuse(f"lists of different lengths: {', '.join(f'{len(values)}' for values in lists)}")
    return [dict(zip(names.values(), values, strict=True)) for values in zip(*lists, strict=True)]
