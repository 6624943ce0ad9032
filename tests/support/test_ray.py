"""Tasks of a Ray cluster: what their errors become, what they import, and what is left of the connection."""

import os
import signal
import sys

import pytest

from unmask.support import workers
from unmask.support.durable import full_disk
from unmask.support.errors import UnmaskError, UserError

PLANTED = """
import errno, os
from unmask.support.errors import UserError

def mistake():
    raise UserError("a column is missing", remedy="name it")

def full():
    raise OSError(errno.ENOSPC, "No space left on device", "shard")

def end():
    os._exit(1)

def path(file):
    import sys
    open(file, "w").write(repr(sys.path))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Ray cluster of one node, whose processes find a module `planted`."""
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("modules")
    (folder / "planted.py").write_text(PLANTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        yield made
        made.shutdown()


@pytest.fixture
def call(cluster, tmp_path, monkeypatch):
    """Return a function that calls one of the module `planted` in a task."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    return lambda name, *arguments: workers.work_on_ray(
        1, f"planted:{name}", arguments, tmp_path, lambda: "", lambda line: None, pieces=1
    )


@pytest.mark.exhaustive
def test_errors_of_tasks_are_those_of_processes_of_this_machine(call, monkeypatch, capfd):
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(UserError, match=r"^a column is missing; name it$"):
        call("mistake")
    with pytest.raises(OSError) as error:
        call("full")
    assert full_disk(error.value) and error.value.filename == "shard"
    with pytest.raises(UnmaskError, match=r"^Ray: .*died"):
        call("end")
    assert capfd.readouterr().out == "", "results are there"
    assert signal.getsignal(signal.SIGTERM) == handler
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    with pytest.raises(UserError, match=r"^Ray: .*nowhere; start a cluster \(ray start --head\), and name it"):
        call("mistake")


@pytest.mark.exhaustive
def test_tasks_import_nothing_from_the_current_folder(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call("path", str(tmp_path / "path"))
    assert str(tmp_path) not in (tmp_path / "path").read_text()


@pytest.mark.exhaustive
def test_a_connection_of_the_user_stays(call, cluster, tmp_path):
    ray = sys.modules["ray"]
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        call("path", str(tmp_path / "path"))
        assert ray.is_initialized()
    finally:
        ray.shutdown()
