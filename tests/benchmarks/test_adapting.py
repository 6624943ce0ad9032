"""The benchmark of adaptation runs at toy size, and scores texts that were not trained on."""

import json

import pytest

pytestmark = [pytest.mark.shared, pytest.mark.minilm, pytest.mark.exhaustive]


@pytest.mark.timeout(900)
def test_each_way_of_adapting_is_scored_on_both_texts(benchmark_module, run_main, tmp_path):
    adapting = benchmark_module("adapting")
    run_main(adapting, "--toy", "--seeds", "0", "--runs", str(tmp_path))
    runs = json.loads((tmp_path / "results" / "adapting.json").read_text())["runs"]
    forgetting = [run for run in runs if run["case"] == "forgetting"]
    assert {(run["domain"], run["way"]) for run in forgetting} == {
        (domain, way) for domain in ("film reviews", "documentation") for way in adapting.WAYS
    }
    for run in forgetting:
        assert run["before"].keys() == run["after"].keys() == {"general", "text"}
        assert run["before"] != run["after"]
    assert [run["start"] for run in runs if run["case"] == "another-script"] == ["as it is", "adapted"]
    tasks = [run for run in runs if run["case"] == "tasks"]
    texts = [run["text"] for run in runs if run["case"] == "texts"]
    assert texts[0] == "articles" and len(texts) == 5
    scored = {(run["text"], run["start"]) for run in tasks}
    assert scored == {(text, start) for text in texts[1:] for start in ("as it is", "adapted", "articles")}
    for domain in ("film-reviews", "documentation"):
        folder = tmp_path / "adapting" / "forgetting" / domain
        train, held = ((folder / f"{part}.jsonl").read_text().splitlines() for part in ("train", "held"))
        assert train and held and not set(train) & set(held)
    folder = tmp_path / "adapting" / "tasks"
    adapted = {json.loads(line)["text"] for line in (folder / "documentation-topic.jsonl").read_text().splitlines()}
    tested = {row.rsplit("\t", 1)[0] for row in (folder / "topics-test.tsv").read_text().splitlines()[1:]}
    assert tested and not any(text in document.split("\n") for document in adapted for text in tested)
