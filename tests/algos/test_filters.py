"""Token filters, and corrections for the policy that wrote the tokens."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from algos import GroupPPO, RolloutBatch, make_scheme, policy_loss
from algos.surrogates.aggregation import token_weights
from algos.surrogates.corrections import without_rejected
from algos.surrogates.loss import prepared_columns
from algos.surrogates.tokens import Tokens
from algos.update import UpdateTensors


def tokens_of(new, advantage=1.0, rollout=None, mask=None, old=None, behaviour=None):
    """Tokens with an old log-probability of 0 where none is given."""
    new = torch.tensor(new, dtype=torch.float64)
    mask = torch.ones(new.shape, dtype=torch.bool) if mask is None else torch.tensor(mask, dtype=torch.bool)
    owner = torch.arange(len(new)) if rollout is None else torch.tensor(rollout)
    old = torch.zeros_like(new) if old is None else torch.tensor(old, dtype=torch.float64)
    behaviour = None if behaviour is None else torch.tensor(behaviour, dtype=torch.float64)
    credit = torch.tensor(advantage, dtype=torch.float64).expand(len(new)).reshape(-1, 1)
    return Tokens(new, old, credit, mask, owner, int(owner.max()) + 1, behaviour)


def run(settings, tokens):
    scheme = make_scheme(f"grpo:{settings}")
    arguments = (tokens, tokens.log_ratio) if "filter" in settings else (tokens,)
    result = scheme.run("token_filter" if "filter" in settings else "correction", *arguments)
    assert not result.requires_grad
    return result.expand(tokens.mask.shape)


# Filters.


def test_off_policy_drops_drifted_failures_only():
    new = [[-0.6, -0.6], [-0.6, -0.6], [-0.4, -0.4], [0.9, 0.9]]
    tokens = tokens_of(new, advantage=[-1.0, 1.0, -1.0, -1.0])
    assert run("token_filter=off_policy", tokens).tolist() == [[0, 0], [1, 1], [1, 1], [1, 1]]
    assert run("token_filter=off_policy,drift_max=0.3", tokens)[2].tolist() == [0, 0]


def test_off_policy_measures_whole_rollouts_from_the_policy_that_wrote():
    new, rollout = [[-0.9], [-0.3], [-0.9]], [0, 0, 1]
    assert run("token_filter=off_policy", tokens_of(new, -1.0, rollout))[:, 0].tolist() == [0, 0, 0]
    masked = tokens_of([[-0.9, 0.0], [-0.3, -50.0]], -1.0, [0, 0], mask=[[1, 0], [1, 0]])
    assert run("token_filter=off_policy,drift_max=0.7", masked)[:, 0].tolist() == [1, 1]
    elsewhere = tokens_of(new, -1.0, rollout, behaviour=[[-0.9]] * 3)
    assert run("token_filter=off_policy", elsewhere)[:, 0].tolist() == [1, 1, 1]


def test_off_policy_keeps_the_denominator():
    batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0])
    new, old = torch.tensor([[0.0], [-1.0]]), torch.zeros(2, 1)
    loss, _ = policy_loss("rloo:token_filter=off_policy", new, old, [1.0, -1.0], batch)
    assert loss.item() == 0.0
    loss, _ = policy_loss("grpo:token_filter=off_policy", new, old, [1.0, -1.0], batch)
    assert loss.item() == -0.5


def entropies(batch, share):
    return prepared_columns(make_scheme(f"grpo:token_filter=top_entropy,entropy_share={share}"), batch, np.zeros(2))


def test_top_entropy_takes_the_share_of_the_tokens_in_the_loss():
    entropy = np.array([[0.1, 0.5, 99.0], [0.3, 0.2, 0.4], [9.0, 9.0, 9.0]])
    batch = RolloutBatch.from_arrays(
        returns=[1, 0, 1], prompt=[0, 0, 0], token_mask=[[1, 1, 0], [1, 1, 1], [1, 1, 1]], entropy=entropy,
        valid=[1, 1, 0],
    )  # fmt: skip
    assert entropies(batch, 0.2)["top_entropy"].tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert entropies(batch, 0.5)["top_entropy"].tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]
    assert entropies(batch, 1.0)["top_entropy"].tolist() == [[1, 1, 0], [1, 1, 1], [0, 0, 0]]
    assert entropies(batch, 0.0)["top_entropy"].sum() == 1


def test_top_entropy_needs_the_column():
    batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0])
    with pytest.raises(ValueError, match="give RolloutBatch its column 'entropy'"):
        entropies(batch, 0.2)


def test_second_moment_drops_the_largest_until_the_rest_fits():
    tokens = tokens_of([[0.1, -0.3], [1.0, 0.0]])
    # Squares 0, 0.01, 0.09, 1: running means 0, 0.005, 0.0333, 0.275.
    assert run("token_filter=second_moment", tokens).tolist() == [[1, 1], [0, 1]]
    assert run("token_filter=second_moment,moment_max=0.01", tokens).tolist() == [[1, 0], [0, 1]]
    assert run("token_filter=second_moment,moment_max=0.3", tokens).tolist() == [[1, 1], [1, 1]]
    # At least one is kept; masked tokens are not looked at.
    assert run("token_filter=second_moment", tokens_of([[5.0, -3.0]])).tolist() == [[0, 1]]
    assert run("token_filter=second_moment", tokens_of([[5.0, 0.0]], mask=[[1, 0]])).tolist() == [[1, 0]]
    assert run("token_filter=second_moment", tokens_of([[5.0, 0.0]], mask=[[0, 0]])).tolist() == [[0, 0]]
    elsewhere = tokens_of([[9.0, 0.0]], behaviour=[[0.1, 5.0]])
    assert run("token_filter=second_moment", elsewhere).tolist() == [[1, 0]]


# Corrections.


def weights(settings, q, **more):
    """The factor for given log p_old - log p_behaviour."""
    q = np.array(q)
    return run(f"correction={settings}", tokens_of(np.zeros_like(q), behaviour=-q, **more)).numpy()


LOG = np.log


def test_tis():
    q = LOG([[0.1, 1.0, 1.9, 9.0]])
    np.testing.assert_allclose(weights("tis", q), [[0.1, 1.0, 1.9, 2.0]])
    np.testing.assert_allclose(weights("tis,weight_min=0.5,weight_max=5", q), [[0.5, 1.0, 1.9, 5.0]])
    np.testing.assert_allclose(weights("tis,normalise=true", q), np.array([[0.1, 1.0, 1.9, 2.0]]) / 1.25)


def test_tis_rollout():
    q, rollout = LOG([[2.0, 0.5], [3.0, 1.0], [1.2, 1.0]]), [0, 0, 1]
    expected = [[3.0] * 2, [3.0] * 2, [1.2] * 2]
    np.testing.assert_allclose(weights("tis_rollout,weight_max=5", q, rollout=rollout), expected)
    np.testing.assert_allclose(weights("tis_rollout", q, rollout=rollout)[:, 0], [2.0, 2.0, 1.2])
    mean = weights("tis_rollout,weight_of=mean", q, rollout=rollout)
    np.testing.assert_allclose(mean[:, 0], [3 ** (1 / 4)] * 2 + [math.sqrt(1.2)])
    normalised = weights("tis_rollout,normalise=true", q, rollout=rollout)
    np.testing.assert_allclose(normalised[:, 0], np.array([2.0, 2.0, 1.2]) / 1.6)


def test_icepop():
    q = LOG([[0.4, 0.6, 4.9, 5.1]])
    np.testing.assert_allclose(weights("icepop", q), [[0.0, 0.6, 4.9, 0.0]])
    np.testing.assert_allclose(weights("icepop,level=rollout", LOG([[2.0, 2.0], [3.0, 2.0]])), [[4.0] * 2, [0.0] * 2])
    np.testing.assert_allclose(weights("icepop,normalise=true", q), np.array([[0.0, 0.6, 4.9, 0.0]]) / 1.375)
    assert not weights("icepop,normalise=true", [[9.0]]).any()


def test_geometric_mask():
    q = [[0.5, -0.5], [0.02, 0.01], [0.005, 0.006]]
    assert weights("geometric_mask", q)[:, 0].tolist() == [1, 0, 1]
    assert weights("geometric_mask,weight_min=0.999,weight_max=1.001", q)[:, 0].tolist() == [1, 0, 0]
    assert weights("geometric_mask", q, rollout=[0, 0, 0])[:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("over", ["token", "sum", "mean", "max"])
@pytest.mark.parametrize("measure", ["k1", "k2", "k3"])
def test_rejection_equals_loops(measure, over):
    random = np.random.default_rng(0)
    q, rollout = random.normal(size=(9, 3)) * 0.3, random.integers(0, 4, 9)
    mask = random.random((9, 3)) < 0.7
    kept = weights(
        f"rejection,measure={measure},over={over},weight_min=0.8,weight_max=1.3", q, rollout=rollout, mask=mask
    )
    size = {"k1": q, "k2": q**2 / 2, "k3": np.exp(q) - 1 - q}[measure]
    reduce = {"sum": np.sum, "mean": np.mean, "max": np.max}.get(over)
    for turn in range(9):
        for slot in np.flatnonzero(mask[turn]):
            own = rollout == rollout[turn]
            value = size[turn, slot] if over == "token" else reduce(size[own][mask[own]])
            inside = LOG(0.8) <= value <= LOG(1.3) if measure == "k1" else value <= 0.1
            assert kept[turn, slot] == inside


@pytest.mark.parametrize(
    "settings",
    ["tis", "tis_rollout", "icepop", "icepop,level=rollout", "geometric_mask", "rejection", "tis,normalise=true",
     "tis_rollout,normalise=true", "rejection,over=max,measure=k2"],
)  # fmt: skip
def test_weights_have_no_gradient_and_nothing_changes_where_policies_agree(settings):
    batch = RolloutBatch.from_arrays(returns=[1, 0, 1], prompt=[0, 0, 0], token_mask=[[1, 1], [1, 0], [0, 0]])
    new = torch.tensor([[0.1, 0.2], [-0.3, 7.0], [1.0, 1.0]], requires_grad=True)
    old, credit = torch.zeros(3, 2), [1.0, -1.0, 2.0]
    leaf = old.clone().requires_grad_()
    loss, metrics = policy_loss(f"grpo:correction={settings}", new, leaf, credit, batch, behaviour_log_prob=leaf)
    plain, expected = policy_loss("grpo", new, old, credit, batch)
    assert loss.item() == plain.item()
    assert metrics == expected
    slope, none = torch.autograd.grad(loss, [new, leaf], allow_unused=True)
    assert none is None
    assert torch.equal(slope, torch.autograd.grad(plain, new)[0])


@pytest.mark.parametrize("over", ["token", "sum"])
@pytest.mark.parametrize("aggregation", ["token_mean", "rollout_mean", "prompt_mean"])
def test_rejected_tokens_can_leave_the_denominators(over, aggregation):
    """As in verl: the loss is that of a batch in which they were not written."""
    random = np.random.default_rng(0)
    mask, rollout = random.random((9, 3)) < 0.8, np.array([0, 0, 1, 1, 2, 2, 3, 3, 3])
    q = random.normal(size=(9, 3)) * 0.5
    new, old = (torch.tensor(random.normal(size=(9, 3)) * 0.3) for _ in range(2))
    credit = random.normal(size=9)
    low, high = {"token": (0.7, 1.4), "sum": (0.3, 3.0)}[over]
    settings = f"rejection,over={over},weight_min={low},weight_max={high}"
    kept = weights(settings, q, rollout=rollout, mask=mask).astype(bool) & mask
    assert 3 < kept.sum() < mask.sum()

    def batch(tokens):
        return RolloutBatch.from_arrays(
            returns=[1, 0, 1, 0], prompt=[0, 0, 1, 1], turn_rollout=rollout, token_mask=tokens
        )

    scheme = make_scheme(f"grpo:correction={settings},aggregation={aggregation}", denominator="kept")
    behaviour = old - torch.tensor(q)
    loss, _ = policy_loss(scheme, new, old, credit, batch(mask), behaviour_log_prob=behaviour)
    expected, _ = policy_loss(f"grpo:aggregation={aggregation}", new, old, credit, batch(kept))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    over_all, _ = policy_loss(
        f"grpo:correction={settings},aggregation={aggregation}", new, old, credit, batch(mask),
        behaviour_log_prob=behaviour,
    )  # fmt: skip
    assert loss.item() != pytest.approx(over_all.item(), rel=1e-3)


@pytest.mark.parametrize("denominator", ["all", "kept"])
def test_what_is_rejected_must_be_finite_and_in_shape(denominator):
    batch = RolloutBatch.from_arrays(returns=[1, 0], prompt=[0, 0], token_mask=[[1, 1], [1, 0]])
    zeros = torch.zeros(2, 2)
    scheme = f"grpo:correction=rejection,denominator={denominator}"
    for bad, words in ((torch.full((2, 2), math.nan), "behaviour_log_prob has values that are not finite"),
                       (torch.zeros(3, 2), r"behaviour_log_prob has shape \(3, 2\)")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            policy_loss(scheme, zeros, zeros, [1.0, -1.0], batch, behaviour_log_prob=bad)


@pytest.mark.parametrize("recipe", ["grpo:aggregation=token_mean", "gvpo", "aspo", "a2tgpo"])
def test_the_trainer_leaves_out_what_the_loss_does(recipe, monkeypatch):
    """With rejected tokens out of the denominators, an update's tensors are those of the public function."""
    model = GroupPPO(
        "MessagePolicy", "agentic_gym/Chain-v0", scheme=f"{recipe},correction=rejection" if ":" in recipe
        else f"{recipe}:correction=rejection", n_prompts=16, group_size=8, n_epochs=1, n_minibatches=1, staleness=2,
        seed=0, learning_rate=3e-2, env_kwargs={"options": 2, "depth": 2, "graded": True, "difficulty": 0.0},
    )  # fmt: skip
    model.learn(1500, log_interval=None)
    options = dict(model.scheme.options) | {"weight_min": 0.97, "weight_max": 1.03, "denominator": "kept"}
    model.scheme = dataclasses.replace(model.scheme, options=tuple(options.items()))
    seen = {}

    def build(policy, scheme, data, credit, weights, loss_batch=None, **columns):
        made = original(policy, scheme, data, credit, weights, loss_batch, **columns)
        if "data" not in seen:
            seen.update(data=data, made=made, old=columns["old_log_prob"].clone(), credit=credit)
        return made

    original = UpdateTensors.build
    monkeypatch.setattr(UpdateTensors, "build", build)
    model.learn(1, log_interval=None, reset_num_timesteps=False)
    data, made = seen["data"], seen["made"]
    reduced = without_rejected(model.scheme, data.batch, seen["old"], torch.from_numpy(data.log_prob))
    assert 0 < reduced.token_mask.sum() < data.batch.token_mask.sum()
    np.testing.assert_array_equal(made.mask.numpy(), reduced.token_mask)
    np.testing.assert_allclose(made.weights.numpy(), token_weights(model.scheme, reduced), rtol=1e-6)
    for name, column in prepared_columns(model.scheme, reduced, seen["credit"], data.batch).items():
        np.testing.assert_array_equal(made.columns[name].numpy(), column.numpy())


@pytest.mark.parametrize("left_out", [(0, 2), (1, 0), (1, 1), (2, 1)])
def test_bounds_that_compare_turns_see_those_outside_the_loss(left_out):
    """Vector A of A2TGPO: an answer, or a turn, that leaves the loss does not move the others' factors."""
    batch = RolloutBatch.from_arrays(
        returns=[1, 0, 1], prompt=[0, 0, 0], turn_rollout=[0, 0, 0, 1, 1, 1, 2, 2],
        token_mask=np.ones((8, 2), dtype=bool), information_gain=[0.4, 0.3, np.nan, 0.1, 0.0, np.nan, -0.2, np.nan],
    )  # fmt: skip
    rollout, turn = left_out
    row = np.flatnonzero(batch.turn_rollout == rollout)[min(turn, (batch.turn_rollout == rollout).sum() - 1)]
    mask = batch.token_mask.copy()
    mask[row] = False
    reduced = dataclasses.replace(batch, token_mask=mask)
    scheme = make_scheme("a2tgpo")
    credit = np.zeros(8)
    whole = prepared_columns(scheme, batch, credit)["clip_factor"]
    np.testing.assert_array_equal(prepared_columns(scheme, reduced, credit, batch)["clip_factor"], whole)
    assert not np.array_equal(prepared_columns(scheme, reduced, credit)["clip_factor"], whole)


@pytest.mark.parametrize("signal", ["components", "component_sum", "conductor"])
def test_penalties_that_a_signal_does_not_read_are_refused(signal):
    recipe = {"components": "gdpo", "component_sum": "weighted_sum", "conductor": "maestro"}[signal]
    assert make_scheme(recipe).signal == signal and make_scheme(recipe, kl="k3", kl_coef=0.1).kl == "k3"
    with pytest.raises(ValueError, match=f"kl='reward_k1' has no effect with signal='{signal}'"):
        make_scheme(recipe, kl="reward_k1", kl_coef=0.1)
    with pytest.raises(ValueError, match=r"overlong=.* has no effect with signal"):
        GroupPPO("MessagePolicy", "agentic_gym/Report-v0", scheme=recipe, overlong={"buffer": 2}, seed=0)


def test_a_correction_needs_the_policy_that_wrote():
    zero = torch.zeros(1, 1)
    batch = RolloutBatch.from_arrays(returns=[1], prompt=[0])
    with pytest.raises(ValueError, match="behaviour_log_prob is not given, but correction='tis'"):
        policy_loss("grpo:correction=tis", zero, zero, [1.0], batch)
    with pytest.raises(ValueError, match="behaviour_log_prob is given, but correction='none'"):
        policy_loss("grpo", zero, zero, [1.0], batch, behaviour_log_prob=zero)
    with pytest.raises(ValueError, match="behaviour_log_prob=None is not allowed with a correction"):
        make_scheme("grpo:correction=icepop").run("correction", tokens_of([[0.0]]))


@pytest.mark.parametrize("settings", ["correction=tis", "correction=tis_rollout", "correction=icepop",
                                      "correction=geometric_mask", "correction=rejection",
                                      "correction=rejection,denominator=kept",
                                      "token_filter=off_policy", "token_filter=second_moment",
                                      "correction=tis,token_filter=off_policy"])  # fmt: skip
def test_training_on_stale_rollouts(settings):
    model = GroupPPO(
        "MessagePolicy", "agentic_gym/Chain-v0", scheme=f"grpo:{settings}", n_prompts=16, staleness=2, seed=0,
        learning_rate=1e-2, env_kwargs={"depth": 2, "difficulty": 0.0},
    )  # fmt: skip
    before = model.policy.flat_parameters.clone()
    model.learn(900, log_interval=None)
    assert not torch.equal(before, model.policy.flat_parameters)
    assert all(np.isfinite(value) for value in model.logger.name_to_value.values())
