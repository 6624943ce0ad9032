"""What is read of the files beside the weights of a model, and what is refused there: one table per file.

Input: the name and the content of a file. A key is in one of three lists: it is read; it is harmless, for a reason; or
it changes what transformers or sentence-transformers compute, is not implemented, and only its usual value is accepted.
Other keys are unknown to both libraries, which ignore them, as unmask does: most directories have some (names of
authors, of formats, of trainers). The tests compare the tables with the keys that the two libraries know.

A cross-encoder is a model of sentence-transformers that scores pairs of texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.support.errors import UserError

POOLING = "config.json of pooling"
NORMALIZE = "config.json of normalization"
DENSE = "config.json of a dense layer"
SPLADE_POOLING = "config.json of SPLADE's pooling"
TOKEN_DENSE = "config.json of a dense layer over tokens"
TOKEN_NORMALIZE = "config.json of the normalization of tokens"
MASK = "config.json of the mask of token vectors"

_DECODING = "only in decoding"
_PADDING = "texts are not padded here"
_METADATA = "a note on where the file comes from"
_TRAINING = "only in training"
_GENERATION = "only in generation, which encoders do not do"
_OUTPUTS = "which outputs a call returns"
_SPEED = "speed and memory, not results"
_IDS = "ids are those of the tokenizer"
_CHAT = "only in chats"
_RECORDED = "recorded, but not obeyed"


@dataclass(frozen=True, kw_only=True)
class KnownKeys:
    """The keys of a file.

    Attributes:
        read: keys that are read and obeyed.
        harmless: keys that do not change what is computed, with the reason.
        usual: keys that are not implemented, with the only values that are accepted; the first is the usual one. A
            missing key is accepted too.
        remedy: what to do about a value that is refused.
    """

    read: frozenset[str] = frozenset()
    harmless: Mapping[str, str] = field(default_factory=dict)
    usual: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    remedy: str = "use a model without it"

    @property
    def names(self) -> frozenset[str]:
        """All keys in the table."""
        return self.read | self.harmless.keys() | self.usual.keys()

    def unusual(self, content: Mapping[str, Any]) -> Iterator[str]:
        """Yield the key and the value of each setting that is not implemented, such as "truncation_side: 'left'"."""
        for key, values in self.usual.items():
            if key in content and not any(_equal(content[key], value) for value in values):
                yield f"{key}: {content[key]!r:.80}"

    def check(self, content: Mapping[str, Any], path: Path) -> None:
        """Check that a file states nothing that is not implemented.

        Raises:
            UserError: it does; the message names the file, the key, the value, and what is accepted.
        """
        for setting in self.unusual(content):
            value = self.usual[setting.partition(":")[0]][0]
            raise UserError(f"{setting} is not implemented, only {value!r}", file=path, remedy=self.remedy)


def _equal(found: Any, value: Any) -> bool:
    return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)


def _keys(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _because(reason: str, keys: str) -> dict[str, str]:
    return dict.fromkeys(keys.split(), reason)


ROLES = "bos_token eos_token unk_token sep_token pad_token cls_token mask_token"
EXTRA = "extra_special_tokens additional_special_tokens"

FILES: dict[str, KnownKeys] = {
    "tokenizer_config.json": KnownKeys(
        read=_keys(
            f"{ROLES} {EXTRA} tokenizer_class do_lower_case strip_accents tokenize_chinese_chars keep_accents "
            "split_by_punct add_prefix_space added_tokens_decoder model_max_length max_len model_input_names "
            "unk_id"
        ),
        harmless={
            **_because(_DECODING, "errors clean_up_tokenization_spaces spaces_between_special_tokens"),
            **_because(_DECODING, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"),
            **_because(_PADDING, "padding_side pad_to_multiple_of pad_token_type_id"),
            **_because(_RECORDED, "max_length stride truncation_strategy do_basic_tokenize never_split remove_space"),
            **_because(_RECORDED, "sp_model_kwargs legacy use_fast vocab_type"),
            **_because(_METADATA, "name_or_path processor_class is_local local_files_only backend files_loaded"),
            **_because(_METADATA, "special_tokens_map_file tokenizer_file vocab_file merges_file verbose init_inputs"),
            **_because(_CHAT, "chat_template response_template response_schema chat_control_tokens"),
            "auto_map": "code in a directory is never executed; transformers, too, uses the class that it knows",
            "trim_offsets": "offsets never include the space before a word",
            "add_bos_token": "special tokens are those of the class, or of tokenizer.json",
            "add_eos_token": "special tokens are those of the class, or of tokenizer.json",
            "model_specific_special_tokens": "names of tokens that are in the vocabulary",
        },
        usual={
            "truncation_side": ("right",),
            "split_special_tokens": (False, None),
            "fast_tokenizer_files": ([], ["tokenizer.json"]),
            "gguf_file": (None,),
        },
        remedy="save the tokenizer without this setting",
    ),
    "special_tokens_map.json": KnownKeys(read=_keys(f"{ROLES} {EXTRA}")),
    "config.json": KnownKeys(
        read=_keys(
            "model_type vocab_size architectures id2label problem_type tokenizer_class pad_token_id "
            "tie_word_embeddings sentence_transformers sbert_ce_default_activation_function"
        ),
        harmless={
            **_because(
                _METADATA, "transformers_version _name_or_path name_or_path finetuning_task auto_map directionality"
            ),
            **_because(_METADATA, "task_specific_params license_name num_labels label2id"),
            **_because(_TRAINING, "initializer_range initializer_cutoff_factor gradient_checkpointing qa_dropout"),
            **_because(_TRAINING, "pretraining_tp sparse_prediction sparse_pred_ignore_index reuse_len use_mems_train"),
            **_because(_OUTPUTS, "output_hidden_states output_attentions return_dict use_return_dict use_mems_eval"),
            **_because(_GENERATION, "use_cache bos_token_id eos_token_id is_encoder_decoder tie_encoder_decoder"),
            **_because(_IDS, "cls_token_id sep_token_id mask_token_id"),
            **_because(_SPEED, "chunk_size_feed_forward torchscript deterministic_flash_attn reference_compile"),
            **_because(
                _SPEED, "attn_implementation _attn_implementation _experts_implementation repad_logits_with_grad"
            ),
            **_because("the precision is that of the call", "dtype torch_dtype"),
            **_because(
                "only in multiple choice", "summary_type summary_use_proj summary_activation summary_last_dropout"
            ),
            **_because("only in the double-headed model", "summary_proj_to_labels summary_first_dropout"),
            **_because("the number of answers is that of the call", "start_n_top end_n_top"),
            "sinusoidal_pos_embds": "the table of positions is in the weights",
        },
        usual={
            "is_decoder": (False, None),
            "add_cross_attention": (False, None),
            "quantization_config": (None,),
            "pruned_heads": ({}, None),
            "per_layer_config": ({}, None),
            "transformers_weights": ("model.safetensors", None),
            "partial_rotary_factor": (1.0, None),
        },
        remedy="use a model without it",
    ),
    "config_sentence_transformers.json": KnownKeys(
        read=_keys(
            "model_type prompts default_prompt_name activation_fn truncate_dim query_prefix document_prefix "
            "query_length document_length do_query_expansion attend_to_expansion_tokens skiplist_words "
            "similarity_fn_name"
        ),
        harmless={
            "__version__": _METADATA,
            "requirements": "versions of libraries that are not used",
            "keep_in_fp32_modules": "the precision is that of the call",
        },
    ),
    "sentence_bert_config.json": KnownKeys(
        read=_keys("max_seq_length do_lower_case transformer_task"),
        harmless={
            "unpad_inputs": _SPEED,
            **_because("only for texts that are declared queries or documents", "query_length document_length"),
        },
        usual={
            "module_output_name": ("token_embeddings", "scores"),
            "modality_config": (
                {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
                {"text": {"method": "forward", "method_output_name": "logits"}},
            ),
            "processing_kwargs": ({}, None),
            "query_expansion": (None,),
            "tokenizer_name_or_path": (None,),
            **{
                f"{what}_{kind}": ({}, None, *({"add_pooling_layer": pooler} for pooler in (True, False)))
                for what in ("model", "tokenizer", "processor", "config")
                for kind in ("args", "kwargs")
            },
        },
    ),
    POOLING: KnownKeys(
        read=_keys(
            "pooling_mode pooling_mode_cls_token pooling_mode_mean_tokens pooling_mode_max_tokens "
            "pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken "
            "include_prompt"
        ),
        harmless=_because("it is that of the weights", "word_embedding_dimension embedding_dimension"),
    ),
    SPLADE_POOLING: KnownKeys(
        harmless={
            **_because("it is that of the weights", "word_embedding_dimension embedding_dimension"),
            "chunk_size": _SPEED,
        },
        usual={"pooling_strategy": ("max",), "activation_function": ("relu",)},
    ),
    DENSE: KnownKeys(
        read=_keys("out_features bias activation_function"),
        harmless=_because("it is that of the weights", "in_features"),
        usual={
            "use_residual": (False,),
            "module_input_name": ("sentence_embedding",),
            "module_output_name": ("sentence_embedding", None),
        },
    ),
    TOKEN_DENSE: KnownKeys(
        read=_keys("out_features bias activation_function"),
        harmless=_because("it is that of the weights", "in_features"),
        usual={
            "use_residual": (False,),
            "module_input_name": ("token_embeddings",),
            "module_output_name": ("token_embeddings", None),
        },
    ),
    TOKEN_NORMALIZE: KnownKeys(
        usual={
            "module_input_name": ("token_embeddings",),
            "module_output_name": ("token_embeddings", None),
        }
    ),
    MASK: KnownKeys(
        read=_keys("skiplist_words"),
        usual={"skiplist_tasks": (["document"], None), "keep_only_token_ids": (None,)},
    ),
    NORMALIZE: KnownKeys(
        usual={
            "module_input_name": ("sentence_embedding",),
            "module_output_name": ("sentence_embedding", None),
        }
    ),
}
"""The keys of each file; those of config.json that a family reads besides are in its format (families/format.py)."""

REFUSED_FILES = {
    "adapter_config.json": "merge the adapter into the weights (merge_and_unload of PEFT) and save the model again",
}
"""Files whose presence changes what transformers computes, and what to do. Other files are not read by either library,
or only in generation, chats and other modalities (generation_config.json, chat_template.jinja, ...).
"""
_SAVE = "load it by the class in config.json, in transformers{}, and save it again by save_pretrained"
OTHER_WEIGHTS = {
    "pytorch_model.bin.index.json": _SAVE.format(""),
    "tf_model.h5": _SAVE.format(" 4 with from_tf=True"),
    "flax_model.msgpack": _SAVE.format(" 4 with from_flax=True"),
    "*.ckpt*": _SAVE.format(" 4 with from_tf=True"),
    "adapter_model.*": REFUSED_FILES["adapter_config.json"],
    "global_step*": "make one file of the shards by the zero_to_fp32.py beside them, with safe_serialization",
    "pytorch_model_fsdp_*": "make one file of the shards: accelerate merge-weights DIR/pytorch_model_fsdp_0 DIR",
    "*.gguf": "use the model that it was made from",
    "**/*.onnx": "use the model that it was exported from; unmask reads its own exports alone",
    "model-*-of-*.safetensors": "download model.safetensors.index.json, too, which lists the files",
    "*.safetensors": "if these are the weights of the model, rename the file to model.safetensors",
}
"""Patterns of the names of weights that are not read, and what to do with them."""
FAMILIES: dict[str, KnownKeys] = {
    "albert": KnownKeys(read=_keys("num_hidden_groups inner_group_num")),
    "roformer": KnownKeys(read=_keys("embedding_size rotary_value")),
    "modernbert": KnownKeys(
        read=_keys(
            "layer_types local_attention sliding_window global_attn_every_n_layers global_rope_theta local_rope_theta "
            "rope_parameters"
        ),
        usual={"rope_scaling": (None,)},
    ),
    "deberta-v2": KnownKeys(
        read=_keys(
            "max_relative_positions position_buckets norm_rel_ebd pos_att_type relative_attention share_att_key "
            "position_biased_input pooler_hidden_size embedding_size conv_kernel_size conv_groups conv_act"
        )
    ),
    "nomic_bert": KnownKeys(
        read=_keys(
            "rope_parameters rope_scaling rope_theta head_dim n_layer n_embd n_head n_inner n_positions "
            "layer_norm_epsilon rotary_emb_base activation_function rotary_emb_fraction rotary_emb_interleaved "
            "rotary_emb_scale_base rotary_scaling_factor prenorm parallel_block causal"
        )
    ),
    "eurobert": KnownKeys(read=_keys("rope_parameters rope_scaling rope_theta head_dim")),
    "xlnet": KnownKeys(read=_keys("d_head mem_len")),
}
"""Keys of config.json that families read by functions of their own, by `model_type`."""
ALIASES: dict[str, dict[str, str]] = {
    "distilbert": {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    "openai-gpt": {
        "max_position_embeddings": "n_positions",
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    "xlnet": {
        "n_token": "vocab_size",
        "hidden_size": "d_model",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
}
"""Other names of keys of config.json, which transformers obeys too, by `model_type`."""
HEAD_SIZES = ("head_dim", "attention_head_size", "d_head")
"""Keys of config.json for the width of an attention head."""
