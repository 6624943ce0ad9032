"""What a filled mask reads like, whatever the vocabulary."""

import pytest

from unmask.families.bert import BertSettings
from unmask.inference.predictor import Predictor
from unmask.model import Model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.tokenizers.bpe import train_bpe
from unmask.tokenizers.unigram import train_unigram
from unmask.tokenizers.wordpiece import train_wordpiece

TEXT = ["The teacher sees the engine near the sea.", "老师 看 河 里 的 市场。"] * 20


@pytest.mark.parametrize(
    ("train", "size", "tokens"),
    [
        (train_wordpiece, 120, {"teacher": "teacher", "##cher": "##cher", "老": "老"}),
        (train_bpe, 320, {"Ġteacher": "teacher", "èĢģå¸Ī": "老师", "gine": "gine", "Ġ": "Ġ", "å¸": "\ufffd"}),
        (train_unigram, 60, {"▁se": "se", "se": "se", "老": "老", "▁": "▁"}),
    ],
)
def test_candidates_are_readable_and_never_special_tokens(train, size, tokens):
    tokenizer = train(TEXT, size=size)
    settings = BertSettings(layers=1, width=8, heads=1, feed_forward=16)
    encoder = settings.build(tokenizer.size)
    model = Model(encoder, tokenizer, {"masked_lm": MaskedLM(BuildContext(encoder)).state_dict()})
    (filling,) = Predictor(model).fill(["The [MASK]."], top=10_000)
    candidates = {candidate.piece: candidate for candidate in filling.masks[0].candidates}
    assert candidates.keys() == {*tokenizer.tokens(range(tokenizer.size))} - {*tokenizer.tokens(tokenizer.special_ids)}
    assert sum(candidate.probability for candidate in candidates.values()) < 1, "the special tokens keep theirs"
    assert {piece: candidates[piece].token for piece in tokens} == tokens
