"""A worked example: what a scheme makes of a small, made-up batch, next to GRPO.

Two environments of unequal reward scale, two prompts each, groups of four; one group has no spread.
Columns that the scheme needs are made up too, by what ``RolloutBatch`` says of their shape.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from algos.advantages import advantages
from algos.batch import RolloutBatch
from algos.docstrings import meanings
from algos.memory import Memory
from algos.scheme import Scheme, make_scheme
from algos.segments import FloatArray
from algos.surrogates.aggregation import token_weights
from algos.surrogates.loss import prepared_columns, token_losses
from algos.surrogates.tokens import Tokens

RETURNS = (1, 0, 0, 0, 1, 1, 1, 0, 80, 20, 0, 40, 50, 50, 50, 50)
RATIOS = (1.1, 0.7, 1.0, 1.4, 1.5, 1.0, 0.9, 0.6, 0.8, 1.0, 1.3, 1.6, 1.2, 0.9, 1.0, 1.1)
"""How far the policy has moved, per rollout: what the loss is shown at."""
TURNS = (2, 3, 3, 2, 3, 2, 2, 3, 2, 3, 3, 3, 2, 2, 3, 2)
WIDTH = 3
"""Token slots per turn."""

Columns = Mapping[str, npt.NDArray[Any]]
Make = Callable[[np.random.Generator, Columns, tuple[int, ...]], npt.NDArray[Any]]


def worked_example(scheme: Scheme) -> dict[str, Any]:
    """Compute a scheme's advantages and the push of its loss on a made-up batch.

    Returns:
        ``rows``, one per rollout: ``environment``, ``prompt``, ``reward``, ``tokens``, the made-up
        columns, ``advantage``, ``grpo``, ``ratio``, ``clip_low`` and ``clip_high`` (where the loss has
        bounds), ``push`` and ``grpo_push``. What belongs to turns is a list, what belongs to tokens
        a list of lists. ``made_up`` names the columns; ``several_turns`` and ``first_update`` (the
        scheme remembers, but there is nothing to remember yet) say how it was computed.
    """
    made_up = [name for name in meaning_of_columns() if name in scheme.needs]
    several_turns = _is_about_turns(scheme, made_up)
    columns = example_columns(made_up, several_turns)
    batch = RolloutBatch.from_arrays(**columns)
    credit, reference = advantages(scheme, batch, Memory()), advantages("grpo", batch)
    low, high, push = _loss(scheme, batch, credit)
    _, _, reference_push = _loss(make_scheme("grpo"), batch, reference)
    rows = []
    for rollout in range(len(batch)):
        turns = np.flatnonzero(batch.turn_rollout == rollout)
        row: dict[str, Any] = {
            "environment": str(batch.environment[rollout]),
            "prompt": str(batch.prompt[rollout]),
            "reward": float(batch.returns[rollout]),
            "tokens": _of_turns(batch.tokens_per_turn, batch, turns, several_turns),
        }
        for name in made_up:
            values = columns[name]
            per_turn = len(values) == batch.n_turns and meaning_of_columns()[name].startswith("(M")
            row[name] = _of_turns(values, batch, turns, True) if per_turn else values[rollout].tolist()
        row["advantage"] = _of_turns(credit, batch, turns, several_turns)
        row["grpo"] = float(reference[turns[0]])
        row["ratio"] = RATIOS[rollout]
        if scheme.clips:
            row["clip_low"], row["clip_high"] = (_bound(bound, batch, turns) for bound in (low, high))
        row["push"], row["grpo_push"] = float(push[turns].sum()), float(reference_push[turns].sum())
        rows.append(row)
    remembers = any(chosen.after_update is not None for chosen in scheme.parts)
    return {"made_up": made_up, "several_turns": several_turns, "first_update": remembers, "rows": rows}


def example_columns(made_up: list[str], several_turns: bool) -> dict[str, Any]:
    """Return the arguments of ``RolloutBatch.from_arrays``."""
    n = len(RETURNS)
    owner = np.repeat(np.arange(n), TURNS if several_turns else 1)
    random = np.random.default_rng(0)
    length = random.integers(1, WIDTH + 1, len(owner))
    columns: dict[str, Any] = {
        "returns": np.array(RETURNS, dtype=float),
        "environment": np.repeat(["small", "large"], n // 2),
        "task": np.repeat(["small", "large"], n // 2),
        "prompt": np.repeat(["a", "b", "c", "d"], n // 4),
        "turn_rollout": owner,
        "token_mask": np.arange(WIDTH) < length[:, None],
    }
    for name in made_up:
        shape = _shape(name, n, len(owner))
        make = MAKERS.get(name, _anything(name))
        # A stream of its own, so that a column does not depend on the others.
        columns[name] = make(np.random.default_rng(list(name.encode())), columns, shape)
    if "components" in columns:
        columns["returns"] = columns["components"].sum(axis=1)
    return columns


def meaning_of_columns() -> dict[str, str]:
    """Return what ``RolloutBatch`` says of its optional columns."""
    said = meanings(RolloutBatch)
    return {field.name: said[field.name] for field in dataclasses.fields(RolloutBatch) if field.default is None}


def _is_about_turns(scheme: Scheme, made_up: list[str]) -> bool:
    per_turn = any("per_turn" in chosen.tags for chosen in scheme.parts)
    return per_turn or any(meaning_of_columns()[name].startswith("(M") for name in made_up)


SIZES = {"L": WIDTH, "K": 2, "D": 2}


def _shape(name: str, n: int, m: int) -> tuple[int, ...]:
    """Return the shape that ``RolloutBatch`` documents for a column."""
    letters = re.match(r"\((\w)(?:, (\w))?,?\)", meaning_of_columns()[name])
    assert letters is not None, f"RolloutBatch does not say the shape of {name!r}"
    sizes = {"N": n, "M": m, **SIZES}
    return tuple(sizes[letter] for letter in letters.groups() if letter)


def _anything(name: str) -> Make:
    """Return a maker of a column that only its type is known of."""
    kind = {field.name: str(field.type) for field in dataclasses.fields(RolloutBatch)}[name]

    def make(random: np.random.Generator, columns: Columns, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        if "Bool" in kind:
            return random.random(shape) < 0.5
        # Columns of any type are ids.
        numbers = "Float" in kind
        return _rounded(random, 0.0, 1.0, shape) if numbers else random.integers(0, 3, shape)

    return make


def _rounded(random: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> FloatArray:
    return np.round(random.uniform(low, high, shape), 2)


def _between(low: float, high: float) -> Make:
    return lambda random, columns, shape: _rounded(random, low, high, shape)


def _size(columns: Columns) -> FloatArray:
    """Return (N,) the largest return of each rollout's environment."""
    returns = columns["returns"]
    return np.repeat(returns.reshape(2, -1).max(axis=1), len(returns) // 2)


def _components(random: np.random.Generator, columns: Columns, shape: tuple[int, ...]) -> FloatArray:
    """The return, and a quarter of the largest one where the format is right."""
    right = random.random(shape[0]) < 0.5
    return np.column_stack([columns["returns"], right * _size(columns) / 4])


def _greedy_return(random: np.random.Generator, columns: Columns, shape: tuple[int, ...]) -> FloatArray:
    return np.repeat([np.median(group) for group in columns["returns"].reshape(4, -1)], 4)


def _state_key(random: np.random.Generator, columns: Columns, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """All rollouts begin in one state and meet again in few."""
    owner = columns["turn_rollout"]
    first = np.append(True, owner[1:] != owner[:-1])
    return np.where(first, "start", random.choice(["hall", "shop"], shape))


def _value(random: np.random.Generator, columns: Columns, shape: tuple[int, ...]) -> FloatArray:
    return np.round(_size(columns)[columns["turn_rollout"]] * random.uniform(0.2, 0.6, shape), 2)


def _probability_square(random: np.random.Generator, columns: Columns, shape: tuple[int, ...]) -> FloatArray:
    """The chosen token's probability, the rest on one other token."""
    p = np.exp(columns["log_prob"]) if "log_prob" in columns else random.uniform(0.2, 0.9, shape)
    return np.round(p**2 + (1 - p) ** 2, 2)


MAKERS: dict[str, Make] = {
    "components": _components,
    "information_gain": _between(-0.1, 0.4),
    "state_key": _state_key,
    "success": lambda random, columns, shape: columns["returns"] >= _size(columns) / 2,
    "truncated": lambda random, columns, shape: np.zeros(shape, np.bool_),
    "greedy_return": _greedy_return,
    "drift": _between(0.0, 0.05),
    "entropy": _between(0.1, 2.0),
    "log_prob": _between(-1.6, -0.1),
    "probability_square": _probability_square,
    "context": _between(-1.0, 1.0),
    "value": _value,
    "token_value": lambda random, columns, shape: _value(random, columns, shape[:1])[:, None].repeat(shape[1], 1),
    "final_value": lambda random, columns, shape: np.zeros(shape),
}
"""Column -> plausible values; of columns that are not here only shape and type are right."""


def _loss(scheme: Scheme, batch: RolloutBatch, credit: FloatArray) -> tuple[Any, Any, FloatArray]:
    """Return the bounds of the ratio, and (M,) the push of the loss on each turn's tokens.

    The push is minus the gradient of the loss to the log-probabilities, summed over the tokens,
    times the number of rollouts: at a ratio of 1 it is GRPO's advantage.
    """
    random = np.random.default_rng(1)
    shape = batch.token_mask.shape
    written = batch.log_prob if batch.log_prob is not None else random.uniform(-1.6, -0.1, shape)
    mask = torch.from_numpy(batch.token_mask)
    old = torch.where(mask, torch.from_numpy(np.asarray(written, dtype=np.float64)), 0.0)
    moved = torch.from_numpy(np.log(RATIOS)[batch.turn_rollout])[:, None]
    log_prob = torch.where(mask, old + moved, 0.0).requires_grad_()
    prepared = prepared_columns(scheme, batch, credit)
    tokens = Tokens(
        log_prob=log_prob,
        old_log_prob=old,
        advantage=torch.from_numpy(credit.reshape(len(credit), -1)),
        mask=mask,
        rollout=torch.from_numpy(batch.turn_rollout),
        n_rollouts=len(batch),
        behaviour_log_prob=None if scheme.correction == "none" else torch.where(mask, old - 0.1, 0.0),
        reference_log_prob=None if scheme.kl == "none" else old,
        columns={name: column.double() for name, column in prepared.items()},
    )
    weights = torch.from_numpy(token_weights(scheme, batch))
    loss = (weights * token_losses(scheme, tokens).expand_as(mask)).sum()
    (gradient,) = torch.autograd.grad(loss, log_prob)
    low = high = None
    if scheme.clips:
        with torch.no_grad():
            low, high = scheme.run("bounds", tokens, scheme.run("ratio", tokens).exp())
    return low, high, -len(batch) * gradient.sum(dim=1).numpy()


def _of_turns(values: npt.NDArray[Any], batch: RolloutBatch, turns: npt.NDArray[np.int64], several: bool) -> Any:
    """Return a rollout's entries of a column of turns or tokens; one number if it has one turn."""
    listed = [
        entry.tolist() if entry.ndim == 0 else entry[batch.token_mask[turn]].tolist()
        for turn, entry in ((turn, np.asarray(values[turn])) for turn in turns)
    ]
    return listed if several else listed[0]


def _bound(bound: Any, batch: RolloutBatch, turns: npt.NDArray[np.int64]) -> Any:
    """Return a rollout's bound: one number where all its tokens share it, else per turn and token."""
    if not isinstance(bound, torch.Tensor):
        return float(bound)
    values = bound.double().expand(batch.token_mask.shape).numpy()
    nested = [values[turn][batch.token_mask[turn]].tolist() for turn in turns]
    flat = [entry for entries in nested for entry in entries]
    if max(flat) - min(flat) < 1e-12:
        return flat[0]
    per_turn = [entries[0] if max(entries) - min(entries) < 1e-12 else entries for entries in nested]
    return per_turn
