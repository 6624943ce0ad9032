"""Objects with a key twice are refused, by every reader of JSON; everything else is read as before."""

import json

import numpy as np
import pytest

from unmask.data.corpus.build import write_corpus
from unmask.data.labelled.json_file import Place, decode_json
from unmask.data.labelled.records import read_records
from unmask.data.text.json_keys import check_keys, refuse_duplicates
from unmask.data.text.whole_files import read_json
from unmask.support.errors import UserError

TEXTS = ["a", '"b" : c', "\\", 'x\\": y', "é", "", '":":":', '{"text": 1}', "\n"]


def random_value(rng, depth=0):
    """Return random JSON as text, whether one of its objects has a key twice, and its value."""
    kind = rng.integers(0, 6 if depth < 3 else 3)
    if kind < 3:
        value = [TEXTS[rng.integers(0, len(TEXTS))], int(rng.integers(-5, 5)), [None, True, 0.5][rng.integers(0, 3)]][
            kind
        ]
        return json.dumps(value, ensure_ascii=bool(rng.integers(0, 2))), False, value
    inner = [random_value(rng, depth + 1) for _ in range(rng.integers(0, 4))]
    space, twice = " " * int(rng.integers(0, 3)), any(item[1] for item in inner)
    if kind == 3:
        return f"[{space}{', '.join(item[0] for item in inner)}]", twice, [item[2] for item in inner]
    keys = [TEXTS[rng.integers(0, len(TEXTS))] for _ in inner]
    pairs = [f"{json.dumps(key)}{space}:{space}{item[0]}" for key, item in zip(keys, inner, strict=True)]
    value = dict(zip(keys, (item[2] for item in inner), strict=True))
    return f"{{{','.join(pairs)}}}", twice or len(value) < len(keys), value


def test_keys_are_counted_as_by_python():
    rng = np.random.default_rng(0)
    number = 0
    for _ in range(4000):
        text, twice, value = random_value(rng)
        for form in (text, text.encode()):
            if twice:
                with pytest.raises(ValueError, match="duplicate key"):
                    json.loads(form, object_pairs_hook=refuse_duplicates)
                with pytest.raises(ValueError, match="duplicate key"):
                    check_keys(form, json.loads(form))
            else:
                check_keys(form, value)
        number += twice
    assert number > 200


LINE = '{"text": "The dog.", "label": "good", "text": "A cat."}'


def test_every_reader_refuses_them(tmp_path, tokenizer):
    for name, content in (("lines.jsonl", LINE), ("array.json", f"[{LINE}]"), ("config.json", LINE)):
        (tmp_path / name).write_text(content)
    for read in (
        lambda: list(read_records(tmp_path / "lines.jsonl")),
        lambda: list(read_records(tmp_path / "array.json")),
        lambda: decode_json(tmp_path / "array.json", Place("array.json")),
        lambda: read_json(tmp_path / "config.json"),
        lambda: write_corpus([tmp_path / "lines.jsonl"], tokenizer, tmp_path / "corpus"),
    ):
        with pytest.raises(UserError, match="duplicate key 'text'"):
            read()
