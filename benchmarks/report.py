"""RESULTS.md: what the stored results say, for a practitioner who must choose a scheme.

    python -m benchmarks report

Everything in it is computed from ``results/``; nothing is typed in but the words around it. A
decision table comes first, then the evidence by experiment, the microscope, the claims, and what a
synthetic suite cannot say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from algos import make_scheme
from benchmarks import experiments, prediction, store
from benchmarks.aggregate import (
    ALPHA,
    Comparison,
    against,
    best_first,
    choose_learning_rates,
    current,
    run_scores,
    summarise,
    turns_to_reach,
    unpaired,
)
from benchmarks.claims.suite import LEARNING_RATES
from benchmarks.experiment import BenchmarkError, Experiment, Rate, rates_in, spell_rate
from benchmarks.experiments import budget
from benchmarks.statistics import Interval, median_interval

REFERENCE = "grpo"
"""What users have now: the scheme that the others are compared with."""
COMMAND = "python -m benchmarks report"
MOST_NAMED = 4
"""Schemes that are named in a sentence; of more the number is given."""
ONE_ENVIRONMENT = 3
"""Scores of a regime with a single environment: its own, the mean, and the worst."""
LARGE, FIRST = ("everything",), 10
"""Experiments whose tables show only what differs from the reference."""
Stored = Sequence[tuple[Experiment, pa.Table]]


def stored_experiments(root: Path = store.RESULTS) -> list[tuple[Experiment, pa.Table]]:
    """Return the experiments whose tuning is finished and that have reported runs, with their rows."""
    found = []
    for name in experiments.names():
        experiment = experiments.load(name)
        table = store.gather(experiment, root)
        if table.num_rows == 0:
            continue
        try:
            table = current(experiment, table)
        except BenchmarkError:
            continue
        if pc.any(pc.equal(table["phase"], "report")).as_py():
            found.append((experiment, table))
    return sorted(found, key=lambda pair: (*ORDER, pair[0].name).index(pair[0].name))


def write(root: Path = store.RESULTS) -> list[Path]:
    """Write RESULTS.md beside the folder of results, and the page of the documentation.

    Raises:
        BenchmarkError: If nothing is stored.
    """
    found = stored_experiments(root)
    if not found:
        raise BenchmarkError(f"There are no finished experiments in {root}.")
    documents = {name: _read(root / f"{name}.json") for name in ("claims", "claims_again", "microscope")}
    text = markdown(found, documents["claims"], documents["microscope"], documents["claims_again"])
    paths = [root.parent / "RESULTS.md", root.parent / "docs" / "results.md"]
    store.write_text(paths[0], text)
    store.write_text(paths[1], text.replace("](plots/figures/", "](../plots/figures/"))
    return paths


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def markdown(
    found: Stored,
    claims: Sequence[Mapping[str, Any]] | None,
    microscope: Mapping[str, Any] | None,
    again: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Return the whole page."""
    parts = [HEAD, *decision_table(found), READING, *EVIDENCE]
    for experiment, table in found:
        parts += evidence(experiment, table)
    if microscope is not None:
        stored = {experiment.name: (experiment, table) for experiment, table in found}
        parts += prediction.section(stored, microscope["seen"], microscope["command"])
    if claims:
        parts += claims_section(claims, again)
    missing = [name for name in experiments.names() if name not in {experiment.name for experiment, _ in found}]
    if missing:
        parts += ["## Not run yet", "", ", ".join(f"`{name}`" for name in missing) + ".", ""]
    return "\n".join([*parts, LIMITS, ""])


HEAD = f"""<!-- Made by {COMMAND}: run it again instead of editing. -->

# When does each scheme help?

Measured on this suite's small environments with GroupPPO: every scheme has the same base policies, the same number of
environment turns, the same network and optimiser, and the learning rate of one small grid that was best for it on seeds
of its own: best over all regimes of an experiment or, where the axis itself changes the steps (`clipping`, `epochs`,
`budget`), in each of them. Scores are normalised (0 a random policy, 1 the expert) and averaged over training, so that
they say how fast a scheme learns. All numbers follow from `results/` by `{COMMAND}`; the command under each table makes
the results themselves.

## Choose a scheme

The reference is `{REFERENCE}`: what most trainers do by default. A scheme is listed only if its paired difference to
the reference is distinguishable from 0 after Holm's correction over the schemes of the regime (paired t-test, 5 %),
largest difference first. Where nothing is listed the choice made no difference that these runs can show.
"""

READING = """## In short

What follows is our reading of the tables; each sentence names where its numbers are.

* **Several environments whose reward scales differ: rescale by prompt, task or environment.** `grpo`, `erpo`, `agentrl`
  and `grpo:scale=task` do not notice the spread; batch-level scales and none at all starve the environments with small
  rewards (`scale_mismatch`, `levels`).
* **Scale, depth, difficulty, noise, length and frequency differ at once:** try the mean over tokens instead of
  rollouts. `agentrl` leads among the levels (`levels`, regime `all`); `grpo` with a token mean alone is level with it,
  `grpo` with its dual clip is not, and a gain of its whitening does not show (claim `agentrl-task-norm`). What is
  gained is gained in the mean, not in the worst environment, and a token mean is no guarantee: more recipes with one
  are behind `grpo` than ahead (`everything`). `graphgpo` is first of all recipes, also in the worst environment
  (`everything`).
* **One environment much deeper than the others:** crediting turns by state (`graphgpo`, `gigpo`) and not dividing by
  the spread within groups (`dr_grpo`, `lite_ppo`) learned most, in the mean and in the deep environment. There
  `reinforce_pp`, `agentrl` and `grpo` with a token mean are far ahead of `grpo`, too, which in the mean does not show;
  with two turns at most everywhere nothing but `reinforce_pp` differs from `grpo` in the mean (`depth_spread`).
* **Alike environments, or differences of difficulty or noise alone:** from which level the spread is taken hardly
  matters; `reinforce`, `reinforce_pp` and, with noise, `rloo` are behind (`levels`). What they lack is not simply a
  baseline: in one environment, without any division, no baseline at all beats the group's mean (claim `grpo-baseline`)
  unless the rewards have an offset (claim `grpo-baseline-offset`). Objectives that favour hard prompts (`maxrl`,
  `disco`, `ngrpo`) learned more slowly (`difficulty`).
* **Rare environments:** `grpo` learned the rarest one as well as any. Weights by frequency gained nothing in the mean
  and cost the rarest environment score; they helped the worst one, `Search`, at some ratios. With its weights by
  difficulty `disco` learned more slowly still (`frequency`).
* **Long searches with a final reward: credit turns by information gain.** The lead of `igpo` over outcome credit grows
  with the number of hops; `a2tgpo` keeps up for 2 and 3 hops once its clip widths fit, not for 4 (`depth`). In
  household tasks that revisit states, state and graph credit helps (claims `gigpo-household`, `g2po-gigpo`,
  `graphgpo-gigpo`); in search it does not (`depth`). In the mixture of everything `igpo` and `g2po` are among the last
  (`everything`): this is advice for one kind of task.
* **Clip widths are part of the regime.** The published widths of `gspo` and `a2tgpo` are for ratios over long messages;
  with a few tokens per rollout they hold learning back. A hundred times wider ones gain for `gspo` (the widest that
  were tried), ten times wider ones for `a2tgpo` (claim `gspo-off-policy`; `clipping`, `epochs`, `depth`). Tune the
  width with the learning rate. Of bounds that adapt, those of `dcpo` show a small gain over fixed ones (claim
  `dcpo-clip`), which may be one of width: they are wider for every token of probability below about 0.8, and the width
  was not tuned. Those of `a2tgpo` show none (claim `a2tgpo-clip`). `gapo` remains untested: at the width that tuning
  chose, the widest, its clip hardly ever acts (claim `gapo-clip`).
* **Stale rollouts, many epochs: `topr`.** With a learning rate for each regime it is first with every staleness and
  from four epochs on (`clipping`, `epochs`). With very stale rollouts `sapo`, `cispo`, wide `gspo`, `m2po`, `dcpo` and
  `dapo` are ahead of `grpo`, too (`clipping`); over many epochs on fresh ones only wide `gspo` (`epochs`). `rloo` and
  `gpg`, which have no ratio, are behind with any number of epochs, one included (`epochs`).
* **Groups:** at equal rollouts, small groups on many prompts beat large groups on few (claim `small-groups`). In groups
  of two, trackers (`spo`) and medians (`mc_grpo`) help; in groups of 4 to 16 with rewards of 0 and 1 the median hurts
  (`small_groups`).
* **A common offset of the rewards** ruins what has no baseline, and a large one costs a critic, too (`offset`); where
  everything differs it costs both (`everything_raised` beside `everything`). `vgpo`, which needs rewards that are not
  negative, is behind `grpo` there.
* **Filtering costs turns.** At equal turns of the environment, dynamic sampling and top-variance filters did not pay
  for the rollouts that they throw away (claims `dapo-dynamic-sampling`, `ragen-filter`), but this depends on the
  setting: with a third of the learning rate, or a smaller network, dynamic sampling did pay. With base policies that
  nearly always or hardly ever succeed dynamic sampling was level with `grpo` (`saturation`).
* **What an exact gradient predicts.** The share of the gradient that the environment with the smallest rewards gets
  tells which schemes lose it, before any training. How far one estimate points in the gradient's direction ranks
  amounts of noise and group sizes much as training does, but hardly better than their values alone, and says little
  about schemes at one of them ("Does the microscope predict the learning curves?").
* **Little or nothing to see here:** dividing by the spread or not in one environment (`curvature`), how losses are
  aggregated over filler (`aggregation`, where wrong answers' lengths differ by less than a token, and with
  environments of unlike length `length_spread`), how several rewards are joined, whatever their ranges
  (`multi_reward`) and number (`number_of_rewards`; `gdpo` gains a little with three).
"""

IN_QUESTION = {
    "scale_mismatch": ("ChainLong", "the environment with the smallest rewards"),
    "depth_spread": ("ChainLong", "the deepest environment"),
    "frequency": ("ChainLong", "the rarest environment"),
}
"""Experiment -> the environment that its axis changes most, and why."""

ORDER = (
    "scale_mismatch", "levels", "depth", "clipping", "epochs", "small_groups", "noise", "offset", "dense", "saturation",
    "difficulty", "depth_spread", "length_spread", "frequency", "multi_reward", "aggregation", "budget", "curvature",
    "everything", "everything_raised",
)  # fmt: skip
"""Of the experiments on the page; others come after these."""

EVIDENCE = ["## Evidence", ""]

LIMITS = """## What this cannot say

* The environments are automata of a few turns and the policy is a perceptron of two layers with 64 units, trained with
  Adam from an imitated base policy. Language models differ in everything that this leaves out: pretraining, long
  messages, generalisation across prompts, reward models, asynchronous rollouts.
* A verdict holds for one regime, one budget and the grid of learning rates that is stated. Where `robust` is `no` it
  already changes with the learning rate or the network.
* Adam rescales gradients parameter by parameter and so hides part of a scale mismatch; plain gradient descent would
  suffer more.
* Differences are of learning speed at equal environment turns. A scheme that throws rollouts away pays for them here.
* In `everything` the recipes for several rewards (`weighted_sum`, `gdpo`, `maestro`) read the rewards' components,
  which come without scale, offset and noise, and `graphgpo` and `g2po` read the success of rollouts: they know more
  than the others.
* Several epochs are made on every batch, but for `epochs` and the claims `opo-length` and `gspo-one-update`. Schemes
  without a ratio (`reinforce`, `rloo`, `gpg`) are used on fresh rollouts by their authors.
* Clip widths are tuned, on eight seeds, only in the claims about methods that they are part of; in the experiments the
  published widths and, for some methods, wider ones stand side by side.
* `vgpo` needs an offset where rewards are negative, and with its own discount does not learn the short search of the
  tests reliably; the tests use `gamma=1` (`tests/trainer/test_every_recipe_learns.py`). `signal_reshaping` does not
  learn it at all.
* Several comparisons were made. Holm's correction covers the schemes of one regime, not all regimes, and the claims are
  not corrected for their number.
* Schemes that were published without a formula or constants, or for other uses, carry our reading of them; each
  scheme's documentation says what is inferred (`python -m algos explain NAME`).
"""


def decision_table(found: Stored) -> list[str]:
    """One line per regime: what beats the reference, and what loses against it."""
    lines = [
        f"| question | regime | better than `{REFERENCE}` | worse than `{REFERENCE}` | `{REFERENCE}` |",
        "| --- | --- | --- | --- | ---: |",
    ]
    for experiment, table in found:
        scores = run_scores(table)
        for index, regime in enumerate(sorted(experiment.regimes, key=lambda regime: regime.axis_value)):
            compared = against(scores, regime.name, REFERENCE, experiment.metric)
            if not compared:
                continue
            better = _listed(compared, lambda entry: entry.difference.estimate > 0, largest_first=True)
            worse = _listed(compared, lambda entry: entry.difference.estimate < 0, largest_first=False)
            question = f"[{experiment.question}](#{experiment.name})" if index == 0 else ""
            lines.append(
                f"| {question} | {experiment.name}, {regime.name} | {better} | {worse} | "
                f"{compared[REFERENCE].score:.2f} |"
            )
    return [*lines, "", "![Which scheme when](plots/figures/decision.png)", "", "`python -m plots decision`", ""]


def _listed(compared: Mapping[str, Comparison], wanted: Any, largest_first: bool, most: int = 6) -> str:
    told = [(s, entry) for s, entry in compared.items() if entry.p_value < ALPHA and wanted(entry)]
    told.sort(key=lambda pair: pair[1].difference.estimate, reverse=largest_first)
    names = [f"`{scheme}` {entry.difference.estimate:+.2f}" for scheme, entry in told[:most]]
    more = [f"and {len(told) - most} more"] if len(told) > most else []
    return ", ".join(names + more) or "-"


def evidence(experiment: Experiment, table: pa.Table) -> list[str]:
    """One experiment: question, claim, scores by regime, differences to the reference."""
    scores = run_scores(table)
    regimes = [r.name for r in sorted(experiment.regimes, key=lambda r: r.axis_value)]
    tables = {name: summarise(scores, name) for name in regimes}
    compared = {name: against(scores, name, REFERENCE, experiment.metric) for name in regimes}
    rates = choose_learning_rates(experiment, table)
    schemes = best_first(*tables.values())
    means_of_tokens: list[str] = []
    if experiment.name in LARGE:
        averaging = [make_scheme(scheme).aggregation == "token_mean" for scheme in schemes]
        means_of_tokens = [
            f"Of the first {FIRST} schemes {sum(averaging[:FIRST])} average the loss over tokens, of all "
            f"{len(averaging)} do {sum(averaging)}.",
            "",
        ]
        differ = {s for entries in compared.values() for s, entry in entries.items() if entry.p_value < ALPHA}
        schemes = [scheme for scheme in schemes if scheme in differ or scheme == REFERENCE]
    seeds = len(set(scores["seed"].to_pylist()))
    first = {scheme: f"`{scheme}` | {spell_rate(rates[scheme])}" for scheme in schemes}
    hidden = len(experiment.schemes) - len(schemes)
    reached = budget_lines(experiment, table, schemes) if experiment.name == budget.EXPERIMENT.name else []
    return [
        f"### {experiment.name}",
        "",
        f"**{experiment.question}** Claim: {experiment.claim} Axis: {experiment.axis}. {_pairs(table, seeds)}, "
        f"{_turns(experiment)} turns. {_grid(experiment, rates, schemes)}",
        "",
        *_score_table("scheme | learning rate", "--- | ---:", first, tables, compared, "mean"),
        "",
        f"Mean score [95 % bootstrap interval]; ▲ and ▼: distinguishable from `{REFERENCE}` (Holm, 5 %)."
        + (f" {hidden} schemes that are not distinguishable from it are left out." if hidden else ""),
        "",
        *means_of_tokens,
        *_of_one(scores, schemes, tables, "worst", "The same of each run's worst environment"),
        *_in_question(experiment, scores, schemes, tables),
        *wrong_answers(table, schemes, regimes),
        *reached,
        f"![{experiment.question}](plots/figures/{experiment.name}.png)",
        "",
        f"`python -m benchmarks run {experiment.name}`, `python -m plots {experiment.name}`",
        "",
    ]


def _of_one(
    scores: pa.Table,
    schemes: Sequence[str],
    tables: Mapping[str, Mapping[str, Mapping[str, Interval]]],
    score: str,
    title: str,
) -> list[str]:
    """The scores of one environment, where there are several."""
    if not any(len(summary) > ONE_ENVIRONMENT for table in tables.values() for summary in table.values()):
        return []
    compared = {name: against(scores, name, REFERENCE, score) for name in tables}
    first = {scheme: f"`{scheme}`" for scheme in schemes}
    return [f"{title}:", "", *_score_table("scheme", "---", first, tables, compared, score), ""]


def _in_question(
    experiment: Experiment,
    scores: pa.Table,
    schemes: Sequence[str],
    tables: Mapping[str, Mapping[str, Mapping[str, Interval]]],
) -> list[str]:
    """The scores of the environment that the axis changes most, which is seldom the worst."""
    if experiment.name not in IN_QUESTION:
        return []
    environment, which = IN_QUESTION[experiment.name]
    return _of_one(scores, schemes, tables, environment, f"The same of `{environment}`, {which}")


def _score_table(
    head: str,
    rule: str,
    first: Mapping[str, str],
    tables: Mapping[str, Mapping[str, Mapping[str, Interval]]],
    compared: Mapping[str, Mapping[str, Comparison]],
    score: str,
) -> list[str]:
    """One score of schemes (rows, with their first cells) in regimes (columns)."""
    return [
        f"| {head} | {' | '.join(tables)} |",
        f"| {rule} |" + " ---: |" * len(tables),
        *(
            f"| {cells} | "
            + " | ".join(_cell(tables[n].get(scheme), compared[n].get(scheme), scheme, score) for n in tables)
            + " |"
            for scheme, cells in first.items()
        ),
    ]


def wrong_answers(table: pa.Table, schemes: Sequence[str], regimes: Sequence[str]) -> list[str]:
    """The lengths of rollouts without success, where they were stored."""
    if "tokens_wrong" not in table.column_names:
        return []
    tokens = table["tokens_wrong"]
    known = pc.if_else(pc.is_nan(tokens), pa.scalar(None, tokens.type), tokens)
    lengths = run_scores(table.set_column(table.column_names.index("tokens_wrong"), "tokens_wrong", known),
                         column="tokens_wrong")  # fmt: skip
    tables = {name: summarise(lengths, name) for name in regimes}
    compared = {name: against(lengths, name, REFERENCE) for name in regimes}
    first = {scheme: f"`{scheme}`" for scheme in schemes}
    return [
        "Tokens per rollout without success, mean over training:",
        "",
        *_score_table("scheme", "---", first, tables, compared, "mean"),
        "",
    ]


def budget_lines(experiment: Experiment, table: pa.Table, schemes: Sequence[str]) -> list[str]:
    """The turns that schemes spend until they have learned."""
    turns = turns_to_reach(table, budget.REACHED)
    names = [regime.name for regime in sorted(experiment.regimes, key=lambda regime: regime.axis_value)]
    cells = {
        key: spent(median_interval(list(found.values())), experiment.budget.total_turns) for key, found in turns.items()
    }
    return [
        f"Turns until the score reaches {budget.REACHED:g}: median over seeds [exact 95 % interval].",
        "",
        "| scheme | " + " | ".join(names) + " |",
        "| --- |" + " ---: |" * len(names),
        *(
            f"| `{scheme}` | " + " | ".join(cells.get((name, scheme), "") for name in names) + " |"
            for scheme in schemes
        ),
        "",
    ]


def spent(turns: Interval, total: int) -> str:
    """Write turns that may never have been enough."""
    median, low, high = (
        f"{value:,.0f}" if np.isfinite(value) else f"more than {total:,}" if np.isinf(value) else "?"
        for value in (turns.estimate, turns.low, turns.high)
    )
    return f"{median} [{low}, {high}]"


def _pairs(table: pa.Table, seeds: int) -> str:
    """Count the seeds, and say where runs of one seed did not start from one base policy."""
    apart = len(unpaired(table))
    note = f" (in {apart} cases runs of one seed start from unlike base policies)" if apart else ""
    return f"{seeds} paired seeds{note}"


def _grid(experiment: Experiment, rates: Mapping[str, Rate], schemes: Sequence[str]) -> str:
    """The learning rates that were tried, and who chose one at the edge, where a wider grid might show more."""
    grid = sorted(experiment.learning_rates)
    if len(grid) == 1:
        return f"Learning rate {grid[0]:g}, not tuned."
    text = (
        f"Learning rates tried: {', '.join(f'{rate:g}' for rate in grid)}, {len(experiment.tuning_seeds)} tuning seeds"
        + (", chosen for each regime" if experiment.rate_per_regime else "")
    )
    ends = {
        end: [f"`{scheme}`" for scheme in schemes if rate in rates_in(rates[scheme])]
        for end, rate in (("smallest", grid[0]), ("largest", grid[-1]))
    }
    chosen = [
        f"the {end} was chosen by {f'{len(names)} schemes' if len(names) > MOST_NAMED else ', '.join(names)}"
        for end, names in ends.items()
        if names
    ]
    return text + (f"; {'; '.join(chosen)}." if chosen else "; none chose the smallest or the largest.")


def _turns(experiment: Experiment) -> str:
    counts = sorted({regime.apply(experiment.budget).total_turns for regime in experiment.regimes})
    return " or ".join(f"{count:,}" for count in counts)


def _cell(summary: Mapping[str, Interval] | None, entry: Comparison | None, scheme: str, score: str) -> str:
    if summary is None:
        return ""
    mean = summary[score]
    mark = ""
    if entry is not None and scheme != REFERENCE and entry.p_value < ALPHA:
        mark = " ▲" if entry.difference.estimate > 0 else " ▼"
    return f"{mean.estimate:.3f} [{mean.low:.3f}, {mean.high:.3f}]{mark}"


def claims_section(entries: Sequence[Mapping[str, Any]], again: Sequence[Mapping[str, Any]] | None = None) -> list[str]:
    """The scoreboard, and what became of it when all reported runs were made again."""
    counts = Counter(entry["verdict"] for entry in entries)
    lines = [
        "## Do the published claims replicate?",
        "",
        f"{len(entries)} claims: {counts['replicates']} replicate, {counts['contradicted']} are contradicted, "
        f"{counts['inconclusive']} are inconclusive, each in one small regime of this suite. A claim about language "
        "models is not refuted by a chain of cues: the table says what happens where the claimed cause is isolated. "
        "The rule is one for all and was fixed before the runs (`benchmarks/claims/claim.py`): the 95 % bootstrap "
        "interval of the paired difference lies on the predicted side of 0 (for `equal`: within 0.03 of it). Regimes, "
        "arms and clip widths of some claims were revised after first runs (`git log benchmarks/claims`). Learning "
        f"rates are chosen from {', '.join(f'{rate:g}' for rate in LEARNING_RATES)} on seeds of their own; a rate or "
        "width at the edge of its grid might be better beyond it. Intervals are percentile bootstraps, which cover "
        "about 92 % with 20 seeds: a verdict whose interval ends near 0 is uncertain.",
        "",
        *_repeated(entries, again or ()),
        "![The claims](plots/figures/claims.png)",
        "",
    ]
    for verdict in ("replicates", "contradicted", "inconclusive"):
        lines += [
            f"### {verdict.capitalize()}",
            "",
            "| key | claim | source | treatment against control | regime | metric | effect [95 %] | control | seeds | "
            "learning rates | robust |",
            "| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: | --- | --- |",
            *(_claim_row(entry) for entry in entries if entry["verdict"] == verdict),
            "",
        ]
    return [
        *lines,
        "`robust`: the verdict is the same in most of three variants with 5 to 10 seeds (a third of the learning rate, "
        "three times it, layers of 32 units) and opposite in none; `-` where these runs are missing.",
        "",
        "`python -m benchmarks claims`, "
        "`python -m benchmarks.claims.untrained --jobs 2 --json results/claims_untrained.json`, "
        "`python -m benchmarks scoreboard --write`, `python -m plots claims`",
        "",
    ]


def _repeated(entries: Sequence[Mapping[str, Any]], again: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which verdicts are others where all reported runs were made again."""
    verdicts = {(entry["key"], entry["metric"]): entry["verdict"] for entry in again}
    pairs = [(entry, verdicts.get((entry["key"], entry["metric"]))) for entry in entries]
    pairs = [(entry, verdict) for entry, verdict in pairs if verdict]
    if not pairs:
        return []
    changed = [f"`{entry['key']}` ({verdict})" for entry, verdict in pairs if verdict != entry["verdict"]]
    return [
        "Made again in one go, where several versions and machines had made the stored runs, with the same seeds and "
        f"learning rates, {len(pairs) - len(changed)} of {len(pairs)} claims have the same verdict"
        + (f"; not: {', '.join(changed)}" if changed else "")
        + " (`make reproduce ROOT=fresh/results`, whose `claims.json` is `results/claims_again.json`).",
        "",
    ]


def _claim_row(entry: Mapping[str, Any]) -> str:
    note = f" *({entry['note']})*" if entry["note"] else ""
    budget = "" if entry["control_budget"] == entry["treatment_budget"] else " (other budget)"
    arms = f"`{entry['treatment']}` against `{entry['control']}`{budget}"
    effect = f"{entry['effect']:+.3f} [{entry['low']:+.3f}, {entry['high']:+.3f}]"
    rates = ", ".join(f"{rate:g}" for rate in entry["learning_rates"] if rate) or "nothing is trained"
    cells = (
        f"`{entry['key']}`", entry["statement"] + note, entry["source"], arms,
        entry["regime"], f"{entry['metric']}, {entry['predicted']}",
        effect, f"{entry['control_mean']:.3f}", str(entry["seeds"]), rates, entry["robust"],
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"
