"""Does the fast engine learn as much from the same tokens as the Hugging Face Trainer in float32?

A bert-mini learns masked language modelling from 5 million tokens of English Wikipedia and news (no sentence pairs):
ours in bf16 with the recipe's settings; the peer, `BertForMaskedLM` under the Trainer in float32, from the same
sequences in the same order with masks of its own collator, with the same batch, schedule, optimiser, clipping and
dropout; its logits are computed at hidden tokens alone, which changes no number but halves the time. Both are scored on
the same held-out sequences with the same masks. Runs that were cut off are resumed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import RESULTS, logged, read, write
from pretrain_mini import HELDOUT, TRAIN, prepare

import unmask
from unmask.batches.feed import Feed
from unmask.corpus.corpus import Corpus
from unmask.encoders.transformer import Transformer
from unmask.families.bert import BertSettings
from unmask.model import load_model
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.pretraining.pretrain import HELDOUT_TOKENS
from unmask.recipe import Recipe
from unmask.settings import parse_overrides
from unmask.training.evaluate import evaluate
from unmask.training.machine import choose_machine, keep_memory

TOKENS = 5e6
SEQUENCES = 32
RATE = 0.15
SETTINGS = [
    "layout.kind=document_sentences",
    "objective.next_sentence=false",
    f"batch.sequences={SEQUENCES}",
    f"masking.rate={RATE}",
    f"masking.final_rate={RATE}",  # the peer's collator knows no other one along the way
    "optimizer.betas=[0.9,0.999]",
    f"budget.tokens={TOKENS:.0f}",
]
SAVES = 10


def run_unmask(recipe: Recipe, corpus: Corpus, run: Path, precision: str) -> list[dict[str, Any]]:
    """Pretrain, or go on; return the held-out curve."""
    if not (run / "model").exists():
        machine = choose_machine("cpu", precision)
        unmask.pretrain(recipe, corpus, run, resume=(run / "recipe.toml").exists(), machine=machine)
    return logged(run, "heldout")


def run_trainer(recipe: Recipe, corpus: Corpus, out: Path) -> list[dict[str, Any]]:
    """The same with the Trainer."""
    import torch
    import transformers
    from torch.utils.data import SequentialSampler

    keep_memory()  # changes no number
    shape, words = recipe.encoder, corpus.tokenizer
    assert isinstance(shape, BertSettings)
    body = shape.build(words.size)
    head = MaskedLM(BuildContext(body))
    learner = Learner(body, {"masked_lm": head})
    feed = Feed(recipe.layout, recipe.masking, recipe.seed, words, learner.prepare)
    source, samples, tokens = feed.source(corpus.train), [], [0]
    position = source.start
    while tokens[-1] < (recipe.budget.tokens or 0):
        taken, position = source.take(position, sequences=SEQUENCES)
        samples.extend(taken)
        tokens.append(tokens[-1] + sum(len(sample) for sample in taken))
    steps = len(tokens) - 1
    examples = [
        {
            "input_ids": sample.ids.tolist(),
            "token_type_ids": [] if sample.segments is None else sample.segments.tolist(),
            "attention_mask": [1] * len(sample),
            "special_tokens_mask": [int(id in words.special_ids) for id in sample.ids.tolist()],
        }
        for sample in samples
    ]

    class InOrder(transformers.Trainer):  # type: ignore[misc,unused-ignore]
        def _get_train_sampler(self, *args: Any) -> Any:
            return SequentialSampler(examples)

    class AtTargets(transformers.BertForMaskedLM):  # type: ignore[misc,no-untyped-call,unused-ignore]
        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any, labels: Any) -> Any:
            last = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]
            hidden = labels != -100
            loss = torch.nn.functional.cross_entropy(self.cls(last[hidden]), labels[hidden])
            return transformers.modeling_outputs.MaskedLMOutput(loss=loss)

    tokenizer = transformers.AutoTokenizer.from_pretrained(corpus.directory / "tokenizer")
    config = transformers.BertConfig(
        num_hidden_layers=shape.layers,
        hidden_size=shape.width,
        num_attention_heads=shape.heads,
        intermediate_size=shape.feed_forward,
        vocab_size=words.size,
        hidden_dropout_prob=shape.dropout,
        attention_probs_dropout_prob=shape.dropout,
    )
    torch.manual_seed(recipe.seed)
    model: Any = AtTargets(config)
    trainer = InOrder(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(out),
            per_device_train_batch_size=SEQUENCES,
            max_steps=steps,
            learning_rate=recipe.optimizer.learning_rate,
            warmup_steps=round(recipe.schedule.warmup * steps),
            weight_decay=recipe.optimizer.weight_decay,
            adam_epsilon=recipe.optimizer.epsilon,
            max_grad_norm=recipe.optimizer.clip,
            seed=recipe.seed,
            use_cpu=True,
            save_steps=steps // SAVES,
            report_to=[],
            logging_steps=50,
        ),
        train_dataset=examples,
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=RATE),
    )
    with torch.no_grad():
        batch = trainer.data_collator(examples[:2])
        model.eval()
        ours, theirs = model(**batch).loss, transformers.BertForMaskedLM.forward(model, **batch).loss
        torch.testing.assert_close(ours, theirs)
    trainer.train(resume_from_checkpoint=any(out.glob("checkpoint-*")))
    heldout, curve = feed.heldout(corpus.heldout, HELDOUT_TOKENS), []
    for path in sorted(out.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2])):
        words.save(path)
        found = load_model(path)
        assert not found.take("masked_lm", head), "the peer has a masked-LM head"
        assert isinstance(learner.encoder, Transformer)
        learner.encoder.load_state_dict(found.encoder.state_dict())
        step = int(path.name.partition("-")[2])
        metrics = evaluate(learner, heldout, choose_machine("cpu", "float32"))
        curve.append({"step": step, "tokens": tokens[step], **metrics})
    return curve


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=("unmask", "trainer"), default=["unmask", "trainer"])
    parser.add_argument("--runs", type=Path, default=Path("runs/loss-parity"), help="where runs are kept")
    parser.add_argument("--corpus", type=Path, default=Path("runs/pretrain-mini"), help="where pretrain_mini.py has it")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for a trial")
    options = parser.parse_args()
    corpus = prepare(options.corpus, HELDOUT, TRAIN)
    recipe = unmask.read_recipe("bert-mini", parse_overrides([*SETTINGS, *options.set]))
    if "unmask" in options.engines:
        keep(**{"unmask bf16": run_unmask(recipe, corpus, options.runs / "unmask", "bf16")})
    if "trainer" in options.engines:
        keep(**{"trainer float32": run_trainer(recipe, corpus, options.runs / "trainer")})


def keep(**curves: list[dict[str, Any]]) -> None:
    """Write a curve beside the other engine's."""
    curves = {**read(RESULTS / "loss_parity.json").get("curves", {}), **curves}
    write("loss_parity", {"settings": SETTINGS, "curves": curves})


if __name__ == "__main__":
    main()
