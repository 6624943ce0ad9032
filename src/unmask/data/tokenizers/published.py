"""The tokenizer classes of transformers: which of them reads a directory, and what it makes of the files.

Input: `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` and `config.json` beside a vocabulary,
and the vocabulary as the library reads it. Output: the library's tokenizer as transformers 5 would have it, with all
added tokens, and what it puts around texts.

As in `AutoTokenizer`, the class is that of `tokenizer_config.json`, else that of `config.json`, else that of its
`model_type`. The general classes take `tokenizer.json` as it is. All others keep only its vocabulary, and make the
normalizer and the splitting into words anew from their own settings; what `tokenizer.json` says of these has no effect.
A class that is not in `CLASSES` is refused, because its rules are not known here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import AddedToken, normalizers, pre_tokenizers

from unmask.data.tokenizers.bpe import BPE_SPECIAL_TOKENS
from unmask.data.tokenizers.kind import read_json
from unmask.data.tokenizers.tokenizer import Framing
from unmask.data.tokenizers.unigram import SPACE, UNIGRAM_SPECIAL_TOKENS
from unmask.data.tokenizers.wordpiece import MPNET_WORDPIECE, SPECIAL_TOKENS
from unmask.support.beside import EXTRA, FILES, ROLES
from unmask.support.errors import UserError

CONFIG, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
GENERAL = ("PreTrainedTokenizerFast", "TokenizersBackend", "PreTrainedTokenizer", "PythonBackend")
"""Classes that take `tokenizer.json` as it is; the first name is that of directories, whatever the version."""
SAVE_AGAIN = (
    "if transformers reads the tokenizer as its authors meant, save it by AutoTokenizer.from_pretrained(...)"
    ".save_pretrained(...), and set tokenizer_class to PreTrainedTokenizerFast"
)

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


def _wordpiece(library: tokenizers.Tokenizer, config: Config) -> None:
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


def _metaspace(config: Config, otherwise: str = "never") -> pre_tokenizers.PreTokenizer:
    scheme = "always" if config.get("add_prefix_space", True) else otherwise
    return pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme)


def _charsmap(library: tokenizers.Tokenizer) -> list[normalizers.Normalizer]:
    """Return SentencePiece's table of characters, if the normalizer has one, which the classes keep."""
    steps = library.normalizer
    several = list(steps) if isinstance(steps, normalizers.Sequence) else [steps]
    return [step for step in several if isinstance(step, normalizers.Precompiled)][:1]


def _fairseq(library: tokenizers.Tokenizer, config: Config) -> None:
    library.normalizer = next(iter(_charsmap(library)), None)
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _metaspace(config)])


def _albert(lowercase: bool, accents: bool | None) -> Rebuild:
    """Return how ALBERT and XLNet normalize; with `accents` None, the settings do not say whether accents are kept."""

    def rebuild(library: tokenizers.Tokenizer, config: Config) -> None:
        steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if accents is None or not config.get("keep_accents", accents):
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if config.get("do_lower_case", lowercase):
            steps.append(normalizers.Lowercase())
        library.normalizer = normalizers.Sequence([*steps, *_charsmap(library)])
        prefixed = {} if accents is None else config
        library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), _metaspace(prefixed)])

    return rebuild


def _deberta(library: tokenizers.Tokenizer, config: Config) -> None:
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if config.get("do_lower_case") else []
    steps += [normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    library.normalizer = normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
    parts = [pre_tokenizers.Punctuation(behavior="isolated")] if config.get("split_by_punct") else []
    library.pre_tokenizer = pre_tokenizers.Sequence([*parts, _metaspace(config, "first")])


FAIRSEQ_NAMES = {"bos_token": "<s>", "eos_token": "</s>", **BPE_SPECIAL_TOKENS}
BERT = TokenizerClass(model="WordPiece", special=SPECIAL_TOKENS, rebuild=_wordpiece)
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
        model="WordPiece", special=SPECIAL_TOKENS, rebuild=_wordpiece, segments=False
    ),
    "MPNetTokenizer": TokenizerClass(
        model="WordPiece",
        special={"bos_token": "<s>", "eos_token": "</s>", **MPNET_WORDPIECE.special},
        rebuild=_wordpiece,
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


@dataclass(frozen=True)
class Published:
    """What transformers makes of a directory.

    Attributes:
        name: name of the class without Fast; "" if transformers does not read the directory, which lacks a
            `config.json` with a `model_type`, and the name of a class.
        config: `tokenizer_config.json`.
        special: names of the special tokens, by role, with those of the beginning and the end.
        added: the added tokens that the files beside the vocabulary state, by id.
    """

    name: str
    config: Config
    special: Mapping[str, AddedToken]
    extra: tuple[AddedToken, ...] = ()
    added: Mapping[int, AddedToken] = field(default_factory=dict)

    @property
    def rules(self) -> TokenizerClass | None:
        """The rules of the class; None if `tokenizer.json` is taken as it is."""
        return CLASSES.get(self.name)

    @property
    def segments(self) -> bool:
        """Whether the second text of a pair is marked by segment ids."""
        names = self.config.get("model_input_names")
        if isinstance(names, list):
            return "token_type_ids" in names
        return self.rules is not None and self.rules.segments

    def roles(self, roles: tuple[str, ...]) -> dict[str, str]:
        """Return the names of the special tokens of these roles."""
        return {role: self.special[role].content for role in roles if role in self.special}


def read_published(directory: Path) -> Published:
    """Read the files beside a vocabulary.

    Raises:
        UserError: a file is corrupt, or states something that is not implemented.
    """
    config = read_json(directory / CONFIG)
    names = read_json(directory / SPECIAL)
    for name, content in ((CONFIG, config), (SPECIAL, names)):
        FILES[name].check(content, directory / name)
    name = _class_name(config, read_json(directory / "config.json"), directory)
    decoder = config.get("added_tokens_decoder")
    settings = config if decoder is not None else {**config, **names}
    special = {role: token for role in ROLES.split() if (token := _token(settings.get(role), True)) is not None}
    rules = CLASSES.get(name)
    if rules is not None:
        special = {role: AddedToken(text, special=True) for role, text in rules.special.items()} | special
        strips = rules.strips or (rules is ROBERTA and not (directory / "tokenizer.json").exists())
        if strips and isinstance(settings.get("mask_token", ""), str):
            special["mask_token"] = AddedToken(special["mask_token"].content, special=True, lstrip=True)
    extra = tuple(_extra(settings, directory))
    if decoder is not None:
        added = _decoded(decoder, directory / CONFIG)
    else:
        known = {token.content for token in (*special.values(), *extra)}
        added = _listed(read_json(directory / ADDED), known, directory / ADDED)
    stated = {token.content: token for token in added.values()}
    special = {role: stated.get(token.content, token) for role, token in special.items()}
    return Published(name, config, special, extra, added)


def _class_name(config: Config, model: Config, directory: Path) -> str:
    """Return the name of the class that transformers chooses, without Fast; "" if it cannot choose one.

    Raises:
        UserError: it is not implemented.
    """
    kind = model.get("model_type", "bert" if model else "")
    of_model = OF_MODELS.get(kind, "") if isinstance(kind, str) else ""
    stated, file = config.get("tokenizer_class"), CONFIG
    if stated is None:
        stated, file = model.get("tokenizer_class"), "config.json"
    if stated is None:
        name = of_model
    elif not isinstance(stated, str):
        raise UserError(f"tokenizer_class: {stated!r} is not the name of a class", file=directory / file)
    else:
        name = GENERAL[0] if stated in GENERAL else stated.removesuffix("Fast")
        if of_model == GENERAL[0] and kind == "modernbert":
            name = of_model
    if name and name not in CLASSES and name not in GENERAL:
        what = f"tokenizer_class: '{stated}'" if stated else f"tokenizer_class is missing, and that of {kind}, {name},"
        raise UserError(f"{what} is not implemented", file=directory / file, remedy=SAVE_AGAIN)
    return name


def _token(value: Any, special: bool) -> AddedToken | None:
    """Return a token as files state it: a string, or an object with its content; None for anything else."""
    if isinstance(value, str) and value:
        return AddedToken(value, special=special)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str) or not value["content"]:
        return None
    flags = {name: bool(value[name]) for name in ("single_word", "lstrip", "rstrip", "normalized") if name in value}
    return AddedToken(value["content"], **flags, special=bool(value.get("special", special)))


def _extra(settings: Config, directory: Path) -> Iterator[AddedToken]:
    """Yield the special tokens without a role of the library: listed ones, and those of roles of the model itself."""
    listed = next((settings[name] for name in EXTRA.split() if settings.get(name)), [])
    named = {key: value for key, value in settings.items() if key.endswith("_token") and key not in ROLES.split()}
    values = [*(listed.values() if isinstance(listed, dict) else listed), *named.values()]
    for value in values:
        if value is None or isinstance(value, bool):
            continue
        token = _token(value, True)
        if token is None:
            raise UserError(f"{value!r:.80} is not a token", file=directory / CONFIG)
        yield token


def _decoded(decoder: Any, path: Path) -> dict[int, AddedToken]:
    try:
        pairs = [(int(id), _token(value, False)) for id, value in decoder.items()]
    except (AttributeError, ValueError) as error:
        raise UserError("added_tokens_decoder is not a table from ids to tokens", file=path) from error
    found = {id: token for id, token in sorted(pairs, key=lambda pair: pair[0]) if token is not None}
    if len(found) != len(pairs):
        raise UserError("added_tokens_decoder has a value that is not a token", file=path)
    return found


def _listed(content: Config, special: set[str], path: Path) -> dict[int, AddedToken]:
    if not all(isinstance(id, int) and not isinstance(id, bool) and token for token, id in content.items()):
        raise UserError("is not a table from tokens to ids", file=path, remedy="copy it again")
    return {
        id: AddedToken(token, normalized=token not in special, special=token in special)
        for token, id in sorted(content.items(), key=lambda item: item[1])
    }


def rebuilt(published: Published, library: tokenizers.Tokenizer, path: Path) -> tokenizers.Tokenizer:
    """Return the library's tokenizer as transformers has it, with all added tokens.

    Args:
        published: what the files beside the vocabulary state.
        library: the tokenizer as the library reads the vocabulary, which is changed.
        path: file of the vocabulary.

    Raises:
        UserError: the vocabulary is not of the class, or contradicts the files beside it.
    """
    library.no_truncation()
    library.no_padding()
    if not published.name:
        return _with_added(library, published, published.added, path)
    rules, added = published.rules, dict(published.added)
    if rules is None:
        return _with_added(library, published, added, path)
    kind = type(library.model).__name__
    if kind != rules.model:
        raise UserError(
            f"has a model of the type {kind}, but transformers' {published.name} reads {rules.model}",
            file=path,
            remedy=SAVE_AGAIN,
        )
    settings = _settings(published, library, path)
    if rules.model == "Unigram":
        _check_unknown(published, rules, library, path)
    if "added_tokens_decoder" not in published.config:
        added |= library.get_added_tokens_decoder()
    try:
        rules.rebuild(library, settings)
    except TypeError as error:
        raise UserError(
            "do_lower_case, strip_accents and tokenize_chinese_chars must be true or false", file=path.with_name(CONFIG)
        ) from error
    fresh = tokenizers.Tokenizer(library.model)
    fresh.pre_tokenizer = library.pre_tokenizer
    if library.normalizer is not None:
        fresh.normalizer = library.normalizer
    if rules.keeps_frame and library.post_processor is not None:
        fresh.post_processor = library.post_processor
    return _with_added(fresh, published, added, path)


def _settings(published: Published, library: tokenizers.Tokenizer, path: Path) -> Config:
    """Return the settings of the class, with the case that a bare `vocab.txt` of Google implies.

    Raises:
        UserError: the vocabulary keeps the case of texts, and the class lower-cases them by default.
    """
    config, normalizer = published.config, library.normalizer
    if "do_lower_case" in config or not isinstance(normalizer, normalizers.BertNormalizer) or normalizer.lowercase:
        return config
    if published.rules is None or published.rules.rebuild is not _wordpiece:
        return config
    if config or path.name != "vocab.txt":
        raise UserError(
            f"keeps the case of texts, but transformers' {published.name} lower-cases them, as {CONFIG} does not set "
            "do_lower_case",
            file=path,
            remedy=f"set do_lower_case in {CONFIG} to what the vocabulary was made for",
        )
    return {"do_lower_case": False}


def _check_unknown(published: Published, rules: TokenizerClass, library: tokenizers.Tokenizer, path: Path) -> None:
    model = json.loads(library.model.__getstate__())
    expected = rules.unknown(model["vocab"], published.config, published.special["unk_token"].content)
    if model["unk_id"] not in (None, expected):
        raise UserError(
            f"its unknown token has the id {model['unk_id']}, but transformers' {published.name} takes {expected}",
            file=path,
            remedy=SAVE_AGAIN,
        )


def _with_added(
    library: tokenizers.Tokenizer, published: Published, added: Mapping[int, AddedToken], path: Path
) -> tokenizers.Tokenizer:
    """Return the tokenizer with the added tokens, those of the vocabulary's file first.

    Raises:
        UserError: a token has another id in the vocabulary.
    """
    library.add_tokens([token for _, token in sorted(added.items(), key=lambda item: item[0])])
    for id, token in published.added.items():
        if (found := library.token_to_id(token.content)) != id:
            file = CONFIG if "added_tokens_decoder" in published.config else ADDED
            raise UserError(
                f"the added token '{token.content}' has the id {id} here, but {found} in {path.name}",
                file=path.with_name(file),
                remedy="copy all files of the tokenizer again",
            )
    known = {token.content for token in library.get_added_tokens_decoder().values()}
    if published.name:
        for token in (*published.special.values(), *published.extra):
            if token.content not in known:
                library.add_tokens([token])
    return library


def framing(published: Published, library: tokenizers.Tokenizer) -> Framing | None:
    """Return what transformers puts around texts, from a tokenizer of `rebuilt`; None if it does not read the files."""
    if not published.name:
        return None
    text = library.encode("a", add_special_tokens=False).ids
    rules = published.rules
    if rules is None or (rules.keeps_frame and library.post_processor is not None):
        pair = library.encode("a", "a")
        return Framing(text, library.encode("a").ids, pair.ids, published.segments and any(pair.type_ids))
    if not rules.frame:
        return Framing(text, text, [*text, *text], published.segments)
    cls, sep = (library.token_to_id(published.special[role].content) for role in rules.framed_by)
    if rules.frame == "last":
        return Framing(text, [*text, sep, cls], [*text, sep, *text, sep, cls], published.segments)
    between = [sep] * (1 + rules.ends_twice)
    return Framing(text, [cls, *text, sep], [cls, *text, *between, *text, sep], published.segments and not rules.zeros)
