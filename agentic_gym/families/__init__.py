"""The families of environments, one file each."""

from agentic_gym.families.chain import Chain
from agentic_gym.families.database import Database
from agentic_gym.families.search import Search

FAMILIES = {family.name: family for family in (Chain, Search, Database)}

__all__ = ["FAMILIES", "Chain", "Database", "Search"]
