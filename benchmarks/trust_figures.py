"""The figures of ``docs/trust.md``: ``python -m benchmarks.trust_figures`` draws them into ``docs/``.

``trust-parts.png`` splits the std of answers along the one feature of a made-up table, whose noise is known and which
has a gap. ``trust-coverage.png`` counts how often 90 % bands hold, on all held-out cars and on parts of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.results import ROOT, table
from murho import BBBRegressor
from murho.model.predictive.prediction import PredictOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["coverage_figure", "main", "parts_figure"]

GAP = (4.0, 7.0)
LEARNED = (0.0, 10.0)
CHOICES = {"noise": "heteroscedastic", "target_transform": "none", "encoding": "standard", "random_state": 0}
BLUE, PALE, RED, GREY = "#1f6fb2", "#d9e8f6", "#d9480f", "#666666"


def made_up(rows: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inputs ``[N]`` outside of the gap, and targets ``[N]`` with noise of `noise_std`."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(*LEARNED, 2 * rows)
    x = x[(x < GAP[0]) | (x > GAP[1])][:rows]
    return x, truth(x) + noise_std(x) * rng.standard_normal(len(x))


def truth(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The true function, ``[B]``."""
    return 3.0 * np.sin(x) + x


def noise_std(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The true standard deviation of the noise, ``[B]``."""
    return 0.3 + 0.15 * np.clip(x, *LEARNED)


def parts_figure(*, epochs: int = 400) -> Any:
    """The predictions over the feature, and both parts of their std beside the true noise, as an Altair chart."""
    x, y = made_up(400, seed=0)
    model = BBBRegressor(**CHOICES, temperature=0.3, epochs=epochs).fit(pd.DataFrame({"x": x}), y)
    grid = np.linspace(-3.0, 13.0, 241)
    answer = model.posterior_.predict({"x": grid}, PredictOptions(samples=1024, percentiles=(5.0, 95.0)))
    if answer.percentiles is None or answer.epistemic_std is None or answer.aleatoric_std is None:
        raise AssertionError("an answer from draws has percentiles and both parts of std")
    rows = pd.DataFrame(
        {
            "x": grid,
            "mean": answer.mean,
            "low": answer.percentiles[:, 0],
            "high": answer.percentiles[:, 1],
            "doubt: epistemic_std": answer.epistemic_std,
            "noise: aleatoric_std": answer.aleatoric_std,
            "true noise": noise_std(grid),
            "truth": truth(grid),
        }
    )
    axis = alt.X("x:Q", title="feature", scale=alt.Scale(domain=[-3, 13], nice=False))
    base = alt.Chart(rows).encode(x=axis)
    points = alt.Chart(pd.DataFrame({"x": x, "y": y})).mark_circle(color=GREY, size=10).encode(x=axis, y="y:Q")
    band = base.mark_area(color=PALE).encode(y=alt.Y("low:Q", title="target"), y2="high:Q")
    mean = base.mark_line(color=BLUE).encode(y="mean:Q")
    true = base.mark_line(color=GREY, strokeDash=[4, 3], clip=True).encode(y="truth:Q")
    above = (band + points + true + mean).properties(width=640, height=220)
    kinds = ["doubt: epistemic_std", "noise: aleatoric_std", "true noise"]
    below = (
        base.transform_fold(kinds, as_=["part", "std"])
        .mark_line()
        .encode(
            y=alt.Y("std:Q", title="standard deviation"),
            color=alt.Color(
                "part:N",
                title=None,
                sort=kinds,
                scale=alt.Scale(domain=kinds, range=[BLUE, RED, GREY]),
                legend=alt.Legend(orient="top"),
            ),
            strokeDash=alt.condition(alt.datum.part == "true noise", alt.value([4, 3]), alt.value([1, 0])),
        )
        .properties(width=640, height=170)
    )
    return alt.vconcat(above, below)


def coverage_figure(*, splits: int = 8, epochs: int = 100) -> tuple[Any, pd.DataFrame]:
    """How often calibrated 90 % bands hold, over splits: an Altair chart, and its shares with their standard errors."""
    cars = pd.read_csv(ROOT / "examples" / "cars.csv").dropna(subset="Miles_per_Gallon")
    shares: dict[str, list[float]] = {"all": [], "USA": [], "Europe": [], "Japan": []}
    for split in range(splits):
        known, asked = train_test_split(cars, test_size=0.3, random_state=split)
        held = _held(known, asked, epochs)
        shares["all"].append(float(held.mean()))
        for origin in ("USA", "Europe", "Japan"):
            shares[origin].append(float(held[asked["Origin"] == origin].mean()))
    rows = pd.DataFrame(
        {
            "cars": [f"held out at random: {name}" for name in shares],
            "share": [np.mean(values) for values in shares.values()],
            "error": [np.std(values, ddof=1) / np.sqrt(splits) for values in shares.values()],
        }
    )
    held = _held(cars[cars["Year"] <= "1976-12-31"], cars[cars["Year"] >= "1979-01-01"], epochs)
    error = np.sqrt(held.mean() * (1.0 - held.mean()) / len(held))
    rows.loc[len(rows)] = ["1979 on, learned up to 1976", held.mean(), error]
    rows["low"], rows["high"] = rows["share"] - rows["error"], rows["share"] + rows["error"]
    base = alt.Chart(rows).encode(y=alt.Y("cars:N", sort=list(rows["cars"]), title=None, axis=alt.Axis(labelLimit=250)))
    scale = alt.Scale(domain=[0.5, 1.0])
    dots = base.mark_point(filled=True, size=90, color=BLUE).encode(
        x=alt.X("share:Q", title="share of cars in their calibrated 90 % band", scale=scale, axis=alt.Axis(format="%"))
    )
    bars = base.mark_rule(color=BLUE, strokeWidth=2).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    line = alt.Chart(pd.DataFrame({"share": [0.9]})).mark_rule(color=RED, strokeDash=[4, 3]).encode(x="share:Q")
    return (line + bars + dots).properties(width=520, height=150), rows


def _held(known: pd.DataFrame, asked: pd.DataFrame, epochs: int) -> NDArray[np.bool_]:
    """Whether the target of each asked row lies in its calibrated 90 % band, ``[B]``."""
    target = "Miles_per_Gallon"
    model = BBBRegressor(**CHOICES | {"target_transform": "log"}, temperature=0.1, epochs=epochs)
    model.fit(known.drop(columns=target), known[target])
    low, high = model.predict_quantiles(asked.drop(columns=target), quantiles=(0.05, 0.95)).T
    truths = asked[target].to_numpy()
    return np.asarray((low <= truths) & (truths <= high))


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws both figures and prints the shares."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trust_figures", description="Draws the figures of docs/trust.md."
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs", metavar="DIR")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    parts_figure().save(options.output / "trust-parts.png", scale_factor=1.5)
    figure, rows = coverage_figure()
    figure.save(options.output / "trust-coverage.png", scale_factor=1.5)
    shown = [
        (name, f"{share:.1%}", f"{error:.1%}")
        for name, share, error in zip(rows["cars"], rows["share"], rows["error"], strict=True)
    ]
    print(table(("cars", "in their 90 % band", "±"), shown))


if __name__ == "__main__":
    main()
