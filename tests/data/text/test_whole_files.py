"""Files that are read and written whole: their content, or an error that names them."""

import pytest

from unmask.data.text.whole_files import read_json, read_text, read_value, write_json
from unmask.support.errors import UserError


def test_text_is_utf8_or_named(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("a\r\né".encode())
    assert read_text(path) == "a\r\né", "line ends are kept"
    path.write_bytes(b"a\xff")
    with pytest.raises(UserError, match=rf"^{path}: is not UTF-8$"):
        read_text(path)
    path.unlink()
    with pytest.raises(UserError, match=rf"^{path}: cannot be read \(No such file or directory\)$"):
        read_text(path)


def test_json_is_an_object_or_named(tmp_path):
    path = tmp_path / "config.json"
    assert read_json(path) == {}, "the file is optional"
    content = {"b": [1, "é"], "a": None}
    write_json(path, content)
    assert read_json(path) == content
    assert path.read_text(encoding="utf-8") == '{\n  "b": [\n    1,\n    "é"\n  ],\n  "a": null\n}\n'
    for broken in ("{", "", "[" * 100_000):
        path.write_text(broken)
        with pytest.raises(UserError, match=rf"^{path}: is not valid JSON \("):
            read_json(path)
    path.write_text('[{"a": 1, "a": 2}]')
    for read in (read_json, read_value):
        with pytest.raises(UserError, match=rf"^{path}: is not valid JSON \(duplicate key 'a'\)$"):
            read(path)
    for other in ("[1]", "null", '"text"'):
        path.write_text(other)
        with pytest.raises(UserError, match=rf"^{path}: does not contain a JSON object$"):
            read_json(path)
