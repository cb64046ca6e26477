"""The code of docs/add-a-scheme.md runs as it is written, in a folder and processes of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from algos.parts import ARGUMENTS, choices, find

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "add-a-scheme.md"
BLOCK = re.compile(r'```python title="([\w.]+)"\n(.*?)```', re.DOTALL)

# What in_verl.py imports of verl; the signature is that of its registry.
VERL = "REGISTRY = {}\ndef register_adv_est(name):\n    return lambda fn: REGISTRY.setdefault(name, fn)\n"

IN_VERL = """
import numpy as np, torch, in_verl
from verl.trainer.ppo.core_algos import REGISTRY

rewards = torch.zeros(5, 3)
rewards[:, -1] = torch.tensor([4.0, 0.0, 10.0, 2.0, 7.0])
mask = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1]])
index = np.array(["a", "a", "a", "a", "b"], dtype=object)
result, returns = REGISTRY["trimmed_mean"](
    token_level_rewards=rewards, response_mask=mask, index=index, config={}
)
assert result.dtype == rewards.dtype and torch.equal(result, returns)
assert torch.equal(result, torch.tensor([1.0, -3.0, 7.0, -1.0, 7.0])[:, None] * mask)

from algos.__main__ import main

assert main(["explain", "trimmed_grpo", "--use", "trimmed_mean"]) == 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page's files in one folder."""
    place = tmp_path_factory.mktemp("scheme")
    for name, code in BLOCK.findall(PAGE.read_text()):
        (place / name).write_text(code)
    package = place / "verl" / "trainer" / "ppo"
    package.mkdir(parents=True)
    (package / "core_algos.py").write_text(VERL)
    return place


def attempt(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def run(folder, *arguments):
    done = attempt(folder, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_code_block_has_a_file(folder):
    text = PAGE.read_text()
    assert text.count("```python") == len(BLOCK.findall(text))
    assert len({name for name, _ in BLOCK.findall(text)}) == len(BLOCK.findall(text))


def test_the_tests_of_the_page_pass(folder):
    out = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", ".")
    assert "passed" in out


def test_training_and_comparing(folder):
    out = run(folder, "compare.py")
    learned = re.search(r"^success (\S+)$", out, re.MULTILINE)
    assert learned and float(learned[1]) > 0.5
    for scheme in ("grpo", "grpo:baseline_kind=trimmed_mean,share=0.25", "trimmed_grpo"):
        assert re.search(rf"^{re.escape(scheme)}: -?\d\.\d+ \(", out, re.MULTILINE)
    assert (folder / "results" / "trimmed.parquet").exists()


def test_a_run_that_fails_is_shown(folder):
    text = (folder / "compare.py").read_text()
    regime = 'Regime("noisy", "agentic_gym/Chain-v0"'
    assert text.count(regime) == 1
    (folder / "mistyped.py").write_text(
        text.replace(regime, regime.replace("Chain", "Chian")).replace('Path("results")', 'Path("mistyped")')
    )
    done = attempt(folder, "mistyped.py")
    assert done.returncode == 1
    assert "6 runs failed, the first with" in done.stderr and "Environment `Chian` doesn't exist" in done.stderr


def test_judging_and_drawing(folder):
    if not (folder / "results" / "trimmed.parquet").exists():
        run(folder, "compare.py")
    shared = folder / "shared"
    (shared / "results").mkdir(parents=True, exist_ok=True)
    # What the page says is enough to share; the caption is made again from it.
    for name in ("trimmed_mean.py", "compare.py", "judge.py", "results/trimmed.parquet"):
        (shared / name).write_bytes((folder / name).read_bytes())
    out = run(shared, "judge.py")
    for scheme in ("grpo:baseline_kind=trimmed_mean,share=0.25", "trimmed_grpo"):
        found = re.search(rf"^{re.escape(scheme)} minus grpo: \S+ \(\S+ to \S+\), p = (\S+), 2 pairs: (.*)$", out, re.M)
        assert found and (found[2] == "differs") == (float(found[1]) < 0.05)
    assert sorted(path.name for path in (shared / "figures").iterdir()) == ["trimmed.png", "trimmed.svg", "trimmed.txt"]
    text = (shared / "figures" / "trimmed.txt").read_text()
    assert text.endswith("\nNumbers and figure: python compare.py; python judge.py\n")
    assert "one learning rate for all schemes, 0.003" in text
    assert "python -m benchmarks" not in text + (shared / "figures" / "trimmed.svg").read_text()


def test_a_cell_can_be_run_twice(folder):
    twice = """
code = open("cell.py").read()
for _ in range(2):
    exec(code)
from algos import RolloutBatch, advantages
batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0], token_mask=[[1, 1, 1, 1], [1, 0, 0, 0]])
print(advantages("grpo:weights=length_damp", batch) / advantages("grpo", batch))
"""
    assert run(folder, "-c", twice) == "[0.5 1. ]\n"


def test_the_table_of_axes_is_right():
    rows = re.findall(
        r"^\| \[`(\w+)`\]\(schemes/parts\.md#(\w+)\) \| `([\w.]+)` \| `\((.*)\)` \|", PAGE.read_text(), re.MULTILINE
    )
    assert {axis: tuple(arguments.split(", ")) for axis, _, _, arguments in rows} == ARGUMENTS
    for axis, anchor, module, _ in rows:
        assert anchor == axis
        # The module has parts of the axis.
        assert any(find(axis, name).function.__module__ == module for name in choices(axis)), axis


def test_the_estimator_for_verl_and_the_explanation(folder):
    out = run(folder, "-c", IN_VERL)
    assert "rewards with outliers" in out and "share=0.25 ([0, 0.5])" in out
