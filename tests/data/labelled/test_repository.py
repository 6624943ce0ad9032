"""Tests of repositories of data sets: which files a split has, names of classes, and what is refused."""

import json
import random

import pandas as pd
import pyarrow.parquet
import pytest
import yaml

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.records import describe_numbers, has_records, read_records, read_repository
from unmask.data.labelled.splits import find_split, read_card
from unmask.data.labelled.table import is_repository
from unmask.support.errors import UserError

SPLITS = ("train", "validation", "test")
FORMATS = ("parquet", "jsonl", "json", "csv", "tsv")
CLASSES = ("neg", "pos", "other, or none")
SYNONYMS = {"train": ["train", "training"], "validation": ["dev", "val", "valid"], "test": ["eval", "testing", "test"]}


def write(path, frame):
    """Write a data frame in the format of a suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".parquet":
            frame.to_parquet(path)
        case ".jsonl":
            frame.to_json(path, orient="records", lines=True)
        case ".json":
            frame.to_json(path, orient="records")
        case suffix:
            frame.to_csv(path, index=False, sep="," if suffix == ".csv" else "\t")


def card(folder, **content):
    text = yaml.safe_dump(content, allow_unicode=True)
    (folder / "README.md").write_text(f"---\n{text}---\n# A data set\n", encoding="utf8")


def frames(rng, number):
    """Return so many tables of texts and numbers of classes."""
    sizes = [rng.randrange(1, 5) for _ in range(number)]
    return [
        pd.DataFrame({"text": [f"{rng.random()}, é" for _ in range(size)], "label": rng.choices(range(3), k=size)})
        for size in sizes
    ]


def shards(rng, split, suffix, layout):
    """Return the paths of the files of a split in a layout, in order."""
    number = rng.randrange(1, 4)
    word = rng.choice(SYNONYMS[split])
    if layout == "shards":
        return [f"data/{split}-{index:05}-of-{number:05}.{suffix}" for index in range(number)]
    if layout == "folders":
        return [f"{rng.choice(['', 'en/'])}{word}/part-{index}.{suffix}" for index in range(number)][:1]
    if layout == "files":
        return [f"{rng.choice(['', 'en/', 'my-'])}{word}.{suffix}"]
    return [f"files/{split[::-1]}{index}.{suffix}" for index in range(number)]  # only README.md tells


@pytest.mark.parametrize("layout", ["shards", "folders", "files", "card"])
def test_the_rows_of_a_split_are_those_of_its_files(tmp_path, layout):
    rng = random.Random(layout)
    for number in range(15):
        folder, suffix = tmp_path / str(number), rng.choice(FORMATS)
        splits = rng.sample(SPLITS, rng.randrange(1, 4))
        expected, entries, infos = {}, [], []
        for split in splits:
            paths = shards(rng, split, suffix, layout)
            tables = frames(rng, len(paths))
            for path, table in zip(paths, tables, strict=True):
                write(folder / path, table)
            expected[split] = pd.concat(tables)
            entries.append({"split": split, "path": rng.choice([paths, f"files/{split[::-1]}*"])})
            infos.append({"name": split, "num_examples": len(expected[split])})
        (folder / "LICENSE").write_text("A license.")
        (folder / "dataset_infos.json").write_text("{}")
        names = rng.choice([list(CLASSES), {str(index): name for index, name in enumerate(CLASSES)}])
        features = [{"name": "text", "dtype": "string"}, {"name": "label", "dtype": {"class_label": {"names": names}}}]
        content = {"dataset_info": {"features": features, "splits": infos}}
        if layout == "card":
            content["configs"] = [{"config_name": "default", "data_files": entries}]
        named = rng.random() < 0.5 or layout == "card"
        if named:
            card(folder, **content)
        for split, frame in expected.items():
            rows = read_rows([f"{folder}#{rng.choice(['', 'default/'])}{split}"], columns={})
            labels = [CLASSES[label] if named else str(label) for label in frame["label"]]
            assert [row.values for row in rows] == [
                {"text": text, "label": label} for text, label in zip(frame["text"], labels, strict=True)
            ]
            assert [row.line for row in rows] == list(range(1, len(rows) + 1))


def test_configurations_have_splits_of_their_own(tmp_path):
    rng = random.Random(0)
    for number in range(15):
        folder, suffix = tmp_path / str(number), rng.choice(FORMATS)
        names = rng.sample(["en", "de", "all-1.0", "x y"], rng.randrange(2, 4))
        marked, expected, configs = rng.choice([None, *names]), {}, []
        for name in names:
            classes = [f"{name} {index}" for index in range(3)]
            for split in rng.sample(SPLITS, rng.randrange(1, 4)):
                (expected[name, split],) = frames(rng, 1)
                write(folder / name / f"{split}.{suffix}", expected[name, split])
                expected[name, split]["label"] = [classes[label] for label in expected[name, split]["label"]]
            configs.append({"config_name": name, "data_dir": name, **({"default": True} if name == marked else {})})
        label = {name: {"class_label": {"names": [f"{name} {index}" for index in range(3)]}} for name in names}
        infos = [{"config_name": name, "features": [{"name": "label", "dtype": label[name]}]} for name in names]
        card(folder, configs=configs, dataset_info=infos)
        for (name, split), frame in expected.items():
            parts = [f"{name}/{split}"]
            parts += [split] if name == marked else []
            parts += [name] if sum(config == name for config, _ in expected) == 1 else []
            records = [record for _, record in read_repository(f"{folder}#{rng.choice(parts)}")]
            assert records == frame.to_dict(orient="records")


def test_files_that_the_hub_converted_have_configurations(tmp_path):
    (one, two) = frames(random.Random(0), 2)
    write(tmp_path / "mrpc" / "train" / "0000.parquet", one)
    write(tmp_path / "sst2" / "train" / "0000.parquet", two)
    assert [record for _, record in read_repository(f"{tmp_path}#sst2/train")] == two.to_dict(orient="records")
    with pytest.raises(UserError, match=r"has no split 'train'; name one: .*#mrpc/train, .*#sst2/train"):
        list(read_repository(f"{tmp_path}#train"))


def test_classes_of_the_schema_come_before_those_of_the_card(tmp_path):
    table = pyarrow.table({"text": ["a", "b"], "label": [0, -1], "tags": [[1, 0], []]})
    feature = {"_type": "ClassLabel", "names": ["x", "y"]}
    features = {"label": feature, "tags": {"feature": feature, "_type": "List"}}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    card(tmp_path, dataset_info={"features": [{"name": "label", "dtype": {"class_label": {"names": ["c", "d"]}}}]})
    assert list(read_repository(f"{tmp_path}#train")) == [
        (1, {"text": "a", "label": "x", "tags": ["y", "x"]}),
        (2, {"text": "b", "label": None, "tags": []}),
    ]
    with pytest.raises(UserError, match=r"#train:2: 'label' is missing"):
        read_rows([f"{tmp_path}#train"], columns={})


@pytest.mark.parametrize("kind", ["sequence", "list"])
def test_tags_are_named(tmp_path, kind):
    write(tmp_path / "train.jsonl", pd.DataFrame({"tokens": [["Anna", "met", "Bo"]], "ner_tags": [[1, 0, 1]]}))
    names = {"0": "O", "1": "B-PER"}
    card(tmp_path, dataset_info={"features": [{"name": "ner_tags", kind: {"class_label": {"names": names}}}]})
    (sentence,) = read_annotations([f"{tmp_path}#train"], columns={"label": "ner_tags"})
    assert sentence.tags == ("B-PER", "O", "B-PER")


@pytest.mark.parametrize(
    ("files", "part", "message"),
    [
        (["train.csv", "test.csv"], "dev", r"has no split 'dev'; name one: {0}#train, {0}#test$"),
        (["train.csv"], "de/train", r"has no split 'de/train'; name one: {0}#train$"),
        (["train-test.csv"], "train", "'train-test.csv' may be of several splits; name the file: {0}#train-test.csv"),
        (["data.parquet", "data.csv"], "train", r"{0}#train: its files are \.csv and \.parquet; name files of one of"),
        (["a.png"], "train", "{0} has no files of data that can be read; read are csv, tsv, jsonl"),
        (["data/train-00000-of-00003.csv"], "train", "{0}: 1 of 3 files data/train-.*-of-00003.csv; download the oth"),
    ],
)
def test_unclear_splits_are_refused(tmp_path, files, part, message):
    for path in files:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("text,label\nx,a\n")
    with pytest.raises(UserError, match=message.format(tmp_path)):
        list(read_repository(f"{tmp_path}#{part}"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"configs": [{"data_files": "a.csv", "sep": ";"}]}, "README.md: configuration 'default' sets 'sep', which is"),
        ({"configs": [{"data_files": "a.csv"}] * 2}, "two configurations have the same name"),
        ({"configs": "a.csv"}, "'configs' is not a list of objects"),
        ({"configs": [{"data_files": [{"split": "a"}]}]}, "'data_files' of configuration 'default' are not paths by"),
        ({"configs": [{"data_files": [{"split": "a", "path": "x"}] * 2}]}, "configuration 'default' has a split twice"),
        ({"configs": [{"data_files": "https://x/a.csv"}]}, "'https://x/a.csv' is not in the repository"),
        ({"configs": [{"data_files": "../a.csv"}]}, r"'\.\./a.csv' is not in the repository"),
        ({"configs": [{"data_files": ["a.csv", "b.csv"]}]}, "has no file 'b.csv' of default/train; download it again"),
        ({"dataset_info": {"features": [{"class_label": {"names": {"1": "a"}}}]}}, "the classes are not numbered from"),
        ({"dataset_info": {"splits": [{"name": "train", "num_examples": 3}]}}, "2 rows, but README.md states 3; downl"),
        (
            {"dataset_info": {"features": [{"name": "label", "dtype": {"class_label": {"names": ["b", "1"]}}}]}},
            "#train:1: 'label' is 'a', none of its classes",
        ),
        (
            {"dataset_info": {"features": [{"name": "label", "dtype": {"class_label": {"names": ["a", "b", "1"]}}}]}},
            "#train:2: 'label' may be class number 1 or the class '1'",
        ),
        (
            {"dataset_info": {"features": [{"name": "label", "dtype": {"class_label": {"names": ["a"]}}}]}},
            "#train:2: 'label' is 1, but its 1 classes are numbered from 0",
        ),
    ],
)
def test_what_the_card_says_is_checked(tmp_path, content, message):
    (tmp_path / "a.csv").write_text("text,label\nx,a\ny,1\n")
    card(tmp_path, **content)
    with pytest.raises(UserError, match=message):
        list(read_repository(f"{tmp_path}#train"))
    assert len(
        list(read_records(tmp_path / "a.csv", "jsonl") if False else read_rows([tmp_path / "a.csv"], columns={}))
    )


def test_a_broken_card_is_named(tmp_path):
    (tmp_path / "README.md").write_text("---\na: [\n---\n")
    with pytest.raises(UserError, match=r"README.md: its YAML is broken"):
        read_card(tmp_path)
    for text in ("", "# Title\n", "---\n- a\n---\n", "---\nno end"):
        (tmp_path / "README.md").write_text(text)
        assert read_card(tmp_path).configs == ()


def test_a_script_is_not_run(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nx,a\n")
    (tmp_path / f"{tmp_path.name}.py").write_text("raise AssertionError")
    remedy = "@refs/convert/parquet#CONFIG/SPLIT"
    with pytest.raises(
        UserError, match=rf"loaded by the script {tmp_path.name}.py, and code .* is not run; .*{remedy}"
    ):
        list(read_repository(f"{tmp_path}#train"))
    assert len(list(read_repository(f"{tmp_path}#a.csv"))) == 1
    card(tmp_path, configs=[{"data_files": "a.csv"}])
    assert len(list(read_repository(f"{tmp_path}#train"))) == 1


def test_a_row_of_cells_is_located(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\nx,a\ny\n")
    with pytest.raises(UserError, match=r"train\.csv:3: 1 column where there should be 2"):
        list(read_repository(f"{tmp_path}#train"))


def test_a_directory_alone_or_a_file_is_no_repository(tmp_path):
    (tmp_path / "a#b").mkdir()
    (tmp_path / "a#b" / "train.csv").write_text("text\nx\n")
    assert not is_repository(tmp_path) and not is_repository(tmp_path / "a#b") and not is_repository("x#train")
    assert is_repository(f"{tmp_path}/a#b#train") is False, "the first # is that of the part"
    assert has_records(f"{tmp_path}#train", None)
    with pytest.raises(UserError, match=r"format=.jsonl. has no effect on a data set; remove it"):
        list(read_records(f"{tmp_path}#train", "jsonl"))


def test_a_name_of_both_a_split_and_a_configuration_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nx,a\n")
    splits = [{"split": "b", "path": "a.csv"}, {"split": "c", "path": "a.csv"}]
    configs = [{"data_files": splits}, {"config_name": "b", "data_files": "a.csv"}]
    card(tmp_path, configs=configs)
    with pytest.raises(UserError, match=r"there are several splits in .*; name one: x#b, x#c, x#b/train"):
        find_split("x", ["a.csv"], read_card(tmp_path), "b")
    assert find_split("x", ["a.csv"], read_card(tmp_path), "c").part == "default/c"
    with pytest.raises(UserError, match="there are several splits in x; name one"):
        find_split("x", ["a.csv"], read_card(tmp_path), "")


def test_numbers_without_names_are_noted(tmp_path):
    sources = [f"{tmp_path}#train", "a.csv"]
    what = "the labels are the numbers -1, 0, 1: the data set does not name its classes"
    assert describe_numbers(sources, ["-1", "0", "1"]) == [f"{tmp_path}#train: {what}"]
    assert describe_numbers(sources, ["0", "pos"]) == describe_numbers(sources, []) == []
