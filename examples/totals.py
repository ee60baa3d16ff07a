"""How the error bar of a sum grows with its rows, and what adding variances would say.

    python examples/totals.py [--quick] [--figure FILE]

Shops of one region are alike, so a model that is wrong about one is wrong about all in the same direction. Tables are
made up, so that the true error of each predicted total is known. For regions of 1 to 300 shops, the error is compared
with the standard deviation that `aggregate` answers, and with that of variances of rows added in quadrature.
"""

from __future__ import annotations

import argparse

import altair as alt
import numpy as np
import pandas as pd

import murho

SIZES = (1, 3, 10, 30, 100, 300)
NOISE = 1.0


def shops(rows, rng, centre=None):
    """Shops with their weekly sales; with a centre all are alike. Returns the features and the expected sales."""
    x = rng.random((rows, 3)) if centre is None else np.clip(centre + rng.normal(0.0, 0.05, (rows, 3)), 0.0, 1.0)
    expected = 4.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 8.0 * (x[:, 2] - 0.5) ** 2
    return pd.DataFrame(x, columns=["size", "income", "distance"]), expected


def picture(roots):
    """Both error bars and the true error against the number of rows."""
    shown = roots.reset_index().melt("rows", var_name="what", value_name="std")
    colours = alt.Scale(domain=["true error", "answered", "quadrature"], range=["#222222", "#1f6fb2", "#d9480f"])
    ticks = alt.Axis(values=[1, 3, 10, 30, 100, 300])
    chart = alt.Chart(shown).mark_line(point=True)
    chart = chart.encode(
        x=alt.X("rows:Q", scale=alt.Scale(type="log", domain=[1, 300]), axis=ticks, title="rows of a total"),
        y=alt.Y("std:Q", scale=alt.Scale(type="log", domain=[1, 300]), axis=ticks, title="error of the total"),
        color=alt.Color("what:N", scale=colours, title=None),
    )
    return chart.properties(width=420, height=240)


def main():
    """Fit to several tables, add up regions, and print both error bars beside the true error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two fits")
    parser.add_argument("--figure", help="file for the figure, such as totals.png")
    options = parser.parse_args()

    rng, lines = np.random.default_rng(0), []
    for seed in range(2 if options.quick else 10):
        table, expected = shops(300, rng)
        sales = expected + NOISE * rng.standard_normal(len(table))
        model = murho.train(table.assign(sales=sales), target="sales", seed=seed, quick=True)
        for rows in SIZES:
            regions = [shops(rows, rng, rng.random(3)) for _ in range(20)]
            together = pd.concat([region for region, _ in regions], ignore_index=True)
            number = np.repeat(np.arange(len(regions)), rows)
            totals = model.aggregate(together.assign(region=number), by="region")
            variances = np.bincount(number, np.asarray(model.predict(together).std) ** 2)
            truth = np.array([expected.sum() for _, expected in regions]) + NOISE * np.sqrt(rows) * rng.normal(size=20)
            for total, std, variance, true in zip(totals.mean, totals.std, variances, truth, strict=True):
                lines.append(
                    {"rows": rows, "true error": (total - true) ** 2, "answered": std**2, "quadrature": variance}
                )
    roots = np.sqrt(pd.DataFrame(lines).groupby("rows").mean())
    print("root mean squares")
    print(roots.round(1).to_string())
    if options.figure:
        picture(roots).save(options.figure, scale_factor=2)


if __name__ == "__main__":
    main()
