"""The named schemes, one line of choices each, with their sources and claims as data.

Certainty tags are those of the formulas' reading: SEEN-PAPER (equations read), SEEN-CODE (authors'
or a framework's code read), SEEN-NOTE / SEEN-3P (a detailed third-party note or digest), INFERRED
(this project's choice where the source is silent).
"""

from __future__ import annotations

from dataclasses import dataclass

from algos.scheme import Scheme


@dataclass(frozen=True)
class Recipe:
    """A named scheme and what its authors say of it.

    Attributes:
        scheme: the choices.
        source: paper, with its arXiv number.
        certainty: how the formula is known.
        fixes: the defect that it claims to fix.
        wins: the regime in which it claims to win.
        no_op: the settings in which it changes nothing.
    """

    scheme: Scheme
    source: str
    certainty: str
    fixes: str
    wins: str
    no_op: str


RECIPES: dict[str, Recipe] = {
    "reinforce": Recipe(
        Scheme(baseline="none", scale="none", surrogate="reinforce", aggregation="token_mean"),
        "Williams 1992",
        "textbook",
        "-",
        "the control: no baseline, no scale, no clip",
        "never",
    ),
    "grpo": Recipe(
        Scheme(baseline="prompt", scale="prompt", aggregation="rollout_mean"),
        "Shao et al., DeepSeekMath, arXiv 2402.03300",
        "SEEN-CODE (frameworks); without the KL loss (kl='k3' adds it)",
        "cost of a critic",
        "any verifiable reward, groups of 8 or more",
        "all rewards of a group equal",
    ),
    "dr_grpo": Recipe(
        Scheme(baseline="prompt", scale="none", aggregation="constant"),
        "Liu et al., arXiv 2503.20783",
        "SEEN-CODE (frameworks)",
        "length bias of 1/L, difficulty bias of 1/std",
        "long outputs, wrong ones growing longer",
        "all groups have the same spread and length",
    ),
    "rloo": Recipe(
        Scheme(
            baseline="prompt", baseline_kind="leave_one_out", scale="none",
            surrogate="reinforce", aggregation="token_mean",
        ),
        "Ahmadian et al., arXiv 2402.14740",
        "SEEN-CODE (frameworks); token-mean loss INFERRED",
        "bias of a mean that includes the rollout itself",
        "small groups",
        "large groups (the factor G / (G - 1) goes to 1)",
    ),
    "reinforce_pp": Recipe(
        Scheme(
            baseline="none", scale="none", whitening="batch", whitening_weight="token",
            eps=1e-8, eps_placement="inside", aggregation="token_mean",
        ),
        "Hu et al., arXiv 2501.03262",
        "SEEN-NOTE (equations), SEEN-CODE (verl); no KL term here",
        "local normalisation is biased and overfits",
        "few prompts, one rollout per prompt",
        "never",
    ),
    "reinforce_pp_baseline": Recipe(
        Scheme(
            baseline="prompt", scale="none", whitening="batch", whitening_weight="token",
            eps=1e-8, eps_placement="inside", aggregation="token_mean",
        ),
        "Hu et al., arXiv 2501.03262",
        "SEEN-NOTE (equations), SEEN-CODE (verl); no KL term here",
        "noise of the group's spread",
        "several rollouts per prompt",
        "never",
    ),
    "lite_ppo": Recipe(
        Scheme(baseline="prompt", scale="batch", aggregation="token_mean"),
        "Liu et al., Part I: Tricks or Traps, arXiv 2508.08221",
        "SEEN-NOTE (paper), SEEN-CODE (TRL, ROLL)",
        "division by a small, noisy group spread",
        "easy or concentrated rewards; base models",
        "batch spread equals group spread",
    ),
    "agentrl": Recipe(
        Scheme(
            baseline="prompt", scale="prompt", whitening="environment", whitening_weight="token",
            aggregation="token_mean", dual_clip=3.0,
        ),
        "Zhang et al., AgentRL, arXiv 2510.04206",
        "SEEN-3P; sample spread INFERRED; without cross-policy sampling and KL loss",
        "environments with larger advantages or longer rollouts dominate",
        "many environments trained together",
        "one environment, equal lengths, no dead groups",
    ),
    "erpo": Recipe(
        Scheme(baseline="prompt", scale="environment", aggregation="rollout_mean"),
        "Cai et al., AutoForge, arXiv 2512.22857",
        "SEEN-3P (two digests); ddof, eps, clip and token ratio INFERRED; without KL",
        "noisy spread of a prompt's few rollouts; near-uniform prompts over-weighted",
        "many synthesised environments, small groups, unreliable rollouts",
        "one environment (then: group mean, batch spread)",
    ),
    "ppo": Recipe(
        Scheme(
            signal="gae", baseline="none", scale="none", whitening="batch", whitening_weight="turn",
            aggregation="token_mean",
        ),
        "Schulman et al., arXiv 1707.06347; GAE arXiv 1506.02438",
        "textbook; advantages whitened over the update's turns",
        "-",
        "long horizons, dense rewards, one environment",
        "never",
    ),
}  # fmt: skip


def recipe(name: str) -> Recipe:
    """Look a recipe up.

    Raises:
        ValueError: if there is none of that name; lists them.
    """
    if name not in RECIPES:
        raise ValueError(f"scheme={name!r} is not allowed: it must be one of {sorted(RECIPES)}.")
    return RECIPES[name]
