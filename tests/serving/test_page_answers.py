"""The views Answer and Choose in headless Chromium: dialogues, answers that are no spans, several passages, choices."""

from urllib.parse import quote

import pytest

from tests.serving.browser import TEXT, UNLABELED
from unmask.data.labelled.dialogue_files import FOLLOWUP, YESNO
from unmask.tasks.answer_head import KINDS


def shown(answered):
    """Return an answer as the page shows it in large letters."""
    return answered.answer if answered.start is not None else answered.answer.capitalize() or "No answer"


def test_a_dialogue(page, predictors):
    model, ask_another = predictors["coqa"], "#results > .row button"
    page.open("#answer")
    page.one("#model").send_keys("coqa")
    assert not page.one(".turns").is_displayed()
    page.submit(question="who sees the cat?", passage=TEXT)
    first = model.answer("who sees the cat?", TEXT)
    assert page.one(".headline").text.startswith(shown(first))
    page.one(ask_another).click()
    turn = f"who sees the cat?\n{first.answer}"
    assert page.texts(".turns li") == [turn]
    assert page.focused.get_attribute("id") == "question" and page.focused.get_attribute("value") == ""
    assert page.all("#results > *") == [] and page.one("#passage").get_attribute("value") == TEXT
    page.submit(question="is it near the sea?")
    second = model.answer("is it near the sea?", TEXT, [("who sees the cat?", first.answer)])
    assert page.one(".headline").text.startswith(shown(second))
    assert f"{100 * second.probability:.1f} %" in page.one(".headline").text, "the history is sent"
    assert second.probability != pytest.approx(model.answer("is it near the sea?", TEXT).probability, abs=1e-3)
    page.open(page.script("return location.hash"))
    assert page.texts(".turns li") == [turn], "the address keeps the turns"
    for question in ("and the dog?", "why?"):
        page.one(ask_another).click()
        page.submit(question=question)
    asked = ["who sees the cat?", "is it near the sea?", "and the dog?"]
    assert [text.split("\n")[0] for text in page.texts(".turns li")] == asked
    assert "reads the last 2 of these turns" in page.one(".turns .hint").text
    page.driver.back()
    page.wait(lambda: len(page.all(".turns li")) == 2)
    page.wait_for_results()
    page.one(".turns button").click()
    assert not page.one(".turns").is_displayed() and page.one("#passage").get_attribute("value") == TEXT
    assert page.focused.get_attribute("id") == "question" and "q1=" not in page.script("return location.hash")


@pytest.mark.parametrize(
    ("name", "columns", "headline", "hint", "said"),
    [
        ("coqa", [2 + KINDS.index("yes")], "Yes ", None, "yes"),
        ("coqa", [2 + KINDS.index("no")], "No ", None, "no"),
        ("coqa", [2 + KINDS.index("none")], "Unknown ", None, "unknown"),
        ("quac", [0, 1, 2 + YESNO.index("y"), 5 + FOLLOWUP.index("n")], "No answer ", "no follow-up", "no answer"),
    ],
)
def test_answers_that_are_no_spans(page, predictors, monkeypatch, name, columns, headline, hint, said):
    prefer(monkeypatch, predictors[name], columns)
    page.open(f"#answer?model={name}&question=who%3F&passage={quote(TEXT)}")
    assert page.one(".headline").text.startswith(headline)
    assert page.all("#results mark") == page.all(".verdict") == []
    assert hint is None or hint in page.one("#results .hint").text
    assert page.texts(".bar .name")[0] == said
    page.one("#results > .row button").click()
    assert page.texts(".turns li") == [f"who?\n{said}"]


def test_a_span_that_means_yes(page, predictors, monkeypatch):
    prefer(monkeypatch, predictors["quac"], [2 + YESNO.index("y"), 5 + FOLLOWUP.index("m")])
    prefer(monkeypatch, predictors["quac"], [0, 1], -99)
    page.open(f"#answer?model=quac&question=who%3F&passage={quote(TEXT)}")
    (span,) = page.texts("#results mark")
    assert page.one(".headline").text.startswith(f"Yes {span} ")
    assert "may be worthwhile" in page.one("#results .hint").text
    page.all("button.bar")[1].click()
    assert page.all(".verdict") == [], "what the model means is known of its own answer"


def prefer(monkeypatch, predictor, columns, amount=99):
    """Add a number to some logits of [CLS], whatever the random weights prefer."""
    compute = predictor.backend.logits

    def logits(head, samples):
        rows = compute(head, samples)
        for values in rows:
            values[0, columns] += amount
        return rows

    monkeypatch.setattr(predictor.backend, "logits", logits)


def test_several_passages(page, predictors):
    page.open("#answer")
    assert not page.one(".head").is_displayed(), "the first model reads one passage"
    page.one("#model").send_keys("hotpotqa")
    page.wait(lambda: page.one(".head").is_displayed())
    for focused in ("title2", "title3"):
        page.one(".passages > .row button").click()
        assert page.focused.get_attribute("id") == focused
    page.one("[aria-label='Remove passage 2']").click()
    assert page.focused.get_attribute("id") == "title" and len(page.all("form fieldset")) == 2
    assert page.script(UNLABELED) == 0
    texts = {"the dog": "The dog sees the cat. The cat is near the sea.", "1": "The garden is in the old town."}
    (first, second), (text, other) = texts, texts.values()
    page.submit(question="who?", title=first, passage=text, title2=second, passage2=other)
    found = predictors["hotpotqa"].answer("who?", texts)
    assert page.texts("#results article h3") == [first, second], "in this order, although one is a number"
    assert page.texts("#results article .reading") == [text, other]
    assert 0 < len(found.support) < 3
    assert page.texts("mark.support") == [found.passage[one.start : one.end] for one in found.support]
    assert page.one(".headline").text.startswith(shown(found))
    assert page.texts(".long .name") == [found.passage[one.start : one.end] for one in found.sentences]
    for bar in page.all("button.bar"):
        name = bar.find_element("css selector", ".name").text
        if any(name in one for one in (*texts, *page.texts("mark.support"))):
            bar.click()
            break
    assert page.texts("#results mark.filled") == [name]
    page.open(page.script("return location.hash"))
    assert page.one("#title2").get_attribute("value") == second, "the address keeps the passages"
    assert page.texts("#results mark.filled") == [name]
    page.submit(title=second)
    assert "Two passages have the title" in page.one("[role=alert]").text
    page.one("#title2").clear()
    page.submit(title="")
    assert page.texts("#results article h3") == ["Passage 1", "Passage 2"]


def test_choices(page, predictors):
    page.open("#choose")
    page.submit(text=TEXT, question="who sees the cat?", choices="the dog")
    assert "fewer than two choices" in page.one("[role=alert]").text
    page.submit(choices="the dog\n\nthe garden\na poem")
    texts = ["the dog", "the garden", "a poem"]
    found = predictors["chooser"].choose(TEXT, texts, "who sees the cat?")
    assert page.one(".headline").text.startswith(found.text)
    assert page.texts(".bars .name") == texts
    assert page.texts(".bars .value") == [f"{100 * one:.1f} %" for one in found.probabilities]
    assert page.all("#results .note") == []
    page.open(page.script("return location.hash").replace("text=", f"text={quote('dog ' * 80)}"))
    assert page.texts(".bars .name") == texts, "the address keeps the choices"
    assert "longer than the model reads" in page.one("#results .note").text
