"""Inputs that people have reported: adapters, prefixes, added tokens, classes of tokenizers, and where they are."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers

from unmask.data.tokenizers.load import load_tokenizer
from unmask.families.checkpoints import huggingface
from unmask.inference.load import load
from unmask.support.errors import InputWarning, UserError

from .conftest import assert_load_refused, assert_read_refused, configure, put, weights

LAYER = "bert.encoder.layer.0"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        (f"{LAYER}.attention.self.query.lora_A.default.weight", "merge the adapter into the weights"),
        (f"{LAYER}.attention.self.query.lora_A", "merge the adapter"),
        (f"{LAYER}.output.adapters.task.adapter_down.0.weight", "merge the adapter"),
        (f"{LAYER}.attention.self.distance_embedding.weight", "not of a bert model that is implemented"),
        (f"{LAYER}.crossattention.self.query.weight", "not of a bert model that is implemented"),
        ("bert.embeddings.word_embeddings.lora_embedding_A", "merge the adapter"),
        ("bert.pooler.dense.lora_B.weight", "merge the adapter"),
    ],
)
def test_tensors_in_the_encoder_that_are_not_read_are_refused(directory, name, remedy):
    put(directory, weights(directory) | {name: torch.zeros(2, 2)})
    short = name.removeprefix("bert.")
    assert_load_refused(directory, "model.safetensors: 1 tensor in the encoder is not read", short, remedy)


def test_an_adapter_beside_the_weights_is_refused(directory):
    (directory / "adapter_config.json").write_text("{}")
    assert_load_refused(directory, "adapter_config.json: adapters are not implemented", "merge the adapter")


@pytest.mark.parametrize("name", ["bert.embeddings.position_ids", f"{LAYER}.attention.self.rotary.inv_freq"])
def test_tables_that_are_computed_may_be_stored(directory, name):
    put(directory, weights(directory) | {name: torch.zeros(2, 2)})
    huggingface.read(directory)


def test_heads_of_other_programs_are_left_out(directory):
    put(directory, weights(directory) | {"ranker.lora_A.weight": torch.zeros(2, 2), "cls.seq.weight": torch.zeros(2)})
    huggingface.read(directory)


@pytest.fixture
def classifier(tmp_path):
    """The directory of a classifier of transformers."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=11, **sizes))
    model.save_pretrained(tmp_path)
    return tmp_path


ADAPTED = {
    "beside the head, as PEFT did until 0.5": {"weight": "weight", "lora_A.default.weight": "weight"},
    "PEFT": {"base_layer.weight": "weight", "base_layer.bias": "bias", "lora_B.default.weight": "weight"},
    "a head that PEFT trained": {
        f"{of}.{part}": part for of in ("original_module", "modules_to_save.default") for part in ("weight", "bias")
    },
}


@pytest.mark.parametrize("names", ADAPTED.values(), ids=ADAPTED)
def test_adapters_of_heads_are_refused(classifier, names):
    tensors = weights(classifier)
    head = {part: tensors.pop(f"classifier.{part}") for part in ("weight", "bias")}
    put(classifier, tensors | {f"classifier.{name}": head[part].clone() for name, part in names.items()})
    assert_read_refused(classifier, "in the head", "not read, first classifier.", "merge the adapter into the weights")


@pytest.mark.parametrize("head", ["heads.sentiment.4", "classifier.1", "fc"])
@pytest.mark.parametrize(
    ("architecture", "named"),
    [
        ("BertForSequenceClassification", True),
        ("BertModelWithHeads", True),
        ("BertAdapterModel", True),
        ("MyClassifier", True),
        ("BertModel", False),
        ("BertForMaskedLM", False),
        (None, False),
    ],
)
def test_a_head_that_is_not_known_is_named_where_config_json_states_one(classifier, architecture, named, head, recwarn):
    """It was left out without a word, so that the model seemed to have been fine-tuned for nothing."""
    tensors = weights(classifier)
    for part in ("weight", "bias"):
        tensors[f"{head}.{part}"] = tensors.pop(f"classifier.{part}")
    put(classifier, tensors)
    configure(classifier, architectures=architecture and [architecture])
    assert not huggingface.read(classifier).heads
    messages = [str(warning.message) for warning in recwarn]
    expected = f"states {architecture}, but no head for a task is known among the weights; left out: 2 tensors, first"
    assert len(messages) == named and all(expected in message for message in messages)


@pytest.mark.parametrize("family", ["Electra", "RoFormer"])
def test_a_head_for_multiple_choice_with_a_layer_of_its_own_is_named(directory, family, recwarn):
    """It has the name of a classifier; those without such a layer are read (tests/parity/test_multiple_choice.py)."""
    shape = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = getattr(transformers, f"{family}Config")(**shape, intermediate_size=8)
    getattr(transformers, f"{family}ForMultipleChoice")(config).save_pretrained(directory / "choices")
    assert not huggingface.read(directory / "choices").heads
    (message,) = [str(warning.message) for warning in recwarn if warning.category is InputWarning]
    assert f"states {family}ForMultipleChoice, but no head for a task is known" in message


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "base_model.model."]
)
def test_prefixes_of_wrappers_are_removed_and_named(directory, prefix):
    before = huggingface.read(directory)
    put(directory, {prefix + name: value for name, value in weights(directory).items()})
    with pytest.warns(InputWarning, match=rf"model\.safetensors: removed the prefix .*{prefix.split('.')[0]}"):
        after = huggingface.read(directory)
    assert before.encoder.keys() == after.encoder.keys() and before.heads.keys() == after.heads.keys()
    assert all(torch.equal(value, after.encoder[name]) for name, value in before.encoder.items())


def test_a_compiled_part_is_read_too(directory):
    put(directory, {name.replace("bert.", "bert._orig_mod."): value for name, value in weights(directory).items()})
    with pytest.warns(InputWarning, match="_orig_mod"):
        huggingface.read(directory)


def test_a_tensor_with_and_without_a_prefix_is_refused(directory):
    put(directory, {**weights(directory), "module.bert.pooler.dense.bias": torch.zeros(16)})
    assert_load_refused(directory, "have the same name without the prefixes")


@pytest.mark.parametrize("name", ["BertJapaneseTokenizer", "KoBertTokenizer", "BertweetTokenizer", 3])
def test_classes_of_tokenizers_that_are_not_implemented_are_refused(directory, name):
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": name}))
    assert_load_refused(directory, "tokenizer_config.json: tokenizer_class:", name)
    path.unlink()
    configure(directory, tokenizer_class=name)
    assert_load_refused(directory, "config.json: tokenizer_class:", name)


def test_roformers_own_tokenizer_is_refused_and_berts_is_read(directory):
    configure(directory, model_type="roformer")
    path = directory / "tokenizer_config.json"
    content = json.loads(path.read_text())
    load_tokenizer(directory)
    path.write_text(json.dumps({name: value for name, value in content.items() if name != "tokenizer_class"}))
    with pytest.raises(UserError, match=r"tokenizer_class is missing, and that of roformer, RoFormerTokenizer, is not"):
        load_tokenizer(directory)


def herbert(directory):
    """Write a vocabulary of HerBERT."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"A l a K o t k . a</w> t</w> .</w>".split()]  # noqa: SIM905
    tokens += ["ot</w>", "Kot</w>", "kot</w>", "la</w>", "Ala</w>"]
    merges = ["o t</w>", "K ot</w>", "k ot</w>", "l a</w>", "A la</w>"]
    (directory / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    (directory / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "HerbertTokenizerFast"}')
    (directory / "config.json").write_text('{"model_type": "bert", "vocab_size": 100}')


def test_herbert_keeps_the_case(tmp_path):
    herbert(tmp_path)
    ours, theirs = load_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("Ala Kot.", "ala kot", "Á la"):
        assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False)
    assert ours.tokens(ours.encode("Ala kot")) == ["Ala</w>", "kot</w>"]


@pytest.mark.shared
def test_the_reported_tokenizers(shared, tmp_path):
    cases = shared / "cases"
    with pytest.raises(UserError, match="tokenizer_class: 'BertJapaneseTokenizer'"):
        load_tokenizer(cases / "tokenizer_class" / "ja")
    kept = load_tokenizer(cases / "tokenizer_class" / "herbert")
    assert kept.tokens(kept.encode("Ala ma Kot .")) == ["Ala</w>", "ma</w>", "Kot</w>", ".</w>"]
    for file in (cases / "tiny_bert").iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    (tmp_path / "added_tokens.json").write_text('{"trastuzumab": 30522}')
    assert load_tokenizer(tmp_path).encode("patients on trastuzumab").tolist()[-1] == 30522


@pytest.mark.shared
@pytest.mark.minilm
@pytest.mark.parametrize("name", ["st_default_prompt", "st_do_lower_case", "st_saved_by_v6_length"])
@pytest.mark.filterwarnings("ignore::unmask.InputWarning")
def test_the_reported_vectors(name, shared, minilm, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    shutil.copytree(minilm, tmp_path / "m")
    shutil.copytree(shared / "cases" / name, tmp_path / "m", dirs_exist_ok=True, copy_function=shutil.copyfile)
    texts = ["A short text.", "Wide AWAKE in Zürich!", "word " * 300 + "end"]
    predictor = load(tmp_path / "m", device="cpu")
    if name == "st_do_lower_case":
        with pytest.raises(UserError, match=r"texts in lower case \(do_lower_case in sentence_bert_config\.json\)"):
            predictor.embed(texts)
        return
    theirs = library.SentenceTransformer(str(tmp_path / "m"), device="cpu").encode(texts)
    assert np.abs(predictor.embed(texts) - theirs).max() < 1e-4
