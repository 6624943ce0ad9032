"""Recipes, runs and models of earlier versions."""

import json
import shutil
import tomllib
from dataclasses import replace

import msgspec
import pytest
import torch

from unmask.batches.batch import collate
from unmask.batches.frame import Frame
from unmask.cli.main import main
from unmask.durable import replace_file
from unmask.errors import UserError
from unmask.families import FAMILIES
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.roberta import RobertaSettings
from unmask.finetuning.finetune import finetune
from unmask.lock import acquire
from unmask.migration import migrate, migrate_text, refuse_old, refuse_old_settings
from unmask.model import Model, build_encoder, load_model, save_model
from unmask.pretraining.pretrain import pretrain
from unmask.recipe import Recipe, migrate_file, read_recipe, recipe_text, shipped
from unmask.settings import convert, parse_overrides

from .conftest import SMALL
from .undrawn import _undrawn  # noqa: F401

OWN = {  # settings of the earlier version that shipped recipes no longer have
    "electra": 'pooling = "gelu"\n',
    "gpt": 'causal = true\npooling = "none"\nsegments = 0\n',
}


def as_old(name: str) -> str:
    """Return a shipped recipe in the form of the earlier version."""
    text, family = recipe_text(name)[0], read_recipe(name).encoder.__struct_config__.tag
    own = OWN.get(family, "")
    if family == "gpt":
        own += f"feed_forward = {4 * read_recipe(name).encoder.width}\n"
    return text.replace(f'kind = "{family}"\n', f'kind = "transformer"\n{own}')


def encoder(**settings):
    return {"layers": 2, "width": 32, "heads": 2, "feed_forward": 64, "kind": "transformer", **settings}


NEW = ("modernbert", "elmo", "xlnet", "distil", "tinybert")
"""Recipes that earlier versions did not have."""


@pytest.mark.parametrize("name", [name for name in shipped() if not name.startswith(NEW)])
def test_shipped_recipes_of_the_earlier_version_become_the_current_ones_with_comments(name):
    old = as_old(name)
    new, changes = migrate_text(old)
    assert old != new == recipe_text(name)[0]
    assert convert(tomllib.loads(new), Recipe, name) == read_recipe(name)
    assert changes


def test_the_error_for_a_recipe_without_a_kind_names_the_kind(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text(as_old("albert-mini").replace('kind = "transformer"\n', ""))
    with pytest.raises(UserError, match=r'\[encoder\] without a kind is of an earlier version, and is now "albert"'):
        read_recipe(path)
    migrate_file(path)
    assert read_recipe(path) == read_recipe("albert-mini")


def test_runs_in_use_are_not_migrated(tmp_path):
    (tmp_path / "recipe.toml").write_text(as_old("bert-mini"))
    held = acquire(tmp_path / ".lock")
    assert main(["recipes", "migrate", str(tmp_path)]) == 2
    held.release()
    assert main(["recipes", "migrate", str(tmp_path)]) == 0


def test_current_recipes_are_unchanged():
    text = recipe_text("bert-mini")[0].rstrip("\n")  # the missing newline at the end is kept, too
    assert migrate_text(text) == (text, [])
    assert migrate(tomllib.loads(text)) == tomllib.loads(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (encoder(), {"kind": "bert"}),
        (encoder(shared="none", offset=0, pooling="tanh", causal=False), {"kind": "bert"}),
        (encoder(embedding=False), {"kind": "bert"}),
        (encoder(embedding=16), {"kind": "albert", "embedding": 16, "shared": "none"}),
        (encoder(shared="all"), {"kind": "albert", "shared": "all"}),
        (encoder(shared="attention"), {"kind": "albert", "shared": "attention"}),
        (encoder(offset=2), {"kind": "roberta", "offset": 2, "segments": 2, "epsilon": 1e-12}),
        (encoder(offset=2, epsilon=1e-5, segments=1), {"kind": "roberta", "offset": 2, "segments": 1, "epsilon": 1e-5}),
        (encoder(pooling="gelu", embedding=16), {"kind": "electra", "embedding": 16}),
        (encoder(pooling="relu", segments=0), {"kind": "distilbert"}),
    ],
)
def test_families_follow_from_the_settings_and_former_defaults_are_written(old, new):
    shape = {key: old[key] for key in ("layers", "width", "heads", "feed_forward")}
    found = migrate({"encoder": old})["encoder"]
    assert {key: value for key, value in found.items() if value is not False} == {**shape, **new}
    assert convert(found, FAMILIES[new["kind"]].settings, "here").segments == old.get("segments", 2)


def test_the_feed_forward_width_of_gpt_is_removed():
    old = encoder(feed_forward=128, causal=True, pooling="none", segments=0, activation="gelu_tanh")
    assert migrate({"encoder": old})["encoder"] == {
        "kind": "gpt",
        **{"layers": 2, "width": 32, "heads": 2, "activation": "gelu_tanh", "epsilon": 1e-12},
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"offset": 2, "shared": "attention"}, 'both shared = "attention" and offset = 2'),
        ({"pooling": "gelu", "shared": "feed_forward"}, 'both shared = "feed_forward" and pooling = "gelu"'),
        ({"offset": 2, "embedding": 16}, "both embedding = 16 and offset = 2"),
        ({"causal": True, "pooling": "none", "segments": 0}, "both feed_forward = 64 and causal = true"),
        ({"pooling": "relu"}, 'both segments = 2 and pooling = "relu"'),
        ({"pooling": "relu", "segments": 0, "epsilon": 1e-5}, 'both epsilon = 1e-05 and pooling = "relu"'),
    ],
)
def test_combinations_that_no_family_has_are_refused_and_nothing_is_written(tmp_path, capsys, settings, message):
    path = tmp_path / "old.toml"
    table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in encoder(**settings).items())
    before = f'name = "odd"\n[encoder]\n{table}[layout]\nkind = "single"\nlength = 32\n[objective.masked_lm]\n'
    path.write_text(before)
    assert main(["recipes", "migrate", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert path.read_text() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["old.toml"]
    with pytest.raises(UserError, match="is of an earlier version, and no family"):
        read_recipe(path)


def test_the_command_rewrites_in_place_and_keeps_the_original(tmp_path, capsys):
    path, old = tmp_path / "mine.toml", as_old("electra-small").replace("heads = 4", "heads = 4  # four of them")
    path.write_text(old)
    with pytest.raises(UserError, match=f'and is now "electra"; rewrite the recipe: unmask recipes migrate {path}'):
        read_recipe(path)
    assert main(["recipes", "migrate", str(path)]) == 0
    assert capsys.readouterr().out == (
        f'{path}: replaced encoder.kind = "transformer" by "electra"; removed encoder.pooling = "gelu"\n'
    )
    assert read_recipe(path) == read_recipe("electra-small")
    assert "heads = 4  # four of them" in path.read_text()
    assert (tmp_path / "mine.toml.old").read_text() == old
    assert main(["recipes", "migrate", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: already of this version, not changed\n"


def test_the_command_writes_to_another_file(tmp_path):
    path, out = tmp_path / "mine.toml", tmp_path / "new.toml"
    path.write_text(as_old("gpt-mini"))
    assert main(["recipes", "migrate", str(path), "--out", str(out)]) == 0
    assert path.read_text() == as_old("gpt-mini")
    assert read_recipe(out) == read_recipe("gpt-mini")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind = ", "not valid TOML"),
        ("encoder = {kind = 'transformer', layers = 2}\nname = 'one'\n", "with one key per line"),
        ("name = 'one'\n[encoder]\nkind = 'transformer'\nlayer = 2\n", "unknown key `layer`"),
    ],
)
def test_the_command_reports_what_it_cannot_rewrite(tmp_path, capsys, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert main(["recipes", "migrate", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert path.read_text() == text
    assert main(["recipes", "migrate", str(tmp_path / "none.toml")]) == 2
    assert main(["recipes", "migrate", str(path), str(path), "--out", str(tmp_path / "out")]) == 2


def test_an_existing_copy_is_not_overwritten(tmp_path):
    (tmp_path / "mine.toml").write_text(as_old("bert-mini"))
    (tmp_path / "mine.toml.old").write_text("dear")
    with pytest.raises(UserError, match="move it away, or pass --out"):
        migrate_file(tmp_path / "mine.toml")
    assert (tmp_path / "mine.toml.old").read_text() == "dear"


def test_deviation_becomes_init_std():
    today = 'name = "x"\n\n[encoder]\nkind = "electra"\ninit_std = 0.05  # not 0.02\n\n[other]\ndeviation = 1\n'
    old = today.replace("init_std", "deviation")
    assert migrate_text(old) == (today, ["renamed encoder.deviation to encoder.init_std"])
    older = old.replace("electra", "transformer").replace("\n[other]", "pooling = 'gelu'\n\n[other]")
    new, changes = migrate_text(older)
    assert (new, len(changes)) == (today, 3)
    with pytest.raises(UserError, match=r"is of an earlier version, and is now called encoder\.init_std; rewrite"):
        refuse_old(tomllib.loads(old), "old.toml")


def test_lm_weight_of_a_run_becomes_an_objective():
    text = "seed = 0\nlm_weight = 0.5  # of GPT\nfrozen = false\n\n[task]\nkind = 'classification'\n"
    new, changes = migrate_text(text)
    assert new == (
        "seed = 0\nfrozen = false\n\n[task]\nkind = 'classification'\n\n[objective.causal_lm]\nweight = 0.5\n"
    )
    assert len(changes) == 2
    assert (
        migrate_text(text.replace("0.5", "0.0"))[0] == "seed = 0\nfrozen = false\n\n[task]\nkind = 'classification'\n"
    )


STAGES_TODAY = r"layout.length=48 and stages=\[{share=0.9,layout={length=16}},{share=0.1}\]"
OLD_STAGES = (
    "stages = [{ share = 0.75, length = 16 }, { share = 0.25, length = 48 }]  # as in the paper\n",
    "stages = [\n    { share = 0.75, length = 16 },  # short\n    { share = 0.25, length = 48 },\n]\n",
)
STAGES = "\n[[stages]]\nshare = 0.75\nlayout = {length=16}\n\n[[stages]]\nshare = 0.25\n"


@pytest.mark.parametrize("stages", OLD_STAGES)
def test_stages_of_the_layout_become_those_of_the_recipe(tmp_path, stages):
    text = recipe_text("bert-tiny")[0]
    path = tmp_path / "old.toml"
    path.write_text(text.replace("length = 128\n", stages))
    with pytest.raises(UserError, match=f"is now called stages; rewrite the recipe: unmask recipes migrate {path}"):
        read_recipe(path)
    assert migrate_file(path) == ["replaced layout.stages by layout.length and [[stages]]"]
    assert path.read_text() == text.replace("length = 128\n", "length = 48\n") + STAGES
    recipe = read_recipe(path)
    assert (recipe.shares, [one.layout.length for one in recipe.every_stage]) == ((0.75, 0.25), [16, 48])
    assert migrate_file(path) == []


def test_all_changes_are_made_at_once(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text(as_old("electra-small").replace("length = 128\n", OLD_STAGES[1]).replace("init_std", "deviation"))
    migrate_file(path)
    assert [one.layout.length for one in read_recipe(path).every_stage] == [16, 48]
    assert type(read_recipe(path).encoder) is FAMILIES["electra"].settings


def test_stages_in_tables_of_their_own_are_not_edited():
    text = recipe_text("bert-tiny")[0].replace("length = 128\n", "")
    text += "[[layout.stages]]\nshare = 1.0\nlength = 16\n"
    with pytest.raises(ValueError, match="write each table separately"):
        migrate_text(text)


@pytest.mark.parametrize(
    ("settings", "today"),
    [
        ({"layout.stages": [{"share": 0.9, "length": 16}, {"share": 0.1, "length": 48}]}, STAGES_TODAY),
        ({"layout.stages": 3}, "layout.length=512 and stages="),
        ({"encoder.kind": "transformer"}, "encoder.kind=bert"),
        ({"encoder.pooling": "gelu"}, "encoder.kind=electra"),
        ({"encoder.pooling": "relu"}, "encoder.kind=distilbert"),
        ({"encoder.causal": True}, "encoder.kind=gpt"),
        ({"encoder.deviation": 0.05}, "encoder.init_std=0.05"),
        ({"lm_weight": 0.5}, "objective.causal_lm.weight=0.5"),
        ({"lm_weight": 0}, "objective.causal_lm=false"),
    ],
)
def test_errors_for_settings_of_the_earlier_version_give_the_current_ones(settings, today):
    with pytest.raises(UserError, match=f"is of an earlier version.*set {today}"):
        refuse_old_settings(settings)
    with pytest.raises(UserError, match=f"is of an earlier version.*set {today}"):
        read_recipe("bert-mini", settings)
    refuse_old_settings({"encoder.kind": "bert"})


def test_commands_refuse_recipes_of_the_earlier_version(tmp_path, capsys, text_file, tokenizer_directory):
    path = tmp_path / "old.toml"
    path.write_text(as_old("albert-mini"))
    assert main(["pretrain", str(path), "--text", str(text_file), "--out", str(tmp_path / "run")]) == 2
    assert f"unmask recipes migrate {path}" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"unmask recipes migrate {path}"):
        load_model(f"random:{path}", tokenizer=tokenizer_directory)


OLD = 'kind = "transformer"\nshared = "none"\noffset = 0\npooling = "tanh"\ncausal = false\n'
"""The settings that the earlier version wrote instead of `kind = "bert"`."""


def make_old(run, former=None):
    """Rewrite the files of a run as the earlier version would have written them."""
    path = run / "recipe.toml"
    text = path.read_text()
    assert "[encoder]" not in text or "init_std" in text
    path.write_text(text.replace('kind = "bert"\n', OLD).replace("init_std", "deviation"))
    provenance = json.loads((run / "provenance.json").read_text())
    provenance["inputs"] |= former or {}
    replace_file(run / "provenance.json", json.dumps(provenance).encode())


def train_lines(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["loss"]) for line in lines if line["kind"] == "train"]


@pytest.mark.parametrize("init", [False, True])
def test_runs_of_the_earlier_version_are_resumed(tmp_path, recipe, corpus, init):
    base = pretrain(recipe, corpus, tmp_path / "base", quiet=True).parent if init else None
    short = msgspec.structs.replace(recipe, budget=msgspec.structs.replace(recipe.budget, steps=4))
    pretrain(short, corpus, tmp_path / "now", init=base, quiet=True)
    shutil.copytree(tmp_path / "now", tmp_path / "old")
    make_old(tmp_path / "old", {"init": load_model(base).former_fingerprint()} if base else None)
    for run in ("now", "old"):
        pretrain(recipe, corpus, tmp_path / run, init=base, resume=True, quiet=True)
    assert train_lines(tmp_path / "old") == train_lines(tmp_path / "now")
    assert train_lines(tmp_path / "old")[-1][0] == 10
    assert 'kind = "bert"' in (tmp_path / "old" / "recipe.toml").read_text()


def test_runs_with_stages_of_the_earlier_version_are_resumed(tmp_path, recipe, corpus):
    stages = ({"share": 0.5, "layout": {"length": 16}}, {"share": 0.5})
    table = msgspec.to_builtins(recipe) | {"stages": stages}
    table["layout"]["length"] = 48
    table["masking"] |= {"rate": 0.4, "final_rate": 0.1}
    long = msgspec.convert(table, Recipe)
    short = msgspec.convert(table | {"budget": {"steps": 4}}, Recipe)
    pretrain(short, corpus, tmp_path / "now", quiet=True)
    shutil.copytree(tmp_path / "now", tmp_path / "old")
    path = tmp_path / "old" / "recipe.toml"
    written = tomllib.loads(path.read_text())
    assert written.pop("stages") == list(stages)
    del written["layout"]["length"]
    written["layout"]["stages"] = [{"share": 0.5, "length": 16}, {"share": 0.5, "length": 48}]
    path.write_bytes(msgspec.toml.encode(written))
    make_old(tmp_path / "old")
    for run in ("now", "old"):
        pretrain(long, corpus, tmp_path / run, resume=True, quiet=True)
    assert train_lines(tmp_path / "old") == train_lines(tmp_path / "now")
    assert path.read_text() == (tmp_path / "now" / "recipe.toml").read_text()


def test_runs_of_the_earlier_version_cannot_be_resumed_with_other_settings(tmp_path, recipe, corpus):
    pretrain(recipe, corpus, tmp_path / "run", quiet=True)
    make_old(tmp_path / "run")
    other = read_recipe("bert-tiny", parse_overrides([*SMALL, "encoder.kind=electra"]))
    with pytest.raises(UserError, match=r"encoder\.kind was bert, now electra"):
        pretrain(other, corpus, tmp_path / "run", resume=True, quiet=True)
    assert main(["recipes", "migrate", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "recipe.toml.old").exists()
    assert convert(tomllib.loads((tmp_path / "run" / "recipe.toml").read_text()), Recipe, "run") == recipe


def test_fine_tunings_of_the_earlier_version_are_resumed(tmp_path, recipe, corpus):
    model = pretrain(recipe, corpus, tmp_path / "base", quiet=True).parent
    file = tmp_path / "train.tsv"
    file.write_text("label\ttext\n" + "".join(f"{'good' if i % 2 else 'bad'}\tThe dog sees {i}\n" for i in range(40)))
    common = {"task.length": 16, "budget.epochs": False}
    finetune("classification", model, file, tmp_path / "now", settings=common | {"budget.steps": 2}, quiet=True)
    shutil.copytree(tmp_path / "now", tmp_path / "old")
    make_old(tmp_path / "old", {"model": load_model(model).former_fingerprint()})
    path = tmp_path / "old" / "recipe.toml"
    path.write_text(f"lm_weight = 0.0\n{path.read_text()}")
    for run in ("now", "old"):
        settings = common | {"budget.steps": 4}
        finetune("classification", model, file, tmp_path / run, settings=settings, resume=True, quiet=True)
    assert train_lines(tmp_path / "old") == train_lines(tmp_path / "now")
    make_old(tmp_path / "old", {"model": "another"})
    with pytest.raises(UserError, match=r"inputs\.model was another"):
        finetune("classification", model, file, tmp_path / "old", settings=settings, resume=True, quiet=True)


def old_directory(directory, settings, tokenizer):
    """Write a model whose layers share their attention, as the earlier version did."""
    body = build_encoder(settings, tokenizer.size).eval()
    body.blocks[1].attention.load_state_dict(body.blocks[0].attention.state_dict())
    save_model(directory, Model(body, tokenizer), "card")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"unmask_shared": "attention"}))
    (directory / "checksums.json").unlink()
    return body


def test_models_whose_layers_share_a_sublayer_are_read_as_albert(tmp_path, tokenizer):
    settings = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64)
    body = old_directory(tmp_path / "old", settings, tokenizer)
    found = load_model(tmp_path / "old")
    assert isinstance(found.encoder.settings, AlbertSettings)
    assert (found.encoder.settings.shared, found.encoder.settings.embedding) == ("attention", None)
    assert "blocks.1.attention.qkv.weight" not in found.encoder.state_dict()
    tokens = collate([replace(Frame.of(tokenizer).wrap(tokenizer.encode("The dog sees the cat.")), key=(0,))]).tokens
    with torch.inference_mode():
        torch.testing.assert_close(found.encoder.eval()(tokens).last, body(tokens).last, rtol=0, atol=0)
    save_model(tmp_path / "new", found, "card")
    assert load_model(tmp_path / "new").fingerprint() == found.fingerprint()


def test_models_of_no_current_family_are_refused(tmp_path, tokenizer):
    settings = RobertaSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, offset=tokenizer.pad + 1)
    old_directory(tmp_path / "old", settings, tokenizer)
    with pytest.raises(UserError, match="roberta models of this version cannot share sublayers"):
        load_model(tmp_path / "old")
