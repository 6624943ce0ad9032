"""Questions in dialogues have earlier turns."""

import msgspec

from unmask.data.labelled.dialogue_files import DialogueQuestion, Turn


def test_a_turn_may_have_no_answer():
    assert msgspec.json.encode(Turn("who?")) == b'{"question":"who?"}'
    one = DialogueQuestion("q", "when?", "a passage", dialogue="d", history=(Turn("who?", "Eve", 0, 3),))
    assert (one.history[0].answer, one.answers, one.impossible) == ("Eve", (), False)
