"""The families of environments, one file each."""

from agentic_gym.families.chain import Chain
from agentic_gym.families.database import Database
from agentic_gym.families.desk import Desk
from agentic_gym.families.household import Household
from agentic_gym.families.reason import Reason
from agentic_gym.families.repair import Repair
from agentic_gym.families.report import Report
from agentic_gym.families.search import Search
from agentic_gym.families.shop import Shop

FAMILIES = {family.name: family for family in (Reason, Search, Household, Shop, Database, Repair, Desk, Report, Chain)}

__all__ = ["FAMILIES", "Chain", "Database", "Desk", "Household", "Reason", "Repair", "Report", "Search", "Shop"]
