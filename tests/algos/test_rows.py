"""Rows: every kind of environment gives the same rollouts, and nothing is passed over silently."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecMonitor, VecNormalize

from agentic_gym.sb3 import AgenticVecEnv
from algos import MessagePolicy
from algos.cartpole_rows import CartPoleRows
from algos.collector import collect
from algos.rows import SEED_PROMPTS, ScalarRows, VectorRows, make_rows

IDS = ["agentic_gym/Chain-v0", "agentic_gym/Search-v0", "agentic_gym/Database-v0", "agentic_gym/Mixture-v0"]
PROMPT = np.repeat([5, 0, 3, 2], 3)
ROLLOUT = np.arange(12) * 7919 + 1


def kinds(env_id):
    """The same 12 environments in every shape in which a user may have them."""

    def make():
        return gymnasium.make(env_id)

    knobs = gymnasium.spec(env_id).kwargs
    return {
        "id": env_id,
        "scalar": make(),
        "engine": gymnasium.make_vec(env_id, num_envs=2, vectorization_mode="vector_entry_point"),
        "sync": SyncVectorEnv([make] * 12),
        "dummy": DummyVecEnv([lambda: Monitor(make())] * 12),
        "monitored": VecMonitor(DummyVecEnv([make] * 12)),
        "sb3": AgenticVecEnv(3, **knobs),
        "wrapped": gymnasium.wrappers.TransformReward(make(), lambda reward: reward),
    }


def policy_for(rows, **arguments):
    return MessagePolicy(
        rows.observation_space,
        rows.action_space,
        lambda _: 1e-3,
        grammar=rows.grammar,
        init_seed=3,
        **arguments,
    )


def by_rollout(data):
    """Per rollout: tokens, rewards and the columns of the batch, whatever the order of the turns."""
    batch = data.batch
    result = []
    for rollout in range(len(batch)):
        turns = np.flatnonzero(batch.turn_rollout == rollout)
        assert batch.turn_index[turns].tolist() == list(range(len(turns)))
        result.append(
            {
                "state": data.state[turns].tolist(),
                "position": data.position[turns].tolist(),
                "features": data.features[turns].tolist(),
                "reward": batch.turn_reward[turns].tolist(),
                "state_key": batch.state_key[turns].tolist(),
                "components": batch.components[rollout].tolist(),
                **{
                    name: getattr(batch, name)[rollout].tolist()
                    for name in ("returns", "prompt", "environment", "task", "valid")
                },
                **{
                    name: getattr(data, name)[rollout].tolist()
                    for name in ("score", "success", "terminated", "truncated")
                },
            }
        )
    return result


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("env_id", IDS)
def test_every_kind_of_environment_gives_the_same_rollouts(env_id, deterministic):
    results = {}
    for kind, env in kinds(env_id).items():
        rows = make_rows(env, 12)
        policy = policy_for(rows)
        if kind == "wrapped" and not deterministic:
            continue  # One row: the policy's draws come in another order.
        data = collect(
            rows, policy, PROMPT, ROLLOUT, np.random.default_rng(0), deterministic=deterministic, split="test"
        )
        assert data.batch.max_tokens == rows.max_tokens > 0
        results[kind] = by_rollout(data)
    assert all(result == results["id"] for result in results.values())
    assert len(results["id"]) == 12


@pytest.mark.parametrize("env_id", [IDS[1], IDS[3]])
def test_waves_equal_one_wave(env_id):
    engine = gymnasium.make_vec(env_id, num_envs=2, vectorization_mode="vector_entry_point")
    results = []
    for n in (1, 5, 12, 40):
        rows = VectorRows(engine.clone(n, AutoresetMode.DISABLED))
        data = collect(rows, policy_for(rows), PROMPT, ROLLOUT, np.random.default_rng(0), deterministic=True)
        results.append(by_rollout(data))
    assert all(result == results[-1] for result in results)


def test_kinds_of_rows():
    env_id = IDS[0]
    expected = {
        "id": (VectorRows, 12), "scalar": (VectorRows, 12), "engine": (VectorRows, 12),
        "sync": (ScalarRows, 12),
        "dummy": (ScalarRows, 12), "monitored": (ScalarRows, 12), "sb3": (VectorRows, 12),
        "wrapped": (ScalarRows, 1),
    }  # fmt: skip
    for kind, env in kinds(env_id).items():
        rows = make_rows(env, 12)
        assert (type(rows), rows.n) == expected[kind]
        assert rows.environment_names == ("Chain",)
        assert rows.num_prompts == 4096


def test_knobs_reach_the_rows():
    assert make_rows(IDS[0], 3, {"depth": 7, "num_prompts": 11}).num_prompts == 11
    assert make_rows(gymnasium.make(IDS[0], num_prompts=11), 3).num_prompts == 11
    assert make_rows("agentic_gym:agentic_gym/Chain-v0", 3).n == 3
    with pytest.raises(ValueError, match=r"env_kwargs=.* are only allowed where env is an id"):
        make_rows(gymnasium.make(IDS[0]), 3, {"depth": 7})


def scalar_cartpoles(n):
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * n)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: "CartPole-v1", CartPoleRows),
        (lambda: gymnasium.make("CartPole-v1"), CartPoleRows),
        (lambda: scalar_cartpoles(6), ScalarRows),
    ],
)
def test_groups_by_seed_start_alike(make, kind):
    rows = make_rows(make(), 6)
    assert (type(rows), rows.n, rows.num_prompts, rows.max_tokens) == (kind, 6, SEED_PROMPTS, 500)
    prompt = np.repeat([4, 9], 3)
    starts = []
    for split in ("train", "test"):
        data = collect(rows, policy_for(rows), prompt, np.arange(6), np.random.default_rng(0), split=split)
        batch = data.batch
        first = data.features[batch.turn_index == 0]
        assert batch.turn_rollout[batch.turn_index == 0].tolist() == list(range(6))
        assert (first[:3] == first[0]).all()
        assert (first[3:] == first[3]).all()
        assert (first[0] != first[3]).any()
        assert batch.prompt.tolist() == prompt.tolist()
        assert batch.returns.tolist() == batch.turns_per_rollout.tolist()
        assert len(set(batch.returns.tolist())) > 1
        assert (data.terminated | data.truncated).all()
        starts.append(first)
    assert (starts[0] != starts[1]).any()
    expected, _ = gymnasium.make("CartPole-v1").reset(seed=4)
    assert starts[0][0].tolist() == expected.tolist()


class Noted(gymnasium.Env):
    """Ends after ``length`` steps; notes what it was given, reuses its buffers, edits its action."""

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = spaces.MultiDiscrete([3, 3])

    def __init__(self, length=3, info=None):
        self.length, self.extra = length, info
        self.resets, self.actions, self.over = [], [], True
        self.buffer = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets.append((seed, options))
        self.t, self.over = 0, False
        self.buffer[:] = [seed, 0]
        return self.buffer, {"prompt": "my own", "task": "x", "score": 99}

    def step(self, action):
        assert not self.over, "stepped after the end"
        self.actions.append(action.tolist())
        action[:] = -7
        self.t += 1
        self.buffer[1] = self.t
        self.over = self.t == self.length
        info = {"is_success": True} if self.over else {}
        return self.buffer, 1.0, self.over, False, info


def test_p29_no_reset_step_is_stored_and_ended_rows_are_not_stepped():
    for wrap in (
        lambda envs: ScalarRows(envs),
        lambda envs: make_rows(SyncVectorEnv([lambda e=e: e for e in envs]), 3),
    ):
        envs = [Noted(3), Noted(1), Noted(5)]
        rows = wrap(envs)
        data = collect(rows, policy_for(rows), np.array([4, 4, 8]), np.arange(3), np.random.default_rng(0))
        assert data.batch.turns_per_rollout.tolist() == [3, 1, 5]
        assert data.batch.returns.tolist() == [3.0, 1.0, 5.0]
        assert [len(env.actions) for env in envs] == [3, 1, 5]
        stored = rows.grammar or policy_for(rows).grammar
        for rollout, env in enumerate(envs):
            turns = np.flatnonzero(data.batch.turn_rollout == rollout)
            assert stored.tokens[data.state[turns], data.position[turns]].tolist() == env.actions
            # P36: neither the reused observation nor the edited action reached the batch.
            seed = [4, 4, 8][rollout]
            assert data.features[turns].tolist() == [[seed, t] for t in range(len(turns))]
            assert env.resets[-1] == (seed, None)


def test_nothing_is_dropped_for_being_late():
    lengths = [1, 40, 2, 1, 7, 1]
    rows = ScalarRows([Noted(length) for length in lengths])
    prompt = np.repeat([0, 1], 3)
    data = collect(rows, policy_for(rows), prompt, np.arange(6), np.random.default_rng(0))
    assert data.batch.turns_per_rollout.tolist() == lengths
    assert data.batch.prompt.tolist() == prompt.tolist()
    assert data.batch.valid.all()


def test_the_info_of_other_environments_is_not_trusted():
    rows = ScalarRows([Noted(1), Noted(3)])
    data = collect(rows, policy_for(rows), np.array([6, 2]), np.arange(2), np.random.default_rng(0))
    assert data.batch.prompt.tolist() == [6, 2]
    assert data.batch.task.tolist() == data.batch.environment.tolist() == [0, 0]
    assert np.isnan(data.score).all()
    assert data.success.tolist() == [True, True]


class Contract(Noted):
    """Knows prompts; reports its verdict at the end only."""

    metadata = {"group_contract": True, "render_modes": []}  # noqa: RUF012
    num_prompts, max_tokens = 5, 6

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=0, options=options)
        return observation, {"prompt": options["prompt"]}

    def step(self, action):
        *result, info = super().step(action)
        return *result, (info | {"score": 0.5, "reward_valid": False} if self.over else {})


def test_p05_verdicts_reported_at_the_end_only():
    rows = ScalarRows([Contract(1), Contract(3)])
    data = collect(rows, policy_for(rows), np.array([4, 4]), np.array([8, 9]), np.random.default_rng(0), split="test")
    assert rows.cells[1].resets == [(0, {"prompt": 4, "rollout": 9, "split": "test"})]
    assert data.score.tolist() == [0.5, 0.5]
    assert data.success.tolist() == [True, True]
    assert data.batch.valid.tolist() == data.batch.counted.tolist() == [False, False]


class WithDict(gymnasium.Env):
    observation_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,), np.float32)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"a": 1, "b": np.full(2, 0.5, np.float32)}, {}

    def step(self, action):
        assert type(action) is int
        return {"a": 2, "b": np.zeros(2, np.float32)}, float(action), True, False, {}


def test_dict_observations_and_discrete_actions():
    rows = make_rows(WithDict(), 4)
    assert rows.n == 1
    data = collect(rows, policy_for(rows), np.zeros(4, int), np.arange(4), np.random.default_rng(0))
    assert data.features.tolist() == [[0, 1, 0, 0.5, 0.5]] * 4
    assert data.batch.returns.tolist() == data.position[:, 0].tolist()


def test_wrapped_vector_environments_keep_their_wrapper():
    engine = gymnasium.make_vec(IDS[0], num_envs=2, vectorization_mode="vector_entry_point")
    plain = engine.clone(4, AutoresetMode.DISABLED)
    wrapped = gymnasium.wrappers.vector.TransformReward(plain, lambda reward: reward * 3 + 1)
    rows = make_rows(wrapped, 12)
    assert (type(rows), rows.n) == (VectorRows, 4)
    bare = make_rows(engine, 12)
    data, expected = (
        collect(r, policy_for(r), PROMPT, ROLLOUT, np.random.default_rng(0), deterministic=True) for r in (rows, bare)
    )
    lengths = expected.batch.turns_per_rollout
    np.testing.assert_allclose(data.batch.returns, 3 * expected.batch.returns + lengths, atol=1e-12)


def test_environments_that_cannot_start_groups_are_refused():
    engine = gymnasium.make_vec(IDS[0], num_envs=2, vectorization_mode="vector_entry_point")
    with pytest.raises(ValueError, match="must have autoreset disabled; make it with autoreset_mode='Disabled'"):
        VectorRows(engine)
    with pytest.raises(ValueError, match="must have autoreset disabled"):
        make_rows(gymnasium.wrappers.vector.RecordEpisodeStatistics(engine), 4)
    with pytest.raises(ValueError, match="cannot start a row from a prompt or seed of its own"):
        make_rows(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point"), 4)
    for wrong in (None, 3, object()):
        with pytest.raises(TypeError, match="give an id, a Gymnasium Env or VectorEnv, or an SB3 VecEnv"):
            make_rows(wrong, 4)


def test_async_vector_environments_are_refused_with_the_reason():
    env = AsyncVectorEnv([lambda: Contract(1)] * 2, autoreset_mode=AutoresetMode.DISABLED)
    try:
        with pytest.raises(ValueError, match=r"lacks \['grammar', .*give its id or a scalar environment"):
            make_rows(env, 4)
    finally:
        env.close()


@pytest.mark.filterwarnings("ignore:The environment is already wrapped")
@pytest.mark.parametrize("wrap", [lambda v: VecNormalize(v), lambda v: VecMonitor(VecFrameStack(v, 2))])
def test_p11_wrappers_that_would_be_passed_over_are_refused(wrap):
    for inner in (DummyVecEnv([WithBox] * 2), AgenticVecEnv(2, family="Chain")):
        with pytest.raises(ValueError, match=r"the wrapper Vec(Normalize|FrameStack) is not allowed"):
            make_rows(wrap(inner), 4)


class WithBox(WithDict):
    observation_space = spaces.Box(0, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}


def test_a_missing_attribute_is_asked_for_before_it_is_read():
    # A SubprocVecEnv's process dies of reading an attribute that is not there.
    class Fragile(DummyVecEnv):
        def get_attr(self, attr_name, indices=None):
            try:
                return super().get_attr(attr_name, indices)
            except AttributeError:
                raise EOFError from None

        def has_attr(self, attr_name):
            try:
                super().get_attr(attr_name)
            except AttributeError:
                return False
            return True

    rows = make_rows(Fragile([WithBox] * 2), 2)
    assert (rows.grammar, rows.num_prompts) == (None, SEED_PROMPTS)
