"""How fast is fine-tuning, compared with the Hugging Face Trainer at the same work and the same accuracy?

MiniLM (a sentence-embedding model, not trained on SST-2's labels) learns SST-2 from phrases of its training set, scored
on 1,000 whole sentences of the same set, none of whose phrases is trained on. Same examples, epochs, batch, learning
rate, schedule, optimizer settings, clipping and dropout on both sides. `tuned`: glibc is told to keep freed memory.
Engines take turns, one seed per round, each in a process of its own. Timed are the steps after the first three, and the
whole call, from the checkpoint on disk to the scores; the memory is the largest that the process had.

`--bodies`: instead of MiniLM, a body of its shape of another family, with random weights and MiniLM's vocabulary, which
transformers has written.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from common import SEEDS, alternate, logged, machine, minilm, parse, peak_bytes
from files import sst2_files

import unmask
from unmask.model.model import load_model
from unmask.support.choices import Device, Precision
from unmask.training.machine import keep_memory
from unmask.workflows.finetuning.job import defaults

ENGINES = [
    *("unmask bf16", "unmask float32"),
    *("trainer float32", "trainer bf16", "trainer bf16 tuned", "trainer float32 tuned"),
]
WARM_STEPS = 3
CONFIGS: dict[str, dict[str, Any]] = {
    "deberta": {
        "model_type": "deberta-v2",
        **{"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
        **{"relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True},
        **{"pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0},
        "pooler_hidden_size": 384,
    },
    "xlnet": {"model_type": "xlnet", "d_model": 384, "n_layer": 6, "n_head": 12, "d_inner": 1536},
}
"""The shape of MiniLM in other families."""
FRAMES = {"xlnet": ("$A:0 [SEP]:0 [CLS]:2", "$A:0 [SEP]:0 $B:1 [SEP]:1 [CLS]:2")}
"""Special tokens around a text and a pair, where they are not BERT's."""


def checkpoint(body: str, folder: Path) -> str:
    """Return the directory of MiniLM, or of a body of another family, which is written into a folder."""
    if body == "minilm":
        return minilm()
    import tokenizers
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    if body in FRAMES:
        single, pair = FRAMES[body]
        ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[SEP]", "[CLS]")]
        frame = tokenizers.processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
        tokenizer.backend_tokenizer.post_processor = frame
        fast: Any = transformers.PreTrainedTokenizerFast  # untyped
        tokenizer = fast(tokenizer_object=tokenizer.backend_tokenizer, **tokenizer.special_tokens_map)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    models: Any = transformers.AutoModel  # untyped
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    models.from_config(transformers.AutoConfig.for_model(**CONFIGS[body], **sizes)).save_pretrained(folder)
    return str(folder)


def run_unmask(
    start: str,
    train: Path,
    dev: Path,
    epochs: float,
    seed: int,
    precision: str,
    device: Device = "cpu",
    **settings: Any,
) -> dict[str, Any]:
    """Fine-tune a checkpoint with `unmask.finetune`, perhaps with other settings; return what `_record` does."""
    with tempfile.TemporaryDirectory() as folder:
        run, begun = Path(folder) / "run", time.perf_counter()
        unmask.finetune(
            "classification",
            start,
            [train],
            run,
            dev=[dev],
            settings={"budget.epochs": epochs, "seed": seed, **settings},
            device=device,
            precision=cast(Precision, precision),
            quiet=True,
        )
        wall = time.perf_counter() - begun
        times = [line["seconds"] for line in logged(run)]
        accuracy = json.loads((run / "dev.json").read_bytes())["metrics"]["accuracy"]
    return _record(times, wall, accuracy)


def run_trainer(
    start: str, train: Path, dev: Path, epochs: float, seed: int, precision: str, device: Device = "cpu"
) -> dict[str, Any]:
    """The same with the Hugging Face Trainer."""
    import peers
    import transformers

    begun, clock = time.perf_counter(), peers.Clock()
    tokenizer = transformers.AutoTokenizer.from_pretrained(start)

    def read(path: Path) -> list[dict[str, Any]]:
        lines = path.read_text(encoding="utf8").splitlines()[1:]
        texts, labels = zip(*(line.split("\t") for line in lines), strict=True)
        found = tokenizer(list(texts), truncation=True, max_length=128, return_token_type_ids=False)
        rows = zip(*found.values(), map(int, labels), strict=True)
        return [dict(zip((*found, "labels"), row, strict=True)) for row in rows]

    examples = read(train)
    rule: Any = defaults("classification", load_model(start).encoder.settings, len(examples), pretrained=True)
    batch = rule["batch"]["sequences"]
    with tempfile.TemporaryDirectory() as folder:
        trainer = peers.trainer(
            transformers.AutoModelForSequenceClassification.from_pretrained(start, num_labels=2),
            examples,
            transformers.DataCollatorWithPadding(tokenizer),
            Path(folder),
            clock=clock,
            num_train_epochs=epochs,
            learning_rate=rule["optimizer"]["learning_rate"],
            warmup_steps=int(0.1 * epochs * len(examples) / batch),
            weight_decay=0.01,
            adam_epsilon=1e-6,
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=64,
            bf16=precision == "bf16",
            use_cpu=device == "cpu",
            seed=seed,
        )
        trainer.train()
        found = trainer.predict(read(dev))
    accuracy = 100 * float((found.predictions.argmax(-1) == found.label_ids).mean())
    return _record(clock.ends, time.perf_counter() - begun, accuracy)


def _record(times: list[float], wall: float, accuracy: float) -> dict[str, Any]:
    """Return the figures of a run whose steps ended at these times."""
    steps = len(times) - WARM_STEPS
    seconds = (times[-1] - times[WARM_STEPS - 1]) / steps
    return {"seconds_per_step": seconds, "steps": steps, "wall_seconds": wall, "accuracy": accuracy}


def measure(engine: str, examples: int, epochs: float, seed: int, body: str = "minilm") -> dict[str, Any]:
    """Run an engine in this process."""
    name, precision, *tuned = engine.split()
    if tuned:
        keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        train, dev = sst2_files(examples, Path(folder))
        start = checkpoint(body, Path(folder) / "start")
        found = (run_unmask if name == "unmask" else run_trainer)(start, train, dev, epochs, seed, precision)
    return found | {"peak_bytes": peak_bytes()}


def main() -> None:
    """Let the engines take turns."""
    options = parse(__doc__, examples=2_000, epochs=1.0, seeds=SEEDS, engines=ENGINES, bodies=[])
    for seed in options.seeds:
        work = {"examples": options.examples, "epochs": options.epochs, "seed": seed}
        for body in options.bodies or ["minilm"]:
            if body == "minilm":
                alternate("finetune_speed", measure, options.engines, work, **machine())
            else:
                alternate("finetune_bodies", measure, options.engines, {**work, "body": body}, **machine())


if __name__ == "__main__":
    main()
