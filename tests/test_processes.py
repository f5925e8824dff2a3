"""Arrival processes and lengths have the moments they promise.

Tolerances are five standard errors by theory, so that about one case in a million would fail by chance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbatch.errors import UsageError
from simbatch.trace import Trace
from simbatch.trace.arrivals import Renewal
from simbatch.trace.generate import generate
from simbatch.trace.lengths import Fixed, LogNormal, Mixture, Uniform
from simbatch.trace.modulated import Mmpp, RateCurve
from simbatch.trace.specs import parse_arrivals, parse_lengths
from simbatch.trace.statistics import dispersion
from simbatch.units import PS_PER_S

SIGMAS = 5
SEEDS = st.integers(0, 2**32)


def within(value: float, expected: float, standard_error: float) -> None:
    assert abs(value - expected) <= SIGMAS * standard_error, (value, expected, standard_error)


def gaps_s(times_ps: np.ndarray) -> np.ndarray:
    return np.diff(times_ps, prepend=0) / PS_PER_S


# -- arrivals --------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(rate=st.sampled_from([0.01, 1.0, 37.0]), burstiness=st.sampled_from([0.1, 0.5, 1.0, 4.0]), seed=SEEDS)
def test_gaps_have_the_mean_and_the_variation_of_their_burstiness(rate: float, burstiness: float, seed: int) -> None:
    n = 40_000
    gaps = gaps_s(Renewal(rate, burstiness).times_ps(n, seed))
    cv = 1 / math.sqrt(burstiness)
    within(gaps.mean() * rate, 1.0, cv / math.sqrt(n))
    # By the delta method, for a Gamma distribution: Var(cv) = cv² (1 + 1/b) / 2n; heavy tails add their own.
    within(gaps.std() / gaps.mean(), cv, cv * math.sqrt((0.5 + 0.5 / burstiness) / n))


def test_constant_gaps_are_constant_to_the_last_picosecond() -> None:
    for rate in (3.0, 7.0, 0.1):
        times = Renewal(rate, math.inf).times_ps(100_000)
        ideal = np.arange(1, 100_001) * (PS_PER_S / rate)
        # 53 bits of a double at 10⁶ s are worth 116 ps.
        assert np.abs(times - ideal).max() <= 200
    assert Renewal(4.0, math.inf).times_ps(3).tolist() == [250_000_000_000, 500_000_000_000, 750_000_000_000]


def _dispersion_of_mmpp(process: Mmpp, window_s: float) -> float:
    """Index of dispersion of the counts of a two-state MMPP, in closed form (Fischer and Meier-Hellstern 1993)."""
    (a, b), (p, q) = process.rates_per_s, (1 / stay for stay in process.stays_s)
    speed = p + q
    excess = 2 * p * q * (a - b) ** 2 / (speed**2 * (a * q + b * p))
    return 1 + excess * (1 - (1 - math.exp(-speed * window_s)) / (speed * window_s))


@pytest.mark.parametrize("window_s", [1, 10])
@pytest.mark.parametrize("rates", [(0.0, 10.0), (2.0, 20.0)])
def test_mmpp_has_the_rate_and_the_dispersion_of_its_states(rates: tuple[float, float], window_s: int) -> None:
    process = Mmpp(rates, (3.0, 1.0))
    n = 400_000
    times = process.times_ps(n, seed=5)
    span_s = times[-1] / PS_PER_S
    forever = _dispersion_of_mmpp(process, 1e6)
    within(n / span_s / process.rate_per_s, 1.0, math.sqrt(forever / n))
    # Windows that lie closer than the states last are not independent; kurtosis of the counts is at most 9 here.
    memory_s = 1 / sum(1 / stay for stay in process.stays_s)
    independent = span_s / max(window_s, 2 * memory_s)
    expected = _dispersion_of_mmpp(process, window_s)
    found = dispersion(times, window_s)
    assert found is not None
    within(found / expected, 1.0, math.sqrt(8 / independent))


def test_poisson_arrivals_have_a_dispersion_of_one_at_any_window() -> None:
    times = Renewal(50.0).times_ps(400_000, seed=2)
    for window_s in (1, 10, 60):
        windows = times[-1] / PS_PER_S / window_s
        found = dispersion(times, window_s)
        assert found is not None
        within(found, 1.0, math.sqrt(2 / windows))
    assert dispersion(times[:100], 1) is None


def test_a_curve_has_its_rate_in_every_piece_of_every_period() -> None:
    day = RateCurve((0, 8 * 3600, 20 * 3600), (0.5, 2.0, 0.0), 24 * 3600)
    assert day.rate_per_s == pytest.approx((8 * 0.5 + 12 * 2) / 24)
    times = day.times_ps(500_000, seed=4) / PS_PER_S
    whole_days = int(times[-1] // 86_400)
    hour = (times % 86_400) / 3600
    inside = times < whole_days * 86_400
    for low, high, rate in ((0, 8, 0.5), (8, 20, 2.0), (20, 24, 0.0)):
        count = int(((hour >= low) & (hour < high) & inside).sum())
        expected = rate * (high - low) * 3600 * whole_days
        within(count, expected, math.sqrt(expected))
    assert whole_days >= 4


def test_a_curve_may_be_burstier_than_poisson() -> None:
    flat = RateCurve((0,), (10.0,), 60.0, burstiness=0.25)
    gaps = gaps_s(flat.times_ps(40_000, seed=1))
    within(gaps.std() / gaps.mean(), 2.0, 2.0 * math.sqrt(2.5 / 40_000))


@pytest.mark.parametrize(
    "text",
    [
        "poisson",
        "constant",
        "gamma:burstiness=0.5",
        "mmpp:rates=2/20,stays=60s/5s",
        "curve:0h=2,8h=20,20h=5,period=24h",
    ],
)
def test_a_process_can_be_written_and_given_any_rate(text: str) -> None:
    process = parse_arrivals(text, 7.0)
    assert process.rate_per_s == pytest.approx(7.0)
    assert process.scaled_to(3.0).rate_per_s == pytest.approx(3.0)
    times = process.times_ps(50, seed=1)
    assert times.dtype == np.int64
    assert (np.diff(times) >= 0).all()
    assert np.array_equal(times, process.times_ps(50, seed=1))
    assert text == "constant" or not np.array_equal(times, process.times_ps(50, seed=2))


BAD_ARRIVALS: list[tuple[dict[str, Any], str]] = [
    ({"text": "posson", "rate_per_s": 1}, "unknown arrival process 'posson'. Did you mean poisson?"),
    ({"text": "poisson"}, "arrivals 'poisson' need a rate. Add --rate, such as --rate 5."),
    (
        {"text": "constant", "rate_per_s": 1, "burstiness": 2},
        "arrivals 'constant' have a burstiness of their own. Leave --burstiness out, or use gamma.",
    ),
    (
        {"text": "gamma:shape=2", "rate_per_s": 1},
        "shape in 'gamma:shape=2' has no meaning there. Leave it out.",
    ),
    (
        {"text": "mmpp:rates=2/20", "rate_per_s": 1},
        "'mmpp:rates=2/20' has no stays. See the examples in: simbatch trace generate --help.",
    ),
    (
        {"text": "mmpp:rates=2,stays=1s"},
        "an MMPP has 1 rates and 1 stays. Give one of each for at least two states, "
        "such as mmpp:rates=2/20,stays=60s/5s.",
    ),
    ({"text": "mmpp:rates=2/x,stays=1s/2s"}, "'x' in 'mmpp:rates=2/x,stays=1s/2s' is not a number. Write such as 0.5."),
    ({"text": "mmpp:rates=2/3,stays=1/2"}, "the duration '1' has no unit. Write 1ms or 1s."),
    ({"text": "mmpp:rates=2/-1,stays=1s/2s"}, "an MMPP has a rate of -1 requests per second. Give 0 or more."),
    (
        {"text": "mmpp:rates=2/3,stays=1s/2s", "burstiness": 2},
        "the bursts of an MMPP come from its states. Leave --burstiness out.",
    ),
    (
        {"text": "curve:8h=2,period=24h"},
        "a rate curve begins at 0 and has a rate for each time. Write ",
    ),
    (
        {"text": "curve:0h=2,9h=1,8h=3,period=24h"},
        "the times of a rate curve are 0, 32400, 28800 s with a period of 86400 s, "
        "but each has to be later than the one before. Put them in order.",
    ),
    ({"text": "curve:0h=2"}, "'curve:0h=2' has no period. See the examples in: simbatch trace generate --help."),
    ({"text": "gamma:burstiness", "rate_per_s": 1}, "'burstiness' in 'gamma:burstiness' is not NAME=VALUE. Write it "),
]


@pytest.mark.parametrize(("call", "message"), BAD_ARRIVALS)
def test_arrivals_that_make_no_sense_are_refused(call: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_arrivals(**call)
    assert str(error.value).startswith(message)


# -- lengths ---------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_lengths_have_the_moments_they_promise(seed: int) -> None:
    random, n = np.random.default_rng(seed), 40_000
    assert set(Fixed(7).draw(5, random).tolist()) == {7}
    uniform = Uniform(10, 20).draw(n, random)
    assert (uniform.min(), uniform.max()) == (10, 20)
    within(uniform.mean(), 15, math.sqrt((11**2 - 1) / 12 / n))
    logs = np.log(LogNormal.of(median=2000, p99=40_000).draw(n, random))
    sigma = math.log(20) / 2.3263478740408408
    within(logs.mean(), math.log(2000), sigma / math.sqrt(n))
    within(logs.std(), sigma, sigma / math.sqrt(2 * n))
    mixed = Mixture((3, 1), (Fixed(1), Fixed(5))).draw(n, random)
    within((mixed == 5).mean(), 0.25, math.sqrt(0.25 * 0.75 / n))


def test_log_normal_lengths_by_mean_and_variation_and_with_a_most() -> None:
    random, n = np.random.default_rng(1), 400_000
    lengths = LogNormal.of(mean=5000, cv=0.5).draw(n, random)
    within(lengths.mean(), 5000, 2500 / math.sqrt(n))
    capped = LogNormal.of(median=100, sigma=2, max=150).draw(10_000, random)
    assert (capped.min(), capped.max()) == (1, 150)
    # Drawn again, not cut: nothing piles up at the end.
    assert (capped == 150).mean() < 0.02


BAD_LENGTHS = [
    ("x", "'x' in 'x' is not a number of tokens. Write such as 512 or uniform:100-500."),
    ("0", "a length is 0 tokens. Give a whole number from 1 to 2147483647."),
    ("uniform:5", "'uniform:5' has one end. Write both, such as uniform:100-500."),
    ("uniform:9-5", "a uniform length from 9 to 5 has no room. Put the smaller one first."),
    ("normal:5", "unknown distribution of lengths 'normal'. Did you mean lognormal"),
    ("lognormal:median=5", "a log-normal length is given by median. Give median and p99, or one of median and mean "),
    ("lognormal:mean=5,p99=9", "a log-normal length is given by mean, p99. Give median and p99, or one of median and "),
    ("lognormal:median=5,p99=4", "a log-normal length has median=5, p99=4. Give a positive centre, and a spread that"),
    ("lognormal:median=5,spread=1", "unknown setting in 'lognormal:median=5,spread=1': 'spread'."),
    ("lognormal:median=9,sigma=1,max=5", "a log-normal length has a median of 9, a sigma of 1 and at most 5 tokens. "),
    ("lognormal:median=5,median=6", "median stands twice in 'lognormal:median=5,median=6'. Leave one of the two out."),
    ("5+6", "'5' has no weight in '5+6'. Write such as 0.8*fixed:200+0.2*fixed:900."),
    ("0*5+1*6", "the weights of a mixture are 0.0, 1.0. Give positive ones."),
]


@pytest.mark.parametrize(("text", "message"), BAD_LENGTHS)
def test_lengths_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_lengths(text)
    assert str(error.value).startswith(message)


# -- whole traces ----------------------------------------------------------------------------------


def test_a_made_up_trace_says_how_it_was_made_and_its_parts_do_not_disturb_each_other() -> None:
    one = generate(500, "uniform:10-500", "20", rate_per_s=5, seed=3)
    other = generate(500, "lognormal:median=9,p99=99", "20", rate_per_s=5, seed=3)
    assert np.array_equal(one.arrival_ps, other.arrival_ps)
    assert one == generate(500, "uniform:10-500", "20", rate_per_s=5, seed=3)
    assert one.rule == "made up by simbatch: requests=500, prompt=uniform:10-500, output=20, seed=3"
    assert one.transforms == ("arriving(Renewal(rate_per_s=5, burstiness=1.0), seed=3)",)
    assert generate(3, "5", "6").arrival_ps is None


def test_rows_of_a_trace_keep_prompt_and_output_together() -> None:
    source = Trace.from_lengths(range(1, 101), range(1001, 1101))
    made = generate(300, lengths_of=source, seed=1)
    assert (made.output_tokens - made.prompt_tokens == 1000).all()
    assert len(set(made.prompt_tokens.tolist())) > 50


def test_prefix_groups_are_drawn_by_zipf_and_shared_before_the_prompt() -> None:
    n, groups, zipf = 20_000, 4, 1.0
    trace = generate(n, "100", "1", prefix_groups=groups, prefix="uniform:10-50", zipf=zipf, seed=2)
    weights = 1 / np.arange(1, groups + 1) ** zipf
    shares = weights / weights.sum()
    names = np.array(trace.prefix["prefix_group"])
    for group, share in enumerate(shares.tolist()):
        within((names == f"g{group}").mean(), share, math.sqrt(share * (1 - share) / n))
    segments = trace.segments(0)
    assert segments is not None
    shared, own = segments
    assert shared[0].startswith("g:g")
    assert own == ("r:0", 0, 100)
    assert trace.prompt_tokens[0] == shared[2] + 100


def test_made_up_sessions_gather_their_history_and_think() -> None:
    trace = generate(
        10_000, "10", "5", turns="3", think_s=2, prefix_groups=1, prefix="7", arrivals="poisson", rate_per_s=6, seed=1
    )
    assert trace.session is not None
    assert trace.session[:4] == ("0", "0", "0", "1")
    assert trace.prompt_tokens[:4].tolist() == [17, 32, 47, 17]
    assert trace.segments(1) == (("g:g0", 0, 7), ("r:0.0", 0, 10), ("o0.0", 0, 5), ("r:0.1", 0, 10))
    assert trace.think_ps is not None
    within(trace.think_ps.mean() / PS_PER_S, 2.0, 2.0 / math.sqrt(10_000))
    assert trace.arrival_ps is not None
    # Sessions begin at a third of the rate of the requests, and their turns have that time.
    assert trace.arrival_ps[0] == trace.arrival_ps[2] < trace.arrival_ps[3]
    starts = trace.arrival_ps[::3]
    within(len(starts) / (starts[-1] / PS_PER_S) / 2.0, 1.0, 1 / math.sqrt(len(starts)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"requests": 0}, "0 requests were asked for, but a trace has at least 1. Ask for more."),
        (
            {"requests": 1},
            "lengths are missing. Give a prompt and an output distribution, or a trace to draw them from.",
        ),
        (
            {"requests": 1, "prompt": "5", "lengths_of": Trace.from_lengths([1], [1])},
            "lengths of a trace and distributions of lengths were given. Leave one of the two out.",
        ),
        (
            {"requests": 1, "prompt": "5", "output": "5", "prefix_groups": 2},
            "shared prefixes need a number of groups and a length. Give both, or neither.",
        ),
        (
            {"requests": 1, "prompt": "5", "output": "5", "prefix_groups": 2, "prefix": "5", "zipf": -1},
            "there are 2 prefix groups with a Zipf exponent of -1. Give at least 1 group, and 0 or more.",
        ),
        (
            {"requests": 2, "prompt": "2000000000", "output": "500000000", "turns": "2"},
            "a prompt has 4500000000 tokens, but the most that can be simulated is 2147483647. Ask for less.",
        ),
    ],
)
def test_traces_that_cannot_be_made_are_refused(call: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        generate(**call)
    assert str(error.value) == message
