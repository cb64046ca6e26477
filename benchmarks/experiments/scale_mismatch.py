"""Do levels that rescale rewards across environments save those with small rewards?"""

import dataclasses

from benchmarks.experiment import Budget, Experiment, Regime

SPREADS = (1.0, 10.0, 100.0, 1000.0)

EXPERIMENT = Experiment(
    name="scale_mismatch",
    question="Four environments share one policy; their reward scales differ by a factor of 1 to 1000. "
    "Which schemes still learn the environment with the smallest rewards?",
    claim="Levels that never rescale across environments (no scale, batch scale) starve environments with "
    "small rewards as the spread grows; prompt and environment levels do not.",
    axis="ratio of the largest to the smallest reward scale",
    metric="mean",
    regimes=tuple(
        Regime(f"spread-{spread:g}", "agentic_gym/Mixture-v0", {"preset": "scale", "spread": spread}, spread)
        for spread in SPREADS
    ),
    schemes=(
        "reinforce",
        "reinforce_pp",
        "reinforce_pp_baseline",
        "dr_grpo",
        "rloo",
        "lite_ppo",
        "grpo",
        "agentrl",
        "erpo",
        "ppo",
    ),
    seeds=tuple(range(20)),
    tuning_seeds=(100, 101),
    learning_rates=(3e-4, 1e-3, 3e-3, 1e-2),
    budget=Budget(
        total_turns=24_000,
        n_prompts=16,
        group_size=8,
        n_epochs=4,
        n_minibatches=2,
        n_evaluations=6,
        eval_rollouts=48,
        warmstart_success=0.2,
    ),
)

QUICK = dataclasses.replace(
    EXPERIMENT,
    name="scale_mismatch_quick",
    regimes=tuple(regime for regime in EXPERIMENT.regimes if regime.axis_value in (1.0, 1000.0)),
    seeds=(0, 1, 2),
    tuning_seeds=(),
    learning_rates=(1e-3,),
)
