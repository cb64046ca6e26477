"""Group rollouts: all rollouts of an update start together and run to their ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from agentic_gym.grammar import DONE
from algos.batch import RolloutBatch
from algos.policies import MessagePolicy
from algos.rows import Rows
from algos.segments import RELATIVE_TOLERANCE, totals

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trajectories:
    """A RolloutBatch with what training and logging need besides.

    Attributes:
        batch: the tables that schemes work on.
        features: (M, F) float32 policy inputs.
        state, position, previous: (M, L) see ``policies.Written``.
        log_prob: (M, L) float32 behaviour log-probabilities.
        entropy: (M,) of the policy that wrote the turn.
        score: (N,) scale-free score; NaN where the environment has none.
        success, terminated, truncated: (N,) bool.
    """

    batch: RolloutBatch
    features: npt.NDArray[np.float32]
    state: IntArray
    position: IntArray
    previous: IntArray
    log_prob: npt.NDArray[np.float32]
    entropy: npt.NDArray[np.float32]
    score: npt.NDArray[np.float64]
    success: npt.NDArray[np.bool_]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]


@dataclass
class _Recorder:
    """Columns gathered turn by turn; every entry is an array with one row per turn."""

    turns: dict[str, list[npt.NDArray[Any]]] = field(default_factory=dict)
    rollouts: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def add_turns(self, **columns: npt.NDArray[Any]) -> None:
        for name, values in columns.items():
            self.turns.setdefault(name, []).append(values)

    def set_rollouts(self, size: int, rows: IntArray, **columns: npt.NDArray[Any]) -> None:
        for name, values in columns.items():
            if name not in self.rollouts:
                self.rollouts[name] = np.zeros((size, *values.shape[1:]), dtype=values.dtype)
            self.rollouts[name][rows] = values

    def complete(self, name: str) -> bool:
        """Whether the column was recorded in every tick."""
        return len(self.turns.get(name, ())) == len(self.turns["reward"])

    def turn_column(self, name: str) -> npt.NDArray[Any]:
        return np.concatenate(self.turns[name])


def collect(
    rows: Rows,
    policy: MessagePolicy,
    prompt: IntArray,
    rollout: IntArray,
    random: np.random.Generator,
    *,
    split: str = "train",
    deterministic: bool = False,
    on_tick: Callable[[int], bool] | None = None,
) -> Trajectories | None:
    """Run one rollout per entry of ``prompt``; rows that have ended leave the batch.

    Args:
        rows: the environments.
        policy: writes the messages.
        prompt: (N,) prompt of each rollout; equal entries form a group.
        rollout: (N,) rollout keys.
        random: where the policy's samples come from.
        split: which prompts.
        deterministic: take the likeliest token in every slot.
        on_tick: called after each tick with the number of turns taken; False stops.

    Returns:
        The rollouts, in the order of ``prompt``; None if ``on_tick`` stopped the collection.
    """
    size = len(prompt)
    recorder = _Recorder()
    for start in range(0, size, rows.n):
        wave = np.arange(start, min(start + rows.n, size))
        if not _run_wave(rows, policy, prompt, rollout, wave, random, split, deterministic, on_tick, recorder, size):
            return None
    return _assemble(rows, recorder, prompt)


def _run_wave(
    rows: Rows, policy: MessagePolicy, prompt: IntArray, rollout: IntArray, wave: IntArray,
    random: np.random.Generator, split: str, deterministic: bool,
    on_tick: Callable[[int], bool] | None, recorder: _Recorder, size: int,
) -> bool:  # fmt: skip
    observation, info = rows.reset(prompt[wave], rollout[wave], split)
    zeros = np.zeros(len(wave), dtype=np.int64)
    recorder.set_rollouts(
        size,
        wave,
        prompt=info["prompt"],
        environment=info.get("environment", zeros),
        task=info.get("task", zeros),
    )
    features = policy.features(observation)
    state_key = info.get("state_key")
    active = np.arange(len(wave))
    while len(active):
        written = policy.write(features, random, deterministic)
        tick = rows.step(active, written.message)
        recorder.add_turns(
            rollout=wave[active], features=features, state=written.state, position=written.position,
            previous=written.previous, log_prob=written.log_prob, entropy=written.entropy, reward=tick.reward,
        )  # fmt: skip
        if policy.critic is not None:
            recorder.add_turns(value=policy.values(features))
        if state_key is not None:
            recorder.add_turns(state_key=state_key)
        if "reward_components" in tick.info:
            recorder.add_turns(components=tick.info["reward_components"])
        ended = tick.terminated | tick.truncated
        features = policy.features(tick.observation)
        if ended.any():
            _close(recorder, size, wave[active[ended]], tick, ended, features, policy)
        if on_tick is not None and not on_tick(len(active)):
            return False
        active, features = active[~ended], features[~ended]
        state_key = tick.info["state_key"][~ended] if "state_key" in tick.info else None
    return True


def _close(
    recorder: _Recorder, size: int, rollouts: IntArray, tick: Any, ended: npt.NDArray[np.bool_],
    features: npt.NDArray[np.float32], policy: MessagePolicy,
) -> None:  # fmt: skip
    """Note what is known of rollouts only at their ends."""
    k = len(rollouts)
    terminated = tick.terminated[ended]
    columns = {
        "score": tick.info["score"][ended] if "score" in tick.info else np.full(k, np.nan),
        "success": tick.info["is_success"][ended] if "is_success" in tick.info else np.zeros(k, np.bool_),
        "valid": tick.info["reward_valid"][ended] if "reward_valid" in tick.info else np.ones(k, np.bool_),
        "terminated": terminated,
        "truncated": tick.truncated[ended],
    }
    if policy.critic is not None:
        columns["final_value"] = np.where(terminated, 0.0, policy.values(features[ended]))
    recorder.set_rollouts(size, rollouts, **columns)


def _assemble(rows: Rows, recorder: _Recorder, prompt: IntArray) -> Trajectories:
    size = len(prompt)
    owner, reward = recorder.turn_column("rollout"), recorder.turn_column("reward")
    state = recorder.turn_column("state")
    components = None
    if recorder.complete("components"):
        per_turn = recorder.turn_column("components")
        components = np.stack([totals(owner, column, size) for column in per_turn.T], axis=1)
    ends = recorder.rollouts
    returns = totals(owner, reward, size)
    # Rewards that cancel leave rounding noise, which must not look like a difference.
    returns[np.abs(returns) <= RELATIVE_TOLERANCE * totals(owner, np.abs(reward), size)] = 0.0
    batch = RolloutBatch(
        returns=returns,
        prompt=ends["prompt"],
        environment=ends["environment"],
        task=ends["task"],
        valid=ends["valid"],
        turn_rollout=owner,
        turn_reward=reward,
        token_mask=state != DONE,
        components=components,
        state_key=recorder.turn_column("state_key") if recorder.complete("state_key") else None,
        value=recorder.turn_column("value") if recorder.complete("value") else None,
        final_value=ends.get("final_value"),
        max_tokens=rows.max_tokens,
    )
    batch.check_returns()
    return Trajectories(
        batch, recorder.turn_column("features"), state, recorder.turn_column("position"),
        recorder.turn_column("previous"), recorder.turn_column("log_prob"), recorder.turn_column("entropy"),
        ends["score"], ends["success"], ends["terminated"], ends["truncated"],
    )  # fmt: skip
