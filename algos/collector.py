"""Group rollouts: all rollouts of an update start together and run to their ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from agentic_gym.grammar import DONE
from algos.batch import RolloutBatch
from algos.policies import MessagePolicy, Written
from algos.rows import Rows, Tick
from algos.segments import RELATIVE_TOLERANCE, totals

IntArray = npt.NDArray[np.int64]
OnTick = Callable[[int, IntArray, Tick], bool]
"""Called after a tick with the number of turns taken, the rows that took them and what came of it; False stops."""


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
        prompt, rollout: (N,) prompts and rollout keys that the environment was asked for.
        ground_truth: (M, L) the right answer in the turn's state, where it was asked for, or None.
        stale: (M,) turns that an older copy of the policy wrote, or None.
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
    prompt: IntArray
    rollout: IntArray
    ground_truth: IntArray | None = None
    stale: npt.NDArray[np.bool_] | None = None


class Writer:
    """Writes the messages of one tick; by default as the policy does.

    Samplers that let rollouts be written otherwise override ``write``.

    Attributes:
        policy: what writes.
        replayed: how many of the last messages were not new, and are not counted as turns.
    """

    replayed = 0

    def __init__(self, policy: MessagePolicy, deterministic: bool = False) -> None:
        """Take a policy, and whether it takes the likeliest token in every slot."""
        self.policy, self.deterministic = policy, deterministic

    def write(self, features: npt.NDArray[np.float32], rollouts: IntArray, random: np.random.Generator) -> Written:
        """Write one message per row of ``features`` (n, F); ``rollouts`` (n,) says whose they are."""
        return self.policy.write(features, random, self.deterministic)


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

    def optional(self, name: str) -> npt.NDArray[Any] | None:
        return self.turn_column(name) if self.complete(name) else None


def collect(
    rows: Rows,
    policy: MessagePolicy,
    prompt: IntArray,
    rollout: IntArray,
    random: np.random.Generator,
    *,
    split: str = "train",
    deterministic: bool = False,
    on_tick: OnTick | None = None,
    writer: Writer | None = None,
    with_truth: bool = False,
) -> Trajectories | None:
    """Run one rollout per entry of ``prompt``; rows that have ended leave the batch.

    Where there are more rollouts than rows they run in waves, rollout i in row i modulo the number
    of rows.

    Args:
        rows: the environments.
        policy: writes the messages.
        prompt: (N,) prompt of each rollout; equal entries form a group.
        rollout: (N,) rollout keys.
        random: where the policy's samples come from.
        split: which prompts.
        deterministic: take the likeliest token in every slot.
        on_tick: called after each tick, see ``OnTick``; False stops.
        writer: writes instead of the policy; by default a ``Writer``.
        with_truth: keep the ground truth of every turn's state, where the environment reports it.

    Returns:
        The rollouts, in the order of ``prompt``; None if ``on_tick`` stopped the collection.
    """
    run = _Run(
        rows, policy, Writer(policy, deterministic) if writer is None else writer, prompt, rollout, random, split,
        on_tick, with_truth,
    )  # fmt: skip
    for start in range(0, len(prompt), rows.n):
        if not run.wave(np.arange(start, min(start + rows.n, len(prompt)))):
            return None
    return run.assemble()


@dataclass
class _Run:
    """The arguments of ``collect``, and what has been recorded so far."""

    rows: Rows
    policy: MessagePolicy
    writer: Writer
    prompt: IntArray
    rollout: IntArray
    random: np.random.Generator
    split: str
    on_tick: OnTick | None
    with_truth: bool
    recorder: _Recorder = field(default_factory=_Recorder)

    def wave(self, wave: IntArray) -> bool:
        """Run the rollouts ``wave`` to their ends; False if ``on_tick`` stopped them."""
        recorder, size = self.recorder, len(self.prompt)
        observation, info = self.rows.reset(self.prompt[wave], self.rollout[wave], self.split)
        zeros = np.zeros(len(wave), dtype=np.int64)
        recorder.set_rollouts(
            size,
            wave,
            prompt=info["prompt"],
            environment=info.get("environment", zeros),
            task=info.get("task", zeros),
        )
        features = self.policy.features(observation)
        # What is known of a state before its message.
        known = ("state_key", "ground_truth") if self.with_truth else ("state_key",)
        before = {name: info[name] for name in known if name in info}
        active = np.arange(len(wave))
        while len(active):
            written = self.writer.write(features, wave[active], self.random)
            tick = self.rows.step(active, written.message)
            recorder.add_turns(
                rollout=wave[active], features=features, state=written.state, position=written.position,
                previous=written.previous, log_prob=written.log_prob, entropy=written.entropy,
                reward=tick.reward, **before,
            )  # fmt: skip
            for name, column in (("reward_components", "components"), ("process_reward", "process_reward")):
                if name in tick.info:
                    recorder.add_turns(**{column: tick.info[name]})
            ended = tick.terminated | tick.truncated
            features = self.policy.features(tick.observation)
            if ended.any():
                self._close(wave[active[ended]], tick, ended, features)
            new_turns = len(active) - self.writer.replayed
            if self.on_tick is not None and not self.on_tick(new_turns, active, tick):
                return False
            active, features = active[~ended], features[~ended]
            before = {name: tick.info[name][~ended] for name in known if name in tick.info}
        return True

    def _close(
        self, rollouts: IntArray, tick: Tick, ended: npt.NDArray[np.bool_], features: npt.NDArray[np.float32]
    ) -> None:
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
        if self.policy.critic is not None:
            columns["final_features"] = features[ended]
        self.recorder.set_rollouts(len(self.prompt), rollouts, **columns)

    def assemble(self) -> Trajectories:
        """Make tables of what was recorded."""
        recorder, size, ends = self.recorder, len(self.prompt), self.recorder.rollouts
        owner, reward, features = (recorder.turn_column(name) for name in ("rollout", "reward", "features"))
        state = recorder.turn_column("state")
        components = None
        if recorder.complete("components"):
            per_turn = recorder.turn_column("components")
            components = np.stack([totals(owner, column, size) for column in per_turn.T], axis=1)
        value = final_value = None
        if self.policy.critic is not None:
            # Nobody asks for them before: all at once are cheaper than tick by tick.
            value = self.policy.values(features)
            final_value = np.where(ends["terminated"], 0.0, self.policy.values(ends["final_features"]))
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
            process_reward=recorder.optional("process_reward"),
            state_key=recorder.optional("state_key"),
            success=ends["success"],
            truncated=ends["truncated"],
            value=value,
            final_value=final_value,
            max_tokens=self.rows.max_tokens,
        )
        batch.check_returns()
        return Trajectories(
            batch, features, state, recorder.turn_column("position"),
            recorder.turn_column("previous"), recorder.turn_column("log_prob"), recorder.turn_column("entropy"),
            ends["score"], ends["success"], ends["terminated"], ends["truncated"], self.prompt, self.rollout,
            recorder.optional("ground_truth"),
        )  # fmt: skip
