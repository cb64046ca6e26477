"""The claims, fixed before the runs."""

from __future__ import annotations

from benchmarks.claims.claim import Arm, Claim, Direction
from benchmarks.claims.regimes import (
    CHAIN,
    CHAIN_2_OPTIONS,
    CHAIN_8_OPTIONS,
    CHAIN_FEW_PROMPTS,
    CHAIN_FILLER,
    CHAIN_GRADED,
    CHAIN_HEAVY_NOISE,
    CHAIN_LONG,
    CHAIN_OFFSET,
    CHAIN_ONE_PROMPT,
    DIFFICULTIES,
    EVERYTHING,
    FREQUENCIES,
    HOUSEHOLD,
    LONG,
    REPAIR,
    REPORT,
    SCALES,
    SEARCH,
    SHORT,
    long,
    short,
)
from benchmarks.experiment import Budget, Regime

GRPO_TOKEN = "grpo:aggregation=token_mean"
OFF_POLICY = short(n_epochs=8, n_minibatches=4)
HOUSE_BUDGET = long(total_turns=60_000)
SEARCH_BUDGET = long(n_epochs=2)


def _claim(
    key: str,
    source: str,
    statement: str,
    treatment: str,
    control: str,
    regime: Regime,
    budget: Budget = SHORT,
    metric: str = "score",
    direction: Direction = "greater",
    control_budget: Budget | None = None,
    against: tuple[Regime, Budget] | None = None,
    note: str = "",
    tune_width: bool = False,
) -> Claim:
    """Compare two schemes in one regime; ``against`` subtracts the same difference in another.

    Where a width is tuned it is tuned for both, lest one of them have more to choose from.
    """
    other = None
    if against is not None:
        other = (Arm(treatment, *against), Arm(control, *against))
    return Claim(
        key, source, statement, Arm(treatment, regime, budget, tune_width),
        Arm(control, regime, budget if control_budget is None else control_budget, tune_width), metric,
        direction, other, note=note,
    )  # fmt: skip


CLAIMS: tuple[Claim, ...] = (
    _claim(
        "grpo-baseline", "GRPO, arXiv 2402.03300", "The group's mean as a baseline beats no baseline.",
        "grpo:scale=none", "grpo:scale=none,baseline=none", CHAIN,
    ),
    _claim(
        "grpo-baseline-offset", "GRPO, arXiv 2402.03300",
        "The group's mean as a baseline removes a common offset of the rewards.",
        "grpo:scale=none", "grpo:scale=none,baseline=none", CHAIN_OFFSET,
    ),
    _claim(
        "dr-grpo-length", "Dr.GRPO, arXiv 2503.20783",
        "Dividing each rollout's loss by its length makes wrong answers longer than a constant divisor does.",
        "dr_grpo", "grpo:scale=none", CHAIN_FILLER, metric="tokens_wrong", direction="less",
        note="mean over training; the metric was fixed anew after tokens of all rollouts at the end were inconclusive",
    ),
    _claim(
        "dr-grpo-difficulty", "Dr.GRPO, arXiv 2503.20783",
        "Without division by the group's spread, prompts of unequal difficulty are learned better.",
        "grpo:scale=none", "grpo", DIFFICULTIES, LONG,
    ),
    _claim(
        "curvature-gain", "Why GRPO needs normalisation, arXiv 2601.23135",
        "Division by the group's spread beats mean-only centring.", "grpo", "grpo:scale=none", CHAIN,
    ),
    _claim(
        "curvature-spread", "Why GRPO needs normalisation, arXiv 2601.23135",
        "The gain of dividing by the spread grows with the mean spread (base success 0.4 against 0.05).",
        "grpo", "grpo:scale=none", CHAIN, short(warmstart_success=0.4), against=(CHAIN, short(warmstart_success=0.05)),
    ),
    _claim(
        "curvature-aligned", "Why GRPO needs normalisation, arXiv 2601.23135",
        "The gain of dividing by the spread shrinks as the prompts' gradients align (2 options against 8).",
        "grpo", "grpo:scale=none", CHAIN_2_OPTIONS, SHORT, against=(CHAIN_8_OPTIONS, SHORT), direction="less",
        note="with few options prompts share their cues; base policies succeed equally often",
    ),
    _claim(
        "curvature-one-prompt", "Why GRPO needs normalisation, arXiv 2601.23135",
        "With a single prompt there is no gain from dividing by the spread.",
        "grpo", "grpo:scale=none", CHAIN_ONE_PROMPT, short(eval_split="train"), direction="equal",
        note="measured on the prompt itself",
    ),
    _claim(
        "lite-ppo", "Lite PPO, arXiv 2508.08221",
        "The batch's spread is a more robust divisor than the group's.", "lite_ppo", GRPO_TOKEN, CHAIN,
    ),
    _claim(
        "lite-ppo-easy", "Lite PPO, arXiv 2508.08221",
        "On easy prompts with concentrated rewards the group's spread should be dropped.",
        "grpo:scale=none", "grpo", CHAIN, short(warmstart_success=0.8),
    ),
    _claim(
        "reinforce-pp-few-prompts", "REINFORCE++, arXiv 2501.03262",
        "Global normalisation generalises better than the group's when prompts are few (test prompts).",
        "reinforce_pp_baseline", GRPO_TOKEN, CHAIN_FEW_PROMPTS,
    ),
    _claim(
        "rloo-small-groups", "RLOO, arXiv 2402.14740",
        "Leaving the rollout out of its own baseline helps in groups of 2.",
        "rloo", "rloo:baseline_kind=mean", CHAIN, short(n_prompts=32, group_size=2),
        note="the advantages differ by a constant factor only, which Adam takes out",
    ),
    _claim(
        "mc-grpo-small-groups", "MC-GRPO, arXiv 2601.22582",
        "A median baseline beats the mean in groups of 4.", "mc_grpo", "grpo", CHAIN,
        short(n_prompts=16, group_size=4),
        note="noise-free binary rewards, where the spread about the median is often 0; even groups, where the "
        "paper draws one more rollout for the median",
    ),
    _claim(
        "opo-length", "OPO, arXiv 2505.23585",
        "Where lengths vary, the length-weighted baseline beats the mean.",
        "opo", "opo:baseline_kind=mean", CHAIN_FILLER, short(n_epochs=1, n_minibatches=1),
    ),
    _claim(
        "ngrpo-hard", "NGRPO, arXiv 2509.18851",
        "A virtual best reward gives groups that all fail a signal, which helps on hard prompts.",
        "ngrpo", "ngrpo:baseline_kind=mean,scale_kind=std", CHAIN, short(warmstart_success=0.03),
    ),
    _claim(
        "maxrl-difficulty", "MaxRL, arXiv 2602.02710",
        "Dividing by the mean reward serves hard environments better than dividing by the spread.",
        "maxrl", "grpo", DIFFICULTIES, LONG, metric="score.worst",
        note="the worst environment is nearly always `Search`, not the one with the hardest prompts",
    ),
    _claim(
        "gapo-robust-noise", "GAPO for code, arXiv 2510.21830",
        "A baseline from the densest half is robust against heavy-tailed rewards.",
        "gapo_robust", "grpo:dual_clip=10", CHAIN_HEAVY_NOISE,
    ),
    _claim(
        "agentrl-task-norm", "AgentRL, arXiv 2510.04206",
        "Whitening advantages per task helps when many unequal tasks are trained together.",
        "agentrl", "agentrl:whitening=none", EVERYTHING, LONG,
    ),
    _claim(
        "agentrl-cross-policy", "AgentRL, arXiv 2510.04206",
        "Messages from a stale copy keep exploration and raise the final score.",
        "agentrl:sampling=cross_policy", "agentrl", CHAIN, metric="score@end",
        note="one environment, and a stale copy that is renewed once in the run; the paper trains long on many tasks",
    ),
    _claim(
        "erpo-scale", "AutoForge (ERPO), arXiv 2512.22857",
        "The environment's spread is a better divisor than the prompt's with small groups.",
        "erpo", "grpo", SCALES, long(n_prompts=32, group_size=4),
    ),
    _claim(
        "erpo-batch", "AutoForge (ERPO), arXiv 2512.22857",
        "With unequal reward scales the environment's spread beats the batch's.",
        "erpo", "erpo:scale=batch", SCALES, LONG, metric="score.worst",
        note="the worst environment is `Search`, not the one with the smallest rewards",
    ),
    _claim(
        "igpo-search", "IGPO, arXiv 2510.14967",
        "Information gain as a turn reward beats the outcome alone in multi-turn search.",
        "igpo", "grpo", SEARCH, SEARCH_BUDGET,
    ),
    _claim(
        "a2tgpo-turn-groups", "A2TGPO, arXiv 2605.06200",
        "Normalising gains within turns of the same index beats one pool.",
        "igpo:pool=turn", "igpo", SEARCH, SEARCH_BUDGET,
    ),
    _claim(
        "a2tgpo-root", "A2TGPO, arXiv 2605.06200",
        "Dividing the sum of gains by the root of their number beats the plain sum.",
        "igpo:pool=turn,outcome_in_sum=false,accumulation=root", "igpo:pool=turn,outcome_in_sum=false",
        SEARCH, SEARCH_BUDGET,
    ),
    _claim(
        "a2tgpo-clip", "A2TGPO, arXiv 2605.06200",
        "Clip bounds that widen with a turn's gain beat fixed ones.",
        "a2tgpo", "a2tgpo:bounds=fixed", SEARCH, SEARCH_BUDGET, tune_width=True,
    ),
    _claim(
        "a2tgpo-grpo", "A2TGPO, arXiv 2605.06200", "The whole method beats GRPO in search.",
        "a2tgpo", "grpo", SEARCH, SEARCH_BUDGET, tune_width=True,
    ),
    _claim(
        "gigpo-household", "GiGPO, arXiv 2505.10978",
        "Comparing turns in the same state helps in long tasks that revisit states.",
        "gigpo", "gigpo:step_weight=0", HOUSEHOLD, HOUSE_BUDGET,
    ),
    _claim(
        "gigpo-grpo", "GiGPO, arXiv 2505.10978", "GiGPO beats GRPO in household tasks.",
        "gigpo", GRPO_TOKEN, HOUSEHOLD, HOUSE_BUDGET,
    ),
    _claim(
        "g2po-gigpo", "G2PO, arXiv 2606.22995", "Node values of the merged graph beat single returns.",
        "g2po", "gigpo", HOUSEHOLD, HOUSE_BUDGET,
    ),
    _claim(
        "graphgpo-gigpo", "GraphGPO, arXiv 2605.26684", "Distance to success beats single returns.",
        "graphgpo", "gigpo:norm=mean_std", HOUSEHOLD, HOUSE_BUDGET,
    ),
    _claim(
        "gdpo-report", "GDPO, arXiv 2601.05242",
        "Normalising each of several rewards before adding them beats normalising the sum.",
        "gdpo", "gdpo:signal=component_sum", REPORT, LONG,
    ),
    _claim(
        "maestro-report", "MAESTRO, arXiv 2601.07208",
        "Learned weights of several rewards beat fixed ones.", "maestro", "weighted_sum", REPORT, LONG,
        note="conductor with this project's stand-ins",
    ),
    _claim(
        "spo-budget", "SPO, arXiv 2509.13232",
        "A tracked baseline with one rollout per prompt beats groups of 8 at equal rollouts.",
        "spo", "grpo:aggregation=token_mean,clip_high=0.28", CHAIN_FEW_PROMPTS,
        short(n_prompts=64, group_size=1, eval_split="train"), control_budget=short(eval_split="train"),
        note="8 prompts, which the tracker sees often, also within an update; drawn with priorities; measured on these",
    ),
    _claim(
        "disco-frequency", "DISCO, arXiv 2505.15074",
        "Weights for rare domains and hard prompts lift the rarest environment.",
        "disco", "disco:weights=none", FREQUENCIES, LONG, metric="score.ChainLong",
    ),
    _claim(
        "trace-budget", "TRACE, arXiv 2606.11119",
        "Rollouts spent where outcomes are likely to be mixed beat uniform groups at equal turns.",
        "grpo:sampling=trace", "grpo", CHAIN, short(warmstart_success=0.05),
        note="predictor, caps and treatment of shared prefixes are this project's",
    ),
    _claim(
        "cuts-saturated", "CUTS, arXiv 2604.18493",
        "Sampling uniformly among likely tokens revives saturated prompts.",
        "grpo:sampling=cuts", "grpo", CHAIN, short(warmstart_success=0.8), metric="score@end",
    ),
    _claim(
        "signal-reshaping", "Signal Reshaping, arXiv 2605.07276",
        "Process weights inside a rollout help weak-feedback code repair.",
        "signal_reshaping", "grpo", REPAIR, LONG,
        note="gains of the answer probability stand for process scores, and leave answers untrained",
    ),
    _claim(
        "vgpo-dense", "VGPO, arXiv 2512.12387",
        "Weights by discounted reward to go and an absolute anchor beat GRPO with step rewards.",
        "vgpo", "grpo", CHAIN_GRADED, note="closed form inferred, transferred from image generation",
    ),
    _claim(
        "dapo-clip-higher", "DAPO, arXiv 2503.14476", "A higher upper bound keeps the entropy up.",
        "grpo:clip_high=0.28", "grpo", CHAIN, OFF_POLICY, metric="entropy@end",
    ),
    _claim(
        "dapo-dynamic-sampling", "DAPO, arXiv 2503.14476",
        "Dropping groups without signal speeds learning per update.",
        "grpo:sampling=dynamic", "grpo", CHAIN, short(warmstart_success=0.05),
        note="compared at equal environment turns, which counts the dropped groups",
    ),
    _claim(
        "dapo-token-mean", "DAPO, arXiv 2503.14476",
        "The token mean curbs the growth of long wrong answers.",
        GRPO_TOKEN, "grpo", CHAIN_FILLER, metric="tokens_wrong", direction="less",
        note="mean over training; the metric was fixed anew after tokens of all rollouts at the end were inconclusive",
    ),
    _claim(
        "gspo-off-policy", "GSPO, arXiv 2507.18071",
        "A ratio per rollout beats token ratios over several updates.", "gspo", "grpo", CHAIN, OFF_POLICY,
        tune_width=True,
    ),
    _claim(
        "gspo-one-update", "GSPO, arXiv 2507.18071",
        "With one update per batch the ratio's level makes no difference.",
        "gspo", "grpo", CHAIN, short(n_epochs=1, n_minibatches=1), direction="equal",
        note="an identity of the formulas: it checks the implementation",
    ),
    _claim(
        "cispo-off-policy", "CISPO, arXiv 2506.13585",
        "Clipping the weight instead of the gradient helps over several updates.",
        "cispo", GRPO_TOKEN, CHAIN, OFF_POLICY,
    ),
    _claim(
        "sapo-off-policy", "SAPO, arXiv 2511.20347", "A soft gate beats the hard clip over several updates.",
        "sapo", "grpo", CHAIN, OFF_POLICY,
    ),
    _claim(
        "gapo-clip", "GAPO (clipping), arXiv 2609.00444",
        "Room to grow in proportion to the advantage helps on hard prompts.",
        "gapo", "gapo:bounds=fixed", CHAIN, short(n_epochs=8, n_minibatches=4, warmstart_success=0.05),
        tune_width=True, note="the tuned width is so wide that the clip hardly acts",
    ),
    _claim(
        "dcpo-clip", "DCPO, arXiv 2509.02333",
        "Bounds that widen for unlikely tokens beat fixed ones.",
        "grpo:bounds=prior", "grpo", CHAIN, OFF_POLICY,
    ),
    _claim(
        "m2po-stale", "M2PO, arXiv 2510.01161",
        "Clipping by the second moment tolerates stale rollouts better than fixed bounds.",
        "m2po", GRPO_TOKEN, CHAIN, short(staleness=8),
    ),
    _claim(
        "critic-long-horizon", "study of GRPO in classical RL, arXiv 2511.03527",
        "A critic pays off on long horizons.", "ppo", "grpo", CHAIN_GRADED,
    ),
    _claim(
        "small-groups", "study of GRPO in classical RL, arXiv 2511.03527",
        "Small groups beat large ones at equal rollouts.",
        "grpo", "grpo", CHAIN, short(n_prompts=16, group_size=4), control_budget=short(n_prompts=2, group_size=32),
    ),
    _claim(
        "no-kl-collapse", "study of GRPO under sparse reward, arXiv 2604.06159",
        "Under a sparse final reward GRPO without KL ends lower than with it.",
        "grpo:kl=k3,kl_coef=0.01", "grpo", CHAIN, OFF_POLICY, metric="score@end",
        note="here GRPO without KL does not collapse, so there is nothing to prevent",
    ),
    _claim(
        "masking-dead-groups", "study of GRPO under sparse reward, arXiv 2604.06159",
        "Leaving groups without signal out of the loss hurts over several epochs.",
        "grpo:dead_groups=excluded", "grpo", CHAIN, OFF_POLICY, direction="less",
    ),
    _claim(
        "rebn-dense", "GEM, arXiv 2510.01051",
        "Batch-normalised discounted returns beat GRPO with dense turn rewards.",
        "grpo:signal=return_to_go,gamma=0.9,baseline=none,scale=none,whitening=batch,whitening_weight=turn",
        "grpo", CHAIN_GRADED,
    ),
    _claim(
        "ragen-filter", "RAGEN, arXiv 2504.20073",
        "Keeping the quarter of prompts with the largest spread stabilises learning at equal turns.",
        "grpo:sampling=top_variance", "grpo", CHAIN, short(warmstart_success=0.05),
        note="the rollouts that are filtered out count",
    ),
    _claim(
        "rewards-final-or-dense", "GEM, arXiv 2510.01051",
        "The gain of batch-normalised returns comes from dense rewards: it is larger than with final ones.",
        "grpo:signal=return_to_go,gamma=0.9,baseline=none,scale=none,whitening=batch,whitening_weight=turn",
        "grpo", CHAIN_GRADED, against=(CHAIN_LONG, SHORT),
    ),
)  # fmt: skip
