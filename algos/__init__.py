"""Group-rollout PPO on stable-baselines3, and the schemes that it can train with.

    from algos import GroupPPO
    GroupPPO("MessagePolicy", "agentic_gym/Chain-v0", scheme="grpo").learn(100_000)

Without the trainer, on your own rollouts:

    from algos import RolloutBatch, advantages, policy_loss
    batch = RolloutBatch.from_arrays(returns=[1, 0, 0, 0], prompt=[7, 7, 7, 7])
    advantages("grpo", batch)
"""

from algos.advantages import advantages, update_memory
from algos.batch import RolloutBatch
from algos.first_values import estimate_first_values
from algos.group_ppo import GroupPPO
from algos.memory import Memory
from algos.policies import MessagePolicy
from algos.recipes import RECIPES, Recipe, register_recipe
from algos.scheme import Scheme, make_scheme
from algos.surrogates import policy_loss

__all__ = [
    "RECIPES",
    "GroupPPO",
    "Memory",
    "MessagePolicy",
    "Recipe",
    "RolloutBatch",
    "Scheme",
    "advantages",
    "estimate_first_values",
    "make_scheme",
    "policy_loss",
    "register_recipe",
    "update_memory",
]
