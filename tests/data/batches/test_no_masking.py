"""Without masking, samples are unchanged and no token is to be predicted."""

import numpy as np

from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import MASKED, WHOLE_TEXT, NoMaskingSettings

from .conftest import mask_samples


def test_samples_are_unchanged():
    masking = NoMaskingSettings().build(vocabulary=50, mask=4, special=frozenset(range(5)), begins=np.ones_like)
    sample = Frame(2, 3).wrap(np.arange(5, 30))
    assert mask_samples(masking, [sample])[0] is sample


def test_it_gives_unmasked_text_and_no_masked_tokens():
    settings = NoMaskingSettings()
    assert settings.provides == {WHOLE_TEXT}
    assert MASKED not in settings.provides
    assert [settings.rate_at(done) for done in (0.0, 0.5, 1.0)] == [0.0] * 3
    assert (settings.words, settings.whole_words, settings.keeps_all) == (0, False, False)
