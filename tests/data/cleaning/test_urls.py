"""Lists of addresses that are kept or dropped."""

import pytest

from unmask.data.cleaning.rule import Document
from unmask.data.cleaning.urls import Urls, host_of, names_of
from unmask.support.errors import UserError

PAGE = "https://www.News.Example.org:443/world/2020/story.html?id=1#part"


@pytest.mark.parametrize(
    ("url", "host"),
    [(PAGE, "news.example.org"), ("a.example/b", "a.example"), ("http://[::1]/", "::1"), ("http://[x", ""), ("", "")],
)
def test_hosts(url, host):
    assert host_of(url) == host


def test_names_of_an_address():
    host = "news.example.org"
    assert list(names_of(PAGE)) == [
        *(host, "example.org", "org", f"{host}/world", f"{host}/world/2020", f"{host}/world/2020/story.html"),
        f"{host}/world/2020/story.html?id=1",
    ]
    assert list(names_of("/path")) == list(names_of("")) == []


def judged(tmp_path, url, **lists):
    files = {}
    for name, lines in lists.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(["# a list", "", *lines]))
        files[name] = (str(tmp_path / f"{name}.txt"),)
    return Urls(**files).build()(Document("text", url)).dropped


@pytest.mark.parametrize(
    ("entry", "is_listed"),
    [
        *(("example.org", True), ("EXAMPLE.org ", True), ("https://www.news.example.org/", True), ("org", True)),
        *(("news.example.org/world", True), ("http://news.example.org/world/2020/", True), (PAGE, True)),
        *(
            ("ample.org", False),
            ("example.org/world", False),
            ("news.example.org/wor", False),
            ("b.example.org", False),
        ),
        *((PAGE.replace("id=1", "id=2"), False), ("news.example.org/world/2020/story.html", True)),
    ],
)
def test_entries(tmp_path, entry, is_listed):
    assert judged(tmp_path, PAGE, block=["other.example", entry]) == ("blocked" if is_listed else "")
    assert judged(tmp_path, PAGE, allow=["other.example", entry]) == ("" if is_listed else "not allowed")


def test_both_lists_and_documents_without_an_address(tmp_path):
    assert judged(tmp_path, PAGE, allow=["example.org"], block=["news.example.org/world"]) == "blocked"
    assert judged(tmp_path, "", allow=["example.org"]) == "no address"
    assert judged(tmp_path, "", block=["example.org"]) == ""


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["a.example", "a b.example"], "lists.txt:2: is neither"),
        (["/path"], "lists.txt:1"),
        (["# no"], "lists nothing"),
    ],
)
def test_lists_that_are_none_are_refused(tmp_path, lines, problem):
    (tmp_path / "lists.txt").write_text("\n".join(lines))
    with pytest.raises(UserError, match=problem):
        Urls(block=(str(tmp_path / "lists.txt"),)).build()


def test_a_rule_without_lists_is_refused():
    with pytest.raises(UserError, match="urls names no lists"):
        Urls().build()


@pytest.mark.parametrize("entry", ["пример.рф", "xn--e1afmkfd.xn--p1ai", "ПРИМЕР.рф/caf%c3%a9", "пример.рф/café/"])
@pytest.mark.parametrize("url", ["http://www.xn--e1afmkfd.xn--p1ai/caf%C3%A9/1", "https://пример.рф/café/1?a=b"])
def test_letters_may_be_encoded(tmp_path, url, entry):
    assert judged(tmp_path, url, block=[entry]) == "blocked"
    assert judged(tmp_path, "http://xn--e1afmkfd.org/caf%C3%A9/1", block=[entry]) == ""
    assert host_of("http://a..é/") == "a..é"
