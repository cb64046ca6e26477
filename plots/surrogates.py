"""Clip anatomy: how hard each surrogate pushes a token, against its ratio, for both signs of the advantage.

python -m plots surrogates
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

from algos.parts import choices, find
from algos.recipes import RECIPES
from algos.scheme import Scheme
from algos.surrogates.loss import token_losses
from algos.surrogates.tokens import Tokens
from plots.style import BLUE, GREY, SETTINGS, VERMILION, caption, enumerate_names

RATIOS = np.exp(np.linspace(np.log(0.125), np.log(8.0), 721))
OF_BATCH = ("clip_cov", "kl_cov", "gvpo")
"""Surrogates in which a token's push depends on the other tokens of the batch."""
PROBABILITY = 0.1
"""Of the token now; the old one is this over the ratio, below 1 at every ratio."""
BOUNDS = {"ppo_clip, asymmetric": "dapo", "ppo_clip, dual clip": "agentrl", "ppo_clip, by prior": "dcpo"}
"""Other bounds of PPO's clip that a single token shows, and the recipe with them."""
COLUMNS = 4
HIGHEST = 5.6


def push(scheme: Scheme, advantage: float) -> Any:
    """Return minus the slope of the loss in the log-probability, times the sign of the advantage, by ratio."""
    n = len(RATIOS)
    log_prob = torch.log(torch.full((n, 1), PROBABILITY, dtype=torch.float64)).requires_grad_()
    old = log_prob.detach() - torch.from_numpy(np.log(RATIOS))[:, None]
    credit = torch.full((n, 1), advantage, dtype=torch.float64)
    mask = torch.ones((n, 1), dtype=torch.bool)
    tokens = Tokens(log_prob, old, credit, mask, torch.arange(n), n)
    losses = token_losses(scheme, tokens).expand(n, 1)
    (slope,) = torch.autograd.grad(losses.sum(), log_prob)
    return -slope[:, 0].numpy() / advantage


def draw() -> Any:
    """Draw one panel per surrogate, at the settings of the first recipe that uses it, then other bounds."""
    shown = _shown() | {title: _settings(owner) for title, owner in BOUNDS.items()}
    n_rows = -(-len(shown) // COLUMNS)
    with plt.rc_context({**SETTINGS, "axes.grid.axis": "both"}):
        figure, axes = plt.subplots(n_rows, COLUMNS, figsize=(11, 2.35 * n_rows + 1.2), sharex=True, sharey=True)
        height = 2.35 * n_rows + 1.2
        figure.subplots_adjust(
            left=0.07, right=0.985, top=1 - 1.05 / height, bottom=0.75 / height, hspace=0.42, wspace=0.1
        )
        for axis, (name, (owner, scheme)) in zip(axes.flat, shown.items(), strict=False):
            for advantage, colour, style in ((1.0, BLUE, "-"), (-1.0, VERMILION, (0, (4, 1.5)))):
                axis.plot(
                    RATIOS,
                    np.clip(push(scheme, advantage), -0.5, HIGHEST + 1),
                    color=colour,
                    linestyle=style,
                    linewidth=1.6,
                )
            axis.axvline(1.0, color=GREY, linewidth=0.6)
            axis.set_title(name)
            axis.set_title(f"as in {owner}", loc="right", fontsize=7.5, color=GREY, weight="normal")
            axis.set(xscale="log", ylim=(-0.3, HIGHEST))
            axis.set_xticks([0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0], ["1/8", "1/4", "1/2", "1", "2", "4", "8"])
            axis.minorticks_off()
        for axis in list(axes.flat)[len(shown) :]:
            axis.set_visible(False)
        for axis in list(axes.flat)[len(shown) - COLUMNS : len(shown)]:
            axis.tick_params(labelbottom=True)
        for axis in axes[:, 0]:
            axis.set_ylabel("push / |advantage|")
        figure.text(0.01, 1 - 0.3 / height, "How hard a token is pushed, against its ratio", fontsize=12, weight="bold")
        figure.text(0.01, 1 - 0.58 / height, "positive advantage", fontsize=9.5, weight="bold", color=BLUE)
        figure.text(
            0.165, 1 - 0.58 / height, "negative advantage (dashed)", fontsize=9.5, weight="bold", color=VERMILION
        )
        figure.text(
            0.41, 1 - 0.58 / height,
            f"REINFORCE's push is 1 at every ratio; a flat 0 is a clip; one token of probability {PROBABILITY}",
            fontsize=8.5, color=GREY,
        )  # fmt: skip
        figure.text(0.5, 0.32 / height, "ratio of the new to the old probability (log scale)", ha="center", fontsize=9)
        figure.text(0.01, 0.1 / height, "python -m plots surrogates", color=GREY, fontsize=8, family="monospace")
    return figure


def describe() -> str:
    """Return the caption of `draw`."""
    shown = _shown()
    pushes = {name: [push(scheme, sign) for sign in (1.0, -1.0)] for name, (_, scheme) in shown.items()}
    far = [name for name, (up, _) in pushes.items() if abs(up[-1]) < 1e-9]
    unbounded = [name for name, (_, down) in pushes.items() if down[-1] > 1.0 + 1e-9]
    return caption(
        f"Minus the slope of the loss in a token's log-probability over the size of its advantage, against the ratio "
        f"of new to old probability, for {len(shown)} surrogates at the settings of the first recipe that uses each, "
        f"and for {len(BOUNDS)} other bounds of PPO's clip. Formulas only: no seeds and no intervals. Not shown, "
        f"because a token's push depends on the batch: {enumerate_names(OF_BATCH)}, and bounds by advantage, "
        "information gain, entropy, search and second moment. Rollouts have one token, whose probability is "
        f"{PROBABILITY} now and {PROBABILITY} over the ratio before: dppo_tv, dppo_kl, bounds by prior depend on it.",
        f"At a ratio of {RATIOS[-1]:g} a token with positive advantage is not pushed at all by {enumerate_names(far)}; "
        f"one with negative advantage is pushed harder than by REINFORCE by {enumerate_names(unbounded)}.",
        "none; the losses of algos.surrogates are evaluated",
        "python -m plots surrogates",
    )


def _shown() -> dict[str, tuple[str, Scheme]]:
    """Return the surrogates with the first recipe that uses each, and its settings for a single token."""
    return {
        name: _settings(next(owner for owner, recipe in RECIPES.items() if recipe.scheme.surrogate == name))
        for name in choices("surrogate") if name not in OF_BATCH
    }  # fmt: skip


def _settings(owner: str) -> tuple[str, Scheme]:
    """Return a recipe's name, and what of its scheme concerns a single token."""
    scheme = RECIPES[owner].scheme
    surrogate = scheme.surrogate
    bounds = scheme.bounds if find("bounds", scheme.bounds).prepare is None else "fixed"
    possible = {*find("surrogate", surrogate).options, *find("bounds", bounds).options}
    kept = {"bounds": bounds, "clip_low": scheme.clip_low, "clip_high": scheme.clip_high, "dual_clip": scheme.dual_clip}
    uses = {*find("surrogate", surrogate).uses, *find("bounds", bounds).uses}
    return owner, Scheme(
        surrogate=surrogate,
        options=tuple((key, value) for key, value in scheme.options if key in possible),
        **{key: value for key, value in kept.items() if key in uses},  # type: ignore[arg-type]
    )
