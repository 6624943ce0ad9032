"""A comparison on a Ray cluster of two nodes, one of which is lost in the middle."""

import threading
import time

import pytest

import unmask
from unmask.metrics.intervals import RESAMPLES

HERE = {"device": "cpu", "precision": "float32", "quiet": True}


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_a_lost_node_changes_nothing(inputs, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setattr("unmask.metrics.intervals.RESAMPLES", RESAMPLES)  # as many as in the tasks of the cluster
    undisturbed = unmask.compare(inputs / "pets.toml", out=tmp_path / "undisturbed", **HERE)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        node = cluster.add_node(num_cpus=1)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        out = tmp_path / "out"

        def lose_a_node():
            while len(list(out.glob("cells/*/result.json"))) < 3:
                time.sleep(0.2)
            cluster.remove_node(node, allow_graceful=False)

        losing = threading.Thread(target=lose_a_node, daemon=True)
        losing.start()
        outcome = unmask.compare(inputs / "pets.toml", out=out, engine="ray", workers=2, **HERE)
        assert not losing.is_alive()
    finally:
        cluster.shutdown()
    assert {arm.name: arm.scores for arm in outcome.arms} == {arm.name: arm.scores for arm in undisturbed.arms}
