"""The runner on a real Ray cluster of two nodes; needs the extra ``cluster``.

pip install -c constraints.txt -e ".[dev,cluster]"
python -m pytest tests/benchmarks/test_ray_cluster.py
"""

import dataclasses

import pytest

from benchmarks import runner, store
from benchmarks.experiment import Budget, Experiment, Regime
from benchmarks.sweep import train

ray = pytest.importorskip("ray")

# Ray's own code warns in ways that depend on its release.
pytestmark = pytest.mark.filterwarnings("default")

EXPERIMENT = Experiment(
    name="cluster",
    question="Do two nodes give what one process gives?",
    claim="They do.",
    axis="none",
    metric="mean",
    regimes=(Regime("chain", "agentic_gym/Chain-v0", {"options": 4, "depth": 2}, 0.0),),
    schemes=("grpo", "rloo"),
    seeds=(0, 1, 2),
    tuning_seeds=(),
    learning_rates=(1e-3,),
    budget=Budget(
        total_turns=400, n_prompts=4, group_size=4, n_epochs=1, n_minibatches=1, n_evaluations=2, eval_rollouts=16,
        warmstart_success=0.0,
    ),
)  # fmt: skip


@pytest.fixture
def cluster():
    """Two nodes of one processor each."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def rows(root):
    """Rows of all runs in a fixed order, without what differs from run to run."""
    columns = ("run_id", "turns", "environment", "score", "return_mean")
    table = store.gather(EXPERIMENT, root).select(columns)
    return table.sort_by([(name, "ascending") for name in columns[:3]]).to_pylist()


def test_two_nodes_give_what_one_process_gives(cluster, tmp_path):
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    runner.run(EXPERIMENT, "report", train, 1, alone, progress=False)
    summary = runner.run(
        EXPERIMENT, "report", train, 2, spread, backend="ray", address=cluster.address, progress=False
    )  # fmt: skip
    assert sum(node["Alive"] for node in ray.nodes()) == 2
    assert (summary.trained, summary.skipped, summary.failures) == (6, 0, ())
    assert rows(spread) == rows(alone)
    more = dataclasses.replace(EXPERIMENT, seeds=(0, 1, 2, 3))
    again = runner.run(more, "report", train, 2, spread, backend="ray", address=cluster.address, progress=False)
    assert (again.trained, again.skipped) == (2, 6)
