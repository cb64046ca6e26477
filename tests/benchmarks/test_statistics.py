"""Tests of `benchmarks.statistics` against scipy, hand-computed values and properties."""

import math
import tracemalloc

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from benchmarks import statistics
from benchmarks.statistics import (
    Interval,
    bootstrap_interval,
    holm,
    iqm,
    median_interval,
    paired_difference,
    paired_t_interval,
    paired_t_pvalue,
    performance_profile,
    performance_profile_bands,
    probability_of_improvement,
    probability_of_improvement_interval,
    t_quantile,
    wilson_interval,
)

# Multiples of 1/64 make sums exact, so that ties are real ties and not rounding.
SCORE = st.integers(-640, 640).map(lambda k: k / 64)
SCORES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=8), elements=SCORE)
QUICK = settings(max_examples=40, deadline=None)
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def normal(n_runs=20, n_tasks=6, seed=0):
    """Scores whose tasks differ in level."""
    return np.random.default_rng(seed).normal(size=(n_runs, n_tasks)) + np.arange(n_tasks)


def bounds(interval):
    return np.array([interval.low, interval.high])


class TestIqm:
    @pytest.mark.parametrize("shape", [(1,), (3,), (4,), (5,), (1, 7), (2, 3), (20, 6), (33, 1)])
    def test_matches_scipy(self, shape):
        scores = np.random.default_rng(1).exponential(size=shape)
        assert iqm(scores) == pytest.approx(scipy.stats.trim_mean(scores, 0.25, axis=None), rel=1e-14)

    def test_ignores_an_outlier(self):
        assert iqm([0, 1, 2, 1e9]) == 1.5

    @given(SCORES)
    @QUICK
    def test_matches_scipy_on_ties(self, scores):
        assert iqm(scores) == pytest.approx(scipy.stats.trim_mean(scores, 0.25, axis=None), abs=1e-12)


class TestBootstrapInterval:
    @pytest.mark.parametrize(
        ("name", "reference"),
        [
            ("mean", np.mean),
            ("iqm", lambda x, axis: scipy.stats.trim_mean(x, 0.25, axis=axis)),
        ],
    )
    def test_matches_scipy_percentile_bootstrap(self, name, reference):
        sample = np.random.default_rng(2).exponential(size=30)
        theirs = scipy.stats.bootstrap(
            (sample,), reference, n_resamples=20_000, method="percentile", rng=np.random.default_rng(3)
        )
        ours = bootstrap_interval(sample, name, n_resamples=20_000)
        # The Monte-Carlo error of a 2.5 % percentile of 20 000 draws is about 0.02 sd.
        tolerance = 0.08 * theirs.standard_error
        np.testing.assert_allclose(bounds(ours), theirs.confidence_interval, atol=tolerance)
        assert ours.estimate == pytest.approx(reference(sample, axis=0))

    def test_is_stratified_by_task(self):
        scores = np.tile([0.0, 1.0, 2.0], (5, 1))
        assert bootstrap_interval(scores) == Interval(1.0, 1.0, 1.0)

    def test_columns_are_resampled_independently(self):
        # Independent draws cancel over equal columns; drawing whole rows would not.
        run = np.random.default_rng(4).normal(size=(20, 1))
        one = np.ptp(bounds(bootstrap_interval(run)))
        many = np.ptp(bounds(bootstrap_interval(np.repeat(run, 16, axis=1))))
        assert many == pytest.approx(one / 4, rel=0.1)

    @pytest.mark.parametrize("name", ["mean", "iqm"])
    def test_callable_equals_named(self, name):
        scores = normal(n_runs=6, n_tasks=3)
        function = {"mean": np.mean, "iqm": iqm}[name]
        named = bootstrap_interval(scores, name, n_resamples=200)
        called = bootstrap_interval(scores, function, n_resamples=200)
        np.testing.assert_allclose(bounds(called), bounds(named), rtol=1e-13)

    def test_callable_sees_runs_by_tasks(self):
        shapes = set()

        def worst_task(scores):
            shapes.add(scores.shape)
            return scores.mean(axis=0).min()

        scores = normal(n_runs=6, n_tasks=3)
        interval = bootstrap_interval(scores, worst_task, n_resamples=50)
        assert shapes == {(6, 3)}
        assert interval.estimate == scores.mean(axis=0).min()

    def test_one_dimension_is_one_task(self):
        sample = normal(n_tasks=1)
        assert bootstrap_interval(sample[:, 0]) == bootstrap_interval(sample)

    @pytest.mark.parametrize("name", ["mean", "iqm", np.mean])
    @pytest.mark.parametrize("shape", [(2,), (5,), (20, 7), (33, 3)])
    def test_equal_scores_give_zero_width(self, name, shape):
        interval = bootstrap_interval(np.full(shape, 0.1), name, n_resamples=100)
        assert interval.low == interval.high == interval.estimate == pytest.approx(0.1)

    def test_wider_confidence_is_wider(self):
        narrow, wide = (bootstrap_interval(normal(), confidence=c) for c in (0.5, 0.99))
        assert wide.low < narrow.low < narrow.high < wide.high

    def test_chunks_do_not_change_the_result(self, monkeypatch):
        scores, other = normal(n_runs=5, n_tasks=3), normal(n_runs=7, n_tasks=3, seed=9)

        def everything():
            return (
                bootstrap_interval(scores, "iqm", n_resamples=101),
                probability_of_improvement_interval(scores, other, n_resamples=101),
                np.array(performance_profile_bands(scores, [0, 1], n_resamples=101)).tolist(),
            )

        whole = everything()
        for elements in (1, 17 * scores.size):
            monkeypatch.setattr(statistics, "_CHUNK_ELEMENTS", elements)
            assert everything() == whole

    def test_memory_is_bounded(self):
        scores = normal(n_runs=100, n_tasks=100)
        tracemalloc.start()
        bootstrap_interval(scores, "iqm")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200e6

    @given(SCORES, st.sampled_from([-3.0, -0.5, 0.25, 2.0]), st.integers(-5, 5), st.sampled_from(["mean", "iqm"]))
    @QUICK
    def test_affine_equivariance(self, scores, scale, shift, name):
        plain = bootstrap_interval(scores, name, n_resamples=60)
        moved = bootstrap_interval(scale * scores + shift, name, n_resamples=60)
        assert moved.estimate == pytest.approx(scale * plain.estimate + shift, abs=1e-9)
        np.testing.assert_allclose(bounds(moved), np.sort(scale * bounds(plain) + shift), atol=1e-9)

    @given(SCORES, st.integers(0, 5))
    @QUICK
    def test_mean_interval_contains_the_estimate(self, scores, seed):
        interval = bootstrap_interval(scores, n_resamples=300, seed=seed)
        assert interval.low - 1e-12 <= interval.estimate <= interval.high + 1e-12
        assert interval.estimate == pytest.approx(scores.mean(), abs=1e-12)
        assert scores.min() - 1e-12 <= interval.low <= interval.high <= scores.max() + 1e-12

    @given(SCORES, st.randoms(use_true_random=False))
    @QUICK
    def test_order_of_runs_does_not_change_estimates(self, scores, random):
        order = list(range(len(scores)))
        random.shuffle(order)
        other, moved = scores[::-1] + 0.25, scores[order]
        assert bootstrap_interval(moved, n_resamples=2).estimate == pytest.approx(scores.mean(), abs=1e-12)
        assert iqm(moved) == pytest.approx(iqm(scores), abs=1e-12)
        assert probability_of_improvement(moved, other) == probability_of_improvement(scores, other)
        assert performance_profile(moved, [0.0]) == performance_profile(scores, [0.0])
        pairs = paired_difference(moved, other[order], n_resamples=2).estimate
        assert pairs == pytest.approx(paired_difference(scores, other, n_resamples=2).estimate, abs=1e-12)


class TestCoverage:
    def test_of_nominal_95_percent_with_20_seeds(self):
        rng = np.random.default_rng(5)
        hits = {"mean": 0, "iqm": 0, "t": 0}
        repetitions = 300
        for seed in range(repetitions):
            sample = rng.normal(3.0, 2.0, size=20)
            intervals = {
                "mean": bootstrap_interval(sample, n_resamples=500, seed=seed),
                "iqm": bootstrap_interval(sample, "iqm", n_resamples=500, seed=seed),
                "t": paired_t_interval(sample, np.zeros(20)),
            }
            for name, interval in intervals.items():
                hits[name] += interval.low <= 3.0 <= interval.high
        for name, count in hits.items():
            assert 0.85 <= count / repetitions <= 0.99, name


class TestPaired:
    def test_difference_is_the_bootstrap_of_per_run_differences(self):
        x, y = normal(seed=6), normal(seed=7)
        expected = bootstrap_interval((x - y).mean(axis=1), "iqm", 0.9, 500, 11)
        assert paired_difference(x, y, 0.9, 500, 11, "iqm") == expected

    def test_pairing_removes_what_the_seeds_share(self):
        shared = 10 * np.random.default_rng(8).normal(size=20)
        treatment = shared + 0.5 + 0.1 * normal(n_tasks=1)[:, 0]
        interval = paired_difference(treatment, shared)
        assert 0.3 < interval.low < interval.high < 0.7

    @pytest.mark.parametrize("n_runs", [2, 3, 5, 20, 200])
    def test_t_matches_scipy(self, n_runs):
        rng = np.random.default_rng(n_runs)
        x = rng.normal(size=n_runs)
        y = x + rng.normal(0.2, 0.5, size=n_runs)
        theirs = scipy.stats.ttest_rel(x, y)
        assert paired_t_pvalue(x, y) == pytest.approx(theirs.pvalue, rel=1e-10)
        for confidence in (0.5, 0.95, 0.999):
            ours = paired_t_interval(x, y, confidence)
            np.testing.assert_allclose(bounds(ours), theirs.confidence_interval(confidence), rtol=1e-9)
            assert ours.estimate == pytest.approx((x - y).mean())

    def test_t_averages_tasks_first(self):
        x, y = normal(seed=6), normal(seed=7)
        assert paired_t_pvalue(x, y) == pytest.approx(
            scipy.stats.ttest_rel(x.mean(axis=1), y.mean(axis=1)).pvalue, rel=1e-10
        )

    def test_pvalue_and_interval_agree(self):
        x, y = normal(seed=6), normal(seed=7)
        pvalue = paired_t_pvalue(x, y)
        interval = paired_t_interval(x, y, 1 - pvalue)
        assert np.abs(bounds(interval)).min() < 1e-10 * abs(interval.estimate)

    def test_extreme_statistics(self):
        y = np.zeros(5)
        assert 0 <= paired_t_pvalue([1, 1, 1, 1, 1 + 1e-15], y) < 1e-30
        assert paired_t_pvalue([-1, 1, -1, 1, 0], y) == 1.0

    @pytest.mark.parametrize(("difference", "pvalue"), [(0.0, 1.0), (0.1, 0.0), (-3.0, 0.0)])
    def test_equal_differences(self, difference, pvalue):
        x, y = np.full(7, difference), np.zeros(7)
        assert paired_t_pvalue(x, y) == pvalue
        assert paired_t_interval(x, y) == Interval(difference, difference, difference)
        assert paired_difference(x, y).low == paired_difference(x, y).high


class TestTQuantile:
    def test_matches_scipy(self):
        probabilities = [0.001, 0.4, 0.975, 0.9995]
        for df in range(1, 201):
            ours = [t_quantile(p, df) for p in probabilities]
            np.testing.assert_allclose(ours, scipy.stats.t.ppf(probabilities, df), rtol=1e-8, err_msg=str(df))

    def test_centre_and_limits(self):
        assert t_quantile(0.5, 3) == 0.0
        # For one degree of freedom the quantile is a tangent.
        assert t_quantile(0.5 + 1e-6, 1) == pytest.approx(math.tan(math.pi * 1e-6), rel=1e-8)
        assert t_quantile(1e-300, 1) == pytest.approx(-1e300 / math.pi, rel=1e-8)
        assert t_quantile(0.975, 5000) == pytest.approx(scipy.stats.t.ppf(0.975, 5000), rel=1e-8)


class TestProbabilityOfImprovement:
    @pytest.mark.parametrize("levels", [3, 10_000])
    def test_matches_mann_whitney(self, levels):
        rng = np.random.default_rng(9)
        x, y = rng.integers(levels, size=(12, 4)), rng.integers(levels, size=(9, 4))
        u = scipy.stats.mannwhitneyu(x, y, axis=0).statistic
        assert probability_of_improvement(x, y) == pytest.approx(np.mean(u / (12 * 9)), rel=1e-14)

    def test_hand_computed(self):
        # Of four pairs one is a win, two are ties, one is a loss.
        assert probability_of_improvement([1, 2], [1, 2]) == 0.5
        assert probability_of_improvement([[1, 5], [2, 6]], [[1, 0], [2, 0]]) == 0.75

    @given(SCORES)
    @QUICK
    def test_arms_are_complementary(self, scores):
        other = scores[::-1] * 0.5
        total = probability_of_improvement(scores, other) + probability_of_improvement(other, scores)
        assert total == pytest.approx(1.0)

    def test_interval_matches_scipy_bootstrap(self):
        rng = np.random.default_rng(10)
        x, y = rng.normal(0.5, 1, size=15), rng.normal(size=18)

        def superiority(a, b, axis):
            return scipy.stats.mannwhitneyu(a, b, axis=axis, method="asymptotic").statistic / (15 * 18)

        theirs = scipy.stats.bootstrap(
            (x, y), superiority, n_resamples=10_000, method="percentile", rng=np.random.default_rng(11)
        )
        ours = probability_of_improvement_interval(x, y, n_resamples=10_000)
        tolerance = 0.1 * theirs.standard_error
        np.testing.assert_allclose(bounds(ours), theirs.confidence_interval, atol=tolerance)
        assert ours.estimate == probability_of_improvement(x, y)

    def test_arms_are_resampled_independently(self):
        # Identical arms drawn with the same indices would always tie at exactly one half.
        x = normal(n_tasks=1)
        interval = probability_of_improvement_interval(x, x)
        assert interval.estimate == 0.5
        assert interval.low < 0.4 and interval.high > 0.6

    def test_certain_improvement_has_zero_width(self):
        assert probability_of_improvement_interval([2, 3, 4], [0, 1]) == Interval(1.0, 1.0, 1.0)


class TestPerformanceProfile:
    def test_counts_strictly_above(self):
        scores = [[0.0, 0.5], [0.5, 1.0]]
        np.testing.assert_array_equal(performance_profile(scores, [1, 0, -1, 0.5]), [0, 0.75, 1, 0.25])

    def test_bands_match_the_bootstrap_at_each_threshold(self):
        scores, taus = normal(), np.linspace(-1, 6, 8)
        low, high = performance_profile_bands(scores, taus, 0.9, 300, 3)
        for i, tau in enumerate(taus):
            expected = bootstrap_interval((scores > tau).astype(float), "mean", 0.9, 300, 3)
            assert (low[i], high[i]) == pytest.approx((expected.low, expected.high))

    @given(SCORES)
    @QUICK
    def test_falls_and_lies_in_the_bands(self, scores):
        taus = np.linspace(-11, 11, 7)
        profile = performance_profile(scores, taus)
        low, high = performance_profile_bands(scores, taus, n_resamples=300)
        assert (profile[0], profile[-1]) == (1, 0)
        assert (np.diff(profile) <= 0).all()
        assert (low <= profile + 1e-12).all() and (profile <= high + 1e-12).all()


class TestHolm:
    def test_hand_computed(self):
        # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04 -> 0.06.
        np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])

    def test_clips_and_keeps_ties(self):
        np.testing.assert_allclose(holm([0.6, 0.6, 0.01]), [1.0, 1.0, 0.03])
        np.testing.assert_array_equal(holm([0.2]), [0.2])

    @given(P_VALUES)
    @QUICK
    def test_never_below_raw_nor_above_bonferroni(self, raw):
        adjusted = holm(raw)
        assert (adjusted >= raw).all()
        assert (adjusted <= len(raw) * np.array(raw)).all()
        assert (np.diff(adjusted[np.argsort(raw)]) >= 0).all()
        assert (adjusted <= 1).all()

    @given(P_VALUES)
    @QUICK
    def test_permutation_equivariance(self, raw):
        np.testing.assert_array_equal(holm(raw[::-1]), holm(raw)[::-1])


class TestWilson:
    def test_all_successes_is_not_certainty(self):
        interval = wilson_interval(20, 20)
        assert (interval.estimate, interval.high) == (1.0, 1.0)
        assert interval.low == pytest.approx(0.8389, abs=1e-4)

    @pytest.mark.parametrize("trials", [1, 2, 7, 20, 1000])
    @pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
    def test_matches_scipy(self, trials, confidence):
        for successes in sorted({0, 1, trials // 3, trials}):
            theirs = scipy.stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
            ours = wilson_interval(successes, trials, confidence)
            np.testing.assert_allclose(bounds(ours), theirs, rtol=1e-12, atol=1e-15)
            assert 0 <= ours.low <= ours.estimate <= ours.high <= 1


class TestMedian:
    @pytest.mark.parametrize("n", [6, 7, 10, 20, 41])
    @pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
    def test_coverage_is_exact(self, n, confidence):
        interval = median_interval(np.arange(1.0, n + 1), confidence)
        covered = scipy.stats.binom(n, 0.5).cdf([interval.low - 1, interval.low])
        # The next narrower pair of order statistics would cover less.
        assert 2 * covered[0] <= 1 - confidence < 2 * covered[1]
        assert interval.high == n + 1 - interval.low and interval.estimate == (n + 1) / 2

    def test_what_is_never_reached(self):
        interval = median_interval([3.0, 1.0, np.inf, 2.0, np.inf, np.inf, 4.0])
        assert (interval.estimate, interval.low, interval.high) == (4.0, 1.0, np.inf)
        assert median_interval([np.inf] * 6).estimate == np.inf

    def test_few_runs_have_no_bounds(self):
        interval = median_interval([2.0, 1.0, 3.0])
        assert interval.estimate == 2.0 and np.isnan(bounds(interval)).all()

    @pytest.mark.parametrize("values", [[], [[1.0]], [np.nan, 1.0]])
    def test_bad_values(self, values):
        with pytest.raises(ValueError, match="'values' must have shape"):
            median_interval(values)


class TestPitfalls:
    """P53: wrong axis, degenerate intervals, unseeded draws."""

    def test_five_seeds_are_wide(self):
        interval = bootstrap_interval([0, 0, 1, 1, 1])
        assert interval.high - interval.low > 0.3

    def test_one_run_of_five_tasks_is_refused(self):
        with pytest.raises(ValueError, match=r"'scores' must have at least 2 runs .* \(1, 5\)"):
            bootstrap_interval([[0, 0, 1, 1, 1]])

    def test_a_wide_array_is_accepted_as_it_is(self):
        scores = normal(n_runs=2, n_tasks=50)
        assert bootstrap_interval(scores) != bootstrap_interval(scores.T)

    def test_one_resample_is_refused(self):
        with pytest.raises(ValueError, match=r"'n_resamples' must be an integer of at least 2\. Got 1 "):
            bootstrap_interval([0, 1], n_resamples=1)

    def test_unequal_lengths_are_refused(self):
        with pytest.raises(ValueError, match="'scores' must be a rectangular array"):
            bootstrap_interval([[1, 2, 3], [1, 2]])

    @pytest.mark.parametrize(
        "draw",
        [
            lambda seed: bootstrap_interval(normal(), seed=seed),
            lambda seed: paired_difference(normal(), normal(seed=1), seed=seed),
            lambda seed: probability_of_improvement_interval(normal(), normal(seed=1), seed=seed),
            lambda seed: np.array(performance_profile_bands(normal(), [2.1, 2.6, 3.3], seed=seed)).tolist(),
        ],
    )
    def test_seed_decides_and_global_generator_is_untouched(self, draw):
        before = np.random.get_state()
        assert draw(1) == draw(1) != draw(2)
        after = np.random.get_state()
        assert before[2:] == after[2:] and (before[1] == after[1]).all()

    def test_input_is_not_modified(self):
        x, y = normal(), normal(seed=1)
        x.flags.writeable = y.flags.writeable = False
        bootstrap_interval(x, "iqm")
        paired_difference(x, y)
        probability_of_improvement_interval(x, y)
        performance_profile_bands(x, y[0])
        holm(np.clip(x[0], 0, 1))


BAD_SCORES = [
    ([], "must not be empty"),
    (np.zeros((3, 0)), "must not be empty"),
    (3.0, "must have shape"),
    (np.zeros((2, 2, 2)), "must have shape"),
    ([1, np.nan], "must be finite. Got nan"),
    ([[1, 2], [np.inf, 2]], "must be finite. Got inf"),
    (["a", "b"], "must be a rectangular array"),
]
OKAY = np.array([1.0, 2.0, 4.0])


class TestErrors:
    @pytest.mark.parametrize(("scores", "message"), BAD_SCORES)
    @pytest.mark.parametrize(
        ("name", "function"),
        [
            ("scores", iqm),
            ("scores", bootstrap_interval),
            ("scores", lambda bad: performance_profile(bad, [0])),
            ("scores", lambda bad: performance_profile_bands(bad, [0])),
            ("treatment", lambda bad: paired_difference(bad, OKAY)),
            ("treatment", lambda bad: paired_t_interval(bad, OKAY)),
            ("control", lambda bad: paired_t_pvalue(OKAY, bad)),
            ("control", lambda bad: probability_of_improvement(OKAY, bad)),
            ("treatment", lambda bad: probability_of_improvement_interval(bad, OKAY)),
        ],
    )
    def test_bad_scores(self, name, function, scores, message):
        with pytest.raises(ValueError, match=f"'{name}' {message}"):
            function(scores)

    @pytest.mark.parametrize(
        ("name", "function"),
        [
            ("scores", bootstrap_interval),
            ("scores", lambda one: performance_profile_bands(one, [0])),
            ("treatment", lambda one: paired_difference(one, one)),
            ("treatment", lambda one: paired_t_interval(one, one)),
            ("treatment", lambda one: paired_t_pvalue(one, one)),
            ("control", lambda one: probability_of_improvement_interval(OKAY, one)),
        ],
    )
    def test_one_run_has_no_interval(self, name, function):
        with pytest.raises(ValueError, match=f"'{name}' must have at least 2 runs"):
            function([1.0])

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("confidence", [0, 1, -0.1, 95, np.nan, "0.95", None]),
            ("n_resamples", [1, 0, -5, 2.0, None]),
            ("seed", [-1, 0.5, None]),
        ],
    )
    @pytest.mark.parametrize(
        "function",
        [
            lambda **options: bootstrap_interval(OKAY, **options),
            lambda **options: paired_difference(OKAY, OKAY, **options),
            lambda **options: probability_of_improvement_interval(OKAY, OKAY, **options),
            lambda **options: performance_profile_bands(OKAY, [0], **options),
        ],
    )
    def test_bad_options(self, function, name, values):
        for value in values:
            with pytest.raises(ValueError, match=f"'{name}' must be .* Got {value!r} instead"):
                function(**{name: value})

    @pytest.mark.parametrize("confidence", [0, 1, 1.5])
    def test_bad_confidence_without_bootstrap(self, confidence):
        for function in (lambda c: paired_t_interval(OKAY, OKAY, c), lambda c: wilson_interval(1, 2, c)):
            with pytest.raises(ValueError, match="'confidence'"):
                function(confidence)

    @pytest.mark.parametrize("function", [paired_difference, paired_t_interval, paired_t_pvalue])
    @pytest.mark.parametrize("other", [np.zeros(4), np.zeros((3, 2))])
    def test_shapes_of_pairs_must_match(self, function, other):
        with pytest.raises(ValueError, match="'control' must have the shape of 'treatment'"):
            function(OKAY, other)

    @pytest.mark.parametrize("function", [probability_of_improvement, probability_of_improvement_interval])
    def test_tasks_must_match(self, function):
        with pytest.raises(ValueError, match=r"'control' must have 1 tasks like 'treatment'\. Got 2 "):
            function(OKAY, np.zeros((3, 2)))

    @pytest.mark.parametrize("statistic", ["median", "IQM", None, 3])
    def test_unknown_statistic(self, statistic):
        with pytest.raises(ValueError, match=f"'statistic' must be .* Got {statistic!r} instead"):
            bootstrap_interval(OKAY, statistic)

    @pytest.mark.parametrize("result", [np.nan, np.inf, np.zeros(2)])
    def test_statistic_must_return_a_number(self, result):
        with pytest.raises(ValueError, match="'statistic' must return one finite number"):
            bootstrap_interval(OKAY, lambda _: result)

    @pytest.mark.parametrize("thresholds", [[], 0.5, [[0.5]], [np.nan]])
    def test_bad_thresholds(self, thresholds):
        for function in (performance_profile, performance_profile_bands):
            with pytest.raises(ValueError, match="'thresholds' must"):
                function(OKAY, thresholds)

    @pytest.mark.parametrize("p_values", [[], 0.5, [[0.5]], [np.nan], [-0.1], [0.2, 1.1]])
    def test_bad_p_values(self, p_values):
        with pytest.raises(ValueError, match="'p_values' must"):
            holm(p_values)

    @pytest.mark.parametrize(
        ("successes", "trials", "name"),
        [
            (0, 0, "trials"),
            (-1, 5, "successes"),
            (6, 5, "successes"),
            (1.0, 5, "successes"),
            (1, 5.0, "trials"),
        ],
    )
    def test_bad_counts(self, successes, trials, name):
        with pytest.raises(ValueError, match=f"'{name}' must be .* Got"):
            wilson_interval(successes, trials)

    @pytest.mark.parametrize(("probability", "df", "name"), [(0, 3, "probability"), (0.5, 0, "df"), (0.5, 2.5, "df")])
    def test_bad_t_quantile(self, probability, df, name):
        with pytest.raises(ValueError, match=f"'{name}' must be"):
            t_quantile(probability, df)


class TestSpearman:
    @pytest.mark.parametrize("seed", range(5))
    def test_equals_scipy_with_ties(self, seed):
        random = np.random.default_rng(seed)
        x, y = random.integers(6, size=40), random.standard_normal(40)
        assert statistics.spearman(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-12)

    def test_order_is_all_that_counts(self):
        x = np.arange(1.0, 9.0)
        assert statistics.spearman(x, x**5) == pytest.approx(1.0)
        assert statistics.spearman(x, -np.exp(x)) == pytest.approx(-1.0)

    def test_bad_values(self):
        with pytest.raises(ValueError, match="'x' must have at least 2 different values"):
            statistics.spearman([1.0, 1.0], [1.0, 2.0])
        with pytest.raises(ValueError, match="equally long"):
            statistics.spearman([1.0, 2.0, 3.0], [1.0, 2.0])

    @pytest.mark.parametrize(("clusters", "each", "least"), [(4, 4, 0.88), (8, 3, 0.9), (40, 1, 0.9)])
    def test_the_interval_covers_what_few_clusters_estimate(self, clusters, each, least):
        """Lines of unlike slope, one per cluster, with errors of their own on both sides."""

        def draw(random, n):
            slope = random.normal(1.0, 0.5, (n, 1))
            x = slope * np.arange(each) + random.normal(0, 0.5, (n, 1)) + random.normal(0, 0.5, (n, each))
            y = slope * np.arange(each) + random.normal(0, 0.5, (n, 1)) + random.normal(0, 0.7, (n, each))
            return x.ravel(), y.ravel(), np.repeat(np.arange(n), each)

        random = np.random.default_rng(0)
        truth = statistics.spearman(*draw(random, 4000)[:2])
        intervals = np.array([statistics.spearman_interval(*draw(random, clusters)) for _ in range(200)])
        covered = (intervals[:, 0] <= truth) & (truth <= intervals[:, 1])
        assert least <= covered.mean() <= 0.995

    def test_copies_within_clusters_change_nothing(self):
        random = np.random.default_rng(0)
        x, y, labels = random.standard_normal(12), random.standard_normal(12), np.arange(12)
        once = statistics.spearman_interval(x, y, labels)
        four = statistics.spearman_interval(np.tile(x, 4), np.tile(y, 4), np.tile(labels, 4))
        assert four == pytest.approx(once, abs=1e-12)
        alone = statistics.spearman_interval(np.tile(x, 4), np.tile(y, 4), np.arange(48))
        assert alone[1] - alone[0] < 0.7 * (once[1] - once[0])

    def test_bad_clusters(self):
        x = np.arange(4.0)
        with pytest.raises(ValueError, match="equally long"):
            statistics.spearman_interval(x, x, [0, 1, 2])
        with pytest.raises(ValueError, match="at least 3 different labels"):
            statistics.spearman_interval(x, x, [0, 0, 1, 1])
        with pytest.raises(ValueError, match="must have at least 2 different values"):
            statistics.spearman_interval(np.ones(4), x, x)
