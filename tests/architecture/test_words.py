"""Plain English: words of a dialect that must not come back into code, messages and docs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples")
PAGES = ("README.md", "CONTRIBUTING.md", "Makefile")
THIS = Path(__file__).resolve()

BANNED = {
    r"hidden (tokens?|words?|spans?|pieces?|places?)|hid(e|es|ing) (a |the |whole )?(tokens?|words?|spans?)": "masked",
    r"(?<!forward )(?<!backward )\bpasses\b(?= over| of the data|,| and |$)|\b(each|one) pass over": "epochs",
    r"\bpieces?\b": "tokens, subwords or micro-batches",
    r"\bplaces\b": "positions, position_ids",
    r"(?<!standard )\bdeviations?\b": "standard deviation, init_std",
    r"\blevels\b": "layer groups",
    r"\bchances\b|\bby its chance\b|\ball chance\b": "probabilities, rng",
    r"\bleads\b(?! to)": "is_main",
    r"\badd(s|ed|ing)? up\b|\badd_up\b": "sum, all_reduce",
    r"\b(take|takes|taken|taking|took) up\b": "resume",
    r"\breckon": "estimate",
    r"\b(leave|leaves|leaving|left) (it |them |that )?away\b": "remove",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\b[Ss]ays? whether\b": "Return whether",
    r"\b(has|have|knows?) (it|them|they) not\b": "does not have",
    r"\bas \S+ (has|lacks) it not\b": "newly initialized",
    r"\bsaid\b": "predicted",
    r"\bthe house\b(?! near|\b.*sea|\")": "repository layout",
    r"\brooms?\b": "capacity",
    r"\bheld against\b": "compared with",
    r"\blearnt\b": "learned",
    r"\bso many (tokens|steps|samples|words|pieces)\b": "the number of",
}
"""Each word (a regular expression) and what to write instead."""

ALLOWED = {
    r"\bpieces?\b": {  # SentencePiece's own term, and a key of `unmask fill --json`
        "src/unmask/data/tokenizers/unigram.py",
        "src/unmask/data/tokenizers/load.py",
        "src/unmask/inference/fill.py",
    },
    r"\bplaces\b": {  # the name in a corpus's manifest, and of the span boundary head's settings and weights
        "src/unmask/data/corpus/build.py",
        "src/unmask/data/corpus/manifest.py",
        "src/unmask/data/text/documents.py",
        "src/unmask/cli/corpus.py",
        "src/unmask/cli/tokenizer.py",
        "src/unmask/objectives/span_boundary.py",
    },
    r"(?<!standard )\bdeviations?\b": {  # a setting of regression, and what init_std was called
        "src/unmask/tasks/regression.py",
        "docs/classification.md",
        "benchmarks/tables.toml",
    },
    r"\bsaid\b": {"benchmarks/dialogues.py"},  # in a question that is asked
}
"""Files in which a word is a term of the field, or of a format on disk."""
IN_TESTS = {r"\bpieces?\b", r"\bplaces\b", r"(?<!standard )\bdeviations?\b", r"\bsaid\b"}
"""Words that texts and formats of tests have."""


def files() -> list[Path]:
    """Return all texts that people read."""
    found = [ROOT / page for page in PAGES]
    for folder in FOLDERS:
        found += (path for suffix in ("py", "md", "toml", "sh") for path in (ROOT / folder).rglob(f"*.{suffix}"))
    return [path for path in found if path != THIS and not {"reviews", "files", "results"} & set(path.parts)]


@pytest.mark.parametrize("word", BANNED)
def test_nobody_writes(word):
    found = []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        if name in ALLOWED.get(word, ()) or (word in IN_TESTS and "tests" in path.parts):
            continue
        for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), start=1):
            if re.search(word, line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert not found, f"write {BANNED[word]} instead:\n" + "\n".join(found[:50])
