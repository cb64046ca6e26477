"""What a recipe is: a named scheme, and what its authors say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from agentic_gym.knobs import did_you_mean
from algos.scheme import Scheme

UnderAffine = Literal["invariant", "shift_invariant", "scale_only", "neither"]
DeadGroups = Literal["zero", "signal"]


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

    Raises:
        TypeError: if ``scheme`` is no ``Scheme``, or a text is none.
        ValueError: if ``under_affine`` or ``dead_groups`` has a value that is not allowed.
    """

    scheme: Scheme
    source: str
    certainty: str
    formula: str
    fixes: str
    wins: str
    no_op: str
    under_affine: UnderAffine = "invariant"
    dead_groups: DeadGroups = "zero"

    def __post_init__(self) -> None:
        """Check the values: the command line and the documentation look them up."""
        if not isinstance(self.scheme, Scheme):
            raise TypeError(f"scheme={self.scheme!r} is not allowed: it must be a Scheme, see make_scheme.")
        for name in ("source", "certainty", "formula", "fixes", "wins", "no_op"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name}={getattr(self, name)!r} is not allowed: it must be a str.")
        for name, allowed in (("under_affine", get_args(UnderAffine)), ("dead_groups", get_args(DeadGroups))):
            value = getattr(self, name)
            if value not in allowed:
                hint = did_you_mean(value, allowed)
                raise ValueError(f"{name}={value!r} is not allowed: it must be one of {list(allowed)}.{hint}")
