"""The tokenizer classes of transformers: what each makes of a vocabulary, and which of them reads which model.

All but the general ones keep only the vocabulary of a `tokenizer.json`: they make the normalizer and the splitting into
words anew from the settings in `tokenizer_config.json` (tokenization_*.py of transformers 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from unmask.data.tokenizers.tokenizer import BPE_SPECIAL_TOKENS, GENERAL_CLASS, SPECIAL_TOKENS
from unmask.data.tokenizers.unigram import UNIGRAM_SPECIAL_TOKENS, albert_normalizer, split_at_spaces
from unmask.data.tokenizers.wordpiece import MPNET_WORDPIECE
from unmask.data.tokenizers.words import SPACE

GENERAL = (GENERAL_CLASS, "TokenizersBackend", "PreTrainedTokenizer", "PythonBackend")
"""Classes that take `tokenizer.json` as it is; the first name is that of directories, whatever the version."""

Config = Mapping[str, Any]
Frame = Literal["first", "last", ""]
Rebuild = Callable[[tokenizers.Tokenizer, Config], None]


@dataclass(frozen=True, kw_only=True)
class TokenizerClass:
    """A tokenizer class of transformers 5.

    Attributes:
        model: class of the library's model that it makes of a vocabulary.
        special: default names of its special tokens, by role.
        rebuild: sets the normalizer and the splitting into words of the library's tokenizer by the settings.
        frame: where [CLS] is put: first, last (after the last [SEP]), or "": no special tokens are put around texts.
        ends_twice: whether the first text of a pair is followed by two separators.
        segments: whether it returns segment ids, unless `model_input_names` says otherwise.
        keeps_frame: whether it takes what `tokenizer.json` puts around texts, if that says so.
        zeros: whether its segment ids, where it returns them, are all zero.
        framed_by: roles of the tokens that it puts around texts.
        strips: whether the mask token includes the space before it, unless the files say otherwise. Without
            `tokenizer.json` RoBERTa's does here too, as in its own `tokenizer.json`, but not in transformers.
        unknown: returns the id of the unknown piece of a unigram model, from the pieces and the settings.
    """

    model: str
    special: Mapping[str, str]
    rebuild: Rebuild
    frame: Frame = "first"
    ends_twice: bool = False
    segments: bool = True
    zeros: bool = False
    keeps_frame: bool = False
    framed_by: tuple[str, str] = ("cls_token", "sep_token")
    strips: bool = False
    unknown: Callable[[Sequence[tuple[str, float]], Config, str], int] = lambda pieces, config, name: 1


def bert_words(library: tokenizers.Tokenizer, config: Config) -> None:
    """Normalize and split into words as BERT's class does, by the settings."""
    library.model.max_input_chars_per_word = 100
    library.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()


def _plain(library: tokenizers.Tokenizer) -> None:
    """Set what the classes with a BPE leave out."""
    library.model.fuse_unk = library.model.byte_fallback = library.model.ignore_merges = False


def _bytes(library: tokenizers.Tokenizer, config: Config) -> None:
    _plain(library)
    library.model.unk_token = None
    library.normalizer = None
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space", False)))


def _words(lowercase: bool, strip_accents: bool | None = None) -> Rebuild:
    def rebuild(library: tokenizers.Tokenizer, config: Config) -> None:
        _plain(library)
        library.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    return rebuild


def _charsmap(library: tokenizers.Tokenizer) -> list[normalizers.Normalizer]:
    """Return SentencePiece's table of characters, if the normalizer has one, which the classes keep."""
    steps: Any = library.normalizer
    several: list[Any] = [*steps] if type(steps).__name__ == "Sequence" else [steps]
    tables: list[normalizers.Normalizer] = [step for step in several if type(step) is normalizers.Precompiled]
    return tables[:1]


def _fairseq(library: tokenizers.Tokenizer, config: Config) -> None:
    library.normalizer = next(iter(_charsmap(library)), None)
    library.pre_tokenizer = split_at_spaces(marked=config.get("add_prefix_space", True))


def _albert(lowercase: bool, accents: bool | None) -> Rebuild:
    """Return how ALBERT and XLNet normalize; with `accents` None, the settings do not say whether accents are kept."""

    def rebuild(library: tokenizers.Tokenizer, config: Config) -> None:
        library.normalizer = albert_normalizer(
            _charsmap(library),
            lowercase=config.get("do_lower_case", lowercase),
            accents=accents is not None and config.get("keep_accents", accents),
        )
        library.pre_tokenizer = split_at_spaces(marked=accents is None or config.get("add_prefix_space", True))

    return rebuild


def _deberta(library: tokenizers.Tokenizer, config: Config) -> None:
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if config.get("do_lower_case") else []
    steps += [normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    library.normalizer = normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
    parts = [pre_tokenizers.Punctuation(behavior="isolated")] if config.get("split_by_punct") else []
    mark = "always" if config.get("add_prefix_space", True) else "first"
    words = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=mark)
    library.pre_tokenizer = pre_tokenizers.Sequence([*parts, words])


FAIRSEQ_NAMES = {"bos_token": "<s>", "eos_token": "</s>", **BPE_SPECIAL_TOKENS}
BERT = TokenizerClass(model="WordPiece", special=SPECIAL_TOKENS, rebuild=bert_words)
ROBERTA = TokenizerClass(
    model="BPE", special=FAIRSEQ_NAMES, rebuild=_bytes, ends_twice=True, segments=False, zeros=True
)
FAIRSEQ = TokenizerClass(
    model="Unigram",
    special=FAIRSEQ_NAMES,
    rebuild=_fairseq,
    ends_twice=True,
    segments=False,
    zeros=True,
    framed_by=("bos_token", "eos_token"),
    unknown=lambda pieces, config, name: 3,
)
XLNET_NAMES = {**FAIRSEQ_NAMES, "cls_token": "<cls>", "sep_token": "<sep>"}

CLASSES: dict[str, TokenizerClass] = {
    **dict.fromkeys(("BertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer"), BERT),
    "DistilBertTokenizer": TokenizerClass(
        model="WordPiece", special=SPECIAL_TOKENS, rebuild=bert_words, segments=False
    ),
    "MPNetTokenizer": TokenizerClass(
        model="WordPiece",
        special={"bos_token": "<s>", "eos_token": "</s>", **MPNET_WORDPIECE.special},
        rebuild=bert_words,
        ends_twice=True,
        segments=False,
        zeros=True,
        strips=True,
    ),
    **dict.fromkeys(("RobertaTokenizer", "LongformerTokenizer", "BartTokenizer"), ROBERTA),
    "GPT2Tokenizer": TokenizerClass(
        model="BPE",
        special=dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>"),
        rebuild=_bytes,
        frame="",
        segments=False,
        keeps_frame=True,
    ),
    "XLMRobertaTokenizer": FAIRSEQ,
    "CamembertTokenizer": replace(
        FAIRSEQ,
        strips=True,
        unknown=lambda pieces, config, name: next((id for id, piece in enumerate(pieces) if piece[0] == name), 0),
    ),
    "AlbertTokenizer": TokenizerClass(
        model="Unigram",
        special={"bos_token": "[CLS]", "eos_token": "[SEP]", **UNIGRAM_SPECIAL_TOKENS},
        rebuild=_albert(True, False),
        segments=False,
        keeps_frame=True,
    ),
    "XLNetTokenizer": TokenizerClass(
        model="Unigram",
        segments=False,
        special=XLNET_NAMES,
        rebuild=_albert(False, None),
        frame="last",
        strips=True,
        unknown=lambda pieces, config, name: config.get("unk_id", 0),
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        model="Unigram",
        special={"bos_token": "[CLS]", "eos_token": "[SEP]", **SPECIAL_TOKENS},
        rebuild=_deberta,
        unknown=lambda pieces, config, name: next(
            (id for id, piece in enumerate(pieces) if tuple(piece) == (name, 0.0)), config.get("unk_id", 1)
        ),
    ),
    "OpenAIGPTTokenizer": TokenizerClass(
        model="BPE", special={"unk_token": "<unk>"}, rebuild=_words(True), frame="", segments=False, keeps_frame=True
    ),
    "HerbertTokenizer": TokenizerClass(
        model="BPE", special=BPE_SPECIAL_TOKENS, rebuild=_words(False, False), segments=False
    ),
}
"""The classes that are implemented, by name without Fast."""

OF_MODELS = {
    **dict.fromkeys(("bert", "distilbert", "electra", "nomic_bert"), "BertTokenizer"),
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer",
    "openai-gpt": "OpenAIGPTTokenizer",
    "roformer": "RoFormerTokenizer",
    "mpnet": "MPNetTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "xlnet": "XLNetTokenizer",
    "modernbert": GENERAL[0],
    "eurobert": GENERAL[0],
}
"""The class of each `model_type` in AutoTokenizer."""
