"""Directories as transformers writes them, with one setting changed: equal ids and outputs, or an error.

Each row is a setting of a file that transformers documents or that real directories have. What unmask computes is what
transformers computes for the same directory, or unmask refuses the directory; it never computes something else.
"""

import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from unmask.inference.load import load
from unmask.support.errors import UserError

from .published import (
    MAKE,
    copied,
    framed,
    ids_of_transformers,
    ids_of_unmask,
    inputs,
    outputs_of_transformers,
    outputs_of_unmask,
    quietly,
    verdict,
    write,
)

CONFIG, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
WITH_SEGMENTS = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}
FORMER = {"type": "linear", "factor": 2.0}
"""The same with the key that older files have."""


def token(content, **flags):
    plain = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
    return {"content": content, **plain, **flags}


TOKENS = {
    "bert": [
        *({"do_lower_case": value} for value in (False, ...)),
        *({"strip_accents": value} for value in (False, True)),
        {"tokenize_chinese_chars": False},
        *(
            {"tokenizer_class": name}
            for name in (
                *("PreTrainedTokenizerFast", "DistilBertTokenizer", "MPNetTokenizer", "KoBertTokenizer", ...),
                *("RobertaTokenizer", "BertTokenizerFast", "ElectraTokenizerFast", "BertJapaneseTokenizer"),
            )
        ),
        {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False},
        {"tokenizer_class": "PreTrainedTokenizer", "strip_accents": False},
        {"added_tokens_decoder": {"40": token("trx")}},
        {"added_tokens_decoder": {"36": token("trx")}},
        {"added_tokens_decoder": {"36": token("trx", normalized=True)}},
        {"added_tokens_decoder": {"36": token("the cat", rstrip=True)}},
        {"added_tokens_decoder": {"36": token("a", single_word=True), "37": token("tr")}},
        {"added_tokens_decoder": {"0": token("[PAD]", special=True), "7": token("sat", lstrip=True)}},
        {"extra_special_tokens": ["cat"]},
        {"extra_special_tokens": {"foo_token": "mat"}},
        {"additional_special_tokens": ["cat", "<x>"]},
        {"foo_token": "mat"},
        {"model_input_names": ["input_ids", "attention_mask"]},
        {"truncation_side": "left"},
        {"padding_side": "left"},
        {"split_special_tokens": True},
        {"model_max_length": 5},
        {"do_basic_tokenize": False},
        {"never_split": ["the"]},
        *({f"{role}_token": "!"} for role in ("cls", "sep", "mask", "unk", "pad", "bos")),
        *({f"{role}_token": "<new>"} for role in ("cls", "bos", "mask")),
        {"add_prefix_space": True},
        {"keep_accents": True},
        {"unk_id": 2},
        {"max_length": 4, "truncation_strategy": "longest_first", "stride": 1},
        {"auto_map": {"AutoTokenizer": [None, "tokenizer.Other"]}},
        {"clean_up_tokenization_spaces": True},
        {"added_by": "somebody"},
    ],
    "bert, cased": [
        *({"do_lower_case": value} for value in (True, ...)),
        {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": ...},
    ],
    "bert, general": [
        {"do_lower_case": True},
        {"tokenizer_class": ...},
        {"tokenizer_class": "BertTokenizer"},
        {"cls_token": "!"},
        WITH_SEGMENTS,
        {"extra_special_tokens": ["cat"]},
        {"added_tokens_decoder": {"36": token("trx")}},
    ],
    "distilbert": [{"do_lower_case": False}, {"tokenizer_class": "BertTokenizer"}, WITH_SEGMENTS],
    "roberta": [
        {"add_prefix_space": True},
        {"trim_offsets": False},
        {"errors": "strict"},
        *({f"{role}_token": "!"} for role in ("cls", "sep", "bos", "mask")),
        *(
            {"tokenizer_class": name}
            for name in (
                *("GPT2Tokenizer", "BartTokenizer", "PreTrainedTokenizerFast", "LongformerTokenizerFast", ...),
                *("BertweetTokenizer", "BertTokenizer"),
            )
        ),
        {"mask_token": {"__type": "AddedToken", **token("<mask>", lstrip=True, special=True)}},
        {"add_bos_token": False},
        WITH_SEGMENTS,
    ],
    "mpnet": [
        {"do_lower_case": False},
        {"strip_accents": False},
        *({f"{role}_token": "!"} for role in ("cls", "eos")),
        {"tokenizer_class": "BertTokenizer"},
        WITH_SEGMENTS,
    ],
    "xlm-roberta": [
        {"add_prefix_space": False},
        *({f"{role}_token": "!"} for role in ("bos", "eos", "cls", "sep")),
        *(
            {"tokenizer_class": f"{name}Tokenizer"}
            for name in ("Camembert", "Albert", "T5", "PreTrained", "XLMRoberta", "DebertaV2")
        ),
        {"do_lower_case": True},
        {"sp_model_kwargs": {"enable_sampling": True}},
    ],
    "albert": [
        {"do_lower_case": False},
        {"keep_accents": True},
        {"remove_space": False},
        {"cls_token": "!"},
        {"add_prefix_space": False},
        {"tokenizer_class": "BertTokenizer"},
        WITH_SEGMENTS,
    ],
    "deberta-v2": [
        {"do_lower_case": True},
        {"split_by_punct": True},
        {"add_prefix_space": False},
        {"unk_id": 3},
        {"vocab_type": "spm"},
        {"cls_token": "!"},
    ],
    "xlnet": [
        {"do_lower_case": True},
        {"keep_accents": True},
        {"padding_side": "left"},
        {"cls_token": "!"},
        {"unk_id": 1},
        WITH_SEGMENTS,
    ],
    "modernbert": [
        {"tokenizer_class": "BertTokenizer"},
        {"do_lower_case": True},
        {"tokenizer_class": "GemmaTokenizer"},
    ],
}
"""Settings of tokenizer_config.json, by the model beside it."""
BESIDE = [
    (ADDED, {"trx": 36}),
    (ADDED, {"trx": 50}),
    (ADDED, {"the cat": 36}),
    (ADDED, {"sat": 7}),
    (SPECIAL, {"cls_token": "!"}),
    (SPECIAL, {"sep_token": "[MASK]"}),
    (SPECIAL, {"mask_token": token("!", lstrip=True)}),
    (SPECIAL, {"additional_special_tokens": ["cat"]}),
]
"""Settings of the other files beside the vocabulary of a BERT."""
SETTINGS = {
    "bert": [
        *({"hidden_act": name} for name in ("relu", "gelu_new", "silu", "gelu_fast", "quick_gelu")),
        {"layer_norm_eps": 0.1},
        {"num_attention_heads": 4},
        {"num_hidden_layers": 1},
        {"type_vocab_size": 1},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"is_decoder": True, "add_cross_attention": True},
        {"is_encoder_decoder": True},
        {"pad_token_id": 3},
        {"bos_token_id": 3},
        {"use_cache": False},
        {"chunk_size_feed_forward": 1},
        {"tie_word_embeddings": False},
        {"tokenizer_class": "BertJapaneseTokenizer"},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"output_attentions": True},
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
        {"pruned_heads": {"0": [1]}},
        {"hidden_dropout_prob": 0.9, "attention_probs_dropout_prob": 0.9, "classifier_dropout": 0.9},
        {"initializer_range": 9.0},
        {"rope_theta": 3.0},
        {"head_dim": 4},
        {"sliding_window": 2},
        {"per_layer_config": {"0": {"num_attention_heads": 4}}},
        {"transformers_weights": "other.safetensors"},
        {"num_labels": 7},
        {"problem_type": "regression"},
        {"model_type": "roberta"},
    ],
    "distilbert": [
        {"activation": "relu"},
        {"sinusoidal_pos_embds": True},
        {"n_heads": 4},
        {"num_attention_heads": 4},
        {"hidden_size": 16},
        {"dropout": 0.9, "qa_dropout": 0.9, "seq_classif_dropout": 0.9},
    ],
    "electra": [{"summary_type": "mean"}, {"summary_activation": "tanh"}, {"hidden_act": "relu"}],
    "roberta": [{"pad_token_id": 2}, {"layer_norm_eps": 0.1}, {"hidden_act": "relu"}, {"bos_token_id": 9}],
    "mpnet": [{"relative_attention_num_buckets": 16}, {"pad_token_id": 3}, {"layer_norm_eps": 0.1}],
    "albert": [
        {"hidden_act": "relu"},
        {"num_hidden_groups": 2},
        {"inner_group_num": 2},
        {"num_hidden_layers": 3},
        {"layer_norm_eps": 0.1},
    ],
    "deberta-v2": [
        {"relative_attention": False},
        {"position_biased_input": True},
        {"pos_att_type": ["c2p"]},
        {"pos_att_type": "p2c|c2p"},
        {"share_att_key": False},
        *({"max_relative_positions": number} for number in (-1, 9)),
        {"norm_rel_ebd": "none"},
        {"conv_kernel_size": 3},
        {"attention_head_size": 4},
        {"pooler_hidden_act": "tanh"},
        {"pooler_dropout": 0.5},
        {"layer_norm_eps": 0.1},
        {"hidden_act": "relu"},
    ],
    "xlnet": [
        {"attn_type": "uni"},
        {"clamp_len": 3},
        {"same_length": True},
        {"untie_r": False},
        {"ff_activation": "relu"},
        {"mem_len": 4},
        {"n_head": 4},
        {"hidden_size": 8},
        {"use_mems_eval": False},
        {"summary_type": "first"},
        {"reuse_len": 3},
    ],
    "modernbert": [
        {"local_attention": 4},
        {"sliding_window": 2},
        {"layer_types": ["full_attention", "full_attention"]},
        {"layer_types": ["sliding_attention", "full_attention"]},
        {"norm_eps": 0.1},
        {"hidden_activation": "relu"},
        {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": LINEAR}},
        {"rope_parameters": {"full_attention": FORMER, "sliding_attention": FORMER}},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"norm_bias": True},
        {"mlp_bias": True},
        {"attention_bias": True},
        {"classifier_pooling": "mean"},
        {"sparse_prediction": True},
        {"head_dim": 4},
        {"embedding_dropout": 0.9},
    ],
    "nomic_bert": [
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
        {"rope_parameters": LINEAR},
        {"rope_parameters": LINEAR | {"rope_type": "dynamic"}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5}},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_scaling": FORMER, "rope_parameters": ...},
        {"rope_scaling": FORMER | {"type": "dynamic"}, "rope_parameters": ...},
        {"rope_parameters": FORMER},
        {"rope_theta": 50.0},
        {"partial_rotary_factor": 0.5},
        *({"head_dim": size} for size in (4, 8)),
        {"type_vocab_size": 1},
    ],
}
"""Settings of config.json, by model."""
OFTEN = ("bert", "roberta", "modernbert")


def rows(table, always):
    return [
        pytest.param(name, settings, id=f"{name}-{number}", marks=() if always(name) else pytest.mark.exhaustive)
        for name, several in table.items()
        for number, settings in enumerate(several)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A function that returns the directory of each model."""
    kept = {}

    def get(name, **options):
        key = (name, *options.items())
        if key not in kept:
            kept[key] = write(name, tmp_path_factory.mktemp("model") / "m", **options)
        return kept[key]

    return get


@pytest.mark.parametrize("name", MAKE)
def test_models_of_transformers_are_read(name, made):
    assert verdict(quietly(lambda: ids_of_transformers(made(name))), ids_of_unmask(made(name))) == "equal"
    assert verdict(quietly(lambda: outputs_of_transformers(made(name))), outputs_of_unmask(made(name))) == "equal"


@pytest.mark.parametrize(("name", "settings"), rows(TOKENS, lambda name: True))
def test_ids_are_those_of_transformers_or_refused(name, settings, made, tmp_path):
    directory = copied(made(name), CONFIG, settings, tmp_path / "m")
    verdict(quietly(lambda: ids_of_transformers(directory)), quietly(lambda: ids_of_unmask(directory)))


@pytest.mark.parametrize("name", ["bert", "bert, general"])
@pytest.mark.parametrize(("file", "settings"), BESIDE)
def test_files_beside_the_vocabulary_are_read_or_refused(name, file, settings, made, tmp_path):
    directory = copied(made(name), file, settings, tmp_path / "m")
    verdict(quietly(lambda: ids_of_transformers(directory)), quietly(lambda: ids_of_unmask(directory)))
    (directory / "tokenizer.json").unlink()
    if name == "bert":
        words = sorted(transformers.AutoTokenizer.from_pretrained(made(name)).vocab.items(), key=lambda pair: pair[1])
        (directory / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in words), encoding="utf8")
        verdict(quietly(lambda: ids_of_transformers(directory)), quietly(lambda: ids_of_unmask(directory)))


@pytest.mark.parametrize(("name", "settings"), rows(SETTINGS, OFTEN.__contains__))
def test_outputs_are_those_of_transformers_or_refused(name, settings, made, tmp_path):
    directory = copied(made(name), "config.json", settings, tmp_path / "m")
    verdict(quietly(lambda: outputs_of_transformers(directory)), quietly(lambda: outputs_of_unmask(directory)))


def test_an_added_token_has_its_own_row_of_the_model(made, tmp_path):
    directory = copied(made("bert"), ADDED, {"trx": 36}, tmp_path / "m")
    ours = quietly(lambda: outputs_of_unmask(directory))
    assert verdict(quietly(lambda: outputs_of_transformers(directory)), ours) == "equal"
    assert any(36 in ids for ids, _ in ours), "no text has the token"
    assert not any(36 in ids for ids, _ in outputs_of_unmask(made("bert")))


CLASSIFIER, MASKED_LM = transformers.AutoModelForSequenceClassification, transformers.AutoModelForMaskedLM
HEADS = [
    *(("regression", 1, {"problem_type": kind}) for kind in ("regression", None)),
    ("classification", 3, {"problem_type": "regression"}),
    ("classification", 3, {"problem_type": "single_label_classification"}),
    ("multi_label", 3, {"problem_type": "multi_label_classification"}),
    ("classification", 3, {"problem_type": "other"}),
    ("classification", 3, {"classifier_dropout": 0.9}),
    ("classification", 3, {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"x": 0}}),
]


@pytest.mark.parametrize(("head", "labels", "settings"), HEADS)
def test_logits_are_those_of_transformers_or_refused(head, labels, settings, made, tmp_path):
    source = made("bert", model=CLASSIFIER, num_labels=labels)
    directory = copied(source, "config.json", settings, tmp_path / "m")
    theirs = quietly(lambda: outputs_of_transformers(directory, CLASSIFIER, "logits"))
    found = verdict(theirs, quietly(lambda: outputs_of_unmask(directory, head)))
    wrong = settings.get("problem_type") in ("other", "regression") and labels > 1
    assert found == ("refused" if wrong else "equal")


def test_several_numbers_per_text_are_refused(made, tmp_path):
    source = made("bert", model=CLASSIFIER, num_labels=3)
    directory = copied(source, "config.json", {"problem_type": "regression"}, tmp_path / "m")
    with pytest.raises(UserError, match=r"config\.json: problem_type: 'regression' with 3 numbers per text"):
        outputs_of_unmask(directory)


DECODERS = {
    "bert": ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    "roberta": ("lm_head.decoder.bias", "lm_head.bias"),
    "albert": ("predictions.decoder.bias", "predictions.bias"),
    "deberta-v2": ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    "nomic_bert": ("cls.predictions.decoder.bias", "cls.predictions.bias"),
}
"""Names of the bias of the decoder and of that of the head."""


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("name", DECODERS)
def test_the_bias_of_the_decoder_counts(name, both, made, tmp_path):
    """Also where a file has another one in the head, to which transformers then does not tie it."""
    of_decoder, of_head = DECODERS[name]
    shutil.copytree(made(name, model=MASKED_LM), tmp_path / "m")
    path = tmp_path / "m/model.safetensors"
    tensors = safetensors.torch.load_file(path)
    tensors |= {of_decoder: tensors[of_head] + torch.arange(len(tensors[of_head]))}
    tensors = {name: value for name, value in tensors.items() if both or name != of_head}
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    theirs, predictor = outputs_of_transformers(tmp_path / "m", MASKED_LM, "logits"), load(tmp_path / "m", device="cpu")
    samples = [framed(predictor.model.tokenizer, texts) for texts in inputs()]
    samples = [sample.add(positions={"masked": np.arange(len(sample))}) for sample in samples]
    ours = [(sample.ids.tolist(), predictor.backend.logits("masked_lm", [sample])[0]) for sample in samples]
    assert verdict(theirs, ours) == "equal"


def test_a_decoder_that_is_neither_stored_nor_tied_is_refused(made, tmp_path):
    source = made("bert", model=MASKED_LM)
    directory = copied(source, "config.json", {"tie_word_embeddings": False}, tmp_path / "m")
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    tensors = {name: value for name, value in tensors.items() if "decoder" not in name}
    safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"config\.json: tie_word_embeddings is false"):
        outputs_of_unmask(directory)
