"""Synthetic multi-turn environments with deliberately mismatched reward scales and depths.

Importing the package registers its ids with Gymnasium:

    import gymnasium, agentic_gym
    env = gymnasium.make("agentic_gym/Search-v0", reward_scale=100.0)
"""

from agentic_gym.engine import AgenticVectorEnv
from agentic_gym.registration import IDS, register_all
from agentic_gym.single import AgenticEnv
from agentic_gym.truth import Truth, truth

__version__ = "0.1.0"
__all__ = ["IDS", "AgenticEnv", "AgenticVectorEnv", "Truth", "truth"]

register_all()
