"""The playground in headless Chromium: each view by clicking through it, on a desktop and on a phone, by keyboard."""

import re
from urllib.parse import parse_qs, quote, urlencode

import numpy as np
import pytest

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium.webdriver.common.keys import Keys

from tests.serving.browser import TEXT, UNLABELED, served
from unmask.serving import guard

MALICIOUS = "the dog <img src=x onerror=document.title='broken'> sees the cat"


def test_masks_are_filled_and_candidates_chosen(page):
    page.open("#fill")
    assert page.texts("#model option") == ["masked", "permuted"]
    page.one("#text").send_keys("the dog ")
    page.one(".row button[type=button]").click()
    assert page.one("#text").get_attribute("value") == "the dog [MASK]"
    page.submit(text="the [MASK] sees the [MASK].")
    assert page.texts(".columns h2") == ["Mask 1", "Mask 2"]
    first, second = page.texts("mark.filled")
    assert page.one(".reading").text == f"the {first} sees the {second}."
    other = page.all(".columns section:nth-child(2) button.bar")[2]
    name = other.text.split("\n")[0]
    other.click()
    assert page.texts("mark.filled") == [first, name]
    assert page.focused.get_attribute("aria-pressed") == "true", "the focus stays on the candidate"
    assert "picks=0.2" in page.script("return location.hash")
    page.open(page.script("return location.hash"))
    assert page.texts("mark.filled") == [first, name], "the address keeps the choice"


def test_labels_entities_and_answers(page, predictors):
    page.open("#label")
    assert not page.one("#text_b").is_displayed(), "the only classifier reads single texts"
    page.submit(text=TEXT)
    expected = predictors["classifier"].predict(TEXT)[0]
    assert page.one(".headline").text.startswith(expected.label)
    assert page.one("[role=status]").get_attribute("textContent") == page.one(".headline").text, "it is spoken"
    assert f"{100 * expected.scores[expected.label]:.1f} %" in page.one(".headline").text
    page.open(f"#entities?text={quote(f'🐕 {TEXT}')}")  # one code point, but two units of JavaScript
    entities = predictors["tagger"].tag(f"🐕 {TEXT}").entities
    assert entities
    assert page.texts("#results mark") == [f"{one.text}{one.label}" for one in entities]
    page.one("#tab-answer").click()
    page.wait(lambda: page.all("#question"))
    page.submit(question="who sees the cat?", passage=TEXT)
    best = predictors["reader"].answer("who sees the cat?", TEXT)
    assert page.texts("#results mark") == [best.answer]
    assert page.one(".headline").text.startswith(best.answer)


def test_words_are_shaded_by_what_they_contribute(page, predictors):
    page.open(f"#label?text={quote(TEXT)}")
    page.one("#why button").click()
    page.wait(lambda: page.all("#why mark"))
    (expected,) = predictors["classifier"].predict([TEXT], explain="occlusion")[0].explanations
    assert page.texts("#why p.reading mark") == TEXT.split()
    kinds = [mark.get_attribute("class") for mark in page.all("#why p.reading mark")]
    assert kinds == ["word against" if word.contribution < 0 else "word for" for word in expected.words]
    largest = max(expected.words, key=lambda word: word.contribution)
    name = TEXT[largest.start : largest.end]
    assert f"For: {name} +{largest.contribution:.2f}" in page.one("#why").text
    assert "why=1" in page.script("return location.hash")
    page.open(f"#entities?text={quote(TEXT)}&why=1&decision=1")
    page.wait(lambda: page.all("#why mark"))
    decisions = predictors["tagger"].predict([TEXT], explain="occlusion")[0].explanations
    assert page.texts("#choice-decision option") == [f"{TEXT[one.start : one.end]}: {one.label}" for one in decisions]
    assert page.one("#choice-decision").get_attribute("value") == "1"
    assert decisions[1].label in page.one("#why h2").text
    assert page.script(UNLABELED) == 0


def test_attention_of_a_head_of_a_token(page, predictors):
    page.open(f"#attention?model=permuted&text={quote(TEXT)}")
    assert len(page.all(".heads button")) == 8
    assert page.script("return [...document.querySelectorAll('canvas')].every(one => one.width === 10)")
    page.one('.heads button[aria-label="Layer 2, head 3"]').click()
    page.all(".tokens button")[4].click()
    assert page.one("#choice-layer").get_attribute("value") == "1"
    assert page.one("#choice-head").get_attribute("value") == "2"
    row = predictors["permuted"].attention(TEXT).weights[1, 2, 4]
    spoken = [button.get_attribute("aria-label") for button in page.all(".tokens button")]
    assert spoken[2] == f"dog, attended to with {100 * row[2]:.1f} percent"
    assert page.one(".columns section:nth-child(2) .value").text == f"{100 * row.max():.1f} %"
    page.focused.send_keys(Keys.ARROW_LEFT)
    page.focused.send_keys(Keys.ENTER)
    assert "token=3" in page.script("return location.hash")


def test_models_are_compared_word_by_word(page, predictors):
    page.open(f"#compare?text={quote(TEXT)}&word=1")
    kinds = {name: one.model.encoder.settings.__struct_config__.tag for name, one in predictors.items()}
    first = [f"{name} {kinds[name]}" for name in ("masked", "permuted", "words")]
    assert [text.split(",")[0] for text in page.texts(".card h3")] == first
    page.one("input[value=masked]").click()
    page.one("input[value=tagger]").click()
    page.one("button.primary").click()
    names = "return [...document.querySelectorAll('.card h3')].map(one => one.textContent.split(' ')[0])"
    page.wait(lambda: page.script(names) == ["permuted", "words", "tagger"])
    assert "models=permuted%2Cwords%2Ctagger" in page.script("return location.hash")
    for box in page.all("input:checked"):
        box.click()
    page.one("button.primary").click()
    page.wait(lambda: "No model is chosen." in page.script("return document.querySelector('#results').textContent"))
    page.open(f"#compare?text={quote(TEXT)}&word=1&models=masked,permuted,words")
    change = predictors["words"].influence(TEXT).change[1]
    assert f"{TEXT.split()[change.argmax()]} {100 * change.max() / change.sum():.1f} %" in page.all(".card")[2].text
    page.one("#choice-measure").send_keys("Attention")
    page.wait(lambda: "This model has no attention" in page.all(".card")[2].text)
    assert "special tokens" in page.all(".card")[0].text
    assert "measure=attention" in page.script("return location.hash")


def test_the_keyboard_reaches_every_view(page):
    page.open("#fill")
    page.one("#tab-fill").send_keys(Keys.ARROW_RIGHT)
    assert page.focused.get_attribute("id") == "tab-label"
    page.focused.send_keys(Keys.ENTER)
    page.wait(lambda: page.one("#tab-label").get_attribute("aria-selected") == "true")
    page.focused.send_keys(Keys.END)
    assert page.focused.get_attribute("id") == "tab-compare"
    assert page.script("return document.querySelectorAll('#tabs [tabindex=\"0\"]').length") == 1
    page.one("#text").send_keys(TEXT, Keys.CONTROL, Keys.ENTER)
    page.wait_for_results()
    page.driver.back()
    page.wait(lambda: page.one("#tab-fill").get_attribute("aria-selected") == "true")
    assert page.script(UNLABELED) == 0


def test_texts_are_never_markup(page):
    page.open()
    for hash in (
        f"#entities?text={quote(MALICIOUS)}",
        f"#compare?text={quote(MALICIOUS)}",
        f"#attention?text={quote(MALICIOUS)}",
        f"#answer?model=coqa&question=who%3F&passage={quote(MALICIOUS)}&q1={quote(MALICIOUS)}&a1={quote(MALICIOUS)}",
        f"#answer?model=hotpotqa&question=who%3F&passage={quote(MALICIOUS)}&title={quote(MALICIOUS)}",
        f"#choose?text={quote(MALICIOUS)}&choices={quote(MALICIOUS)}%0Ano",
    ):
        page.open(hash)
        assert page.all("main img") == []
        assert page.driver.title.endswith("unmask playground")


def test_errors_and_missing_models_are_explained(page, monkeypatch, playground):
    page.open(f"#attention?text={quote('dog ' * 200)}")
    assert "more tokens than the model reads" in page.one("[role=alert]").text
    page.submit(text=TEXT)
    assert page.all("[role=alert]") == []
    readers = ("reader", "quac", "coqa", "hotpotqa")
    others = {name: model for name, model in playground.models.items() if name not in readers}
    monkeypatch.setattr(playground, "models", others)
    page.open("#answer")
    assert "None of the loaded models answers questions" in page.one(".note").text
    assert page.one(".note code").text.startswith("unmask finetune question-answering")


def test_a_key_is_asked_for(page, playground):
    with served(playground, guard.Keys(["0123456789abcdef"])) as page.address:
        page.driver.get(page.address + f"#label?text={quote(TEXT)}")
        page.wait(lambda: page.all("#key"))
        page.one("#key").send_keys("0123456789abcdef")
        page.one("button.primary").click()
        page.wait_for_results()
        assert page.one(".headline").text
        page.script("sessionStorage.clear()")


def test_a_phone_scrolls_in_one_direction(page):
    page.resize(360, 740)
    turns = f"#answer?model=coqa&question=who%3F&passage={quote(TEXT)}&q1=where%3F&a1=near+the+sea"
    several = (
        f"#answer?model=hotpotqa&question=who%3F&passage={quote(TEXT)}&title=One&passage2=a+poem&title2={'a' * 99}"
    )
    for hash in (
        *("#fill?text=the+[MASK]", f"#attention?text={quote(TEXT)}", f"#compare?text={quote(TEXT)}", "#answer"),
        *(turns, several, f"#choose?text={quote(TEXT)}&choices=a%0A{'b' * 99}"),
    ):
        page.open(hash)
        assert page.script("return document.documentElement.scrollWidth") == 360
        controls = "[...document.querySelectorAll('form .row button, form select, [role=tab]')]"
        small = f"return {controls}.filter(one => one.checkVisibility() && one.offsetHeight < 44).length"
        assert page.script(small) == 0


def test_themes(page):
    def colors():
        return page.script("const s = getComputedStyle(document.documentElement); return [s.backgroundColor, s.color]")

    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page.open()
    dark = colors()
    page.one("#theme").click()
    light = colors()
    assert light != dark
    page.open()
    assert colors() == light, "the choice is kept"
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_relations_between_marked_spans(page, predictors):
    page.open("#relations")
    page.submit(text="the [dog](A) sees")
    assert "There are fewer than two spans." in page.one("#results").text
    page.submit(text="the [🐕 dog](A) sees [the cat](B).")  # offsets count code points
    predictor = predictors["relater"]
    example = predictor.task.pose("the 🐕 dog sees the cat.", [(4, 9, "A"), (15, 22, "B")])
    (expected,) = predictor.run([example])
    assert page.texts("#results mark") == ["🐕 dogA", "the catB"]
    names = [
        f"{expected.spans[one.head].text} → {expected.spans[one.tail].text} · {one.label}" for one in expected.relations
    ]
    assert page.texts(".bars .name") == names
    assert names or "The model finds no relation" in page.one("#results").text


def test_nested_marks(page):
    page.open("#entities")
    shown = page.script(
        """return import("/playground/dom.js").then(({ h, marked }) => {
          const make = (name) => (inside) => h("mark", { title: name }, inside);
          const marks = [[4, 20, "a"], [4, 8, "b"], [16, 20, "c"], [6, 24, "crossing"], [22, 24, "d"]];
          const made = marks.map(([start, end, name]) => ({ start, end, make: make(name) }));
          return marked("the dogs of the sea and cats", made).innerHTML;
        })"""
    )
    assert shown == (
        'the <mark title="a"><mark title="b">dogs</mark> of the <mark title="c">sea </mark></mark>'
        'an<mark title="d">d </mark>cats'
    )


DOCUMENTS = ["a garden near the sea", "the cat sees the dog", "rain"]
SHOWN = {
    "fill": {"text": "the [MASK] sees", "model": "permuted"},
    "label": {"text": TEXT, "text_b": "a dog", "model": "ranker"},
    "entities": {"text": TEXT},
    "relations": {"text": "the [dog](A) sees [the cat](B)"},
    "answer": {"question": "who?", "passage": TEXT, "model": "coqa", "q1": "where?", "a1": "near the sea"},
    "choose": {"text": TEXT, "question": "who?", "choices": "the dog\nthe cat"},
    "search": {"query": "the dog", "documents": "\n".join(DOCUMENTS), "model": "vectors"},
    "similarity": {"texts": "\n".join(DOCUMENTS)},
    "attention": {"text": TEXT, "model": "permuted"},
    "compare": {"text": TEXT, "models": "tagger,words"},
}
"""What the forms of the views hold."""


@pytest.mark.parametrize("view", SHOWN)
def test_long_words_are_broken_on_a_phone(page, view):
    """The texts of the form and what is shown of them do not make the page wider."""
    page.resize(360, 740)
    texts = {name: re.sub(r"\bdog\b", "dog" * 40, text) for name, text in SHOWN[view].items()}
    page.open(f"#{view}?{urlencode(texts)}")
    assert page.script("return document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("model", ["ranker", "vectors", "late"])
def test_documents_are_ranked_and_their_words_shaded(page, predictors, model):
    page.open(f"#search?{urlencode({'query': 'the dog', 'documents': chr(10).join(DOCUMENTS), 'model': model})}")
    predictor, count = predictors[model], len(DOCUMENTS)
    if model == "ranker":
        scores = [score.score for score in predictor.predict(["the dog"] * count, DOCUMENTS)]
    elif model == "late":
        scores = [one.score for one in predictor.predict(["the dog"] * count, DOCUMENTS)]
    else:
        scores = predictor.embed(DOCUMENTS, prompt_name="document") @ predictor.embed("the dog", prompt_name="query")[0]
    order = np.argsort(-np.array(scores))
    assert page.texts(".found .text") == [DOCUMENTS[index] for index in order]
    assert [float(text) for text in page.texts(".found .value")] == [
        pytest.approx(scores[at], abs=6e-4) for at in order
    ]
    widths = page.script("return [...document.querySelectorAll('.found i')].map(one => one.offsetWidth)")
    full = page.script("return document.querySelector('.found .track').offsetWidth")
    expected = full * np.sort(scores)[::-1] / max(1, *scores)
    np.testing.assert_allclose(widths, np.maximum(expected, 0), atol=2)
    page.one("#words-1").click()
    page.wait(lambda: page.all(".found mark"))
    assert page.texts(".found mark") == DOCUMENTS[1].split()
    assert page.focused.get_attribute("aria-expanded") == "true" and "words=1" in page.script("return location.hash")
    assert "score drops when the word is left out" in page.one(".found .hint:last-child").text


def test_cosines_of_texts(page, predictors):
    page.open(f"#similarity?{urlencode(SHOWN['similarity'])}")
    vectors = predictors["vectors"].embed(DOCUMENTS)
    cosines = vectors @ vectors.T
    cells = np.array([float(text.replace("\u2212", "-")) for text in page.texts(".cosines td") if text]).reshape(3, 3)
    np.testing.assert_allclose(cells, cosines, atol=6e-3)
    one, two = max(((0, 1), (0, 2), (1, 2)), key=lambda pair: cosines[pair])
    assert page.texts(".bars .name")[0] == f"{DOCUMENTS[one]} — {DOCUMENTS[two]}"
    page.submit(texts="only one")
    assert "There are 1 texts." in page.one("[role=alert]").text


def test_several_labels_are_shown_with_their_thresholds(page, predictors):
    page.open(f"#label?model=several&text={quote(TEXT)}")
    (expected,) = predictors["several"].predict([TEXT])
    assert page.one(".headline").text == (
        ", ".join(sorted(expected.labels, key=lambda name: -expected.scores[name])) or "No label"
    )
    assert set(page.texts(".bars .name")) == set(expected.scores)
    marks = page.script(
        "return [...document.querySelectorAll('.bars b')].map(one => one.style.getPropertyValue('--at'))"
    )
    assert sorted(marks) == ["0.4", "0.5", "0.6"]


def test_each_type_of_entity_has_a_color(page, predictors):
    long = " ".join([TEXT, "the garden and the tree of a doctor near the town"])
    page.open(f"#entities?text={quote(long)}")
    entities = predictors["tagger"].tag(long).entities
    colors = page.script(
        "return [...document.querySelectorAll('#results mark')].map(one => getComputedStyle(one).backgroundColor)"
    )
    pairs = set(zip([entity.label for entity in entities], colors, strict=True))
    assert len(pairs) == len({label for label, _ in pairs}) == len({color for _, color in pairs})


@pytest.mark.parametrize("view", SHOWN)
def test_an_address_fills_a_form(page, view):
    page.open(f"#{view}?{urlencode(SHOWN[view])}")
    boxes = ",".join(box.get_attribute("value") for box in page.all("form input:checked"))
    for name, value in SHOWN[view].items():
        if name == "models":
            assert set(boxes.split(",")) == set(value.split(","))
        elif page.all(f"#{name}"):
            assert page.one(f"#{name}").get_attribute("value") == value
        else:
            assert value in page.one(".turns").text
    before = page.script("return location.hash")
    page.one("button.primary").click()
    page.wait_for_results()
    assert (
        parse_qs(before.partition("?")[2]).items()
        <= parse_qs(page.script("return location.hash").partition("?")[2]).items()
    )


@pytest.mark.parametrize("view", SHOWN)
def test_a_screen_reader_finds_names_and_the_keyboard_everything(page, view):
    """In the tree of accessibility all that takes the focus has a role and a name, and Tab reaches it, or its group."""
    page.open(f"#{view}?{urlencode(SHOWN[view])}")
    nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    focusable = [
        (node["role"]["value"], node.get("name", {}).get("value", "").strip())
        for node in nodes
        if not node["ignored"]
        and any(item["name"] == "focusable" and item["value"]["value"] for item in node.get("properties", ()))
    ]
    nameless = [
        role for role, name in focusable if not name and role not in ("RootWebArea", "tabpanel", "region", "generic")
    ]
    assert focusable and not nameless
    roles = {node["role"]["value"] for node in nodes if not node["ignored"]}
    assert {"tablist", "tab", "tabpanel", "heading", "button", "textbox", "status", "region"} <= roles
    page.script("window.stops = []; document.addEventListener('focusin', event => stops.push(event.target))")
    page.script("document.activeElement.blur()")
    page.focused.send_keys(Keys.TAB * (len(focusable) + 2))
    stops = page.script("const all = [...document.querySelectorAll('*')]; return stops.map(one => all.indexOf(one))")
    missed = page.script(TABBABLE)
    assert set(missed) <= set(stops), "what the Tab key does not reach"


TABBABLE = """const all = [...document.querySelectorAll('*')];
return all.filter(one => one.matches('a[href], button, input, select, textarea, [tabindex]') && one.tabIndex >= 0
  && !one.disabled && one.checkVisibility()).map(one => all.indexOf(one))"""
"""Returns the positions among all elements of those that the Tab key gives the focus."""
