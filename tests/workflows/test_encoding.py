"""All calls that read text take its encoding, and stored results depend on it."""

import inspect

import pytest

import unmask
from unmask.data.text.documents import TextOptions
from unmask.families.bert import BertSettings
from unmask.inference import calls
from unmask.model.model import Model, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.workflows.pretraining.launch import _words
from unmask.workflows.pretraining.text_corpus import corpus_from_text

HERE = {"device": "cpu", "precision": "float32", "quiet": True}
LINES = ["Größe über naïve Wörter", "zwei schöne Häuser – “groß”", "plain words", "5 € für Bücher"]


@pytest.fixture
def model(tokenizer, tmp_path):
    encoder = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=64).build(tokenizer.size)
    heads = {"classification": ClassificationHead(encoder.head, 2).state_dict()}
    save_model(tmp_path / "model", Model(encoder, tokenizer, heads, ("a", "b"), Classification(length=32)), "")
    return tmp_path / "model"


@pytest.fixture
def write(tmp_path):
    def write(name, lines, encoding):
        path = tmp_path / encoding / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes("\n".join(lines).encode(encoding))
        return path

    return write


def test_every_call_that_reads_text_has_the_parameter():
    for name in unmask.__all__:
        function = getattr(unmask, name)
        parameters = inspect.signature(function).parameters if inspect.isfunction(function) else {}
        assert ("encoding" in parameters) == bool({"columns", "documents"} & parameters.keys() or name == "tokenize")


def test_labeled_files(model, write, tmp_path):
    rows = ["text\tlabel", *(f"{line}\t{'ab'[index % 2]}" for index, line in enumerate(LINES))]
    results = []
    for encoding in ("cp1252", "utf8"):
        options = {"encoding": encoding, **HERE}
        plain, table = write("a.txt", LINES, encoding), write("a.tsv", rows, encoding)
        scores = unmask.evaluate(model, table, trained_on=table, **options)
        results.append(
            (
                [one.text for one in unmask.predict(model, plain, **options)],
                unmask.embed(model, plain, out=None, **options).tolist(),
                unmask.write_features(model, plain, [-1], tmp_path / f"{encoding}.features", **options).read_bytes(),
                scores["metrics"],
                scores["without_training_examples"],
            )
        )
    assert results[0] == results[1]
    assert results[0][0] == LINES
    assert results[0][4]["equal"] == len(LINES)
    with pytest.raises(UserError, match="encoding has no effect without data"):
        unmask.predict(model, texts=["a"], encoding="cp1252", **HERE)
    with pytest.raises(UserError, match=r"a\.tsv:2: not UTF-8 .*; pass encoding with .* cp1252 \('Größe"):
        unmask.evaluate(model, tmp_path / "cp1252" / "a.tsv", **HERE)


def test_raw_text(tokenizer, write, tmp_path):
    made = []
    for encoding in ("cp1252", "utf8"):
        path, folder = write("a.txt", LINES * 20, encoding), tmp_path / encoding
        options = {"documents": "line", "encoding": encoding, "quiet": True}
        trained = unmask.train_tokenizer(path, folder / "tokenizer", kind="bpe", vocab_size=300, **options)
        extended = unmask.extend_tokenizer(path, folder / "tokenizer", folder / "extended", 5, **options)
        corpus = unmask.build_corpus(path, tokenizer, folder / "corpus", workers=1, **options)
        encoded = unmask.tokenize(tokenizer=folder / "tokenizer", data=path, encoding=encoding)
        shards = [entry.files for entry in corpus.manifest.train.shards]
        made.append((trained.sha256, extended.sha256, shards, list(encoded)))
    assert made[0] == made[1]
    with pytest.raises(UserError, match="encoding has no effect without data"):
        unmask.tokenize(["a"], tokenizer=tmp_path / "utf8" / "tokenizer", encoding="cp1252")
    with pytest.raises(UserError, match="encoding has no effect on a corpus"):
        unmask.pretrain("bert-tiny", tmp_path / "utf8" / "corpus", out=tmp_path / "run", encoding="cp1252", quiet=True)


def test_resumed_predictions_depend_on_it(model, write, tmp_path, monkeypatch):
    path, out, described = write("a.txt", ["only ASCII"], "ascii"), tmp_path / "out.jsonl", []
    real = calls.write_predictions

    def describe(predictor, examples, written, about, **options):
        described.append(about)
        return real(predictor, examples, written, about, **options)

    monkeypatch.setattr(calls, "write_predictions", describe)
    for encoding in (None, "cp1252"):
        unmask.predict(model, path, out=out, encoding=encoding, **HERE)
    assert [name for name in described[0] if described[0][name] != described[1][name]] == ["encoding"]


def test_a_resumed_run_depends_on_it(write, tmp_path):
    path, run = write("a.txt", ["the dog\n", "the cat\n"] * 20, "ascii"), tmp_path / "run"
    recipe = read_recipe("bert-tiny", {"tokenizer.vocabulary": 60})
    corpus_from_text([path], recipe, run, report=str)
    (run / "recipe.toml").write_text("")
    assert corpus_from_text([path], recipe, run, resume=True).manifest.train.documents > 0
    with pytest.raises(UserError, match="started with other settings: encoding was not set, now cp1252"):
        corpus_from_text([path], recipe, run, resume=True, options=TextOptions(encoding="cp1252"))


def test_a_restarted_process_is_told():
    arguments = {"recipe": None, "settings": None, "restarts": 1, "text": ["a.txt"], "encoding": "cp1252"}
    assert _words(arguments) == ["pretrain", "--text", "a.txt", "--encoding", "cp1252"]
