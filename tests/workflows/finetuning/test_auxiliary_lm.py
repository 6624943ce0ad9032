"""GPT's auxiliary language modeling in fine-tuning: equation 5 of Radford et al. 2018, section 3.2."""

import msgspec
import pytest
import torch
import transformers

from unmask.families.bert import BertSettings
from unmask.families.gpt import GptSettings
from unmask.model.model import Model, build_encoder, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.tasks import TASKS
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.training.machine import Machine
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.job import defaults

CPU = Machine(torch.device("cpu"), "float32")
BERT = BertSettings(layers=2, width=32, heads=2, feed_forward=128, positions=64, init_std=0.3)
GPT = GptSettings(layers=2, width=32, heads=2, positions=64, init_std=0.3)
LABELS = ("brief", "long")


@pytest.fixture(scope="module")
def examples(documents):
    """Return texts with the indices of their labels."""
    return [(text, int(text.count(".") > 2)) for text in documents if text.count(".") < 5][:12]


@pytest.fixture(scope="module")
def rows(examples, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.tsv"
    path.write_text("\n".join(["text\tlabel", *(f"{text}\t{LABELS[number]}" for text, number in examples)]))
    return path


@pytest.fixture(scope="module")
def start(tokenizer, tmp_path_factory):
    """Return a function that saves a classifier with the given body: `start(GPT)`."""

    def save(settings):
        directory = tmp_path_factory.mktemp("start")
        torch.manual_seed(0)
        heads = {"classification": ClassificationHead(settings.head, len(LABELS)).state_dict()}
        model = Model(build_encoder(settings, tokenizer.size), tokenizer, heads, LABELS, Classification(length=64))
        save_model(directory, model, "")
        return directory

    return save


def tune(model, rows, out, *settings, **options):
    """Fine-tune for one step on all examples, and return the logged metrics of that step."""
    wanted = ["task.length=64", "dropout=0", "batch.sequences=12", "budget.steps=1", *settings]
    finetune(
        "classification",
        model,
        rows,
        out,
        dev=rows,
        settings=parse_overrides(wanted),
        device="cpu",
        precision="float32",
        quiet=True,
        **options,
    )
    lines = [msgspec.json.decode(line) for line in (out / "metrics.jsonl").read_bytes().splitlines()]
    return next(line for line in lines if line["kind"] == "train")


@torch.no_grad()
def losses_of_transformers(directory, examples):
    """Return L2 and L1 of the paper, the means over texts and over all tokens except the first of each text."""
    reader = transformers.AutoTokenizer.from_pretrained(directory)
    classifier = transformers.OpenAIGPTForSequenceClassification.from_pretrained(directory).eval()
    reading = transformers.OpenAIGPTLMHeadModel.from_pretrained(directory).eval()
    task = language = tokens = 0
    for text, number in examples:
        ids = reader(text, return_tensors="pt")["input_ids"]
        task += classifier(ids, labels=torch.tensor([number])).loss.item() / len(examples)
        language += reading(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
        tokens += ids.shape[1] - 1
    return task, language / tokens


@pytest.mark.parametrize(
    ("settings", "weight"), [([], 0.5), (["objective.causal_lm.weight=2"], 2.0), (["objective.causal_lm=false"], 0.0)]
)
def test_the_loss_is_that_of_equation_5(settings, weight, start, rows, examples, tmp_path):
    """L3 = L2 + lambda L1, with lambda = 0.5 unless set (section 4.1)."""
    model = start(GPT)
    task, language = losses_of_transformers(model, examples)
    found = tune(model, rows, tmp_path / "run", *settings)
    assert found["classification_loss"] == pytest.approx(task, rel=1e-4)
    assert found["loss"] == pytest.approx(task + weight * language, rel=1e-4)
    assert found.get("causal_lm_loss") == (pytest.approx(language, rel=1e-4) if weight else None)


@pytest.mark.parametrize("task", TASKS)
def test_only_causal_models_have_it_by_default(task):
    causal = None if TASKS[task]().grouped else {"weight": 0.5}
    for name, expected in (("gpt-mini", causal), ("bert-mini", None)):
        rule = defaults(task, read_recipe(name).encoder, 1000, pretrained=True)
        assert rule.get("objective", {}).get("causal_lm") == expected
    assert "objective" not in defaults(task, GPT, 1000, pretrained=True, frozen=True)


FROZEN = "objective.causal_lm goes with neither a frozen encoder nor a downstream model"


@pytest.mark.parametrize(
    ("body", "setting", "options", "message"),
    [
        (
            BERT,
            "objective.causal_lm.weight=0.5",
            {},
            "objective.causal_lm needs left-to-right context, which neither",
        ),
        (GPT, "objective.masked_lm.weight=0.5", {}, "objective.masked_lm needs bidirectional context, which neither"),
        (BERT, "objective.masked_lm.weight=0.5", {}, "objective.masked_lm needs masked tokens, which neither"),
        (GPT, "task.windows=2", {}, "objective.causal_lm does not work with classification, whose examples are"),
        (GPT, "objective.causal_lm.weight=0.5", {"frozen": True}, FROZEN),
        (GPT, "objective.causal_lm.weight=0.5", {"downstream": "rnn"}, FROZEN),
        (GPT, "objective.causal_lm.weight=-1", {}, "objective.causal_lm: a weight must be above 0"),
    ],
)
def test_objectives_that_cannot_be_trained_are_refused(body, setting, options, message, start, rows, tmp_path):
    with pytest.raises(UserError, match=message):
        tune(start(body), rows, tmp_path / "run", setting, **options)
    assert not (tmp_path / "run").exists()
