"""The estimate of operations is within 5 % of what torch counts, for every small recipe and every head of a task.

Sequences of a batch have the same length, so that nothing is padded; torch counts the forward pass that is computed.
"""

from dataclasses import replace

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from unmask.data.batches.batch import GROUP, Sample, collate
from unmask.data.batches.frame import Frame
from unmask.data.batches.tokens import Reading
from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.word_level import train_words
from unmask.data.tokenizers.words import spell
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.deberta import DebertaSettings
from unmask.families.elmo import ElmoSettings
from unmask.families.eurobert import EuroBertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.neobert import NeoBertSettings
from unmask.families.nomicbert import NomicBertSettings
from unmask.families.xlnet import XlnetSettings
from unmask.nn.layers import plain_attention, relative_kernels
from unmask.nn.layers.block import SelfAttention
from unmask.nn.layers.relative import RelativeAttention
from unmask.objectives.flops import body_flops, forward_flops, layers_flops, matrices
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import read_recipe, shipped
from unmask.tasks.answer_beams import AnswerBeamsHead
from unmask.tasks.answer_head import KIND, SENTENCES, SHARE, SUPPORT, AnswerHead
from unmask.tasks.classification import ClassificationHead
from unmask.tasks.embedding import Embedding, EmbeddingHead
from unmask.tasks.multi_label import MultiLabelHead
from unmask.tasks.multiple_choice import MultipleChoiceHead
from unmask.tasks.pair_head import SIDE, TEXT
from unmask.tasks.pooled_head import Regularization
from unmask.tasks.regression import RegressionHead
from unmask.tasks.spans import SpanHead
from unmask.tasks.token_classification import TokenClassificationHead
from unmask.workflows.pretraining.checks import build_curriculum
from unmask.workflows.pretraining.start import build_learner

SIZES = {"layers": 3, "width": 64, "heads": 2, "feed_forward": 256, "dropout": 0.0}
FAMILIES = {
    "bert": BertSettings(**SIZES, positions=64),
    "albert": AlbertSettings(**SIZES, positions=64),
    "modernbert": ModernBertSettings(**SIZES, window=64),
    "deberta": DebertaSettings(**SIZES, positions=64, convolution=3),
    "nomicbert": NomicBertSettings(**SIZES),
    "eurobert": EuroBertSettings(**SIZES, key_heads=1),
    "neobert": NeoBertSettings(**SIZES),
    "xlnet": XlnetSettings(**SIZES),
}
HEADS = {
    "classification": lambda spec: ClassificationHead(spec, 3),
    "r-drop": lambda spec: ClassificationHead(spec, 3, regularization=Regularization(r_drop=1.0)),
    "multi-label": lambda spec: MultiLabelHead(spec, 3),
    "regression": RegressionHead,
    "embedding": lambda spec: EmbeddingHead(Embedding(temperature=0.05), spec),
    "question-answering": AnswerHead,
    "hotpotqa": lambda spec: AnswerHead(spec, {KIND: 3}, support=True),
    "answer-beams": AnswerBeamsHead,
    "multiple-choice": lambda spec: MultipleChoiceHead(spec, 1),
    "token-classification": lambda spec: TokenClassificationHead(spec, 3),
    "spans": lambda spec: SpanHead(spec, 3, max_width=4),
}
EACH = ("classification", "token-classification")
"""Heads that are tested with each family: one reads the vectors of texts, one those of tokens."""
LENGTH = 40


def counted(learner, batch):
    """Return what torch counts with the kernels whose products it knows, those of attention and of `with_blas`."""
    for module in learner.modules():
        if isinstance(module, SelfAttention):
            module.kernel = plain_attention.plain
        elif isinstance(module, RelativeAttention):
            module.kernel = relative_kernels.plain
    with FlopCounterMode(display=False) as counter:
        learner.requires_grad_(False)(batch)
    return counter.get_total_flops()


def labelled(number):
    """Return a sequence with the labels of all heads."""
    rng = np.random.default_rng(number)
    sample = Frame(cls=2, sep=3).wrap(rng.integers(5, 100, LENGTH - 2)).named((0, number, number))
    labels = {"classification": [1], "multi_label": [0.0, 1.0, 1.0], "regression": [0.5], "multiple_choice": [number]}
    labels |= {
        "question_answering": [3, 5],
        "token_classification": [0] * 20,
        "spans": [0] * 80,
        KIND: [1],
        SIDE: [number],
        TEXT: [number],
    }
    labels |= {KIND: [1], SIDE: [number], TEXT: [number], SUPPORT: [0, 1], SHARE: [0.5, 0.5], GROUP: [0]}
    positions = {"first": np.arange(20), "passage": np.arange(10, LENGTH), SENTENCES: np.array([10, 20])}
    arrays = {name: np.array(values, np.float32 if name == SHARE else None) for name, values in labels.items()}
    return sample.add(positions=positions, labels=arrays)


@pytest.mark.parametrize("name", [name for name in shipped() if name.endswith("-mini")])
def test_small_recipes(name, corpus, text_file, tmp_path, with_blas):
    recipe = read_recipe(name)
    if recipe.tokenizer.kind == "words":
        corpus = write_corpus([text_file], train_words([text_file.read_text()], size=500), tmp_path / "corpus")
    learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
    curriculum = build_curriculum(recipe, corpus.tokenizer, learner)
    source, prepare = curriculum.source(corpus.train), curriculum.prepare()
    samples, _ = source.take(source.start, sequences=2)
    batches = [replace(collate(prepare([sample])), carry=learner.start(1)) for sample in samples[:2]]
    estimate = sum(forward_flops(learner.eval(), batch) for batch in batches)
    assert estimate == pytest.approx(sum(counted(learner, batch) for batch in batches), rel=0.05)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("window", [None, 1, 4, 9])
def test_only_pairs_that_attend_cost(window, causal):
    lengths = (1, 3, 5, 20)
    (block,) = BertSettings(**SIZES | {"layers": 1}, positions=64).blocks()
    block.attention.spec = replace(block.attention.spec, window=window, causal=causal)
    tokens = collate([Sample(key=(number,), ids=np.zeros(length)) for number, length in enumerate(lengths)]).tokens
    pairs = sum(
        not (causal and j > i) and (window is None or abs(i - j) <= window)
        for length in lengths
        for i in range(length)
        for j in range(length)
    )
    products = sum(lengths) * matrices(block) + 2 * pairs * SIZES["width"]
    assert layers_flops([block], tokens, None) == 2 * products


def test_the_vector_of_a_word_is_computed_once():
    body = ElmoSettings(layers=2, width=32, cells=24, characters=4, filters=((1, 8), (2, 8))).build(100)
    ids = np.stack([spell(word.encode()) for word in ("the", "dog", "sees")])
    single, twice = (collate([Sample(key=(n,), ids=ids) for n in range(count)]).tokens for count in (1, 2))
    recurrent = 2 * 3 * matrices(*body.forward_lm, *body.backward_lm)
    assert body_flops(body, twice) - body_flops(body, single) == recurrent
    directed = collate([Sample(key=(0,), ids=ids, reading=Reading(backward=True))]).tokens
    assert body_flops(body, single) - body_flops(body, directed) == recurrent / 2


@pytest.mark.parametrize(
    ("name", "family"),
    [
        pytest.param(name, family, marks=() if family == "bert" or name in EACH else pytest.mark.exhaustive)
        for name in HEADS
        for family in FAMILIES
    ],
)
def test_heads(name, family, with_blas):
    body = FAMILIES[family].build(100)
    learner = Learner(body, {"head": HEADS[name](body.head)})
    batch = collate([learner.prepare(labelled(number)) for number in range(2)])
    assert forward_flops(learner, batch) == pytest.approx(counted(learner, batch), rel=0.05)
