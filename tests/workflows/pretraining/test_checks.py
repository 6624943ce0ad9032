"""Recipes, vocabularies, models and texts that do not match are refused before a run is created."""

import pytest

from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.train import PADDING, train_vocabulary
from unmask.families.bert import BertSettings
from unmask.model.model import Model, load_model, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.workflows.pretraining.launch import pretrain
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.workflows.pretraining.text_corpus import corpus_from_text


def test_whole_words_need_a_vocabulary_with_subwords(documents, tmp_path, capsys):
    letters = sorted({character for text in documents for character in text.lower() if not character.isspace()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf8")
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf8")
    corpus = write_corpus([tmp_path / "text.txt"], load_tokenizer(tmp_path), tmp_path / "corpus", report=lambda _: None)
    for settings in (["masking.kind=whole_word"], ["masking.kind=ngram", "masking.longest=1"]):
        recipe = read_recipe("bert-tiny", parse_overrides([*settings, "budget.steps=1"]))
        with pytest.raises(UserError, match="every token of this vocabulary is a word, so masking whole words"):
            pretrain_corpus(recipe, corpus, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    small = ["encoder.layers=1", "encoder.width=32", "encoder.feed_forward=64", "layout.length=32", "budget.steps=1"]
    capsys.readouterr()
    pretrain_corpus(
        read_recipe("bert-tiny", parse_overrides(["masking.kind=span", *small])), corpus, tmp_path / "spans"
    )
    expected = "every token of this vocabulary is a word: the length of masked n-grams and spans is counted in tokens"
    assert expected in capsys.readouterr().err


THAI = "แมวนั่งอยู่บนเสื่อในบ้านหลังเก่าริมแม่น้ำและมองดูนกที่บินผ่านไปมาทุกเช้า"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            THAI,
            "whole_word",
            "64 of the first 64 samples have no word that can be masked as a whole: each is longer than 15%",
        ),
        (THAI, "ngram", 'pass settings={"masking.kind": "token"}'),
        ("☃ ☂ ☁ ☀", "token", "have no token to mask: the vocabulary does not cover their text"),
    ],
    ids=["whole words without spaces", "n-grams of them", "unknown characters"],
)
def test_text_in_which_nothing_can_be_masked_is_refused(tmp_path, text, kind, message):
    letters = sorted(set(THAI))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf8")
    (tmp_path / "text.txt").write_text("\n\n".join([text] * 20), encoding="utf8")
    corpus = write_corpus([tmp_path / "text.txt"], load_tokenizer(tmp_path), tmp_path / "corpus", report=lambda _: None)
    recipe = read_recipe(
        "roberta-mini", parse_overrides([f"masking.kind={kind}", "encoder.offset=1", "budget.steps=1"])
    )
    with pytest.raises(UserError, match=message):
        pretrain_corpus(recipe, corpus, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


LONG_FIRST = "stages=[{share=0.5,layout={length=96}},{share=0.5}]"


@pytest.mark.parametrize(
    ("recipe", "settings", "init", "message"),
    [
        (
            "roberta-mini",
            ["tokenizer.kind=wordpiece"],
            False,
            'does not match the vocabulary, in which the padding token has id 0; pass settings={"encoder.offset": 1}',
        ),
        (
            "gpt-mini",
            [],
            True,
            "the recipe gpt-mini needs left-to-right context, which .* use a recipe such as bert-mini",
        ),
        ("bert-mini", ["layout.length=512"], True, "the layout's length 512 exceeds the 64 positions of"),
        ("bert-mini", ["layout.length=32", LONG_FIRST], True, "the layout's length 96 exceeds the 64 positions of"),
    ],
)
def test_mismatches_are_refused_before_anything_is_built(tokenizer, tmp_path, recipe, settings, init, message, capsys):
    (tmp_path / "text.txt").write_text("One. Two.\n\nThree. Four.", encoding="utf8")
    encoder = BertSettings(layers=1, width=32, heads=2, feed_forward=64, positions=64).build(tokenizer.size)
    save_model(tmp_path / "model", Model(encoder, tokenizer), "")
    with pytest.raises(UserError, match=message):
        pretrain(
            recipe,
            text=[tmp_path / "text.txt"],
            out=tmp_path / "run",
            settings=parse_overrides(settings),
            init=tmp_path / "model" if init else None,
        )
    assert not capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", PADDING)
def test_a_trained_tokenizer_has_the_padding_id_that_the_checks_assume(kind, documents):
    assert train_vocabulary(kind, documents, size=400, lowercase=False).pad == PADDING[kind]


@pytest.mark.parametrize(
    ("recipe", "settings", "kind", "remedy"),
    [
        ("bert-tiny", ["tokenizer.kind=words", "tokenizer.lowercase=false"], "words", 'kind": "wordpiece"}'),
        ("elmo-mini", ["tokenizer.kind=wordpiece"], "wordpiece", 'kind": "words"}'),
    ],
)
def test_characters_need_words_and_ids_need_others(recipe, settings, kind, remedy, documents, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf8")
    chosen = read_recipe(recipe, parse_overrides(settings))
    with pytest.raises(
        UserError, match=f'cannot read a vocabulary of the kind {kind}; pass settings=."tokenizer.{remedy}'
    ):
        corpus_from_text([tmp_path / "text.txt"], chosen, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    tokenizer = train_vocabulary(kind, documents, size=400, lowercase=False)
    tokenizer.save(tmp_path / "tokenizer")
    with pytest.raises(UserError, match=f"random:{recipe} cannot read a vocabulary of the kind {kind}"):
        load_model(f"random:{recipe}", tokenizer=tmp_path / "tokenizer")
    encoder = read_recipe(recipe).encoder.build(tokenizer.size)
    save_model(tmp_path / "model", Model(encoder, tokenizer, {}), "card")
    with pytest.raises(UserError, match=f"cannot read the tokenizer beside it, which is of the kind {kind}"):
        load_model(tmp_path / "model")


def test_a_memory_longer_than_the_text_of_a_stream_is_refused(corpus, tmp_path):
    small = ["encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.feed_forward=32", "budget.steps=1"]
    streams = ["layout.streams=120", "batch.sequences=120", "layout.length=64", "layout.reuse=30", "encoder.memory=64"]
    recipe = read_recipe("xlnet-mini", parse_overrides([*small, *streams, "encoder.window=false"]))
    message = (
        r"the memory of 64 tokens exceeds the text: before its last window, each of the 120 streams has \d\d tokens"
    )
    with pytest.raises(UserError, match=message):
        pretrain_corpus(recipe, corpus, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
