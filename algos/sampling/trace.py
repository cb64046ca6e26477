"""TRACE: rollouts go where mixed results are likely, to prompts and to prefixes of rollouts.

arXiv 2606.11119 is known from its abstract and from comments of a re-implementation (PARTIAL).
INFERRED stand-ins: the predictor and its updates, the share of budget of the two stages, the pool
of prompts, the greedy rule, the cap per prompt and prefix, and that every rollout trains all its turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from algos.batch import RolloutBatch
from algos.collector import Trajectories, Writer
from algos.memory import Memory
from algos.parts import part
from algos.policies import MessagePolicy, Written
from algos.rows import VectorRows
from algos.sampling.select import join
from algos.sampling.trainer import Trainer
from algos.scheme import Scheme
from algos.segments import FloatArray, IntArray

PREDICTOR = "success_predictor"
Features = npt.NDArray[np.float32]


def utility(p: npt.ArrayLike, m: npt.ArrayLike) -> FloatArray:
    """Return v^m(p) = 1 - p^m - (1 - p)^m, the probability that m results are mixed; 0 for m = 0."""
    p, m = np.asarray(p, dtype=np.float64), np.asarray(m)
    return np.where(m > 0, 1.0 - p**m - (1.0 - p) ** m, 0.0)


def marginal(p: npt.ArrayLike, m: npt.ArrayLike) -> FloatArray:
    """Return v^{m+1}(p) - v^m(p) for m >= 1: what one more result adds."""
    p, m = np.asarray(p, dtype=np.float64), np.asarray(m)
    # Written so that the gains of the first three results tie exactly.
    return p * (1.0 - p) * (p ** (m - 1) + (1.0 - p) ** (m - 1))


def allocate_roots(p: FloatArray, budget: int, cap: int) -> IntArray:
    """Divide rollouts among prompts with success probabilities p (n,), (n,).

    A prompt begins with two rollouts, which gain p (1 - p) each; then one by one. The largest gain
    per rollout comes first, of equal ones the lower index. A last rollout that cannot begin a
    prompt goes to one that has begun; where none has it is left over.

    Args:
        p: (n,) success probabilities.
        budget: how many to divide.
        cap: at most about so many each, more only if the budget does not fit otherwise.
    """
    more = np.arange(1, max(cap, -(-budget // len(p)), 2))
    gain = np.concatenate([p[:, None] * (1.0 - p[:, None]), marginal(p[:, None], more)], axis=1)
    # The second of the two has the first one's gain, so that both come together.
    gain[:, 1] = gain[:, 0]
    owner = np.repeat(np.arange(len(p)), gain.shape[1])
    chosen = np.argsort(-gain.ravel(), kind="stable")
    count = np.bincount(owner[chosen[:budget]], minlength=len(p))
    single = np.flatnonzero(count == 1)
    if len(single):
        count[single] = 0
        begun = np.flatnonzero(count)
        if len(begun):
            count[begun[np.argmax(marginal(p[begun], count[begun]))]] += 1
    return count


def allocate_more(p: FloatArray, begun: IntArray, budget: int, cap: int) -> IntArray:
    """Divide further results among anchors that have some, (n,).

    Args:
        p: (n,) success probabilities.
        begun: (n,) results so far, at least 1.
        budget: how many to divide.
        cap: at most so many each, more only if the budget does not fit otherwise.
    """
    if not len(p):
        return np.zeros(0, dtype=np.int64)
    cap = max(cap, -(-budget // len(p)))
    gain = marginal(p[:, None], begun[:, None] + np.arange(cap))
    chosen = np.argsort(-gain.ravel(), kind="stable")[:budget]
    return np.bincount(chosen // cap, minlength=len(p))


@dataclass
class Predictor:
    """Online logistic regression of success on what the policy sees, by AdaGrad.

    Attributes:
        weights: (F + 1,), the last one is the bias.
        squares: (F + 1,) sums of squared gradients.
        pending: features (m, F) and success (m,) of the present update's turns, or None.
    """

    weights: FloatArray
    squares: FloatArray
    pending: tuple[Features, npt.NDArray[np.bool_]] | None = None

    @classmethod
    def blank(cls, size: int) -> Predictor:
        """Return one that says 1/2 to everything."""
        return cls(np.zeros(size + 1), np.zeros(size + 1))

    def __call__(self, features: Features) -> FloatArray:
        """Return the probability of success (n,) in states with features (n, F)."""
        score = features.astype(np.float64) @ self.weights[:-1] + self.weights[-1]
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(score, -30.0, 30.0))))

    def learn(self, steps: int, step_size: float) -> None:
        """Take full-batch steps on the pending turns, and forget them."""
        if self.pending is None:
            return
        features, success = self.pending
        x = np.column_stack([features, np.ones(len(features))])
        for _ in range(steps):
            slope = x.T @ (self(features) - success) / len(x)
            self.squares += slope**2
            self.weights -= step_size * slope / np.sqrt(self.squares + 1e-12)
        self.pending = None


def _after_update(
    scheme: Scheme, batch: RolloutBatch, memory: Memory, *, predictor_steps: int, predictor_step_size: float, **_: Any
) -> None:
    memory.get(PREDICTOR, lambda: Predictor.blank(0)).learn(predictor_steps, predictor_step_size)


@part(
    "sampling", "trace", source="TRACE, arXiv 2606.11119; PARTIAL; all but the utility and the two stages INFERRED",
    tags=["compares"], after_update=_after_update,
    ranges={
        "oversample": (1.0, 1000.0), "root_share": (0.0, 1.0), "predictor_steps": (0, 10_000),
        "predictor_step_size": (0.0, 1000.0),
    },
)  # fmt: skip
def trace(
    scheme: Scheme,
    trainer: Trainer,
    *,
    oversample: float = 2.0,
    root_share: float = 0.5,
    predictor_steps: int = 10,
    predictor_step_size: float = 0.3,
) -> Trajectories | None:
    """Divide ``n_prompts * group_size`` rollouts in two stages among prompts and visited prefixes.

    A predictor says how likely success is from a state; m results from there are mixed with
    probability 1 - p^m - (1 - p)^m, and rollouts go greedily where they add most to the sum of
    these. First, rollouts of prompts; prompts with none are passed over. Then continuations of what
    was visited: of the states after each turn but the last. Continuations are rollouts of the prompt
    like others: they carry the turns before, with the log-probabilities of their writing, and every
    rollout trains all its turns, so shared turns are trained as often as they are shared. Turns
    that are taken over are not counted again.

    * ``oversample``: the pool of prompts, as a multiple of ``n_prompts``.
    * ``root_share``: share of the rollouts for the first stage (two at least). Where no rollout has
      a second turn, all are.
    * ``predictor_steps``, ``predictor_step_size``: how the predictor learns after each update.

    In each stage a prompt or prefix gets at most ``group_size`` rollouts, unless they are too few.
    """
    rows = trainer.rows
    if not isinstance(rows, VectorRows) or not hasattr(rows.env.unwrapped, "fork"):
        raise ValueError(
            "sampling='trace' continues rollouts from the middle, which needs rows that can be copied: an "
            f"environment of agentic_gym by its id; env={rows.name} cannot."
        )
    budget = trainer.n_prompts * trainer.group_size
    predictor = trainer.memory.get(PREDICTOR, lambda: Predictor.blank(trainer.policy.actor.widths[0]))
    pool = np.unique(trainer.prompts.draw(max(round(oversample * trainer.n_prompts), 1)))
    pool = trainer.random.permutation(pool)
    p = predictor(_first_features(trainer, pool))
    count = allocate_roots(p, min(max(round(root_share * budget), 2), budget), trainer.group_size)
    roots = trainer.run(np.repeat(pool, count))
    if roots is None:
        return None
    more = _second_stage(trainer, rows, predictor, roots, budget - len(roots.batch))
    if more is None:
        return None
    data = join([roots, *more])
    predictor.pending = (data.features, data.success[data.batch.turn_rollout])
    trainer.logged["sampling/prompts"] = float(np.count_nonzero(count))
    trainer.logged["sampling/continuations"] = float(len(data.batch) - len(roots.batch))
    return data


def _first_features(trainer: Trainer, prompt: IntArray) -> Features:
    """Return the features (n, F) in which rollouts of prompts begin; no turn is taken."""
    pieces = []
    for start in range(0, len(prompt), trainer.rows.n):
        wave = prompt[start : start + trainer.rows.n]
        observation, _ = trainer.rows.reset(wave, np.zeros_like(wave), "train")
        pieces.append(trainer.policy.features(observation))
    return np.concatenate(pieces)


def _second_stage(
    trainer: Trainer, rows: VectorRows, predictor: Predictor, roots: Trajectories, budget: int
) -> list[Trajectories] | None:
    """Continue visited prefixes, or, where there are none, roll the same prompts out more often."""
    batch = roots.batch
    if not budget:
        return []
    # In random order, so that equal predictions do not favour the first prompts.
    turns = trainer.random.permutation(np.flatnonzero(batch.turn_index > 0))
    if len(turns):
        p = predictor(roots.features[turns])
        count = allocate_more(p, np.ones_like(turns), budget, trainer.group_size)
        chosen = np.repeat(turns, count)
        source, depth = batch.turn_rollout[chosen], batch.turn_index[chosen]
        keys = trainer.random.integers(2**63 - 1, size=len(chosen))
        writer = ReplayWriter(trainer.policy, rows, roots, source, depth, keys)
        more = trainer.run(roots.prompt[source], writer, rollout=roots.rollout[source])
    else:
        prompt, begun = np.unique(roots.prompt, return_counts=True)
        count = allocate_more(predictor(_first_features(trainer, prompt)), begun, budget, budget)
        more = trainer.run(np.repeat(prompt, count))
    return None if more is None else [more]


class ReplayWriter(Writer):
    """Repeats the first turns of other rollouts, then goes on under new rollout keys.

    Rollouts are functions of prompt, key and messages, so repeating a rollout's messages under its
    key leads to its states; there the row is forked onto itself under a new key.

    Args:
        policy: writes what is new.
        rows: the environment.
        data: the rollouts that are repeated.
        source: (N,) which of them.
        depth: (N,) how many of its turns.
        rollout: (N,) keys from there on.
    """

    def __init__(
        self, policy: MessagePolicy, rows: VectorRows, data: Trajectories, source: IntArray, depth: IntArray,
        rollout: IntArray,
    ) -> None:  # fmt: skip
        """See the class docstring."""
        super().__init__(policy)
        self.rows, self.data, self.depth, self.rollout = rows, data, depth, rollout
        batch = data.batch
        order = np.argsort(batch.turn_rollout, kind="stable")
        first = np.cumsum(batch.turns_per_rollout) - batch.turns_per_rollout
        # Place, in the order of rollouts, of each one's first turn.
        self._order, self._first = order, first[source]
        self._turn = np.zeros(len(source), dtype=np.int64)

    def write(self, features: Features, rollouts: IntArray, random: np.random.Generator) -> Written:
        """Repeat, fork or write, row by row as far as each one has come."""
        turn = self._turn[rollouts]
        self._turn[rollouts] += 1
        forks = rollouts[turn == self.depth[rollouts]]
        if len(forks):
            self.rows.branch(forks % self.rows.n, self.rollout[forks])
        repeats = np.flatnonzero(turn < self.depth[rollouts])
        self.replayed = len(repeats)
        written = self.policy.write(features, random)
        if len(repeats):
            columns: tuple[Any, ...] = written
            old: tuple[Any, ...] = self._old(self._order[self._first[rollouts[repeats]] + turn[repeats]])
            for new, values in zip(columns, old, strict=True):
                new[repeats] = values
        return written

    def _old(self, turns: IntArray) -> Written:
        data = self.data
        state, position = data.state[turns], data.position[turns]
        return Written(
            self.policy.grammar.tokens[state, position], state, position, data.previous[turns], data.log_prob[turns],
            data.entropy[turns],
        )  # fmt: skip
