"""The directory of a comparison after it was damaged or changed: refused, with the file, or computed again."""

import errno
import json
import random
import shutil

import numpy as np
import pytest

import unmask
from unmask.support.errors import UnmaskError, UserError
from unmask.workflows.comparing import compute
from unmask.workflows.comparing.cells import ABOUT, FAILED, MISTAKES, RESAMPLED, RESULT, result_of, write_result

from .test_compare import HERE, planned


def changed(value, rng):
    """Another value in the place of a value, or a value of another type."""
    others = [None, "NaN", True, -1, 10**400, 1e308, [], {}, "<script>", [[1]], {"accuracy": "x"}, float("nan")]
    return rng.choice([other for other in others if other != value])


def damage(content, rng, other):
    """Change the bytes of a result, by one of several ways."""
    way = rng.randrange(7)
    if way == 0:
        return content[: rng.randrange(len(content))]
    if way == 1:
        at = rng.randrange(len(content))
        return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    if way == 2:
        return other
    if way == 3:
        return rng.choice([b"", b"[1]", b"3", b"null", b"\xff\xfe", b"[" * 5000, b'{"digest": 3}', b"\x00" * 100])
    result = json.loads(content)
    name = rng.choice(list(result))
    if way == 4:
        del result[name]
    elif way == 5 and isinstance(result[name], dict) and result[name]:
        result[name][rng.choice(list(result[name]))] = changed(None, rng)
    else:
        result[name] = changed(result[name], rng)
    return json.dumps(result).encode()


def test_a_damaged_result_is_refused(inputs, finished, tmp_path):
    plan, rng = planned(inputs), random.Random(0)
    out = shutil.copytree(finished[0], tmp_path / "out")
    contents = {cell.key: (out / "cells" / cell.key / RESULT).read_bytes() for cell in plan.cells}
    for number in range(300):
        cell, *others = rng.sample(plan.cells, 2)
        path = out / "cells" / cell.key / RESULT
        path.write_bytes(damage(contents[cell.key], rng, contents[others[0].key]))
        same = path.read_bytes() == contents[cell.key]
        if not same:
            with pytest.raises(UserError, match="is damaged, was changed, or belongs to another cell") as error:
                result_of(out, cell)
            assert str(error.value).startswith(f"{path}: "), number
        path.write_bytes(contents[cell.key])
        assert result_of(out, cell) is not None


@pytest.mark.parametrize("name", [RESULT, RESAMPLED, MISTAKES])
@pytest.mark.parametrize("way", ["cut", "gone", "other", "folder"])
def test_a_comparison_with_a_damaged_file(name, way, inputs, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished[0], tmp_path / "out", symlinks=True)
    monkeypatch.setattr(compute, "COMPUTE", {})
    first, second = (cell for cell in planned(inputs).of("score") if cell.seed == 0)
    path, other = (out / "cells" / cell.key / name for cell in (first, second))
    if way == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif way == "other":
        path.write_bytes(other.read_bytes() if other.read_bytes() != path.read_bytes() else b"[]  ")
    else:
        path.unlink()
    if way == "folder":
        path.mkdir()
    if (way, name) == ("gone", RESULT):  # not finished, and nothing can be computed here
        assert "failed" in {cell.state for cell in unmask.compare(inputs / "pets.toml", out=out, **HERE).cells}
        return
    with pytest.raises(UserError, match="compute the cell again by the same command") as error:
        unmask.compare(inputs / "pets.toml", out=out, **HERE)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"name": 3}', b'{"attempts": "x"}', b"\xff", b'{"attempt": "a"'])
def test_what_only_describes_a_cell_may_be_damaged(content, inputs, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished[0], tmp_path / "out")
    for cell in planned(inputs).cells:
        for name in (ABOUT, FAILED):
            (out / "cells" / cell.key / name).write_bytes(content)
    monkeypatch.setattr(compute, "COMPUTE", {})
    assert unmask.compare(inputs / "pets.toml", out=out, **HERE).arms == finished[1].arms


def test_nothing_is_written_through_a_link(inputs, finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    (cell,) = planned(inputs).of("overlap")
    shutil.rmtree(out / "cells" / cell.key)
    (tmp_path / "elsewhere").mkdir()
    (out / "cells" / cell.key).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        unmask.compare(inputs / "pets.toml", out=out, **HERE)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_lock_of_a_dead_process_and_other_entries(inputs, finished, tmp_path):
    """A lock file whose process has ended does not lock, and what else lies in a directory is left alone."""
    out = shutil.copytree(finished[0], tmp_path / "out")
    (cell,) = planned(inputs).of("overlap")
    before = result_of(out, cell)
    shutil.rmtree(out / "cells" / cell.key)
    (out / "cells" / cell.key).mkdir()
    (out / "cells" / cell.key / ".lock").write_text("12345\nsome-host\n")
    (out / "cells" / "0123456789abcdef").mkdir()
    (out / "cells" / "0123456789abcdef" / RESULT).write_text("[1")
    assert unmask.compare(inputs / "pets.toml", out=out, **HERE).arms == finished[1].arms
    after = result_of(out, cell)
    assert {**after, "elapsed": 0} == {**before, "elapsed": 0}


def test_results_are_read_as_they_were_written(inputs, tmp_path):
    cell, rng = planned(inputs).cells[0], np.random.default_rng(0)
    folder = tmp_path / "cells" / cell.key
    folder.mkdir(parents=True)
    for _ in range(50):
        powers = (10.0 ** rng.integers(-300, 300, 3)).tolist()
        values = [*rng.standard_normal(3).tolist(), *powers, int(rng.integers(2**60)), "ä\ud7ff"]
        result = {f"v{number}": value for number, value in enumerate(values)} | {"table": {"b": [1, None], "a": ()}}
        write_result(folder, cell, result)
        assert result_of(tmp_path, cell) == {**result, "table": {"b": [1, None], "a": []}, "files": {}}


def test_a_corpus_is_complete_and_has_no_result_yet(inputs, finished, tmp_path):
    """As if the process had ended between the two."""
    out = shutil.copytree(finished[0], tmp_path / "out")
    (cell,) = planned(inputs).of("corpus")
    before = result_of(out, cell)
    (out / "cells" / cell.key / RESULT).unlink()
    outcome = unmask.compare(inputs / "pets.toml", out=out, **HERE)
    assert outcome.arms == finished[1].arms
    assert {**result_of(out, cell), "elapsed": 0} == {**before, "elapsed": 0}


def test_E5_a_full_disk_ends_the_work_without_a_failed_cell(inputs, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished[0], tmp_path / "out")
    cells = [cell for cell in planned(inputs).of("score") if cell.arm == "random"]
    for cell in cells:
        shutil.rmtree(out / "cells" / cell.key)
    tried = []

    def fail(cell, *arguments):
        tried.append(cell)
        raise UnmaskError("the checkpoint could not be written") from OSError(errno.ENOSPC, "No space left", "file")

    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"No space left: 'file'"):
        patch.setitem(compute.COMPUTE, "score", fail)
        unmask.compare(inputs / "pets.toml", out=out, **HERE)
    assert len(tried) == 1 < len(cells)
    assert not list(out.glob("cells/*/failed.json"))
    again = unmask.compare(inputs / "pets.toml", out=out, **HERE)
    assert again.arm("random").scores == finished[1].arm("random").scores
