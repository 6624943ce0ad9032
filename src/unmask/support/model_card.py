"""Model cards: README.md of a model's directory, with metadata as the pages of the Hugging Face Hub read it.

Input: what a run knows. Output: Markdown below YAML, whose keys https://huggingface.co/docs/hub/model-cards and
https://github.com/huggingface/hub-docs/blob/main/modelcard.md list. What is not known is left out, never guessed: the
license is what was given; that of the base model is told as the base model's, under a key of our own. Languages are
what was given, or those of the base model's card and of the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from unmask.support.durable import replace_file
from unmask.support.errors import UserError, nearest
from unmask.support.hub import METADATA
from unmask.support.papers import Paper

NAME = "README.md"
LARGEST = 1 << 20
"""Number of bytes of a card that are read."""
BASE_LICENSE = "base_model_license"
"""Key, of our own, of the license that the card of the base model states."""
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that JSON has in texts as they are, and YAML does not."""
_ID = re.compile(r"[\w.+-]+(/[\w.+-]+)?")
_DATA = re.compile(r"datasets--(.+?)--(.+?)/snapshots/([0-9a-f]{40})(?:#(.*))?")
LICENSES = frozenset(
    """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
    afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
    cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0
    lgpl lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0 odc-by odbl
    openmdw-1.0 openmdw-1.1 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr
    deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4
    grok2-community gemma unknown other
    """.split()  # noqa: SIM905
)
"""Identifiers of licenses on the Hub: those of https://huggingface.co/docs/hub/repositories-licenses."""
LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv
    ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne
    ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st
    su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    """.split()  # noqa: SIM905
)
"""The codes of languages of two letters (ISO 639-1); of those of three (639-2 and 639-3), which are thousands, only the
form is checked."""
SPECIAL = frozenset({"code", "multilingual"})
"""What the Hub accepts in place of a language."""
_THREE = re.compile(r"[a-z]{3}")


def check_license(license: str) -> str:
    """Return an identifier of a license.

    Raises:
        UserError: the Hub does not know it.
    """
    if license not in LICENSES:
        close = nearest(license.lower(), LICENSES)
        hint = close if close.startswith("did") else "write it as https://huggingface.co/docs/hub/repositories-licenses"
        raise UserError(
            f"'{license}' is not the identifier of a license on the Hugging Face Hub",
            remedy=f"{hint} (a license that is not listed is 'other')",
        )
    return license


def check_languages(language: str | Sequence[str]) -> tuple[str, ...]:
    """Return codes of languages.

    Args:
        language: a code, several that commas separate, or a sequence of codes.

    Raises:
        UserError: one is not a code of ISO 639, or there is none.
    """
    codes = language.split(",") if isinstance(language, str) else language
    codes = tuple(dict.fromkeys(code.strip() for code in codes))
    for code in codes or ("",):
        if not is_language(code):
            raise UserError(
                f"'{code}' is not the code of a language",
                remedy="write codes of ISO 639, such as en, or 'multilingual'",
            )
    return codes


def is_language(code: str) -> bool:
    """Return whether the Hub accepts a code of a language."""
    return code in LANGUAGES or code in SPECIAL or _THREE.fullmatch(code) is not None


class CardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [card]: what only people know of a model, for its card.

    Attributes:
        license: identifier of its license on the Hugging Face Hub, such as "apache-2.0".
        language: codes of its languages (ISO 639), such as ["en", "de"] or "en,de"; None: those of the card of the
            base model, and those that are identified in the text.
    """

    license: str | None = None
    language: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        try:
            if self.license is not None:
                check_license(self.license)
            if self.language is not None:
                check_languages(self.language)
        except UserError as error:
            raise ValueError(error.message) from error

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes of the languages."""
        return () if self.language is None else check_languages(self.language)


@dataclass(frozen=True)
class Card:
    """What a task says of its models to people, and to the Hugging Face Hub.

    Attributes:
        title: title of a model card.
        pipeline: tag on the Hub; "": none fits.
        library: name, on the Hub, of the library that reads its models.
        tags: further tags on the Hub.
        usage: an example of the arguments of `unmask.predict`, besides the model.
    """

    title: str
    pipeline: str = ""
    library: str = "transformers"
    tags: tuple[str, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=lambda: {"texts": "A text."})


@dataclass(frozen=True)
class BaseModel:
    """What is known of the model that another one was made of.

    Attributes:
        name: NAMESPACE/NAME of it on the Hub, or, if it is not from there, of its own base model; "": unknown.
        license: the license that a card states; "": none.
        is_named: whether that card is of the model with this name.
        languages: codes of the languages that its card states.
    """

    name: str = ""
    license: str = ""
    is_named: bool = False
    languages: tuple[str, ...] = ()

    @classmethod
    def read(cls, revision: str, card: str) -> BaseModel:
        """Return what is known of a model.

        Args:
            revision: NAMESPACE/NAME@COMMIT, if it comes from the Hub.
            card: its card; what is not as the Hub documents it is left out.
        """
        metadata = read_metadata(card)
        license, languages = _one(metadata.get("license")), tuple(_languages(metadata.get("language")))
        if revision:
            return cls(revision.partition("@")[0], license, True, languages)
        name = _one(metadata.get("base_model"))
        return cls(name, license or _one(metadata.get(BASE_LICENSE)), bool(name and not license), languages)

    def sentence(self) -> str:
        """Return a sentence about its license; "" if none is known."""
        owner = f"[{self.name}](https://huggingface.co/{self.name})" if self.is_named else "the model it was made of"
        return f"The card of {owner} states the license {self.license}." if self.license else ""


@dataclass(frozen=True)
class Origin:
    """What a run knows of a model for the metadata of its card.

    Attributes:
        settings: what was given; None: nothing.
        base: the model that it was made of.
        languages: codes of the languages of the text that it was trained on, if they were identified.
        library: the library that reads the directory.
        pipeline: tag of its pipeline; "": unknown.
        tags: further tags.
        train, held: names of the files that it was trained on, and of those of the scores.
        relation: its relation to the base model, such as "quantized"; "": the Hub takes it for a fine-tuned one.
        papers: those that its parts come from.
    """

    settings: CardSettings | None = None
    base: BaseModel = BaseModel()
    languages: Sequence[str] = ()
    library: str = "transformers"
    pipeline: str = ""
    tags: Sequence[str] = ()
    train: Iterable[str] = ()
    held: Iterable[str] = ()
    relation: str = ""
    papers: Sequence[Paper] = ()

    def metadata(self) -> dict[str, Any]:
        """Return the metadata without scores, in the order of the documentation."""
        given, named = self.settings or CardSettings(), self.base.is_named and self.base.license
        values = {
            "language": list(given.languages or dict.fromkeys((*self.base.languages, *self.languages))),
            "license": given.license,
            "library_name": self.library,
            "pipeline_tag": self.pipeline,
            "tags": list(self.tags),
            "base_model": self.base.name,
            "base_model_relation": self.relation if self.base.name else "",
            BASE_LICENSE: self.base.license if named else "",
            "datasets": sorted({name for file in self.train if (name := _data_set(file).get("type"))}),
        }
        return {key: value for key, value in values.items() if value}


def model_card(title: str, about: str, metrics: Mapping[str, float] | None = None, origin: Origin = Origin()) -> str:
    """Return README.md of a model's directory.

    Args:
        title: title of the model.
        about: what it is, in Markdown.
        metrics: scores on held-out data.
        origin: what else is known.
    """
    metadata = origin.metadata()
    if results := _results(metrics or {}, origin):
        metadata["model-index"] = [{"name": title, "results": results}]
    lines = [_yaml(metadata), f"# {title}", "", about, ""]
    if sentence := origin.base.sentence():
        lines += [sentence, ""]
    if metrics:
        lines += ["| held-out data | |", "|---|---|", *(f"| {name} | {value:.4f} |" for name, value in metrics.items())]
    if origin.papers:
        lines += [*([""] if metrics else []), "## Papers", "", *(f"- {paper.link}" for paper in origin.papers)]
    return "\n".join(lines) + "\n"


def read_card(directory: Path) -> str:
    """Return the card of a model; "" if it has none that can be read."""
    try:
        with (directory / NAME).open("rb") as file:
            return file.read(LARGEST).decode("utf8", "replace").replace("\r\n", "\n")
    except OSError:
        return ""


def read_metadata(card: str) -> dict[str, Any]:
    """Return the metadata of a card; empty if it has none that is valid YAML, or PyYAML is not installed."""
    match = METADATA.match(card)
    if match is None:
        return {}
    try:
        import yaml
    except ImportError:
        return {}
    try:
        # scores of many tasks are hundreds of kilobytes, which PyYAML alone reads in seconds
        content = yaml.load(match[1], getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def complete_card(directory: Path, settings: CardSettings) -> dict[str, Any]:
    """Write a license and languages to the metadata of a card, if they are given, and return its metadata.

    The text below stays as it is.

    Raises:
        UserError: its metadata cannot be read.
    """
    card = (directory / NAME).read_bytes().decode("utf8", "surrogateescape").replace("\r\n", "\n")
    metadata, match = read_metadata(card), METADATA.match(card)
    if match is not None and not metadata and match[1].strip():
        raise UserError("its YAML is broken", file=directory / NAME, remedy="repair it, or install PyYAML")
    given: dict[str, Any] = {"license": settings.license, "language": list(settings.languages)}
    if given := {key: value for key, value in given.items() if value}:
        metadata = {**metadata, **given}
        text = card[match.end() :] if match is not None else card
        replace_file(directory / NAME, f"{_yaml(metadata)}\n{text}".encode("utf8", "surrogateescape"))
    return metadata


def _yaml(metadata: Mapping[str, Any]) -> str:
    """Return metadata between lines of dashes, with a line for each key."""
    lines = [f"{name if _ID.fullmatch(str(name)) else _flow(name)}: {_flow(value)}" for name, value in metadata.items()]
    return "\n".join(["---", *lines, "---"])


def _flow(value: Any) -> str:
    """Return a value as YAML 1.1 on one line: JSON but for exponents, and what YAML takes for the end of a line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, float) and "." not in (number := repr(value)):
        return number.replace("e", ".0e")  # 1e-05 would be text
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _UNPRINTABLE.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


def _results(metrics: Mapping[str, float], origin: Origin) -> list[dict[str, Any]]:
    """Return the scores as the Hub reads them: of the finite metrics, if the pipeline is known."""
    scores = [{"type": name, "name": name, "value": value} for name, value in metrics.items() if math.isfinite(value)]
    if not scores or not origin.pipeline:
        return []
    files = list(dict.fromkeys(origin.held))
    named = ", ".join(Path(file).name for file in files) or "held-out data"
    data = {"name": named, "type": "held-out", **(_data_set(files[0]) if len(files) == 1 else {})}
    return [{"task": {"type": origin.pipeline}, "dataset": data, "metrics": scores}]


def _data_set(file: str) -> dict[str, str]:
    """Return what the Hub calls a data set, where a file is a split of one in the cache of the Hub; or nothing."""
    match = _DATA.search(file)
    if match is None:
        return {}
    name = f"{match[1]}/{match[2]}"
    config, _, split = (match[4] or "").rpartition("/")
    described = {"name": name, "type": name, "config": config, "split": split, "revision": match[3]}
    return {key: value for key, value in described.items() if value}


def _one(value: Any) -> str:
    """Return an identifier, also if it is the only one of a list; "" if there is none."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""


def _languages(value: Any) -> Iterable[str]:
    """Yield the codes of the languages in metadata; YAML takes `no`, Norwegian, for false."""
    for code in value if isinstance(value, list) else [value]:
        code = "no" if code is False else code
        if isinstance(code, str) and is_language(code := code.lower()):
            yield code
