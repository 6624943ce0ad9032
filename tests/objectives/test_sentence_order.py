"""Sentence order prediction, compared with ALBERT's loss in transformers."""

import msgspec
import torch
from transformers import AlbertForPreTraining

from unmask.data.batches.batch import collate
from unmask.data.batches.curriculum import Feed
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.batches.sentence_pairs import SentencePairsSettings
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.checkpoints import huggingface
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext

SETTINGS = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, dropout=0.0, init_std=0.2)


def written(*texts):
    """Return ids as a string, to search for one text in another."""
    return " ".join(["", *(str(id) for ids in texts for id in ids), ""])


def test_the_loss_of_sentence_order_is_alberts(corpus, tokenizer, tmp_path):
    """Compare on pairs of the corpus, whose documents determine which text comes first: 0 is in order, 1 is swapped.

    The loss of transformers is the sum of those of masked tokens and of the order.
    """
    shape = AlbertSettings(**msgspec.structs.asdict(SETTINGS), embedding=16)
    context = BuildContext(shape.build(tokenizer.size))
    parts = {name: OBJECTIVES[name]().build(context) for name in ("masked_lm", "sentence_order")}
    learner = Learner(shape.build(tokenizer.size), parts).eval()
    huggingface.write(tmp_path, learner.encoder, {name: part.state_dict() for name, part in parts.items()})
    theirs = AlbertForPreTraining.from_pretrained(tmp_path).eval()

    layout = SentencePairsSettings(length=60, second="swapped")
    feed = Feed(layout, TokenMaskingSettings(), 0, tokenizer, learner.prepare)
    source, prepare = feed.source(corpus.train), feed.prepare()
    pairs, _ = source.take(source.start, sequences=50)
    documents = [written(*corpus.train.sentences(number)) for number in range(len(corpus.train))]
    size = (len(pairs), max(map(len, pairs)))
    ids, segments, mask = torch.zeros(3, *size, dtype=torch.int64)
    gold, swapped, prepared = torch.full(size, -100), [], []
    for row, sample in enumerate(pairs):
        end = sample.ids.tolist().index(tokenizer.sep)
        first, second = written(sample.ids[1:end]), written(sample.ids[end + 1 : -1])
        (source,) = (text for text in documents if first in text and second in text)
        swapped.append(int(source.index(first) > source.index(second)))
        (sample,) = prepare([sample])
        prepared.append(sample)
        ids[row, : len(sample)] = torch.from_numpy(sample.ids)
        segments[row, : len(sample)] = torch.from_numpy(sample.segments)
        mask[row, : len(sample)] = 1
        gold[row, sample.positions["masked"]] = torch.from_numpy(sample.labels["masked"])
    assert 20 <= sum(swapped) <= 30

    def loss(order):
        asked = {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}
        return theirs(**asked, labels=gold, sentence_order_label=order).loss

    order, batch = torch.tensor(swapped), collate(prepared)
    found = sum(part.sum / batch.counts[name] for name, part in learner(batch).items())
    torch.testing.assert_close(found, loss(order), rtol=1e-5, atol=0)
    assert abs(loss(order) - loss(1 - order)) > 0.01, "the two labels are distinguished"
