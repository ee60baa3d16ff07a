"""What was measured beside what is aimed at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.service_parts.measures import middle
from benchmarks.service_parts.report import outside_the_engine, rates, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["claims_of"]


def claims_of(measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A claim for everything that was measured: ``claim``, ``value``, ``shown``, ``aim``, ``met``."""
    claims: list[dict[str, Any]] = []

    def at_least(claim: str, value: float, aim: float, form: str = "{:.2f}") -> None:
        shown, aimed = form.format(value), f"at least {form.format(aim)}"
        claims.append({"claim": claim, "value": value, "shown": shown, "aim": aimed, "met": value >= aim})

    def at_most(claim: str, value: float, aim: float, form: str = "{:.2f}") -> None:
        shown, aimed = form.format(value), f"at most {form.format(aim)}"
        claims.append({"claim": claim, "value": value, "shown": shown, "aim": aimed, "met": value <= aim})

    many = measured.get("rates", {})
    if {"murho", "fastapi"} <= many.keys():
        to_fastapi = ratio(rates(many["murho"]), rates(many["fastapi"]))
        at_least("32 connections: requests a second, to a bare FastAPI route", to_fastapi, 0.55)
        if peers := measured["peers_to_fastapi"]:
            best = max(peers, key=lambda name: peers[name])
            at_least(f"32 connections: to the better peer ({best})", to_fastapi / peers[best], 2.0)
    if small := measured.get("one_row"):
        bare = middle([done["latency"]["p50"] for done in measured["one_connection"]["fastapi"]])
        value = middle([one["latency"] / (one["engine"] + bare) for one in small])
        at_most("1 connection: latency, to Posterior.predict and a bare route together", value, 1.5)
    if half := measured.get("half_load"):
        at_most(
            "half the load: p99 to the median", middle([d["latency"]["p99"] / d["latency"]["p50"] for d in half]), 4
        )
    for name, title, aim in (
        ("json_records", "1,000 rows, JSON records: time outside the engine", 0.35),
        ("json_columns", "1,000 rows, JSON columns: time outside the engine", 0.35),
        ("arrow", "100,000 rows x 16, Arrow, S = 64: time outside the engine", 0.10),
    ):
        if rounds := measured.get(name):
            at_most(title, outside_the_engine(rounds), aim, "{:.0%}")
    if many:
        for name, title in (("mixed", "different options, four seeds"), ("new_seeds", "a new seed in every request")):
            if rounds := measured.get(name):
                to_same = ratio(rates(rounds), rates(many["murho"]))
                at_least(f"32 connections, {title}: to the same options in all", to_same, 0.5)
    if over := measured.get("overload"):
        at_least("3 x overload: answers, to what it can do", over["goodput"] / over["capacity"], 0.9)
        refusal = over["refusal"]["p50"] if over["refusal"] else float("nan")
        at_most("3 x overload: median time of a refusal, ms", 1e3 * refusal, 50.0, "{:.0f}")
        at_most(
            "3 x overload: memory at the end to the beginning", over["memory"]["end"] / over["memory"]["begin"], 1.05
        )
        at_most("3 x overload: /healthz, slowest, ms", 1e3 * over["healthz"]["max"], 100.0, "{:.0f}")
        recovery = over["recovery"]
        at_most("3 x overload: recovered after, s", float("inf") if recovery is None else recovery, 1.0)
    return claims
