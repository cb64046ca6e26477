"""The batch engine: a gymnasium VectorEnv over one family (or a mixture of families).

Everything that families share happens here, once: turn limits, prompts and groups, random
streams, tool failures, illegal messages, reward delivery, autoreset, info, copying of rows.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from agentic_gym import streams
from agentic_gym.family import (
    SPLITS,
    BoolArray,
    Draws,
    Family,
    Features,
    FloatArray,
    IntArray,
    State,
    indices,
)
from agentic_gym.knobs import check_integer
from agentic_gym.mixture import make_world
from agentic_gym.rewards import RewardTransform
from agentic_gym.transcript import Ending, Transcript, Turn

Info = dict[str, Any]
OPTIONS = ("prompt", "split", "rollout", "reset_mask")
RENDER_MODES = ["ansi", "rgb_array"]
ENGINE_FEATURES = 3
SPENT, SLIPPED, ILLEGAL = -3, -2, -1
"""Where an observation says which share of the turns is used, and how the last message failed."""
SLIP_DRAW = 1_000_003
"""Far from the draw indices that families use."""
INFO = {
    "environment": "environment",
    "task": "task",
    "prompt": "prompt",
    "rollout": "rollout",
    "turn": "turn",
    "score": "score",
    "is_success": "success",
    "reward_components": "components",
    "reward_valid": "valid",
    "ground_truth": "ground_truth",
    "state_key": "state_key",
    "token_count": "token_count",
}
"""What ``info`` reports besides ``action_mask``, and the columns of the book that hold it."""
INFO_MASKS = tuple(f"_{name}" for name in (*INFO, "action_mask"))
VIEW = ("ground_truth", "state_key", "score", "success", "valid")
"""What the book keeps of a View."""
STREAM = ("row_key", "episode", "seeded")
"""The columns of the book that say what a row does after its rollout."""


class AgenticVectorEnv(VectorEnv[Features, IntArray, npt.NDArray[Any]]):
    """Many rows of one family, stepped together.

    Args:
        num_envs: number of rows.
        family: name of the family, ``"Mixture"``, or an id of this package, which stands for its family
            and knobs; ``None`` takes ``"Chain"``.
        autoreset_mode: Gymnasium's ``AutoresetMode`` or its value. With ``DISABLED`` rows that have
            ended stand still (reward 0, flags kept, messages ignored) until
            ``reset(options={"reset_mask": ...})``; stepping when every row has ended raises.
        render_mode: ``None``, ``"ansi"`` or ``"rgb_array"``.
        max_episode_steps: turn limit on top of the family's own (rows over it are truncated).
        **knobs: the family's knobs, see ``agentic_gym.knobs.Knobs`` and the family's docstring; they win
            over those of an id.

    Raises:
        ValueError: if a knob has a value that is not allowed.
        TypeError: if a knob is unknown.
    """

    def __init__(
        self,
        num_envs: int = 1,
        family: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **knobs: Any,
    ) -> None:
        """See the class docstring."""
        self.num_envs = check_integer("num_envs", num_envs, 1, 2**31)
        _check_choice("autoreset_mode", autoreset_mode, [*AutoresetMode, *(mode.value for mode in AutoresetMode)])
        _check_choice("render_mode", render_mode, [None, *RENDER_MODES])
        self.autoreset_mode = AutoresetMode(autoreset_mode)
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
        self.family = make_world(family, **knobs)
        self.grammar = self.family.grammar
        self._rewards = RewardTransform([member.knobs for member in self.family.members])
        self._tables = _EnvironmentTables(self.family.members, max_episode_steps)
        size = self.family.n_features + ENGINE_FEATURES
        self.single_observation_space = gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32)
        self.single_action_space = gymnasium.spaces.MultiDiscrete([self.grammar.n_tokens] * self.grammar.n_slots)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._slot_mask = self.grammar.slot_mask().reshape(len(self.grammar.start), -1).astype(np.int8)
        self._rows = np.arange(self.num_envs)
        self._state = self.family.new_state(self.num_envs)
        self._book = _new_book(self.num_envs, len(self.family.components) + 1, self.grammar.n_slots, size)
        self._started = False
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
    def turn_limits(self) -> tuple[int, ...]:
        """Turn limits indexed by ``info["environment"]``."""
        return tuple(self._tables.turn_limit.tolist())

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
        return self._slot_mask[self._book["environment"]].astype(np.bool_)

    def expert_message(self) -> IntArray:
        """Return the expert's message (num_envs, L) for the current state of each row."""
        self._require_reset()
        return self.family.expert(self._state, self._rows)

    # Gymnasium API.

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, Info]:
        """Start new rollouts.

        Args:
            seed: an int (row i gets ``seed + i``) or one int or ``None`` per row; starts the streams
                from which prompts and rollout keys are drawn when ``options`` does not name them.
            options: any of ``prompt`` (int or (num_envs,) ints), ``split`` ("train" or "test"),
                ``rollout`` (int or (num_envs,) ints), ``reset_mask`` ((num_envs,) bool, which rows).
                A row keeps its split, "train" at first, until a reset names another or has a seed.

        Returns:
            Observations (num_envs, F) and info.

        Raises:
            ValueError: if an option is unknown or has a value that is not allowed.
        """
        rows, chosen = self._check_options(options or {})
        self._seed_rows(rows, self._check_seed(seed))
        self._begin(rows, chosen)
        self._look(rows)
        self._started = True
        return self._observations(), self._info()

    def step(self, actions: npt.ArrayLike) -> tuple[Features, FloatArray, BoolArray, BoolArray, Info]:
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
        book = self._book
        ended = book["terminated"] | book["truncated"]
        acting = indices(~ended)
        if not len(acting) and self.autoreset_mode is AutoresetMode.DISABLED:
            raise gymnasium.error.ResetNeeded("Every rollout has ended: call reset() before step().")
        for name in ("reward", "components", "token_count"):
            book[name].fill(0)
        if len(acting):
            self._act(acting, message.take(acting, axis=0))
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and len(acting) < self.num_envs:
            self._begin(indices(ended))
        self._look(self._rows if self.autoreset_mode is AutoresetMode.NEXT_STEP else acting)
        for row in acting if self._transcripts else ():
            self._record(row, message[row])
        reward, terminated, truncated = (book[n].copy() for n in ("reward", "terminated", "truncated"))
        final: Info = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            over = indices(terminated | truncated)
            if len(over):
                final = self._final(over)
                self._begin(over)
                self._look(over)
        return self._observations(), reward, terminated, truncated, self._info() | final

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
        self._require_reset()
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
        self._started = True

    def fork(self, source: npt.ArrayLike, target: npt.ArrayLike, rollout: npt.ArrayLike | None = None) -> None:
        """Copy rows onto other rows, which then continue on their own.

        Args:
            source: row indices to copy from.
            target: row indices to overwrite, as many and all different. They keep the streams from
                which their later rollouts are drawn.
            rollout: new rollout keys of the targets; ``None`` keeps the sources' keys, so that the
                copies see the same noise.

        Raises:
            ValueError: if an index or a key is not allowed.
        """
        self._require_reset()
        origin, goal = (
            _check_integers(name, value, self.num_envs) for name, value in (("source", source), ("target", target))
        )
        if len(origin) != len(goal) or len(np.unique(goal)) < len(goal):
            raise ValueError(f"target={target!r} is not allowed: it must be {len(origin)} different rows.")
        keys = None if rollout is None else _check_integers("rollout", rollout, 2**63, (1, len(goal)))
        own = {name: self._book[name][goal] for name in STREAM}
        for arrays in (self._state, self._book):
            _copy_rows(arrays, origin, goal)
        for name, values in own.items():
            self._book[name][goal] = values
        if keys is not None:
            self._book["rollout"][goal] = keys
            self._rekey(goal)
        if self._transcripts:
            copies = [copy.deepcopy(self._transcripts[row]) for row in origin]
            for row, transcript in zip(goal, copies, strict=True):
                self._transcripts[row] = transcript

    # Beginning rollouts.

    def _require_reset(self) -> None:
        if not self._started:
            raise gymnasium.error.ResetNeeded("Call reset() before using the environment.")

    def _check_options(self, options: dict[str, Any]) -> tuple[IntArray, dict[str, IntArray]]:
        """Return which rows to reset, and the columns (num_envs,) of the book that the options name."""
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise ValueError(f"options={unknown!r} are not allowed: they must be among {list(OPTIONS)}.")
        chosen = {}
        for name, high in (("prompt", self.num_prompts), ("rollout", 2**63)):
            if name in options:
                values = _check_integers(f"options[{name!r}]", options[name], high, (1, self.num_envs))
                chosen[name] = np.broadcast_to(values, (self.num_envs,))
        if "split" in options:
            _check_choice("options['split']", options["split"], SPLITS)
            chosen["split"] = np.full(self.num_envs, SPLITS.index(options["split"]))
        return self._check_mask(options.get("reset_mask")), chosen

    def _check_mask(self, mask: object) -> IntArray:
        if mask is None:
            return self._rows
        if not (isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (self.num_envs,)):
            raise ValueError(
                f"options['reset_mask']={mask!r} is not allowed: it must be a bool array of shape ({self.num_envs},)."
            )
        if not mask.any():
            raise ValueError("options['reset_mask'] is not allowed: at least one row must be True.")
        if not self._started and not mask.all():
            raise ValueError("options['reset_mask']: the first reset must cover all rows.")
        return indices(mask)

    def _check_seed(self, seed: Any) -> list[int | None]:
        """Return one seed or ``None`` per row."""
        if seed is None:
            return [None] * self.num_envs
        try:
            first = operator.index(seed)
        except TypeError:
            seeds = [None if s is None else operator.index(s) for s in seed]
        else:
            super().reset(seed=first)
            seeds = [first + row for row in range(self.num_envs)]
        if len(seeds) != self.num_envs or any(s is not None and s < 0 for s in seeds):
            raise ValueError(f"seed={seed!r} is not allowed: it must be an int >= 0 or {self.num_envs} of them.")
        return seeds

    def _seed_rows(self, rows: IntArray, seeds: list[int | None]) -> None:
        """Start the streams of rows that have a seed or have no stream yet."""
        book = self._book
        for row in rows:
            seed = seeds[row]
            if seed is not None or not book["seeded"][row]:
                # A seed gives the same key as in the scalar environment.
                generator = self.np_random if seed is None else seeding.np_random(seed)[0]
                book["row_key"][row] = generator.integers(2**63, dtype=np.uint64)
                book["episode"][row], book["split"][row], book["seeded"][row] = 0, 0, True

    def _begin(self, rows: IntArray, chosen: dict[str, IntArray] | None = None) -> None:
        """Start rollouts; what is not ``chosen`` comes from the rows' streams."""
        book = self._book
        episode = book["episode"][rows]
        book["episode"][rows] = episode + 1
        draw = streams.mix(streams.SCHEDULE, book["row_key"][rows], episode)
        book["prompt"][rows] = streams.integers(self.num_prompts, draw)
        book["rollout"][rows] = streams.to_int63(draw)
        for name, values in (chosen or {}).items():
            book[name][rows] = values[rows]
        book["prompt_key"][rows] = self.family.begin(self._state, rows, book["prompt"][rows], book["split"][rows])
        book["environment"][rows] = self.family.environment(self._state, rows)
        book["task"][rows] = self.family.task(self._state, rows)
        for name in ("turn", "earned", "reward", "components", "token_count"):
            book[name][rows] = 0
        for name in ("terminated", "truncated"):
            book[name][rows] = False
        book["observation"][rows, -ENGINE_FEATURES:] = 0.0
        self._rekey(rows)
        for row in rows if self._transcripts else ():
            self._transcripts[row] = self._open(row)

    def _rekey(self, rows: IntArray) -> None:
        """Derive the rollouts' keys of noise."""
        book = self._book
        shared = self._tables.common_random_numbers[book["environment"][rows]]
        rollout = book["rollout"][rows] * ~shared
        book["noise_key"][rows] = streams.mix(book["prompt_key"][rows], rollout)

    # One turn.

    def _check_actions(self, actions: npt.ArrayLike) -> IntArray:
        array = np.asarray(actions)
        shape = (self.num_envs, self.grammar.n_slots)
        if array.shape != shape or array.dtype.kind not in "iu":
            raise ValueError(
                f"actions of shape {array.shape} and type {array.dtype} are not allowed: "
                f"they must be integers of shape {shape}."
            )
        if array.min() < 0 or array.max() >= self.grammar.n_tokens:
            row, slot = np.argwhere((array < 0) | (array >= self.grammar.n_tokens))[0]
            raise ValueError(
                f"actions[{row}, {slot}]={array[row, slot]} is not allowed: tokens must be in "
                f"[0, {self.grammar.n_tokens - 1}]."
            )
        return array.astype(np.int64, copy=False)

    def _act(self, rows: IntArray, message: IntArray) -> None:
        """Carry out messages (n, L) of rows whose rollouts run."""
        book, tables = self._book, self._tables
        environment = book["environment"][rows]
        turn = book["turn"][rows] + 1
        book["turn"][rows] = turn
        parse = self.grammar.parse(message, environment)
        slipped = parse.legal & self._slips(rows, environment, turn)
        # Columns are contiguous so that their sum is fast.
        components = np.zeros((len(rows), book["components"].shape[1]), order="F")
        components[:, -1] = np.where(parse.legal, 0.0, tables.illegal_penalty[environment])
        terminated, aborted = np.zeros((2, len(rows)), dtype=np.bool_)
        effective = indices(parse.legal & ~slipped)
        if len(effective):
            able = rows[effective]
            draws = Draws(book["noise_key"], book["turn"], able)
            outcome = self.family.apply(self._state, able, message.take(effective, axis=0), draws)
            components[effective, :-1] = outcome.components
            terminated[effective] = outcome.terminated
            if outcome.aborted is not None:
                aborted[effective] = outcome.aborted
        late = (turn >= tables.turn_limit[environment]) & ~(terminated | aborted)
        truncated = aborted | (late & tables.limit_is_budget[environment])
        if late.any():
            components[late, :-1] += self.family.timeout(self._state, rows[late])
        ended = terminated | aborted | late
        value = components.sum(axis=1)
        earned = book["earned"][rows] + value
        book["earned"][rows], book["components"][rows] = earned, components
        book["token_count"][rows] = parse.counted.sum(axis=1)
        observation = book["observation"]
        observation[rows, SPENT] = turn / tables.turn_limit[environment]
        observation[rows, SLIPPED], observation[rows, ILLEGAL] = slipped, ~parse.legal
        book["terminated"][rows], book["truncated"][rows] = ended & ~truncated, truncated
        book["reward"][rows] = self._rewards.deliver(environment, value, earned, ended, book["noise_key"][rows], turn)

    def _slips(self, rows: IntArray, environment: IntArray, turn: IntArray) -> BoolArray | bool:
        if not self._tables.any_slip:
            return False
        draws = streams.uniform(self._book["noise_key"][rows], streams.DYNAMICS, turn, SLIP_DRAW)
        return draws < self._tables.slip[environment]

    def _look(self, rows: IntArray) -> None:
        """Refresh what is reported of the given rows' states."""
        book = self._book
        view = self.family.look(self._state, rows)
        book["observation"][rows, :-ENGINE_FEATURES] = view.features
        for name in VIEW:
            book[name][rows] = getattr(view, name)

    # Reporting: every array leaves as a copy, so that nothing is shared between calls.

    def _observations(self) -> Features:
        return np.array(self._book["observation"])

    def _info(self) -> Info:
        book = self._book
        info: Info = {name: book[column].copy() for name, column in INFO.items()}
        info["action_mask"] = self._slot_mask[book["environment"]]
        # Gymnasium's vector convention: "_name" says which rows have the entry "name"; here all do.
        present = np.ones((len(info), self.num_envs), dtype=np.bool_)
        return info | dict(zip(INFO_MASKS, present, strict=True))

    def _final(self, over: IntArray) -> Info:
        """Return what Gymnasium wants to know of rollouts that end before their rows restart."""
        ended = np.zeros(self.num_envs, dtype=np.bool_)
        ended[over] = True
        observations = np.full(self.num_envs, None, dtype=object)
        for row, observation in zip(over, self._book["observation"][over], strict=True):
            observations[row] = observation
        info = {name: ended.copy() if name[0] == "_" else values for name, values in self._info().items()}
        return {
            "final_obs": observations, "_final_obs": ended,
            "final_info": info, "_final_info": ended.copy(),
        }  # fmt: skip

    # Transcripts.

    def _open(self, row: int) -> Transcript:
        """Start the transcript of a row."""
        book = self._book
        environment, split = int(book["environment"][row]), SPLITS[book["split"][row]]
        return Transcript(
            environment=self.environment_names[environment],
            task=self.family.members[environment].tasks[book["task"][row]],
            prompt=f"{split} prompt {book['prompt'][row]}",
            limit=int(self._tables.turn_limit[environment]),
            opening=self.family.describe(self._state, row),
        )

    def _record(self, row: int, message: IntArray) -> None:
        """Add a turn to the transcript of a row, and the ending if it has ended."""
        book, transcript = self._book, self._transcripts[row]
        environment = int(book["environment"][row])
        names, amounts = self.family.members[environment].components, book["components"][row].tolist()
        components = [*zip(names, amounts[: len(names)], strict=True), ("illegal", amounts[-1])]
        turn = Turn(
            message=self.grammar.text(message, environment),
            answer=self.family.describe(self._state, row),
            failed=bool(book["observation"][row, SLIPPED]),
            legal=not book["observation"][row, ILLEGAL],
            components=tuple((name, amount) for name, amount in components if amount),
            reward=float(book["reward"][row]),
        )
        transcript.turns.append(turn)
        truncated = bool(book["truncated"][row])
        if truncated or book["terminated"][row]:
            early = len(transcript.turns) < transcript.limit
            notes = ["aborted" if early else "out of turns"] if truncated else []
            notes += [] if book["valid"][row] else ["reward not valid"]
            score, success = float(book["score"][row]), bool(book["success"][row])
            transcript.ending = Ending(score, success, ", ".join(notes))


class _EnvironmentTables:
    """Per-environment constants as arrays, indexed by a row's environment."""

    def __init__(self, members: Sequence[Family], max_episode_steps: int | None) -> None:
        limits = np.array([member.turn_limit for member in members])
        ends_task = np.array([member.limit_ends_task for member in members])
        steps = limits.max() if max_episode_steps is None else max_episode_steps
        check_integer("max_episode_steps", steps, 1, 10_000)
        self.turn_limit = np.minimum(limits, steps)
        self.limit_is_budget = ~ends_task | (limits > steps)
        self.illegal_penalty = np.array([member.illegal_penalty for member in members])
        self.slip = np.array([member.knobs.slip for member in members])
        self.any_slip = bool(self.slip.any())
        self.common_random_numbers = np.array([member.knobs.common_random_numbers for member in members])


def _new_book(n: int, n_components: int, n_slots: int, n_features: int) -> State:
    """Return the engine's own columns, one row per environment."""
    integers = (
        "prompt", "split", "rollout", "environment", "task", "episode", "turn", "token_count", "state_key",
    )  # fmt: skip
    numbers = ("earned", "reward", "score")
    flags = ("seeded", "terminated", "truncated", "success", "valid")
    keys = ("row_key", "prompt_key", "noise_key")
    return {
        **{name: np.zeros(n, dtype=np.int64) for name in integers},
        **{name: np.zeros(n) for name in numbers},
        **{name: np.zeros(n, dtype=np.bool_) for name in flags},
        **{name: np.zeros(n, dtype=np.uint64) for name in keys},
        "components": np.zeros((n, n_components)),
        "ground_truth": np.zeros((n, n_slots), dtype=np.int64),
        "observation": np.zeros((n, n_features), dtype=np.float32),
    }


def _copy_rows(state: State, source: IntArray, target: IntArray) -> None:
    for values in state.values():
        if isinstance(values, dict):
            _copy_rows(values, source, target)
        else:
            values[target] = values[source]


def _check_choice(name: str, value: Any, allowed: Sequence[Any]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is not allowed: it must be one of {list(allowed)}.")


def _check_integers(name: str, value: Any, high: int, sizes: Sequence[int] | None = None) -> IntArray:
    """Return ``value`` as (n,) integers from 0 to ``high - 1``; ``sizes`` says which n are allowed."""
    array = np.atleast_1d(value)
    if array.dtype.kind not in "iu" or array.ndim != 1 or (sizes and len(array) not in sizes):
        wanted = "integers" if sizes is None else f"an integer or {sizes[-1]} integers"
        raise ValueError(f"{name}={value!r} is not allowed: it must be {wanted}.")
    if array.size and (int(array.min()) < 0 or int(array.max()) >= high):
        raise ValueError(f"{name}={value!r} is not allowed: it must be in [0, {high - 1}].")
    return array.astype(np.int64)
