"""Every setting that transformers and sentence-transformers know is in a table: read, harmless, or refused."""

import dataclasses
import inspect

import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from unmask.families import FAMILIES as MODELS
from unmask.support.beside import ALIASES, FAMILIES, FILES, POOLING, KnownKeys
from unmask.support.errors import UserError

CLASSES = "Bert DistilBert Roberta MPNet XLMRoberta Camembert Albert XLNet DebertaV2 Herbert OpenAIGPT GPT2".split()  # noqa: SIM905
OWN = {"vocab", "merges", "vocab_file", "merges_file", "kwargs", "args", "self"}
"""Arguments of tokenizers that no file states: the vocabulary itself."""
KINDS = [kind for kind, family in MODELS.items() if family.format.model_type in CONFIG_MAPPING]


def of_config(form):
    """Return all keys of config.json in tables: the shared one, that of the family, and those in its format."""
    own = {*form.config.values(), *form.defaults, *form.always, *form.dropouts, form.head_dropout}
    table = FAMILIES.get(form.model_type, KnownKeys())
    return own | FILES["config.json"].names | table.names | ALIASES.get(form.model_type, {}).keys()


@pytest.mark.parametrize("kind", KINDS)
def test_each_key_of_a_configuration_is_in_a_table(kind):
    form = MODELS[kind].format
    kept = CONFIG_MAPPING[form.model_type]
    known = {field.name for field in dataclasses.fields(kept)} | kept.attribute_map.keys()
    assert not known - of_config(form)
    assert ALIASES.get(form.model_type, {}) == kept.attribute_map


@pytest.mark.parametrize("name", CLASSES)
def test_each_setting_of_a_tokenizer_is_in_the_table(name):
    found = getattr(transformers, f"{name}Tokenizer")
    known = {key for key in inspect.signature(found.__init__).parameters if not key.startswith("_")} - OWN
    assert not known - FILES["tokenizer_config.json"].names


def test_what_a_tokenizer_saves_is_in_the_table(tmp_path):
    words = {word: id for id, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])}
    saved = transformers.BertTokenizer(vocab=words).init_kwargs
    assert not saved.keys() - FILES["tokenizer_config.json"].names - OWN


def test_each_key_of_sentence_transformers_is_in_a_table():
    steps = pytest.importorskip("sentence_transformers.base.modules", reason="sentence-transformers is not installed")
    pooling = pytest.importorskip("sentence_transformers.sentence_transformer.modules").Pooling
    library = pytest.importorskip("sentence_transformers")
    table = FILES["sentence_bert_config.json"]
    known = inspect.signature(inspect.unwrap(steps.Transformer.__init__)).parameters
    outside = {"self", "model_name_or_path", "backend"}
    assert not known.keys() - outside - table.names
    assert not set(steps.Transformer.config_keys) - table.names
    assert not set(pooling.config_keys) - FILES[POOLING].names
    model = library.SentenceTransformer(modules=[pooling(4)], device="cpu", truncate_dim=2)
    assert not model._get_model_config().keys() - FILES["config_sentence_transformers.json"].names


def test_every_harmless_key_has_a_reason_and_no_key_is_in_two_lists():
    for table in (*FILES.values(), *FAMILIES.values()):
        assert all(table.harmless.values())
        assert len(table.names) == len(table.read) + len(table.harmless) + len(table.usual)


def test_a_value_that_is_not_implemented_is_named_with_its_file(tmp_path):
    table = KnownKeys(usual={"side": ("right", None)}, remedy="remove it")
    for content in ({}, {"side": "right"}, {"side": None}, {"unknown": 3}):
        table.check(content, tmp_path)
    with pytest.raises(UserError, match=r"file\.json: side: 'left' is not implemented, only 'right'; remove it"):
        table.check({"side": "left"}, tmp_path / "file.json")
    strict = KnownKeys(usual={"flag": (False,)})
    with pytest.raises(UserError, match="flag: 0 is"):
        strict.check({"flag": 0}, tmp_path)
