"""Notes and warnings: their kinds, what they refer to, whose line they are about, and how each front prints them."""

import io
import warnings

import pytest

import unmask
from unmask.cli.main import FALLBACK, _warn
from unmask.support.errors import SharedDirectoryWarning
from unmask.support.messages import argument
from unmask.support.notices import note, warn
from unmask.training.runs.display import Display


def reader(issue):
    issue(f"1 text is empty: pass {argument('data', 'FILE')}")


@pytest.mark.parametrize(("issue", "category"), [(note, unmask.InputNote), (warn, unmask.InputWarning)])
def test_they_are_about_the_line_that_calls_who_issues_them(issue, category):
    with pytest.warns(category) as caught:
        reader(issue)
    (message,) = caught
    assert message.category is category and message.filename == __file__
    assert str(message.message) == "1 text is empty: pass data=FILE"


def test_a_filter_of_notes_leaves_warnings():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", unmask.InputWarning)
        warnings.simplefilter("ignore", unmask.InputNote)
        reader(note)
        reader(warn)
    assert [message.category for message in caught] == [unmask.InputWarning]


@pytest.mark.parametrize(
    ("category", "message", "printed"),
    [
        (unmask.InputNote, "1 text is empty", "unmask: note: 1 text is empty\n"),
        (unmask.InputWarning, "tokens\nhave no weights", "unmask: warning: tokens\\nhave no weights\n"),
        (SharedDirectoryWarning, "a: everybody can change it", "unmask: warning: a: everybody can change it\n"),
        (UserWarning, f"x will {FALLBACK}", f"unmask: note: x will {FALLBACK}\n"),
    ],
)
def test_the_command_line_prints_one_line(capsys, category, message, printed):
    _warn(warnings.showwarning, message, category, __file__, 1)
    assert capsys.readouterr().err == printed


def test_a_display_marks_warnings(monkeypatch):
    display = Display()
    monkeypatch.setattr(display.console, "file", io.StringIO())
    display.say("1 text is empty")
    display.warn(f"see {argument('data')}", "scores are too high")
    assert display.console.file.getvalue() == "1 text is empty\nwarning: see data\nwarning: scores are too high\n"
