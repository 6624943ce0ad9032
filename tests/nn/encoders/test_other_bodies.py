"""Bodies other than Transformers work everywhere: nothing depends on their kind.

`Characters` reads the bytes of words and has no token ids; `Echo` has [CLS] last, and rows that identify their token,
so that the positions that a task reads can be checked; `Plain` layouts do not distinguish segments.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.curriculum import Feed
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import DocumentSentencesSettings
from unmask.data.batches.masking import MASKED, NoMaskingSettings, TokenMaskingSettings
from unmask.data.batches.sources import ExampleSource
from unmask.data.batches.steps import Steps
from unmask.data.labelled.question_files import Question
from unmask.data.tokenizers.load import load_tokenizer
from unmask.families.bert import BertSettings
from unmask.families.body import BodySettings
from unmask.families.distilbert import DistilBertSettings
from unmask.families.gpt import GptSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.evaluation.scoring import evaluate_encoder
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.nn.encoders.downstream import Downstream, DownstreamSettings
from unmask.nn.encoders.encoder import (
    BOTH_SIDES,
    NO_CARRY,
    NOTHING,
    TOKEN_EMBEDDINGS,
    Encoded,
    Encoder,
    HeadSpec,
)
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext, Objective, ObjectiveSettings, classify
from unmask.support.errors import InputWarning
from unmask.support.settings import write
from unmask.tasks.classification import Classification
from unmask.tasks.passage_windows import LABEL
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.token_classification import TokenClassification
from unmask.training.evaluate import evaluate
from unmask.training.loop import Trainer
from unmask.training.machine import Machine
from unmask.training.optimizer_settings import AdamWSettings
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display
from unmask.training.settings import (
    BatchSettings,
    BudgetSettings,
    ScheduleSettings,
    TrainingSettings,
)

CPU = Machine(torch.device("cpu"), "float32")
BYTES = 50
WORDS = [f"word{number}" for number in range(30)]


def train(learner, source, path, *, prepare=None, heldout=(), steps=40):
    """Train for a few steps, and return the mean losses of the first and the last ones."""
    settings = TrainingSettings(
        batch=BatchSettings(sequences=8, micro_tokens=200),
        optimizer=AdamWSettings(learning_rate=2e-2, weight_decay=0.0),
        schedule=ScheduleSettings(),
        budget=BudgetSettings(steps=steps),
    )
    with RunDirectory.create(path, write(settings), {}, {}) as run:
        Trainer(
            learner,
            source,
            prepare=prepare or (lambda samples: list(map(learner.prepare, samples))),
            heldout=list(heldout),
            settings=settings,
            run=run,
            machine=CPU,
            display=Display(quiet=True),
        ).complete(resume=False)
        losses = [line["loss"] for line in run.read_metrics("train")]
    return np.mean(losses[:5]), np.mean(losses[-5:])


def made_by_a_worker(source, prepare):
    """Return the first step, made in this process and by a worker."""
    same, every = lambda given: given, lambda samples: range(len(samples))
    steps = Steps(lambda step, cursor: source.take(cursor, sequences=6), every, prepare, same, 1000)
    return [next(steps.stream(0, source.start, workers)) for workers in (0, 1)]


class Characters(Encoder):
    """Mixes the sum of each word's bytes with that of the previous word; it has no word ids."""

    width, num_layers, vocabulary, longest, provides = 16, 1, 256, 40, frozenset({BOTH_SIDES})
    head = HeadSpec(16, dropout=0.0)

    def __init__(self):
        super().__init__()
        self.bytes = nn.Embedding(256, self.width, padding_idx=0)
        self.mix = nn.Linear(2 * self.width, self.width)

    @property
    def layer_groups(self):
        return [self.bytes, self.mix]

    def forward(self, tokens, keep=NOTHING, carry=NO_CARRY):
        rows = self.bytes(tokens.ids).sum(1)  # (tokens, width)
        before = rows.roll(1, 0) * (tokens.position_ids > 0)[:, None]  # (tokens, width)
        last = self.mix(torch.cat([rows, before], 1))  # (tokens, width)
        return Encoded(last, dict.fromkeys(keep.layers, last))


class MaskedWord(Objective):
    """Predicts the masked word with a separate decoder over words."""

    at = MASKED

    def __init__(self, context):
        super().__init__()
        self.out = nn.Linear(context.head.width, context.num_tokens)

    def prepare(self, sample, name):
        return sample.add(counts={name: len(sample.labels[MASKED])})

    def predict(self, encoder, encoded, batch):
        return self.out(encoded.last[batch.positions[MASKED]])

    def score(self, encoder, encoded, batch):
        return classify(self.predict(encoder, encoded, batch), batch.labels[MASKED])


class MaskedWordSettings(ObjectiveSettings, frozen=True, kw_only=True, tag="masked_word"):
    requires = frozenset({MASKED, BOTH_SIDES})

    def build(self, context):
        return MaskedWord(context)


def spell(words):
    """Return the bytes of words, (words, bytes), padded with 0."""
    return np.array([list(word.encode().ljust(BYTES, b"\0")) for word in words])


def spelled_samples(number=64):
    """Return texts in which each masked word equals the previous word."""
    rng, made = np.random.default_rng(0), []
    for one in range(number):
        words = np.repeat(rng.integers(0, len(WORDS), rng.integers(2, 6)), 2)  # (words,)
        masked = np.arange(1, len(words), 2)
        ids = spell([WORDS[word] for word in words])  # (words, bytes)
        ids[masked] = 0
        made.append(
            Sample(
                key=(0, one),
                ids=ids,
                positions={MASKED: masked, "summary": np.zeros(1, np.int64)},
                labels={MASKED: words[masked], "classification": np.array([one % 2])},
            )
        )
    return made


@pytest.fixture
def characters():
    body = Characters()
    context = BuildContext(body, tokenizer_size=len(WORDS))
    return Learner(body, {"masked_word": MaskedWordSettings().build(context)})


def test_a_decoder_over_words_has_as_many_rows_as_the_tokenizer_has_tokens(characters):
    body = characters.encoder
    assert characters.parts["masked_word"].out.out_features == len(WORDS) != body.vocabulary
    assert BuildContext(body).num_tokens == BuildContext(body).vocabulary == 256


def test_bytes_of_words_are_collated_word_by_word(characters):
    samples = [characters.prepare(sample) for sample in spelled_samples(5)]
    batch = collate(samples)
    assert batch.tokens.ids.shape == (sum(map(len, samples)), BYTES)
    assert batch.tokens.segments is None
    assert not batch.tokens.ids[batch.positions[MASKED]].any()
    first = next(sample for sample in samples if sample.key == batch.keys[0])
    assert batch.tokens.ids[: len(first)].tolist() == first.ids.tolist()


def test_a_body_that_reads_characters_learns_and_is_evaluated(characters, tmp_path):
    samples = spelled_samples()
    heldout = [collate([characters.prepare(sample) for sample in samples[:20]])]
    before = evaluate(characters, heldout, CPU)
    first, last = train(characters, ExampleSource(samples, seed=0), tmp_path / "run", heldout=heldout)
    assert last < 0.5 * first
    assert evaluate(characters, heldout, CPU)["masked_word_accuracy"] > before["masked_word_accuracy"] + 0.3


def test_a_worker_returns_the_same_bytes_of_words(characters):
    own, forked = made_by_a_worker(
        ExampleSource(spelled_samples(), seed=0), lambda samples: list(map(characters.prepare, samples))
    )
    assert len(own.micro_batches) == len(forked.micro_batches) == 1
    assert torch.equal(own.micro_batches[0].tokens.ids, forked.micro_batches[0].tokens.ids)
    assert own.micro_batches[0].tokens.segments is forked.micro_batches[0].tokens.segments is None


def test_a_task_can_use_a_body_that_reads_characters(characters, tokenizer, tmp_path):
    body, task = characters.encoder, Classification(length=32)
    learner = Learner(body, {"classification": task.build(body.head, ("no", "yes"))})
    samples = [
        replace(sample, labels={"classification": sample.labels["classification"]}) for sample in spelled_samples(8)
    ]
    train(learner, ExampleSource(samples, seed=0), tmp_path / "run", steps=2)
    model = Model(body, tokenizer, {"classification": learner.parts["classification"].published()}, ("no", "yes"), task)
    backend = TorchBackend(model, CPU)
    logits = backend.logits("classification", samples)
    assert [rows.shape for rows in logits] == [(1, 2)] * 8
    for number, rows in backend.layers(samples, (1,)):
        assert rows.shape == (len(samples[number]), 1, body.width)


class EchoSettings(BodySettings, frozen=True, kw_only=True, tag="echo"):
    """A family whose texts end with [CLS], as in XLNet."""

    summary = "last"
    capabilities = frozenset({BOTH_SIDES, TOKEN_EMBEDDINGS})

    @property
    def head(self):
        return HeadSpec(self.width, dropout=0.0, token_dropout=0.0, summary=self.summary)

    def build(self, vocabulary):
        return Echo(self, vocabulary)


class Echo(Encoder):
    """Returns the one-hot vector of each token plus half of the previous token's; it has no segments."""

    num_layers = 1

    def __init__(self, settings, vocabulary):
        super().__init__()
        self.settings, self.width, self.vocabulary = settings, settings.width, vocabulary
        self.longest, self.head, self.provides = settings.positions, settings.head, settings.provides
        self.words = nn.Embedding.from_pretrained(torch.eye(vocabulary), freeze=False)
        self.mix = nn.Linear(self.width, self.width)
        nn.init.eye_(self.mix.weight)
        nn.init.zeros_(self.mix.bias)

    @property
    def layer_groups(self):
        return [self.words, self.mix]

    def forward(self, tokens, keep=NOTHING, carry=NO_CARRY):
        rows = self.words(tokens.ids)  # (tokens, width)
        before = rows.roll(1, 0) * (tokens.position_ids > 0)[:, None]  # (tokens, width)
        last = self.mix(rows + 0.5 * before)
        every = {0: rows, 1: last}
        return Encoded(last, {number: every[number] for number in keep.layers})


@pytest.fixture
def last(tokenizer_directory):
    """A tokenizer for texts that end with [CLS]."""
    words = load_tokenizer(tokenizer_directory)
    words.summary = "last"
    return words


@pytest.fixture
def echo(tokenizer):
    return EchoSettings(layers=1, width=tokenizer.size, positions=32).build(tokenizer.size)


def points(head, *rows):
    """Make a linear head detect tokens: each output is large at its token."""
    nn.init.zeros_(head.out.weight)
    nn.init.zeros_(head.out.bias)
    with torch.no_grad():
        for output, token in rows:
            head.out.weight[output, token] = 20.0
    return head.published()


def test_classification_reads_the_last_token(echo, last):
    task = Classification(length=12)
    head = points(task.build(echo.head, ("other", "cls")), (0, last.sep), (1, last.cls))
    predictor = Predictor(Model(echo, last, {"classification": head}, ("other", "cls"), task), CPU)
    with pytest.warns(InputWarning, match="1 of 2 texts is longer"):
        found = predictor.predict(["the dog sees the cat near the sea " * 3, "dog"])
    assert [one.label for one in found] == ["cls", "cls"]


def test_pairs_are_classified_at_the_last_token(echo, last):
    task = Classification(length=16, pairs=True)
    head = points(task.build(echo.head, ("other", "cls")), (0, last.sep), (1, last.cls))
    predictor = Predictor(Model(echo, last, {"classification": head}, ("other", "cls"), task), CPU)
    assert [one.label for one in predictor.predict(["the dog"], ["the cat"])] == ["cls"]


def test_entities_are_found_at_their_words(echo, last):
    dog, task, labels = last.encode("dog"), TokenClassification(length=16), ("O", "B-X", "I-X")
    others = [(0, token) for token in range(last.size) if token != dog[0]]
    head = points(task.build(echo.head, labels), (1, dog[0]), *others)
    predictor = Predictor(Model(echo, last, {task.part: head}, labels, task), CPU)
    found = predictor.tag("the cat sees the dog")
    assert [(one.text, one.start) for one in found.entities] == [("dog", 17)]


@pytest.mark.parametrize("passage", ["the cat sees the dog near the sea", "the cat " * 12 + "sees the dog"])
def test_answers_are_found_at_their_words(echo, last, passage):
    dog, task = last.encode("dog"), QuestionAnswering(length=24, question=6)
    head = task.build(echo.head, ())
    predictor = Predictor(Model(echo, last, {task.part: points(head, (0, dog[0]), (1, dog[0]))}, (), task), CPU)
    assert predictor.answer("dog?", passage).answer == "dog"


def test_no_answer_is_read_at_the_last_token(echo, last):
    task = QuestionAnswering(length=24, question=6, no_answer=True)
    head = task.build(echo.head, ())
    nothing = points(head, (0, last.cls), (1, last.cls))
    predictor = Predictor(Model(echo, last, {task.part: nothing}, (), task), CPU)
    assert predictor.answer("who?", "the cat sees the dog").nbest[0].start is None
    question = Question("", "who?", "the cat sees the dog", (), impossible=True)
    (sample,) = task.frame(last, [question], (), gold=True).samples
    assert sample.ids[sample.positions["passage"][0]] == last.cls
    assert set(sample.ids[sample.labels[LABEL]]) == {last.cls}


def test_features_have_the_words_of_their_tokens(echo, last):
    found = Predictor(Model(echo, last), CPU).features(["the dog", "a"], (0,), ["the cat", "sees"])
    ids = found.values[:, 0].argmax(1).tolist()
    for start, stop, texts in zip(
        found.offsets[:-1], found.offsets[1:], (("the dog", "the cat"), ("a", "sees")), strict=True
    ):
        first, second = map(last.encode, texts)
        assert ids[start:stop] == [*first, last.sep, *second, last.sep, last.cls]
        assert (found.word_ids[start:stop] == -1).tolist() == [
            *([False] * len(first)),
            True,
            *([False] * len(second)),
            True,
            True,
        ]


def test_masks_are_filled_at_their_positions(echo, last):
    head = OBJECTIVES["masked_lm"]().build(BuildContext(echo))
    nn.init.eye_(head.dense.weight)
    nn.init.zeros_(head.dense.bias)
    (filled,) = Predictor(Model(echo, last, {"masked_lm": head.published()}), CPU).fill(
        ["[MASK] the [MASK] dog [MASK]"]
    )
    found = [mask.candidates[0].token for mask in filled.masks]
    assert found[1:] == ["the", "dog"], "the most probable token is the previous one"


def test_pretraining_frames_texts_with_cls_last_and_learns(echo, tokenizer, corpus, tmp_path):
    learner = Learner(
        echo, {"masked_lm": OBJECTIVES["masked_lm"]().build(BuildContext(echo, tokenizer_size=tokenizer.size))}
    )
    layout = DocumentSentencesSettings(length=32)
    feed = Feed(layout, TokenMaskingSettings(), 0, corpus.tokenizer, learner.prepare, echo.settings.pretraining)
    source, heldout = feed.source(corpus.train), feed.heldout(corpus.train, 2000)
    for batch in heldout:
        ends = batch.tokens.offsets[1:].long() - 1
        assert set(batch.tokens.ids[ends].tolist()) == {tokenizer.cls}
        assert torch.equal(batch.positions["summary"], ends)
    first, last = train(learner, source, tmp_path / "run", prepare=feed.prepare(), heldout=heldout)
    assert last < first
    own, forked = made_by_a_worker(source, feed.prepare())
    assert torch.equal(own.micro_batches[0].tokens.ids, forked.micro_batches[0].tokens.ids)


def test_plain_text_is_framed_as_in_pretraining(echo, tokenizer, text_file, monkeypatch):
    head = OBJECTIVES["masked_lm"]().build(BuildContext(echo))
    model = Model(echo, tokenizer, {"masked_lm": head.published()})
    seen, forward = [], Echo.forward
    monkeypatch.setattr(
        Echo, "forward", lambda self, tokens, *more: seen.append(tokens) or forward(self, tokens, *more)
    )
    assert evaluate_encoder(model, [text_file], machine=CPU)["examples"] > 0
    for tokens in seen:
        assert set(tokens.ids[tokens.offsets[1:].long() - 1].tolist()) == {tokenizer.cls}


@pytest.mark.parametrize(
    ("settings", "framed"),
    [
        (BertSettings(layers=1, width=8, heads=2, feed_forward=16), "first"),
        (GptSettings(layers=1, width=8, heads=2), "first"),
        (EchoSettings(layers=1, width=8), "last"),
    ],
)
def test_families_define_how_texts_are_framed_in_pretraining(settings, framed):
    assert settings.pretraining == framed
    assert settings.head.summary == settings.summary


@pytest.mark.parametrize("kind", ["average", "rnn"])
@pytest.mark.parametrize("summary", ["first", "last", "extract"])
def test_a_downstream_model_represents_a_text_at_its_bodys_position(echo, tokenizer, kind, summary):
    words, body = tokenizer, echo
    body.head = replace(body.head, summary=summary)
    frame = Frame.of(words, summary)
    samples = [
        frame.wrap(words.encode(text)).named((0, number)) for number, text in enumerate(["the dog", "a cat sees"])
    ]
    small = Downstream(
        DownstreamSettings(kind=kind, layers=(0,), **({"width": 4} if kind == "rnn" else {})), body
    ).eval()
    batch = collate(samples)
    found = small(batch.tokens).last[batch.positions["summary"]]  # (sequences, width)
    rows = body.words(batch.tokens.ids)
    for number, (start, stop) in enumerate(zip(batch.tokens.offsets[:-1], batch.tokens.offsets[1:], strict=True)):
        own = rows[start:stop]
        if kind == "average":
            expected = own.mean(0)
        else:
            states, _ = small.lstm.lstm(own)
            expected = torch.cat([states[-1, :4], states[0, 4:]])
        torch.testing.assert_close(found[number], expected)


class Plain(DocumentSentencesSettings, frozen=True, kw_only=True, tag="plain"):
    """A layout without segments."""

    def samples(self, *args):
        return [replace(sample, segments=None) for sample in super().samples(*args)]


SHAPE = {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32, "positions": 32, "dropout": 0.0}
NO_SEGMENTS = {
    "distilbert": DistilBertSettings(**SHAPE),
    "bert": BertSettings(**SHAPE, segments=1),
}


@pytest.mark.parametrize("kind", NO_SEGMENTS)
def test_bodies_without_segments_learn_from_samples_without_any(kind, tokenizer, corpus, tmp_path):
    body = NO_SEGMENTS[kind].build(tokenizer.size)
    learner = Learner(body, {"masked_lm": OBJECTIVES["masked_lm"]().build(BuildContext(body))})
    feed = Feed(Plain(length=32), TokenMaskingSettings(), 0, corpus.tokenizer, learner.prepare)
    source, heldout = feed.source(corpus.train), feed.heldout(corpus.train, 2000)
    assert all(batch.tokens.segments is None for batch in heldout)
    first, last = train(learner, source, tmp_path / "run", prepare=feed.prepare(), heldout=heldout)
    assert last < first
    assert evaluate(learner, heldout, CPU)["masked_lm_loss"] < first
    own, forked = made_by_a_worker(source, feed.prepare())
    assert own.micro_batches[0].tokens.segments is forked.micro_batches[0].tokens.segments is None
    found = Predictor(Model(body, tokenizer, {"masked_lm": learner.parts["masked_lm"].published()}), CPU)
    assert len(found.fill(["The [MASK] sees."])[0].masks) == 1


def test_a_body_of_two_segments_refuses_samples_without_any(tokenizer, corpus):
    body = BertSettings(**SHAPE).build(tokenizer.size)
    source = Feed(Plain(length=32), NoMaskingSettings(), 0, corpus.tokenizer, lambda sample: sample).source(
        corpus.train
    )
    samples, _ = source.take(source.start, sequences=3)
    with pytest.raises(ValueError, match="a body with 2 segments needs samples with segments"):
        body(collate(samples).tokens)
