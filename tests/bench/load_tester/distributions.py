"""Distributions with known answers, to hold a load tester against: standard library only."""

import decimal
import math


def quantile(ordered, share):
    """The least of the ascending `ordered` that at least `share` of all are not above."""
    rank = math.ceil(share * len(ordered) - 1e-9)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


# ---- Kolmogorov-Smirnov


def ks_distance(sample, cdf, least=0.0):
    """The greatest distance between the sample's distribution and `cdf`, where it is above `least`."""
    ordered = sorted(sample)
    n = len(ordered)
    distance = 0.0
    for i, value in enumerate(ordered):
        if value < least:
            continue
        expected = cdf(value)
        distance = max(distance, expected - i / n, (i + 1) / n - expected)
    return distance


def ks_probability(distance, n):
    """How likely a sample of `n` from the distribution itself is at least that far from it."""
    # Stephens' correction makes Kolmogorov's limit good for n >= 20 or so.
    root = math.sqrt(n)
    x = (root + 0.12 + 0.11 / root) * distance
    if x < 0.2:  # the series converges slowly there, and its sum is 1 to ten digits
        return 1.0
    total = sum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return min(max(2 * total, 0.0), 1.0)


# ---- gaps between arrivals


def exponential_cdf(mean):
    return lambda x: -math.expm1(-x / mean) if x > 0 else 0.0


def gamma_cdf(mean, burstiness):
    """Gaps of this mean whose standard deviation is `burstiness` times as much."""
    shape = 1 / burstiness ** 2
    return lambda x: regularized_gamma(shape, shape * x / mean) if x > 0 else 0.0


def regularized_gamma(a, x):
    """P(a, x): the lower incomplete gamma function over gamma(a)."""
    if x <= 0:
        return 0.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:  # series
        term = total = 1 / a
        k = a
        while abs(term) > abs(total) * 1e-16:
            k += 1
            term *= x / k
            total += term
        return scale * total
    # Lentz's continued fraction, for 1 - P.
    b = x + 1 - a
    c, d = 1e300, 1 / b
    fraction = d
    for i in range(1, 10000):
        numerator = -i * (i - a)
        b += 2
        d = 1 / (numerator * d + b)
        c = b + numerator / c
        change = c * d
        fraction *= change
        if abs(change - 1) < 1e-15:
            break
    return 1 - scale * fraction


# ---- counts


def chi_square_probability(value, degrees):
    """How likely a chi-square variable is at least `value`."""
    return 1 - regularized_gamma(degrees / 2, value / 2)


def dispersion_probability(counts):
    """How likely Poisson counts of equal means differ among themselves as these do: two-sided."""
    mean = sum(counts) / len(counts)
    above = chi_square_probability(sum((c - mean) ** 2 for c in counts) / mean, len(counts) - 1)
    return 2 * min(above, 1 - above)


# ---- the queue M/D/1: Poisson arrivals, one server, a constant service time


def md1_wait_cdf(wait, rate, service):
    """The share of requests that wait at most `wait` before their service begins (Crommelin)."""
    if wait < 0:
        return 0.0
    # The sum's terms alternate and grow far beyond 1, so that doubles would lose it.
    with decimal.localcontext() as context:
        context.prec = 60 + int(rate * wait)
        load = decimal.Decimal(rate) * decimal.Decimal(service)
        x = decimal.Decimal(wait) / decimal.Decimal(service)
        total = decimal.Decimal(0)
        for k in range(int(x) + 1):
            term = load * (k - x)
            total += (-term).exp() * (term ** k if k else 1) / math.factorial(k)
        return float((1 - load) * total)


def bisect(low, high, is_below):
    """Where `is_below` turns from true to false, to 1e-9 of the range."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2


def md1_latency_quantile(share, rate, service):
    """The time from arrival to answer that `share` of all requests do not exceed."""
    longest = service
    while md1_wait_cdf(longest, rate, service) < share:
        longest *= 2
    return service + bisect(0, longest, lambda w: md1_wait_cdf(w, rate, service) < share)


def md1_highest_rate(share, limit, service):
    """The highest rate at which `share` of all requests are answered within `limit`."""
    if limit <= service:
        return 0.0
    return bisect(0, 1 / service, lambda r: md1_wait_cdf(limit - service, r, service) >= share)
