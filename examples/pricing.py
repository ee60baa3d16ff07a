"""A decision by exceedance: which mileage may a dealer promise, and what does the promise cost?

    python examples/pricing.py [--quick] [--figure FILE]

A buyer pays 40 dollars for every mile per gallon that the dealer promises. If the car falls short of the promise, the
dealer pays 2,000 dollars back. P(consumption > promise) is the exceedance of an answer, so the expected gain of a
promise t is

    40 t - 2000 (1 - exceedance(t))

and the best promise is where that is largest. A dealer without error bars promises the mean less a fixed margin, the
best one on the cars that the model has learned from. Both are then tried on cars that the model has not seen.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from murho import BBBRegressor

CARS = Path(__file__).parent / "cars.csv"
TARGET = "Miles_per_Gallon"
PER_MILE, REFUND = 40.0, 2000.0
PROMISES = np.arange(5.0, 45.0, 0.25)
LEVELS = np.arange(0.001, 1.0, 0.001)
# Nothing is searched, so that a fit takes seconds.
CHOICES = {"noise": "heteroscedastic", "target_transform": "log", "encoding": "standard", "temperature": 0.1}


def exceedances(model, rows):
    """P(target > promise) for each row and promise, read off the percentiles: [rows, promises].

    A service gives it directly: "thresholds": [20, 25, 30].
    """
    percentiles = model.predict_quantiles(rows, quantiles=LEVELS)
    return np.array([1.0 - np.interp(PROMISES, row, LEVELS, left=0.0, right=1.0) for row in percentiles])


def gains(promises, truths):
    """Return what the dealer earns with each promise."""
    return PER_MILE * promises - REFUND * (truths < promises)


def picture(model, car):
    """Return the expected gain of one car against the promise, and the probability to keep it."""
    kept = exceedances(model, car)[0]
    table = pd.DataFrame({"promise": PROMISES, "kept": kept, "gain": PER_MILE * PROMISES - REFUND * (1.0 - kept)})
    x = alt.X("promise:Q", title="promise (mpg)", scale=alt.Scale(domain=[10, 40]))
    best = alt.Chart(table).transform_window(rank="rank()", sort=[alt.SortField("gain", "descending")])
    rule = best.transform_filter("datum.rank == 1").mark_rule(color="#d9480f", strokeDash=[4, 3]).encode(x=x)
    panels = [
        alt.Chart(table).mark_line(color="#1f6fb2", clip=True).encode(x=x, y=alt.Y(f"{name}:Q", title=title)) + rule
        for name, title in (("kept", "P(mpg > promise)"), ("gain", "expected gain (dollars)"))
    ]
    return alt.hconcat(*(panel.properties(width=300, height=240) for panel in panels))


def main():
    """Decide for held-out cars of several splits, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one split and a short fit")
    parser.add_argument("--figure", help="file for the figure, such as pricing.png")
    options = parser.parse_args()
    splits, epochs = (1, 20) if options.quick else (5, 100)

    cars = pd.read_csv(CARS).dropna(subset=TARGET)
    X, y = cars.drop(columns=TARGET), cars[TARGET]
    differences, expected, earned = [], [], []
    for split in range(splits):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=split)
        model = BBBRegressor(**CHOICES, epochs=epochs, random_state=0).fit(X_train, y_train)

        chances = PER_MILE * PROMISES - REFUND * (1.0 - exceedances(model, X_test))
        by_exceedance = gains(PROMISES[chances.argmax(axis=1)], y_test)

        margins = np.arange(0.0, 15.0, 0.25)
        learned = model.predict(X_train)
        margin = max(margins, key=lambda margin: gains(learned - margin, y_train).mean())
        by_margin = gains(model.predict(X_test) - margin, y_test)

        expected.append(chances.max(axis=1).mean())
        earned.append(by_exceedance.mean())
        differences.append((by_exceedance - by_margin).mean())
        print(
            f"split {split}: expected {expected[-1]:.0f} dollars a car, earned {earned[-1]:.0f}; "
            f"the mean less {margin:.2f} mpg earns {by_margin.mean():.0f}"
        )

    print(f"\nExpected {np.mean(expected):.0f} dollars a car, earned {np.mean(earned):.0f}.")
    print(f"That is {np.mean(differences):.0f} dollars a car more than with a fixed margin,", end=" ")
    print(f"and more in {np.sum(np.array(differences) > 0)} of {splits} splits.")
    for row in X_test.index[:3]:
        car = X_test.loc[[row]]
        kept = exceedances(model, car)[0]
        best = (PER_MILE * PROMISES - REFUND * (1.0 - kept)).argmax()
        print(
            f"A car with {car['Weight_in_lbs'].item()} lb, predicted {model.predict(car)[0]:.1f} mpg: promise "
            f"{PROMISES[best]:.2f} (kept with {kept[best]:.1%}); refund to expect: {REFUND * (1 - kept[best]):.0f}."
        )
    if options.figure:
        picture(model, X_test.iloc[:1]).save(options.figure, scale_factor=1.5)
        print(f"drew {options.figure}")


if __name__ == "__main__":
    main()
