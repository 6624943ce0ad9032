"""The command that repeats a cell of a comparison by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unmask.support.messages import call
from unmask.workflows.comparing.cells import CORPUS, HELD, RUN, TOKENIZER, Cell, folder_of, result_of


def command_of(out: Path, cell: Cell) -> str:
    """Return the call that repeats a cell by itself, as a reference of `support.messages`."""
    folder, paths = folder_of(out, cell), cell.paths
    needed = {name: folder_of(out, other) for name, other in cell.needs.items()}
    if cell.kind == "pretraining":
        recipe, corpus = folder / RUN / "recipe.toml", needed["corpus"] / CORPUS
        if cell.inputs["way"] == "distill":
            return call("distill", recipe, teacher=paths["model"], corpus=corpus, out="RUN")
        init = {"init": paths["model"]} if paths["model"] else {}
        return call("pretrain", recipe, corpus=corpus, out="RUN", **init)
    if cell.kind == "corpus":
        read = paths["reading"].changed()
        tokenizer = paths["model"] or folder / TOKENIZER
        return call("corpus build", *paths["text"], tokenizer=tokenizer, out="CORPUS", **read)
    model = next((needed[name] / RUN for name in ("model", "score") if name in needed), paths.get("model"))
    if cell.kind == "bits":
        return call("evaluate", model=model, suite="bits", data=needed["heldout"] / HELD)
    if cell.kind == "cost":
        return call("bench", model)
    inputs = cell.inputs
    if cell.kind != "score":
        return ""
    train, dev = (list(map(str, files)) for files in (paths["files"].train, paths["files"].dev))
    read = {name: inputs[name] for name in ("columns", "format", "encoding") if inputs[name]}
    read |= {"dev": dev} if dev else {}
    read |= {"examples": inputs["examples"]} if "examples" in inputs else {}
    if "student" in inputs:
        shape = {"layers": inputs["student"]["layers"]} if inputs["student"]["layers"] else {}
        if paths["unlabelled"]:
            read["unlabelled"] = list(map(str, paths["unlabelled"]))
        settings = {**paths["changes"], **inputs["settings"], "seed": cell.seed}
        teacher = needed["teacher"] / RUN
        return call(
            "distill", paths["name"], teacher=teacher, train=train, **read, **shape, settings=settings, out="RUN"
        )
    start: dict[str, Any] = {"model": model}
    if "recipe" in paths:
        tokenizer = needed["tokenizer"] / TOKENIZER if "tokenizer" in needed else paths["tokenizer"]
        start = {"model": f"random:{folder / 'random.toml'}", "tokenizer": tokenizer}
    settings = {**inputs["settings"], "seed": cell.seed}
    if "rate" in cell.needs and (chosen := result_of(out, cell.needs["rate"])) and chosen["rate"] is not None:
        settings["optimizer.learning_rate"] = chosen["rate"]
    use = {} if paths["frozen"] is None else {"frozen": paths["frozen"]}
    use |= {"downstream": paths["small"]} if paths["small"] else {}
    return call("finetune", inputs["task"], **start, train=train, **read, **use, settings=settings, out="RUN")
