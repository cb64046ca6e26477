"""GroupPPO as a stable-baselines3 algorithm: learning, saving, logging, numerics, bad input."""

import copy
import dataclasses
import pickle
import random
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure

import algos.parts
from agentic_gym.sb3 import AgenticVecEnv
from algos import RECIPES, GroupPPO, MessagePolicy
from algos.advantages import advantages
from algos.collector import collect
from algos.sampling import Overlong
from algos.scheme import make_scheme
from algos.surrogates.aggregation import token_weights
from algos.update import UpdateTensors
from algos.warmstart import warmstart

CHAIN = "agentic_gym/Chain-v0"
SMALL = {"n_prompts": 4, "group_size": 4, "n_epochs": 2, "n_minibatches": 2, "seed": 0}


def small_model(env="agentic_gym/Mixture-v0", **changes):
    return GroupPPO("MessagePolicy", env, **{**SMALL, **changes})


def rollouts(model, n=64, seed=0):
    keys = np.arange(n)
    return collect(model.rows, model.policy, keys % 16, keys, np.random.default_rng(seed))


def tensors_of(model, data):
    credit = advantages(model.scheme, data.batch)
    return UpdateTensors.build(model.policy, model.scheme, data, credit, token_weights(model.scheme, data.batch))


# Learning.


def test_learns_the_chain():
    model = GroupPPO(
        "MessagePolicy",
        CHAIN,
        env_kwargs={"options": 4, "depth": 2, "difficulty": 0.0},
        learning_rate=3e-3,
        n_prompts=32,
        seed=1,
    )
    model.learn(60_000, log_interval=None)
    assert model.logger.name_to_value["rollout/success_rate"] > 0.9


def test_cartpole_reaches_475_with_reset_seeds_as_prompts():
    model = GroupPPO(
        "MessagePolicy", "CartPole-v1", scheme="grpo:aggregation=token_mean", n_prompts=8, n_minibatches=8,
        learning_rate=lambda progress: 3e-3 * progress, seed=0,
    )  # fmt: skip
    model.learn(300_000, log_interval=None)
    mean, _ = evaluate_policy(model, make_vec_env("CartPole-v1", 4, seed=7), n_eval_episodes=20)
    assert mean >= 475


@pytest.mark.parametrize("scheme", sorted(RECIPES))
def test_every_recipe_trains_and_logs(scheme):
    # VGPO is defined for rewards that are not negative.
    model = small_model(scheme=scheme, **({"env_kwargs": {"reward_offset": 2.0}} if scheme == "vgpo" else {}))
    before = model.policy.flat_parameters.clone()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no learning signal")
        model.learn(2_000, log_interval=None)
    logged = model.logger.name_to_value
    assert not torch.equal(before, model.policy.flat_parameters)
    assert all(np.isfinite(value) for value in logged.values())
    for key in (
        "train/approx_kl",
        "train/clip_fraction_low",
        "group/frac_reward_zero_std",
        "env/Search/score",
    ):
        assert key in logged
    # P52: only the scheme that needs a critic has one.
    assert (model.policy.critic is not None) == (scheme in ("ppo", "gae_turn"))


def test_gradient_shares_of_environments_add_up_to_one():
    model = small_model(scheme="reinforce", n_prompts=16, diagnostics_interval=1)
    model.learn(1, log_interval=None)
    key = "train/gradient_share/"
    shares = {k.removeprefix(key): v for k, v in model.logger.name_to_value.items() if k.startswith(key)}
    by_turn = {name: share for name, share in shares.items() if "turn" in name}
    assert len(shares) - len(by_turn) == 4 and {*by_turn} == {*(f"turn_{i}" for i in range(4)), "later_turns"}
    assert sum(by_turn.values()) == pytest.approx(1.0) == sum(shares.values()) - sum(by_turn.values())
    assert min(shares.values()) >= 0


# Determinism and global state.


def test_same_seed_same_parameters_and_global_generators_untouched():
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    models = [small_model().learn(1_500, log_interval=None) for _ in range(2)]
    assert torch.equal(models[0].policy.flat_parameters, models[1].policy.flat_parameters)
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])
    other = small_model(seed=1).learn(1_500, log_interval=None)
    assert not torch.equal(models[0].policy.flat_parameters, other.policy.flat_parameters)


# Ratios (P24) and the written-out gradient.


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_ratio_stays_one_without_learning(temperature):
    model = small_model(
        env_kwargs={"filler": 2}, policy_kwargs={"temperature": temperature}, learning_rate=0.0, n_epochs=3
    )
    model.learn(1_500, log_interval=None)
    tensors = tensors_of(model, rollouts(model))
    for epoch in range(3):
        for part in tensors.shuffled(np.random.default_rng(epoch)).minibatches(4):
            ratio = (model.policy.log_probs(part.slots) - part.old_log_prob).detach().exp()
            assert float((ratio - 1).abs().max()) < 1e-5


def test_ratio_moves_after_the_first_step():
    model = small_model(env=CHAIN, learning_rate=1e-2, env_kwargs={"depth": 1, "options": 2}, n_prompts=16)
    model.learn(1, log_interval=None)
    assert model.logger.name_to_value["train/ratio_max"] > 1.001


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_gradient_equals_autograd(temperature):
    model = small_model(env_kwargs={"filler": 2}, policy_kwargs={"temperature": temperature})
    with torch.no_grad():
        flat = model.policy.flat_parameters
        flat.add_(0.3 * torch.randn(flat.shape, generator=torch.Generator().manual_seed(0)))
    slots = tensors_of(model, rollouts(model)).slots
    weights = torch.randn(slots.position.shape, generator=torch.Generator().manual_seed(1))

    def reference():
        scores, grammar = model.policy.actor(slots.features), model.policy.grammar
        m, n_slots = slots.state.shape
        columns, legal = (torch.from_numpy(table)[slots.state] for table in (grammar.column, grammar.legal))
        logits = scores.gather(1, columns.view(m, -1)).view(m, n_slots, -1).masked_fill(~legal, -torch.inf)
        logits = logits + torch.nn.functional.embedding(slots.previous, model.policy.pair_bias)
        return (logits / temperature).log_softmax(-1).gather(2, slots.position.unsqueeze(-1)).squeeze(-1)

    gradients = []
    for function in (lambda: model.policy.log_probs(slots), reference):
        model.policy.flat_parameters.grad.zero_()
        (function() * weights).sum().backward()
        gradients.append(model.policy.flat_parameters.grad.clone())
    assert torch.allclose(model.policy.log_probs(slots), reference(), atol=1e-6)
    assert float(gradients[1].abs().max()) > 1
    assert torch.allclose(gradients[0], gradients[1], atol=1e-4)


def test_critic_gradient_equals_autograd():
    model = small_model(scheme="ppo")
    features = torch.rand(50, model.policy.actor.widths[0], generator=torch.Generator().manual_seed(0))
    weights = torch.randn(50, generator=torch.Generator().manual_seed(1))
    values, gradients = [], []
    for function in (model.policy.critic_values, lambda x: model.policy.critic(x).squeeze(-1)):
        model.policy.flat_parameters.grad.zero_()
        values.append(function(features))
        (values[-1] * weights).sum().backward()
        gradients.append(model.policy.flat_parameters.grad.clone())
    assert torch.allclose(*values, atol=1e-6)
    assert float(gradients[1].abs().max()) > 1
    assert torch.allclose(*gradients, atol=1e-4)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_copies_of_a_policy_have_memory_of_their_own(copier):
    model = small_model()
    data = rollouts(model)
    twin = copier(model.policy)
    before = twin.write(data.features, np.random.default_rng(0))
    with torch.no_grad():
        model.policy.flat_parameters.add_(1.0)
    again = twin.write(data.features, np.random.default_rng(0))
    assert all(np.array_equal(one, two) for one, two in zip(before, again, strict=True))
    slots = twin.slots(data.features, data.state, data.previous, data.position)
    twin.log_probs(slots).sum().backward()
    assert float(twin.flat_parameters.grad.abs().max()) > 0
    assert not np.array_equal(model.policy.write(data.features, np.random.default_rng(0)).log_prob, before.log_prob)


def test_entropies_agree_with_the_rollout_and_ignore_illegal_tokens():
    model = small_model(env_kwargs={"filler": 1})
    data = rollouts(model)
    slots = model.policy.slots(data.features, data.state, data.previous, data.position)
    entropy = model.policy.entropies(slots)
    assert np.allclose(entropy.sum(1).detach().numpy(), data.entropy, atol=1e-4)
    model.policy.flat_parameters.grad.zero_()
    entropy.sum().backward()
    assert torch.isfinite(model.policy.flat_parameters.grad).all()


def test_entropy_bonus_raises_entropy():
    entropies = []
    for coefficient in (0.0, 0.5):
        model = small_model(env=CHAIN, ent_coef=coefficient, learning_rate=1e-2, n_prompts=8,
                            env_kwargs={"depth": 1, "options": 2})  # fmt: skip
        model.learn(4_000, log_interval=None)
        entropies.append(model.logger.name_to_value["rollout/entropy"])
    assert entropies[1] > entropies[0] + 0.3


def test_advantages_in_the_loss_are_the_computed_ones():
    """P10: nothing whitens them a second time, and minibatches only select."""
    model = small_model()
    data = rollouts(model)
    credit = advantages(model.scheme, data.batch)
    parts = list(tensors_of(model, data).shuffled(np.random.default_rng(0)).minibatches(3))
    seen = torch.cat([part.advantage[:, 0] for part in parts]).numpy()
    assert np.array_equal(np.sort(seen), np.sort(credit.astype(np.float32)))
    assert sum(len(part.rollout.unique()) for part in parts) == len(data.batch)


@pytest.mark.parametrize("scheme", ["grpo", "dr_grpo", "lite_ppo", "ppo"])
def test_minibatch_losses_add_up(scheme):
    """P07: the denominators are those of the whole update."""
    model = small_model(scheme=scheme)
    tensors = tensors_of(model, rollouts(model)).shuffled(np.random.default_rng(0))

    def gradient(n):
        total = torch.zeros_like(model.policy.flat_parameters)
        for part in tensors.minibatches(n):
            model._differentiate(part)
            total += model.policy.flat_parameters.grad / n
        return total

    whole = gradient(1)
    assert float(whole.abs().max()) > 0
    for n in (2, 5, 64):
        assert torch.allclose(gradient(n), whole, atol=1e-6)


def test_minibatches_can_be_means_of_their_own():
    """TRL's bnpo, schemes.md B6.17: each minibatch divides by its own tokens."""
    model = small_model(scheme="grpo:aggregation=token_mean,tokens_of=minibatch")
    tensors = tensors_of(model, rollouts(model)).shuffled(np.random.default_rng(0))
    (whole,) = tensors.minibatches(1)
    assert torch.allclose(whole.weights, tensors.weights)
    parts = list(tensors.minibatches(5))
    tokens = [float(part.mask.sum()) for part in parts]
    assert len(set(tokens)) > 1
    for part, n in zip(parts, tokens, strict=True):
        assert torch.allclose(part.weights[part.mask], torch.tensor(1 / n))
        assert not part.weights[~part.mask].any()


def test_a_minibatch_without_tokens_has_no_weights():
    model = small_model(scheme="grpo:aggregation=token_mean,tokens_of=minibatch")
    tensors = tensors_of(model, rollouts(model)).shuffled(np.random.default_rng(0))
    silent = dataclasses.replace(tensors, weights=torch.zeros_like(tensors.weights))
    assert not any(part.weights.any() for part in silent.minibatches(4))


def test_update_without_signal_leaves_the_weights_alone():
    """Adam's momentum of earlier updates must not move them either."""
    model = small_model(learning_rate=1e-2)
    model.learn(1_500, log_interval=None)
    data = rollouts(model)
    flat = dataclasses.replace(data.batch, returns=np.ones(len(data.batch)))
    before = model.policy.flat_parameters.clone()
    model.train(dataclasses.replace(data, batch=flat))
    assert torch.equal(before, model.policy.flat_parameters)
    model.train(data)
    assert not torch.equal(before, model.policy.flat_parameters)


@pytest.mark.parametrize(("scheme", "moves"), [("dro", True), ("gvpo", True), ("kl_cov", True), ("grpo", False)])
def test_losses_that_pull_back_to_older_policies_do_so_without_credit(scheme, moves):
    chain = {"env": "agentic_gym/Chain-v0", "env_kwargs": {"depth": 2, "options": 4}}
    model = small_model(**chain, scheme=scheme, staleness=1, learning_rate=1e-2)
    older = rollouts(model)
    model.learn(1_000, log_interval=None)
    model.policy.optimizer.state.clear()  # Momentum would go on.
    silent = dataclasses.replace(
        older.batch, returns=np.zeros(len(older.batch)), turn_reward=np.zeros(older.batch.n_turns)
    )
    older = dataclasses.replace(older, batch=silent)

    def distance():
        return float((model._score(older) - torch.from_numpy(older.log_prob)).square().mean())

    before = distance()
    model.train(older)
    assert distance() < before if moves else distance() == before


def test_gradient_that_is_not_finite_is_skipped():
    """P46."""
    model = small_model()
    model._start(1, True, "run")
    before = model.policy.flat_parameters.clone()
    model.policy.flat_parameters.grad.fill_(float("nan"))
    with pytest.warns(UserWarning, match="gradient is not finite, with surrogate='ppo_clip'"):
        model._step()
    assert torch.equal(before, model.policy.flat_parameters)
    assert model._skipped_steps == 1


@pytest.fixture
def surrogate_of_nan():
    def nan(scheme, tokens, log_ratio):
        return log_ratio * float("nan")

    algos.parts.part("surrogate", "of_nan", source="test")(nan)
    yield "grpo:surrogate=of_nan"
    algos.parts.unregister("surrogate", "of_nan")


@pytest.mark.filterwarnings("ignore:a gradient is not finite")
def test_p46_training_stops_where_no_gradient_is_finite(surrogate_of_nan):
    chain = {"env": "agentic_gym/Chain-v0", "env_kwargs": {"depth": 2, "options": 4}}
    model = small_model(**chain, scheme=surrogate_of_nan, max_skipped_steps=5)
    before = model.policy.flat_parameters.clone()
    with pytest.raises(FloatingPointError, match=r"max_skipped_steps=5 .* surrogate='of_nan'"):
        model.learn(5_000, log_interval=None)
    assert torch.equal(before, model.policy.flat_parameters)
    model = small_model(**chain, scheme=surrogate_of_nan, max_skipped_steps=None)
    model.learn(1_500, log_interval=None)
    assert model._skipped_steps > 5
    with pytest.raises(ValueError, match="max_skipped_steps=0 is not allowed"):
        small_model(max_skipped_steps=0)


def test_skipped_steps_in_a_row_are_counted_anew_after_a_good_one():
    model = small_model(max_skipped_steps=2)
    model._start(1, True, "run")
    for value in (float("nan"), 1.0, float("nan"), 1.0):
        model.policy.flat_parameters.grad.fill_(value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model._step()
    assert model._skipped_steps == 2


def test_other_policies_of_sb3_are_refused_by_name():
    with pytest.raises(ValueError, match="policy='MlpPolicy' is not allowed: it must be 'MessagePolicy'"):
        GroupPPO("MlpPolicy", "agentic_gym/Chain-v0")


def test_learn_takes_whole_floats_as_sb3_does():
    assert small_model().learn(1e1, log_interval=None).num_timesteps >= 10
    with pytest.raises(ValueError, match=r"total_timesteps=10.5 is not allowed"):
        small_model().learn(10.5)


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.Adam, {"fused": True, "weight_decay": 0.1, "betas": (0.5, 0.9)}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.Adam, {"maximize": True}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
        (torch.optim.SGD, {"momentum": 0.9}),
    ],
)
def test_a_step_is_the_optimisers(optimizer, options):
    policy, random = small_model().policy, torch.Generator().manual_seed(0)
    policy.optimizer = optimizer([policy.flat_parameters], lr=0.1, **options)
    other = policy.flat_parameters.clone()
    expected = optimizer([other], lr=0.1, **options)
    for _ in range(4):
        policy.flat_parameters.grad.copy_(torch.randn(other.shape, generator=random))
        other.grad = policy.flat_parameters.grad.clone()
        policy.step()
        expected.step()
        assert torch.equal(policy.flat_parameters, other)


def test_observations_that_are_not_finite_are_refused():
    class Broken(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, seed=None, options=None):
            return np.zeros(3, np.float32), {}

        def step(self, action):
            return np.array([0.0, np.nan, 0.0], np.float32), 1.0, False, True, {}

    model = GroupPPO("MessagePolicy", Broken(), n_prompts=2, group_size=2, seed=0, n_minibatches=1)
    with pytest.raises(ValueError, match=r"observation: row 0 holds nan \(flattened, at 1\); all must be finite"):
        model.learn(8)
    with pytest.raises(ValueError, match="observation: row 0 holds inf"):
        model.predict(np.array([0.0, 0.0, np.inf], np.float32))


def test_the_trainer_gives_schemes_their_memory_and_levels():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scheme in ("spo", "agentrl"):
            GroupPPO("MessagePolicy", "agentic_gym/Chain-v0", scheme=scheme, n_prompts=4, seed=0).learn(64)


def test_staleness_samples_from_an_older_policy():
    ratios = []
    for staleness in (0, 2):
        model = small_model(
            env=CHAIN, env_kwargs={"depth": 1, "options": 2}, staleness=staleness, learning_rate=1e-2,
            n_prompts=16, n_epochs=1, n_minibatches=1,
        )  # fmt: skip
        model.learn(640, log_interval=None)
        ratios.append(model.logger.name_to_value["train/ratio_max"])
    assert ratios[0] == pytest.approx(1.0, abs=1e-4)
    assert ratios[1] > 1.01


def test_rollouts_are_exactly_so_many_updates_old():
    model = small_model(
        env=CHAIN, env_kwargs={"options": 4, "depth": 2, "graded": True}, staleness=2, learning_rate=1e-2
    )
    after, wrote = [model.policy.flat_parameters.clone()], []
    train = model.train

    def write(features, random, deterministic=False, own=model.policy.write):
        wrote.append((len(after) - 1, model.policy.flat_parameters.clone()))
        return own(features, random, deterministic)

    def keep(data):
        train(data)
        after.append(model.policy.flat_parameters.clone())

    model.policy.write, model.train = write, keep
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no learning signal")
        for _ in range(5):
            model.learn(1, log_interval=None, reset_num_timesteps=False)
    assert not torch.equal(after[-1], after[-2])
    for update, parameters in wrote:
        assert torch.equal(parameters, after[max(update - 2, 0)]), update
    # Collections that come to nothing do not age the policy.
    del model.policy.write
    for _ in range(3):
        model._come_back(model._go_stale())
    assert torch.equal(torch.from_numpy(model._past[0]), after[-3])


def test_the_reference_is_replaced_every_so_many_updates():
    model = small_model(
        scheme="grpo:kl=k3,kl_coef=0.1", env=CHAIN, env_kwargs={"options": 4, "depth": 2, "graded": True},
        learning_rate=1e-2, reference_interval=2,
    )  # fmt: skip
    before, references = [], []
    for _ in range(5):
        before.append(model.policy.flat_parameters.numpy().copy())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="no learning signal")
            model.learn(1, log_interval=None, reset_num_timesteps=False)
        references.append(model._reference.copy())
    for update, reference in enumerate(references):
        np.testing.assert_array_equal(reference, before[update - update % 2])
    assert not np.array_equal(references[0], references[-1])


def test_log_probabilities_that_are_not_finite_raise():
    model = small_model()
    model.learn(1, log_interval=None)
    data = rollouts(model)
    with torch.no_grad():
        model.policy.actor.biases[-1].fill_(float("nan"))
    with pytest.raises(FloatingPointError, match=r"log-probabilities are no longer finite.*smaller learning_rate"):
        model.train(data)


# Saving (P45).


def test_save_load_predicts_the_same_and_goes_on_the_same(tmp_path):
    model = small_model(scheme="erpo:eps=0.001")
    model.learn(1_500, log_interval=None)
    model.save(tmp_path / "model")
    loaded = GroupPPO.load(tmp_path / "model", env="agentic_gym/Mixture-v0")
    observation = model.rows.env.reset(options={"prompt": 3, "rollout": 5})[0]
    assert np.array_equal(
        model.predict(observation, deterministic=True)[0], loaded.predict(observation, deterministic=True)[0]
    )
    assert loaded.scheme == model.scheme
    for trained in (model, loaded):
        trained.learn(1_500, log_interval=None, reset_num_timesteps=False)
    assert torch.equal(model.policy.flat_parameters, loaded.policy.flat_parameters)
    assert model.num_timesteps == loaded.num_timesteps


def test_load_in_a_fresh_process_without_an_environment(tmp_path):
    model = small_model(env=CHAIN).learn(500, log_interval=None)
    model.save(tmp_path / "model")
    observation = np.linspace(0, 1, model.observation_space.shape[0], dtype=np.float32)
    np.save(tmp_path / "observation.npy", observation)
    code = (
        "import sys, numpy as np; from algos import GroupPPO; folder = sys.argv[1]\n"
        "model = GroupPPO.load(folder + '/model')\n"
        "print(model.predict(np.load(folder + '/observation.npy'), deterministic=True)[0].tolist())"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(model.predict(observation, deterministic=True)[0].tolist())
    with pytest.raises(ValueError, match="no environment"):
        GroupPPO.load(tmp_path / "model").learn(10)


@pytest.fixture
def saved(tmp_path):
    """Where a model of the default scheme, trained on chains of depth 2, is saved."""
    small_model(env=CHAIN, env_kwargs={"depth": 2, "options": 4}).learn(100, log_interval=None).save(tmp_path / "model")
    return tmp_path / "model"


def test_load_takes_the_environments_arguments(saved):
    loaded = GroupPPO.load(saved, env=CHAIN, env_kwargs={"depth": 2, "options": 4, "reward_scale": 50.0})
    assert loaded.rows.env.unwrapped.arguments["reward_scale"] == 50.0
    loaded.learn(50, log_interval=None)
    with pytest.raises(ValueError, match=r"env_kwargs=.*together with env"):
        GroupPPO.load(saved, env_kwargs={"depth": 2})
    with pytest.raises(ValueError, match=r"env_kwargs=.*where env is an id"):
        GroupPPO.load(saved, env=gymnasium.make(CHAIN), env_kwargs={"depth": 2})


def test_load_changes_settings_as_the_constructor_takes_them(saved):
    env = {"env": CHAIN, "env_kwargs": {"depth": 2, "options": 4}}
    loaded = GroupPPO.load(
        saved, **env, scheme="grpo:eps=0.01", learning_rate=5e-3, n_epochs=1, n_prompts=6, staleness=1,
        mask_truncated=True, overlong={"buffer": 2}, stats_window_size=7, policy_kwargs={},
    )  # fmt: skip
    assert loaded.scheme == make_scheme("grpo:eps=0.01")
    assert (loaded.n_epochs, loaded.rows.n, loaded.mask_truncated) == (1, 24, "loss")
    assert loaded.overlong == Overlong(buffer=2)
    loaded.learn(300, log_interval=None)
    assert loaded.policy.optimizer.param_groups[0]["lr"] == 5e-3
    assert loaded.ep_info_buffer.maxlen == 7
    assert len(loaded._past) == 2
    assert GroupPPO.load(saved).n_epochs == SMALL["n_epochs"]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"bogus": 3}, TypeError, ["bogus", "learning_rate", "env_kwargs"]),
        ({"seed": 3}, TypeError, ["seed"]),
        ({"n_epochs": 0}, ValueError, ["n_epochs=0"]),
        ({"learning_rate": None}, ValueError, ["learning_rate=None"]),
        ({"n_minibatches": 17}, ValueError, ["n_minibatches=17", "16"]),
        ({"group_size": 1}, ValueError, ["group_size=1"]),
        ({"scheme": "grppo"}, ValueError, ["scheme='grppo'"]),
        ({"scheme": "ppo"}, ValueError, ["scheme='ppo'", "needs a critic", "has none"]),
    ],
)
def test_load_refuses_what_the_constructor_would_refuse(saved, changes, error, words):
    with pytest.raises(error) as caught:
        GroupPPO.load(saved, **changes)
    for word in words:
        assert word in str(caught.value)


def test_load_refuses_a_scheme_without_critic_for_a_model_with_one(tmp_path):
    small_model(env=CHAIN, scheme="ppo").save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"scheme='grpo' is not allowed: it has no use for a critic.*has one"):
        GroupPPO.load(tmp_path / "model", scheme="grpo")
    assert GroupPPO.load(tmp_path / "model", scheme="ppo:gae_lambda=0.5").scheme.gae_lambda == 0.5


def test_load_says_what_to_import_for_a_part_that_is_not_registered(tmp_path):
    module = tmp_path / "own_part.py"
    module.write_text(
        "from algos.parts import part\n\n"
        "@part('weights', 'own_halves', source='mine')\n"
        "def halves(scheme, batch, advantages):\n"
        "    return advantages / 2\n"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import own_part; from algos import GroupPPO\n"
        f"model = GroupPPO('MessagePolicy', {CHAIN!r}, scheme='grpo:weights=own_halves')\n"
        "model.save(sys.argv[1] + '/model')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    with pytest.raises(ValueError, match=r"weights='own_halves' is not registered.*import the module"):
        GroupPPO.load(tmp_path / "model")


def test_learning_rate_schedule_is_followed():
    model = small_model(learning_rate=lambda progress: 1e-3 * progress)
    model.learn(1_000, log_interval=None)
    assert 0 <= model.policy.optimizer.param_groups[0]["lr"] < 1e-3


# SB3's habits.


class _StopAfter(BaseCallback):
    def __init__(self, ticks):
        super().__init__()
        self.ticks, self.rollouts = ticks, 0

    def _on_rollout_end(self):
        self.rollouts += 1

    def _on_step(self):
        return self.n_calls < self.ticks


def test_callback_stops_training_and_counts_turns():
    model = small_model()
    stop = _StopAfter(25)
    model.learn(10**6, callback=stop, log_interval=None)
    assert stop.n_calls == 25
    assert stop.rollouts >= 1
    assert stop.num_timesteps == model.num_timesteps


class _Watch(BaseCallback):
    """Keeps what callbacks see of every tick."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def _on_step(self):
        self.seen.append({name: self.locals[name] for name in ("rewards", "dones", "infos")})
        return True


@pytest.mark.parametrize(("env", "arguments"), [(CHAIN, {"depth": 2, "dense": True}), ("CartPole-v1", None)])
def test_callbacks_see_rewards_ends_and_episodes_of_every_row(env, arguments):
    model = small_model(env=env, env_kwargs=arguments)
    kept = []
    collect_rollouts = model.collect_rollouts
    model.collect_rollouts = lambda *given: kept.append(collect_rollouts(*given)) or kept[-1]
    watch = _Watch()
    model.learn(40, callback=watch, log_interval=None)
    assert all(len(tick[name]) == model.rows.n for tick in watch.seen for name in tick)
    episodes = [
        info["episode"] for tick in watch.seen for info, done in zip(tick["infos"], tick["dones"], strict=True) if done
    ]
    assert all("episode" not in info for t in watch.seen for info in np.array(t["infos"])[~t["dones"]])
    returns = np.concatenate([data.batch.returns for data in kept])
    lengths = np.concatenate([data.batch.turns_per_rollout for data in kept])
    assert sorted(episode["r"] for episode in episodes) == pytest.approx(sorted(returns))
    assert sorted(episode["l"] for episode in episodes) == sorted(lengths)
    assert sum(tick["rewards"].sum() for tick in watch.seen) == pytest.approx(returns.sum())


def test_callbacks_do_not_change_the_training():
    plain, watched = small_model(), small_model()
    plain.learn(300, log_interval=None)
    watched.learn(300, callback=_Watch(), log_interval=None)
    assert torch.equal(plain.policy.flat_parameters, watched.policy.flat_parameters)


def test_functions_as_callbacks_see_them_too():
    ends = []
    small_model().learn(60, callback=lambda seen, _: ends.append(seen["dones"].sum()) is None, log_interval=None)
    assert sum(ends) >= 16


def test_sb3s_own_callbacks(tmp_path):
    stop = StopTrainingOnMaxEpisodes(3)
    model = small_model(env=CHAIN, env_kwargs={"depth": 2}).learn(10**6, callback=stop, log_interval=None)
    assert stop.n_episodes >= 3
    assert model.num_timesteps < 100
    env = AgenticVecEnv(4, family="Chain", depth=1)
    best = EvalCallback(env, StopTrainingOnRewardThreshold(-1.0), eval_freq=5, verbose=0, n_eval_episodes=4)
    checkpoints = CheckpointCallback(8, tmp_path)
    model = small_model(env=CHAIN, env_kwargs={"depth": 1})
    model.learn(10**6, callback=[checkpoints, best], log_interval=None)
    assert best.n_calls == 5
    model.learn(100, callback=checkpoints, log_interval=None)
    assert GroupPPO.load(next(tmp_path.glob("*.zip"))).scheme == model.scheme


def test_eval_callback_and_evaluate_policy(tmp_path):
    env = AgenticVecEnv(4, family="Chain", depth=1)
    model = small_model(env=CHAIN, env_kwargs={"depth": 1})
    model.learn(300, callback=EvalCallback(env, eval_freq=10, log_path=str(tmp_path), verbose=0), log_interval=None)
    assert (tmp_path / "evaluations.npz").exists()
    mean, _ = evaluate_policy(model, env, n_eval_episodes=8)
    assert 0 <= mean <= 1


def test_logger_and_tensorboard(tmp_path):
    model = small_model(tensorboard_log=str(tmp_path))
    model.learn(600)
    model.logger.close()
    assert list(tmp_path.glob("GroupPPO_1/events*"))
    model = small_model()
    model.set_logger(configure(str(tmp_path / "csv"), ["csv"]))
    model.learn(600)
    model.logger.close()
    header = (tmp_path / "csv" / "progress.csv").read_text().splitlines()[0]
    for key in ("time/fps", "rollout/ep_rew_mean", "train/loss", "env/Database/score"):
        assert key in header


def test_progress_bar_counts_turns(capsys):
    model = small_model()
    model.learn(300, progress_bar=True, log_interval=None)
    shown = capsys.readouterr().out
    assert f"{model.num_timesteps}/{model.num_timesteps}" in shown


@pytest.mark.parametrize(
    "make",
    [
        lambda: gymnasium.make(CHAIN),
        lambda: gymnasium.make_vec(CHAIN, num_envs=3),
        lambda: gymnasium.make_vec(CHAIN, num_envs=3, vectorization_mode="sync"),
        lambda: AgenticVecEnv(3, family="Chain"),
        lambda: make_vec_env(CHAIN, 3),
    ],
    ids=["env", "native", "sync", "sb3 native", "sb3 dummy"],
)
def test_accepts_every_kind_of_environment(make):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no learning signal")
        model = small_model(env=make()).learn(200, log_interval=None)
    assert model.num_timesteps >= 200
    assert model.get_env().observation_space == model.observation_space


# Bad input.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group_size": 1}, ["group_size=1", "at least 2"]),
        ({"scheme": "grppo"}, ["grppo", "grpo"]),
        ({"n_epochs": 0}, ["n_epochs=0"]),
        ({"n_minibatches": 17}, ["n_minibatches=17", "16"]),
        ({"max_grad_norm": 0}, ["max_grad_norm=0"]),
        ({"max_grad_norm": -1}, ["max_grad_norm=-1"]),
        ({"max_grad_norm": float("nan")}, ["max_grad_norm=nan"]),
        ({"max_grad_norm": True}, ["max_grad_norm=True"]),
        ({"max_grad_norm": "1.0"}, ["max_grad_norm='1.0'"]),
        ({"ent_coef": -0.1}, ["ent_coef=-0.1"]),
        ({"staleness": -1}, ["staleness=-1"]),
        ({"device": "cuda"}, ["device='cuda'"]),
        ({"seed": "a"}, ["seed='a'", ">= 0"]),
        ({"learning_rate": "a"}, ["learning_rate='a'", ">= 0", "schedule"]),
        ({"learning_rate": -1e-3}, ["learning_rate=-0.001"]),
        ({"policy_kwargs": {"temperature": "a"}}, ["temperature='a'"]),
        ({"seed": 1.5}, ["seed=1.5"]),
        ({"seed": -1}, ["seed=-1"]),
        ({"policy_kwargs": {"net_arch": 64}}, ["net_arch=64", "list or tuple"]),
        ({"policy_kwargs": {"net_arch": {"pi": [64]}}}, ["net_arch={'pi': [64]}"]),
        ({"policy_kwargs": {"net_arch": [64, 0]}}, ["net_arch=[64, 0]"]),
        ({"policy_kwargs": {"net_arch": (64, 1.5)}}, ["net_arch=(64, 1.5)"]),
        ({"env": "Search-v0"}, ["'agentic_gym/Search-v0'"]),
        ({"env_kwargs": {"preset": "nope"}}, ["preset='nope'", "scale"]),
    ],
)
def test_bad_arguments_are_named(changes, words):
    with pytest.raises((ValueError, gymnasium.error.Error)) as error:
        small_model(**changes)
    for word in words:
        assert word in str(error.value)


def test_unknown_arguments_and_environments():
    with pytest.raises(TypeError, match="clip_ratio_cc"):
        small_model(clip_ratio_cc=3)
    with pytest.raises(TypeError, match="clip_ratio_cc"):
        small_model(scheme=("grpo", {"clip_ratio_cc": 3}))
    with pytest.raises(TypeError, match="env_kwargs=3"):
        small_model(env_kwargs=3)
    with pytest.raises(TypeError, match="env="):
        small_model(env=3)
    for overlong in ({"foo": 1}, {}, {"buffer": 2, "foo": 1}):
        with pytest.raises(TypeError, match=r"overlong=.* must have 'buffer'.*'limit', 'factor'"):
            small_model(overlong=overlong)
    with pytest.raises(gymnasium.error.Error):
        small_model(env="agentic_gym/Nowhere-v0")
    with pytest.raises(ValueError, match="action_space"):
        small_model(env="Pendulum-v1")


def test_group_of_one_is_allowed_where_the_scheme_does_not_compare():
    model = small_model(scheme="reinforce_pp", group_size=1, n_prompts=16)
    assert model.learn(100, log_interval=None).num_timesteps >= 100


def test_warning_when_training_begins_without_signal():
    model = small_model(env=CHAIN, env_kwargs={"depth": 30}, n_epochs=1)
    with pytest.warns(UserWarning, match="no learning signal"):
        model.learn(16 * 30 * 10, log_interval=None)


# Warm start.


def test_warmstart_reaches_the_stated_success():
    model = GroupPPO("MessagePolicy", CHAIN, env_kwargs={"depth": 3}, seed=0)
    result = warmstart(model, 0.3, rollouts=1024)
    data = collect(model.rows, model.policy, np.arange(1024), np.arange(1024), np.random.default_rng(1), split="test")
    assert result.expert_success["Chain"] == pytest.approx(0.3, abs=0.02)
    assert data.success.mean() == pytest.approx(0.3, abs=0.1)
    again = GroupPPO("MessagePolicy", CHAIN, env_kwargs={"depth": 3, "reward_scale": 1000.0}, seed=0)
    warmstart(again, 0.3, rollouts=1024)
    assert torch.equal(model.policy.flat_parameters, again.policy.flat_parameters)


def test_warmstart_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="expert"):
        warmstart(GroupPPO("MessagePolicy", "CartPole-v1", seed=0))
    with pytest.raises(ValueError, match="success_rate"):
        warmstart(small_model(), success_rate=1.5)


# The policy by itself.


def test_answer_probability_is_the_geometric_mean_of_the_tokens():
    model = small_model(env="agentic_gym/Search-v0")
    observation, info = model.rows.env.reset(options={"prompt": np.arange(16)})
    features = model.policy.features(observation)
    written = model.policy.read(features, info["ground_truth"])
    expected = np.exp(written.log_prob.sum(1) / 2)
    assert np.allclose(model.policy.answer_probability(features, info["ground_truth"]), expected)
    with pytest.raises(ValueError, match="not a legal message"):
        model.policy.read(features, np.zeros_like(info["ground_truth"]))


def test_sampled_frequencies_match_probabilities():
    model = small_model(env=CHAIN, env_kwargs={"options": 3})
    features = np.repeat(np.random.default_rng(0).random((1, model.observation_space.shape[0])), 40_000, 0)
    written = model.policy.write(features.astype(np.float32), np.random.default_rng(0))
    messages, counts = np.unique(written.message, axis=0, return_counts=True)
    assert len(messages) == 6
    for message, count in zip(messages, counts, strict=True):
        row = int(np.flatnonzero((written.message == message).all(1))[0])
        assert count / 40_000 == pytest.approx(np.exp(written.log_prob[row].sum()), abs=0.01)


def test_discrete_spaces_must_start_at_zero():
    """P34."""
    box = gymnasium.spaces.Box(0, 1, (2,))
    with pytest.raises(ValueError, match="start at 0"):
        MessagePolicy(box, gymnasium.spaces.Discrete(3, start=10), lambda _: 1e-3)
