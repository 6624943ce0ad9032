"""Multiple choice: the loss beside that of single questions, parity with transformers, runs, messages."""

import json

import numpy as np
import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

import unmask
from unmask.cli.main import main
from unmask.data.batches.batch import collate
from unmask.data.labelled.choices_file import Choices
from unmask.model.model import Model, save_model
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides, write
from unmask.tasks.mistakes import worst_first
from unmask.tasks.multiple_choice import Chosen, MultipleChoice

TASK = MultipleChoice(length=32)
EXAMPLES = [
    Choices("1", "the dog sees the cat", "who", ("the dog", "the cat near the sea", "a poem"), 0, "f", "p"),
    Choices("2", "the poem", "", ("the river", "the town"), 1, "f", "p"),
    Choices("3", "the garden in the old town", "where is it", ("a", "the sea", "the old town", "b"), 2, "f", "p"),
]


@pytest.fixture
def learner(recipe, tokenizer):
    encoder = recipe.encoder.build(tokenizer.size)
    head = TASK.build(recipe.encoder.head, ())
    for parameter in [*head.parameters(), *encoder.pooler.parameters()]:
        torch.nn.init.normal_(parameter)
    return Learner(encoder, {"multiple_choice": head}).eval()


def scores_of(learner, tokenizer):
    """Return the logits of the choices of each question, each choice computed alone."""
    head, found = learner.parts["multiple_choice"], []
    for one in EXAMPLES:
        batches = [collate([sample]) for sample in TASK.frame(tokenizer, [one], (), gold=False).samples]
        found.append(torch.cat([head.predict(learner.encoder, learner.encoder(b.tokens), b)[:, 0] for b in batches]))
    return found


def loss_of(learner, samples):
    batch = collate([learner.prepare(sample) for sample in samples])
    return learner(batch)["multiple_choice"], batch


def test_the_loss_is_a_softmax_over_the_choices_of_each_question(learner, tokenizer):
    samples = TASK.frame(tokenizer, EXAMPLES, (), gold=True).samples
    assert len(samples) == 3
    part, batch = loss_of(learner, samples)
    assert (batch.counts, len(batch.keys)) == ({"multiple_choice": 3}, 9)
    scores = scores_of(learner, tokenizer)
    expected = sum(
        float(cross_entropy(own[None].detach(), torch.tensor([one.gold])))
        for own, one in zip(scores, EXAMPLES, strict=True)
    )
    assert float(part.sum.detach()) == pytest.approx(expected, rel=1e-5)
    right = sum(int(own.argmax()) == one.gold for own, one in zip(scores, EXAMPLES, strict=True))
    assert int(part.metrics["accuracy"]) == right


@pytest.mark.parametrize("fault", ["one group", "wrong label"])
def test_a_planted_fault_changes_the_loss(learner, tokenizer, monkeypatch, fault):
    samples = TASK.frame(tokenizer, EXAMPLES, (), gold=True).samples
    right = float(loss_of(learner, samples)[0].sum.detach())
    if fault == "one group":
        sequences = type(samples[0]).sequences
        monkeypatch.setattr(type(samples[0]), "sequences", lambda self, number: sequences(self, 0))
    else:
        samples = TASK.frame(tokenizer, [*EXAMPLES[1:], EXAMPLES[0]], (), gold=True).samples
        samples = [one.changed(labels={name: v[::-1].copy() for name, v in one.labels.items()}) for one in samples]
    assert float(loss_of(learner, samples)[0].sum.detach()) != pytest.approx(right, rel=1e-3)


def test_transformers_gives_the_same_scores(learner, tokenizer, tmp_path):
    """BertForMultipleChoice on our body, with our head's weights."""
    head = learner.parts["multiple_choice"]
    save_model(tmp_path, Model(learner.encoder, tokenizer), "")
    theirs = transformers.BertForMultipleChoice.from_pretrained(tmp_path).eval()
    own = learner.encoder.pooler.state_dict()
    theirs.bert.pooler.load_state_dict({name if "dense" in name else f"dense.{name}": own[name] for name in own})
    theirs.classifier.load_state_dict(head.out.state_dict())
    for one, own in zip(EXAMPLES, scores_of(learner, tokenizer), strict=True):
        samples = TASK.frame(tokenizer, [one], (), gold=False).samples
        longest = max(map(len, samples))
        ids, segments, mask = (torch.zeros(1, len(samples), longest, dtype=torch.long) for _ in range(3))
        for row, sample in enumerate(samples):
            ids[0, row, : len(sample)] = torch.from_numpy(sample.ids)
            segments[0, row, : len(sample)] = torch.from_numpy(sample.segments)
            mask[0, row, : len(sample)] = 1
        out = theirs(input_ids=ids, token_type_ids=segments, attention_mask=mask, labels=torch.tensor([one.gold]))
        assert out.logits[0].tolist() == pytest.approx(own.tolist(), abs=1e-4)
        loss = cross_entropy(own[None].detach(), torch.tensor([one.gold]))
        assert float(out.loss.detach()) == pytest.approx(float(loss), rel=1e-4)


NAMES = ["dog", "cat", "teacher", "doctor", "poem", "bridge"]


@pytest.fixture(scope="module")
def articles(tmp_path_factory):
    """Twelve articles: which of two is near the sea? A choice cannot be judged without the article."""
    folder = tmp_path_factory.mktemp("race")
    for number in range(12):
        first, second = NAMES[number % 6], NAMES[(number + 1 + number // 6) % 6]
        article = f"the {first} is near the sea . the {second} is near the tree ."
        choices = [first, second, "the rain"] if number % 2 else [second, first]
        record = {"id": f"{'high' if number % 3 else 'middle'}{number}.txt", "article": article, "options": [choices]}
        record |= {"questions": ["near the sea"], "answers": ["AB"[choices.index(first)]]}
        (folder / f"{number}.txt").write_text(json.dumps(record))
    return folder


@pytest.fixture(scope="module")
def trained(fine_tuned, recipe_file, articles, tmp_path_factory):
    """A model whose random weights are large enough for its [CLS] to distinguish sequences."""
    here = tmp_path_factory.mktemp("choice")
    (here / "large.toml").write_text(write(read_recipe(recipe_file, parse_overrides(["encoder.init_std=0.15"]))))
    sets = ("budget.steps=80", "task.length=32", "optimizer.learning_rate=2e-3")
    return fine_tuned("multiple-choice", articles, here / "run", *sets, recipe=here / "large.toml")


def test_choices_are_memorized(trained, articles):
    result = json.loads((trained / "dev.json").read_text())
    assert (result["task"], result["examples"]) == ("multiple-choice", 12)
    assert result["metrics"]["accuracy"] > 80
    assert list(result["by_type"]) == ["high", "middle"]
    model = unmask.load(trained, device="cpu")
    record = json.loads((articles / "1.txt").read_text())
    found = model.choose(record["article"], record["options"][0], record["questions"][0])
    assert found.choice == "AB".index(record["answers"][0])
    assert sum(found.probabilities) == pytest.approx(1)
    assert len(found.probabilities) == 3


def test_the_command_line(trained, articles, tmp_path, capsys):
    asked = ["predict", "--model", str(trained), "--passage", "the dog is near the sea ."]
    assert main([*asked, "--question", "near the sea", "--choices", "dog", "cat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"id", "choice", "text", "probabilities"}
    assert main([*asked, "--choices", "dog", "cat"]) == 0
    out, page = tmp_path / "out.jsonl", tmp_path / "errors.html"
    assert main(["predict", "--model", str(trained), "--data", str(articles), "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 12
    assert main(["evaluate", "--model", str(trained), "--data", str(articles), "--errors", str(page)]) == 0
    assert page.exists()
    capsys.readouterr()
    for options, message in (
        (["--choices", "dog"], "there are fewer than two choices"),
        (["--choices", "dog", " "], "the passage or a choice is empty"),
        (["--choices", "dog", "cat", "--history", "a", "b"], "--choices goes with --passage"),
    ):
        assert main([*asked, *options]) == 2
        assert message in capsys.readouterr().err


def test_other_models_do_not_choose(recipe, tokenizer, tmp_path):
    save_model(tmp_path, Model(recipe.encoder.build(tokenizer.size), tokenizer), "")
    with pytest.raises(UserError, match="this model was not fine-tuned for multiple choice; fine-tune it"):
        unmask.load(tmp_path, device="cpu").choose("a", ["b", "c"])


def test_frozen_encoders_are_refused(fine_tuned, articles, tmp_path):
    with pytest.raises(UserError, match="multiple choice does not work with a frozen encoder; omit frozen"):
        fine_tuned("multiple-choice", articles, tmp_path / "run", "task.length=32", frozen=True)


def test_mistakes_show_all_choices():
    odds = [(0.7, *[0.3 / (len(one.choices) - 1)] * (len(one.choices) - 1)) for one in EXAMPLES]
    found = [Chosen(one.id, 0, one.choices[0], own) for one, own in zip(EXAMPLES, odds, strict=True)]
    first, second = worst_first(TASK.mistakes(EXAMPLES, found, ()))
    assert (first.gold, first.predicted, first.score) == ("the town", "the river", 0.7)
    assert list(second.probabilities) == list(EXAMPLES[2].choices)
    assert [text.name for text in second.passages] == ["passage", "question"]
    assert TASK.measure(EXAMPLES, found, ())(np.arange(3)) == {"accuracy": pytest.approx(100 / 3)}
    assert [one.gold for one in TASK.labelled(EXAMPLES, found)] == [0, 0, 0]
    with pytest.raises(UserError, match="columns has no effect: choices"):
        TASK.read(["x"], columns={"text": "0"})
