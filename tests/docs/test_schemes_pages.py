"""The generated pages of the schemes are current, and the table of LLM trainers is true."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

from algos import RECIPES, RolloutBatch, advantages, make_scheme, parts
from algos.parts import AXES, choices
from algos.recipes.carry_over import CARRY_OVER, SETTINGS, VERL
from algos.scheme import FIELDS

REPOSITORY = Path(__file__).parents[2]
REFERENCE = REPOSITORY / "tests" / "parity" / "reference" / "verl_advantages.npz"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_schemes", REPOSITORY / "docs" / "generate_schemes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_current(generator):
    for name, text in generator.render(generator.load_parity()).items():
        stored = (generator.PAGES / name).read_text()
        assert stored == text, f"docs/schemes/{name} is out of date: run python docs/generate_schemes.py"


def test_writing_them(generator, tmp_path, monkeypatch):
    monkeypatch.setattr(generator, "PAGES", tmp_path / "schemes")
    generator.main()
    assert {path.name for path in (tmp_path / "schemes").iterdir()} == {"index.md", "parts.md", "carry-over.md"}


def test_the_pages_name_everything(generator):
    pages = generator.render({})
    assert {row[0].strip("`") for row in generator.cost_rows()} == set(RECIPES), "run make speed"
    assert all(pages["index.md"].count(f"\n| `{name}` |") == 4 for name in RECIPES)
    assert all(f"\n| `{name}` |" in pages["parts.md"] for axis in AXES for name in choices(axis))
    for page in pages.values():
        for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
            # An unescaped bar would add a column.
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_the_cost_is_relative_to_ppo_with_or_without_a_critic(generator, tmp_path):
    path = tmp_path / "speed.json"
    path.write_text(json.dumps({"train_milliseconds": {"grpo": 10.0, "ppo": 20.0, "gae_turn": 22.0, "gspo": 13.0}}))
    rows = {name.strip("`"): (time, share) for name, time, share in generator.cost_rows(path)}
    assert list(rows) == ["gspo", "gae_turn", "grpo", "ppo"]
    assert generator.cost_rows(tmp_path / "none.json") == []
    assert rows["gspo"] == ("13.0", "1.30") and rows["gae_turn"] == ("22.0", "1.10")


def test_parity_is_shown_where_it_is_known(generator, tmp_path):
    assert generator.load_parity(tmp_path / "none.json") == {}
    path = tmp_path / "status.json"
    path.write_text(json.dumps({"grpo": [{"tool": "verl", "difference": 2.2e-16}, {"tool": "TRL", "difference": 0.0}]}))
    page = generator.index_page(generator.load_parity(path))
    (line,) = [line for line in page.splitlines() if line.startswith("| `grpo` | outcome")]
    assert line.endswith("| verl: 2e-16<br>TRL: 0 |")


def test_levels_that_coincide():
    """The page says that erpo and lite_ppo give equal advantages where there is one environment."""
    returns = np.random.default_rng(0).normal(size=12)
    one = RolloutBatch.from_arrays(returns=returns, prompt=np.repeat([0, 1, 2], 4), environment=np.zeros(12, int))
    np.testing.assert_array_equal(advantages("erpo", one), advantages("lite_ppo", one))
    two = RolloutBatch.from_arrays(returns=returns, prompt=np.repeat([0, 1, 2], 4), environment=np.repeat([0, 1, 1], 4))
    assert not np.allclose(advantages("erpo", two), advantages("lite_ppo", two))


@pytest.mark.parametrize("entry", CARRY_OVER, ids=lambda entry: f"{entry.recipe}-{entry.tool}-{entry.here}")
def test_what_is_carried_over_is_a_scheme_here(entry):
    assert entry.recipe in RECIPES and entry.here.partition(":")[0] == entry.recipe
    make_scheme(entry.here)


def test_settings_name_fields_options_and_choices():
    for setting in SETTINGS:
        for piece in setting.here.split(", "):
            name, _, value = piece.partition("=")
            assert name in FIELDS or parts.owners(name), name
            if name in AXES:
                assert value in choices(name)


# Of verl's cases those that a batch of outcomes can express.
CASES = r"(grpo|rloo|rloo_vectorized|reinforce_plus_plus_baseline|opo|gpg|grpo_passk|gdpo)\.\w+"
CASES += r"|(remax\.terminal|reinforce_plus_plus\.terminal\.gamma1\.0)\.\w+"
CASES += r"|tir_optimal_token_baseline\.terminal\.zero_tail\.\w+"


@pytest.mark.parametrize(
    "entry",
    [entry for entry in CARRY_OVER if entry.tool == VERL and entry.recipe != "ppo"],
    ids=lambda entry: f"{entry.recipe}-{entry.here}",
)
def test_credit_by_verls_conventions_is_verls(entry):
    with np.load(REFERENCE) as file:
        data = dict(file)
    estimator = re.search(r"adv_estimator=(\w+)", entry.setting)[1]
    if "norm_adv_by_std_in_grpo=False" in entry.setting:
        estimator += "_no_std"
    cases = json.loads(str(data["meta"]))["cases"]
    found = {
        case: settings["batch"]
        for case, settings in cases.items()
        if case.split(".")[0] == estimator and re.fullmatch(CASES.replace("grpo|", "grpo|grpo_no_std|", 1), case)
    }
    assert found
    for case, batch in found.items():
        inputs = {key.split("/")[-1]: data[key] for key in data if key.startswith(f"inputs/{batch}/")}
        made = RolloutBatch.from_arrays(
            returns=inputs["reward"], prompt=inputs["group"], token_mask=inputs["mask"],
            greedy_return=inputs["reward_baseline"], components=inputs["components"],
            log_prob=inputs["old_log_prob"], probability_square=inputs["sum_pi_squared"],
        )  # fmt: skip
        credit = advantages(entry.here, made)
        credit = credit if credit.ndim == 2 else credit[:, None] * np.ones(inputs["mask"].shape)
        inside = inputs["mask"].astype(bool)
        np.testing.assert_allclose(credit[inside], data[f"{case}/advantages"][inside], rtol=5e-6, atol=5e-6)
