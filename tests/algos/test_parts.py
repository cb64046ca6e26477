"""What the registration of parts and recipes checks."""

import dataclasses

import pytest

from algos import RECIPES, Recipe, parts
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
