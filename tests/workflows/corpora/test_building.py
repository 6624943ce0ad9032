"""A corpus that tasks build is the same for any number of processes, wherever they run and whatever ends them."""

import errno
import json
import multiprocessing
import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from unmask.data.corpus.corpus import open_corpus
from unmask.support.errors import UnmaskError, UserError
from unmask.workflows.corpora import build, building, dividing, tasks
from unmask.workflows.corpora.build import build_corpus

from ...killing import count_changes, kill

RULES = ["duplicates", "repeated_lines"]


def make_small(patch):
    """Let small files be divided."""
    patch.setattr(building, "TASK_BYTES", 3000)
    patch.setattr(building, "SHARD_TOKENS", 400)
    patch.setattr(tasks, "PAUSE", 0.02)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    make_small(monkeypatch)


@pytest.fixture(scope="module")
def files(tmp_path_factory, documents):
    """Six files with copies and a broken line.

    The second and third, and the fourth and fifth form portions; the first and the last are divided.
    """
    folder = tmp_path_factory.mktemp("files")
    texts = [*documents[:90], *documents[20:30], *documents[90:120]]
    ends = [0, 40, 42, 70, 75, 110, 130]
    for number in range(6):
        lines = [json.dumps({"text": text}) for text in texts[ends[number] : ends[number + 1]]]
        (folder / f"{number}.jsonl").write_text("\n".join([*lines, "broken"] if number == 1 else lines))
    return sorted(folder.iterdir())


def build_content(files, tokenizer, out, **options):
    """Build a corpus in this process, unless options say otherwise; return the content of its files."""
    directory = build_corpus(files, tokenizer, out, **{"workers": 1, "quiet": True, **options}).directory
    assert not list(out.parent.glob(f"{out.name}.*"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def alone(files, tokenizer, tmp_path_factory):
    """The content of the corpus of the files, cleaned, that one process builds."""
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return build_content(files, tokenizer, tmp_path_factory.mktemp("alone") / "corpus", clean=RULES)


def texts(corpus, part):
    """Return the tokens of the documents of a part, in any order."""
    documents = getattr(corpus, part)
    return sorted([ids.tolist() for ids in documents.sentences(index)] for index in range(len(documents)))


@pytest.mark.parametrize("clean", [(), RULES])
def test_tasks_give_the_documents_that_one_process_gives(files, tokenizer, tmp_path, monkeypatch, clean):
    assert building.portions(files) == [1, 2, 2, 1]
    build_content(files, tokenizer, tmp_path / "tasks", clean=clean)
    monkeypatch.setattr(building, "TASK_BYTES", 1e9)
    build_content(files, tokenizer, tmp_path / "one", clean=clean)
    divided, one = open_corpus(tmp_path / "tasks"), open_corpus(tmp_path / "one")
    divided.verify()
    assert all(texts(divided, part) == texts(one, part) for part in ("train", "heldout"))
    assert divided.manifest.most_frequent_token == one.manifest.most_frequent_token
    assert (divided.manifest.skipped, divided.manifest.sources) == (one.manifest.skipped, one.manifest.sources)
    assert divided.manifest.skipped.count == 1
    if clean:
        cleaning = [(tmp_path / name / "cleaning.json").read_bytes() for name in ("tasks", "one")]
        assert cleaning[0] == cleaning[1]
        assert len(divided.train) + len(divided.heldout) < 130


def test_a_text_of_one_portion_is_the_same_by_tasks(files, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "TASK_BYTES", 1e9)
    monkeypatch.setattr(building, "SHARD_TOKENS", 16_000_000)
    for clean in ((), RULES):
        alone = build_content(files, tokenizer, tmp_path / "alone", clean=clean)
        assert build_content(files, tokenizer, tmp_path / "tasks", clean=clean, engine="hosts") == alone
        shutil.rmtree(tmp_path / "alone")
        shutil.rmtree(tmp_path / "tasks")


def test_held_out_files_are_held_out(files, tokenizer, tmp_path):
    build_content(files[:-1], tokenizer, tmp_path / "out", heldout=files[-1:])
    corpus = open_corpus(tmp_path / "out")
    assert (len(corpus.train), len(corpus.heldout)) == (110, 20)
    with pytest.raises(UserError, match="given twice"):
        build_content(files, tokenizer, tmp_path / "again", heldout=files[-1:])


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_few_documents_are_held_out_as_by_one_process(documents, tokenizer, tmp_path, monkeypatch, count):
    monkeypatch.setattr(building, "TASK_BYTES", 1)
    paths = [tmp_path / f"{number}.txt" for number in range(count)]
    for path, text in zip(paths, documents, strict=False):
        path.write_text(text)
    build_content(paths, tokenizer, tmp_path / "tasks")
    monkeypatch.setattr(building, "TASK_BYTES", 1e9)
    build_content(paths, tokenizer, tmp_path / "one")
    divided, one = open_corpus(tmp_path / "tasks"), open_corpus(tmp_path / "one")
    assert all(texts(divided, part) == texts(one, part) for part in ("train", "heldout"))


def _build_on_host(files, tokenizer, out):
    build_corpus(files, tokenizer, out, workers=1, clean=RULES, engine="hosts", quiet=True)


def test_processes_and_hosts_give_the_same_bytes(files, alone, tokenizer_directory, tmp_path):
    assert build_content(files, tokenizer_directory, tmp_path / "processes", clean=RULES, workers=3) == alone
    context = multiprocessing.get_context("fork")
    hosts = [
        context.Process(target=_build_on_host, args=(files, tokenizer_directory, tmp_path / "hosts")) for _ in range(3)
    ]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join()
        assert host.exitcode == 0
    assert build_content(files, tokenizer_directory, tmp_path / "hosts", clean=RULES, engine="hosts") == alone
    for other in ((), ["pii"], RULES[:1]):  # a corpus that was cleaned otherwise is not the one that is asked for
        with pytest.raises(UserError, match="exists and is not empty"):
            build_content(files, tokenizer_directory, tmp_path / "hosts", clean=other, engine="hosts")


@pytest.mark.parametrize(
    "place",
    [
        (build.build, "check_out"),
        (build.build, "check_sources"),
        (build, "build_by_tasks"),
        (building.Build, "prepare"),
        (building, "only_writer"),
        (building, "large_files"),
        (building, "divide"),
        (dividing, "work_together"),
        (dividing, "check_failures"),
        (building, "portions"),
        (building, "work_together"),
        (tasks, "check_done"),
        (tasks, "taken"),
        (tasks, "work"),
        (building.Build, "finish"),
    ],
    ids=lambda place: place[1],
)
def test_another_host_completes_the_corpus_at_any_time(files, alone, tokenizer, tmp_path, monkeypatch, place):
    owner, name = place
    function, out, begun = getattr(owner, name), tmp_path / "hosts", []

    def overtaken(*arguments, **options):
        if not begun:
            begun.append(name)
            build_corpus(files, tokenizer, out, workers=1, clean=RULES, engine="hosts", quiet=True)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, overtaken)
    assert build_content(files, tokenizer, out, clean=RULES, engine="hosts") == alone
    assert begun


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that a killed call had open
def test_D19_a_build_that_is_killed_at_any_moment_is_continued(files, tokenizer, tmp_path, request):
    paths, out = files[1:5], tmp_path / "out"
    whole = build_content(paths, tokenizer, tmp_path / "whole", clean=RULES)

    def call():
        build_content(paths, tokenizer, out, clean=RULES)

    changes = count_changes(tmp_path, call)
    moments = range(changes)
    for moment in moments if request.config.getoption("--exhaustive") else random.Random(0).sample(moments, 4):
        shutil.rmtree(out, ignore_errors=True)
        kill(tmp_path, call, moment)
        if not out.exists():  # otherwise it was killed while it cleared up
            assert build_content(paths, tokenizer, out, clean=RULES) == whole
        assert {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()} == whole
        if [*tmp_path.glob("out.*")]:
            with pytest.raises(UserError, match="exists and is not empty"):
                call()
        assert not [*tmp_path.glob("out.*")]


def test_D19_a_build_of_one_task_that_is_killed_after_it_has_published_leaves_nothing(files, tokenizer, tmp_path):
    paths, out = files[1:2], tmp_path / "out"

    def call():
        build_content(paths, tokenizer, out, clean=RULES)

    for moment in reversed(range(count_changes(tmp_path, call))):
        shutil.rmtree(out)
        kill(tmp_path, call, moment)
        if not out.exists():
            break
        with pytest.raises(UserError, match="exists and is not empty"):
            call()
        assert not [*tmp_path.glob("out.*")]
    assert [*tmp_path.glob("out.*")], "an interrupted build is left alone"
    other = tmp_path / "other"
    build_content(paths, tokenizer, other)
    other.rename(out)
    with pytest.raises(UserError, match="exists and is not empty"):
        call()
    assert [*tmp_path.glob("out.*")], "another corpus took the place of the one that it builds"


def test_D19_a_task_that_fails_three_times_is_named_and_the_others_are_done(files, tokenizer, tmp_path, monkeypatch):
    whole, real, calls = build_content(files, tokenizer, tmp_path / "whole"), building.write_portion, []

    def fail(paths, *arguments, **options):
        calls.append([*map(Path, paths)])
        if calls[-1] == files[1:3]:
            raise RuntimeError("no luck")
        return real(paths, *arguments, **options)

    monkeypatch.setattr(building, "write_portion", fail)
    with pytest.raises(UnmaskError, match=r"1 task of 9 failed \(encode 4: RuntimeError: no luck \(3 att") as caught:
        build_content(files, tokenizer, tmp_path / "out")
    assert caught.value.status == 1
    assert calls.count(files[1:3]) == 3 and len(calls) == 10
    assert not (tmp_path / "out").exists()
    calls.clear()
    monkeypatch.setattr(building, "write_portion", lambda *a, **b: calls.append([*map(Path, a[0])]) or real(*a, **b))
    assert build_content(files, tokenizer, tmp_path / "out") == whole
    assert calls == [files[1:3]]


def test_E5_a_full_disk_ends_the_work_and_the_same_command_continues(files, tokenizer, tmp_path, monkeypatch):
    whole, real, calls = build_content(files, tokenizer, tmp_path / "whole"), building.write_portion, []

    def fail(paths, *arguments, **options):
        calls.append(paths)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", "file")
        return real(paths, *arguments, **options)

    monkeypatch.setattr(building, "write_portion", fail)
    with pytest.raises(OSError, match="No space left on device: 'file'"):
        build_content(files, tokenizer, tmp_path / "out")
    assert len(calls) == 3
    assert build_content(files, tokenizer, tmp_path / "out") == whole


def test_a_task_whose_process_ends_without_a_word_is_begun_three_times(tmp_path):
    def end(folder):
        raise KeyboardInterrupt

    task = tasks.Task("a", tmp_path / "a", list, end)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            tasks.work([task], "call", str, tmp_path / "end")
    tasks.work([task], "call", str, tmp_path / "end")
    assert task.failure("call").startswith("its process ended without a word 3 times")
    assert not task.failure("another")


def test_D19_hosts_that_fail_in_turns_come_to_an_end(tmp_path):
    calls = []

    def fail(folder):
        calls.append(folder)
        raise RuntimeError("no luck")

    task = tasks.Task("a", tmp_path / "a", list, fail)
    hosts = [
        threading.Thread(target=tasks.work, args=([task], name, str, tmp_path / "end"), daemon=True) for name in "AB"
    ]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join(20)
        assert not host.is_alive()
    assert len(calls) == 6 and task.failure("A") and task.failure("B")


def test_a_host_ends_when_another_one_has_finished_and_removed_the_tasks(tmp_path):
    begun = tmp_path / "tasks"

    def finish(place):
        (tmp_path / "end").touch()
        shutil.rmtree(begun)
        return []

    first = tasks.Task("first", begun / "first", list, finish)
    last = tasks.Task("last", begun / "last", list, finish, [first])
    tasks.work([first, last], "call", str, tmp_path / "end")  # its result is written where nothing is any more
    assert not begun.exists()
    tasks.work([first, last], "call", str, tmp_path / "end")


def test_what_cannot_be_read_is_named_at_once(files, tokenizer, tmp_path):
    with pytest.raises(UnmaskError, match=r"encode 4: .*1.jsonl:3: broken JSON"):
        build_content(files, tokenizer, tmp_path / "out", strict=True)


def test_files_that_change_before_a_build_is_continued_are_read_anew(files, tokenizer, tmp_path, monkeypatch):
    files = sorted(shutil.copytree(files[0].parent, tmp_path / "files").iterdir())
    real = building.merge_corpora

    def end(*_, **__):
        raise KeyboardInterrupt

    for clean in ((), RULES):
        monkeypatch.setattr(building, "merge_corpora", end)
        with pytest.raises(KeyboardInterrupt):
            build_content(files, tokenizer, tmp_path / "out", clean=clean)
        monkeypatch.setattr(building, "merge_corpora", real)
        files[0].write_text(files[0].read_text().replace("river", "mouse"))
        continued = build_content(files, tokenizer, tmp_path / "out", clean=clean)
        assert continued == build_content(files, tokenizer, tmp_path / "new", clean=clean)
        files[0].write_text(files[0].read_text().replace("mouse", "river"))
        shutil.rmtree(tmp_path / "new")
        shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(building, "merge_corpora", end)
    with pytest.raises(KeyboardInterrupt):
        build_content(files, tokenizer, tmp_path / "out")
    with pytest.raises(UserError, match=r"out.tasks: contains an interrupted build with other settings: rules was"):
        build_content(files, tokenizer, tmp_path / "out", clean=RULES)


def test_urls_are_built_by_tasks_and_leave_no_secrets(store, files, tokenizer, tmp_path, monkeypatch):
    store.put(files[0].parent)
    real, kept = building.Build.finish, []

    def look(*arguments):
        kept.extend(path.read_bytes() for path in tmp_path.glob("out.tasks/**/*") if path.is_file())
        return real(*arguments)

    monkeypatch.setattr(building.Build, "finish", look)  # merged is by either process
    urls = [f"{store.url}/{path.name}?sig=SECRET" for path in files]
    there, here = (
        build_content(urls, tokenizer, tmp_path / "out", workers=2),
        build_content(files, tokenizer, tmp_path / "here"),
    )
    assert kept and not any(b"SECRET" in content for content in kept)
    for name in here.keys() - {"manifest.json"}:
        assert there[name] == here[name]


def test_engines_refuse_what_can_be_read_only_once(files, tokenizer, tmp_path):
    with pytest.raises(UserError, match=r"engine=.*: unknown; choose one of local, hosts, ray"):
        build_corpus(files, tokenizer, tmp_path / "out", engine="spark")
    with pytest.raises(UserError, match=r"engine='?\"?hosts.* does not work with standard input"):
        build_corpus("-", tokenizer, tmp_path / "out", engine="hosts", quiet=True)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_lost_node_of_a_ray_cluster_changes_nothing(files, tokenizer, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    alone = build_content(files, tokenizer, tmp_path / "alone", clean=RULES)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        node = cluster.add_node(num_cpus=1)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)

        def lose_a_node():
            while len(list(tmp_path.glob("out.tasks/*/done.json"))) < 2:
                time.sleep(0.02)
            cluster.remove_node(node, allow_graceful=False)

        losing = threading.Thread(target=lose_a_node, daemon=True)
        losing.start()
        assert build_content(files, tokenizer, tmp_path / "out", clean=RULES, engine="ray", workers=2) == alone
        assert not losing.is_alive()
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("seed", range(6))
def test_D19_damaged_cleaned_text_of_an_interrupted_build_is_made_again(
    files, alone, tokenizer, tmp_path, monkeypatch, seed
):
    rng = random.Random(seed)

    def fail(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(building, "write_portion", fail)
        build_content(files, tokenizer, tmp_path / "out", clean=RULES)
    for path in rng.sample(sorted(path for path in (tmp_path / "out.cleaned").iterdir() if path.stat().st_size), 4):
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content if rng.random() < 0.6 else content[: len(content) // 2])
    assert build_content(files, tokenizer, tmp_path / "out", clean=RULES) == alone
