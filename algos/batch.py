"""RolloutBatch: the tables of rollouts, turns and tokens that every scheme works on."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from algos.segments import BoolArray, FloatArray, IntArray, Segments, stable_order, totals

LEVELS = ("prompt", "task", "environment", "batch")
"""Levels over which rollouts can share a statistic, from narrow to wide."""
TURN_LEVELS = ("turn", "state")
"""Levels over which turns can: those of one prompt with the same index, or in the same state."""
LARGEST = 1e100
"""Of returns and turn rewards; squares of larger ones would not fit."""
MOST_NAMES = 5
"""A warning names at most this many groups."""


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """N rollouts, M turns, L token slots per turn.

    Attributes:
        returns: (N,) float64 undiscounted return; NaN where it could not be scored. A rollout with
            a NaN turn reward could not be scored either.
        prompt, environment, task: (N,) ids, integers or strings. Prompt ids are read within their
            environment.
        valid: (N,) False for rollouts that take no part in statistics and loss.
        turn_rollout: (M,) row of the turn's rollout; a rollout's turns are in order of appearance.
        turn_reward: (M,) reward delivered at the turn.
        token_mask: (M, L) which token slots count. Turns without any are not the policy's: credit
            passes through them undiscounted.
        components: (N, K) reward components, or None; NaN where one could not be scored, see the signals
            that read them.
        information_gain: (M,) by how much the turn made the right answer likelier, or None. A
            rollout's last written turn is its answer, and has none.
        process_reward: (M,) score of the turn itself, or None; ``signal_reshaping`` needs it >= 0.
        state_key: (M,) key of the state in which the message was written, or None.
        success, truncated: (N,) the task's own verdict; whether the rollout was cut, or None.
        greedy_return: (N,) return of the greedy rollout of the same prompt, or None.
        drift: (N,) how far the policy has moved, on the prompt's last rollout, since it was written: mean
            absolute log-ratio of its tokens, NaN at the first visit; or None.
        entropy: (M, L) entropy of each slot's distribution, or None.
        log_prob: (M, L) log-probability of each token when it was written, or None.
        probability_square: (M, L) sum of the squared probabilities of each slot's choices, or None.
        context: (N, D) features of the rollout as a whole, or None.
        value: (M,) the critic's value of that state, or None.
        token_value: (M, L) the critic's value before each token, or None.
        final_value: (N,) the critic's value where the rollout was truncated, 0 where it
            terminated, or None.
        token_penalty: (M, L) what is taken from each token's credit before whitening, see ``surrogates.kl``,
            or None.
        max_tokens: largest number of tokens a rollout can have; the divisor of the ``constant``
            aggregation where the scheme does not give one.
        assumed: names of the levels that were not given, so that all rollouts share one.
    """

    returns: FloatArray
    prompt: npt.NDArray[Any]
    environment: npt.NDArray[Any]
    task: npt.NDArray[Any]
    valid: BoolArray
    turn_rollout: IntArray
    turn_reward: FloatArray
    token_mask: BoolArray
    components: FloatArray | None = None
    information_gain: FloatArray | None = None
    process_reward: FloatArray | None = None
    state_key: npt.NDArray[Any] | None = None
    success: BoolArray | None = None
    truncated: BoolArray | None = None
    greedy_return: FloatArray | None = None
    drift: FloatArray | None = None
    entropy: FloatArray | None = None
    log_prob: FloatArray | None = None
    probability_square: FloatArray | None = None
    context: FloatArray | None = None
    value: FloatArray | None = None
    token_value: FloatArray | None = None
    final_value: FloatArray | None = None
    token_penalty: FloatArray | None = None
    max_tokens: int = 1
    assumed: tuple[str, ...] = ()

    @classmethod
    def from_arrays(
        cls,
        returns: npt.ArrayLike,
        prompt: npt.ArrayLike,
        environment: npt.ArrayLike | None = None,
        task: npt.ArrayLike | None = None,
        components: npt.ArrayLike | None = None,
        valid: npt.ArrayLike | None = None,
        turn_rollout: npt.ArrayLike | None = None,
        turn_reward: npt.ArrayLike | None = None,
        information_gain: npt.ArrayLike | None = None,
        process_reward: npt.ArrayLike | None = None,
        state_key: npt.ArrayLike | None = None,
        success: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
        greedy_return: npt.ArrayLike | None = None,
        drift: npt.ArrayLike | None = None,
        entropy: npt.ArrayLike | None = None,
        log_prob: npt.ArrayLike | None = None,
        probability_square: npt.ArrayLike | None = None,
        context: npt.ArrayLike | None = None,
        token_mask: npt.ArrayLike | None = None,
        value: npt.ArrayLike | None = None,
        token_value: npt.ArrayLike | None = None,
        final_value: npt.ArrayLike | None = None,
        token_penalty: npt.ArrayLike | None = None,
        max_tokens: int | None = None,
    ) -> RolloutBatch:
        """Build a batch from your own rollouts.

        Args:
            returns: (N,) return of each rollout; None or NaN means that it could not be scored.
            prompt: (N,) ids of the groups, integers or strings, in any order.
            environment: (N,) ids; default: one environment.
            task: (N,) ids; default: one task.
            components: (N, K) reward components.
            valid: (N,) bool; False leaves a rollout out of statistics and loss.
            turn_rollout: (M,) row (0 to N - 1) of each turn's rollout; default: one turn each.
            turn_reward: (M,) default: the return at the rollout's last turn.
            information_gain: (M,) gain of each turn.
            process_reward: (M,) score of each turn.
            state_key: (M,) integers or strings.
            success: (N,) bool, the task's own verdict.
            truncated: (N,) bool.
            greedy_return: (N,) return of the prompt's greedy rollout.
            drift: (N,) see the class.
            entropy: (M, L) entropy of each slot's distribution.
            log_prob: (M, L) of each token when it was written.
            probability_square: (M, L) sum of each slot's squared probabilities.
            context: (N, D) features of the rollout as a whole.
            token_mask: (M, L) bool; default: one token per turn.
            value: (M,) critic values, for schemes with a critic.
            token_value: (M, L) critic values before each token.
            final_value: (N,) critic values after truncated rollouts.
            token_penalty: (M, L) what is taken from each token's credit before whitening.
            max_tokens: see the class; default: those of the longest rollout that counts.

        Raises:
            ValueError: if a column has the wrong shape or type, a valid rollout has an infinite or huge
                return or turn reward, or a rollout more than ``max_tokens`` tokens.
        """
        scored = _floats("returns", returns)
        n = _length("returns", scored)
        owner = _turn_owner(turn_rollout, n)
        m = len(owner)
        mask = np.ones((m, 1), np.bool_) if token_mask is None else _bools("token_mask", token_mask, 2, m)
        batch = cls(
            returns=scored,
            prompt=_ids("prompt", prompt, n),
            environment=_ids("environment", np.zeros(n, np.int64) if environment is None else environment, n),
            task=_ids("task", np.zeros(n, np.int64) if task is None else task, n),
            valid=np.ones(n, np.bool_) if valid is None else _bools("valid", valid, 1, n),
            turn_rollout=owner,
            turn_reward=_last_turn(owner, scored) if turn_reward is None else _column("turn_reward", turn_reward, m),
            token_mask=mask,
            components=None if components is None else _column("components", components, n, ndim=2),
            information_gain=_optional("information_gain", information_gain, m),
            process_reward=_optional("process_reward", process_reward, m),
            state_key=None if state_key is None else _ids("state_key", state_key, m),
            success=None if success is None else _bools("success", success, 1, n),
            truncated=None if truncated is None else _bools("truncated", truncated, 1, n),
            greedy_return=_optional("greedy_return", greedy_return, n),
            drift=_optional("drift", drift, n),
            entropy=_optional("entropy", entropy, m, mask.shape[1]),
            log_prob=_optional("log_prob", log_prob, m, mask.shape[1]),
            probability_square=_optional("probability_square", probability_square, m, mask.shape[1]),
            context=None if context is None else _column("context", context, n, ndim=2),
            value=_optional("value", value, m),
            token_value=_optional("token_value", token_value, m, mask.shape[1]),
            final_value=_optional("final_value", final_value, n),
            token_penalty=_optional("token_penalty", token_penalty, m, mask.shape[1]),
            assumed=tuple(name for name, ids in (("environment", environment), ("task", task)) if ids is None),
        )
        batch.check_returns()
        return dataclasses.replace(batch, max_tokens=batch._max_tokens(max_tokens))

    def _max_tokens(self, given: int | None) -> int:
        longest = max(int(self.tokens_per_rollout[self.counted].max(initial=0.0)), 1)
        if given is None:
            return longest
        if not isinstance(given, int | np.integer) or given < longest:
            raise ValueError(
                f"max_tokens={given!r} is not allowed: it must be an integer, at least the {longest} tokens of the "
                "longest rollout."
            )
        return int(given)

    def check_returns(self) -> None:
        """Raise on infinite or huge rewards; warn of groups that could not be scored at all.

        Raises:
            ValueError: if a valid rollout has an infinite return or turn reward, or one beyond ``LARGEST``; names
                its group.
        """
        over = np.abs(self.returns) > LARGEST
        over[self.turn_rollout[np.abs(self.turn_reward) > LARGEST]] = True
        over &= self.valid
        if over.any():
            row = int(over.argmax())
            rewards = np.append(self.turn_reward[self.turn_rollout == row], self.returns[row])
            size = np.nanmax(np.abs(rewards))
            raise ValueError(
                f"returns: the group prompt={self.prompt.tolist()[row]!r} has "
                f"{'an infinite return' if np.isinf(size) else f'a return of size {size:g}'}; it must be finite, and "
                f"its size at most {LARGEST:g}."
            )
        unscored = self.valid & ~self.counted
        if unscored.any():
            groups = self.level("prompt")
            scored = groups.sum(self.counted.astype(np.float64))
            silent = (scored == 0)[groups.ids] & unscored
            if silent.any():
                names = list(dict.fromkeys(self.prompt[silent].tolist()))
                shown = f"{names[:MOST_NAMES]!r}" + (" and others" if len(names) > MOST_NAMES else "")
                warnings.warn(
                    f"returns: no rollout of the groups prompt={shown} could be scored; "
                    "they take no part in statistics and loss.",
                    stacklevel=3,
                )

    def __len__(self) -> int:
        """N, the number of rollouts."""
        return len(self.returns)

    @property
    def n_turns(self) -> int:
        """M, the number of turns."""
        return len(self.turn_rollout)

    @functools.cached_property
    def counted(self) -> BoolArray:
        """(N,) rollouts that take part in statistics and loss: valid, and with a return."""
        counted = self.valid & ~np.isnan(self.returns)
        counted[self.turn_rollout[np.isnan(self.turn_reward)]] = False
        return counted

    @functools.cached_property
    def outcome(self) -> FloatArray:
        """(N,) returns, with 0 in place of those that do not count."""
        return np.where(self.counted, self.returns, 0.0)

    @functools.cached_property
    def tokens_per_turn(self) -> IntArray:
        """(M,) counted token slots."""
        return self.token_mask.sum(axis=1)

    @functools.cached_property
    def tokens_per_rollout(self) -> FloatArray:
        """(N,) counted token slots, as floats because they serve as weights."""
        return totals(self.turn_rollout, self.tokens_per_turn, len(self))

    @functools.cached_property
    def turns_per_rollout(self) -> IntArray:
        """(N,) number of turns."""
        return np.bincount(self.turn_rollout, minlength=len(self))

    @functools.cached_property
    def written(self) -> BoolArray:
        """(M,) turns with counted token slots: those that the policy wrote."""
        return self.tokens_per_turn > 0

    @functools.cached_property
    def written_turns(self) -> FloatArray:
        """(N,) number of turns that the policy wrote, as floats because they serve as weights."""
        return totals(self.turn_rollout, self.written, len(self))

    @functools.cached_property
    def in_order(self) -> IntArray:
        """(M,) the turns by rollout, each rollout's in their order."""
        return stable_order(self.turn_rollout, len(self))

    @functools.cached_property
    def first_place(self) -> IntArray:
        """(N,) place of the rollout's first turn in ``in_order``."""
        return np.asarray(np.cumsum(self.turns_per_rollout) - self.turns_per_rollout)

    @functools.cached_property
    def turn_index(self) -> IntArray:
        """(M,) position of the turn within its rollout, from 0."""
        index = np.empty(self.n_turns, dtype=np.int64)
        index[self.in_order] = np.arange(self.n_turns) - self.first_place[self.turn_rollout[self.in_order]]
        return index

    @functools.cached_property
    def written_index(self) -> IntArray:
        """(M,) position of the turn among those that the policy wrote of its rollout, from 0."""
        written = self.written[self.in_order]
        before: IntArray = np.cumsum(written) - written
        start = np.append(before, 0)[self.first_place[self.turn_rollout[self.in_order]]]
        index = np.empty(self.n_turns, dtype=np.int64)
        index[self.in_order] = before - start
        return index

    @functools.cached_property
    def next_written(self) -> IntArray:
        """(M,) row of the next turn that the policy wrote of the rollout; -1 where there is none.

        Only for turns that the policy wrote; the others have -1.
        """
        rows = self.in_order[self.written[self.in_order]]
        following = np.full(self.n_turns, -1, dtype=np.int64)
        following[rows[:-1]] = np.where(np.diff(self.turn_rollout[rows]) == 0, rows[1:], -1)
        return following

    @functools.cached_property
    def last_written(self) -> BoolArray:
        """(M,) whether the turn is the last that the policy wrote of its rollout: the answer."""
        return np.asarray(self.written & (self.written_index == self.written_turns[self.turn_rollout] - 1))

    def level(self, name: str) -> Segments:
        """Return the partition of the rollouts at one of ``LEVELS``."""
        return self._levels[name]

    def turn_level(self, name: str) -> Segments:
        """Return the partition of the turns at one of ``LEVELS`` or ``TURN_LEVELS``.

        Raises:
            ValueError: if the batch has no state keys and the level is ``state``.
        """
        if name not in self._turn_levels:
            self._turn_levels[name] = self._partition(name)
        return self._turn_levels[name]

    @functools.cached_property
    def _turn_levels(self) -> dict[str, Segments]:
        return {}

    def _partition(self, name: str) -> Segments:
        owner = self.turn_rollout
        if name in LEVELS:
            level = self.level(name)
            return Segments(level.ids[owner], level.size)
        prompt = self.level("prompt").ids[owner]
        return Segments.by(prompt, self.written_index if name == "turn" else self.column("state_key"))

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return an optional column.

        Raises:
            ValueError: if the batch does not have it.
        """
        values: npt.NDArray[Any] | None = getattr(self, name)
        if values is None:
            raise ValueError(f"{name}=None is not allowed with this scheme: give RolloutBatch its column {name!r}.")
        return values

    @functools.cached_property
    def _levels(self) -> dict[str, Segments]:
        return {
            "prompt": Segments.by(self.environment, self.prompt),
            "task": Segments.by(self.environment, self.task),
            "environment": Segments.by(self.environment),
            "batch": Segments(np.zeros(len(self), np.int64), 1),
        }

    @functools.cached_property
    def dead(self) -> BoolArray:
        """(N,) rollouts of groups whose counted returns are all equal: no signal."""
        groups = self.level("prompt")
        return groups.constant(self.outcome, self.counted)[groups.ids]


def _floats(name: str, values: npt.ArrayLike) -> FloatArray:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        hint = " Convert the tensor with .float() first." if "BFloat16" in str(error) else ""
        raise ValueError(f"{name} must be numbers, None or NaN: {error}.{hint}") from None


def _length(name: str, values: npt.NDArray[Any]) -> int:
    if values.ndim != 1 or not len(values):
        raise ValueError(
            f"{name} has shape {values.shape}; it must have shape (N,) with one entry per rollout, N >= 1."
        )
    return len(values)


def _column(name: str, values: npt.ArrayLike, n: int, ndim: int = 1) -> FloatArray:
    array = _floats(name, values)
    if array.ndim != ndim or len(array) != n:
        raise ValueError(f"{name} has shape {array.shape}; it must have {n} rows and {ndim} dimension(s).")
    return array


def _optional(name: str, values: npt.ArrayLike | None, n: int, width: int | None = None) -> FloatArray | None:
    if values is None:
        return None
    array = _column(name, values, n, ndim=1 if width is None else 2)
    if width is not None and array.shape[1] != width:
        raise ValueError(f"{name} has shape {array.shape}; it must have the token mask's, {(n, width)}.")
    return array


def _ids(name: str, values: npt.ArrayLike, n: int) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.ndim == 1 and array.dtype.kind not in "iuSb":
        # Looking at the entries themselves: of [1, "1"] NumPy makes two equal strings, of large and
        # small integers it makes floats.
        entries = list(values) if isinstance(values, list | tuple) else array.tolist()
        if all(isinstance(entry, str) for entry in entries):
            array = np.array(entries)
        elif all(isinstance(entry, int | np.integer) for entry in entries):
            array = np.array([str(int(entry)) for entry in entries])
        else:
            array = array.astype(np.object_)
    if array.shape != (n,) or array.dtype.kind not in "iuUSb":
        raise ValueError(f"{name} has shape {array.shape} and type {array.dtype}; it must be {n} integers or strings.")
    # What is asked for later must not follow what the caller writes into his array.
    return array.copy()


def _bools(name: str, values: npt.ArrayLike, ndim: int, n: int) -> BoolArray:
    array = np.asarray(values)
    if array.ndim != ndim or len(array) != n or not np.isin(array, (0, 1)).all():
        raise ValueError(
            f"{name} has shape {array.shape} and type {array.dtype}; it must be {n} rows of True or False "
            f"in {ndim} dimension(s)."
        )
    return array.astype(np.bool_)


def _turn_owner(turn_rollout: npt.ArrayLike | None, n: int) -> IntArray:
    if turn_rollout is None:
        return np.arange(n)
    owner = np.asarray(turn_rollout)
    if owner.ndim != 1 or owner.dtype.kind not in "iu" or (len(owner) and not 0 <= owner.min() <= owner.max() < n):
        raise ValueError(f"turn_rollout must be integers of shape (M,) in [0, {n - 1}], the rows of the rollouts.")
    return owner.astype(np.int64)


def _last_turn(owner: IntArray, returns: FloatArray) -> FloatArray:
    reward = np.zeros(len(owner))
    last = np.full(len(returns), -1)
    last[owner] = np.arange(len(owner))
    present = last >= 0
    reward[last[present]] = returns[present]
    return reward
