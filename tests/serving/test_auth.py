import hmac

import pytest

from unmask.serving.guard import VARIABLE, Keys, read_keys
from unmask.support.errors import UserError

FIRST, SECOND = "first-key-0123456789", "second-key-0123456789"


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        (f"Bearer {FIRST}", True),
        (f"bearer {SECOND}", True),
        (f"Bearer {FIRST}x", False),
        (f"Bearer {FIRST[:-1]}", False),
        (FIRST, False),
        (f"Basic {FIRST}", False),
        ("Bearer", False),
        ("", False),
    ],
)
def test_S13_only_the_keys_are_allowed(header, allowed):
    assert Keys([FIRST, SECOND]).allow(header.encode()) == allowed
    assert Keys().allow(header.encode()), "without keys, everybody may ask"


def test_S13_every_key_is_compared_in_constant_time(monkeypatch):
    seen = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: seen.append(set(map(len, both))) or real(*both))
    Keys([FIRST, SECOND]).allow(f"Bearer {FIRST}".encode())
    assert seen == [{32}, {32}], "digests of equal length, and no early end"


def test_keys_are_read_from_a_file_and_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "keys"
    path.write_text(f"# of a friend\n{FIRST}\n\n")
    monkeypatch.setenv(VARIABLE, SECOND)
    keys = read_keys(str(path))
    assert keys.allow(f"Bearer {FIRST}".encode()) and keys.allow(f"Bearer {SECOND}".encode())
    monkeypatch.delenv(VARIABLE)
    assert not read_keys(None)


@pytest.mark.parametrize(
    "content", ["", "# only a comment\n", "short\n", "with a space 0123456789\n", "ключ" * 10, None]
)
def test_bad_keys_are_refused_and_not_shown(tmp_path, content):
    path = tmp_path / "keys"
    if content is not None:
        path.write_text(content, encoding="utf8")
    with pytest.raises(UserError, match="keys") as refused:
        read_keys(str(path))
    assert "0123456789" not in str(refused.value)
