"""From evaluation points to scores per run, and from scores to the table of schemes.

Everything here is a function of a table of rows as `benchmarks.store.gather` returns it.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.experiment import BenchmarkError, Experiment, Phase, Rate, RunConfig, run_id
from benchmarks.statistics import Interval, bootstrap_interval, holm, paired_difference, paired_t_pvalue

ALPHA = 0.05
"""Differences with a smaller p-value are distinguishable from 0."""
_RUN = ("regime", "axis_value", "scheme", "seed", "learning_rate", "run_id")


def current(experiment: Experiment, table: pa.Table) -> pa.Table:
    """Rows of the experiment's present configurations, reported runs at the chosen learning rates.

    A gathered file can also hold runs of earlier budgets and of rates no longer chosen.

    Raises:
        BenchmarkError: If a tuning run is missing.
    """
    rates = choose_learning_rates(experiment, table)
    return _select(table, [*experiment.runs("tune"), *experiment.runs("report", rates)])


def choose_learning_rates(experiment: Experiment, table: pa.Table) -> dict[str, Rate]:
    """Learning rate of each scheme: the best mean metric over tuning seeds and regimes, or in each regime.

    Args:
        experiment: The experiment, whose grid is the same for every scheme.
        table: Rows that include all tuning runs.

    Returns:
        The rate of each scheme, or with ``rate_per_regime`` its rates by regime; of equally good rates
        the smaller one.

    Raises:
        BenchmarkError: If a tuning run is missing, for a grid with holes favours some scheme.
    """
    if len(experiment.learning_rates) == 1:
        return dict.fromkeys(experiment.schemes, experiment.learning_rates[0])
    wanted = experiment.runs("tune")
    table = _select(table, wanted)
    missing = len(wanted) - len(pc.unique(table["run_id"]))
    if missing:
        raise BenchmarkError(
            f"{experiment.name}: {missing} of {len(wanted)} tuning runs are missing, so no learning rate can "
            "be chosen. Finish the phase 'tune' (all shards), then go on."
        )
    metrics: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    for run in run_scores(table, "tune").to_pylist():
        metrics[run["scheme"], run["regime"], run["learning_rate"]].append(run[experiment.metric])

    def best(scheme: str, regimes: Sequence[str]) -> float:
        def mean(rate: float) -> float:
            # Rounded, lest the order of a sum decide a tie.
            return round(float(np.mean([value for name in regimes for value in metrics[scheme, name, rate]])), 12)

        return max(experiment.learning_rates, key=lambda rate: (mean(rate), -rate))

    names = [regime.name for regime in experiment.regimes]
    if experiment.rate_per_regime:
        return {scheme: {name: best(scheme, [name]) for name in names} for scheme in experiment.schemes}
    return {scheme: best(scheme, names) for scheme in experiment.schemes}


def unpaired(table: pa.Table) -> list[tuple[str, int]]:
    """Regimes and seeds whose reported runs did not all start from one base policy.

    The scores before training are its fingerprint. They differ where runs of one seed were made on
    machines that round differently; such runs can be compared, but are not pairs.

    Args:
        table: Rows of an experiment's present configurations.
    """
    found: dict[tuple[str, int], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in table.filter((pc.field("phase") == "report") & (pc.field("turns") == 0)).to_pylist():
        found[row["regime"], row["seed"]][row["run_id"]][row["environment"]] = row["score"]
    return [pair for pair, runs in found.items() if any(run != next(iter(runs.values())) for run in runs.values())]


def run_scores(table: pa.Table, phase: Phase = "report", column: str = "score") -> pa.Table:
    """Scores of each run: one row per (regime, scheme, seed), for tuning also per learning rate.

    Args:
        table: Rows of evaluation points.
        phase: Which runs.
        column: The column of the rows to aggregate.

    Returns:
        A table with the columns ``regime, axis_value, scheme, seed, learning_rate, run_id``;
        then for each environment its mean over the evaluation points after the one before
        training (the area under the learning curve), ``mean`` over environments and the
        ``worst`` environment; then the same of the last evaluation point, ``final_<name>``.
        An environment that a run has not is null. Sorted by axis value, regime, scheme,
        learning rate and seed.

    Raises:
        ValueError: If two runs claim the same row; `current` removes runs that are out of date.
    """
    points = table.filter((pc.field("phase") == phase) & (pc.field("turns") > 0)).sort_by("turns")
    # One thread: "last" needs the order, and a mean must not depend on the number of cores.
    grouped = points.group_by([*_RUN, "environment"], use_threads=False)
    cells = grouped.aggregate([(column, "mean"), (column, "last")]).to_pylist()
    environments = sorted({cell["environment"] for cell in cells})
    runs: dict[str, dict[str, Any]] = {}
    for cell in cells:
        run = runs.setdefault(cell["run_id"], {name: cell[name] for name in _RUN})
        run[cell["environment"]] = cell[f"{column}_mean"]
        run[f"final_{cell['environment']}"] = cell[f"{column}_last"]
    for run in runs.values():
        for prefix in ("", "final_"):
            values = [run[prefix + name] for name in environments if run.get(prefix + name) is not None]
            run[f"{prefix}mean"] = float(np.mean(values)) if values else None
            run[f"{prefix}worst"] = min(values, default=None)
    _check_one_run_each(runs.values(), by_rate=phase == "tune")
    return _score_table(runs.values(), environments)


def turns_to_reach(table: pa.Table, score: float, phase: Phase = "report") -> dict[tuple[str, str], dict[int, float]]:
    """Turns that each run took until its mean score first reached a value.

    Args:
        table: Rows of evaluation points.
        score: The value.
        phase: Which runs.

    Returns:
        For each (regime, scheme) the turns by seed, interpolated linearly between evaluation points;
        ``inf`` for a run that never reached it.
    """
    points = table.filter(pc.field("phase") == phase)
    grouped = points.group_by(["regime", "scheme", "seed", "turns"], use_threads=False)
    curves: defaultdict[tuple[str, str, int], list[tuple[float, float]]] = defaultdict(list)
    for point in grouped.aggregate([("score", "mean")]).to_pylist():
        curves[point["regime"], point["scheme"], point["seed"]].append((point["turns"], point["score_mean"]))
    found: defaultdict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for (regime, scheme, seed), curve in curves.items():
        found[regime, scheme][seed] = _first_reached(sorted(curve), score)
    return dict(found)


def _first_reached(curve: Sequence[tuple[float, float]], score: float) -> float:
    if curve[0][1] >= score:
        return curve[0][0]
    for (before, low), (after, high) in itertools.pairwise(curve):
        if high >= score:
            return before + (after - before) * (score - low) / (high - low)
    return math.inf


def summarise(scores: pa.Table, regime: str, final: bool = False) -> dict[str, dict[str, Interval]]:
    """Mean over seeds of every score, with 95 % bootstrap intervals, by scheme.

    Args:
        scores: What `run_scores` returns.
        regime: Name of the regime.
        final: Whether to take the last evaluation point instead of the mean over all.

    Returns:
        For each scheme the intervals of its environments, of ``mean`` and of ``worst``. With
        a single run the bounds are NaN: one run says nothing about the spread.
    """
    prefix = "final_" if final else ""
    table = scores.filter(pc.field("regime") == regime)
    names = [name for name in scores.column_names if name not in _RUN and not name.startswith("final_")]
    summary: dict[str, dict[str, Interval]] = {}
    for scheme in pc.unique(table["scheme"]).to_pylist():
        runs = table.filter(pc.field("scheme") == scheme)
        columns = {name: runs[prefix + name].drop_null().to_numpy() for name in names}
        # The run is the unit: the environments of one policy are not independent samples.
        summary[scheme] = {name: _interval(values) for name, values in columns.items() if len(values)}
    return summary


def change(scores: pa.Table, regime: str, against: str, final: bool = False) -> dict[str, dict[str, Interval]]:
    """Change of every score from one regime to another, paired by seed, by scheme.

    Args:
        scores: What `run_scores` returns.
        regime: Name of the regime.
        against: Name of the regime that is subtracted.
        final: Whether to take the last evaluation point instead of the mean over all.

    Returns:
        As `summarise`, for the differences of runs with equal seeds; seeds that only one of the
        regimes has are left out.
    """
    prefix = "final_" if final else ""
    names = [name for name in scores.column_names if name not in _RUN and not name.startswith("final_")]
    runs = {(run["regime"], run["scheme"], run["seed"]): run for run in scores.to_pylist()}
    summary: dict[str, dict[str, Interval]] = {}
    for scheme in pc.unique(scores["scheme"]).to_pylist():
        pairs = [
            (run, runs[against, scheme, seed])
            for (name, of, seed), run in runs.items()
            if (name, of) == (regime, scheme) and (against, scheme, seed) in runs
        ]
        differences = {
            name: np.array([one[prefix + name] - other[prefix + name] for one, other in pairs])
            for name in names
            if pairs and all(run[prefix + name] is not None for pair in pairs for run in pair)
        }
        if differences:
            summary[scheme] = {name: _interval(values) for name, values in differences.items()}
    return summary


@dataclass(frozen=True)
class Comparison:
    """A scheme beside a reference.

    Attributes:
        score: Its mean.
        difference: Its mean minus that of the reference, paired by seed; 0 for the reference.
        p_value: Of the paired t-test against the reference, after Holm's correction over the
            regime's schemes; 1 for the reference.
        seeds: Number of pairs.
    """

    score: float
    difference: Interval
    p_value: float
    seeds: int


def against(scores: pa.Table, regime: str, reference: str | None = None, column: str = "mean") -> dict[str, Comparison]:
    """Compare every scheme of a regime with a reference.

    Args:
        scores: What `run_scores` returns.
        regime: Name of the regime.
        reference: Name of a scheme; None is the one with the best mean there.
        column: The score to compare.

    Returns:
        The comparisons by scheme, best first, on the seeds that all schemes of the regime have.
        Empty if these are fewer than two, there is only one scheme, or the reference is not there.
    """
    runs: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for run in scores.filter(pc.field("regime") == regime).to_pylist():
        if run[column] is not None:
            runs[run["scheme"]][run["seed"]] = run[column]
    shared = sorted(set.intersection(*(set(found) for found in runs.values()))) if runs else []
    if len(shared) < 2 or len(runs) < 2 or (reference is not None and reference not in runs):
        return {}
    values = {scheme: np.array([found[seed] for seed in shared]) for scheme, found in runs.items()}
    order = _best_first({scheme: float(found.mean()) for scheme, found in values.items()})
    base = order[0] if reference is None else reference
    others = [scheme for scheme in order if scheme != base]
    adjusted = dict(zip(others, holm([paired_t_pvalue(values[s], values[base]) for s in others]).tolist(), strict=True))
    return {
        scheme: Comparison(
            float(values[scheme].mean()),
            Interval(0.0, 0.0, 0.0) if scheme == base else paired_difference(values[scheme], values[base]),
            adjusted.get(scheme, 1.0), len(shared),
        )
        for scheme in order
    }  # fmt: skip


def best_first(*summaries: Mapping[str, Mapping[str, Interval]], score: str = "mean") -> list[str]:
    """Order schemes by the mean of one score over regimes, the best first.

    Args:
        *summaries: What `summarise` or `change` returns, once for each regime.
        score: ``mean``, ``worst`` or the name of an environment.

    Returns:
        The schemes of all regimes; those whose means differ only by rounding by name.
    """
    found: defaultdict[str, list[float]] = defaultdict(list)
    for summary in summaries:
        for scheme, intervals in summary.items():
            found[scheme].append(intervals[score].estimate)
    return _best_first({scheme: float(np.mean(means)) for scheme, means in found.items()})


def _best_first(means: Mapping[str, float]) -> list[str]:
    # Equal runs can differ in the last bits of their means, and these in their order between machines.
    return sorted(means, key=lambda scheme: (-round(means[scheme], 12), scheme))


def _interval(values: Any) -> Interval:
    if len(values) == 1:
        return Interval(float(values[0]), float("nan"), float("nan"))
    return bootstrap_interval(values, statistic="mean", seed=0)


def _select(table: pa.Table, configs: Iterable[RunConfig]) -> pa.Table:
    ids = pa.array([run_id(config) for config in configs], pa.string())
    return table.filter(pc.is_in(table["run_id"], value_set=ids))


def _check_one_run_each(runs: Iterable[Mapping[str, Any]], by_rate: bool) -> None:
    """Refuse a mixture of runs that would be averaged as if they were different seeds."""
    seen: dict[tuple[Any, ...], str] = {}
    for run in runs:
        key = (run["regime"], run["scheme"], run["seed"], run["learning_rate"] if by_rate else None)
        other = seen.setdefault(key, run["run_id"])
        if other != run["run_id"]:
            raise ValueError(f"'table' must have one run for each row. Got {other} and {run['run_id']}.")


def _score_table(runs: Iterable[dict[str, Any]], environments: list[str]) -> pa.Table:
    """The runs as a sorted table whose columns do not depend on which run comes first."""
    scores = [prefix + name for prefix in ("", "final_") for name in (*environments, "mean", "worst")]
    texts = {"regime", "scheme", "run_id"}
    kinds = {name: pa.string() if name in texts else pa.int64() if name == "seed" else pa.float64() for name in _RUN}
    schema = pa.schema({**kinds, **dict.fromkeys(scores, pa.float64())})
    if len(schema) < len(_RUN) + len(scores):
        raise ValueError(f"environments must not be called like another column. Got {environments}.")
    order = ("axis_value", "regime", "scheme", "learning_rate", "seed")
    return pa.Table.from_pylist(list(runs), schema).sort_by([(name, "ascending") for name in order])
