#!/usr/bin/env python3
"""Tests of what castor-load is held against: the truths that tests/bench/load_tester computes."""

import math
import os
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "load_tester"))

import distributions
import truth

SEED = int(os.environ.get("CASTOR_TEST_SEED") or random.SystemRandom().getrandbits(32))
MS = 1_000_000


def setUpModule():
    print("seed", SEED)


class Quantile(unittest.TestCase):
    def test_is_the_nearest_rank(self):
        values = [10, 20, 30, 40]
        expected = {0.0: 10, 0.25: 10, 0.26: 20, 0.5: 20, 0.75: 30, 0.76: 40, 1.0: 40}
        for share, value in expected.items():
            self.assertEqual(distributions.quantile(values, share), value, share)
        # 0.07 * 100 is a little more than 7 in binary, and must not become the eighth.
        self.assertEqual(distributions.quantile(list(range(1, 101)), 0.07), 7)


class Truth(unittest.TestCase):
    SCRIPT = {"begin_unix_ns": 5_000 * MS, "service_ns": 20 * MS, "stall_ns": 1_000 * MS,
              "stall_every_ns": 10_000 * MS}

    def test_answers_leave_at_the_stalls_end(self):
        at = {0: 20, 979: 999, 9_979: 9_999, 9_980: 11_000, 10_500: 11_000, 10_980: 11_000,
              10_981: 11_001, 19_990: 21_000}
        for arrival, answer in at.items():
            self.assertEqual(truth.answer_time(arrival * MS, self.SCRIPT), answer * MS, arrival)

    def test_without_stalls_only_the_service_time_counts(self):
        script = dict(self.SCRIPT, stall_ns=0, stall_every_ns=0)
        self.assertEqual(truth.answer_time(10_500 * MS, script), 10_520 * MS)

    def test_percentiles_of_a_regular_schedule(self):
        # One request a millisecond over the second period: 1,000 of 10,000 fall into the stall, and
        # wait for 1,020 - 1, ..., 20 ms.
        begin = self.SCRIPT["begin_unix_ns"] + 9_980 * MS
        found = truth.latencies([begin + i * MS for i in range(10_000)], self.SCRIPT)
        self.assertEqual(distributions.quantile(found, 0.5), 20 * MS)
        self.assertEqual(distributions.quantile(found, 0.99), 920 * MS)
        self.assertEqual(distributions.quantile(found, 0.999), 1_010 * MS)
        self.assertEqual(found[-1], 1_020 * MS)

    def test_how_far_off(self):
        self.assertAlmostEqual(truth.off(98, 100), 0.02)
        self.assertAlmostEqual(truth.off(102, 100), 0.02)
        self.assertEqual(truth.share_of("p99.9"), 0.9990000000000001)


class Kolmogorov(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(SEED)

    def test_known_probabilities(self):
        # From tables of the Kolmogorov distribution: the 5 % and 1 % points.
        for x, probability in ((1.3581, 0.05), (1.6276, 0.01), (0.82757, 0.5)):
            n = 10**8
            self.assertAlmostEqual(distributions.ks_probability(x / math.sqrt(n), n), probability,
                                   places=4)
        self.assertEqual(distributions.ks_probability(0.0, 100), 1.0)

    def test_distance_of_three(self):
        self.assertAlmostEqual(distributions.ks_distance([0.1, 0.5, 0.6], lambda x: x), 0.4)
        self.assertAlmostEqual(distributions.ks_distance([0.1, 0.5, 0.9], lambda x: x, 0.2), 0.23333,
                               places=4)

    def test_a_good_sample_passes_and_a_wrong_one_does_not(self):
        gaps = [self.random.expovariate(200) for _ in range(5000)]

        def probability(cdf):
            return distributions.ks_probability(distributions.ks_distance(gaps, cdf), len(gaps))

        self.assertGreater(probability(distributions.exponential_cdf(1 / 200)), 1e-6)
        self.assertLess(probability(distributions.exponential_cdf(1 / 240)), 1e-6)
        self.assertLess(probability(distributions.gamma_cdf(1 / 200, 1.4)), 1e-6)

    def test_gamma_gaps(self):
        for burstiness in (0.5, 1.0, 2.0):
            shape = burstiness ** -2
            gaps = [self.random.gammavariate(shape, 0.005 / shape) for _ in range(5000)]
            distance = distributions.ks_distance(gaps, distributions.gamma_cdf(0.005, burstiness))
            self.assertGreater(distributions.ks_probability(distance, len(gaps)), 1e-6, burstiness)

    def test_counts(self):
        self.assertAlmostEqual(distributions.chi_square_probability(3.841459, 1), 0.05, places=6)
        self.assertAlmostEqual(distributions.chi_square_probability(124.342, 100), 0.05, places=4)
        counts = [0] * 500
        for _ in range(10_000):
            counts[self.random.randrange(500)] += 1
        self.assertGreater(distributions.dispersion_probability(counts), 1e-6)
        self.assertLess(distributions.dispersion_probability([20] * 500), 1e-6, "too regular")
        self.assertLess(distributions.dispersion_probability([2 * c for c in counts]), 1e-6)


class Gamma(unittest.TestCase):
    def test_against_closed_forms(self):
        for x in (1e-3, 0.3, 1.0, 2.5, 9.0, 40.0):
            self.assertAlmostEqual(distributions.regularized_gamma(1, x), -math.expm1(-x), places=13)
            self.assertAlmostEqual(distributions.regularized_gamma(0.5, x), math.erf(math.sqrt(x)),
                                   places=13)
            self.assertAlmostEqual(distributions.regularized_gamma(3, x),
                                   1 - math.exp(-x) * (1 + x + x * x / 2), places=12)
        self.assertEqual(distributions.regularized_gamma(2, 0), 0)


class Md1(unittest.TestCase):
    def test_no_wait_is_as_likely_as_an_idle_server(self):
        for load in (0.1, 0.5, 0.9):
            self.assertAlmostEqual(distributions.md1_wait_cdf(0, load, 1), 1 - load, places=12)

    def test_mean_wait_is_pollaczek_and_khinchines(self):
        for load in (0.3, 0.7):
            step = 0.1
            mean = sum((1 - distributions.md1_wait_cdf((i + 0.5) * step, load, 1)) * step
                       for i in range(int(20 / step)))
            self.assertAlmostEqual(mean, load / (2 * (1 - load)), delta=0.01 * mean)

    def test_agrees_with_a_simulation(self):
        source = random.Random(SEED)
        rate, service, n = 0.7, 1.0, 400_000
        waits, wait = [], 0.0
        for _ in range(n):  # Lindley's recursion
            waits.append(wait)
            wait = max(0.0, wait + service - source.expovariate(rate))
        waits.sort()
        for share in (0.5, 0.9, 0.99):
            true = distributions.md1_latency_quantile(share, rate, service)
            self.assertAlmostEqual(service + distributions.quantile(waits, share), true,
                                   delta=0.05 * true)

    def test_highest_rate_is_the_quantiles_inverse(self):
        rate = distributions.md1_highest_rate(0.99, 5e-3, 1e-3)
        self.assertAlmostEqual(distributions.md1_latency_quantile(0.99, rate, 1e-3), 5e-3, places=8)
        self.assertEqual(distributions.md1_highest_rate(0.99, 1e-3, 1e-3), 0)


if __name__ == "__main__":
    unittest.main()
