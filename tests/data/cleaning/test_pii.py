"""Tests of replacing personal data: planted data are found, and what only looks like them stays."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.cleaning.pii import PII
from unmask.data.cleaning.rule import Document


def scrub(text):
    result = PII().build()(Document(text))
    return result.document.text, dict(result.changes)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("mail address", "anna.b+c@mail.example-site.org"),
        ("mail address", "X_1@a.co.uk"),
        ("mail address", "jörg.müller@bücher-käufer.example"),
        ("mail address", "иван@почта.рф"),
        ("mail address", "संपर्क@डाटामेल.भारत"),
        ("mail address", "用户@例子.中国"),
        ("mail address", "info@xn--bcher-kva.xn--p1ai"),
        ("IP address", "8.8.8.8"),
        ("IP address", "2a00:1450:4001::8.8.4.4"),
        ("IP address", "2a00:1450:4001:81b:0:0:8.8.4.4"),
        ("IP address", "2a00:1450:4001:81b::200e"),
        ("card number", "4111 1111 1111 1111"),
        ("card number", "378282246310005"),
        ("telephone number", "+49 30 1234567"),
        ("telephone number", "+1 (212) 555-7788"),
        ("telephone number", "(0201) 555-7788"),
        ("telephone number", "212-555-7788"),
        ("telephone number", "+33 1 23 45 67 89"),
        ("telephone number", "0049 30 1234567"),
        ("telephone number", "0049 (30) 123-4567"),
        ("telephone number", "00 33 1 23 45 67 89"),
    ],
)
def test_personal_data_are_replaced(kind, text):
    for around in ("Call {} now.", "({})", "{}", "see: {}, or"):
        cleaned, changes = scrub(around.format(text))
        assert text not in cleaned and changes == {kind: 1}, cleaned
        assert scrub(cleaned) == (cleaned, {})


@pytest.mark.parametrize("around", ["服务器{}的", "電話は{}です", "전화{}로", "โทร{}นะ"])
@pytest.mark.parametrize(
    "text", ["8.8.8.8", "2a00:1450:4001:81b::200e", "4111 1111 1111 1111", "+86 138 1234 5679", "212-555-7788"]
)
def test_letters_of_scripts_without_spaces_and_particles_may_be_beside_numbers(around, text):
    cleaned, changes = scrub(around.format(text))
    assert text not in cleaned and sum(changes.values()) == 1
    assert scrub(cleaned) == (cleaned, {})


@pytest.mark.parametrize(
    "text",
    [
        *(
            "192.168.0.1 and 127.0.0.1 and 1.2.3.4.5 and 300.1.1.1",
            "version 10.12.3",
            "agents 007 and 0077, account 0012345678, 0030",
            "@name and a@b and user@localhost",
        ),
        *("+1 20 30", "1914 1918 1939 1945 1989"),
        *("4111 1111 1111 1112", "0000 0000 0000 0000", "1234567890123", "ISBN 978-3-16-148410-0"),
        *(
            "in 1914-1918, 2020-12-31, 10:30:45",
            "3.14159265358979",
            "1,000,000 + 2,000",
            "12:34:56",
            "a::b",
            "std::vector",
        ),
    ],
)
def test_what_only_looks_like_personal_data_stays(text):
    assert scrub(text) == (text, {})


@pytest.mark.parametrize("around", ["请写信到{}联系我们", "{}으로 보내세요", "เขียนถึง{}ครับ", "ご連絡は{}まで"])
def test_mail_addresses_in_text_without_spaces_are_replaced_alone(around):
    cleaned, _ = scrub(around.format("kim.lee@mail.example.com"))
    assert cleaned == around.format("email@example.com")


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "card {} 2027",
        "{} 12/27",
        "{} 123 and",
        "{}-2027",
        "order 77 {}",
        "in 2024 {} 50 EUR",
        "{} 1",
        "no. 3 {}.",
    ],
)
@pytest.mark.parametrize("groups", [(16,), (4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 1), (4, 4, 4, 4, 3), (13,)])
@pytest.mark.parametrize("separator", [" ", "-"])
def test_card_numbers_beside_other_digits_are_replaced(around, groups, separator):
    rng = random.Random(f"{around}{groups}")
    for _ in range(20):
        number = "4" + "".join(rng.choices("0123456789", k=sum(groups) - 2))
        doubled = [int(digit) * (2 - place % 2) for place, digit in enumerate(reversed(number))]
        number += str(-sum(sum(map(int, str(value))) for value in doubled) % 10)
        digits = iter(number)
        card = separator.join("".join(next(digits) for _ in range(size)) for size in groups)
        cleaned, changes = scrub(around.format(card))
        assert card not in cleaned and changes == {"card number": 1}, (card, cleaned)


@pytest.mark.parametrize("line", ["=", "/", "*", "a=", "=.", "@="])
def test_D12_lines_of_signs_take_time_that_is_proportional_to_their_length(line):
    text = line * 60_000 + " simple@example.org"
    assert PII(mail="here").build()(Document(text)).document.text == line * 60_000 + " here"


@given(st.text(max_size=200))
def test_any_text_is_read(text):
    scrub(text)


def test_recall_of_planted_data(prose):
    rng, found = random.Random(0), 0
    for number in range(200):
        lines = prose(number).split(" ")
        mail = f"{rng.choice('abc')}{number}@{rng.choice(['mail.org', 'a-b.co.uk'])}"
        lines.insert(rng.randrange(len(lines)), mail)
        text, changes = scrub(" ".join(lines))
        found += mail not in text and changes == {"mail address": 1}
    assert found == 200
