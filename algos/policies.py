"""MessagePolicy: a multilayer perceptron that writes messages token by token.

The network computes one score per column of the grammar (a token in a role), once per turn. A
slot's distribution is the softmax over its legal columns, plus a bias that depends on the previous
token: autoregressive, and parallel over slots when the message is known.

Rollouts run in NumPy and updates in torch on the same memory: NumPy is about three times faster
than torch for small batches on a CPU (see benchmarks/speed.py).
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from torch.optim.adam import adam

from agentic_gym.grammar import DONE, Grammar, grammar_of_sizes

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
NOTHING_BEFORE = 0
LEAST_DRAW = np.float32(2**-25)
"""Stands in for a draw of 0; the next larger one is 2^-24."""
SMALLEST = np.float32(-1e30)
"""Stands in for log 0, so that 0 log 0 is 0."""
_THRESHOLD = torch.ops.aten.threshold_backward.grad_input
Choose = Callable[[int, FloatArray, FloatArray], IntArray]


class Written(NamedTuple):
    """Messages with what the update needs to know of them.

    Attributes:
        message: (n, L) tokens.
        state: (n, L) grammar state of each slot; ``DONE`` where the slot does not count.
        position: (n, L) index of the token among the legal ones.
        previous: (n, L) 1 + column of the previous token, 0 for the first.
        log_prob: (n, L) float32, 0 where the slot does not count.
        entropy: (n,) sum of the entropies of the counted slots.
    """

    message: IntArray
    state: IntArray
    position: IntArray
    previous: IntArray
    log_prob: FloatArray
    entropy: FloatArray


class Slots(NamedTuple):
    """Tokens to be scored by the network, for m turns.

    Attributes:
        features: (m, F) float32.
        state, previous, position: (m, L) int64, as in ``Written``.
    """

    features: torch.Tensor
    state: torch.Tensor
    previous: torch.Tensor
    position: torch.Tensor


class Scored(NamedTuple):
    """What the gradient of log-probabilities needs of their computation.

    Attributes:
        layers: the inputs of the network's layers.
        places: (W, m * L) where in the flattened scores each choice of each slot stands.
        previous: (m, L) as in ``Slots``.
        chosen: (m * L,) where in the flattened probabilities the written tokens stand.
        probability: (W, m * L) float32.
    """

    layers: list[FloatArray]
    places: IntArray
    previous: IntArray
    chosen: IntArray
    probability: FloatArray


class MessagePolicy(BasePolicy):
    """Policy over messages, or over any Discrete or MultiDiscrete action.

    Args:
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of these.
        action_space: Discrete or MultiDiscrete starting at 0.
        lr_schedule: learning rate as a function of the remaining progress.
        grammar: the environment's grammar; ``None`` allows every action.
        net_arch: widths of the hidden layers.
        temperature: divides the scores, when sampling and when training, > 0.
        critic: whether to have a value network (same widths, nothing shared).
        init_seed: seed of the initial weights and of ``predict``'s sampling.

    Raises:
        ValueError: if a space or a value is not supported.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        lr_schedule: Schedule,
        grammar: Grammar | None = None,
        net_arch: tuple[int, ...] | list[int] = (64, 64),
        temperature: float = 1.0,
        critic: bool = False,
        init_seed: int = 0,
    ) -> None:
        """See the class docstring."""
        super().__init__(observation_space, action_space)
        _check_temperature(temperature)
        _check_widths(net_arch)
        self.grammar = _space_grammar(action_space) if grammar is None else grammar
        self.temperature = temperature
        self._random = np.random.default_rng(init_seed)
        n_inputs = spaces.flatdim(observation_space)
        columns, width = self.grammar.n_columns, self.grammar.tokens.shape[1]
        self.actor = _Network([n_inputs, *net_arch, columns], self._random, last_gain=0.01)
        self.pair_bias = torch.nn.Parameter(torch.zeros(columns + 1, width))
        self.critic = _Network([n_inputs, *net_arch, 1], self._random, last_gain=1.0) if critic else None
        self._tables()
        self._share_memory()
        # One flat tensor: the norm, the clipping and Adam are one operation each.
        self.optimizer = torch.optim.Adam([self._flat], lr=lr_schedule(1.0), eps=1e-5, fused=True)

    def _tables(self) -> None:
        grammar = self.grammar
        blocked = np.where(grammar.legal, np.float32(0.0), np.float32(-np.inf))
        self._blocked = np.ascontiguousarray(blocked.T, dtype=np.float32)
        self._columns = np.ascontiguousarray(grammar.column.T)

    def _share_memory(self) -> None:
        """Put all parameters and gradients into one flat tensor each."""
        self._flat = torch.cat([p.detach().reshape(-1) for p in self.parameters()])
        gradient = torch.zeros_like(self._flat)
        self._places: dict[str, tuple[slice, torch.Size]] = {}
        start = 0
        for name, parameter in self.named_parameters():
            place = slice(start, start + parameter.numel())
            parameter.data = self._flat[place].view(parameter.shape)
            parameter.grad = gradient[place].view(parameter.shape)
            self._places[name] = (place, parameter.shape)
            start = place.stop
        self._flat.grad = gradient
        # The same memory as a leaf of autograd's graph; its gradient is added to in place.
        self._leaf = self._flat.detach().requires_grad_()
        self._leaf.grad = gradient
        self._viewed: tuple[int, dict[str, FloatArray]] = (0, {})

    def _arrays(self) -> dict[str, FloatArray]:
        """Return the parameters as NumPy arrays on the same memory, by name."""
        # Making the views anew would cost as much as a small layer; a copy of the policy has other memory.
        pointer = self._flat.data_ptr()
        if self._viewed[0] != pointer:
            self._viewed = (pointer, self._views(self._flat.numpy()))
        return self._viewed[1]

    def _views(self, flat: FloatArray) -> dict[str, FloatArray]:
        """Cut a flat array into arrays of the parameters' shapes."""
        return {name: flat[place].reshape(shape) for name, (place, shape) in self._places.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Put the parameters of an unpickled policy, which came as separate tensors, together again."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        (old,) = self.optimizer.param_groups[0]["params"]
        self._share_memory()
        self.optimizer.param_groups[0]["params"] = [self._flat]
        if old in self.optimizer.state:
            self.optimizer.state[self._flat] = self.optimizer.state.pop(old)

    @property
    def flat_parameters(self) -> torch.Tensor:
        """All parameters, one dimension, with their gradient in ``.grad``; shares their memory."""
        return self._flat

    def step(self) -> None:
        """Take a step of Adam along the gradient in ``flat_parameters.grad``.

        The same as ``optimizer.step()``, whose bookkeeping costs more than the step for a single tensor.
        """
        state, group = self.optimizer.state[self._flat], self.optimizer.param_groups[0]
        if not state or type(self.optimizer) is not torch.optim.Adam or group["amsgrad"] or group["maximize"]:
            self.optimizer.step()
            return
        assert self._flat.grad is not None
        adam(
            [self._flat], [self._flat.grad], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]],
            fused=True, amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
            weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
        )  # fmt: skip

    # NumPy side: writing messages.

    def features(self, observation: Any) -> FloatArray:
        """Flatten observations (n, ...) into float32 (n, F).

        Raises:
            ValueError: if a value is not finite.
        """
        features = flatten_observation(self.observation_space, observation)
        # The sum is cheaper than a look at every value, and not finite if one is not.
        if not math.isfinite(features.sum()) and not np.isfinite(features).all():
            row, column = np.argwhere(~np.isfinite(features))[0]
            raise ValueError(
                f"observation: row {row} holds {features[row, column]} (flattened, at {column}); all must be finite."
            )
        return features

    def write(self, features: FloatArray, random: np.random.Generator, deterministic: bool = False) -> Written:
        """Write one message per row of ``features`` (n, F)."""
        scores = self._run("actor", features)[1]
        n, n_slots = len(features), self.grammar.n_slots
        uniform = None if deterministic else random.random((n, n_slots), dtype=np.float32)
        state = self.grammar.start[self.grammar.dialect(features)]
        return self._walk(scores, state, lambda slot, p, log_p: _pick(p, log_p, uniform, slot))

    def compose(self, features: FloatArray, choose: Choose) -> Written:
        """Write one message per row of ``features`` (n, F) by another rule than sampling.

        Args:
            features: (n, F).
            choose: called as (slot, probability (W, n), log-probability (W, n)), returns positions (n,).
        """
        scores = self._run("actor", features)[1]
        return self._walk(scores, self.grammar.start[self.grammar.dialect(features)], choose)

    def _walk(self, scores: FloatArray, state: IntArray, choose: Choose) -> Written:
        """Go through the slots; ``choose(slot, probability, log_p)`` picks positions (n,).

        Distributions have shape (W, n): reductions over few choices are fast along the first axis.
        """
        grammar, pair_bias = self.grammar, self._arrays()["pair_bias"]
        n, n_slots = len(scores), grammar.n_slots
        rows, offset = np.arange(n), np.arange(n) * scores.shape[1]
        message, states = np.zeros((n, n_slots), np.int64), np.full((n, n_slots), DONE)
        positions, previous = np.zeros((n, n_slots), np.int64), np.zeros((n, n_slots), np.int64)
        log_probs, entropy = np.zeros((n, n_slots), np.float32), np.zeros(n, np.float32)
        before = np.full(n, NOTHING_BEFORE)
        for slot in range(n_slots):
            states[:, slot], previous[:, slot] = state, before
            columns = self._columns.take(state, axis=1)
            logits = scores.reshape(-1).take(columns + offset)
            logits += pair_bias.take(before, axis=0).T
            logits += self._blocked.take(state, axis=1)
            probability, log_p = _softmax(logits, self.temperature)
            position = choose(slot, probability, log_p)
            running = state != DONE
            positions[:, slot], message[:, slot] = position, grammar.tokens[state, position]
            # The final state has one choice of probability 1: log-probability and entropy are 0.
            log_probs[:, slot] = log_p[position, rows]
            entropy -= (probability * np.maximum(log_p, SMALLEST)).sum(axis=0)
            before = np.where(running, columns[position, rows] + 1, before)
            state = grammar.next_state[state, position]
        return Written(message, states, positions, previous, log_probs, entropy)

    def read(self, features: FloatArray, message: IntArray) -> Written:
        """Return log-probabilities of given legal messages (n, L).

        Raises:
            ValueError: if a message is illegal.
        """
        dialect = self.grammar.dialect(features)
        parse = self.grammar.parse(message, dialect)
        if not parse.legal.all():
            raise ValueError(f"message: row {int(np.flatnonzero(~parse.legal)[0])} is not a legal message.")
        scores = self._run("actor", features)[1]
        return self._walk(scores, self.grammar.start[dialect], lambda slot, *_: parse.position[:, slot])

    def answer_probability(self, features: FloatArray, message: IntArray) -> FloatArray:
        """Geometric mean over tokens of the probability of a message (n, L), if it were written now."""
        written = self.read(features, message)
        counted = (written.state != DONE).sum(axis=1)
        return np.exp(written.log_prob.sum(axis=1) / np.maximum(counted, 1))

    def values(self, features: FloatArray) -> npt.NDArray[np.float64]:
        """Return the critic's values (n,)."""
        if self.critic is None:
            raise ValueError("This policy has no critic: make it with critic=True.")
        return self._run("critic", features)[1][:, 0].astype(np.float64)

    def _run(self, network: str, features: FloatArray) -> tuple[list[FloatArray], FloatArray]:
        """Run a network in NumPy; return the inputs of its layers and its outputs."""
        arrays = self._arrays()
        last = len(self.actor.weights) - 1
        inputs, x = [], features
        for layer in range(last + 1):
            inputs.append(x)
            x = x @ arrays[f"{network}.weights.{layer}"]
            x += arrays[f"{network}.biases.{layer}"]
            if layer < last:
                torch.from_numpy(x).relu_()  # Six times as fast as np.maximum.
        return inputs, x

    def _pull(self, network: str, inputs: list[FloatArray], delta: FloatArray, slopes: dict[str, FloatArray]) -> None:
        """Write the gradients of a network's parameters into ``slopes``.

        Args:
            network: ``actor`` or ``critic``.
            inputs: what ``_run`` returned.
            delta: (m, outputs) gradient to the outputs.
            slopes: arrays by name of the parameter.
        """
        arrays = self._arrays()
        for index in range(len(inputs) - 1, -1, -1):
            layer = inputs[index]
            np.matmul(layer.T, delta, out=slopes[f"{network}.weights.{index}"])
            _column_sums(delta, slopes[f"{network}.biases.{index}"])
            if index:
                delta = delta @ arrays[f"{network}.weights.{index}"].T
                through = torch.from_numpy(delta)
                _THRESHOLD(through, torch.from_numpy(layer), 0, grad_input=through)

    def score(self, slots: Slots) -> tuple[FloatArray, Scored]:
        """Return the log-probabilities of written tokens, (m, L) float32, and what ``slope`` needs of them.

        Forward and backward pass are written out in NumPy, because for networks this small much of an
        update's time goes into starting operations, which costs NumPy less than torch; a test compares
        the gradients with autograd's. Distributions have shape (W, m * L): reductions over few choices
        are fast along the first axis.
        """
        features, state, previous, position = (tensor.numpy() for tensor in slots)
        layers, scores = self._run("actor", features)
        m, n_slots = state.shape
        # Where in the flattened scores each choice of each slot stands.
        places = self._columns.take(state.ravel(), axis=1)
        places += _starts(m, scores.shape[1], n_slots)
        logits = scores.ravel().take(places)
        logits += np.ascontiguousarray(self._arrays()["pair_bias"].T).take(previous.ravel(), axis=1)
        logits += self._blocked.take(state.ravel(), axis=1)
        if self.temperature != 1.0:
            logits /= np.float32(self.temperature)
        logits -= logits.max(axis=0)
        probability = np.exp(logits)
        total = probability.sum(axis=0)
        probability /= total
        chosen = position.ravel() * (m * n_slots)
        chosen += _starts(m * n_slots, 1, 1)
        log_prob = logits.ravel().take(chosen) - np.log(total)
        return log_prob.reshape(m, n_slots), Scored(layers, places, previous, chosen, probability)

    def slope(self, scored: Scored, outer: FloatArray) -> FloatArray:
        """Return the flat gradient to all parameters of what has the gradient ``outer`` (m, L) to log-probabilities."""
        outer = np.ascontiguousarray(outer).ravel()
        # d log p_k / d logit_j = [j = k] - p_j
        slope = scored.probability * -outer
        slope.reshape(-1)[scored.chosen] += outer
        if self.temperature != 1.0:
            slope /= np.float32(self.temperature)
        flat = np.zeros(self._flat.shape, dtype=np.float32)
        slopes = self._views(flat)
        pairs = np.add.outer(np.arange(len(slope)), scored.previous.ravel() * len(slope))
        slopes["pair_bias"][:] = _scatter(pairs, slope, slopes["pair_bias"].shape)
        shape = (len(scored.layers[0]), self.actor.widths[-1])
        self._pull("actor", scored.layers, _scatter(scored.places, slope, shape), slopes)
        return flat

    # Torch side: training.

    def log_probs(self, slots: Slots) -> torch.Tensor:
        """Return the log-probabilities of written tokens, (m, L), with gradient."""
        result: torch.Tensor = _TokenLogProb.apply(self._leaf, self, slots)  # type: ignore[no-untyped-call]
        return result

    def critic_values(self, features: torch.Tensor) -> torch.Tensor:
        """Return the critic's values of features (m, F), (m,), with gradient."""
        result: torch.Tensor = _Values.apply(self._leaf, self, features)  # type: ignore[no-untyped-call]
        return result

    def entropies(self, slots: Slots) -> torch.Tensor:
        """Return the entropy of every slot's distribution, (m, L), with gradient (by autograd)."""
        scores = self.actor(slots.features)
        m, n_slots = slots.state.shape
        columns = torch.from_numpy(self.grammar.column)[slots.state]
        logits = scores.gather(1, columns.view(m, -1)).view(m, n_slots, -1)
        logits = (logits + torch.nn.functional.embedding(slots.previous, self.pair_bias)) / self.temperature
        legal = torch.from_numpy(self.grammar.legal)[slots.state]
        every = logits.masked_fill(~legal, -1e9).log_softmax(dim=-1)
        return -torch.where(legal, every.exp() * every, torch.zeros_like(every)).sum(dim=-1)

    def slots(self, features: FloatArray, state: IntArray, previous: IntArray, position: IntArray) -> Slots:
        """Return what ``log_probs`` needs for messages as in ``Written``."""
        return Slots(*(torch.from_numpy(array) for array in (features, state, previous, position)))

    # stable-baselines3 side.

    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        arrays = (
            {key: value.numpy() for key, value in observation.items()}
            if isinstance(observation, dict)
            else observation.numpy()
        )
        message = self.write(self.features(arrays), self._random, deterministic).message
        return torch.from_numpy(message[:, 0] if isinstance(self.action_space, spaces.Discrete) else message)

    def forward(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        """Return actions, as SB3's policies do."""
        return self._predict(observation, deterministic)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {
            **super()._get_constructor_parameters(),
            "lr_schedule": _no_learning,
            "grammar": self.grammar,
            "net_arch": self.actor.widths[1:-1],
            "temperature": self.temperature,
            "critic": self.critic is not None,
        }


def _no_learning(_: float) -> float:
    return 0.0


class _Network(torch.nn.Module):
    """A ReLU multilayer perceptron; see ``MessagePolicy._run`` for its twin in NumPy."""

    def __init__(self, widths: list[int], random: np.random.Generator, last_gain: float) -> None:
        super().__init__()
        self.widths = list(widths)
        gains = [2**0.5] * (len(widths) - 2) + [last_gain]
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.from_numpy(_orthogonal(a, b, gain, random)))
            for a, b, gain in zip(widths[:-1], widths[1:], gains, strict=True)
        )
        self.biases = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(width)) for width in widths[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.addmm(bias, x, weight)
            if layer < last:
                x = torch.relu(x)
        return x


class _TokenLogProb(torch.autograd.Function):
    """``MessagePolicy.score`` and ``slope`` as an operation of autograd."""

    @staticmethod
    def forward(ctx: Any, flat: torch.Tensor, policy: MessagePolicy, slots: Slots) -> torch.Tensor:
        log_prob, ctx.scored = policy.score(slots)
        ctx.policy = policy
        return torch.from_numpy(log_prob)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return torch.from_numpy(ctx.policy.slope(ctx.scored, grad.numpy())), None, None


class _Values(torch.autograd.Function):
    """The critic's values, written out in NumPy like ``_TokenLogProb``."""

    @staticmethod
    def forward(ctx: Any, flat: torch.Tensor, policy: MessagePolicy, features: torch.Tensor) -> torch.Tensor:
        ctx.policy = policy
        ctx.layers, outputs = policy._run("critic", features.numpy())
        return torch.from_numpy(outputs[:, 0])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        flat = np.zeros(ctx.policy._flat.shape, dtype=np.float32)
        ctx.policy._pull("critic", ctx.layers, grad.numpy()[:, None], ctx.policy._views(flat))
        return torch.from_numpy(flat), None, None


def _scatter(places: IntArray, values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Add values up by flat place into an array; places may repeat."""
    flat = np.bincount(places.ravel(), weights=values.ravel(), minlength=math.prod(shape))
    return flat.reshape(shape).astype(np.float32)


@functools.lru_cache(maxsize=64)
def _starts(n: int, size: int, repeats: int) -> IntArray:
    """Return where each of n rows of a size starts in a flat array, each as often as is said."""
    starts = np.repeat(np.arange(0, n * size, size), repeats)
    starts.setflags(write=False)
    return starts


def _column_sums(values: FloatArray, out: FloatArray) -> None:
    """Write the sums of the columns into ``out``."""
    if values.shape[1] == 1:
        values.sum(axis=0, out=out)
    else:
        np.einsum("ij->j", values, out=out)  # The same sums in the same order, sooner.


def _orthogonal(rows: int, columns: int, gain: float, random: np.random.Generator) -> FloatArray:
    """Orthogonal initialisation, drawn from a generator of our own so that torch's is left alone."""
    square = random.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(square)
    q = q * np.sign(np.diagonal(r))
    return np.ascontiguousarray(gain * (q if rows >= columns else q.T), dtype=np.float32)


def _softmax(logits: FloatArray, temperature: float) -> tuple[FloatArray, FloatArray]:
    """Probabilities and log-probabilities over the first axis."""
    if temperature != 1.0:
        logits = logits / np.float32(temperature)
    logits = logits - logits.max(axis=0)
    probability = np.exp(logits)
    total = probability.sum(axis=0)
    return probability / total, logits - np.log(total)


def _pick(probability: FloatArray, log_p: FloatArray, uniform: FloatArray | None, slot: int) -> IntArray:
    """Sample positions (n,) from (W, n) by inversion, or take the likeliest."""
    if uniform is None:
        return np.argmax(log_p, axis=0)
    cumulative = np.cumsum(probability, axis=0)
    # Above 0 and at most the total, so that no choice without probability is met.
    drawn = np.maximum(uniform[:, slot], LEAST_DRAW) * cumulative[-1]
    return np.asarray((cumulative < drawn).sum(axis=0))


def _check_temperature(temperature: Any) -> None:
    if not isinstance(temperature, numbers.Real) or not float(temperature) > 0:
        raise ValueError(f"temperature={temperature!r} is not allowed: it must be a number > 0.")


def _check_widths(net_arch: Any) -> None:
    widths = net_arch if isinstance(net_arch, list | tuple) else [None]
    if not all(isinstance(n, numbers.Integral) and not isinstance(n, bool) and int(n) > 0 for n in widths):
        raise ValueError(
            f"net_arch={net_arch!r} is not allowed: it must be a list or tuple of integers >= 1, "
            "the widths of the hidden layers."
        )


def _space_grammar(space: gymnasium.Space[Any]) -> Grammar:
    if isinstance(space, spaces.Discrete):
        sizes, start = [int(space.n)], int(space.start)
    elif isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        sizes, start = [int(n) for n in space.nvec], int(np.abs(space.start).max())
    else:
        raise ValueError(f"action_space={space} is not supported: it must be Discrete or MultiDiscrete.")
    if start != 0:
        raise ValueError(f"action_space={space} is not supported: its values must start at 0.")
    return grammar_of_sizes(sizes)


def flatten_observation(space: gymnasium.Space[Any], observation: Any) -> FloatArray:
    """Flatten a batch of observations into float32 (n, F), discrete parts one-hot.

    Raises:
        ValueError: if the space is not supported.
    """
    if isinstance(space, spaces.Box):
        return np.asarray(observation, dtype=np.float32).reshape(len(observation), -1)
    if isinstance(space, spaces.Discrete):
        choices = np.arange(space.start, space.start + space.n)
        return (np.asarray(observation).reshape(-1, 1) == choices).astype(np.float32)
    if isinstance(space, spaces.MultiDiscrete):
        flat = np.asarray(observation).reshape(len(observation), -1)
        parts = [flat[:, [i]] == np.arange(n) for i, n in enumerate(space.nvec.reshape(-1))]
        return np.concatenate(parts, axis=1).astype(np.float32)
    if isinstance(space, spaces.MultiBinary):
        return np.asarray(observation, dtype=np.float32).reshape(len(observation), -1)
    if isinstance(space, spaces.Dict):
        parts32 = [flatten_observation(part, observation[name]) for name, part in space.spaces.items()]
        return np.concatenate(parts32, axis=1)
    raise ValueError(f"observation_space={space} is not supported.")
