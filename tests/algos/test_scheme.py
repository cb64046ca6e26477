"""Schemes: parsing, validation and every message."""

import dataclasses
import pickle

import numpy as np
import pytest

from algos import RECIPES, Scheme, make_scheme
from algos.recipes import recipe
from algos.scheme import ALWAYS, FIELDS, NUMBERS, choices


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_resolves_and_says_where_it_is_from(name):
    scheme = make_scheme(name)
    assert scheme == RECIPES[name].scheme == make_scheme(scheme) == make_scheme({"recipe": name})
    assert scheme == make_scheme((name, {})) == make_scheme(f"{name}:")
    for text in ("source", "certainty", "formula", "fixes", "wins", "no_op"):
        assert getattr(recipe(name), text)
    assert pickle.loads(pickle.dumps(scheme)) == scheme
    assert Scheme(**dataclasses.asdict(scheme)) == scheme


def test_the_recipes_that_there_are():
    of_credit = {
        "reinforce", "grpo", "grpo_population", "grpo_loo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline",
        "remax", "opo", "gpg", "lite_ppo", "passk", "mapo", "krpo", "ngrpo", "mc_grpo", "gapo_robust", "maxrl", "a2po",
        "dcpo_smooth", "otb", "ppo", "agentrl", "erpo", "disco", "spo", "spo_pp", "rae", "signal_reshaping", "vgpo",
        "igpo", "a2tgpo", "mt_grpo", "mica", "gae_turn", "empg", "gigpo", "hgpo", "g2po", "graphgpo", "gdpo",
        "weighted_sum", "maestro",
    }  # fmt: skip
    assert of_credit <= set(RECIPES)
    assert len(of_credit) == 44


def test_the_default_scheme_is_grpo():
    assert Scheme() == make_scheme("grpo") == make_scheme({})


@pytest.mark.parametrize(
    "scheme",
    [
        "grpo:scale=none,clip_high=0.28",
        " grpo:scale=none,clip_high=0.28".strip(),
        "grpo: scale = none , clip_high = 0.28 ",
        ("grpo", {"scale": "none", "clip_high": 0.28}),
        {"recipe": "grpo", "scale": "none", "clip_high": 0.28},
        {"scale": "none", "clip_high": np.float32(0.28).item()},
    ],
)
def test_spellings_of_overrides(scheme):
    made = make_scheme(scheme)
    assert made.scale == "none"
    assert made.clip_high == pytest.approx(0.28)
    assert made.baseline == "prompt"
    assert make_scheme("grpo", scale="none", clip_high=made.clip_high) == made


def test_overrides_in_the_call_win():
    assert make_scheme("grpo:eps=1e-4", eps=1e-3).eps == 1e-3
    assert make_scheme("grpo:eps=1e-4").eps == 1e-4
    assert make_scheme(Scheme(eps=0.5), ddof=0) == Scheme(eps=0.5, ddof=0)


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("none", "none"), (False, "none"), ("group", "prompt"), (True, "prompt"), ("prompt", "prompt"),
        ("batch", "batch"), ("environment", "environment"), ("task", "task"),
    ],
)  # fmt: skip
def test_p11_spellings_of_scale(value, level):
    assert Scheme(scale=value).scale == level
    assert make_scheme("lite_ppo", scale=value).scale == level
    assert make_scheme(f"lite_ppo:scale={value}").scale == level


@pytest.mark.parametrize("value", ["bach", None, 0, 1, 1.0, ["none"], ("scale", False), {}])
def test_p11_other_values_of_scale_are_refused(value):
    with pytest.raises(ValueError, match=r"scale=.* is not allowed: it must be one of \['none', 'prompt'"):
        Scheme(scale=value)


@pytest.mark.parametrize("name", [name for name in FIELDS if choices(name)])
def test_p11_choices_are_checked(name):
    with pytest.raises(ValueError, match=f"{name}='nonsense' is not allowed: it must be one of"):
        Scheme(**{name: "nonsense"})
    with pytest.raises(ValueError, match=f"{name}='nonsense' is not allowed: it must be one of"):
        make_scheme(f"grpo:{name}=nonsense")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -0.5, "x", True, [1.0], 1j])
def test_p11_numbers_are_checked(name, value):
    with pytest.raises(ValueError, match=f"{name}=.* is not allowed: it must be a finite number (in|>)"):
        Scheme(**{name: value})


@pytest.mark.parametrize("value", [2, -1, True, None, "1", 0.5])
def test_p11_ddof_is_checked(value):
    with pytest.raises(ValueError, match=r"ddof=.* is not allowed: it must be 0 or 1"):
        Scheme(ddof=value)


def test_bounds_of_numbers():
    assert Scheme(eps=0, clip_low=1, clip_high=0, ddof=np.int64(0)).clip_low == 1.0
    for name, value in {"clip_low": 1.01, "dual_clip": 1.0, "gamma": 1.5, "kl_coef": 0.0}.items():
        with pytest.raises(ValueError, match=f"{name}=.* is not allowed"):
            Scheme(**{name: value})
    with pytest.raises(ValueError, match="eps=None is not allowed"):
        Scheme(eps=None)


@pytest.mark.parametrize("value", [0.9, 1.0, 0, -3])
def test_p20_dual_clip_is_above_one(value):
    with pytest.raises(ValueError, match=r"dual_clip=.* is not allowed: it must be a finite number > 1\."):
        make_scheme("grpo", dual_clip=value)


def test_numbers_have_one_type_so_that_equal_schemes_are_equal():
    scheme = Scheme(dual_clip=3, eps=np.float32(0.5), clip_high=np.int64(1), ddof=1)
    assert scheme == Scheme(dual_clip=3.0, eps=0.5, clip_high=1.0)
    assert {type(scheme.dual_clip), type(scheme.eps), type(scheme.clip_high)} == {float}
    assert hash(scheme) == hash(make_scheme("grpo:dual_clip=3,eps=0.5,clip_high=1"))


@pytest.mark.parametrize("text", ["none", "None"])
def test_optional_numbers_can_be_switched_off(text):
    assert make_scheme("agentrl").dual_clip == 3.0
    assert make_scheme(f"agentrl:dual_clip={text}").dual_clip is None
    assert make_scheme("agentrl", dual_clip=None).dual_clip is None


@pytest.mark.parametrize(
    ("scheme", "overrides"),
    [
        ("grpo", {"clip_ratio_cc": 3}),
        ("grpo:clip_ratio_cc=3", {}),
        ({"recipe": "grpo", "clip_ratio_cc": 3}, {}),
        (("grpo", {"clip_ratio_cc": 3}), {}),
    ],
)
def test_p11_unknown_fields_raise_type_error(scheme, overrides):
    with pytest.raises(TypeError, match=r"\['clip_ratio_cc'\] are not fields of a scheme; the fields are"):
        make_scheme(scheme, **overrides)
    with pytest.raises(TypeError, match="clip_ratio_cc"):
        Scheme(clip_ratio_cc=3)


IGNORED = [
    ("reinforce", {"baseline_kind": "leave_one_out"}, "baseline is 'none'"),
    ("reinforce", {"singleton": "raw"}, "baseline is 'none'"),
    ("reinforce", {"eps": 1e-4}, "scale is 'none' and whitening is 'none'"),
    ("dr_grpo", {"ddof": 0}, "scale is 'none' and whitening is 'none'"),
    ("dr_grpo", {"eps_placement": "inside"}, "scale is 'none' and whitening is 'none'"),
    ("dr_grpo", {"scale_kind": "centred_std"}, "scale is 'none' and baseline is 'prompt'"),
    ("grpo:baseline=none", {"scale_kind": "centred_std"}, "scale is 'prompt' and baseline is 'none'"),
    ("lite_ppo", {"baseline": "batch", "singleton": "raw"}, "baseline is 'batch' and baseline_kind is 'mean'"),
    ("remax", {"singleton": "raw"}, "baseline is 'prompt' and baseline_kind is 'greedy'"),
    ("spo", {"singleton": "raw"}, "baseline is 'prompt' and baseline_kind is 'beta_tracker'"),
    ("graphgpo", {"gamma": 0.5}, "signal is 'success_distance'"),
    ("grpo", {"whitening_weight": "token"}, "whitening is 'none'"),
    ("grpo", {"gamma": 0.5}, "signal is 'outcome'"),
    ("grpo", {"gae_lambda": 0.5}, "signal is 'outcome'"),
    ("rloo", {"clip_low": 0.1}, "surrogate is 'reinforce'"),
    ("rloo", {"clip_high": 0.1}, "surrogate is 'reinforce'"),
    ("rloo", {"dual_clip": 3.0}, "surrogate is 'reinforce'"),
    ("grpo", {"aggregation_constant": 10}, "aggregation is 'rollout_mean'"),
    ("grpo", {"kl_coef": 0.1}, "kl is 'none'"),
    ("grpo", {"kl_target": 0.1}, "kl is 'none'"),
    ("grpo", {"kl_horizon": 10}, "kl is 'none' and kl_target is None"),
]


@pytest.mark.parametrize(("scheme", "changes", "reason"), IGNORED)
def test_p11_options_without_effect_raise_with_the_reason(scheme, changes, reason):
    with pytest.raises(ValueError, match=f"has no effect here: {reason}"):
        make_scheme(scheme, **changes)
    base = dataclasses.asdict(make_scheme(scheme))
    with pytest.raises(ValueError, match=f"has no effect here: {reason}"):
        Scheme(**{**base, **changes})


def test_p11_also_a_default_given_for_nothing_raises():
    with pytest.raises(ValueError, match=r"clip_low=0\.2 has no effect here"):
        make_scheme("reinforce:clip_low=0.2")


def test_every_field_can_be_ignored_or_always_matters():
    always = set(FIELDS) - ALWAYS - {"baseline", "scale", "options"}
    nothing = Scheme(baseline="none", scale="none", surrogate="reinforce")
    assert set(nothing.ignored()) == always
    assert set(Scheme().ignored()) == {
        "accumulation", "whitening_weight", "gamma", "gae_lambda", "aggregation_constant", "kl_coef",
        "kl_target", "kl_horizon",
    }  # fmt: skip


def test_overrides_drop_what_they_make_meaningless():
    assert make_scheme("agentrl:whitening=none,dual_clip=none") == make_scheme("grpo:aggregation=token_mean")
    assert make_scheme("rloo:baseline=none") == make_scheme("reinforce")
    assert make_scheme("agentrl:surrogate=reinforce").dual_clip is None
    assert make_scheme("reinforce_pp:whitening=none").eps == Scheme().eps


def test_combinations_that_make_no_sense():
    assert make_scheme("grpo:signal=gae").baseline == "none"
    with pytest.raises(ValueError, match="baseline='prompt' has no effect here: signal is 'gae'"):
        make_scheme("grpo:signal=gae,baseline=prompt")
    with pytest.raises(ValueError, match="signal='gae' has its own scale: scale must be 'none'"):
        Scheme(signal="gae", baseline="none")
    with pytest.raises(ValueError, match="baseline='turn' is a level of turns, but signal='outcome'"):
        make_scheme("grpo:baseline=turn")
    assert make_scheme("ppo").needs_critic
    assert not make_scheme("grpo").needs_critic


@pytest.mark.parametrize(
    "scheme",
    [
        "reinforce_pp", "grpo:singleton=raw", "erpo:baseline=environment", "grpo:signal=return_to_go", "gdpo",
        "weighted_sum", "maestro", "igpo", "dcpo_smooth", "remax", "spo", "rae", "ngrpo", "krpo",
    ],
)  # fmt: skip
def test_p16_groups_may_be_excluded_only_where_equal_returns_say_nothing(scheme):
    with pytest.raises(ValueError, match="dead_groups='excluded' needs signal='outcome', baseline='prompt' of a kind"):
        make_scheme(make_scheme(scheme), dead_groups="excluded")


@pytest.mark.parametrize("scheme", ["grpo", "erpo", "a2po", "mc_grpo", "reinforce_pp_baseline", "agentrl", "empg"])
def test_groups_may_be_excluded_where_equal_returns_say_nothing(scheme):
    assert make_scheme(scheme, dead_groups="excluded").dead_groups == "excluded"


def test_unknown_recipes_and_spellings():
    with pytest.raises(ValueError, match=r"scheme='gropo' is not allowed: it must be one of \['a2po'"):
        make_scheme("gropo")
    with pytest.raises(ValueError, match="scheme='gropo' is not allowed"):
        make_scheme(("gropo", {}))
    with pytest.raises(ValueError, match=r"override 'scale' is not allowed: write field=value"):
        make_scheme("grpo:scale")
    with pytest.raises(ValueError, match="each field once"):
        make_scheme("grpo:eps=1e-4,eps=1e-5")
    for wrong in (None, 3, ["grpo"], ("grpo",), ("grpo", {}, {})):
        with pytest.raises(TypeError, match="give a recipe name, a Scheme, or a name with overrides"):
            make_scheme(wrong)


@pytest.mark.parametrize(
    ("make", "error", "end"),
    [
        (lambda: make_scheme("GRPO"), ValueError, "Did you mean 'grpo'"),
        (lambda: make_scheme("gropo"), ValueError, "Did you mean 'grpo'"),
        (lambda: make_scheme("grpo:clip_hi=0.28"), TypeError, "Did you mean 'clip_high'"),
        (lambda: make_scheme("grpo:baseline_kind=medain"), ValueError, "Did you mean 'median'"),
        (lambda: make_scheme("grpo:anchr=1"), TypeError, "Did you mean 'anchor'"),
        (lambda: Scheme(options=(("anchr", 1),)), TypeError, "Did you mean 'anchor'"),
    ],
)
def test_messages_suggest_the_nearest_names(make, error, end):
    with pytest.raises(error, match=end):
        make()


def test_options_are_not_written_as_one_field():
    with pytest.raises(ValueError, match="override 'options=1' is not allowed: write the option itself"):
        make_scheme("grpo:options=1")
    for wrong in (1, None, ["ab", 3], [(1, 2)]):
        with pytest.raises(TypeError, match=r"options=.* is not allowed: it must be a mapping or pairs"):
            make_scheme("grpo", options=wrong)
        with pytest.raises(TypeError, match=r"options=.* is not allowed: it must be a mapping or pairs"):
            Scheme(options=wrong)


def test_open_ranges_read_plainly():
    with pytest.raises(ValueError, match=r"eps=inf is not allowed: it must be a finite number >= 0\.$"):
        make_scheme("grpo:eps=inf")
    with pytest.raises(ValueError, match=r"dual_clip=0.5 is not allowed: it must be a finite number > 1\.$"):
        make_scheme("grpo:dual_clip=0.5")
    with pytest.raises(ValueError, match=r"gamma=2 is not allowed: it must be a finite number in \[0.0, 1.0\]\.$"):
        make_scheme("ppo", gamma=2)


def test_schemes_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Scheme().eps = 1.0
