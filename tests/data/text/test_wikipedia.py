"""Tests of dumps of wikis and of the text of their markup."""

import bz2
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.text.files import pages_of
from unmask.data.text.wikitext import plain_text
from unmask.support.errors import UserError

CASES = {
    "'''Bold''' and ''italic''": "Bold and italic",
    "a [[link]], [[target|label]], [[b]]s, [[:Category:C]]": "a link, label, bs, Category:C",
    "[[File:a.jpg|thumb|A [[cat]] {{sits}}]]after": "after",
    "[[Datei:a.jpg|mini|Eine [[Katze]]]]nach": "nach",
    "{{Infobox|a={{b|[[c]]}}\n|d={{{e|f}}}}}text": "text",
    "a{{cn}} b {{x|}}c": "a b c",
    '{| class="x"\n! a || {{b|}}\n|-\n| c\n{|\n| d\n|}\n|}\ntext': "text",
    "one<ref>two</ref> three<ref name=a /> four<!-- five\n --> six": "one three four six",
    "x <math>a < b</math> y <br/>z": "x y\nz",
    "* one\n*# two\n; three\n: four": "one\ntwo\nthree\nfour",
    "[http://a.org label] [http://a.org] //b": "label //b",
    "A &amp; B&nbsp;C &lt;tag&gt;": "A & B C <tag>",
    "== A ==\n=== B ===\ntext\n== C ==\n{{reflist}}\n== D ==\n": "A\nB\ntext",
    "Foo ({{lang|fr|x}}) and ( ; ) bar": "Foo and bar",
    "open {{ brace\nnext": "open brace\nnext",
    "close }} brace": "close brace",
    "open [[link\nnext": "open link\nnext",
    "a <ref>never closed\nnext": "a\nnext",
    "[[de:Katze]] [[zh-min-nan:X]] text": "text",
    "__TOC__ <small>small</small>": "small",
    "[[Bild:a.jpg|mini|Eine [[Katze]]]]nach [[Imagen:b.PNG]][[Fichier:c.svg|vignette]]": "nach",
    "[[:Bild:a.jpg|das Bild]] [[Star Wars: Episode IV|film]] [[w:a.mp3 b]]": "das Bild film w:a.mp3 b",
    "-{zh-hans:计算机; zh-hant:電腦}-是-{zh-cn:机&nbsp;器;zh-tw:機器;}-": "计算机是机 器",
    "-{A|zh-cn:a; zh-tw:b}-, -{H|zh-cn:c;zh-tw:d}-, -{x}-, -{R|a:b}-, -{T|zh:e}-": "a, , x, a:b,",
    "-{H|巨集=>zh-cn:宏;}-文字 -{巨集=>zh-cn:宏; zh-tw:巨}-": "文字 宏",
    "A ({{IPA|x}}; born 1850), B（{{lang|x}}，生于）": "A (born 1850), B（生于）",
}


@pytest.mark.parametrize("markup", CASES)
def test_text_of_markup(markup):
    assert plain_text(markup, {"file", "datei", "category"}) == CASES[markup]


@settings(max_examples=200, deadline=None)
@given(st.text("[]{}|<>/='*#: \nabref!", max_size=80))
@example("{[[{")
@example("{''{")
@example("'{[[{'{[[{' <''re''f>")
def test_any_markup_is_read_and_no_balanced_template_is_left(markup):
    text = plain_text(markup)
    assert "{{" not in text and "'''" not in text and "<ref>" not in text


MARKS = ["{{", "}}", "[[", "]]", "<ref>", "{|\n", "<", "=", "[http://", "( ", "''", "{{a|", "[mailto:"]


@pytest.mark.parametrize("mark", [*MARKS, "-{a:", "-{ab:;", "(", " ", "; ", ";a=>"])
def test_D12_time_is_proportional_to_the_length(mark):
    def seconds(count):
        start = time.process_time()
        plain_text(mark * count)
        plain_text(f"-{{{mark.replace('{', '') * count}}}-")
        return time.process_time() - start

    seconds(100)
    assert seconds(40_000) < 30  # a quadratic one takes minutes


@pytest.mark.parametrize("before", ["(", "（", "[//a", "[mailto:a"])
def test_D12_spaces_take_time_that_is_proportional_to_their_number(before):
    assert plain_text(before + 80_000 * " " + "!") == f"{before} !"


DUMP = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">
<siteinfo><namespaces><namespace key="6">Datei</namespace><namespace key="0" /></namespaces></siteinfo>
<page><title>A</title><ns>0</ns><revision><model>wikitext</model><text>old</text></revision>
<revision><text>A &amp;lt;b&amp;gt; is.[[Datei:a.jpg|x]]&lt;ref&gt;c&lt;/ref&gt;

Next.</text></revision></page>
<page><title>B</title><ns>0</ns><redirect title="A" /><revision><text>#REDIRECT [[A]]</text></revision></page>
<page><title>D</title><ns>0</ns><revision><text>#WEITERLEITUNG [[A]]</text></revision></page>
<page><title>Talk:A</title><ns>1</ns><revision><text>talk</text></revision></page>
<page><title>C</title><ns>0</ns><revision><text>Last.</text></revision></page>
</mediawiki>
"""


@pytest.mark.parametrize("suffix", [".xml", ".xml.bz2", ".txt"])
def test_articles_of_a_dump(tmp_path, suffix):
    path = tmp_path / f"dump{suffix}"
    path.write_bytes(bz2.compress(DUMP.encode()) if suffix.endswith("bz2") else DUMP.encode())
    assert pages_of(path) == "mediawiki"
    skipped = Skipped()
    assert list(read_documents([path], TextOptions(), skipped)) == ["A\n\nA <b> is.\n\nNext.", "C\n\nLast."]
    assert skipped.left_out == {"redirect": 2, "page that is no article": 1}


def test_a_damaged_dump_gives_the_articles_before_the_damage(tmp_path):
    path = tmp_path / "dump.xml"
    path.write_text(DUMP[: DUMP.index("Last.")])
    skipped = Skipped()
    assert len(list(read_documents([path], TextOptions(), skipped))) == 1
    assert skipped.count == 1 and ":5: the dump is damaged (no element found" in skipped.places[0]
    with pytest.raises(UserError, match=r"dump\.xml:5: the dump is damaged"):
        list(read_documents([path], TextOptions(strict=True), Skipped()))


def test_D10_entities_are_refused(tmp_path):
    path = tmp_path / "dump.xml"
    path.write_text("<mediawiki ></mediawiki>".replace("<med", '<mediawiki /><!DOCTYPE a [<!ENTITY a "b">]><med', 1))
    path.write_text('<?xml version="1.0"?>\n<mediawiki ><!DOCTYPE a [<!ENTITY a "b">]></mediawiki>')
    skipped = Skipped()
    assert not list(read_documents([path], TextOptions(), skipped)) and skipped.count == 1
