"""Whatever the knobs: bounds, bookkeeping and determinism hold."""

from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

import agentic_gym

COMMON = {
    "reward_scale": st.floats(1e-6, 1e6),
    "reward_offset": st.floats(-1e3, 1e3),
    "reward_noise": st.sampled_from([0.0, 0.0, 0.5]),
    "reward_noise_dist": st.sampled_from(["normal", "student_t"]),
    "dense": st.booleans(),
    "difficulty": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    "filler": st.integers(0, 5),
    "slip": st.sampled_from([0.0, 0.3, 1.0]),
    "num_prompts": st.integers(8, 100),
    "common_random_numbers": st.booleans(),
}
OWN: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "Reason": {"depth": st.integers(1, 8), "reach": st.integers(1, 9)},
    "Search": {"depth": st.integers(2, 6), "entities": st.integers(4, 24), "relations": st.integers(2, 8)},
    "Household": {"depth": st.integers(1, 4)},
    "Shop": {"depth": st.integers(1, 4), "pages": st.integers(1, 4)},
    "Database": {"depth": st.integers(1, 4)},
    "Repair": {
        "depth": st.integers(1, 3), "failure": st.sampled_from([0.0, 0.1, 0.5]), "statements": st.integers(4, 32),
    },
    "Desk": {"depth": st.integers(1, 5), "tail": st.sampled_from([1.1, 2.0, 10.0]), "prices": st.integers(1, 60)},
    "Report": {
        "depth": st.integers(1, 5), "accuracy_scale": st.floats(5.0, 1000.0), "section_cost": st.floats(0.1, 0.8),
        "n_rewards": st.integers(1, 4), "findings": st.integers(2, 8),
    },
    "Chain": {"depth": st.integers(1, 9), "options": st.integers(2, 32), "graded": st.booleans()},
}  # fmt: skip
"""Family -> the knobs whose range is its own."""


def family(name: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"family": st.just(name)}, optional={**COMMON, **OWN[name]})


single = st.sampled_from(list(OWN)).flatmap(family)
mixture = st.lists(
    st.tuples(single, st.integers(1, 4)), min_size=1, max_size=3
).map(
    lambda members: {
        "family": "Mixture",
        "environments": [
            {**knobs, "weight": weight, "name": str(index)} for index, (knobs, weight) in enumerate(members)
        ],
    }
)  # fmt: skip


@hypothesis.settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(arguments=st.one_of(single, mixture), max_turns=st.none() | st.integers(9, 20))
def test_invariants(tools: Any, arguments: dict[str, Any], max_turns: int | None) -> None:
    arguments = {**arguments, "max_turns": max_turns}
    engine, twin = (agentic_gym.AgenticVectorEnv(10, autoreset_mode="Disabled", **arguments) for _ in range(2))
    played, again = (tools.run(e, tools.mixed(4), rollout=np.arange(10)) for e in (engine, twin))
    for one, two in zip(played.observations, again.observations, strict=True):
        np.testing.assert_array_equal(one, two)
        assert one in engine.observation_space
    np.testing.assert_array_equal(played.rewards, again.rewards)
    members = engine.family.members
    environment, info = played.info["environment"], played.info
    assert (played.terminated ^ played.truncated).all()
    assert ((info["score"] >= 0) & (info["score"] <= 1)).all()
    assert not (info["is_success"] & played.truncated).any()
    for row, member in enumerate(members[e] for e in environment):
        knobs = member.knobs
        assert info["turn"][row] <= member.turn_limit == (max_turns or member.default_max_turns())
        assert member.tasks[info["task"][row]]
        if knobs.reward_noise == 0:
            expected = knobs.reward_scale * played.values[row] + knobs.reward_offset
            assert np.isclose(played.returns[row], expected, rtol=1e-9, atol=1e-9 * knobs.reward_scale)
        if knobs.slip == 1.0:
            assert not info["is_success"][row]
    assert info["token_count"].max() <= engine.grammar.n_slots
    assert info["ground_truth"].max() < engine.grammar.n_tokens
    assert engine.grammar.parse(info["ground_truth"], environment).legal.all()
    assert engine.max_tokens >= engine.grammar.n_slots
