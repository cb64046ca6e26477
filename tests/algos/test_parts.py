"""What the registration of parts and recipes checks."""

import dataclasses

import numpy as np
import pytest
import torch

from algos import RECIPES, Recipe, RolloutBatch, advantages, make_scheme, parts, policy_loss
from algos.parts import AXES, TAGS, part
from algos.recipes.recipe import DeadGroups
from algos.scheme import FIELDS


def correct(scheme, tokens):
    """Weigh nothing."""


def with_option(scheme, tokens, *, share: float = 0.5):
    """Weigh with an option."""


def register(function=correct, axis="correction", name="own", **arguments):
    return part(axis, name, source="mine", **arguments)(function)


@pytest.fixture(autouse=True)
def nothing_stays():
    before = {axis: dict(named) for axis, named in parts._PARTS.items()}
    yield
    for axis, named in before.items():
        parts._PARTS[axis].clear()
        parts._PARTS[axis].update(named)


def test_every_axis_says_what_its_functions_get():
    assert tuple(parts.ARGUMENTS) == AXES
    assert {axis for axes in TAGS.values() for axis in axes} <= set(AXES)


def test_a_correct_part_is_registered():
    def before(scheme, batch, advantages, **_):
        return {}

    def after(scheme, batch, memory, *, share):
        return None

    made = register(
        with_option, uses=["eps"], needs=["value"], tags=["of_minibatch"], prepare=before, after_update=after
    )
    assert made is with_option
    assert parts.find("correction", "own").uses == {"eps"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"axis": "nonsense"}, ["axis='nonsense'", "correction"]),
        ({"name": "none"}, ["name='none' is taken"]),
        ({"name": "two words"}, ["name='two words'", "identifier"]),
        ({"uses": ["nonsense"]}, ["uses: 'nonsense'", "'eps'"]),
        ({"uses": ["clip_hi"]}, ["Did you mean 'clip_high'"]),
        ({"uses": ["options"]}, ["uses: 'options'"]),
        ({"needs": ["nonsense"]}, ["needs: 'nonsense'", "'state_key'", "'reference_log_prob'"]),
        ({"needs": ["returns"]}, ["needs: 'returns'"]),
        ({"tags": ["nonsense"]}, ["tags of correction: 'nonsense'", "'of_minibatch'"]),
        ({"tags": ["own_range"]}, ["tags of correction: 'own_range'"]),
    ],
)
def test_unknown_names_are_refused(arguments, words):
    with pytest.raises(ValueError) as error:
        register(**arguments)
    for word in words:
        assert word in str(error.value)
    assert "own" not in parts.choices("correction")


@pytest.mark.parametrize("argument", ["uses", "needs", "tags"])
def test_names_are_given_as_lists(argument):
    with pytest.raises(TypeError, match=f"{argument}.*'eps' is not allowed: it must be a list of names"):
        register(**{argument: "eps"})


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: None,
        lambda tokens: None,
        lambda scheme, tokens, log_ratio: None,
        lambda scheme, tokens, share=0.5: None,
    ],
)
def test_functions_that_the_axis_cannot_call_are_refused(wrong):
    with pytest.raises(TypeError, match=r"function=<lambda>\(.*\) is not allowed: it must take \(scheme, tokens\)"):
        register(wrong)
    assert "own" not in parts.choices("correction")


@pytest.mark.parametrize("role", ["prepare", "after_update"])
def test_companions_must_take_the_parts_options(role):
    def forgets(scheme, batch, third):
        return {}

    with pytest.raises(
        TypeError, match=rf"{role}=forgets\(.*\) is not allowed: it must take \(scheme, .*, \*, share\)"
    ):
        register(with_option, **{role: forgets})


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"under_affine": "foo"}, ValueError, "under_affine='foo' is not allowed: it must be one of .*'invariant'"),
        ({"under_affine": "invarient"}, ValueError, "Did you mean 'invariant'"),
        (
            {"dead_groups": "foo"},
            ValueError,
            r"dead_groups='foo' is not allowed: it must be one of \['zero', 'signal'\]",
        ),
        ({"scheme": "grpo"}, TypeError, "scheme='grpo' is not allowed: it must be a Scheme"),
        ({"formula": None}, TypeError, "formula=None is not allowed: it must be a str"),
    ],
)
def test_recipes_are_checked(changes, error, message):
    with pytest.raises(error, match=message):
        dataclasses.replace(RECIPES["grpo"], **changes)


def test_the_choices_of_a_recipe_are_those_that_are_explained():
    from algos.explain import DEAD_GROUPS, UNDER_AFFINE

    assert set(DEAD_GROUPS) == set(DeadGroups.__args__)
    assert all(Recipe(**{**vars(RECIPES["grpo"]), "under_affine": kind}) for kind in UNDER_AFFINE)
    assert set(parts._fields()) == set(FIELDS) - {"options"}


def test_options_must_not_be_called_as_fields_are():
    """The field would be set, and the option keep its default for ever."""

    def clash(scheme, tokens, *, eps: float = 1.0):
        return None

    with pytest.raises(ValueError, match=r"options \['eps'\] of clash are not allowed"):
        register(clash)


def test_a_name_can_be_freed():
    register()
    with pytest.raises(ValueError, match=r"name='own' is taken.*unregister\('correction', 'own'\) frees it"):
        register()
    parts.unregister("correction", "own")
    register()
    with pytest.raises(ValueError, match="axis='nonsense'"):
        parts.unregister("nonsense", "own")
    with pytest.raises(ValueError, match="correction='other' is not allowed"):
        parts.unregister("correction", "other")


def test_parts_of_ones_own_that_are_not_registered_get_a_hint():
    with pytest.raises(ValueError, match="must be registered first: import its module"):
        make_scheme("grpo:weights=zzz_mine")
    with pytest.raises(ValueError, match="Did you mean 'median'"):
        make_scheme("grpo:baseline_kind=medain")


BATCH = {"returns": [1.0, 0.0], "prompt": [0, 0], "environment": [0, 0], "task": [0, 0]}


@pytest.mark.parametrize(
    ("returned", "error", "words"),
    [
        (lambda credit: credit * np.nan, ValueError, "weights='own' returned nan; all values must be finite"),
        (lambda credit: credit * np.inf, ValueError, "weights='own' returned inf"),
        (lambda credit: credit[:1], ValueError, r"weights='own' returned the shape \(1,\); it must be \(2,\)"),
        (lambda credit: None, TypeError, "weights='own' returned NoneType; it must return a NumPy array"),
        (lambda credit: torch.from_numpy(credit), TypeError, "weights='own' returned Tensor"),
    ],
)
def test_what_credit_parts_return_is_checked(returned, error, words):
    def own(scheme, advantage, table):
        return returned(advantage)

    register(own, axis="weights")
    with pytest.raises(error, match=words):
        advantages("grpo:weights=own", RolloutBatch.from_arrays(**BATCH))


def test_what_signals_return_is_checked():
    def own(scheme, batch, memory):
        return np.zeros((len(batch), 1))

    register(own, axis="signal")
    with pytest.raises(ValueError, match=r"signal='own' returned the shape \(2, 1\); it must be \(2,\)"):
        advantages("reinforce:signal=own", RolloutBatch.from_arrays(**BATCH))


def test_what_surrogates_and_bounds_return_is_checked():
    def summed(scheme, tokens, log_ratio):
        return (-tokens.advantage * log_ratio.exp()).sum()

    def swapped(scheme, tokens, ratio):
        return 1.3, 0.7

    batch, log_prob = RolloutBatch.from_arrays(**BATCH), torch.zeros(2, 1)
    register(summed, axis="surrogate")
    with pytest.raises(ValueError, match=r"surrogate='own' returned the shape \(\); it must be .* \(2, 1\)"):
        policy_loss("grpo:surrogate=own", log_prob, log_prob, [1.0, -1.0], batch)
    register(swapped, axis="bounds")
    with pytest.raises(ValueError, match=r"bounds=\(1.3, 0.7\) are not allowed"):
        policy_loss("grpo:bounds=own", log_prob, log_prob, [1.0, -1.0], batch)
