"""Recipes for several reward components."""

from algos.recipes.recipe import Recipe
from algos.scheme import Scheme

SEVERAL_REWARDS: dict[str, Recipe] = {
    "gdpo": Recipe(
        Scheme(
            signal="components", baseline="prompt", scale="prompt", whitening="batch", whitening_weight="rollout",
            aggregation="token_mean",
        ),
        source="Liu et al., GDPO, arXiv 2601.05242",
        certainty="SEEN-PAPER (eqs 4 to 8); eps INFERRED; whitening_weight='token' is verl's",
        formula="A = whitened over the batch of sum_n w_n (r_n - mean_g) / std_g",
        fixes="different combinations of rewards get the same advantage once summed",
        wins="two or more rewards with different scales",
        no_op="one reward (then: grpo and batch whitening)",
        dead_groups="signal",
    ),
    "weighted_sum": Recipe(
        Scheme(signal="component_sum", baseline="prompt", scale="prompt", aggregation="rollout_mean"),
        source="common practice; TRL's sum_then_normalize",
        certainty="SEEN-CODE (TRL)",
        formula="A = grpo's of sum_n w_n r_n",
        fixes="-",
        wins="the control for gdpo",
        no_op="weights 1 (then: grpo without scale, offset and noise of the reward)",
    ),
    "maestro": Recipe(
        Scheme(signal="conductor", baseline="prompt", scale="prompt", aggregation="rollout_mean"),
        source="Zhao et al., MAESTRO, arXiv 2601.07208",
        certainty="SEEN-NOTE; emphasis, temperature, entropy bonus, step sizes and context INFERRED",
        formula="A = grpo's of w(a) . r, a drawn by a conductor that learns from A",
        fixes="static weights of conflicting rewards",
        wins="open-ended tasks with several proxies",
        no_op="one reward",
        dead_groups="signal",
    ),
}  # fmt: skip
