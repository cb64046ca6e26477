"""Several reward components: GDPO, the weighted sum, and MAESTRO's conductor."""

import itertools
import math
import pickle
import statistics

import numpy as np
import pytest

from algos import RolloutBatch, advantages, make_scheme
from algos.advantages.conductor import NAME, Conductor
from algos.memory import Memory

# Most tests give a scheme only what they are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(environment|task). not given, so all rollouts:UserWarning"),
    pytest.mark.filterwarnings("ignore:memory. .* remembers earlier updates:UserWarning"),
]

ROOT = math.sqrt(0.5)
NAN = math.nan


def close(actual, expected, tolerance=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def scored(components, prompt=None, **columns):
    """Rollouts of one turn; the return is the sum of the components."""
    components = np.array(components, dtype=float)
    prompt = [0] * len(components) if prompt is None else prompt
    columns = {"returns": np.nansum(components, axis=1), **columns}
    return RolloutBatch.from_arrays(prompt=prompt, components=components, **columns)


def z(values):
    centre, spread = statistics.mean(values), statistics.stdev(values)
    return np.array([(v - centre) / spread for v in values])


# schemes.md B7 and pitfall 16.


def test_vector_gdpo_before_whitening():
    close(advantages("gdpo:whitening=none,eps=0", scored([[0, 0], [1, 0]])), [-ROOT, ROOT])
    close(advantages("gdpo:whitening=none,eps=0", scored([[0, 0], [1, 1]])), [-2 * ROOT, 2 * ROOT])
    # Summed first they are all alike.
    for components in ([[0, 0], [1, 0]], [[0, 0], [1, 1]], [[0, 1], [1, 1]]):
        close(advantages("weighted_sum:eps=0", scored(components)), [-ROOT, ROOT])


def test_p16_parts_that_mirror_each_other_are_exactly_zero():
    batch = scored([[0, 1], [1, 0]])
    assert advantages("gdpo", batch).tolist() == [0.0, 0.0]
    assert advantages("gdpo:eps=0", batch).tolist() == [0.0, 0.0]
    beside = scored([[0, 1], [1, 0], [0, 0], [1, 1]], [0, 0, 1, 1])
    close(advantages("gdpo", beside)[:2], [0, 0], 1e-12)


def test_p16_scales_of_components_do_not_decide():
    batch = scored([[1, 0], [1, 100], [0, 200], [0, 300]])
    assert advantages("weighted_sum:eps=0", batch).max() == pytest.approx(1.1627, abs=1e-4)
    close(advantages("gdpo:whitening=none,eps=0", batch), [-0.2959, 0.4787, -0.4787, 0.2959], 1e-4)


def test_p16_whitening_keeps_how_many_parts_vary():
    batch = scored([[0, 5], [1, 5], [0, 0], [1, 1]], [0, 0, 1, 1])
    close(advantages("gdpo:eps=0", batch), [-0.5477, 0.5477, -1.0954, 1.0954], 1e-4)


def test_p16_a_group_of_equal_sums_has_a_signal():
    parts = np.array([[1, 1, 0, 0], [0, 10, 0, 10], [19, 9, 20, 10]]).T
    batch = scored(parts)
    assert batch.dead.all()
    close(advantages("gdpo:whitening=none,eps=0", batch), [0.7756, 0.7842, -0.7842, -0.7756], 1e-4)
    for recipe in ("gdpo", "weighted_sum", "maestro"):
        with pytest.raises(ValueError, match="dead_groups='excluded' needs signal='outcome'"):
            make_scheme(recipe, dead_groups="excluded")


def test_p05_a_component_that_is_missing_takes_no_part():
    # In the first group the second rollout has no second component.
    components = [[0, 1], [1, NAN], [2, 3], [0, 0], [1, 5]]
    prompt = [0, 0, 0, 1, 1]
    first = z([0, 1, 2]) + np.array([-ROOT, 0, ROOT])
    joined = np.concatenate([first, [-2 * ROOT, 2 * ROOT]])
    batch = scored(components, prompt)
    close(advantages("gdpo:whitening=none,eps=0", batch), joined)
    close(advantages("gdpo:eps=0", batch), z(joined))
    # The other group does not notice.
    there = scored([[0, 1], [1, 1], [2, 3], [0, 0], [1, 5]], prompt)
    plain = "gdpo:whitening=none"
    assert advantages(plain, batch)[3:].tolist() == advantages(plain, there)[3:].tolist()
    # In a sum it counts 0.
    close(advantages("weighted_sum:scale=none", batch), [-4 / 3, -4 / 3, 8 / 3, -3, 3])
    # A group without the component, or with one score of it, has the others.
    for column in ([NAN, NAN], [7.0, NAN]):
        batch = scored(np.column_stack([[0, 1], column]))
        close(advantages("gdpo:whitening=none,eps=0", batch), [-ROOT, ROOT])


def test_p04_parts_that_cancel_leave_no_rounding():
    # 0.1 + 0.2 - 0.3 is not 0 in floating point.
    batch = scored([[0.1, 0.2, -0.3], [0, 0, 0], [0.3, -0.2, -0.1]])
    assert advantages("weighted_sum:eps=0", batch).tolist() == [0.0] * 3
    mirrored = scored([[0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3]])
    close(advantages("gdpo:eps=0,whitening=none", mirrored), z([0, 1, 0.5]), 1e-9)
    # Two components that mirror each other, the third without spread.
    for recipe in ("gdpo:eps=0", "maestro:eps=0,emphasis=0"):
        batch = scored([[0.1, 1.3, 0.3], [0.4, 1.0, 0.3], [0.7, 0.7, 0.3]], context=np.zeros((3, 1)))
        assert advantages(recipe, batch).tolist() == [0.0] * 3


def test_infinite_components_raise():
    for recipe in ("gdpo", "weighted_sum", "maestro"):
        columns = {"context": np.zeros((2, 1)), "returns": [0, 1]}
        with pytest.raises(ValueError, match="components must be finite where rollouts count; it holds inf"):
            advantages(recipe, scored([[0, math.inf], [1, 0]], **columns))
        apart = scored([[0, math.inf], [1, 0]], valid=[False, True], **columns)
        assert advantages(recipe, apart).tolist() == [0.0, 0.0]
        with pytest.raises(ValueError, match="components=None is not allowed with this scheme"):
            advantages(recipe, RolloutBatch.from_arrays([0, 1], [0, 0]))


def test_weights_act_on_normalised_components():
    batch = scored([[0, 3], [1, 0]])
    close(advantages("gdpo:whitening=none,eps=0,component_weights=1;0.25", batch), [-0.75 * ROOT, 0.75 * ROOT])
    close(advantages("weighted_sum:scale=none,component_weights=1;0.5", batch), [0.25, -0.25])
    for recipe in ("gdpo", "weighted_sum"):
        with pytest.raises(ValueError, match=r"component_weights=\(1.0,\) is not allowed: there are 2 components"):
            advantages(make_scheme(recipe, component_weights=1.0), batch)


def test_a_gate_lets_the_others_count_only_where_it_is_passed():
    # Length counts only for right answers.
    components = [[1, 0.2], [1, 0.8], [0, 0.9], [0, 0.1]]
    passed = [[1, 0.2], [1, 0.8], [0, 0], [0, 0]]
    for recipe in ("gdpo", "weighted_sum"):
        gated = advantages(make_scheme(recipe, gate=0), scored(components))
        assert gated.tolist() == advantages(recipe, scored(passed)).tolist()
    half = advantages(make_scheme("weighted_sum", gate=1, gate_threshold=0.5), scored(components))
    expected = scored([[0, 0.2], [1, 0.8], [0, 0.9], [0, 0.1]])
    assert half.tolist() == advantages("weighted_sum", expected).tolist()
    with pytest.raises(ValueError, match="gate=2 is not allowed: there are 2 components"):
        advantages(make_scheme("gdpo", gate=2), scored(components))


def test_a_gate_without_a_score_leaves_the_others_without_one():
    missing = advantages(make_scheme("gdpo", gate=0), scored([[NAN, 0.2], [1, 0.8], [1, 0.1]]))
    assert missing.tolist() == advantages("gdpo", scored([[NAN, NAN], [1, 0.8], [1, 0.1]])).tolist()


def test_gdpo_of_one_component_is_grpo_and_batch_whitening():
    returns = [0, 1, 3, 4, 8]
    batch = scored(np.array(returns)[:, None], [0, 0, 1, 1, 1])
    close(advantages("gdpo", batch), advantages("grpo:whitening=batch", batch), 1e-12)


def test_gdpo_counts_rollouts_not_turns():
    columns = {"turn_rollout": [0, 0, 0, 1, 2, 3]}
    batch = scored([[0, 5], [1, 5], [0, 0], [1, 1]], [0, 0, 1, 1], **columns)
    close(advantages("gdpo:eps=0", batch), [-0.5477] * 3 + [0.5477, -1.0954, 1.0954], 1e-4)


def test_gdpo_whitened_over_tokens_shifts_groups_without_a_signal():
    mask = np.arange(4) < np.array([1, 4, 2, 2])[:, None]
    batch = scored([[0, 5], [1, 5], [2, 2], [2, 2]], [0, 0, 1, 1], token_mask=mask)
    close(advantages("gdpo", batch)[2:], [0, 0], 1e-12)
    assert (advantages("gdpo:whitening_weight=token", batch)[2:] < -0.1).all()


# MAESTRO.


def after_update(scheme, batch, memory):
    for part in scheme.parts:
        if part.after_update is not None:
            part.after_update(scheme, batch, memory, **scheme.options_of(part))


def test_maestro_weighs_standardised_components():
    batch = scored([[0, 9], [1, 0], [5, 3]], context=np.zeros((3, 1)))
    values = np.column_stack([z([0, 1, 5]), z([9, 0, 3])])
    close(advantages("maestro:emphasis=0,scale=none", batch), values.mean(axis=1), 1e-12)
    memory = Memory()
    scheme = make_scheme("maestro:emphasis=1,scale=none")
    credit = advantages(scheme, batch, memory)
    chosen = memory.get(NAME, lambda: None).pending[1]
    picked = values[np.arange(3), chosen]
    close(credit, picked - picked.mean(), 1e-12)
    half = advantages("maestro:scale=none", batch)
    joined = 0.5 * picked + 0.5 * values.mean(axis=1)
    close(half, joined - joined.mean(), 1e-12)


def test_maestro_draws_an_emphasis_for_every_rollout_by_its_context():
    conductor = Conductor(np.array([[3.0, -3.0], [0.0, 0.0]]))
    context = np.column_stack([np.repeat([1.0, -1.0], 5000), np.ones(10000)])
    p = conductor.probabilities(context, 1.0)
    close(p[0], [1 / (1 + math.exp(-6)), 1 / (1 + math.exp(6))], 1e-12)
    flat = conductor.probabilities(context, 6.0)
    close(flat[0], [1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))], 1e-12)
    chosen = conductor.draw(context, 6.0)
    assert chosen[:5000].mean() == pytest.approx(flat[0, 1], abs=0.03)
    assert chosen[5000:].mean() == pytest.approx(flat[0, 0], abs=0.03)


def test_maestro_learns_to_stress_what_goes_with_advantage():
    # In the first context the first component is high, in the second context the second.
    components = [[1, 0], [0, 1]] * 4
    context = [[1.0], [-1.0]] * 4
    batch = scored(components, [0] * 8, context=context)
    memory, scheme = Memory(), make_scheme("maestro:interval=2,conductor_step=1")
    conductor = None
    for update in range(1, 101):
        advantages(scheme, batch, memory)
        after_update(scheme, batch, memory)
        conductor = memory.get(NAME, lambda: None)
        assert len(conductor.buffer) == update % 2
        assert conductor.pending is None
    p = conductor.probabilities(np.array([[1.0, 1.0], [-1.0, 1.0]]), 1.0)
    assert p[0, 0] > 0.8
    assert p[1, 1] > 0.8
    again = pickle.loads(pickle.dumps(memory))
    assert advantages(scheme, batch, again).tolist() == advantages(scheme, batch, memory).tolist()


def test_maestro_is_unbiased_where_the_emphasis_makes_no_difference():
    # Whatever is drawn, equal components give the same advantages: the expected step is 0.
    advantage, context = np.array([1.2, -0.4, -0.8]), np.array([[0.3, 1.0], [2.0, 1.0], [-1.0, 1.0]])
    conductor = Conductor(np.zeros((2, 2)))
    for emphasis in itertools.product((0, 1), repeat=3):
        conductor.buffer.append((context, np.array(emphasis), advantage))
    conductor.learn(temperature=1.0, step_size=1.0, entropy_bonus=0.0)
    close(conductor.weights, np.zeros((2, 2)), 1e-12)
    assert conductor.buffer == []


def test_maestro_has_no_gradient_from_a_group_with_one_shared_emphasis():
    advantage = np.array([1.2, -0.4, -0.8])
    same = np.tile([0.7, 1.0], (3, 1))
    shared, drawn = Conductor(np.zeros((2, 2))), Conductor(np.zeros((2, 2)))
    shared.buffer.append((same, np.zeros(3, np.int64), advantage))
    drawn.buffer.append((same, np.array([0, 1, 1]), advantage))
    for conductor in (shared, drawn):
        conductor.learn(temperature=1.0, step_size=1.0, entropy_bonus=0.0)
    close(shared.weights, np.zeros((2, 2)), 1e-12)
    # Sum of advantage times (chosen - 1/2), over 3, times the context.
    close(drawn.weights, np.outer([0.7, 1.0], [0.4, -0.4]), 1e-12)


def test_maestro_entropy_bonus_pulls_towards_indifference():
    conductor = Conductor(np.array([[0.0, 0.0], [2.0, 0.0]]))
    conductor.buffer.append((np.ones((1, 2)), np.zeros(1, np.int64), np.zeros(1)))
    before = conductor.probabilities(np.ones((1, 2)), 1.0)[0, 0]
    p = np.array([before, 1 - before])
    slope = -p * (np.log(p) - (p * np.log(p)).sum())
    conductor.learn(temperature=1.0, step_size=0.5, entropy_bonus=1.0)
    close(conductor.weights, [0.5 * slope, [2 + 0.5 * slope[0], 0.5 * slope[1]]], 1e-12)
    assert conductor.probabilities(np.ones((1, 2)), 1.0)[0, 0] < before


def test_maestro_learns_nothing_from_updates_without_rollouts_that_count():
    batch = scored([[0, 1], [1, 0]], context=[[0.0], [1.0]], valid=[False, False])
    memory, scheme = Memory(), make_scheme("maestro:interval=1")
    assert advantages(scheme, batch, memory).tolist() == [0.0, 0.0]
    after_update(scheme, batch, memory)
    assert memory.get(NAME, lambda: None).weights.tolist() == np.zeros((2, 2)).tolist()
    after_update(scheme, batch, Memory())


def test_maestro_context_must_be_finite():
    with pytest.raises(ValueError, match="context must be finite where rollouts count"):
        advantages("maestro", scored([[0, 1], [1, 0]], context=[[NAN], [1.0]]))
