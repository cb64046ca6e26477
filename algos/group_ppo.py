"""GroupPPO: PPO over group rollouts, critic-free unless the scheme asks for a critic.

One update: draw prompts, write ``group_size`` rollouts of each, turn rewards into advantages by
the scheme, and take a few epochs of minibatches on the scheme's loss.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
import warnings
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from stable_baselines3.common.utils import configure_logger
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from agentic_gym.knobs import check_integer
from algos.advantages import advantages, update_memory
from algos.allocator import keep_freed_memory
from algos.collector import OnTick, Trajectories
from algos.diagnostics import group_metrics, rollout_metrics
from algos.episodes import Episodes
from algos.measure import measure
from algos.memory import Memory
from algos.policies import MessagePolicy
from algos.progress import TurnProgress
from algos.rows import IntArray, Rows, ScalarRows, Tick, VectorRows, make_rows
from algos.sampling import Overlong, Trainer, UniformPrompts
from algos.sampling.overlong import MaskTruncated, check_mask, loss_batch, make_overlong, without_truncated
from algos.scheme import SchemeLike, make_scheme, reads_no_returns
from algos.settings import (
    check_rate,
    check_registered,
    check_seed,
    compares_within_groups,
    non_negative,
    positive_or_none,
)
from algos.surrogates.aggregation import token_weights
from algos.surrogates.corrections import without_rejected
from algos.surrogates.kl import coefficient, controller, in_loss, in_reward, observe, penalised
from algos.surrogates.loss import loss_metrics, token_losses
from algos.threads import limit_threads
from algos.update import UpdateTensors, keeps_groups, pulls_back

SILENT_UPDATES = 10
SHOWN_TURNS = 4
"""Shares and sizes are logged for so many first turns."""
FIXED = ("policy", "env", "env_kwargs", "policy_kwargs", "device", "seed", "_init_setup_model")
"""Arguments of the constructor that are no settings: a saved model has them already, or never keeps them."""
STORED_AS = {"stats_window_size": "_stats_window_size"}
"""Settings whose attribute has another name."""


class GroupPPO(BaseAlgorithm):
    """Group-rollout PPO with one composable scheme for credit and loss.

    Args:
        policy: ``"MessagePolicy"`` or a subclass of ``MessagePolicy``.
        env: an id, a Gymnasium Env or VectorEnv, or an SB3 VecEnv, with Discrete or MultiDiscrete
            actions. Where the environment does not know prompts, reset seeds are the prompts.
        scheme: a recipe name, a ``Scheme``, or a recipe with overrides, see ``make_scheme``.
        n_prompts: groups per update; a prompt drawn twice in one update makes one larger group.
        group_size: rollouts per group; at least 2 if the scheme compares within groups.
        n_epochs: passes over the update's rollouts.
        n_minibatches: optimiser steps per pass; minibatches are cut in rollouts.
        learning_rate: a number or an SB3 schedule.
        max_grad_norm: the gradient's norm is clipped to this, > 0; None does not clip.
        ent_coef: weight of an entropy bonus, >= 0, averaged over tokens as the scheme's aggregation does.
        vf_coef: weight of the critic's squared error, for schemes with a critic.
        staleness: rollouts are written by the policy of this many updates ago.
        overlong: DAPO's penalty on long rollouts: an ``Overlong`` or a dict of its attributes, or None.
        mask_truncated: whether rollouts that were cut are left out: False; True or ``"loss"``: out of
            the loss, but they count in statistics (as TRL); ``"all"``: out of both.
        reference_interval: every how many updates the reference policy of a KL penalty is replaced
            by the current one; None keeps the policy with which learning began.
        diagnostics_interval: every how many updates the gradient share of each environment is
            computed (it costs one backward pass per environment); 0 never.
        max_skipped_steps: a step along a gradient that is not finite is skipped, with a warning the first
            time; after so many in a row training stops with a ``FloatingPointError``. None never stops.
        n_threads: threads of torch and of NumPy's linear algebra while learning; None leaves them
            alone. More than one pays only for wide networks.
        env_kwargs: arguments of the environment, where ``env`` is an id.
        policy_kwargs: arguments of the policy, for example ``{"net_arch": [64, 64]}``.
        stats_window_size, tensorboard_log, verbose: as in SB3.
        device: ``"cpu"`` or ``"auto"``; rollouts and updates share memory, so it is the CPU.
        seed: seed of the weights, of the prompts and of the samples. The global generators of
            NumPy, Python and torch are not touched.
        _init_setup_model: as in SB3.

    Raises:
        ValueError: if a value, or a combination, is not allowed.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MessagePolicy": MessagePolicy}
    policy: MessagePolicy

    def __init__(
        self,
        policy: str | type[MessagePolicy],
        env: Any,
        scheme: SchemeLike = "grpo",
        n_prompts: int = 16,
        group_size: int = 8,
        n_epochs: int = 4,
        n_minibatches: int = 4,
        learning_rate: float | Schedule = 1e-3,
        max_grad_norm: float | None = 1.0,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        staleness: int = 0,
        overlong: Overlong | dict[str, Any] | None = None,
        mask_truncated: MaskTruncated = False,
        reference_interval: int | None = None,
        diagnostics_interval: int = 10,
        max_skipped_steps: int | None = 100,
        n_threads: int | None = 1,
        env_kwargs: Mapping[str, Any] | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        verbose: int = 0,
        device: str | torch.device = "auto",
        seed: int | None = None,
        _init_setup_model: bool = True,
    ) -> None:
        """See the class docstring."""
        if str(device) not in ("auto", "cpu"):
            raise ValueError(f"device={device!r} is not allowed: it must be 'cpu' or 'auto'.")
        if isinstance(policy, str) and policy not in self.policy_aliases:
            raise ValueError(
                f"policy={policy!r} is not allowed: it must be 'MessagePolicy', which writes any Discrete or "
                "MultiDiscrete action, or a class made from it."
            )
        check_seed(seed)
        check_rate(learning_rate)
        super().__init__(
            policy=policy, env=None, learning_rate=learning_rate, policy_kwargs=policy_kwargs,
            stats_window_size=stats_window_size, tensorboard_log=tensorboard_log, verbose=verbose,
            device="cpu", support_multi_env=True, seed=seed,
        )  # fmt: skip
        self.scheme = make_scheme(scheme)
        self.n_prompts = check_integer("n_prompts", n_prompts, 1, 2**20)
        self.group_size = check_integer("group_size", group_size, 1, 2**20)
        self.n_epochs = check_integer("n_epochs", n_epochs, 1, 10_000)
        self.n_minibatches = check_integer("n_minibatches", n_minibatches, 1, self.n_prompts * self.group_size)
        self.max_grad_norm = positive_or_none("max_grad_norm", max_grad_norm)
        self.ent_coef = non_negative("ent_coef", ent_coef)
        self.vf_coef = non_negative("vf_coef", vf_coef)
        self.staleness = check_integer("staleness", staleness, 0, 1000)
        self.overlong = make_overlong(overlong)
        if self.overlong is not None and reads_no_returns(self.scheme.signal):
            raise ValueError(
                f"overlong={self.overlong} has no effect with signal={self.scheme.signal!r}, which reads the "
                "components of the rewards, not the rewards."
            )
        self.mask_truncated = check_mask(mask_truncated)
        if reference_interval is not None:
            check_integer("reference_interval", reference_interval, 1, 10**9)
        self.reference_interval = reference_interval
        self.diagnostics_interval = check_integer("diagnostics_interval", diagnostics_interval, 0, 10**9)
        if max_skipped_steps is not None:
            check_integer("max_skipped_steps", max_skipped_steps, 1, 10**9)
        self.max_skipped_steps = max_skipped_steps
        self.n_threads = None if n_threads is None else check_integer("n_threads", n_threads, 1, 1024)
        self._check_groups()
        self._rows: Rows | None = None
        self._random = np.random.default_rng(seed)
        self._prompts: UniformPrompts | None = None
        self._memory = Memory()
        self._reference: npt.NDArray[np.float32] | None = None
        self._past: deque[npt.NDArray[np.float32]] = deque(maxlen=self.staleness + 1)
        self._past_update = 0
        self._had_signal = False
        self._skipped_steps = self._skipped_in_a_row = 0
        self._init_seed = int(self._random.integers(2**31))
        if env is not None:
            self._use(make_rows(env, self.n_prompts * self.group_size, env_kwargs))
        if _init_setup_model and env is not None:
            self._setup_model()

    def _check_groups(self) -> None:
        if keeps_groups(self.scheme) and self.n_minibatches > self.n_prompts:
            raise ValueError(
                f"n_minibatches={self.n_minibatches} is not allowed with surrogate={self.scheme.surrogate!r}: "
                f"groups stay whole, so it must be at most n_prompts={self.n_prompts}."
            )
        one_step = self.n_epochs == self.n_minibatches == 1 and self.staleness == 0
        choices = (self.scheme.surrogate, self.scheme.ratio, self.scheme.bounds)
        if one_step and self.scheme.clips and choices != ("ppo_clip", "token", "fixed"):
            warnings.warn(
                "clipping inactive: with n_epochs=1, n_minibatches=1 and staleness=0 every ratio is 1, so "
                f"ratio={self.scheme.ratio!r} and bounds={self.scheme.bounds!r} change nothing.",
                stacklevel=3,
            )
        reason = compares_within_groups(self.scheme)
        if reason and self.group_size < 2:
            raise ValueError(
                f"group_size={self.group_size} is not allowed with this scheme: {reason} compares rollouts of one "
                "prompt, so groups need at least 2."
            )

    def _use(self, rows: Rows) -> None:
        self._rows = rows
        self.observation_space, self.action_space = rows.observation_space, rows.action_space
        self.n_envs = rows.n
        self._grammar = rows.grammar
        self.env = None

    def _setup_model(self) -> None:
        check_registered(self.scheme)
        self._setup_lr_schedule()
        self.policy = self.policy_class(  # type: ignore[assignment]
            self.observation_space, self.action_space, self.lr_schedule,
            **{
                "grammar": self._grammar, "critic": self.scheme.needs_critic, "init_seed": self._init_seed,
                **self.policy_kwargs,
            },
        )  # fmt: skip

    # Environments.

    @property
    def rows(self) -> Rows:
        """The training rows.

        Raises:
            ValueError: if the model was loaded without an environment.
        """
        if self._rows is None:
            raise ValueError("This model has no environment: give one with set_env() or load(path, env=...).")
        return self._rows

    def set_env(self, env: Any, force_reset: bool = True, env_kwargs: Mapping[str, Any] | None = None) -> None:
        """Train on another environment with the same spaces.

        Args:
            env: as for the constructor.
            force_reset: as in SB3; rollouts always start from resets.
            env_kwargs: arguments of the environment, where ``env`` is an id.

        Raises:
            ValueError: if its spaces differ.
        """
        rows = make_rows(env, self.n_prompts * self.group_size, env_kwargs)
        for name in ("observation_space", "action_space"):
            if getattr(rows, name) != getattr(self, name):
                raise ValueError(f"env has {name}={getattr(rows, name)}; the model has {getattr(self, name)}.")
        self._use(rows)
        self._prompts = None

    def get_env(self) -> VecEnv | None:
        """Return an SB3 VecEnv of the same kind as the training rows (for callbacks and evaluation)."""
        if self.env is None and isinstance(self._rows, VectorRows):
            from agentic_gym.sb3 import AgenticVecEnv

            base: Any = self._rows.env.unwrapped
            self.env = AgenticVecEnv(1, **base.arguments)
        elif self.env is None and isinstance(self._rows, ScalarRows):
            cell = self._rows.cells[0]
            self.env = getattr(cell, "vec_env", None) or DummyVecEnv([lambda: cell])
        return self.env

    # Training.

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        # The last update may overshoot; a schedule must not see a negative rest.
        self._current_progress_remaining = max(1.0 - num_timesteps / total_timesteps, 0.0)

    def learn(
        self,
        total_timesteps: int | float,
        callback: MaybeCallback = None,
        log_interval: int | None = 1,
        tb_log_name: str = "GroupPPO",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train until at least ``total_timesteps`` turns have been taken (whole updates).

        From then on the process keeps up to 1 GiB of the memory that updates free, where the C library is glibc
        (``allocator.keep_freed_memory``).

        Args:
            total_timesteps: turns, all rows together; a whole number, also as a float such as 1e6.
            callback: SB3 callback(s); ``on_step`` is called once per tick of all rows, and finds ``rewards``,
                ``dones`` and ``infos`` of the rows in ``locals``.
            log_interval: updates between dumps of the logger; None never dumps.
            tb_log_name: name of the TensorBoard run.
            reset_num_timesteps: start counting from 0.
            progress_bar: show turns and time left.

        Returns:
            The model.
        """
        if isinstance(total_timesteps, float) and total_timesteps.is_integer():
            total_timesteps = int(total_timesteps)  # 1e6, as SB3 takes it.
        steps = check_integer("total_timesteps", total_timesteps, 1, 2**62)
        keep_freed_memory()
        total = self._start(steps, reset_num_timesteps, tb_log_name)
        hooks = self._init_callback(callback)
        hooks.on_training_start(locals(), globals())
        with (
            limit_threads(self.n_threads),
            TurnProgress(total - self.num_timesteps, enabled=progress_bar) as progress,
        ):
            while self.num_timesteps < total:
                data = self.collect_rollouts(hooks, progress)
                if data is None:
                    break
                self._update_current_progress_remaining(self.num_timesteps, total)
                if not len(data.batch):
                    continue
                self.train(data)
                if log_interval is not None and self._n_updates % log_interval == 0:
                    self.dump_logs()
        hooks.on_training_end()
        return self

    def _start(self, total_timesteps: int, reset: bool, tb_log_name: str) -> int:
        self.start_time = time.time_ns()
        self.rows  # noqa: B018  raises if there is no environment
        if reset or self.ep_info_buffer is None:
            self.ep_info_buffer = deque(maxlen=self._stats_window_size)
            self.ep_success_buffer = deque(maxlen=self._stats_window_size)
        if reset:
            self.num_timesteps = 0
        self._num_timesteps_at_start = self.num_timesteps
        self._total_timesteps = self.num_timesteps + total_timesteps
        if not self._custom_logger:
            self._logger = configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset)
        return self._total_timesteps

    def collect_rollouts(self, callback: BaseCallback, progress: TurnProgress) -> Trajectories | None:
        """Let the scheme's sampler collect rollouts, and measure what the scheme needs of them.

        Returns:
            The rollouts; without any the update is skipped. None if the callback stopped the training.
        """
        # Nobody looks where no callback was given.
        silent = isinstance(callback, ConvertCallback) and callback.callback is None
        episodes = None if silent else Episodes(self.rows.n)

        def on_tick(turns: int, rows: IntArray, tick: Tick) -> bool:
            self.num_timesteps += turns
            progress.advance(turns)
            if episodes is not None:
                callback.update_locals(episodes.after(rows, tick))
            return bool(callback.on_step())

        trainer = self._trainer(on_tick)
        callback.on_rollout_start()
        current = self._go_stale()
        try:
            data = self.scheme.run("sampling", trainer)
            if data is not None and len(data.batch):
                data = measure(trainer, self._shaped(data), self._shaped)
        finally:
            self._come_back(current)
        if data is not None:
            callback.update_locals(locals())
            callback.on_rollout_end()
            self._record(trainer.logged | rollout_metrics(trainer.seen(), trainer.rows.environment_names))
        return data

    def _trainer(self, on_tick: OnTick) -> Trainer:
        """Return what samplers see of this model."""
        rows = self.rows
        if self._prompts is None:
            self._prompts = UniformPrompts(rows.num_prompts, rows.prompt_cycle, self._random)
        return Trainer(
            self.scheme, rows, self.policy, self._random, self._memory, self._prompts,
            self.n_prompts, self.group_size, self._n_updates, on_tick,
        )  # fmt: skip

    def _shaped(self, data: Trajectories) -> Trajectories:
        """Apply what long and truncated rollouts cost."""
        if self.overlong is not None:
            data = self.overlong.shape(data)
        return without_truncated(data) if self.mask_truncated == "all" else data

    def _go_stale(self) -> npt.NDArray[np.float32] | None:
        """Put the parameters of ``staleness`` updates ago in place; return the current ones."""
        if self.staleness == 0:
            return None
        flat = self.policy.flat_parameters.numpy()
        # A collection without any rollouts is no update: the parameters are still those of the last one.
        if not self._past or self._past_update != self._n_updates:
            self._past.append(flat.copy())
            self._past_update = self._n_updates
        current = self._past[-1]
        flat[:] = self._past[0]
        return current

    def _come_back(self, current: npt.NDArray[np.float32] | None) -> None:
        if current is not None:
            self.policy.flat_parameters.numpy()[:] = current

    def train(self, data: Trajectories) -> None:
        """Take ``n_epochs * n_minibatches`` optimiser steps on the scheme's loss."""
        self._update_learning_rate(self.policy.optimizer)
        others = self._other_policies(data)
        if self.scheme.kl != "none":
            data = self._watch_kl(data, others)
        credit = advantages(self.scheme, data.batch, self._memory)
        self._watch_signal(credit)
        self._record(group_metrics(data, credit, self.rows.environment_names))
        counted = loss_batch(data.batch) if self.mask_truncated == "loss" else data.batch
        if "old_log_prob" in others:
            behaviour = torch.from_numpy(data.log_prob)
            counted = without_rejected(self.scheme, counted, others["old_log_prob"], behaviour)
        weights = token_weights(self.scheme, counted)
        tensors = UpdateTensors.build(self.policy, self.scheme, data, credit, weights, counted, **others)
        if self.diagnostics_interval and self._n_updates % self.diagnostics_interval == 0:
            self._record(self._gradient_shares(tensors, data))
        metrics: list[dict[str, float]] = []
        losses = []
        # Without any signal Adam's momentum would still move the weights.
        written_elsewhere = self.staleness > 0 or data.stale is not None
        pulled = (
            self.ent_coef > 0
            or self.scheme.needs_critic
            or in_loss(self.scheme)
            or (pulls_back(self.scheme) and written_elsewhere)
        )
        silent = not np.any(credit) and not pulled
        for epoch in range(0 if silent else self.n_epochs):
            shuffled = tensors.shuffled(self._random)
            for minibatch in shuffled.minibatches(self.n_minibatches):
                loss, log_prob = self._differentiate(minibatch)
                self._step()
                losses.append(loss)
                if epoch == self.n_epochs - 1:
                    metrics.append(self._metrics(minibatch, log_prob))
        update_memory(self.scheme, data.batch, self._memory)
        self._n_updates += 1
        for name in metrics[0] if metrics else ():
            self.logger.record(f"train/{name}", float(np.mean([m[name] for m in metrics])))
        self.logger.record("train/loss", float(torch.stack(losses).mean()) if losses else 0.0)
        self.logger.record("train/skipped_steps", self._skipped_steps)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def _other_policies(self, data: Trajectories) -> dict[str, torch.Tensor]:
        """Score the tokens with the reference policy and with the present one, where the scheme asks."""
        flat = self.policy.flat_parameters.numpy()
        result = {}
        if self.scheme.correction != "none":
            result["old_log_prob"] = self._score(data)
        if self.scheme.kl != "none":
            interval = self.reference_interval
            if self._reference is None or (interval and self._n_updates % interval == 0):
                self._reference = flat.copy()
            current = flat.copy()
            flat[:] = self._reference
            result["reference_log_prob"] = self._score(data)
            flat[:] = current
        return result

    def _watch_kl(self, data: Trajectories, others: dict[str, torch.Tensor]) -> Trajectories:
        """Take a KL penalty in the reward from the rewards, and let a coefficient that adapts see the KL."""
        adapts = self.scheme.kl_target is not None
        if in_loss(self.scheme) and not adapts:
            return data
        # Scored the same way as the reference: rounding must not look like a difference.
        present = others["old_log_prob"] if "old_log_prob" in others else self._score(data)
        reference = others["reference_log_prob"]
        if in_reward(self.scheme):
            # The loss must not see it.
            del others["reference_log_prob"]
            data = dataclasses.replace(data, batch=penalised(self.scheme, data.batch, present, reference, self._memory))
        else:
            observe(self.scheme, data.batch, present, reference, self._memory)
        self._record({"train/kl_coef": coefficient(self.scheme, self._memory)})
        if in_reward(self.scheme):
            self._record({"train/kl": controller(self.scheme, self._memory).kl})
        return data

    def _score(self, data: Trajectories) -> torch.Tensor:
        """Return the log-probabilities (M, L) of what was written, under the policy in place."""
        with torch.no_grad():
            return self.policy.log_probs(self.policy.slots(data.features, data.state, data.previous, data.position))

    def _differentiate(self, part: UpdateTensors) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the gradient of a minibatch's loss, which ``_step`` follows.

        Returns:
            The loss, and the log-probabilities (m, L), whose ``grad`` is the loss's gradient to them.
        """
        flat = self.policy.flat_parameters
        assert flat.grad is not None
        flat.grad.zero_()
        values, scored = self.policy.score(part.slots)
        # The sum is cheaper than a look at every value, and not finite if one is not.
        if not math.isfinite(values.sum()) and not np.isfinite(values).all():
            raise FloatingPointError(
                "The policy's log-probabilities are no longer finite: its parameters have become too large. Take a "
                f"smaller learning_rate than {self.policy.optimizer.param_groups[0]['lr']:g}, and a saved model."
            )
        log_prob = torch.from_numpy(values).requires_grad_()
        loss = self._loss(part, log_prob)
        loss.backward()  # type: ignore[no-untyped-call]
        assert log_prob.grad is not None
        flat.grad.add_(torch.from_numpy(self.policy.slope(scored, log_prob.grad.numpy())))
        return loss.detach(), log_prob

    def _loss(self, part: UpdateTensors, log_prob: torch.Tensor) -> torch.Tensor:
        """Return a minibatch's loss for log-probabilities of its tokens (m, L)."""
        kl_coef = coefficient(self.scheme, self._memory)
        loss = (part.weights * token_losses(self.scheme, part.tokens(log_prob), kl_coef)).sum()
        if self.ent_coef:
            loss = loss - self.ent_coef * (part.weights * self.policy.entropies(part.slots)).sum()
        if part.value_target is not None:
            error = self.policy.critic_values(part.slots.features) - part.value_target
            assert part.value_weights is not None
            loss = loss + self.vf_coef * (part.value_weights * error**2).sum()
        return loss

    def _metrics(self, part: UpdateTensors, log_prob: torch.Tensor) -> dict[str, float]:
        """Ratio statistics of the tokens of a minibatch that are in the loss."""
        return loss_metrics(self.scheme, part.tokens(log_prob.detach()), log_prob.grad)

    def _step(self) -> None:
        """One optimiser step along the gradient; one that is not finite is skipped and counted."""
        flat = self.policy.flat_parameters
        assert flat.grad is not None
        norm = torch.linalg.vector_norm(flat.grad)
        length = float(norm)
        if not math.isfinite(length):
            self._count_skipped()
            return
        self._skipped_in_a_row = 0
        # Where it is close the tensors' own precision decides.
        if self.max_grad_norm is not None and length > 0.999 * self.max_grad_norm:
            flat.grad.mul_((self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        self.policy.step()

    def _count_skipped(self) -> None:
        self._skipped_steps += 1
        self._skipped_in_a_row += 1
        scheme = f"surrogate={self.scheme.surrogate!r}, ratio={self.scheme.ratio!r} and bounds={self.scheme.bounds!r}"
        if self._skipped_steps == 1:
            warnings.warn(
                f"a gradient is not finite, with {scheme}: its step is skipped, and counted in train/skipped_steps, "
                "as later ones will be.",
                stacklevel=2,
            )
        if self._skipped_in_a_row == self.max_skipped_steps:
            raise FloatingPointError(
                f"max_skipped_steps={self.max_skipped_steps} gradients in a row were not finite, with {scheme}: "
                "nothing is being learned."
            )

    def _gradient_shares(self, tensors: UpdateTensors, data: Trajectories) -> dict[str, float]:
        """Norms of the first gradient's parts as shares of their sum: by environment, and by turn index."""
        names, batch = self.rows.environment_names, data.batch
        by_environment = {name: batch.environment[batch.turn_rollout] == i for i, name in enumerate(names)}
        n_turns = int(batch.turn_index.max(initial=0)) + 1
        by_turn = {f"turn_{index}": batch.turn_index == index for index in range(min(n_turns, SHOWN_TURNS))}
        if n_turns > SHOWN_TURNS:
            by_turn["later_turns"] = batch.turn_index >= SHOWN_TURNS
        if keeps_groups(self.scheme):
            by_turn = {}  # Such a loss is not a sum over turns.
        parts = [part for part in (by_environment, by_turn) if len(part) > 1]
        return {key: share for part in parts for key, share in self._shares(tensors, part).items()}

    def _shares(self, tensors: UpdateTensors, parts: Mapping[str, npt.NDArray[np.bool_]]) -> dict[str, float]:
        """Return ``train/gradient_share/<name>`` of parts of the turns, name -> (M,) bool."""
        flat = self.policy.flat_parameters
        assert flat.grad is not None
        norms = []
        for members in parts.values():
            turns = np.flatnonzero(members)
            if len(turns):
                self._differentiate(tensors.take(torch.from_numpy(turns)).without_critic())
            norms.append(float(torch.linalg.vector_norm(flat.grad)) if len(turns) else 0.0)
        total = sum(norms) or 1.0
        return {f"train/gradient_share/{name}": norm / total for name, norm in zip(parts, norms, strict=True)}

    def _watch_signal(self, credit: npt.NDArray[np.float64]) -> None:
        """Warn once if training begins without signal; later on silence may mean that all is solved."""
        self._had_signal = self._had_signal or bool(np.any(credit))
        if not self._had_signal and self._n_updates == SILENT_UPDATES - 1:
            warnings.warn(
                f"no learning signal: all advantages of the first {SILENT_UPDATES} updates are zero. "
                "The returns of every group are all equal.",
                stacklevel=2,
            )

    # Logging and saving.

    def _record(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.logger.record(name, value)

    def dump_logs(self) -> None:
        """Write what was recorded since the last dump."""
        elapsed = max((time.time_ns() - self.start_time) / 1e9, 1e-9)
        self.logger.record("time/iterations", self._n_updates, exclude="tensorboard")
        self.logger.record("time/fps", int((self.num_timesteps - self._num_timesteps_at_start) / elapsed))
        self.logger.record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(step=self.num_timesteps)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_rows"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.optimizer"], []

    @classmethod
    def load(
        cls,
        path: Any,
        env: Any = None,
        device: str | torch.device = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Load a model; with ``env`` it can go on training exactly where it was.

        Args:
            path: what ``save`` wrote.
            env: as for the constructor; None suffices for ``predict``.
            device: ``"cpu"`` or ``"auto"``.
            custom_objects: as in SB3.
            print_system_info: as in SB3.
            force_reset: as in SB3; rollouts always start from resets.
            **kwargs: ``env_kwargs`` of ``env``, and settings of the constructor to change, with its checks.

        Raises:
            TypeError: if a name is not a setting that can be changed; lists them.
            ValueError: if a value is not allowed, the scheme needs a critic that the model lacks (or the other
                way round), or the model's scheme has a part that is not registered.
        """
        env_kwargs = kwargs.pop("env_kwargs", None)
        if env_kwargs and env is None:
            raise ValueError(f"env_kwargs={env_kwargs!r} are only allowed together with env, an id.")
        unchanged = {"policy_kwargs": kwargs.pop("policy_kwargs")} if "policy_kwargs" in kwargs else {}
        unknown = sorted(set(kwargs) - set(cls._settings()))
        if unknown:
            raise TypeError(
                f"load() cannot change {unknown}: allowed are {['env_kwargs', 'policy_kwargs', *cls._settings()]}."
            )
        model = super().load(
            path, env=None, device="cpu" if str(device) == "auto" else device,
            custom_objects=custom_objects, print_system_info=print_system_info, **unchanged,
        )  # fmt: skip
        if kwargs:
            model._change(kwargs)
        if env is not None:
            prompts = model._prompts
            model.set_env(env, env_kwargs=env_kwargs)
            model._prompts = prompts
            if prompts is not None:
                # Saved apart, but one generator: draws must go on interleaved as they were.
                prompts.random = model._random
        return model

    @classmethod
    def _settings(cls) -> tuple[str, ...]:
        """Names of the constructor's arguments that a saved model may change."""
        return tuple(name for name in inspect.signature(cls).parameters if name not in FIXED)

    def _change(self, changes: Mapping[str, Any]) -> None:
        """Change settings of a loaded model."""
        current = {name: getattr(self, STORED_AS.get(name, name)) for name in self._settings()}
        # A second model, without environment and network, so that the constructor checks values and combinations.
        checked = type(self)(type(self.policy), None, **{**current, **changes}, _init_setup_model=False)
        if checked.scheme.needs_critic != self.scheme.needs_critic:
            needs, has = ("needs", "has none") if checked.scheme.needs_critic else ("has no use for", "has one")
            raise ValueError(
                f"scheme={changes['scheme']!r} is not allowed: it {needs} a critic, and the saved model {has}."
            )
        for name in changes:
            stored = STORED_AS.get(name, name)
            setattr(self, stored, getattr(checked, stored))
        self._past = deque(self._past, maxlen=self.staleness + 1)
        self._setup_lr_schedule()
