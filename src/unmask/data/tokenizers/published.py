"""A tokenizer as transformers reads it: which of its classes reads a directory, and what it makes of the files.

Input: `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` and `config.json` beside a vocabulary,
and the vocabulary as the library reads it. Output: the library's tokenizer as transformers 5 would have it, with all
added tokens, and what it puts around texts.

As in `AutoTokenizer`, the class is that of `tokenizer_config.json`, else that of `config.json`, else that of its
`model_type`. The general classes take `tokenizer.json` as it is. All others keep only its vocabulary, and make the
normalizer and the splitting into words anew (classes.py); what `tokenizer.json` says of these has no effect.
A class that is not in `CLASSES` is refused, because its rules are not known here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import tokenizers
from tokenizers import AddedToken, normalizers

from unmask.data.text.whole_files import read_json
from unmask.data.tokenizers.classes import CLASSES, GENERAL, OF_MODELS, ROBERTA, Config, TokenizerClass, bert_words
from unmask.data.tokenizers.tokenizer import ADDED, CONFIG, SPECIAL, SPIECE, Framing
from unmask.support.beside import EXTRA, FILES, ROLES
from unmask.support.errors import UserError

SHIFTED = "sentencepiece.bpe.model"
"""Name of the SentencePiece model of XLM-RoBERTa and CamemBERT, whose ids are not those of the models."""
WORDPIECE = "BertTokenizer"
"""The class that reads `vocab.txt`."""
SAVE_AGAIN = (
    "if transformers reads the tokenizer as its authors meant, save it by AutoTokenizer.from_pretrained(...)"
    ".save_pretrained(...), and set tokenizer_class to PreTrainedTokenizerFast"
)


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
    try:
        return _read(directory)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(
            f"{CONFIG}, {SPECIAL} or {ADDED} is damaged ({error})", file=directory, remedy="copy them again"
        ) from error


def _read(directory: Path) -> Published:
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
        name = WORDPIECE if _has_only_words(of_model, directory) else of_model
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


def _has_only_words(name: str, directory: Path) -> bool:
    """Return whether a directory has BERT's `vocab.txt`, and not what the default class of its model type reads.

    transformers cannot read it without the name of a class, but there is only one way to read it.
    """
    rules = CLASSES.get(name)
    unread = rules is not None and rules.model == "Unigram" and (directory / "vocab.txt").exists()
    return unread and not any((directory / other).exists() for other in ("tokenizer.json", *SPIECE, SHIFTED))


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
    listed: Any = next((settings[name] for name in EXTRA.split() if settings.get(name)), [])
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
    if published.rules is None or published.rules.rebuild is not bert_words:
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
    cls, sep = (cast(int, library.token_to_id(published.special[role].content)) for role in rules.framed_by)
    if rules.frame == "last":
        return Framing(text, [*text, sep, cls], [*text, sep, *text, sep, cls], published.segments)
    between = [sep] * (1 + rules.ends_twice)
    return Framing(text, [cls, *text, sep], [cls, *text, *between, *text, sep], published.segments and not rules.zeros)
