"""The tables of `benchmarks.service`, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.results import table
from benchmarks.service_parts.measures import middle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["claims_table", "outside_the_engine", "overload_lines", "ratio", "servers_table"]


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """The median of the rounds' ratios; both of the same round saw the same other load on the machine."""
    return middle([top / bottom for top, bottom in zip(one, other, strict=False) if bottom])


def rates(rounds: Sequence[Mapping[str, Any]]) -> list[float]:
    """Requests a second in each round."""
    return [one["rate"] for one in rounds]


def servers_table(
    titles: Mapping[str, str], many: Mapping[str, Sequence[Any]], one: Mapping[str, Sequence[Any]]
) -> str:
    """A line a server: requests a second with 32 connections, to bare FastAPI, latencies, and what went wrong.

    The processor time of a request, of the event loop's thread and of all, says more than rates on a busy machine.
    """
    lines = []
    for name, rounds in many.items():
        bad = sum(done["wrong"] + done["lost"] for done in rounds)
        bad += sum(count for done in rounds for status, count in done["count"].items() if status != "200")
        to_fastapi = f"{ratio(rates(rounds), rates(many['fastapi'])):.2f}" if "fastapi" in many else "-"
        lines.append(
            [
                titles[name],
                f"{middle(rates(rounds)):,.0f}",
                to_fastapi,
                _ms(rounds, "p50"),
                _ms(rounds, "p99"),
                _ms(one[name], "p50"),
                _processor(rounds),
                str(bad),
            ]
        )
    headers = ["one row, S = 256", "requests/s", "to FastAPI", "median, ms", "p99, ms", "1 connection, ms"]
    return table([*headers, "processor, us: loop, all", "not 200"], lines)


def _processor(rounds: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{1e6 * middle([one['per_request'][part] for one in rounds]):.0f}" for part in ("first", "all"))


def _ms(rounds: Sequence[Mapping[str, Any]], level: str) -> str:
    values = [done["latency"][level] for done in rounds if done["latency"] is not None]
    return f"{1e3 * middle(values):.2f}" if values else "-"


def outside_the_engine(rounds: Sequence[Mapping[str, float]]) -> float:
    """The share of a request's time that `Posterior.predict` alone does not take; the median of the rounds."""
    return middle([1.0 - one["engine"] / one["latency"] for one in rounds])


def claims_table(claims: Sequence[Mapping[str, Any]]) -> str:
    """A line a claim: what was measured, the aim, and whether it is met."""
    lines = [[one["claim"], one["shown"], one["aim"], "yes" if one["met"] else "no"] for one in claims]
    return table(["claim", "measured", "aim", "met"], lines)


def overload_lines(measured: Mapping[str, Any]) -> str:
    """What happened in the overload, in sentences."""
    counts = ", ".join(f"{count:,} answers {status}" for status, count in measured["count"].items())
    memory = measured["memory"]
    return (
        f"{measured['seconds']:.0f} s at {measured['offered']:,.0f} requests a second, three times what it can do: "
        f"{counts}; {measured['lost']} lost, {measured['wrong']} of a wrong length.\n"
        f"Memory {memory['begin'] / 2**20:.0f} MiB at the beginning, {memory['end'] / 2**20:.0f} at the end, at most "
        f"{memory['max'] / 2**20:.0f}. The load generator took {measured['load_processor']:.1f} processor seconds."
    )
