"""Draws figures of the documentation into ``docs/``: ``python -m scripts.figures NAME``.

``answer.png``: predictions of a model of weight alone, also far beyond the training range. With one feature nothing is
held fixed behind the picture: the band at a weight is for all cars of that weight, so it can be compared with the dots.
The checkpoint is made by `TRAIN`. ``trust-parts.png`` splits the std of answers along the one feature of a made-up
table, whose noise is known and which has a gap; ``trust-coverage.png`` counts how often 90 % bands hold, on all
held-out cars and on parts of them. ``bandits.png`` has the runs of the last `benchmarks.mushroom`, ``mnist.png`` the
weights of the last `benchmarks.mnist`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import altair as alt
import numpy as np
import orjson
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.mushroom import title_of
from benchmarks.results import DEFAULT_OUTPUT, ROOT, table
from murho import BBBRegressor
from murho.model.checkpoint.checkpoint import DEFAULT_ROOT
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.stores import DirectoryStore
from murho.model.errors import MurhoError, OptionError
from murho.model.predictive.prediction import PredictOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

PALE, MIDDLE, DARK, GREY = "#d9e8f6", "#94bfe3", "#134b80", "#666666"
COLOURS = (DARK, "#c2410c", "#4d7c0f", "#7e22ce", "#e07b00", "#c9a227", "#4fb37c", "#a23b72")
"""For lines beside each other."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of a chart: title with the unit, ends (None: those of the marks), scale, d3 format of numbers.

    Without a format numbers are written as the axis would.
    """

    title: str
    ends: tuple[float, float] | None = None
    logarithmic: bool = False
    format: str = ""

    def scale(self) -> alt.Scale:
        """For Altair."""
        options: dict[str, Any] = {} if self.ends is None else {"domain": list(self.ends)}
        kind: Any = {"type": "log"} if self.logarithmic else {"zero": False}
        return alt.Scale(nice=False, **kind, **options)


@dataclass(frozen=True, slots=True)
class Layer:
    """A band, a line or points; of several lines in the same style ``y`` is ``[lines, B]``.

    Attributes:
        kind: What it is.
        label: Its entry in the legend.
        x: ``[B]``.
        y: ``[B]``; of a band its lower edge.
        upper: Upper edge of a band.
        colour: Of it all.
        size: Width of a line, pixels, or size of a point, square pixels.
        dash: Lengths of dashes and gaps of a line.
    """

    kind: Literal["band", "line", "points"]
    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    upper: NDArray[np.float64] | None = None
    colour: str = DARK
    size: float = 2.2
    dash: Sequence[int] = field(default=(1, 0))


def chart(
    layers: Sequence[Layer],
    x: Axis,
    y: Axis,
    *,
    title: str,
    subtitle: Sequence[str] = (),
    rules: Mapping[float, str] | None = None,
    width: int = 760,
    height: int = 400,
) -> Any:
    """Return an Altair chart with its data; charts can be put beside each other with ``|``.

    Args:
        layers: From the back to the front.
        x: Horizontal axis.
        y: Vertical axis.
        title: Title.
        subtitle: Lines below the title.
        rules: Vertical lines: x → caption.
        width: Of the plot, pixels.
        height: Of the plot.
    """
    labels = {layer.label: layer.colour for layer in layers}
    across = alt.X("x:Q", title=x.title, scale=x.scale(), axis=alt.Axis(grid=False, format=x.format, tickCount=8))
    up = alt.Y("y:Q", title=y.title, scale=y.scale(), axis=alt.Axis(format=y.format, tickCount=7))
    colour = alt.Color(
        "label:N",
        scale=alt.Scale(domain=list(labels), range=list(labels.values())),
        legend=alt.Legend(orient="top", title=None, labelLimit=0, columns=3, symbolOpacity=1.0),
    )
    marks = [_mark(layer).encode(x=across, y=up, color=colour) for layer in layers]
    for place, caption in (rules or {}).items():
        base = alt.Chart(alt.Data(values=[{"x": place}])).encode(x=across)
        text = base.mark_text(color=GREY, align="left", dx=4, dy=8, fontSize=12, text=caption).encode(y=alt.value(0))
        marks += [base.mark_rule(color=GREY, strokeDash=[2, 3]), text]
    heading = alt.TitleParams(title, subtitle=list(subtitle), anchor="start")
    return alt.layer(*marks).properties(width=width, height=height, title=heading)


def _mark(layer: Layer) -> Any:
    lines = np.atleast_2d(layer.y)
    columns: dict[str, Any] = {"x": np.tile(layer.x, len(lines)), "y": lines.ravel()}
    columns["line"] = np.repeat(np.arange(len(lines)), len(layer.x))
    if layer.upper is not None:
        columns["upper"] = layer.upper
    cells = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    base = alt.Chart(alt.Data(values=[dict(zip(columns, row, strict=True)) for row in cells]))
    base = base.transform_calculate(label=f'"{layer.label}"')
    if layer.kind == "band":
        return base.mark_area(clip=True, opacity=1.0).encode(y2="upper:Q")
    if layer.kind == "line":
        return base.mark_line(clip=True, strokeWidth=layer.size, strokeDash=list(layer.dash)).encode(detail="line:N")
    return base.mark_point(clip=True, filled=True, size=layer.size, opacity=0.8)


def save(drawn: Any, path: Path) -> None:
    """Draw a chart, or several in one, as PNG; make the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = drawn.configure(font="DejaVu Sans, Verdana, sans-serif", background="white", padding=16)
    drawn = drawn.configure_axis(labelFontSize=13, titleFontSize=13, titleFontWeight="normal", gridColor="#eeeeee")
    drawn.configure_title(fontSize=17, subtitleFontSize=13, offset=12).save(path, scale_factor=2.0)
    sys.stdout.write(f"drew {path}\n")


CARS = ROOT / "examples" / "cars.csv"
FEATURE, TARGET = "Weight_in_lbs", "Miles_per_Gallon"
TRAIN = "murho train examples/cars.csv --config examples/cars.toml --name cars-by-weight --budget 40 " + " ".join(
    f"--ignore {name}" for name in ("Cylinders", "Displacement", "Horsepower", "Acceleration", "Year", "Origin")
)
BANDS = PredictOptions(samples=2000, percentiles=(5.0, 95.0))
CHOICES = {"noise": "heteroscedastic", "target_transform": "none", "encoding": "standard", "random_state": 0}


def answer_figure(posterior: Posterior) -> Any:
    """Return the picture of answers by weight, with a count of the cars in its band.

    Raises:
        OptionError: The checkpoint has other features.
    """
    (swept, *others) = posterior.schema.features
    if others or swept.name != FEATURE:
        raise OptionError(f"the picture needs a checkpoint of {FEATURE!r} alone: {TRAIN}")
    cars = pd.read_csv(CARS).dropna(subset=[FEATURE, TARGET])
    known, observed = (cars[name].to_numpy(dtype=np.float64) for name in (FEATURE, TARGET))
    weights = np.linspace(500.0, 8500.0, 241)
    new = posterior.predict({FEATURE: weights}, BANDS)
    noiseless = PredictOptions(samples=2000, percentiles=(5.0, 95.0), noise=False)
    inner = posterior.predict({FEATURE: weights}, noiseless).percentiles
    low, high = np.asarray(posterior.predict({FEATURE: known}, BANDS).percentiles).T
    held = int(((low <= observed) & (observed <= high)).sum())
    kind = "calibrated" if new.calibrated else "raw"
    return chart(
        [
            Layer("band", f"90 % of cars, {kind}", weights, new.percentiles[:, 0], new.percentiles[:, 1], PALE),
            Layer("band", "90 % of draws of the mean (epistemic)", weights, inner[:, 0], inner[:, 1], MIDDLE),
            Layer("points", "training cars", known, observed, colour="#444444", size=16.0),
            Layer("line", "mean", weights, new.mean),
        ],
        Axis(f"{FEATURE} (lb)", (500.0, 8500.0), format=",.0f"),
        Axis(f"{TARGET} (mpg)"),
        title="The further from the data, the less the model knows",
        subtitle=[f"{TARGET} by weight alone, as Murho answers. The pale band holds {held} of the {len(known)} cars."],
        rules={float(known.min()): "weights of the training cars", float(known.max()): ""},
        width=800,
    )


def truth(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the true function of the made-up table, ``[B]``."""
    return 3.0 * np.sin(x) + x


def noise_std(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the true standard deviation of its noise, ``[B]``."""
    return 0.3 + 0.15 * np.clip(x, 0.0, 10.0)


def parts_figure(*, epochs: int = 400) -> Any:
    """Return the predictions over the feature, and both parts of their std beside the true noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 10.0, 800)
    x = x[(x < 4.0) | (x > 7.0)][:400]
    y = truth(x) + noise_std(x) * rng.standard_normal(len(x))
    model = BBBRegressor(**CHOICES, temperature=0.3, epochs=epochs).fit(pd.DataFrame({"x": x}), y)
    grid = np.linspace(-3.0, 13.0, 241)
    answer = model.posterior_.predict({"x": grid}, PredictOptions(samples=1024, percentiles=(5.0, 95.0)))
    axis = Axis("feature", (-3.0, 13.0))
    above = chart(
        [
            Layer("band", "90 % band", grid, answer.percentiles[:, 0], answer.percentiles[:, 1], PALE),
            Layer("points", "rows", x, y, colour=GREY, size=10.0),
            Layer("line", "true function", grid, truth(grid), colour="#222222", dash=(4, 3)),
            Layer("line", "mean", grid, answer.mean),
        ],
        axis,
        Axis("target"),
        title="",
        width=640,
        height=220,
    )
    parts = {"doubt: epistemic_std": answer.epistemic_std, "noise: aleatoric_std": answer.aleatoric_std}
    lines = [Layer("line", name, grid, of, colour=COLOURS[at]) for at, (name, of) in enumerate(parts.items())]
    lines.append(Layer("line", "true noise", grid, noise_std(grid), colour=GREY, dash=(4, 3)))
    below = chart(lines, axis, Axis("standard deviation"), title="", width=640, height=170)
    return alt.vconcat(above, below).resolve_scale(color="independent")


def coverage_figure(*, splits: int = 8, epochs: int = 100) -> tuple[Any, pd.DataFrame]:
    """How often calibrated 90 % bands hold, over splits, and its shares with their standard errors."""
    cars = pd.read_csv(CARS).dropna(subset=TARGET)
    shares: dict[str, list[float]] = {"all": [], "USA": [], "Europe": [], "Japan": []}
    for split in range(splits):
        known, asked = train_test_split(cars, test_size=0.3, random_state=split)
        held = _held(known, asked, epochs)
        for name, of in shares.items():
            of.append(float(held[(asked["Origin"] == name) | (name == "all")].mean()))
    rows = [
        [f"held out at random: {name}", np.mean(of), np.std(of, ddof=1) / np.sqrt(splits)]
        for name, of in shares.items()
    ]
    later = _held(cars[cars["Year"] <= "1976-12-31"], cars[cars["Year"] >= "1979-01-01"], epochs)
    rows.append(
        ["1979 on, learned up to 1976", later.mean(), np.sqrt(later.mean() * (1.0 - later.mean()) / len(later))]
    )
    found = pd.DataFrame(rows, columns=["cars", "share", "error"])
    ends = found.assign(low=found["share"] - found["error"], high=found["share"] + found["error"])
    scale, order = alt.Scale(domain=[0.5, 1.0]), alt.Axis(labelLimit=250)
    base = alt.Chart(ends).encode(y=alt.Y("cars:N", sort=list(found["cars"]), title=None, axis=order))
    title = "share of cars in their calibrated 90 % band"
    across = alt.X("share:Q", title=title, scale=scale, axis=alt.Axis(format="%"))
    dots = base.mark_point(filled=True, size=90, color=COLOURS[0]).encode(x=across)
    bars = base.mark_rule(color=COLOURS[0], strokeWidth=2).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    line = alt.Chart(pd.DataFrame({"share": [0.9]})).mark_rule(color=COLOURS[1], strokeDash=[4, 3]).encode(x="share:Q")
    return (line + bars + dots).properties(width=520, height=150), found


def _held(known: pd.DataFrame, asked: pd.DataFrame, epochs: int) -> NDArray[np.bool_]:
    """Whether the target of each asked row lies in its calibrated 90 % band, ``[B]``."""
    model = BBBRegressor(**CHOICES | {"target_transform": "log"}, temperature=0.1, epochs=epochs)
    model.fit(known.drop(columns=TARGET), known[TARGET])
    low, high = model.predict_quantiles(asked.drop(columns=TARGET), quantiles=(0.05, 0.95)).T
    truths = asked[TARGET].to_numpy()
    return np.asarray((low <= truths) & (truths <= high))


def bandits_figure(runs: Mapping[str, Sequence[dict[str, Any]]], decisions: int) -> Any:
    """Mean cumulative regret of each agent, with a band of one standard error, on logarithmic axes."""
    layers = []
    for colour, (agent, of) in zip(COLOURS, runs.items(), strict=False):
        curves = np.array([run["curve"] for run in of])
        steps = np.linspace(0, decisions, curves.shape[1] + 1)[1:]
        # On a logarithmic axis nearly all of the evenly spaced points would be at the right.
        shown = np.unique(np.round(np.geomspace(1, len(steps), 120)).astype(int)) - 1
        mean = curves.mean(axis=0)[shown]
        error = (curves.std(axis=0, ddof=1) / len(curves) ** 0.5 if len(curves) > 1 else 0.0 * curves[0])[shown]
        low, high = (np.maximum(1.0, mean + side * error) for side in (-1.0, 1.0))
        label = title_of(agent)
        layers.append(Layer("band", f"{label} ± s.e.", steps[shown], low, high, f"{colour}33"))
        layers.append(Layer("line", label, steps[shown], np.maximum(1.0, mean), colour=colour))
    x, y = Axis("decisions", logarithmic=True), Axis("cumulative regret (expected)", logarithmic=True)
    return chart(layers, x, y, title="mushroom: cumulative regret")


def mnist_figure(histograms: Mapping[str, Any]) -> Any:
    """Densities of the weights beside those of networks without a posterior, and of their signal to noise."""
    vertical = {"weights": Axis("density", (0.03, 40.0), logarithmic=True), "signal to noise": Axis("density")}
    across = {"weights": Axis("weight"), "signal to noise": Axis("|mu| / sigma, decibels", format=".0f")}
    panels = []
    for what, up in vertical.items():
        edges = np.asarray(histograms[what]["edges"])
        layers = [
            Layer("line", name, 0.5 * (edges[1:] + edges[:-1]), np.asarray(densities), colour=colour)
            for colour, (name, densities) in zip(COLOURS, histograms[what]["densities"].items(), strict=False)
        ]
        title = f"MNIST, two layers of {histograms['width']}: {what}"
        panels.append(chart(layers, across[what], up, title=title, width=460))
    return alt.hconcat(*panels).resolve_scale(color="independent")


def _last(benchmark: str) -> dict[str, Any]:
    """Return the last line of a benchmark's results."""
    lines = map(orjson.loads, (DEFAULT_OUTPUT / "results.jsonl").read_bytes().splitlines())
    found: dict[str, Any] = [line for line in lines if line["benchmark"] == benchmark][-1]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Draws; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.figures", description="Draws figures of the documentation."
    )
    parser.add_argument("figure", choices=("answer", "trust", "bandits", "mnist"))
    parser.add_argument("--checkpoints", type=Path, default=DEFAULT_ROOT, metavar="DIR", help="of cars-by-weight")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", metavar="DIR", help="default docs")
    options = parser.parse_args(arguments)
    if options.figure == "mnist":
        save(mnist_figure(_last("mnist")["histograms"]), options.output / "mnist.png")
        return 0
    if options.figure == "bandits":
        last = _last("mushroom")
        figure = bandits_figure(last["problems"]["mushroom"], last["options"]["decisions"])
        save(figure, options.output / "bandits.png")
        return 0
    if options.figure == "answer":
        try:
            posterior = Posterior.load(DirectoryStore(options.checkpoints).find("cars-by-weight"))
            save(answer_figure(posterior), options.output / "answer.png")
        except MurhoError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        return 0
    save(parts_figure(), options.output / "trust-parts.png")
    figure, rows = coverage_figure()
    save(figure, options.output / "trust-coverage.png")
    shown = [[str(name), f"{share:.1%}", f"{error:.1%}"] for name, share, error in rows.to_numpy().tolist()]
    sys.stdout.write(table(["cars", "in their 90 % band", "±"], shown) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
