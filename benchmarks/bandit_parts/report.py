"""Table and figure of the bandit benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from benchmarks.results import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["figure", "render", "summary"]

COLOURS = {
    "murho": "#134b80",
    "linear": "#e07b00",
    "linear-known-noise": "#c9a227",
    "greedy": "#1b7a46",
    "epsilon-1": "#4fb37c",
    "epsilon-5": "#9ed3b5",
    "squarecb": "#a23b72",
    "uniform": "#999999",
}
OTHER = "#000000"
"""Colour of a peer that has none yet."""
BASELINE = "linear"
"""What the names of the linear agents begin with."""


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean regret over seeds, its standard error, its share of the uniform agent's, and the mean time of a run."""
    regrets = np.array([run["regret"] for run in runs])
    error = float(regrets.std(ddof=1) / len(regrets) ** 0.5) if len(regrets) > 1 else None
    return {
        "seeds": len(runs),
        "regret": float(regrets.mean()),
        "error": error,
        "least": float(regrets.min()),
        "most": float(regrets.max()),
        "share_of_uniform": float(regrets.mean() / np.mean([run["uniform"] for run in runs])),
        "seconds": float(np.mean([run["seconds"] for run in runs])),
    }


def render(title: str, rows: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """A table with a line an agent.

    Args:
        title: First line.
        rows: Agent → `summary`, in the order of the table.
        titles: Agent → its title.
    """
    # The better of the linear agents is the mark.
    linear = min((row["regret"] for name, row in rows.items() if name.startswith(BASELINE)), default=None)
    lines = [
        [
            titles[name],
            str(row["seeds"]),
            f"{row['regret']:,.0f}" if row["error"] is None else f"{row['regret']:,.0f} ± {row['error']:,.0f}",
            f"{row['least']:,.0f} to {row['most']:,.0f}",
            f"{100.0 * row['share_of_uniform']:.2f}",
            "" if linear is None else f"{row['regret'] / linear:.2f}",
            f"{row['seconds']:.0f}",
        ]
        for name, row in rows.items()
    ]
    headers = ["agent", "seeds", "regret ± s.e.", "range", "% of uniform", "to linear", "s a seed"]
    return f"{title}\n\n{table(headers, lines)}"


def figure(
    title: str, runs: Mapping[str, Sequence[Mapping[str, Any]]], titles: Mapping[str, str], decisions: int
) -> dict[str, Any]:
    """Mean cumulative regret of each agent, with a band of one standard error, on logarithmic axes, as Vega-Lite.

    Args:
        title: Title of the figure.
        runs: Agent → its runs.
        titles: Agent → its title.
        decisions: T.
    """
    rows = []
    for name, finished in runs.items():
        curves = np.array([run["curve"] for run in finished])
        mean = curves.mean(axis=0)
        error = curves.std(axis=0, ddof=1) / len(curves) ** 0.5 if len(curves) > 1 else np.zeros_like(mean)
        steps = np.linspace(0, decisions, len(mean) + 1)[1:]
        # On a logarithmic axis nearly all of the evenly spaced points would be at the right.
        shown = np.unique(np.round(np.geomspace(1, len(mean), 120)).astype(int)) - 1
        rows += [
            {
                "agent": titles[name],
                "decisions": float(steps[place]),
                "regret": max(1.0, float(mean[place])),
                "low": max(1.0, float(mean[place] - error[place])),
                "high": max(1.0, float(mean[place] + error[place])),
            }
            for place in shown
        ]
    order = [titles[name] for name in runs]
    colour = alt.Color(
        "agent:N",
        sort=order,
        scale=alt.Scale(domain=order, range=[COLOURS.get(name, OTHER) for name in runs]),
        legend=alt.Legend(
            title=None, labelLimit=400, labelFontSize=13, symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1.0
        ),
    )
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("decisions:Q", scale=alt.Scale(type="log", nice=False), title="decisions"),
        color=colour,
    )
    y = alt.Y("regret:Q", scale=alt.Scale(type="log"), title="cumulative regret (expected, against the oracle)")
    band = base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", scale=alt.Scale(type="log")), y2="high:Q")
    line = base.mark_line(strokeWidth=2.2).encode(y=y)
    chart = (
        alt.layer(band, line)
        .properties(
            width=640,
            height=400,
            title=alt.TitleParams(
                title, subtitle="mean over seeds; bands of one standard error; both axes logarithmic"
            ),
        )
        .configure(font="DejaVu Sans, Verdana, sans-serif", background="white", padding=16)
        .configure_title(anchor="start", fontSize=18, subtitleFontSize=13, subtitleColor="#444444", offset=12)
        .configure_axis(labelFontSize=13, titleFontSize=13, titleFontWeight="normal", gridColor="#eeeeee")
        .configure_view(stroke="#bbbbbb")
    )
    specification: dict[str, Any] = chart.to_dict()
    return specification
