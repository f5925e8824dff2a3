"""How arrivals and lengths are written on the command line: a name, then settings.

    poisson    constant    gamma:burstiness=0.5    mmpp:rates=2/20,stays=60s/5s    curve:0h=2,8h=20,period=24h
    512    uniform:100-500    lognormal:median=200,p99=4000    0.8*fixed:200+0.2*lognormal:mean=900,cv=2

Raises UsageError that says what was expected where.
"""

from __future__ import annotations

from simbatch.errors import UsageError, unknown
from simbatch.trace.arrivals import Arrivals, Renewal
from simbatch.trace.lengths import Fixed, Lengths, LogNormal, Mixture, Uniform
from simbatch.trace.modulated import Mmpp, RateCurve
from simbatch.units import parse_duration_s

_ARRIVALS = ("poisson", "constant", "gamma", "mmpp", "curve")
_LENGTHS = ("fixed", "uniform", "lognormal")


def parse_arrivals(text: str, rate_per_s: float | None = None, burstiness: float | None = None) -> Arrivals:
    """The arrival process that *text* describes, at *rate_per_s* where given.

    The rates of mmpp and curve are multiplied so that their mean is *rate_per_s*; the others need it.

    >>> parse_arrivals("gamma:burstiness=0.5", 20)
    Renewal(rate_per_s=20, burstiness=0.5)
    """
    name, _, rest = text.strip().partition(":")
    if name not in _ARRIVALS:
        raise unknown("arrival process", name, _ARRIVALS)
    settings = _settings(text, rest)
    if name in ("poisson", "constant", "gamma"):
        if rate_per_s is None:
            raise UsageError(f"arrivals {text!r} need a rate. Add --rate, such as --rate 5.")
        shape = {"poisson": 1.0, "constant": float("inf")}.get(name)
        if shape is None:
            shape = _number(text, settings.pop("burstiness", burstiness if burstiness is not None else "1"))
        elif burstiness is not None:
            raise UsageError(f"arrivals {text!r} have a burstiness of their own. Leave --burstiness out, or use gamma.")
        _refuse_rest(text, settings)
        return Renewal(rate_per_s, shape)
    process: Arrivals
    if name == "mmpp":
        if burstiness is not None:
            raise UsageError("the bursts of an MMPP come from its states. Leave --burstiness out.")
        rates = tuple(_number(text, part) for part in _taken(text, settings, "rates").split("/"))
        stays = tuple(parse_duration_s(part) for part in _taken(text, settings, "stays").split("/"))
        _refuse_rest(text, settings)
        process = Mmpp(rates, stays)
    else:
        period_s = parse_duration_s(_taken(text, settings, "period"))
        points = {_point(time): _number(text, rate) for time, rate in settings.items()}
        shape = 1.0 if burstiness is None else burstiness
        process = RateCurve(tuple(points), tuple(points.values()), period_s, shape)
    return process if rate_per_s is None else process.scaled_to(rate_per_s)


def parse_lengths(text: str) -> Lengths:
    """The distribution of lengths that *text* describes, in tokens.

    >>> parse_lengths("0.8*200+0.2*uniform:100-500")
    Mixture(weights=(0.8, 0.2), parts=(Fixed(tokens=200), Uniform(low=100, high=500)))
    """
    parts = [part.strip() for part in text.split("+")]
    if len(parts) > 1 or "*" in text:
        weights, lengths = [], []
        for part in parts:
            weight, star, rest = part.partition("*")
            if not star:
                raise UsageError(f"{part!r} has no weight in {text!r}. Write such as 0.8*fixed:200+0.2*fixed:900.")
            weights.append(_number(text, weight))
            lengths.append(parse_lengths(rest))
        return Mixture(tuple(weights), tuple(lengths))
    name, colon, rest = text.strip().partition(":")
    if not colon:
        return Fixed(_tokens(text, name))
    if name not in _LENGTHS:
        raise unknown("distribution of lengths", name, _LENGTHS)
    if name == "fixed":
        return Fixed(_tokens(text, rest))
    if name == "uniform":
        low, dash, high = rest.partition("-")
        if not dash:
            raise UsageError(f"{text!r} has one end. Write both, such as uniform:100-500.")
        return Uniform(_tokens(text, low), _tokens(text, high))
    settings = _settings(text, rest)
    values = {key: _number(text, value) for key, value in settings.items()}
    return LogNormal.of(**values) if values.keys() <= LogNormal.SETTINGS else _refuse_setting(text, values)


def _refuse_setting(text: str, values: dict[str, float]) -> Lengths:
    odd = next(key for key in values if key not in LogNormal.SETTINGS)
    raise unknown(f"setting in {text!r}:", odd, LogNormal.SETTINGS)


def _settings(text: str, rest: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise UsageError(f"{part!r} in {text!r} is not NAME=VALUE. Write it so, with commas between.")
        if key in found:
            raise UsageError(f"{key} stands twice in {text!r}. Leave one of the two out.")
        found[key] = value
    return found


def _taken(text: str, settings: dict[str, str], key: str) -> str:
    if key not in settings:
        raise UsageError(f"{text!r} has no {key}. See the examples in: simbatch trace generate --help.")
    return settings.pop(key)


def _refuse_rest(text: str, settings: dict[str, str]) -> None:
    for key in settings:
        raise UsageError(f"{key} in {text!r} has no meaning there. Leave it out.")


def _number(text: str, value: str | float) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{value!r} in {text!r} is not a number. Write such as 0.5.") from None


def _tokens(text: str, value: str) -> int:
    if not (value.strip().isdecimal() and value.isascii()):
        raise UsageError(f"{value!r} in {text!r} is not a number of tokens. Write such as 512 or uniform:100-500.")
    return int(value)


def _point(text: str) -> float:
    return 0.0 if text == "0" else parse_duration_s(text)
