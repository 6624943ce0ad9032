"""Does a hidden larger budget lie in the interval of the outlook? On learning curves of classifiers of real texts.

Bags of words, or of sequences of 2 to 4 characters, in phrases of SST-2, ChnSentiCorp's reviews, and paragraphs of the
demo's topics; naive Bayes and logistic regression; 125 texts, 250, 500, and so on, of three seeds. Four budgets in turn
are extrapolated to 4 and 8 times the largest of them. The curves of `suggest.py` are extrapolated, too: from 60, 80
and 100 labels to 200, of one seed. Curves of a known form, of three seeds at an eighth, a quarter, half and all of a
budget, are extrapolated to 4 and 10 times it: power laws, such ones that have almost reached their asymptote, and those
that stop, or change their exponent, at one to four times the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from common import RESULTS, SHARED, add, parse, read
from labelled import SST2, Labelled, every_paragraph, read_texts
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import MultinomialNB

from unmask.metrics.comparison.outlook import extrapolate
from unmask.support.errors import UserError

REVIEWS = "classification/chnsenticorp"
SMALLEST, LARGEST, SEEDS, SCORED = 125, 16_000, 3, 1500
FITTED = 4
"""Number of budgets that are extrapolated."""
FORMS = ("power law", "near its asymptote", "stops", "another exponent")
PLANTED = 300
"""Forms of planted curves, and number of each."""
Curve = list[tuple[int, int, float]]
"""Budget, seed and accuracy of each run."""


def texts() -> Iterator[tuple[str, list[Labelled]]]:
    """Yield data sets: name and examples."""
    yield "sst2", read_texts(SST2)
    reviews = sorted(path.name for path in (SHARED / REVIEWS).glob("train*"))
    yield "chnsenticorp", read_texts(*(f"{REVIEWS}/{name}" for name in reviews), text="text_a")
    yield "topics", every_paragraph()


def learning_curve(features: object, labels: np.ndarray, method: str) -> Curve:
    """Return the accuracies of classifiers that were trained on more and more texts."""
    order = np.random.default_rng(SEEDS).permutation(len(labels))
    scored, rest = order[:SCORED], order[SCORED:]
    curve: Curve = []
    for seed in range(SEEDS):
        shuffled = np.random.default_rng(seed).permutation(rest)
        budget = SMALLEST
        while budget <= min(len(rest), LARGEST):
            logistic = SGDClassifier("log_loss", alpha=1e-5, max_iter=30, tol=1e-3, random_state=0)
            model = MultinomialNB(alpha=0.1) if method == "bayes" else logistic
            model.fit(features[shuffled[:budget]], labels[shuffled[:budget]])  # type: ignore[index]
            right = model.predict(features[scored]) == labels[scored]  # type: ignore[index]
            curve.append((budget, seed, 100 * float(right.mean())))
            budget *= 2
    return curve


def check(data: str, curve: Curve, fitted: list[int], target: int) -> None:
    """Extrapolate accuracies at some budgets to another one and add how many of the runs there lie in the interval."""
    runs = [(budget, score) for budget, _, score in curve if budget in fitted]
    later = [score for budget, _, score in curve if budget == target]
    outlook = extrapolate([budget for budget, _ in runs], [score for _, score in runs], [target], bounds=(0, 100))
    record = {
        "times": round(target / max(fitted), 2),
        "inside": sum(bool(outlook.low[0] <= score <= outlook.high[0]) for score in later),
        "runs": len(later),
        "width": round(float(outlook.high[0] - outlook.low[0]), 2),
        "error": round(float(outlook.scores[0]) - float(np.mean(later)), 2),
    }
    add("outlook", {"data": data, "fitted": fitted, "target": target}, record)


def planted(rng: np.random.Generator, form: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return accuracies as a function of the budget."""
    asymptote, height, exponent = rng.uniform(70, 98), rng.uniform(3, 20), rng.uniform(0.1, 0.7)
    end = 4 ** rng.random()
    if form == "near its asymptote":
        height, exponent = height / 8, rng.uniform(1, 2)
    bend = {"stops": 0.0, "another exponent": rng.choice([0.33, 2.5])}.get(form, 1.0)

    def accuracy(budgets: np.ndarray) -> np.ndarray:
        later = np.maximum(budgets / end, 1) ** (-exponent * bend)
        return np.asarray(asymptote - height * np.minimum(budgets, end) ** -exponent * later)

    return accuracy


def check_planted(form: str) -> None:
    """Extrapolate curves of a form, and add how many of the later runs lie in the intervals."""
    rng, budgets, targets = np.random.default_rng(SEEDS), np.repeat([0.125, 0.25, 0.5, 1.0], SEEDS), (4.0, 10.0)
    inside, errors, widths = [], [], []
    for _ in range(PLANTED):
        accuracy, noise = planted(rng, form), rng.choice([0.3, 1.0])
        scores, later = (
            np.clip(accuracy(np.array(at)) + rng.normal(0, noise, len(at)), 0, 100) for at in (budgets, targets)
        )
        try:
            outlook = extrapolate(budgets.tolist(), scores.tolist(), targets, bounds=(0, 100))
        except UserError:  # scores do not improve
            continue
        inside.append((outlook.low <= later) & (later <= outlook.high))
        errors.append(outlook.scores - later)
        widths.append(outlook.high - outlook.low)
    columns = zip(targets, np.sum(inside, 0), np.mean(widths, 0), np.mean(errors, 0), strict=True)
    for times, hits, width, error in columns:
        record = {"times": times, "inside": int(hits), "runs": len(inside)}
        record |= {"width": round(float(width), 2), "error": round(float(error), 2)}
        add("outlook", {"data": f"planted: {form}", "fitted": sorted(set(budgets)), "target": times}, record)


def main() -> None:
    """Extrapolate all curves."""
    parse(__doc__)
    for form in FORMS:
        check_planted(form)
    for name, examples in texts():
        labels = np.unique([example.label for example in examples], return_inverse=True)[1]
        for analyzer, lengths in (("word", (1, 1)), ("char", (2, 4))):
            vectorizer = HashingVectorizer(
                analyzer=analyzer, ngram_range=lengths, n_features=2**16, alternate_sign=False
            )
            features = vectorizer.transform([example.text for example in examples])
            for method in ("bayes", "logistic"):
                curve = learning_curve(features, labels, method)
                budgets = sorted({budget for budget, _, _ in curve})
                for start in range(len(budgets) - FITTED - 1):
                    for target in budgets[start + FITTED + 1 : start + FITTED + 3]:
                        check(f"{name}, {analyzer}, {method}", curve, budgets[start : start + FITTED], target)
    for run in read(RESULTS / "suggest.json")["runs"]:
        points = [(point["labels"], run["seed"], point["score"]) for point in run["curve"] if point["labels"] != "mean"]
        check(f"labels next: {run['data']}, {run['strategy']}, seed {run['seed']}", points, [60, 80, 100], 200)


if __name__ == "__main__":
    main()
