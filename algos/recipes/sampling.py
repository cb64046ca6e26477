"""Recipes whose idea is the sampling: which prompts are rolled out, how often, and by which policy."""

from algos.recipes.recipe import Recipe
from algos.scheme import Scheme

SAMPLING: dict[str, Recipe] = {
    "agentrl_cross_policy": Recipe(
        Scheme(
            baseline="prompt", scale="prompt", whitening="environment", whitening_weight="token",
            aggregation="token_mean", dual_clip=3.0, sampling="cross_policy",
        ),
        source="Zhang et al., AgentRL, arXiv 2510.04206",
        certainty="SEEN-3P; sample spread, and the writer's log-probabilities as the old ones, INFERRED; no KL loss",
        formula="A = agentrl's; a message is written by a stale copy with probability 0.25",
        fixes="exploration shrinks during long training",
        wins="many environments trained together, long training",
        no_op="the stale copy is the policy itself (then: agentrl)",
        dead_groups="signal",
    ),
    "starpo_s": Recipe(
        Scheme(
            baseline="prompt", scale="prompt", clip_low=0.2, clip_high=0.28, aggregation="token_mean",
            sampling="top_variance",
        ),
        source="Wang et al., RAGEN (StarPO-S), arXiv 2504.20073",
        certainty="SEEN-CODE; with grpo's advantages",
        formula="A = grpo's; of four times as many prompts the quarter with the largest spread is trained on",
        fixes="prompts without spread add noise and collapse",
        wins="multi-turn agents with many solved or hopeless prompts",
        no_op="all prompts have the same spread",
    ),
    "trace": Recipe(
        Scheme(baseline="prompt", scale="prompt", aggregation="rollout_mean", sampling="trace"),
        source="Zou et al., TRACE, arXiv 2606.11119",
        certainty="PARTIAL; all but the utility and the two stages INFERRED",
        formula="A = grpo's; rollouts go to roots and prefixes where 1 - p^m - (1 - p)^m gains most",
        fixes="rollouts where all continuations end alike",
        wins="multi-turn tasks with few mixed groups",
        no_op="a predictor that knows nothing (then: equal groups, and continued prefixes)",
    ),
    "cuts": Recipe(
        Scheme(baseline="prompt", scale="prompt", aggregation="rollout_mean", sampling="cuts"),
        source="Liang et al., CUTS, arXiv 2604.18493",
        certainty="SEEN-NOTE; no warm tokens here, messages are short: INFERRED; the paper adds kl=k3, kl_coef=0.001",
        formula="A = grpo's; half of each group takes uniform tokens among the likely ones",
        fixes="saturated prompts have no spread",
        wins="prompts that are nearly always solved",
        no_op="one likely token everywhere (then: grpo)",
    ),
}  # fmt: skip
