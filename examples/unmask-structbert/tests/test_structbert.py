"""What is special to these parts; what holds for every objective is checked by unmask's own tests/objectives."""

import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
import unmask_structbert
from unmask_structbert.ranking import Ranked, Ranking, RankingHead
from unmask_structbert.shuffled_masking import SHUFFLED, ShuffledMasking, ShuffledMaskingSettings
from unmask_structbert.word_order import WordOrderSettings

from unmask.batches.batch import collate
from unmask.batches.chance import generator
from unmask.batches.frame import Frame
from unmask.batches.masking import HIDDEN
from unmask.errors import UserError
from unmask.families.bert import BertSettings
from unmask.labelled.labelled_file import Row
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.recipe import read_recipe

SPECIAL, VOCABULARY = frozenset(range(5)), 1000
BODY = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=600, dropout=0.0, deviation=0.2)
RECIPE = Path(unmask_structbert.__file__).with_name("structbert-mini.toml")


def shuffle_all(kind=ShuffledMasking, lengths=(500,) * 300, **settings):
    """(before, after) of texts in which no token stands twice."""
    masking = kind(ShuffledMaskingSettings(**settings), 0.05, vocabulary=VOCABULARY, mask=4, special=SPECIAL)
    rng = np.random.default_rng(0)
    texts = [Frame(2, 3).wrap(rng.permutation(np.arange(5, VOCABULARY))[:length]) for length in lengths]
    return [(text, masking(text, generator(0, "masking", place))) for place, text in enumerate(texts)]


def check_trigrams(found):
    """Whole trigrams, none masked or special; what stood there is their label; nothing else is changed."""
    for before, after in found:
        places = after.positions[SHUFFLED]
        trigrams = places.reshape(-1, 3)
        assert np.array_equal(trigrams, trigrams[:, :1] + np.arange(3))
        assert len(np.unique(places)) == len(places)
        assert not np.isin(places, after.positions[HIDDEN]).any()
        assert not np.isin(before.ids[places], list(SPECIAL)).any()
        assert np.array_equal(after.labels[SHUFFLED], before.ids[places])
        assert np.array_equal(np.sort(after.ids[trigrams]), np.sort(before.ids[trigrams]))
        others = np.delete(np.arange(len(before)), np.concatenate([places, after.positions[HIDDEN]]))
        assert np.array_equal(after.ids[others], before.ids[others])


def check_orders(found):
    """Each of the six orders of three is as probable as any other."""
    orders = dict.fromkeys(permutations(range(3)), 0)
    for _, after in found:
        gold = after.labels[SHUFFLED].reshape(-1, 3)
        for trigram, read in zip(gold.tolist(), after.ids[after.positions[SHUFFLED]].reshape(-1, 3), strict=True):
            orders[tuple(trigram.index(id) for id in read)] += 1
    total = sum(orders.values())
    assert total > 3000
    assert all(abs(count / total - 1 / 6) < 0.02 for count in orders.values())


class ShufflesMasked(ShuffledMasking):
    """A planted fault: masked tokens are shuffled too."""

    def _trigrams(self, free, rng):
        return super()._trigrams(np.ones_like(free), rng)


class Rotates(ShuffledMasking):
    """A planted fault: three neighbours are always moved on by one."""

    def __call__(self, sample, rng):
        after = super().__call__(sample, rng)
        after.ids[after.positions[SHUFFLED]] = np.roll(after.labels[SHUFFLED].reshape(-1, 3), 1, axis=1).reshape(-1)
        return after


def test_trigrams_of_unmasked_tokens_are_shuffled():
    found = shuffle_all()
    check_trigrams(found)
    check_orders(found)
    free = 0.85**3  # of three neighbours none is masked
    shares = [len(after.positions[SHUFFLED]) / 3 / len(before) / free for before, after in found]
    assert np.mean(shares) == pytest.approx(0.05, abs=0.01), "a little less, as those that overlap are dropped"


@pytest.mark.parametrize(("fault", "check"), [(ShufflesMasked, check_trigrams), (Rotates, check_orders)])
def test_planted_faults_are_found(fault, check):
    with pytest.raises(AssertionError):
        check(shuffle_all(fault))


def test_short_texts():
    found = shuffle_all(lengths=range(12))
    check_trigrams(found)
    assert not len(found[2][1].positions[SHUFFLED]), "two tokens are no trigram"
    assert max(len(after.positions[SHUFFLED]) for _, after in found) == 3, "at least one, of short texts no more"
    with pytest.raises(ValueError, match="shuffle must lie"):
        ShuffledMaskingSettings(shuffle=0)


def test_the_loss_is_that_of_the_tokens_that_stood_there():
    torch.manual_seed(0)
    encoder = BODY.build(VOCABULARY)
    learner = Learner(encoder, {"word_order": WordOrderSettings().build(BuildContext(encoder))}).eval()
    batch = collate([learner.prepare(after) for _, after in shuffle_all(lengths=(30, 100, 7))])
    encoded = encoder(batch.tokens)
    logits = learner.parts["word_order"].predict(encoder, encoded, batch).double().detach()
    expected = -sum(math.log(row.softmax(0)[token]) for row, token in zip(logits, batch.labels[SHUFFLED], strict=True))
    assert float(learner(batch)["word_order"].sum) == pytest.approx(expected, rel=1e-5)
    assert batch.counts["word_order"] == len(logits) > 10


def test_the_recipe_is_the_papers():
    recipe = read_recipe(RECIPE)
    assert (recipe.masking.rate, recipe.masking.shuffle) == (0.15, 0.05)
    assert {name: one.weight for name, one in recipe.objectives.items()} == {"masked_lm": 1.0, "word_order": 1.0}
    with pytest.raises(UserError, match=r"word_order needs shuffled.* pass --set masking.kind=shuffled"):
        read_recipe(RECIPE, {"masking.kind": "token"})


def rows(*ranks):
    return [Row({"text": "dog", "label": rank}, "a.tsv", line) for line, rank in enumerate(ranks, 2)]


def test_the_loss_of_ranks_is_that_of_the_paper():
    """With one vector of weights w and a bias b for each rank k: - sum of y_k log s_k + (1 - y_k) log (1 - s_k)."""
    torch.manual_seed(0)
    encoder, head = BODY.build(VOCABULARY), RankingHead(BODY.head, 4)
    torch.nn.init.normal_(head.biases)
    learner = Learner(encoder, {"ranking": head}).eval()
    samples = [Frame(2, 3).wrap(np.arange(5, 12) + rank).named((rank,)) for rank in range(4)]
    samples = [one.add(labels={"ranking": np.array([rank])}) for rank, one in enumerate(samples)]
    batch = collate([learner.prepare(sample) for sample in samples])
    pooled = encoder.pool(encoder(batch.tokens).last[batch.positions["summary"]])
    expected = 0.0
    for rank, vector in enumerate(pooled.detach().numpy()):
        for k, bias in enumerate(head.biases.tolist()):
            above = 1 / (1 + math.exp(-(float(vector @ head.out.weight[0].detach().numpy()) + bias)))
            expected -= math.log(above if rank > k else 1 - above)
    assert float(learner(batch)["ranking"].sum) == pytest.approx(expected, rel=1e-5)
    assert batch.counts == {"ranking": 4}


class Letters:
    """As much of a tokenizer as framing asks for."""

    cls, sep, mask, summary, ends_twice = 2, 3, 4, "first", False

    def encode_many(self, texts):
        return [np.array([5 + ord(letter) for letter in text]) for text in texts]


def test_as_many_ranks_up_as_units_say_yes():
    task, labels = Ranking(), ("1", "3", "10")
    framed = task.frame(Letters(), rows("10", "1", "3"), labels, gold=True)
    assert [int(sample.labels["ranking"][0]) for sample in framed.samples] == [2, 0, 1]
    logits = [np.array([values], np.float32) for values in ([2, 1], [-1, -2], [1, 0.5])]
    found = framed.read(logits)
    assert [one.rank for one in found] == ["10", "1", "10"]
    assert found[0].above == pytest.approx({"1": 1 / (1 + math.exp(-2)), "3": 1 / (1 + math.exp(-1))})
    measured = task.measure(rows("10", "1", "3"), found, labels)
    assert measured(np.arange(3)) == pytest.approx({"accuracy": 200 / 3, "mean_absolute_error": 1 / 3})
    (mistake,) = task.mistakes(rows("10", "1", "3"), found, labels)
    assert (mistake.caption, mistake.gold, mistake.predicted, mistake.score) == ("a.tsv:4", "3", "10", 1)
    assert task.line(Ranked("dog", "3", {})) == "3\tdog"


def test_ranks_are_whole_numbers_in_order(tmp_path):
    assert Ranking().label_names(rows("10", "9", "-1", "9")) == ("-1", "9", "10")
    with pytest.raises(UserError, match=r"a\.tsv: all examples have the same rank"):
        Ranking().label_names(rows("1", "1"))
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\ndog\t1\ncat\tgood\n")
    with pytest.raises(UserError, match=r"a\.tsv:3: the label 'good' is no whole number"):
        Ranking().read([path], columns={})
    with pytest.raises(UserError, match=r"a\.tsv:3: unknown rank '4'; the model knows 1, 3"):
        Ranking().frame(Letters(), rows("1", "4"), ("1", "3"), gold=True)
