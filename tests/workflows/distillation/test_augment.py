"""Augmentation: candidates from the masked LM and from word vectors, probabilities, offsets, and what has none."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.question_files import Answer, Question
from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words, split_text
from unmask.data.tokenizers.bpe import train_bpe
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.support.errors import UserError
from unmask.training.runs.display import Display
from unmask.workflows.distillation.augment import CANDIDATES, Proposer, TextWords, augment, rebuild, texts_of

from .conftest import CPU, SHAPE

QUIET = Display(quiet=True)
TEXT = "The dog sees the old river near the sea ."


@pytest.fixture(scope="module")
def proposer(teacher_model):
    return Proposer(teacher_model, CPU)


@pytest.fixture(scope="module")
def by_vectors(teacher_model):
    return Proposer(replace(teacher_model, heads={}), CPU)


def words_of(text, *kept):
    found = split_text(text)
    return TextWords(text, found.starts, found.stops, kept)


def vary(example, proposer, number=20, seed=0):
    return augment([example], number, proposer, seed, QUIET)[0]


def test_words_of_one_token_are_proposed_by_the_masked_lm(teacher_model, proposer):
    (found,) = proposer.propose([words_of(TEXT)])
    assert "river" in teacher_model.tokenizer.tokens(range(teacher_model.tokenizer.size))
    masked = TEXT.replace("river", "[MASK]")
    filled = Predictor(teacher_model, CPU).fill([masked], top=200)[0].masks[0].candidates
    wanted = [one.token for one in filled if not one.piece.startswith("##") and one.token.isalpha()]
    assert found[5] == [word for word in wanted if word != "river"][:CANDIDATES]
    assert max(map(len, found.values())) == CANDIDATES
    assert 9 not in found, "punctuation is not replaced"


def test_words_of_several_tokens_are_proposed_by_word_vectors(teacher_model, proposer, by_vectors):
    word = "seadogs"
    ids = teacher_model.tokenizer.encode(word)
    assert len(ids) > 1
    (found,), (again,) = (one.propose([words_of(f"A {word} .")]) for one in (proposer, by_vectors))
    assert found[1] == again[1]
    table = teacher_model.encoder.words.weight.detach().double().numpy()
    mean = table[ids].mean(0)
    scores = table @ mean / np.linalg.norm(table, axis=1)
    tokens = teacher_model.tokenizer.tokens(range(len(table)))
    wanted = [tokens[id] for id in np.argsort(-scores) if tokens[id].isalpha()]
    assert found[1] == wanted[:CANDIDATES]


def test_without_a_masked_lm_all_words_have_the_nearest_vectors(by_vectors, proposer):
    one, other = (source.propose([words_of("the dog"), words_of("a dog")]) for source in (by_vectors, proposer))
    assert one[0][1] == one[1][1] and "dog" not in one[0][1]
    assert other[0][1] != one[0][1]


def test_a_word_is_replaced_with_probability_four_tenths(proposer):
    row = Row({"text": "dog cat river teacher market " * 6, "label": "yes"}, "a.tsv", 3)
    made, before = vary(row, proposer, number=200), row.values["text"].split()
    after = [one.values["text"].split() for one in made]
    replaced = [sum(a != b for a, b in zip(one, before, strict=True)) for one in after]
    assert np.mean(replaced) == pytest.approx(0.4 * 30, abs=0.6)
    assert len({one[0] for one in after}) == 1 + CANDIDATES
    assert len({one.values["text"] for one in made}) == len(made) == 200
    assert all((one.values["label"], one.file, one.line) == ("yes", "a.tsv", 3) for one in made)
    short = vary(Row({"text": "dog"}, "", 0), proposer, number=200)
    assert Counter(one.values["text"] for one in short).most_common(1)[0][1] == 1, "no variant occurs twice"
    assert len(short) == CANDIDATES and "dog" not in [one.values["text"] for one in short]


def test_variants_depend_on_the_seed_and_the_example_alone(proposer):
    rows = [Row({"text": TEXT, "text_b": "A cat follows."}, "", number) for number in range(3)]
    first, again, other = (augment(rows, 5, proposer, seed, QUIET) for seed in (0, 0, 1))
    assert first == again != other
    alone = augment(rows[:1], 5, proposer, 0, QUIET)
    assert first[: len(alone)] == alone
    assert any(
        one.values["text"] != TEXT and one.values["text_b"] != "A cat follows." for made in first for one in made
    )


def test_capitals_are_kept(proposer):
    for one in vary(Row({"text": "Dog river"}, "", 0), proposer):
        first, second = one.values["text"].split()
        assert first[0].isupper() and second.islower()


def test_entities_keep_their_words_and_tags(proposer):
    tags = ("O", "B-X", "I-X", "O", "O")
    text, starts, stops = join_words(["a", "dog", "cat", "sees", "rivers"])
    sentence = TaggedSentence(text, starts, stops, tags)
    made = vary(sentence, proposer)
    assert len(made) > 5
    for one in made:
        assert one.tags == tags and one.words[1:3] == ["dog", "cat"] and " ".join(one.words) == one.text
        (entity,) = one.entities
        assert one.text[entity.start : entity.stop] == "dog cat"


def test_answers_keep_their_offsets(proposer):
    passage = "The garden lies near the old river , and a dog sees it ."
    answers = (Answer("old river", passage.index("old river")), Answer("nowhere", None))
    made = vary(Question("1", "Where is the garden ?", passage, answers), proposer)
    assert len({one.passage for one in made}) > 5 and len({one.question for one in made}) > 1
    for one in made:
        assert one.passage[one.answers[0].start :].startswith("old river")
        assert one.answers[1] == answers[1] and one.id == "1"


def test_offsets_outside_of_replaced_words_are_moved():
    words = words_of("one two three")
    text, moved = words.with_words({0: "a", 2: "longest"})
    assert text == "a two longest"
    assert [moved(offset) for offset in (0, 3, 4, 7, 8, 13)] == [0, 1, 2, 5, 6, 13]
    assert list(words_of("a b1 -c d", (8, 9)).replaceable()) == [0, 3]
    unchanged = Row({"text": "x"}, "", 1)
    assert rebuild(unchanged, [one.with_words({}) for one in texts_of(unchanged)]) == unchanged


def test_long_texts_are_read_in_part(teacher_model, proposer):
    long = " ".join(["dog"] * 200)
    (found,) = proposer.propose([words_of(long)])
    assert len(found) == 200 > teacher_model.encoder.longest


def test_a_byte_level_vocabulary(documents):
    tokenizer = train_bpe(documents, size=400)
    torch.manual_seed(0)
    (found,) = Proposer(Model(SHAPE.build(tokenizer.size), tokenizer), CPU).propose([words_of("the dog sees")])
    assert found.keys() == {0, 1, 2}
    assert all(word.isalpha() and len(words) == CANDIDATES for words in found.values() for word in words)


def test_without_candidates_there_is_an_error(proposer, teacher_model):
    with pytest.raises(UserError, match="no word of the examples can be replaced: none consists of letters"):
        vary(Row({"text": "12 , 34"}, "", 0), proposer)
    with pytest.raises(UserError, match="examples of the type int cannot be augmented"):
        vary(3, proposer)
    encoder = SHAPE.build(teacher_model.tokenizer.size)
    encoder.provides = frozenset()
    with pytest.raises(UserError, match="no words can be proposed: the model has no embeddings of whole words"):
        Proposer(replace(teacher_model, encoder=encoder), CPU)
