"""MessagePolicy: a multilayer perceptron that writes messages token by token.

The network computes one score per column of the grammar (a token in a role), once per turn. A
slot's distribution is the softmax over its legal columns, plus a bias that depends on the previous
token: autoregressive, and parallel over slots when the message is known.

Rollouts run in NumPy and updates in torch on the same memory: NumPy is about three times faster
than torch for small batches on a CPU (see benchmarks/speed.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule

from agentic_gym.grammar import DONE, Grammar, grammar_of_sizes

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
NOTHING_BEFORE = 0
SMALLEST = np.float32(-1e30)
"""Stands in for log 0, so that 0 log 0 is 0."""
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
        columns: (m, L, W) network outputs of each slot's choices.
        blocked: (m, L, W) 0 for legal choices, minus infinity for padding.
        previous: (m, L) as in ``Written``.
        position: (m, L) as in ``Written``.
    """

    features: torch.Tensor
    columns: torch.Tensor
    blocked: torch.Tensor
    previous: torch.Tensor
    position: torch.Tensor


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
        if not temperature > 0:
            raise ValueError(f"temperature={temperature!r} is not allowed: it must be > 0.")
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
        parameters = list(self.parameters())
        self._flat = torch.cat([p.detach().reshape(-1) for p in parameters])
        self._flat.grad = torch.zeros_like(self._flat)
        start = 0
        for parameter in parameters:
            stop = start + parameter.numel()
            parameter.data = self._flat[start:stop].view(parameter.shape)
            parameter.grad = self._flat.grad[start:stop].view(parameter.shape)
            start = stop

    @property
    def flat_parameters(self) -> torch.Tensor:
        """All parameters, one dimension, with their gradient in ``.grad``; shares their memory."""
        return self._flat

    # NumPy side: writing messages.

    def features(self, observation: Any) -> FloatArray:
        """Flatten observations (n, ...) into float32 (n, F)."""
        return flatten_observation(self.observation_space, observation)

    def write(self, features: FloatArray, random: np.random.Generator, deterministic: bool = False) -> Written:
        """Write one message per row of ``features`` (n, F)."""
        scores = self.actor.numpy_forward(features)
        n, n_slots = len(features), self.grammar.n_slots
        uniform = None if deterministic else random.random((n, n_slots), dtype=np.float32)
        state = self.grammar.start[self.grammar.dialect(features)]
        return self._walk(scores, state, lambda slot, p, log_p: _pick(p, log_p, uniform, slot))

    def _walk(self, scores: FloatArray, state: IntArray, choose: Choose) -> Written:
        """Go through the slots; ``choose(slot, probability, log_p)`` picks positions (n,).

        Distributions have shape (W, n): reductions over few choices are fast along the first axis.
        """
        grammar, pair_bias = self.grammar, self.pair_bias.detach().numpy()
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
        scores = self.actor.numpy_forward(features)
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
        return self.critic.numpy_forward(features)[:, 0].astype(np.float64)

    # Torch side: training.

    def log_probs(self, slots: Slots) -> torch.Tensor:
        """Return the log-probabilities of written tokens, (m, L), with gradient."""
        return _TokenLogProb.apply(  # type: ignore[no-untyped-call]
            slots,
            self.temperature,
            len(self.actor.weights),
            *self.actor.weights,
            *self.actor.biases,
            self.pair_bias,
        )

    def entropies(self, slots: Slots) -> torch.Tensor:
        """Return the entropy of every slot's distribution, (m, L), with gradient (by autograd)."""
        scores = self.actor(slots.features)
        m, n_slots, width = slots.columns.shape
        logits = scores.gather(1, slots.columns.view(m, -1)).view(m, n_slots, width)
        logits = (logits + torch.nn.functional.embedding(slots.previous, self.pair_bias)) / self.temperature
        legal = slots.blocked == 0
        every = logits.masked_fill(~legal, -1e9).log_softmax(dim=-1)
        return -torch.where(legal, every.exp() * every, torch.zeros_like(every)).sum(dim=-1)

    def slots(self, features: FloatArray, state: IntArray, previous: IntArray, position: IntArray) -> Slots:
        """Look up what ``log_probs`` needs for messages as in ``Written``."""
        arrays = (features, self.grammar.column[state], self._blocked.T[state], previous, position)
        return Slots(*(torch.from_numpy(array) for array in arrays))

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
    """A ReLU multilayer perceptron with a NumPy twin on the same memory."""

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

    def numpy_forward(self, x: FloatArray) -> FloatArray:
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight.detach().numpy()
            x += bias.detach().numpy()
            if layer < last:
                np.maximum(x, 0.0, out=x)
        return x


class _TokenLogProb(torch.autograd.Function):
    """Log-probabilities of written tokens, with the backward pass written out.

    Autograd would run about twice as many small operations (see benchmarks/speed.py); a test
    compares the gradients of both.
    """

    @staticmethod
    def forward(ctx: Any, slots: Slots, temperature: float, depth: int, *parameters: torch.Tensor) -> torch.Tensor:
        weights, biases, pair_bias = parameters[:depth], parameters[depth : 2 * depth], parameters[-1]
        layers = [slots.features]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            layers.append(torch.addmm(bias, layers[-1], weight).relu_())
        scores = torch.addmm(biases[-1], layers[-1], weights[-1])
        m, n_slots, width = slots.columns.shape
        logits = scores.gather(1, slots.columns.view(m, -1)).view(m, n_slots, width)
        logits += pair_bias.index_select(0, slots.previous.view(-1)).view(m, n_slots, width)
        logits += slots.blocked
        if temperature != 1.0:
            logits /= temperature
        # torch's log_softmax is slow over a few choices.
        logits -= logits.amax(dim=-1, keepdim=True)
        every = logits - logits.exp().sum(dim=-1, keepdim=True).log_()
        ctx.slots, ctx.temperature, ctx.weights, ctx.layers = slots, temperature, weights, layers
        ctx.every, ctx.sizes = every, (scores.shape, pair_bias.shape)
        return every.gather(2, slots.position.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        slots, (score_shape, pair_shape) = ctx.slots, ctx.sizes
        m, n_slots, width = slots.columns.shape
        # d log p_k / d logit_j = [j = k] - p_j
        grad_logits = ctx.every.exp().mul_(-grad.unsqueeze(-1))
        grad_logits.scatter_add_(2, slots.position.unsqueeze(-1), grad.unsqueeze(-1))
        if ctx.temperature != 1.0:
            grad_logits /= ctx.temperature
        flat = grad_logits.view(m, n_slots * width)
        delta = flat.new_zeros(score_shape).scatter_add_(1, slots.columns.view(m, -1), flat)
        grad_pair = flat.new_zeros(pair_shape).index_add_(0, slots.previous.view(-1), flat.view(-1, width))
        grad_weights, grad_biases = [], []
        for layer, weight in zip(reversed(ctx.layers), reversed(ctx.weights), strict=True):
            grad_weights.append(layer.t() @ delta)
            grad_biases.append(delta.sum(0))
            if layer is not ctx.layers[0]:
                delta = torch.ops.aten.threshold_backward(delta @ weight.t(), layer, 0.0)
        return None, None, None, *reversed(grad_weights), *reversed(grad_biases), grad_pair


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
    position = (cumulative < uniform[:, slot] * cumulative[-1]).sum(axis=0)
    # Rounding may point past the last choice with any probability.
    last = len(probability) - 1 - np.argmax(probability[::-1] > 0, axis=0)
    return np.minimum(position, last)


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
