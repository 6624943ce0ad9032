"""What tests of interrupted fine-tunings share."""

from contextlib import contextmanager

import pytest

from unmask.training.interrupt import Interrupted
from unmask.training.loop import Trainer


@pytest.fixture
def stopped_at(monkeypatch):
    """Stops a run, saved, as a signal does: `with stopped_at(step): ...`."""

    @contextmanager
    def stopping(step):
        real = Trainer.step

        def stop(trainer):
            if trainer.progress.step == step:
                trainer.save()
                trainer.saver.wait()
                raise Interrupted("stopped", 2)
            return real(trainer)

        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(Trainer, "step", stop)
            yield

    return stopping
