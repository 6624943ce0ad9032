"""Loading of a model for inference: a run, a Hugging Face directory, a name on the Hub, or an exported model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

from unmask.families.checkpoints.sentence_files import static_folder
from unmask.inference.exported import is_exported, load_exported
from unmask.inference.fastest import FastestBackend
from unmask.inference.predictor import Origin, Predictor
from unmask.inference.static import load_static
from unmask.model.directory import NAME_ONE, find
from unmask.model.model import Model, load_model
from unmask.support.choices import InferenceEngine, check_choice, check_path, exists
from unmask.support.errors import UserError
from unmask.support.hub import parse
from unmask.support.messages import argument
from unmask.support.notices import warn
from unmask.training.machine import Machine, choose_inference_machine, choose_machine
from unmask.training.runs.display import Display

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from unmask.tasks.answer_head import KindAnswered
    from unmask.tasks.classification import Prediction
    from unmask.tasks.dialogues import QuacAnswered
    from unmask.tasks.extraction import Answered
    from unmask.tasks.hotpotqa import HotpotAnswered
    from unmask.tasks.late_interaction import TokenVectors
    from unmask.tasks.multi_label import Labels
    from unmask.tasks.multiple_choice import Chosen
    from unmask.tasks.regression import Score
    from unmask.tasks.relations import Related
    from unmask.tasks.sparse import SparseVector
    from unmask.tasks.tagged import Tagged
    from unmask.tasks.text_pairs import Similarity


class Options(TypedDict, total=False):
    """Options of `load`; see there."""

    allow_pickle: bool
    device: str
    precision: str
    engine: InferenceEngine


def _reopen(
    source: str, device: str, precision: str, allow_pickle: bool, engine: InferenceEngine, fingerprint: str
) -> Predictor:
    """Return a model that was pickled, which must be that of a fingerprint.

    Raises:
        UserError: it was changed, or cannot be loaded.
    """
    machine = choose_inference_machine(device, precision)
    predictor = open_predictor(source, machine, allow_pickle=allow_pickle, engine=engine)
    if predictor.fingerprint() != fingerprint:
        raise UserError("the model was changed after it was pickled", file=source, remedy="load it again")
    return predictor


@overload
def load(source: str | Path, task: Literal["classification"], **options: Unpack[Options]) -> Predictor[Prediction]: ...
@overload
def load(source: str | Path, task: Literal["multi-label"], **options: Unpack[Options]) -> Predictor[Labels]: ...
@overload
def load(
    source: str | Path, task: Literal["regression", "ranking"], **options: Unpack[Options]
) -> Predictor[Score]: ...
@overload
def load(source: str | Path, task: Literal["embedding"], **options: Unpack[Options]) -> Predictor[Similarity]: ...
@overload
def load(
    source: str | Path, task: Literal["token-classification", "spans"], **options: Unpack[Options]
) -> Predictor[Tagged]: ...
@overload
def load(
    source: str | Path, task: Literal["question-answering", "answer-beams"], **options: Unpack[Options]
) -> Predictor[Answered]: ...
@overload
def load(source: str | Path, task: Literal["multiple-choice"], **options: Unpack[Options]) -> Predictor[Chosen]: ...
@overload
def load(source: str | Path, task: Literal["relations"], **options: Unpack[Options]) -> Predictor[Related]: ...
@overload
def load(source: str | Path, task: Literal["quac"], **options: Unpack[Options]) -> Predictor[QuacAnswered]: ...
@overload
def load(source: str | Path, task: Literal["coqa"], **options: Unpack[Options]) -> Predictor[KindAnswered]: ...
@overload
def load(source: str | Path, task: Literal["hotpotqa"], **options: Unpack[Options]) -> Predictor[HotpotAnswered]: ...
@overload
def load(
    source: str | Path, task: Literal["sparse"], **options: Unpack[Options]
) -> Predictor[SparseVector | Similarity]: ...
@overload
def load(
    source: str | Path, task: Literal["late-interaction"], **options: Unpack[Options]
) -> Predictor[TokenVectors | Similarity]: ...
@overload
def load(source: str | Path, task: str | None = None, **options: Unpack[Options]) -> Predictor[Any]: ...
def load(
    source: str | Path,
    task: str | None = None,
    *,
    allow_pickle: bool = False,
    device: str = "auto",
    precision: str = "float32",
    engine: InferenceEngine = "torch",
) -> Predictor[Any]:
    """Load a model for inference: a run directory, a Hugging Face model directory, or an exported model.

    Args:
        source: the directory.
        task: name of the task that it must have been fine-tuned for, which tells type checkers what it predicts; None:
            any, or none.
        allow_pickle: read a `pytorch_model.bin`, tensors only.
        device: "cpu", "cuda" or "auto".
        precision: "float32", "bf16", "fp16", "int8", or "auto": bf16 if the hardware supports it natively. An exported
            model computes in its own.
        engine: "torch", or "auto": on a CPU the fastest one that is installed, which is measured when something is
            first computed, and stored in the directory of the model; see `unmask.inference.fastest`. An exported model
            has its own.

    Raises:
        UserError: there is no such model, it is damaged, or it was fine-tuned for another task.
    """
    machine = choose_inference_machine(device, precision)
    predictor = open_predictor(source, machine, allow_pickle=allow_pickle, engine=engine)
    tuned = predictor.model.task
    if task is not None and (tuned is None or tuned.kind != task):
        what = "no task" if tuned is None else tuned.kind
        raise UserError(f"{argument('task', task)}: the model was fine-tuned for {what}", file=source)
    return predictor


def open_predictor(
    source: str | Path,
    machine: Machine | None,
    display: Display | None = None,
    *,
    tokenizer: str | Path | None = None,
    allow_pickle: bool = False,
    engine: InferenceEngine = "torch",
) -> Predictor:
    """Load a model for inference, as `load` does, on a given machine.

    Args:
        source: the model, or random:RECIPE with `tokenizer`.
        machine: device and precision; None: float32 on the best device. An exported model has its own.
        display: shows the progress of long computations.
        tokenizer: tokenizer for random:RECIPE.
        allow_pickle: read a `pytorch_model.bin`, tensors only.
        engine: see `load`.

    Raises:
        UserError: there is no such model, or it is damaged.

    Warns:
        InputWarning: special tokens are newly initialized, as the model has no weights of them.
    """
    check_choice("engine", engine, InferenceEngine)
    check_path(source, "a model", NAME_ONE)
    machine = machine or choose_machine(precision="float32")
    predictor: Predictor[Any]
    location = find(source, allow_pickle=allow_pickle) if tokenizer is None and parse(source) is not None else source
    if tokenizer is None and static_folder(Path(location)) is not None:
        predictor = load_static(location, machine)
    elif is_exported(location) and tokenizer is None:
        model, backend = load_exported(Path(location), display)
        predictor = Predictor(model, backend=backend)
    else:
        model = load_model(location, tokenizer=tokenizer, allow_pickle=allow_pickle)
        warn_of_new_tokens(model, source)
        chooses = engine == "auto" and machine.device.type == "cpu"
        fastest = FastestBackend(model, machine, find(location), display) if chooses else None
        predictor = Predictor(model, machine, display, backend=fastest)
    if tokenizer is None:
        where = str(Path(source).absolute()) if exists(Path(source)) else str(source)
        reopen = partial(_reopen, where, machine.device.type, machine.precision, allow_pickle, engine)
        predictor.origin = Origin(where, reopen)
    return predictor


def warn_of_new_tokens(model: Model, source: str | Path) -> None:
    """Warn of a model that is used as it is, although it has tokens that were never trained.

    Args:
        model: what `load_model` read.
        source: what the warning calls it.

    Warns:
        InputWarning: special tokens are newly initialized, as the model has no weights of them.
    """
    if model.new_tokens:
        warn(
            f"{source}: {model.new_tokens} have no trained weights: what the model computes of texts that contain "
            "them, or that it puts them around, is partly random",
            stacklevel=3,
        )
