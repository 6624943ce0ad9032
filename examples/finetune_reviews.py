"""Train a small encoder on the sample reviews, fine-tune it to tell good from bad ones, and try it.

    python examples/finetune_reviews.py FOLDER [minutes]

With a minute of pretraining on 700 reviews the classifier learns little: this shows the calls. With your own text give
it an hour, or start from a published model (adapt_checkpoint.py).
"""

import sys
from pathlib import Path

import unmask
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.model.model import load_model

REVIEWS = Path(unmask.__file__).parent / "demo" / "reviews"


def main(out: Path, minutes: float = 1) -> dict[str, float]:
    """Write a tokenizer, a corpus and two runs to `out`, and return the scores on the test reviews."""
    texts = [line.split("\t")[0] for line in (REVIEWS / "train.tsv").read_text(encoding="utf8").splitlines()[1:]]
    out.mkdir(parents=True)
    (out / "reviews.txt").write_text("\n\n".join(texts), encoding="utf8")
    tokenizer = unmask.train_wordpiece(texts, size=1000)
    corpus = unmask.build_corpus([out / "reviews.txt"], tokenizer, out / "corpus")
    recipe = unmask.read_recipe("bert-tiny", {"layout.length": 64, "budget.minutes": minutes})
    unmask.pretrain(recipe, corpus, out=out / "encoder", quiet=True)
    settings = {"budget.epochs": 1, "budget.max_minutes": minutes, "task.length": 64}
    unmask.finetune(
        "classification", out / "encoder", REVIEWS / "train.tsv", out / "classifier", settings=settings, quiet=True
    )
    model = unmask.load(out / "classifier")
    (found,) = model.predict(["It broke on the second day."])
    print(found.label, found.scores)
    result = evaluate_task(load_model(out / "classifier"), [REVIEWS / "test.tsv"])
    return dict(result["metrics"])


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), *map(float, sys.argv[2:])))
