"""The batch engine: a gymnasium VectorEnv over one family (or a mixture of families).

Everything that families share happens here, once: turn limits, prompts and groups, random
streams, tool failures, illegal messages, reward delivery, autoreset, info, copying of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from agentic_gym import streams
from agentic_gym.family import SPLITS, Draws, Outcome, RowsView, State, write_rows
from agentic_gym.knobs import check_integer
from agentic_gym.mixture import make_family
from agentic_gym.rewards import RewardTransform
from agentic_gym.transcript import Transcript

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Info = dict[str, Any]
OPTIONS = ("prompt", "split", "rollout", "reset_mask")
ENGINE_FEATURES = 3
SLIP_DRAW = 1_000_003
RENDER_MODES = ["ansi", "rgb_array"]


class AgenticVectorEnv(VectorEnv[npt.NDArray[np.float32], IntArray, npt.NDArray[Any]]):
    """Many rows of one family, stepped together.

    Args:
        num_envs: number of rows.
        family: name of the family, or ``"Mixture"``.
        autoreset_mode: Gymnasium's ``AutoresetMode`` or its value. With ``DISABLED`` rows that have
            ended stand still (reward 0, flags kept, messages ignored) until
            ``reset(options={"reset_mask": ...})``; stepping when every row has ended raises.
        render_mode: ``None``, ``"ansi"`` or ``"rgb_array"``.
        max_episode_steps: turn limit on top of the family's own (rows over it are truncated).
        **knobs: the family's knobs, see ``agentic_gym.knobs.Knobs`` and the family's docstring.

    Raises:
        ValueError: if a knob has a value that is not allowed.
        TypeError: if a knob is unknown.
    """

    def __init__(
        self,
        num_envs: int = 1,
        family: str = "Chain",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **knobs: Any,
    ) -> None:
        """See the class docstring."""
        self.num_envs = check_integer("num_envs", num_envs, 1, 2**31)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        if render_mode not in (None, *RENDER_MODES):
            raise ValueError(
                f"render_mode={render_mode!r} is not allowed: it must be None or one of {RENDER_MODES}."
            )
        self.render_mode = render_mode
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "render_fps": 2,
            "autoreset_mode": self.autoreset_mode,
            "group_contract": True,
        }
        self.arguments = {
            "family": family,
            "render_mode": render_mode,
            "max_episode_steps": max_episode_steps,
            **knobs,
        }
        self.family = make_family(family, **knobs)
        self.grammar = self.family.grammar
        self._rewards = RewardTransform([member.knobs for member in self.family.members])
        self._tables = _EnvironmentTables(self.family.members, max_episode_steps)
        size = self.family.n_features + ENGINE_FEATURES
        self.single_observation_space = gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32)
        self.single_action_space = gymnasium.spaces.MultiDiscrete(
            [self.grammar.n_tokens] * self.grammar.n_slots
        )
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._slot_mask = self.grammar.slot_mask().reshape(len(self.grammar.start), -1).astype(np.int8)
        self._state: State = {}
        self._book: State = {}
        self._seeded = False
        self._transcripts = [Transcript() for _ in range(self.num_envs)] if render_mode else []

    # What users and wrappers ask for besides the Gymnasium API.

    @property
    def environment_names(self) -> tuple[str, ...]:
        """Names indexed by ``info["environment"]``."""
        return self.family.environment_names

    @property
    def num_prompts(self) -> int:
        """Prompts per split."""
        return self.family.num_prompts

    @property
    def prompt_cycle(self) -> int:
        """How many consecutive prompts hold every environment in its proportion."""
        return self.family.prompt_cycle

    @property
    def max_tokens(self) -> int:
        """The largest number of tokens that a rollout can have."""
        slots = [member.grammar.n_slots for member in self.family.members]
        return int(np.max(self._tables.turn_limit * np.array(slots)))

    def clone(self, num_envs: int, autoreset_mode: AutoresetMode | str) -> AgenticVectorEnv:
        """Make a new environment with the same knobs and another number of rows or autoreset mode."""
        return AgenticVectorEnv(num_envs, autoreset_mode=autoreset_mode, **self.arguments)

    def action_masks(self) -> BoolArray:
        """Return (num_envs, L * V) whether a token is legal in a slot for some prefix (for sb3-contrib)."""
        return self._slot_mask[self._environment].astype(np.bool_)

    def expert_message(self) -> IntArray:
        """Return the expert's message (num_envs, L) for the current state of each row."""
        self._require_reset()
        return self.family.expert(self._state)

    # Gymnasium API.

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], Info]:
        """Start new rollouts.

        Args:
            seed: an int (row i gets ``seed + i``) or one int per row; seeds the stream from which
                prompts and rollout keys are drawn when ``options`` does not name them.
            options: any of ``prompt`` (int or (num_envs,) ints), ``split`` ("train" or "test"),
                ``rollout`` (int or (num_envs,) ints), ``reset_mask`` ((num_envs,) bool, which rows).

        Returns:
            Observations (num_envs, F) and info.

        Raises:
            ValueError: if an option is unknown or has a value that is not allowed.
        """
        options = dict(options or {})
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise ValueError(f"options={unknown!r} are not allowed: they must be among {list(OPTIONS)}.")
        rows = self._reset_rows(options.get("reset_mask"))
        if not self._book:
            self._book = _empty_book(self)
        self._seed_rows(seed)
        prompt, split, rollout = self._choose(rows, options)
        self._begin(rows, prompt, split, rollout)
        return self._observations(), self._info()

    def step(
        self, actions: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64], BoolArray, BoolArray, Info]:
        """Carry out one message per row.

        Args:
            actions: integer array (num_envs, L); slots after a message's end are ignored.

        Returns:
            Observations, float64 rewards, terminations, truncations and info, as Gymnasium defines
            them for the autoreset mode.

        Raises:
            ValueError: if ``actions`` has the wrong shape, type or range.
            gymnasium.error.ResetNeeded: if there is no rollout to continue.
        """
        self._require_reset()
        message = self._check_actions(actions)
        ended = self._book["terminated"] | self._book["truncated"]
        acting = np.flatnonzero(~ended)
        if self.autoreset_mode is AutoresetMode.DISABLED and not len(acting):
            raise gymnasium.error.ResetNeeded("Every rollout has ended: call reset() before step().")
        self._clear_turn()
        if len(acting):
            self._act(acting, message)
        restarting = np.flatnonzero(ended)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and len(restarting):
            self._begin(restarting, *self._choose(restarting, {}))
        reward = self._book["reward"].copy()
        terminated, truncated = self._book["terminated"].copy(), self._book["truncated"].copy()
        info: Info = {}
        over = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and over.any():
            info = self._final(over)
            rows = np.flatnonzero(over)
            self._begin(rows, *self._choose(rows, {}))
        return self._observations(), reward, terminated, truncated, {**self._info(), **info}

    def render(self) -> tuple[Any, ...] | None:
        """Return one transcript (``ansi``) or picture (``rgb_array``) per row."""
        if self.render_mode is None:
            return None
        self._require_reset()
        if self.render_mode == "ansi":
            return tuple(transcript.text() for transcript in self._transcripts)
        return tuple(transcript.picture() for transcript in self._transcripts)

    # Copying rows: tree rollouts and exact resume.

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of everything that determines the future of all rows."""
        return copy.deepcopy(
            {
                "state": self._state,
                "book": self._book,
                "transcripts": self._transcripts,
                "random": self._np_random,
            }
        )

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go back to a snapshot of an environment with the same knobs and number of rows.

        Raises:
            ValueError: if the snapshot has another number of rows.
        """
        rows = len(snapshot["book"]["prompt"])
        if rows != self.num_envs:
            raise ValueError(f"snapshot has {rows} rows, this environment has num_envs={self.num_envs}.")
        snapshot = copy.deepcopy(snapshot)
        self._state, self._book = snapshot["state"], snapshot["book"]
        self._transcripts, self._np_random = snapshot["transcripts"], snapshot["random"]

    def fork(
        self, source: npt.ArrayLike, target: npt.ArrayLike, rollout: npt.ArrayLike | None = None
    ) -> None:
        """Copy rows onto other rows, which then continue on their own.

        Args:
            source: row indices to copy from.
            target: row indices to overwrite, as many.
            rollout: new rollout keys of the targets; ``None`` keeps the sources' keys, so that the
                copies see the same noise.
        """
        self._require_reset()
        origin, goal = np.atleast_1d(source), np.atleast_1d(target)
        for arrays in (self._state, self._book):
            write_rows(arrays, goal, {name: values[origin] for name, values in arrays.items()})
        if rollout is not None:
            self._book["rollout"][goal] = rollout
            self._rekey(goal)
        for a, b in zip(origin, goal, strict=True) if self._transcripts else ():
            self._transcripts[b] = copy.deepcopy(self._transcripts[a])

    # Beginning rollouts.

    @property
    def _environment(self) -> IntArray:
        return self._book["environment"]

    def _require_reset(self) -> None:
        if not self._book:
            raise gymnasium.error.ResetNeeded("Call reset() before using the environment.")

    def _reset_rows(self, mask: object) -> IntArray:
        if mask is None:
            return np.arange(self.num_envs)
        if not (isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (self.num_envs,)):
            raise ValueError(
                f"options['reset_mask']={mask!r} is not allowed: it must be a bool array of shape ({self.num_envs},)."
            )
        if not mask.any():
            raise ValueError("options['reset_mask'] is not allowed: at least one row must be True.")
        if not self._book and not mask.all():
            raise ValueError("options['reset_mask']: the first reset must cover all rows.")
        return np.flatnonzero(mask)

    def _seed_rows(self, seed: int | Sequence[int | None] | None) -> None:
        if seed is None:
            if not self._seeded:
                self._book["row_key"][:] = self.np_random.integers(2**63, size=self.num_envs, dtype=np.uint64)
                self._seeded = True
            return
        seeds = [seed + row for row in range(self.num_envs)] if isinstance(seed, int) else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed={seed!r} is not allowed: it must be an int or {self.num_envs} ints.")
        if isinstance(seed, int):
            super().reset(seed=seed)
        for row, row_seed in enumerate(seeds):
            if row_seed is not None:
                # The same draw as in the scalar environment: one key per seed.
                generator, _ = seeding.np_random(row_seed)
                self.seed_row(row, generator)
        self._seeded = True

    def seed_row(self, row: int, generator: np.random.Generator) -> None:
        """Draw one row's stream of prompts and rollouts from a generator."""
        if not self._book:
            self._book = _empty_book(self)
        self._book["row_key"][row] = generator.integers(2**63, dtype=np.uint64)
        self._book["episode"][row] = 0
        self._seeded = True

    def _choose(self, rows: IntArray, options: dict[str, Any]) -> tuple[IntArray, IntArray, IntArray]:
        """Return prompts, splits and rollout keys for rows, from options or from the rows' streams."""
        key, episode = self._book["row_key"][rows], self._book["episode"][rows]
        self._book["episode"][rows] += 1
        prompt = streams.integers(self.num_prompts, key, streams.SCHEDULE, episode, 0)
        rollout = streams.to_int63(streams.mix(key, streams.SCHEDULE, episode, 1))
        split = self._book["split"][rows]
        if "prompt" in options:
            prompt = self._per_row("prompt", options["prompt"], self.num_prompts)[rows]
        if "rollout" in options:
            rollout = self._per_row("rollout", options["rollout"], 2**63)[rows]
        if "split" in options:
            if options["split"] not in SPLITS:
                raise ValueError(
                    f"options['split']={options['split']!r} is not allowed: it must be one of {SPLITS}."
                )
            split = np.full(len(rows), SPLITS.index(options["split"]))
        return prompt, split, rollout

    def _per_row(self, name: str, value: object, high: int) -> IntArray:
        array = np.asarray(value)
        if array.dtype.kind not in "iu" or array.shape not in ((), (self.num_envs,)):
            raise ValueError(
                f"options[{name!r}]={value!r} is not allowed: it must be an int or {self.num_envs} ints."
            )
        if array.size and (int(array.min()) < 0 or int(array.max()) >= high):
            raise ValueError(f"options[{name!r}]={value!r} is not allowed: it must be in [0, {high - 1}].")
        return np.broadcast_to(array.astype(np.int64), (self.num_envs,))

    def _begin(self, rows: IntArray, prompt: IntArray, split: IntArray, rollout: IntArray) -> None:
        part, prompt_key = self.family.begin(prompt, split)
        if len(rows) == self.num_envs:
            self._state = part
        else:
            write_rows(self._state, rows, part)
        book = self._book
        write_rows(book, rows, _fresh_book(len(rows), len(self.family.components) + 1))
        book["prompt"][rows], book["split"][rows], book["rollout"][rows] = prompt, split, rollout
        book["prompt_key"][rows] = prompt_key
        book["environment"][rows] = self.family.environment(part)
        book["task"][rows] = self.family.task(part)
        self._rekey(rows)
        self._look(rows)
        for row in rows if self._transcripts else ():
            self._transcripts[row].begin(self.family.describe(self._state, int(row)))

    def _rekey(self, rows: IntArray) -> None:
        book = self._book
        shared = self._tables.common_random_numbers[book["environment"][rows]]
        rollout = np.where(shared, 0, book["rollout"][rows])
        for name, stream in (("dynamics_key", streams.DYNAMICS), ("reward_key", streams.REWARD)):
            book[name][rows] = streams.mix(stream, book["prompt_key"][rows], rollout)

    # One turn.

    def _check_actions(self, actions: npt.ArrayLike) -> IntArray:
        array = np.asarray(actions)
        shape = (self.num_envs, self.grammar.n_slots)
        if array.shape != shape or array.dtype.kind not in "iu":
            raise ValueError(
                f"actions of shape {array.shape} and type {array.dtype} are not allowed: "
                f"they must be integers of shape {shape}."
            )
        if array.size and (array.min() < 0 or array.max() >= self.grammar.n_tokens):
            raise ValueError(f"actions are not allowed: tokens must be in [0, {self.grammar.n_tokens - 1}].")
        return array.astype(np.int64)

    def _clear_turn(self) -> None:
        for name in ("reward", "components", "token_count"):
            self._book[name] = np.zeros_like(self._book[name])

    def _act(self, acting: IntArray, message: IntArray) -> None:
        """Carry out the messages of the rows ``acting``; ``message`` has all rows."""
        book = self._book
        message = message[acting]
        environment = book["environment"][acting]
        book["turn"][acting] += 1
        parse = self.grammar.parse(message, environment if self.grammar.dialect_features else environment * 0)
        slipped = parse.legal & self._slips(acting, environment)
        book["token_count"][acting] = parse.counted.sum(axis=1)
        book["illegal"][acting], book["slipped"][acting] = ~parse.legal, slipped
        penalty = np.where(parse.legal, 0.0, self._tables.illegal_penalty[environment])
        book["components"][acting, -1] = penalty
        effective = parse.legal & ~slipped
        self._apply(acting, message, effective)
        self._limit(acting, environment)
        self._reward(acting, environment)
        self._look(acting)
        for row in acting if self._transcripts else ():
            self._record(int(row), message[np.searchsorted(acting, row)])

    def _slips(self, acting: IntArray, environment: IntArray) -> BoolArray:
        if not self._tables.any_slip:
            return np.zeros(len(acting), dtype=np.bool_)
        probability = self._tables.slip[environment]
        draws = streams.uniform(self._book["dynamics_key"][acting], self._book["turn"][acting], SLIP_DRAW)
        return draws < probability

    def _apply(self, acting: IntArray, message: IntArray, effective: BoolArray) -> None:
        book = self._book
        if effective.all():
            rows = acting
        else:
            rows, message = acting[effective], message[effective]
        if not len(rows):
            return
        draws = Draws(book["dynamics_key"][rows], book["turn"][rows])
        if len(rows) == self.num_envs:
            outcome = self.family.apply(self._state, message, draws)
        else:
            part = RowsView(self._state, rows)
            outcome = self.family.apply(part, message, draws)
            part.write_back(self.family.constants)
        self._note(rows, outcome)

    def _note(self, rows: IntArray, outcome: Outcome) -> None:
        book = self._book
        book["components"][rows, :-1] += outcome.components
        book["terminated"][rows] = outcome.terminated
        book["score"][rows], book["success"][rows] = outcome.score, outcome.success
        book["valid"][rows] = outcome.valid

    def _limit(self, acting: IntArray, environment: IntArray) -> None:
        book = self._book
        late = (book["turn"][acting] >= self._tables.turn_limit[environment]) & ~book["terminated"][acting]
        rows = acting[late]
        if not len(rows):
            return
        part = RowsView(self._state, rows)
        self._note(rows, self.family.timeout(part))
        part.write_back(self.family.constants)
        natural = self._tables.limit_ends_task[environment[late]]
        book["terminated"][rows], book["truncated"][rows] = natural, ~natural

    def _reward(self, acting: IntArray, environment: IntArray) -> None:
        book = self._book
        value = book["components"][acting].sum(axis=1)
        book["earned"][acting] += value
        ended = book["terminated"][acting] | book["truncated"][acting]
        book["reward"][acting] = self._rewards.deliver(
            environment,
            value,
            book["earned"][acting],
            ended,
            book["reward_key"][acting],
            book["turn"][acting],
        )

    def _look(self, rows: IntArray) -> None:
        """Refresh what is reported of the given rows."""
        book = self._book
        everything = len(rows) == self.num_envs
        view = self.family.look(self._state if everything else RowsView(self._state, rows))
        environment = book["environment"][rows]
        spent = book["turn"][rows] / self._tables.turn_limit[environment]
        extra = np.stack([spent, book["slipped"][rows], book["illegal"][rows]], axis=1).astype(np.float32)
        at: IntArray | slice = slice(None) if everything else rows
        book["observation"][at, :-ENGINE_FEATURES] = view.features
        book["observation"][at, -ENGINE_FEATURES:] = extra
        book["ground_truth"][at], book["state_key"][at] = view.ground_truth, view.state_key

    # Reporting: every array leaves as a copy, so that nothing is shared between calls.

    def _observations(self) -> npt.NDArray[np.float32]:
        return self._book["observation"].copy()

    def _info(self) -> Info:
        book = self._book
        info: Info = {
            "environment": book["environment"].copy(),
            "task": book["task"].copy(),
            "prompt": book["prompt"].copy(),
            "rollout": book["rollout"].copy(),
            "turn": book["turn"].copy(),
            "score": book["score"].copy(),
            "is_success": book["success"].copy(),
            "reward_components": book["components"].copy(),
            "reward_valid": book["valid"].copy(),
            "ground_truth": book["ground_truth"].copy(),
            "state_key": book["state_key"].copy(),
            "action_mask": self._slot_mask[book["environment"]],
            "token_count": book["token_count"].copy(),
        }
        present = np.ones((len(info), self.num_envs), dtype=np.bool_)
        return info | dict(zip([f"_{name}" for name in info], present, strict=True))

    def _final(self, over: BoolArray) -> Info:
        observations = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(over):
            observations[row] = self._book["observation"][row].copy()
        final = {
            name: (over.copy() if name.startswith("_") else values) for name, values in self._info().items()
        }
        return {
            "final_obs": observations, "_final_obs": over.copy(),
            "final_info": final, "_final_info": over.copy(),
        }  # fmt: skip

    def _record(self, row: int, message: IntArray) -> None:
        book = self._book
        environment = int(book["environment"][row])
        member = self.family.members[environment]
        ended = bool(book["terminated"][row] or book["truncated"][row])
        self._transcripts[row].turn(
            message=member.grammar.text(
                np.minimum(message, member.grammar.n_tokens - 1)[: member.grammar.n_slots]
            ),
            failed=bool(book["slipped"][row]),
            answer=self.family.describe(self._state, row),
            reward=float(book["reward"][row]),
            score=float(book["score"][row]) if ended else None,
        )


class _EnvironmentTables:
    """Per-environment constants as arrays, indexed by a row's environment."""

    def __init__(self, members: Sequence[Any], max_episode_steps: int | None) -> None:
        limits = [member.turn_limit for member in members]
        natural = [member.limit_ends_task for member in members]
        if max_episode_steps is not None:
            steps = check_integer("max_episode_steps", max_episode_steps, 1, 10_000)
            natural = [n and limit <= steps for n, limit in zip(natural, limits, strict=True)]
            limits = [min(limit, steps) for limit in limits]
        self.turn_limit = np.array(limits)
        self.limit_ends_task = np.array(natural)
        self.illegal_penalty = np.array([member.illegal_penalty for member in members])
        self.slip = np.array([member.knobs.slip for member in members])
        self.any_slip = bool(self.slip.any())
        self.common_random_numbers = np.array([member.knobs.common_random_numbers for member in members])


def _fresh_book(n: int, n_components: int) -> State:
    """Per-row bookkeeping at the start of a rollout."""
    return {
        "turn": np.zeros(n, dtype=np.int64),
        "earned": np.zeros(n),
        "reward": np.zeros(n),
        "components": np.zeros((n, n_components)),
        "score": np.zeros(n),
        "success": np.zeros(n, dtype=np.bool_),
        "valid": np.ones(n, dtype=np.bool_),
        "terminated": np.zeros(n, dtype=np.bool_),
        "truncated": np.zeros(n, dtype=np.bool_),
        "slipped": np.zeros(n, dtype=np.bool_),
        "illegal": np.zeros(n, dtype=np.bool_),
        "token_count": np.zeros(n, dtype=np.int64),
    }


def _empty_book(engine: AgenticVectorEnv) -> State:
    """All bookkeeping columns, before the first rollout."""
    n, n_slots = engine.num_envs, engine.grammar.n_slots
    integers = ("prompt", "split", "rollout", "environment", "task", "episode", "state_key")
    keys = ("row_key", "prompt_key", "dynamics_key", "reward_key")
    return {
        **_fresh_book(n, len(engine.family.components) + 1),
        **{name: np.zeros(n, dtype=np.int64) for name in integers},
        **{name: np.zeros(n, dtype=np.uint64) for name in keys},
        "ground_truth": np.zeros((n, n_slots), dtype=np.int64),
        "observation": np.zeros((n, engine.single_observation_space.shape[0]), dtype=np.float32),  # type: ignore[index]
    }
