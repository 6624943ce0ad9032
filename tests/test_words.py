"""The terms of the field are suggested for lines that use other words; nothing is banned."""

from . import words


def test_other_words_are_named_with_the_term(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("Masked tokens.\nIt reads hidden tokens.\nThe house was learnt.\n")
    assert words.suggestions(tmp_path) == [
        "docs/page.md:2: 'hidden tokens': the term is masked",
        "docs/page.md:3: 'learnt': the term is learned",
    ]
