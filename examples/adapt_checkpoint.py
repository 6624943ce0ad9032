"""Adapt a published model to your text, with words of its own.

    python examples/adapt_checkpoint.py MODEL TEXT FOLDER [steps]

MODEL is a directory, or a name such as google-bert/bert-base-uncased (pip install 'unmask[hub]').
"""

import sys
from pathlib import Path

import unmask


def main(model: str, text: Path, out: Path, steps: int = 1000) -> list[str]:
    """Write the adapted model to `out`/adapted, and return the most likely tokens in a sentence."""
    extended = unmask.extend_tokenizer([text], model, out / "tokenizer", add=20)
    corpus = unmask.build_corpus([text], extended, out / "corpus")
    recipe = unmask.read_recipe("adapt", {"layout.length": 64, "budget.steps": steps})
    unmask.pretrain(recipe, corpus, out=out / "adapted", init=model, quiet=True)
    (blanks,) = unmask.load(out / "adapted").fill([f"The {extended.mask_token} of the story is simple."])
    return [candidate.token for candidate in blanks.masks[0].candidates]


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:])))
