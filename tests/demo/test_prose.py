"""Docstrings in all the usual formats are reduced to English prose without markup."""

import pytest

from unmask.demo.documentation import is_prose, prose

PLAIN = "The list is read aloud each morning."
CASES = {
    "doctest": "%s\n\n>>> read(3)\n'The boat is here.'\n",
    "fence": "%s\n\n```python\nThis is the text of a program.\n```\n",
    "literal block": "%s Like so::\n\n    This is the text of a program.\n\n    And this is more of the text.\n\nx\n",
    "directive": "%s\n\n.. plot::\n\n    This is the text of a program.\n",
    "grid table": "%s\n\n+------+-----+\n| This is | the table. |\n+------+-----+\n",
    "simple table": "%s\n\n=====  =====\nThis   and that\n=====  =====\n",
    "references": "%s\n\nReferences\n----------\n.. [1] The Book of the Harbour, by A. Writer.\n",
    "examples": "%s\n\nExamples:\n    This is how it is used in a program.\n",
    "parameters": "%s\n\nParameters\n----------\nboat : int\n    the number of the boat\n",
    "code without a mark": "%s\n\n    for boat in boats: print(boat)\n",
    "copyright": "%s\n\nCopyright (c) 2001 by the people of the harbour.\n",
    "heading": "The Harbour\n===========\n\n%s\n",
    "wrapped": "The list is read\n    aloud each morning.",
    "no full stop": "The list is read aloud each morning",
}


@pytest.mark.parametrize("case", CASES)
def test_cleaning(case):
    assert list(prose(CASES[case].replace("%s", PLAIN))) == [PLAIN]


@pytest.mark.parametrize(
    "docstring",
    [
        "Args:\n    boat (int, *optional*): The number of the boat\n        that is due.",
        "Parameters\n----------\nboat : int, optional\n    The number of the boat that is due.",
        ":param boat: The number of the boat that is due.",
        "- The number of the boat that is due.",
        ".. note::\n    The number of the boat that is due.",
    ],
)
def test_descriptions_that_are_sentences_are_kept(docstring):
    assert list(prose(f"{PLAIN}\n\n{docstring}")) == [PLAIN, "The number of the boat that is due."]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        (":class:`~harbour.Boat`", "harbour.Boat"),
        ("``boat``", "boat"),
        ("`the boat <https://example.org>`_", "the boat"),
        ("[`Boat`]", "Boat"),
        ("[the boat](https://example.org)", "the boat"),
        ("*the* **boat**", "the boat"),
        ("`boat'", "'boat'"),
        ("the boat [1]_", "the boat"),
    ],
)
def test_markup(marked, plain):
    assert list(prose(f"Ask for {marked} at the office, and wait.")) == [f"Ask for {plain} at the office, and wait."]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Too short.",
        "This sentence has no end",
        "begins in the middle of a sentence.",
        "Set x = 3 and go on with it.",
        "Alpha Beta Gamma Delta Epsilon.",
        "Das Boot liegt heute noch nicht im Hafen.",
    ],
)
def test_not_prose(text):
    assert not is_prose(text)


def test_paragraphs_are_separated_by_blank_lines_items_and_indents():
    docstring = """Read the list
    aloud.

    - Begin with the boats that are due
      before noon.
    - Go on with the boats that are late today.

    Args:
        boat: The number of the boat that is due,
            counted from one.
        crane (str): no sentence
    """
    assert list(prose(docstring)) == [
        "Read the list aloud.",
        "Begin with the boats that are due before noon.",
        "Go on with the boats that are late today.",
        "The number of the boat that is due, counted from one.",
    ]
