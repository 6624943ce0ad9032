"""What is checked and reckoned before a run."""

import numpy as np
import pytest
import torch

from unmask.batches.batch import Sample, collate
from unmask.corpus.build import build_corpus
from unmask.errors import UserError
from unmask.families.bert import BertSettings
from unmask.families.gpt import GptSettings
from unmask.model import Model, load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.objectives.teacher import Teacher
from unmask.pretraining.corpus import corpus_from_text
from unmask.pretraining.learner import build_learner
from unmask.pretraining.pretrain import baseline, pretrain
from unmask.recipe import read_recipe
from unmask.settings import parse_overrides
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.train import PADDING, train_tokenizer

BODIES = {"causal_lm": GptSettings(layers=1, width=8, heads=2)}
BODY = BertSettings(layers=1, width=8, heads=2, feed_forward=16)


def guess(token, *batches, names):
    """What always saying a token reaches with each objective, on batches of one sample with these labels."""
    samples = [
        Sample(
            key=(0,),
            ids=np.arange(8),
            segments=np.zeros(8, np.int64),
            labels={label: np.array(value, np.int64) for label, value in one.items()},
        )
        for one in batches
    ]
    context = BuildContext(BODIES.get(names[0], BODY).build(20))
    learner = Learner(context.body, {name: OBJECTIVES[name]().build(context) for name in names})
    return baseline(learner, [collate([sample]) for sample in samples], token)


def test_a_guess_is_scored_where_tokens_are_masked():
    found = guess(7, {"masked": [7, 7, 5]}, {"masked": [7, 4, 4]}, names=["masked_lm"])
    assert found == {"masked_lm_accuracy": pytest.approx(0.5)}


def test_pairs_are_guessed_by_halves_and_nothing_where_no_token_is_asked_for():
    found = guess(7, {"masked": [], "next_sentence": [1]}, names=["masked_lm", "next_sentence"])
    assert found == {"next_sentence_accuracy": 0.5}


def test_swapped_pairs_and_generators_are_guessed_too():
    found = guess(7, {"masked": [7, 5], "sentence_order": [1]}, names=["replaced_token", "sentence_order"])
    assert found == {"generator_accuracy": 0.5, "sentence_order_accuracy": 0.5}


def test_next_tokens_are_guessed():
    assert guess(7, {"next": [7, 5, 7, 4]}, names=["causal_lm"]) == {"causal_lm_accuracy": 0.5}


def test_whole_words_need_words_of_several_pieces(documents, tmp_path, capsys):
    letters = sorted({character for text in documents for character in text.lower() if not character.isspace()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf8")
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf8")
    corpus = build_corpus([tmp_path / "text.txt"], load_tokenizer(tmp_path), tmp_path / "corpus", report=lambda _: None)
    for settings in (["masking.kind=whole_word"], ["masking.kind=ngram", "masking.longest=1"]):
        recipe = read_recipe("bert-tiny", parse_overrides([*settings, "budget.steps=1"]))
        with pytest.raises(UserError, match="every piece is a word, so that whole words are single tokens"):
            pretrain(recipe, corpus, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    small = ["encoder.layers=1", "encoder.width=32", "encoder.feed_forward=64", "layout.length=32", "budget.steps=1"]
    capsys.readouterr()
    pretrain(read_recipe("bert-tiny", parse_overrides(["masking.kind=span", *small])), corpus, tmp_path / "spans")
    assert "every piece is a word: what is hidden together is counted in tokens" in capsys.readouterr().err


THAI = "แมวนั่งอยู่บนเสื่อในบ้านหลังเก่าริมแม่น้ำและมองดูนกที่บินผ่านไปมาทุกเช้า"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            THAI,
            "whole_word",
            "64 of the first 64 samples have no word that could be hidden whole: each is longer than 15%",
        ),
        (THAI, "ngram", "pass --set masking.kind=token"),
        ("☃ ☂ ☁ ☀", "token", "have nothing to hide: the vocabulary does not know their text"),
    ],
    ids=["whole words without spaces", "n-grams of them", "unknown characters"],
)
def test_text_of_which_nothing_can_be_hidden_is_refused(tmp_path, text, kind, message):
    letters = sorted(set(THAI))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf8")
    (tmp_path / "text.txt").write_text("\n\n".join([text] * 20), encoding="utf8")
    corpus = build_corpus([tmp_path / "text.txt"], load_tokenizer(tmp_path), tmp_path / "corpus", report=lambda _: None)
    recipe = read_recipe(
        "roberta-mini", parse_overrides([f"masking.kind={kind}", "encoder.offset=1", "budget.steps=1"])
    )
    with pytest.raises(UserError, match=message):
        pretrain(recipe, corpus, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_published_discriminator_keeps_its_head(corpus, tmp_path):
    """It comes without its generator, which alone is drawn anew."""
    recipe = read_recipe("electra-mini", parse_overrides(["encoder.layers=1", "encoder.width=64", "encoder.heads=1"]))
    first, _ = build_learner(recipe, corpus.tokenizer.size, None)
    head = {
        name: value for name, value in first.parts["replaced_token"].state_dict().items() if "generator" not in name
    }
    save_model(tmp_path, Model(first.encoder, corpus.tokenizer, {"replaced_token": head}), "")
    learner, created = build_learner(recipe, corpus.tokenizer.size, load_model(tmp_path))
    assert created == ["the pooler", "the generator"]
    for name, value in learner.parts["replaced_token"].state_dict().items():
        assert torch.equal(value, head[name]) if name in head else name.startswith("generator.")
    assert len(head) == 4


@pytest.mark.parametrize(
    ("recipe", "settings", "init", "message"),
    [
        (
            "roberta-mini",
            ["tokenizer.kind=wordpiece"],
            False,
            "does not go with the id of padding in this vocabulary, 0; pass --set encoder.offset=1",
        ),
        (
            "gpt-mini",
            [],
            True,
            "the recipe gpt-mini needs left-to-right context, which .* take a recipe such as bert-mini",
        ),
        ("bert-mini", ["layout.length=512"], True, "the layout's length 512 exceeds the 64 positions of"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_built(
    tokenizer, tmp_path, recipe, settings, init, message
):
    (tmp_path / "text.txt").write_text("One. Two.\n\nThree. Four.", encoding="utf8")
    encoder = BertSettings(layers=1, width=32, heads=2, feed_forward=64, positions=64).build(tokenizer.size)
    save_model(tmp_path / "model", Model(encoder, tokenizer), "")
    said = []
    with pytest.raises(UserError, match=message):
        corpus_from_text(
            [tmp_path / "text.txt"],
            read_recipe(recipe, parse_overrides(settings)),
            tmp_path / "run",
            init=tmp_path / "model" if init else None,
            report=said.append,
        )
    assert not said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", PADDING)
def test_padding_has_the_id_that_is_foretold(kind, documents):
    assert train_tokenizer(kind, documents, size=400, lowercase=False).pad == PADDING[kind]


def test_a_corpus_without_samples_is_refused_before_there_is_a_run(tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text("The dog sees the cat. The cat sees the dog.", encoding="utf8")
    corpus = build_corpus([tmp_path / "text.txt"], tokenizer, tmp_path / "corpus", report=lambda _: None)
    with pytest.raises(UserError, match="only one document"):
        pretrain(read_recipe("bert-tiny", parse_overrides(["budget.steps=1"])), corpus, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_going_on_keeps_the_dropout_of_heads_to_come(documents, tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf8")
    corpus = build_corpus([tmp_path / "text.txt"], tokenizer, tmp_path / "corpus", report=lambda _: None)
    small = ["encoder.layers=1", "encoder.width=32", "encoder.feed_forward=64", "layout.length=32", "budget.steps=1"]
    recipe = read_recipe("bert-tiny", parse_overrides([*small, "encoder.dropout=0", "encoder.head_dropout=0.2"]))
    pretrain(recipe, corpus, tmp_path / "first", quiet=True)
    pretrain(recipe, corpus, tmp_path / "second", init=tmp_path / "first", quiet=True)
    for run in ("first", "second"):
        settings = load_model(tmp_path / run).encoder.settings
        assert (settings.dropout, settings.before_last) == (0.0, 0.2)
    assert load_model(tmp_path / "second", dropout=0.3).encoder.settings.before_last == 0.3


def test_a_resumed_run_has_the_same_teacher(corpus, tmp_path):
    small = ["encoder.layers=1", "encoder.width=32", "encoder.feed_forward=64", "layout.length=32", "batch.tokens=256"]

    def teacher(seed):
        torch.manual_seed(seed)
        return Teacher(BODY.build(20))

    def run(seed, steps, **more):
        recipe = read_recipe("bert-tiny", parse_overrides([*small, f"budget.steps={steps}"]))
        pretrain(recipe, corpus, tmp_path / "run", teacher=teacher(seed), quiet=True, **more)

    run(0, 1)
    with pytest.raises(UserError, match=r"inputs.teacher was \w{64}, now \w{64}"):
        run(1, 2, resume=True)
    run(0, 2, resume=True)
