"""Which settings of LLM trainers equal a recipe, and which arguments here follow their conventions.

Read in the code of verl 0.9.1 and TRL 1.16.0; the conventions are in ``tests/parity/README.md``. In
verl's settings ``actor.`` stands for ``actor_rollout_ref.actor.``.
"""

from __future__ import annotations

from dataclasses import dataclass

VERL, TRL = "verl 0.9.1", "TRL 1.16"


@dataclass(frozen=True)
class CarryOver:
    """A recipe as another tool ships it.

    Attributes:
        recipe: its name here.
        tool: the tool with its version.
        setting: the tool's arguments that make it this recipe, its other defaults given.
        here: the scheme that follows the tool's conventions (eps, groups of one, dual clip).
        differs: what the tool still does otherwise, or ``-``.
    """

    recipe: str
    tool: str
    setting: str
    here: str
    differs: str = "-"


@dataclass(frozen=True)
class Setting:
    """One choice, whatever the recipe, as the tools call it; ``-`` where a tool lacks it.

    Attributes:
        here: field, option or choice of a scheme.
        verl, trl: the tools' arguments.
    """

    here: str
    verl: str
    trl: str


def _verl(recipe: str, setting: str, here: str, differs: str = "-") -> CarryOver:
    return CarryOver(recipe, VERL, setting, here, differs)


def _trl(recipe: str, setting: str, here: str, differs: str = "-") -> CarryOver:
    return CarryOver(recipe, TRL, f"GRPOConfig({setting})", here, differs)


def _verl_loss(recipe: str, setting: str, here: str, differs: str = "-") -> CarryOver:
    """A loss of verl's on GRPO's advantages."""
    return _verl(recipe, f"algorithm.adv_estimator=grpo {setting}", here, differs)


NOT_CUT = "log-ratios are not cut at 20"

CARRY_OVER: tuple[CarryOver, ...] = (
    _verl_loss("grpo", "actor.loss_agg_mode=seq-mean-token-mean", "grpo:singleton=raw,dual_clip=3"),
    _trl("grpo", "loss_type='grpo'", "grpo:eps=1e-4,empty=counted"),
    _verl_loss(
        "dr_grpo",
        "algorithm.norm_adv_by_std_in_grpo=False actor.loss_agg_mode=seq-mean-token-sum-norm "
        "actor.loss_scale_factor=512",
        "dr_grpo:singleton=raw,dual_clip=3,aggregation_constant=512",
        "without loss_scale_factor the constant is the batch's padded width",
    ),
    _trl(
        "dr_grpo", "loss_type='dr_grpo', scale_rewards='none', max_completion_length=512",
        "dr_grpo:aggregation_constant=512,empty=counted",
    ),
    _verl("rloo", "algorithm.adv_estimator=rloo actor.policy_loss.loss_mode=gpg", "rloo:singleton=raw"),
    _verl("rloo", "algorithm.adv_estimator=rloo_vectorized actor.policy_loss.loss_mode=gpg", "rloo"),
    CarryOver(
        "rloo", TRL, "RLOOConfig(beta=0.0)",
        "rloo:surrogate=ppo_clip,ratio=rollout_product,aggregation=rollout_mean,empty=counted", NOT_CUT,
    ),
    _verl("reinforce_pp", "algorithm.adv_estimator=reinforce_plus_plus", "reinforce_pp:dual_clip=3"),
    _verl(
        "reinforce_pp_baseline", "algorithm.adv_estimator=reinforce_plus_plus_baseline",
        "reinforce_pp_baseline:singleton=raw,dual_clip=3",
    ),
    _verl("remax", "algorithm.adv_estimator=remax actor.policy_loss.loss_mode=gpg", "remax"),
    _verl("opo", "algorithm.adv_estimator=opo actor.policy_loss.loss_mode=gpg", "opo:singleton=raw"),
    _verl("gpg", "algorithm.adv_estimator=gpg actor.policy_loss.loss_mode=gpg", "gpg:singleton=raw"),
    _trl("lite_ppo", "loss_type='dapo', scale_rewards='batch'", "lite_ppo:eps=1e-4"),
    _verl(
        "passk", "algorithm.adv_estimator=grpo_passk actor.loss_agg_mode=seq-mean-token-mean", "passk:dual_clip=3",
        "groups of one raise an error",
    ),
    _verl(
        "otb", "algorithm.adv_estimator=tir_optimal_token_baseline actor.calculate_sum_pi_squared=True",
        "otb:dual_clip=3", "1e-8 in the baseline's denominator; optimal_token_baseline goes by position",
    ),
    _verl(
        "ppo", "algorithm.adv_estimator=gae algorithm.gamma=0.99 algorithm.lam=0.95",
        "ppo:whitening_weight=token,eps=1e-8,eps_placement=inside,dual_clip=3",
        "estimates run over tokens there, over turns here",
    ),
    _verl(
        "gdpo", "algorithm.adv_estimator=gdpo algorithm.gdpo_reward_keys=[...]",
        "gdpo:singleton=raw,whitening_weight=token,dual_clip=3", "the whitening divides by sqrt(var + 1e-8); float32",
    ),
    _trl("gdpo", "loss_type='dapo', multi_objective_aggregation='normalize_then_sum'", "gdpo:eps=1e-4"),
    _trl("weighted_sum", "loss_type='grpo', reward_weights=[...]", "weighted_sum:eps=1e-4,empty=counted"),
    _verl_loss("dapo", "actor.clip_ratio_high=0.28", "dapo:singleton=raw,dual_clip=3"),
    _trl("dapo", "loss_type='dapo', epsilon_high=0.28", "dapo:eps=1e-4", NOT_CUT),
    _verl_loss(
        "gspo",
        "actor.policy_loss.loss_mode=gspo actor.loss_agg_mode=seq-mean-token-mean actor.clip_ratio_low=3e-4 "
        "actor.clip_ratio_high=4e-4",
        "gspo:singleton=raw,gradient=own,max_log_ratio=10",
    ),
    _trl(
        "gspo", "loss_type='grpo', importance_sampling_level='sequence', epsilon=3e-4, epsilon_high=4e-4",
        "gspo:eps=1e-4,empty=counted", NOT_CUT,
    ),
    _verl_loss(
        "cispo", "actor.policy_loss.loss_mode=cispo actor.clip_ratio_low=1.0 actor.clip_ratio_high=4.0",
        "cispo:singleton=raw",
    ),
    _trl("cispo", "loss_type='cispo', epsilon_high=5.0", "cispo:eps=1e-4,bounds=absolute,ratio_max=5"),
    _verl_loss("sapo", "actor.policy_loss.loss_mode=sapo", "sapo:singleton=raw"),
    _trl("sapo", "loss_type='sapo'", "sapo:eps=1e-4,empty=counted", NOT_CUT),
    _verl_loss(
        "gmpo", "actor.policy_loss.loss_mode=geo_mean actor.clip_ratio_low=0.4 actor.clip_ratio_high=0.4",
        "gmpo:singleton=raw,empty=counted", "1e-8 in the denominators of the rollout's means",
    ),
    CarryOver("gmpo", TRL, "trl.experimental.gmpo.GMPOConfig()", "gmpo:eps=1e-4,empty=counted"),
    _verl_loss(
        "clip_cov", "actor.policy_loss.loss_mode=clip_cov", "clip_cov:singleton=raw",
        f"which tokens are drawn; {NOT_CUT}",
    ),
    _verl_loss(
        "kl_cov", "actor.policy_loss.loss_mode=kl_cov", "kl_cov:singleton=raw,kl_cov_coef=0.1", NOT_CUT,
    ),
    _verl_loss("dppo_tv", "actor.policy_loss.loss_mode=dppo_tv actor.clip_ratio_c=20", "dppo_tv:singleton=raw"),
    _verl_loss(
        "dppo_kl",
        "actor.policy_loss.loss_mode=dppo_kl actor.clip_ratio_low=0.05 actor.clip_ratio_high=0.05 "
        "actor.clip_ratio_c=20",
        "dppo_kl:singleton=raw",
    ),
    _verl_loss(
        "dro",
        "algorithm.norm_adv_by_std_in_grpo=False actor.policy_loss.loss_mode=dro actor.policy_loss.dro_beta=0.1",
        "dro:singleton=raw",
    ),
    _trl("vespo", "loss_type='vespo'", "vespo:eps=1e-4"),
    _trl(
        "luspo", "loss_type='luspo', importance_sampling_level='sequence', epsilon=2e-3, epsilon_high=2.5e-3",
        "luspo:eps=1e-4,empty=counted", NOT_CUT,
    ),
)  # fmt: skip
"""The recipes that verl and TRL ship."""

SETTINGS: tuple[Setting, ...] = (
    Setting("scale=none", "algorithm.norm_adv_by_std_in_grpo=False", "scale_rewards='none'"),
    Setting("scale=prompt", "algorithm.norm_adv_by_std_in_grpo=True", "scale_rewards='group'"),
    Setting("scale=batch", "-", "scale_rewards='batch'"),
    Setting("eps", "1e-6", "1e-4"),
    Setting("singleton", "raw", "zero"),
    Setting("aggregation=token_mean", "actor.loss_agg_mode=token-mean", "loss_type='dapo'"),
    Setting("aggregation=rollout_mean", "actor.loss_agg_mode=seq-mean-token-mean", "loss_type='grpo'"),
    Setting("aggregation=token_sum", "actor.loss_agg_mode=seq-mean-token-sum", "loss_type='luspo'"),
    Setting("aggregation=plain_sum", "actor.loss_agg_mode=token-sum", "-"),
    Setting(
        "aggregation=constant, aggregation_constant",
        "actor.loss_agg_mode=seq-mean-token-sum-norm, actor.loss_scale_factor",
        "loss_type='dr_grpo', max_completion_length",
    ),
    Setting("clip_low, clip_high", "actor.clip_ratio_low, actor.clip_ratio_high", "epsilon, epsilon_high"),
    Setting("dual_clip", "actor.clip_ratio_c (3 unless set; never off)", "-"),
    Setting("ratio_cap", "-", "delta"),
    Setting("ratio=rollout_mean", "actor.policy_loss.loss_mode=gspo", "importance_sampling_level='sequence'"),
    Setting("surrogate=reinforce", "actor.policy_loss.loss_mode=gpg", "-"),
    Setting(
        "kl=k3, kl_coef", "actor.use_kl_loss=True, actor.kl_loss_coef", "beta (with use_bias_correction_kl=False)"
    ),
    Setting("kl=k3_corrected, kl_coef", "-", "beta"),
    Setting(
        "correction=tis, weight_max",
        "algorithm.rollout_correction.rollout_is=token, .rollout_is_threshold",
        "vllm_importance_sampling_mode='token_truncate', vllm_importance_sampling_clip_max",
    ),
    Setting(
        "correction=icepop, level=rollout, weight_min=0, weight_max=3", "-",
        "the default where vLLM samples; vllm_importance_sampling_correction=False switches it off",
    ),
    Setting("token_filter=off_policy, drift_max", "-", "off_policy_mask_threshold"),
    Setting("token_filter=top_entropy, entropy_share", "-", "top_entropy_quantile"),
)  # fmt: skip
"""What goes with any recipe."""
