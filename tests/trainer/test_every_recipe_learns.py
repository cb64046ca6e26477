"""Every recipe learns a short chain from scratch, and sends a gradient where there is an advantage."""

import warnings

import numpy as np
import pytest

from algos import RECIPES, GroupPPO, make_scheme
from algos.collector import collect


def score(model: GroupPPO) -> float:
    prompt = np.arange(512) % model.rows.num_prompts
    data = collect(model.rows, model.policy, prompt, np.arange(512), np.random.default_rng(0), split="test")
    assert data is not None
    return float(data.score.mean())


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_a_recipe_learns_the_chain(recipe):
    """Chance is 1/8; two cues, partial credit, one network for all."""
    # Widths for geometric means over long rollouts are too narrow for turns of two tokens.
    narrow = make_scheme(recipe).ratio in ("rollout_mean", "turn_mean")
    scheme = f"{recipe}:clip_low=0.2,clip_high=0.2" if narrow and make_scheme(recipe).clips else recipe
    model = GroupPPO(
        "MessagePolicy", "agentic_gym/Chain-v0", scheme=scheme, n_prompts=16, group_size=8, n_epochs=2,
        n_minibatches=2, learning_rate=5e-3, seed=0, diagnostics_interval=0,
        env_kwargs={"options": 4, "depth": 2, "graded": True, "dense": True, "difficulty": 0.25},
    )  # fmt: skip
    before = score(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no learning signal")
        warnings.filterwarnings("ignore", message="sampling='dynamic'")
        model.learn(12_000, log_interval=None)
    assert score(model) > 0.5 > before + 0.1
