"""A recipe is data: one TOML file says what to train.

In: the name of a shipped recipe or a file, and settings from the command line. Out: frozen, typed settings; each
table is described beside the code that it configures.
"""

from __future__ import annotations

import math
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from unmask.batches.document_sentences import DocumentSentencesSettings
from unmask.batches.full_sentences import FullSentencesSettings
from unmask.batches.ngram_masking import NgramMaskingSettings, WholeWordMaskingSettings
from unmask.batches.no_masking import NoMaskingSettings
from unmask.batches.sentence_pairs import LABELS, SentencePairsSettings
from unmask.batches.single import SingleSettings
from unmask.batches.span_masking import SpanMaskingSettings
from unmask.batches.token_masking import TokenMaskingSettings
from unmask.encoders.downstream import DownstreamSettings
from unmask.encoders.transformer import TransformerSettings
from unmask.errors import UserError, nearest
from unmask.objectives import OBJECTIVES
from unmask.settings import Overrides, check_overrides, convert, put
from unmask.tasks import AnyTask
from unmask.tokenizers.train import CASED, Trained
from unmask.training.settings import TrainingSettings


class TokenizerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [tokenizer]: serves raw text only, for a corpus brings its own.

    Attributes:
        kind: "wordpiece", "bpe" (byte-level) or "unigram" (SentencePiece's).
        vocabulary: how many pieces.
        lowercase: and strip accents; a byte-level BPE never does.
    """

    kind: Trained = "wordpiece"
    vocabulary: int = 30522
    lowercase: bool = True

    def __post_init__(self) -> None:
        if self.kind in CASED and self.lowercase:
            raise ValueError(f'lowercase has no effect on kind = "{self.kind}": set it to false')


Objectives = msgspec.defstruct(
    "Objectives",
    [(name, settings | None, None) for name, settings in OBJECTIVES.items()],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)
"""The recipe's [objective.NAME] tables."""


class Recipe(TrainingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an encoder is pretrained.

    Attributes:
        name: what it is called.
        tokenizer, encoder, layout, masking, objective: its tables.
    """

    name: str
    tokenizer: TokenizerSettings = TokenizerSettings()
    encoder: TransformerSettings
    layout: SentencePairsSettings | DocumentSentencesSettings | FullSentencesSettings | SingleSettings
    masking: (
        TokenMaskingSettings | WholeWordMaskingSettings | NgramMaskingSettings | SpanMaskingSettings | NoMaskingSettings
    ) = TokenMaskingSettings()
    objective: Objectives  # type: ignore[valid-type]

    def __post_init__(self) -> None:
        lengths = [stage.length for stage in self.layout.all_stages]
        if max(lengths) > self.encoder.positions:
            raise ValueError(f"layout: the length {max(lengths)} exceeds encoder.positions {self.encoder.positions}")
        if min(lengths) < 8:
            raise ValueError("layout: the length must be at least 8")
        if not self.objectives:
            raise ValueError("at least one [objective.NAME] is needed")
        for name, settings in self.objectives.items():
            weights = (settings.weight, getattr(settings, "generator_weight", 1.0))
            if not all(0 < weight < math.inf for weight in weights):
                raise ValueError(f"objective.{name}: a weight must be above 0; to leave it away say {name} = false")
        if self.budget.epochs is not None or self.budget.patience is not None:
            raise ValueError("a pretraining budget is given in steps, tokens or minutes, and knows no patience")
        hides = not isinstance(self.masking, NoMaskingSettings)
        if self.encoder.causal and (hides or self.objectives.keys() != {"causal_lm"}):
            raise ValueError(
                "encoder.causal reads from left to right, which goes with objective.causal_lm alone and "
                'masking.kind = "none"'
            )
        if not self.encoder.causal and (not hides or "causal_lm" in self.objectives):
            raise ValueError(
                'objective.causal_lm and masking.kind = "none" go with encoder.causal = true: what sees both sides '
                "would read its answers"
            )
        if not isinstance(self.masking, NoMaskingSettings) and self.masking.replace.keep == 1:
            raise ValueError("masking.replace has every token stay, so that the answers could be read")
        others = sorted({"masked_lm", "span_boundary"} & self.objectives.keys())
        if "replaced_token" in self.objectives and others:
            raise ValueError(
                f"objective.replaced_token fills the hidden places, where objective.{others[0]} would read its "
                f"answers, and its generator learns masked_lm by itself: pass --set objective.{others[0]}=false"
            )
        second = self.layout.second if isinstance(self.layout, SentencePairsSettings) else None
        for given, name in LABELS.items():
            if name in self.objectives and second != given:
                pairs = "" if second else "layout.kind=sentence_pairs --set "
                raise ValueError(
                    f'objective.{name} goes with layout.kind = "sentence_pairs" and layout.second = "{given}": '
                    f"pass --set objective.{name}=false, or --set {pairs}layout.second={given}"
                )
        for given, name in LABELS.items():
            if second == given and name not in self.objectives:
                raise ValueError(
                    f'layout.second = "{given}" is for objective.{name}: pass --set layout.second=next, or '
                    f"--set objective.{name}.weight=1"
                )

    @property
    def objectives(self) -> dict[str, Any]:
        """The settings of the objectives that the recipe has, by name."""
        given = {name: getattr(self.objective, name) for name in OBJECTIVES}
        return {name: settings for name, settings in given.items() if settings is not None}


class FinetuningRecipe(TrainingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is fine-tuned; `finetuning.defaults` fills it by rule.

    Attributes:
        task: its table: what is learnt, and how examples become samples.
        dropout: in the encoder and before the last layer; None keeps the encoder's own.
        lm_weight: of the language model that GPT learns beside a task (Radford et al. 2018, equation 5); None, 0: none.
        reset: draw the pooler and so many of the uppermost layers anew (Zhang et al. 2021, section 5); None: nothing.
        frozen: the encoder stays as it is, and its features are computed once.
        downstream: the small model over the encoder's layers; None: the task's head sits on the encoder itself.
    """

    task: AnyTask
    lm_weight: Annotated[float, msgspec.Meta(ge=0)] | None = None
    reset: Annotated[int, msgspec.Meta(ge=0)] | None = None
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    frozen: bool = False
    downstream: DownstreamSettings | None = None


def shipped() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def read_recipe(source: str | Path, settings: Overrides | None = None) -> Recipe:
    """Read a shipped recipe or a file, with settings such as {"budget.steps": 100} put over it.

    Raises:
        UserError: no such recipe, not TOML, an unknown key, a value out of place.
    """
    settings = settings or {}
    check_overrides(settings)
    text, place = recipe_text(source)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"not valid TOML: {error}", file=place) from error
    return convert(put(table, settings), Recipe, place)


def recipe_text(source: str | Path) -> tuple[str, str]:
    """Return a recipe as it stands, and what to call it in errors."""
    if str(source) in shipped():
        return (_folder() / f"{source}.toml").read_text(encoding="utf8"), f"recipe {source}"
    try:
        return Path(source).read_text(encoding="utf8"), str(source)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"no shipped recipe and no readable file is called '{source}'", remedy=nearest(str(source), shipped())
        ) from error


def _folder() -> Path:
    return cast(Path, resources.files("unmask") / "recipes")
