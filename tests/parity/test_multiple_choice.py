"""Heads for multiple choice: those of transformers are read, and those that are written compute the same there."""

import numpy as np
import pytest
import torch
import transformers

from unmask.data.batches.batch import Sample, collate
from unmask.families.checkpoints.huggingface import read, write
from unmask.support.errors import InputWarning, UserError
from unmask.tasks.multiple_choice import MultipleChoice

from .test_family import SHAPES

READ = ("roberta", "camembert", "xlm-roberta", "mpnet", "deberta", "albert", "modernbert", "distilbert", "xlnet")


def model_of(name):
    kind, shape = SHAPES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**shape)
    model = getattr(transformers, f"{kind}ForMultipleChoice")(config).eval()
    for parameter_name, parameter in model.named_parameters():
        if "embed_positions" not in parameter_name:  # a fixed table
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def scores_of(stored, ids):
    """Return the scores of texts by what was read of a directory, (texts,)."""
    encoder = stored.settings.build(stored.vocabulary).eval()
    encoder.load_state_dict(dict(stored.encoder), strict=False)
    head = MultipleChoice(length=16).build(encoder.head, ()).eval()
    head.load_state_dict(dict(stored.heads["multiple_choice"]))
    at = np.array([0 if stored.settings.summary == "first" else ids.shape[1] - 1])
    segments = np.zeros(ids.shape[1], np.int64)
    samples = [Sample(key=(0, n), ids=row, segments=segments, positions={"summary": at}) for n, row in enumerate(ids)]
    batch = collate(samples)
    with torch.no_grad():
        return head.predict(encoder, encoder(batch.tokens, head.keep), batch).squeeze(1), encoder


@pytest.mark.parametrize("name", READ)
def test_scores_are_those_of_transformers_in_both_directions(tmp_path, name):
    theirs = model_of(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ids = np.random.default_rng(0).integers(5, 90, (3, 9))
    with torch.no_grad():
        expected = theirs(input_ids=torch.from_numpy(ids)[None]).logits[0]
    stored = read(tmp_path / "theirs")
    found, encoder = scores_of(stored, ids)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    write(
        tmp_path / "ours", encoder, {"multiple_choice": stored.heads["multiple_choice"]}, pad=theirs.config.pad_token_id
    )
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        torch.testing.assert_close(
            again(input_ids=torch.from_numpy(ids)[None]).logits[0], expected, atol=2e-5, rtol=1e-4
        )
    torch.testing.assert_close(scores_of(read(tmp_path / "ours"), ids)[0], found)


@pytest.mark.parametrize("name", ["electra", "roformer"])
def test_those_with_another_layer_are_named(tmp_path, name):
    model_of(name).save_pretrained(tmp_path)
    with pytest.warns(
        InputWarning, match=r"states \w+ForMultipleChoice, but no head for a task is known .* [24] tensors"
    ):
        assert not read(tmp_path).heads


def test_a_missing_pooler_is_refused(tmp_path):
    theirs = model_of("roberta")
    theirs.roberta.pooler = None
    theirs.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"tensor pooler\.dense\.weight, which the classifier reads, is missing"):
        read(tmp_path)
