"""Drift seen through epistemic_std, and drift that it cannot see.

    python examples/drift.py [--quick] [--figure FILE]

A model has learned a table of weeks in which all was well. Then rows come in batches, without their targets: those
are known much later. The mean epistemic_std of a batch is compared with that of batches of held-out rows. An alarm is
raised where it is larger than in 99 of 100 of these.

Four things happen from batch 10 on, each in a stream of its own:

    grams            the scales report grams instead of pounds: seen, no such weight was learned
    new customers    one parcel in three goes further than any before: seen
    kilograms        the scales report kilograms: not seen, every such weight is an ordinary one in pounds
    other prices     the same parcel costs two more: not seen, the inputs are those that the model knows
"""

from __future__ import annotations

import argparse

import altair as alt
import numpy as np
import pandas as pd

from murho import BBBRegressor

BATCHES, ROWS, CHANGE = 20, 50, 10
# Nothing is searched, so that a fit takes seconds.
CHOICES = {
    "noise": "homoscedastic",
    "target_transform": "none",
    "encoding": "standard",
    "whiten": "no",
    "temperature": 0.1,
    "random_state": 0,
}


def parcels(rows, rng, *, new_customers=0.0, dearer=0.0):
    """Parcels with their delivery cost: weight in pounds, distance in kilometres, floor of the customer."""
    weight = rng.gamma(4.0, 5.0, rows)
    distance = rng.uniform(1.0, 60.0, rows)
    floor = rng.integers(0, 5, rows).astype(float)
    new = rng.random(rows) < new_customers
    distance[new], floor[new] = rng.uniform(90.0, 150.0, new.sum()), 0.0
    cost = 3.0 + 0.05 * weight * (1.0 + 0.3 * floor) + 0.1 * distance + dearer + rng.normal(0.0, 0.5, rows)
    return pd.DataFrame({"weight": weight, "distance": distance, "floor": floor}), cost


def epistemic_std(model, rows):
    """Of each row: the spread of the functions that the model holds possible."""
    return model.sample_functions(rows, samples=128).std(axis=1)


def stream(name, model, rng):
    """Batches of one stream: the mean epistemic_std, and the coverage of 90 % bands, which is known only later."""
    for batch in range(BATCHES):
        changed = batch >= CHANGE
        rows, cost = parcels(
            ROWS,
            rng,
            new_customers=0.33 if changed and name == "new customers" else 0.0,
            dearer=2.0 if changed and name == "other prices" else 0.0,
        )
        if changed and name == "kilograms":
            rows["weight"] *= 0.4536
        if changed and name == "grams":
            rows["weight"] *= 453.6
        low, high = model.predict_quantiles(rows, quantiles=(0.05, 0.95)).T
        yield {
            "stream": name,
            "batch": batch,
            "epistemic_std": epistemic_std(model, rows).mean(),
            "coverage": np.mean((low <= cost) & (cost <= high)),
        }


def picture(table, limit, names):
    """Two rows of panels: epistemic_std, which is known at once, and coverage, which is known later."""
    base = alt.Chart(table).encode(x=alt.X("batch:Q", title=None))
    change = alt.Chart(pd.DataFrame({"batch": [CHANGE - 0.5]})).mark_rule(strokeDash=[2, 3], color="#666666")
    rows = []
    for column, title, level, scale in (
        ("epistemic_std", "mean epistemic_std", limit, alt.Scale(type="log", domain=[0.05, 3000])),
        ("coverage", "share in 90 % bands", 0.9, alt.Scale(domain=[0, 1])),
    ):
        panels, axis = [], alt.Axis(values=[0.1, 1, 10, 100, 1000] if column == "epistemic_std" else [0, 0.5, 0.9])
        for name in names:
            line = base.transform_filter(alt.datum.stream == name).mark_line(color="#1f6fb2", point=True)
            line = line.encode(
                y=alt.Y(f"{column}:Q", title=title if name == names[0] else None, scale=scale, axis=axis)
            )
            expected = alt.Chart(pd.DataFrame({"y": [level]})).mark_rule(color="#d9480f").encode(y="y:Q")
            panel = (change.encode(x="batch:Q") + expected + line).properties(width=150, height=130)
            panels.append(panel.properties(title=name) if column == "epistemic_std" else panel)
        rows.append(alt.hconcat(*panels).resolve_scale(y="shared"))
    return alt.vconcat(*rows)


def main():
    """Fit, watch the streams, and print what was seen when."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short fit")
    parser.add_argument("--figure", help="file for the figure, such as drift.png")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    X, y = parcels(1000, rng)
    model = BBBRegressor(**CHOICES, epochs=20 if options.quick else 100).fit(X, y)
    usual = epistemic_std(model, parcels(2000, rng)[0])
    means = rng.choice(usual, (2000, ROWS)).mean(axis=1)
    limit = np.quantile(means, 0.99)
    print(f"epistemic_std of a usual batch: {means.mean():.3f}; alarm above {limit:.3f}\n")

    names = ("nothing changes", "grams", "new customers", "kilograms", "other prices")
    table = pd.DataFrame([batch for name in names for batch in stream(name, model, rng)])
    print("stream           alarms before  alarms after  epistemic_std after  coverage after")
    for name in names:
        before, after = (
            table[(table["stream"] == name) & ((table["batch"] >= CHANGE) == later)] for later in (False, True)
        )
        print(
            f"{name:15s}  {np.sum(before['epistemic_std'] > limit):7d} of {CHANGE}"
            f"  {np.sum(after['epistemic_std'] > limit):6d} of {BATCHES - CHANGE}"
            f"  {after['epistemic_std'].mean():19.3f}  {after['coverage'].mean():14.0%}"
        )
    print("\nCoverage is of the 90 % bands. It needs the targets, which come later.")
    if options.figure:
        picture(table, limit, names).save(options.figure, scale_factor=1.5)
        print(f"drew {options.figure}")


if __name__ == "__main__":
    main()
