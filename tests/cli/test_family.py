"""Each model of the family is pretrained, fine-tuned for each task, and read by transformers."""

import json

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

import unmask
from unmask.data.batches.batch import collate
from unmask.data.batches.curriculum import Feed
from unmask.data.batches.frame import Frame
from unmask.data.corpus.corpus import open_corpus
from unmask.model.model import load_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.training.checkpoint import load_checkpoint, newest_checkpoint
from unmask.workflows.pretraining.start import build_learner

from .conftest import run, sets

TINY = [
    *("encoder.layers=2", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=64", "encoder.positions=64"),
    *("layout.length=48", "batch.tokens=512", "budget.steps=6", "tokenizer.vocabulary=320"),
]


def tiny(name):
    """Return the settings that a recipe accepts: GPT's feed-forward width is not a setting."""
    return [text for text in TINY if not (name.startswith("gpt") and "feed_forward" in text)]


MEMBERS = {
    "roberta-mini": ["transformers.RobertaForMaskedLM"],
    "spanbert-mini": ["transformers.BertForMaskedLM"],
    "albert-mini": ["transformers.AlbertForPreTraining", "encoder.embedding=16"],
    "electra-mini": [
        "transformers.ElectraForPreTraining",
        "encoder.embedding=16",
        "objective.replaced_token.generator_size=0.5",
    ],
    "gpt-mini": ["transformers.OpenAIGPTLMHeadModel"],
    "bert-mini": [
        "transformers.AlbertModel",
        *("encoder.kind=albert", "encoder.shared=attention", "encoder.embedding=16"),
    ],
    "roberta-mini, sentence order": [
        "transformers.RobertaForMaskedLM",
        *("layout.kind=sentence_pairs", "layout.second=swapped", "objective.sentence_order.weight=1"),
    ],
    "electra-mini, shared layers": [
        "transformers.AlbertModel",
        *("encoder.kind=albert", "encoder.embedding=16", "encoder.shared=all"),
        "objective.replaced_token.generator_size=0.5",
    ],
    "bert-mini, DistilBERT's body": [
        "transformers.DistilBertForMaskedLM",
        *("encoder.kind=distilbert", "layout.kind=full_sentences", "objective.next_sentence=false"),
    ],
}
"""By recipe and variant: the class of transformers that reads the result, and the settings."""
HEADS = {
    "roberta-mini": {"masked_lm"},
    "spanbert-mini": {"masked_lm", "span_boundary"},
    "albert-mini": {"masked_lm", "sentence_order"},
    "electra-mini": {"masked_lm", "replaced_token"},
    "gpt-mini": {"causal_lm"},
    "bert-mini": {"masked_lm", "next_sentence"},
    "roberta-mini, sentence order": {"masked_lm", "sentence_order"},
    "electra-mini, shared layers": {"masked_lm", "replaced_token"},
    "bert-mini, DistilBERT's body": {"masked_lm"},
}


FILLED = ("objective.masked_lm=false", "objective.replaced_token.generator_size=0.5")
COMBINATIONS = {
    "bert-mini, spans": [{"masked_lm", "next_sentence"}, "masking.kind=span"],
    "albert-mini, spans and their boundaries": [
        {"masked_lm", "sentence_order", "span_boundary"},
        *("encoder.embedding=16", "masking.kind=span", "objective.span_boundary.weight=1"),
    ],
    "electra-mini, sentence order": [
        {"replaced_token", "sentence_order"},
        *("encoder.embedding=16", "objective.replaced_token.generator_size=0.5", "objective.sentence_order.weight=1"),
        *("layout.second=swapped", "layout.single_probability=0", "stages=[]"),
    ],
    "albert-mini, replaced tokens": [{"replaced_token", "sentence_order"}, "encoder.embedding=16", *FILLED],
    "roberta-mini, replaced tokens": [{"replaced_token"}, *FILLED],
    "bert-mini, DistilBERT's body, replaced tokens": [
        {"replaced_token"},
        *("encoder.kind=distilbert", "layout.kind=full_sentences", "objective.next_sentence=false"),
        *FILLED,
    ],
    "gpt-mini, byte-level BPE": [
        {"causal_lm"},
        *("tokenizer.kind=bpe", "tokenizer.lowercase=false"),
    ],
    "gpt-mini, sentence pairs": [
        {"causal_lm"},
        *("layout.kind=sentence_pairs", "layout.second=next"),
    ],
}
"""By recipe and variant: the heads of the result, and the settings."""


def check_in_transformers(directory, model, kind):
    """Check that transformers reads a pair of texts as the same ids, and computes the same hidden states."""
    theirs = kind.from_pretrained(directory).eval()
    reader = transformers.AutoTokenizer.from_pretrained(directory)
    text, other = "The dog sees the sea.", "A cat wakes."
    sample = Frame.of(model.tokenizer).wrap(model.tokenizer.encode(text), model.tokenizer.encode(other))
    asked = reader(text, other, return_tensors="pt")
    assert asked["input_ids"][0].tolist() == sample.ids.tolist()
    with torch.no_grad():
        ours = model.encoder.eval()(collate([sample]).tokens).last
        body = getattr(theirs, theirs.base_model_prefix, theirs)
        last = body(**asked).last_hidden_state[0]
    assert (ours - last).abs().max() <= 1e-5 * last.abs().max()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    here = tmp_path_factory.mktemp("files")
    nouns = ("dog", "cat", "sea", "house")
    rows = [f"The {one} sees the {other}.\t{one == other}" for one in nouns for other in nouns] * 2
    (here / "texts.tsv").write_text("\n".join(["text\tlabel", *rows]))
    pairs = [f"The {one} sleeps.\tA {other} wakes.\t{nouns.index(one)}" for one in nouns for other in nouns] * 2
    (here / "pairs.tsv").write_text("\n".join(["text\ttext_b\tscore", *pairs]))
    tags = [f"The O\n{one} B-X\nsees O\n{other} B-X\n" for one in nouns for other in nouns] * 2
    (here / "tags.conll").write_text("\n".join(tags))
    paragraphs = []
    for number, one in enumerate(nouns * 6):
        context = f"In the old town the {one} sees a bridge near the garden. " * 2
        answer = {"text": one, "answer_start": context.index(one)}
        question = {"id": str(number), "question": "Who sees a bridge?", "answers": [answer]}
        paragraphs.append({"context": context + str(number), "qas": [question]})
    (here / "squad.json").write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}))
    return here


REPEATING = (
    *("spanbert-mini", "albert-mini", "bert-mini, DistilBERT's body"),
    *("bert-mini", "roberta-mini, sentence order", "electra-mini, shared layers"),
)
"""Members whose bodies and objectives those of the others are, too, or which `COMBINATIONS` has."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.exhaustive) if name in REPEATING else name for name in MEMBERS],
)
def test_from_text_to_each_task(name, files, text_file, tmp_path):
    (kind, *settings), out = MEMBERS[name], tmp_path / "run"
    run("pretrain", name.partition(",")[0], "--text", text_file, *sets([*tiny(name), *settings]), "--out", out)
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {"train", "heldout", "baseline"}
    model = unmask.load(out)
    assert set(model.model.heads) == HEADS[name]
    tokenizer = model.model.tokenizer
    check_in_transformers(out / "model", model.model, getattr(transformers, kind.partition(".")[2]))
    scored = json.loads(run("evaluate", "--model", out, "--data", text_file, "--json")[0])
    assert scored["metrics"].keys() >= {f"{head}_loss" for head in HEADS[name]}
    if "masked_lm" in HEADS[name]:
        filled = json.loads(run("fill", "--model", out, "The [MASK] sees the sea.", "--json")[0])
        assert len(filled["masks"]) == 1
    else:
        reason = "reads from left to right" if "causal_lm" in HEADS[name] else "pretrained only with replaced_token"
        assert reason in run("fill", "--model", out, "The [MASK] sees the sea.", status=2)[1]

    little = sets(["budget.steps=2", "batch.sequences=4", "task.length=32"])
    for task, file in (
        ("classification", "texts.tsv"),
        ("regression", "pairs.tsv"),
        ("token-classification", "tags.conll"),
        ("question-answering", "squad.json"),
    ):
        tuned = tmp_path / task
        run("finetune", task, "--model", out, "--train", files / file, *little, "--out", tuned)
        scored = json.loads(run("evaluate", "--model", tuned, "--data", files / file, "--json")[0])
        assert scored["task"] == task
    frozen = tmp_path / "frozen"
    run(
        *("finetune", "classification", "--model", out, "--train", files / "texts.tsv", "--frozen"),
        *("--downstream", "average", *little, "--out", frozen),
    )
    assert len(unmask.load(frozen).predict(["The dog."])) == 1
    passage = "The dog sees a bridge."
    answered = unmask.load(tmp_path / "question-answering").answer("Who?", passage)
    for one in (answered, *answered.nbest):
        assert one.answer
        assert one.answer == one.answer.strip() == passage[one.start : one.end]
    tagged = unmask.load(tmp_path / "token-classification").tag("The dog sees the sea.")
    assert all("The dog sees the sea."[one.start : one.end] == one.text for one in tagged.entities)
    run("features", "--model", out, "--data", files / "pairs.tsv", "--layers", "0,-1", "--out", tmp_path / "features")
    found = safetensors.numpy.load_file(tmp_path / "features" / "features.safetensors")
    assert found["values"].shape == (found["offsets"][-1], 2, 32)
    assert len(found["word_ids"]) == found["offsets"][-1]
    first = found["word_ids"][: found["offsets"][1]]
    assert np.count_nonzero(first == -1) == (4 if tokenizer.ends_twice else 3)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_combination_is_the_same_after_saving_and_loading(name, text_file, tmp_path, monkeypatch):
    """The checkpoint of the last step and the saved model have bitwise equal hidden states and losses."""
    (heads, *settings), out = COMBINATIONS[name], tmp_path / "run"
    wanted = sets([*tiny(name), *settings, "budget.steps=2"])
    run("pretrain", name.partition(",")[0], "--text", text_file, *wanted, "--out", out)
    recipe, corpus = read_recipe(out / "recipe.toml"), open_corpus(out / "text" / "corpus")
    trained, _ = build_learner(recipe, corpus.tokenizer.size, None)
    fresh = trained.encoder.words.weight.clone()
    trained.load_state_dict(load_checkpoint(newest_checkpoint(out / "checkpoints")[0]).model)
    assert not torch.equal(trained.encoder.words.weight, fresh)
    model = load_model(out)
    assert model.heads.keys() == heads
    check_in_transformers(out / "model", model, transformers.AutoModel)
    loaded, created = build_learner(recipe, corpus.tokenizer.size, model)
    assert created == (["the pooler"] if "DistilBERT" in name else []), "nothing reads a pooler there"
    feed = Feed(recipe.layout, recipe.masking, recipe.seed, corpus.tokenizer, trained.prepare)
    (batch,) = feed.heldout(corpus.heldout, 1000)
    with torch.inference_mode():
        assert torch.equal(trained.eval().encoder(batch.tokens).last, loaded.eval().encoder(batch.tokens).last)
        expected, found = trained(batch), loaded(batch)
    assert expected.keys() == found.keys() >= heads
    for part, value in expected.items():
        assert batch.counts[part]
        assert torch.equal(found[part].sum, value.sum), part


def test_bad_combinations_are_refused_at_the_start(text_file, tmp_path):
    for name, settings, message in (
        ("roberta-mini", ["encoder.offset=7"], "in which the padding token has id 1; pass --set"),
        (
            "roberta-mini",
            ["encoder.shared=all"],
            "unknown key `shared` - at `encoder`; it requires encoder.kind = albert",
        ),
        ("roberta-mini", ["tokenizer.lowercase=true"], "lowercase has no effect"),
        ("albert-mini", ["layout.kind=full_sentences"], "objective.sentence_order needs 'sentence_order' labels"),
        ("albert-mini", ["layout.second=next"], "objective.sentence_order needs 'sentence_order' labels"),
        ("spanbert-mini", ["encoder.kind=electra", "encoder.offset=2"], "it requires encoder.kind = roberta"),
        (
            "bert-mini",
            ["objective.replaced_token.weight=50"],
            "leaves no masked tokens for objective.masked_lm",
        ),
        ("bert-mini", ["encoder.kind=electra", "encoder.shared=all"], "it requires encoder.kind = albert"),
    ):
        arguments = ("pretrain", name, "--text", text_file, *sets([*TINY, *settings]), "--out", tmp_path / "run")
        assert message in run(*arguments, status=2)[1], name


def test_a_model_is_adapted_only_by_a_recipe_that_reads_as_it_does(text_file, tmp_path):
    for name in ("bert-mini", "gpt-mini"):
        run("pretrain", name, "--text", text_file, *sets(tiny(name)), "--out", tmp_path / name)
    for name, other, lacking in (
        ("bert-mini", "gpt-mini", "a pooler, bidirectional context, which"),
        ("gpt-mini", "bert-mini", "left-to-right context"),
    ):
        arguments = ("pretrain", name, "--text", text_file, "--init", tmp_path / other, *sets(TINY[5:7]))
        assert f"the recipe {name} needs {lacking}" in run(*arguments, "--out", tmp_path / "x", status=2)[1]
    settings = sets(["layout.length=48", "batch.tokens=512", "budget.steps=2"])
    arguments = ("pretrain", "gpt-mini", "--text", text_file, "--init", tmp_path / "gpt-mini", *settings)
    run(*arguments, "--out", tmp_path / "further")


def test_gpt_learns_scores_far_from_zero_and_unanswerable_questions(files, text_file, tmp_path):
    settings = sets(tiny("gpt-mini"))
    run("pretrain", "gpt-mini", "--text", text_file, *settings, "--out", tmp_path / "gpt")
    rows = [f"The year {number}.\t{2000 + number % 5}" for number in range(40)]
    (tmp_path / "years.tsv").write_text("\n".join(["text\tscore", *rows]))
    little = sets(["budget.steps=4", "batch.sequences=4"])
    for frozen in ((), ("--frozen", "--downstream", "average")):
        out = tmp_path / f"years{len(frozen)}"
        arguments = ("finetune", "regression", "--model", tmp_path / "gpt", "--train", tmp_path / "years.tsv")
        run(*arguments, *frozen, *little, "--out", out)
        assert 1990 < unmask.load(out).predict(["The year 3."])[0].score < 2010
    squad = json.loads((files / "squad.json").read_text())
    for number, paragraph in enumerate(squad["data"][0]["paragraphs"]):
        if number % 3 == 0:
            paragraph["qas"][0] |= {"answers": [], "is_impossible": True}
    (tmp_path / "squad2.json").write_text(json.dumps(squad))
    out = tmp_path / "answers"
    arguments = ("finetune", "question-answering", "--model", tmp_path / "gpt", "--train", tmp_path / "squad2.json")
    run(*arguments, *little, "--set", "task.length=48", "--out", out)
    losses = [json.loads(line)["question_answering_loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert np.isfinite(losses).all()


def test_unknown_families_are_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(UserError, match=r"unknown model_type 't5'; known: albert, bert, camembert"):
        unmask.load(tmp_path)
