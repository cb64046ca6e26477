"""What a recipe is: a named scheme, and what its authors say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from algos.scheme import Scheme


@dataclass(frozen=True)
class Recipe:
    """A named scheme and what its authors say of it.

    Certainty tags are those of the formulas' reading: SEEN-PAPER (equations read), SEEN-CODE
    (authors' or a framework's code read), SEEN-NOTE / SEEN-3P (a detailed third-party note or
    digest), INFERRED (this project's choice where the source is silent).

    Attributes:
        scheme: the choices.
        source: paper, with its arXiv number.
        certainty: how the formula is known.
        formula: the advantage (or the loss, where that is the idea), in symbols.
        fixes: the defect that it claims to fix.
        wins: the regime in which it claims to win.
        no_op: the settings in which it changes nothing.
        under_affine: what a positive affine change of all rewards does to the advantages:
            ``invariant`` (nothing, up to eps), ``shift_invariant`` (an offset does nothing, a factor
            scales them), ``scale_only`` (a factor scales them, an offset changes them) or ``neither``.
        dead_groups: advantage of groups whose rewards are all equal: ``zero``, or ``signal``.
    """

    scheme: Scheme
    source: str
    certainty: str
    formula: str
    fixes: str
    wins: str
    no_op: str
    under_affine: Literal["invariant", "shift_invariant", "scale_only", "neither"] = "invariant"
    dead_groups: Literal["zero", "signal"] = "zero"
