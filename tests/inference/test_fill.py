"""Candidates for masks are readable with every kind of vocabulary; texts and models without masks are refused."""

import json
import re
from itertools import product

import numpy as np
import pytest
import torch
from transformers import XLNetLMHeadModel

from unmask.data.batches.batch import TARGETS
from unmask.data.batches.masking import MASKED
from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.unigram import train_unigram
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.bert import BertSettings
from unmask.families.checkpoints import huggingface
from unmask.families.gpt import GptSettings
from unmask.families.xlnet import XlnetSettings
from unmask.inference.fill import find_masks, find_targets, no_masked_lm, read_candidates, top_tokens
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.objectives.permutation_lm import PermutationLM
from unmask.support.errors import UserError
from unmask.training.machine import choose_machine

BODY = BertSettings(layers=1, width=8, heads=1, feed_forward=16)
TEXT = ["The teacher sees the engine near the sea.", "老师 看 河 里 的 市场。"] * 20


@pytest.mark.parametrize(
    ("train", "size", "tokens"),
    [
        (train_wordpiece, 120, {"teacher": "teacher", "##cher": "##cher", "老": "老"}),
        (train_bpe, 320, {"Ġteacher": "teacher", "èĢģå¸Ī": "老师", "gine": "gine", "Ġ": "Ġ", "å¸": "\ufffd"}),
        (train_unigram, 60, {"▁se": "se", "ea": "ea", "老": "老", "▁": "▁"}),
    ],
)
def test_candidates_are_readable_and_never_special_tokens(train, size, tokens):
    tokenizer = train(TEXT, size=size)
    encoder = BODY.build(tokenizer.size)
    model = Model(encoder, tokenizer, {"masked_lm": MaskedLM(BuildContext(encoder)).state_dict()})
    (filling,) = Predictor(model).fill(["The [MASK]."], top=10_000)
    candidates = {candidate.piece: candidate for candidate in filling.masks[0].candidates}
    assert candidates.keys() == {*tokenizer.tokens(range(tokenizer.size))} - {*tokenizer.tokens(tokenizer.special_ids)}
    assert sum(candidate.probability for candidate in candidates.values()) < 1, "special tokens keep their probability"
    assert {piece: candidates[piece].token for piece in tokens} == tokens


@pytest.mark.parametrize("train", [train_wordpiece, train_bpe, train_unigram])
def test_targets_are_compared_by_their_probabilities_among_all_tokens(train):
    tokenizer = train(TEXT, size=320 if train is train_bpe else 60)
    encoder = BODY.build(tokenizer.size)
    predictor = Predictor(Model(encoder, tokenizer, {"masked_lm": MaskedLM(BuildContext(encoder)).state_dict()}))
    texts = ["The [MASK].", "[MASK] and [MASK]"]
    complete = [mask for filling in predictor.fill(texts, top=10_000) for mask in filling.masks]
    rng = np.random.default_rng(0)
    pieces = [candidate.piece for candidate in complete[0].candidates]
    for number in (1, 3, len(pieces)):
        chosen = rng.choice(pieces, number, replace=False).tolist()
        for top in (2, 10_000):
            found = [mask for filling in predictor.fill(texts, top=top, targets=chosen * 2) for mask in filling.masks]
            for mask, whole in zip(found, complete, strict=True):
                expected = [candidate for candidate in whole.candidates if candidate.piece in chosen]
                assert mask.position == whole.position
                assert [one.probability for one in mask.candidates] == [one.probability for one in expected][:top]
                assert {one.piece for one in mask.candidates} <= {*chosen}


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "there are no targets"),
        (["sea", "sea sea"], "the target 'sea sea' is not one token but 2: sea sea"),
        ([""], "the target '' is not one token"),
        (["\U0001f600"], "the vocabulary has no token for the target '\U0001f600'"),
        (["[MASK]"], r"the vocabulary has no token for the target '\[MASK\]'"),
    ],
)
def test_targets_are_tokens(tokenizer, targets, message):
    with pytest.raises(UserError, match=message):
        find_targets(tokenizer, targets)


def test_masks_are_found_in_both_spellings(tokenizer):
    text = "A [MASK] sees [MASK]."
    starts, sample = find_masks(tokenizer, text, 64, MASKED)
    assert starts == [2, 14]
    assert sample.ids[sample.positions["masked"]].tolist() == [tokenizer.mask] * 2
    bpe = train_bpe(TEXT, size=320)
    starts, sample = find_masks(bpe, f"A {bpe.mask_token} sees [MASK].", 64, MASKED)
    assert starts == [2, 8 + len(bpe.mask_token)]
    assert np.flatnonzero(sample.ids == bpe.mask).tolist() == sample.positions["masked"].tolist()


def test_each_mask_of_the_vocabulary_is_found_where_it_is(tmp_path):
    """Also in other spellings, if the token is looked for in normalized text, or with the spaces that belong to it."""
    plain = train_wordpiece(TEXT, size=120)
    encoder = BODY.build(plain.size)
    head = MaskedLM(BuildContext(encoder)).state_dict()
    for number, (token, normalized) in enumerate(product(("[MASK]", "<mask>", "<m>"), (False, True))):
        folder = tmp_path / str(number)
        plain.save(folder)
        for file in folder.iterdir():
            file.write_text(file.read_text("utf8").replace("[MASK]", token), "utf8")
        content = json.loads((folder / "tokenizer.json").read_text("utf8"))
        for added in content["added_tokens"]:
            if added["content"] == token:
                added |= {"normalized": normalized, "lstrip": not normalized}
        (folder / "tokenizer.json").write_text(json.dumps(content), "utf8")
        predictor = Predictor(Model(encoder, load_tokenizer(folder), {"masked_lm": head}))
        rng = np.random.default_rng(number)
        for _ in range(20):
            pieces = rng.choice(["[MASK]", token, token.upper(), token.title(), "the ", " sea", "  ", "老", "."], 12)
            text = "".join((*pieces, "[MASK]"))
            (filling,) = predictor.fill([text], top=1)
            spelled = re.finditer(re.escape(token), text, re.IGNORECASE if normalized else 0)
            expected = {match.start() for match in (*spelled, *re.finditer(r"\[MASK\]", text))}
            assert [mask.position for mask in filling.masks] == sorted(expected), text


def test_xlnet_fills_each_mask_given_the_rest(tokenizer, tmp_path):
    """As in transformers, with a permutation mask that hides the masks from all other tokens."""
    torch.manual_seed(0)
    encoder = XlnetSettings(layers=2, width=16, heads=2, feed_forward=32, init_std=0.4).build(tokenizer.size).eval()
    tokenizer.summary = "last"
    try:
        head = PermutationLM(tokenizer.size)
        model = Model(encoder, tokenizer, {"permutation_lm": head.state_dict()})
        text = "The [MASK] sees the [MASK]."
        (filling,) = Predictor(model, choose_machine("cpu", "float32")).fill([text])
        _, sample = find_masks(tokenizer, text, 64, TARGETS)
    finally:
        tokenizer.summary = "first"
    at = torch.tensor(sample.positions[TARGETS])
    huggingface.write(tmp_path, encoder, {"permutation_lm": head.state_dict()})
    theirs = XLNetLMHeadModel.from_pretrained(tmp_path).eval()
    hidden = torch.zeros(1, len(sample), len(sample))
    hidden[:, :, at] = 1
    with torch.no_grad():
        logits = theirs(
            torch.tensor(sample.ids)[None],
            token_type_ids=torch.tensor(sample.segments)[None],
            perm_mask=hidden,
            target_mapping=torch.nn.functional.one_hot(at, len(sample))[None].float(),
        ).logits[0]
    expected = read_candidates(tokenizer, top_tokens(tokenizer, logits.numpy(), 5))
    for mask, candidates in zip(filling.masks, expected, strict=True):
        assert [one.piece for one in mask.candidates] == [one.piece for one in candidates]
        assert [one.probability for one in mask.candidates] == pytest.approx(
            [one.probability for one in candidates], rel=1e-4
        )


def test_texts_without_a_mask_or_too_long_are_refused(tokenizer):
    with pytest.raises(UserError, match=r"no mask in 'The dog\.'; write \[MASK\] where a word is missing"):
        find_masks(tokenizer, "The dog.", 64, MASKED)
    assert len(find_masks(tokenizer, "dog " * 6 + "[MASK]", 9, MASKED)[1]) == 9
    with pytest.raises(UserError, match=r"'dog dog .*…' has 10 tokens, but the model reads at most 9; shorten it"):
        find_masks(tokenizer, "dog " * 7 + "[MASK]", 9, MASKED)


def test_candidates_are_sorted_and_leave_out_rows_without_a_token(tokenizer):
    logits = np.zeros((1, tokenizer.size + 8), np.float32)
    logits[0, [7, 9, tokenizer.mask, tokenizer.size + 1]] = 2, 3, 9, 99
    (candidates,) = read_candidates(tokenizer, top_tokens(tokenizer, logits, 2))
    assert [one.piece for one in candidates] == [tokenizer.token(9), tokenizer.token(7)]
    total = np.exp(logits[0, : tokenizer.size].astype(float)).sum()
    assert [one.probability for one in candidates] == pytest.approx([np.exp(3) / total, np.exp(2) / total], rel=1e-5)
    assert np.count_nonzero(logits) == 4, "the logits are not changed"


@pytest.mark.parametrize(
    ("settings", "heads", "message"),
    [
        (GptSettings(layers=1, width=8, heads=1), {}, "reads from left to right .* use a masked language model"),
        (BODY, {"replaced_token": {}}, "pretrained only with replaced_token"),
        (BODY, {"classification": {}}, "no masked-LM head .* use a pretrained"),
    ],
    ids=["gpt", "electra", "fine-tuned"],
)
def test_the_error_explains_why_a_model_fills_no_masks(tokenizer, settings, heads, message):
    assert re.search(message, str(no_masked_lm(Model(settings.build(20), tokenizer, heads))))
