"""Does the fast engine learn as much from the same tokens as the Hugging Face Trainer in float32?

A bert-mini learns masked language modeling from English Wikipedia and news (no sentence pairs): ours by
`unmask.pretrain` in bf16 with the recipe's settings; the peer, `BertForMaskedLM` under the Trainer in float32, from the
same sequences in the same order with masks of its own collator, with the same batch, schedule, optimizer, clipping and
dropout. Its logits are computed only at masked tokens, which changes no number but halves the time. Both are scored on
the same held-out sequences with the same masks. Interrupted runs are resumed. `--toy` takes seconds and a tiny body.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import torch
from common import HERE, add, logged
from files import english_corpus
from trainer import configuration

import unmask
from unmask.data.batches.batch import Sample
from unmask.data.batches.curriculum import Feed
from unmask.data.corpus.corpus import Corpus
from unmask.model.model import load_model
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import Recipe
from unmask.training.evaluate import evaluate
from unmask.training.machine import choose_machine, keep_memory
from unmask.workflows.pretraining.pretrain import HELDOUT_TOKENS

SEQUENCES = 32
RATE = 0.15
SETTINGS: dict[str, Any] = {
    "stages": [],
    "optimizer.kind": "adamw",
    "optimizer.learning_rate": 5e-4,
    "optimizer.betas": [0.9, 0.999],
    "encoder.initial_offsets": [],
    "encoder.dropout": 0.1,
    "layout.kind": "document_sentences",
    "objective.next_sentence": False,
    "batch.sequences": SEQUENCES,
    "masking.rate": RATE,
    "masking.final_rate": RATE,  # the peer's collator has a constant rate
}
TOY = {"encoder.layers": 2, "encoder.width": 32, "encoder.heads": 2, "encoder.feed_forward": 64}
TOY_CORPUS = (600, 60)
"""Size of the vocabulary, and number of documents."""
SAVES = 10


def train_ours(recipe: Recipe, corpus: Corpus, run: Path) -> list[dict[str, Any]]:
    """Pretrain or resume; return the held-out curve."""
    if not (run / "model").exists():
        resume = (run / "provenance.json").exists()
        unmask.pretrain(recipe, corpus, out=run, resume=resume, device="cpu", precision="bf16")
    return logged(run, "heldout")


def sequences(recipe: Recipe, corpus: Corpus, feed: Feed) -> list[list[Sample]]:
    """Return the samples of each step of the budget, in order."""
    source, steps, tokens = feed.source(corpus.train), list[list[Sample]](), 0
    cursor = source.start
    while tokens < (recipe.budget.tokens or 0):
        taken, cursor = source.take(cursor, sequences=SEQUENCES)
        steps.append(taken)
        tokens += sum(map(len, taken))
    return steps


def train_peer(recipe: Recipe, corpus: Corpus, steps: list[list[Sample]], out: Path) -> None:
    """Train `BertForMaskedLM` with the Trainer, or resume; it leaves checkpoints."""
    import transformers
    from torch.utils.data import SequentialSampler

    examples = [
        {
            "input_ids": sample.ids.tolist(),
            "token_type_ids": [0] * len(sample) if sample.segments is None else sample.segments.tolist(),
            "attention_mask": [1] * len(sample),
            "special_tokens_mask": [int(id in corpus.tokenizer.special_ids) for id in sample.ids.tolist()],
        }
        for sample in itertools.chain.from_iterable(steps)
    ]

    class InOrder(transformers.Trainer):  # type: ignore[misc,unused-ignore]
        def _get_train_sampler(self, *args: Any) -> Any:
            return SequentialSampler(examples)

    class AtTargets(transformers.BertForMaskedLM):  # type: ignore[misc,no-untyped-call,unused-ignore]
        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any, labels: Any) -> Any:
            last = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]
            masked = labels != -100
            loss = torch.nn.functional.cross_entropy(self.cls(last[masked]), labels[masked])
            return transformers.modeling_outputs.MaskedLMOutput(loss=loss)

    keep_memory()  # changes no number
    optimizer = recipe.optimizer
    torch.manual_seed(recipe.seed)
    model: Any = AtTargets(configuration(recipe, corpus))
    trainer = InOrder(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(out),
            per_device_train_batch_size=SEQUENCES,
            max_steps=len(steps),
            learning_rate=optimizer.learning_rate,
            warmup_steps=round(recipe.schedule.warmup * len(steps)),
            weight_decay=optimizer.weight_decay,
            adam_epsilon=optimizer.epsilon,
            max_grad_norm=optimizer.clip,
            seed=recipe.seed,
            use_cpu=True,
            save_steps=max(1, len(steps) // SAVES),
            report_to=[],
            logging_steps=50,
        ),
        train_dataset=examples,
        data_collator=transformers.DataCollatorForLanguageModeling(
            transformers.AutoTokenizer.from_pretrained(corpus.directory / "tokenizer"), mlm_probability=RATE
        ),
    )
    with torch.no_grad():
        batch = trainer.data_collator(examples[:2])
        model.eval()
        torch.testing.assert_close(model(**batch).loss, transformers.BertForMaskedLM.forward(model, **batch).loss)
    trainer.train(resume_from_checkpoint=any(out.glob("checkpoint-*")))


def score_peer(recipe: Recipe, corpus: Corpus, out: Path) -> list[dict[str, Any]]:
    """Return the peer's held-out curve: its checkpoints, scored as our runs are."""
    body = recipe.encoder.build(corpus.tokenizer.size)
    head = MaskedLM(BuildContext(body))
    learner = Learner(body, {"masked_lm": head})
    feed = Feed(recipe.layout, recipe.masking, recipe.seed, corpus.tokenizer, learner.prepare)
    ends = [0, *itertools.accumulate(sum(map(len, step)) for step in sequences(recipe, corpus, feed))]
    heldout, curve = feed.heldout(corpus.heldout, HELDOUT_TOKENS), []
    for path in sorted(out.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2])):
        corpus.tokenizer.save(path)
        found = load_model(path)
        assert not found.take("masked_lm", head), "the peer has a masked-LM head"
        body.load_state_dict(found.encoder.state_dict())
        step = int(path.name.partition("-")[2])
        metrics = evaluate(learner, heldout, choose_machine("cpu", "float32"))
        curve.append({"step": step, "tokens": ends[step], **metrics})
    return curve


def main() -> None:
    """Train what is missing and write the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=("unmask", "trainer"), default=["unmask", "trainer"])
    parser.add_argument("--runs", type=Path, default=HERE.parent / "runs", help="where runs are kept (default: runs)")
    parser.add_argument("--tokens", type=float, default=5e6)
    parser.add_argument("--toy", action="store_true", help="a tiny body and vocabulary on an excerpt of the text")
    options = parser.parse_args()
    settings = {**SETTINGS, **(TOY if options.toy else {}), "budget.tokens": options.tokens}
    recipe, runs = unmask.read_recipe("bert-mini", settings), options.runs / "loss-parity"
    corpus = english_corpus(runs / "text", *(TOY_CORPUS if options.toy else (30522,)))
    if "unmask" in options.engines:
        curve = train_ours(recipe, corpus, runs / "unmask")
        add("loss_parity", {"engine": "unmask bf16", "settings": settings, "heldout": curve}, instead=("engine",))
    if "trainer" in options.engines:
        feed = Feed(recipe.layout, recipe.masking, recipe.seed, corpus.tokenizer, lambda sample: sample)
        train_peer(recipe, corpus, sequences(recipe, corpus, feed), runs / "trainer")
        curve = score_peer(recipe, corpus, runs / "trainer")
        record = {"engine": "trainer float32", "settings": settings, "heldout": curve}
        add("loss_parity", record, instead=("engine",))


if __name__ == "__main__":
    main()
