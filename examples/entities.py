"""Find entities: fine-tune an encoder on tagged sentences, and tag a text.

    python examples/entities.py MODEL FOLDER

The sentences here are a few with names; your own are files with a token and its tag in each line (.conll).
"""

import sys
from pathlib import Path

import unmask

SENTENCES = """\
Ada B-PER
Lovelace I-PER
lived O
in O
London B-LOC
. O

Alan B-PER
Turing I-PER
worked O
in O
Manchester B-LOC
. O

"""


def main(model: str | Path, out: Path, epochs: int = 3) -> list[tuple[str, str]]:
    """Write the run to `out`/entities, and return the entities in a sentence with their labels."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "train.conll").write_text(SENTENCES * 20, encoding="utf8")
    settings = {"budget.epochs": epochs, "task.length": 32}
    unmask.finetune("token-classification", model, out / "train.conll", out / "entities", settings=settings, quiet=True)
    found = unmask.load(out / "entities").tag("Ada Turing lived in London.")
    return [(entity.text, entity.label) for entity in found.entities]


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2])))
