"""The two oldest pictures of Bayes by Backprop: bands that open where there are no points.

    python examples/textbook.py [--figure FILE]

A noisy sinusoid of 32 points is asked for at three times its range, and a quartic of six points at two and a half times
its range. Both are fitted with the settings of the textbook (Blundell et al. 2015): one network, known noise, a prior
that is given, and the exact free energy. With one member, temperature 1 and the standard encoding Murho adds nothing of
its own: what a draw of the network says is what you get, however far out.

The spread over draws outside of the points is compared with the spread between them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd

from murho import BBBRegressor

# One network, the exact free energy, and no choice that a search makes.
TEXTBOOK = {
    "members": 1,
    "temperature": 1.0,
    "encoding": "standard",
    "whiten": "no",
    "skip": False,
    "noise": "fixed",
    "target_transform": "none",
    "random_state": 0,
}


@dataclass(frozen=True)
class Example:
    """A function, its points, the settings of the network, and where the network is asked."""

    name: str
    x: np.ndarray
    noise: float
    settings: dict
    draws: int
    grid: np.ndarray

    def function(self, x):
        """Return the true function."""
        return 10.0 * np.sin(2.0 * np.pi * x) if self.name == "sinusoid" else -(x**4) + 3.0 * x**2 + 1.0

    def points(self):
        """Targets at x. The quartic's are exact, as in the textbook."""
        exact = self.function(self.x)
        noisy = self.name == "sinusoid"
        return exact + np.random.default_rng(0).normal(0.0, self.noise, len(exact)) if noisy else exact

    def functions(self):
        """Functions that the posterior holds possible, on the grid: a column a draw."""
        model = BBBRegressor(**TEXTBOOK, **self.settings, noise_sigma=self.noise)
        model.fit(pd.DataFrame({"x": self.x}), self.points())
        return model.sample_functions(pd.DataFrame({"x": self.grid}), samples=self.draws)


EXAMPLES = (
    Example(
        name="sinusoid",
        x=np.linspace(-0.5, 0.5, 32),
        noise=1.0,
        settings={
            "hidden": (20, 20),
            "activation": "relu",
            "prior": "scale-mixture",
            "prior_sigma1": 1.5,
            "prior_sigma2": 0.1,
            "prior_pi": 0.5,
            "learning_rate": 0.03,
            "epochs": 3000,
        },
        draws=500,
        grid=np.linspace(-1.5, 1.5, 301),
    ),
    Example(
        name="quartic",
        x=np.array([-2.0, -1.8, -1.0, 1.0, 1.8, 2.0]),
        noise=0.1,
        settings={
            "hidden": (32,),
            "activation": "sigmoid",
            "prior": "gaussian",
            "prior_sigma": 10.0,
            "learning_rate": 0.05,
            "epochs": 8000,
        },
        draws=100,
        grid=np.linspace(-5.0, 5.0, 401),
    ),
)


def picture(example, functions):
    """Return the functions of 30 draws, their mean and 90 % band, the points, and the true function."""
    low, high = np.percentile(functions, (5, 95), axis=1)
    lines = pd.DataFrame({"x": example.grid, "mean": functions.mean(axis=1), "low": low, "high": high})
    lines["truth"] = example.function(example.grid)
    draws = pd.DataFrame(functions[:, :30]).assign(x=example.grid).melt("x", var_name="draw", value_name="y")
    reach = 1.2 * max(abs(low).max(), abs(high).max())
    scale = alt.Scale(domain=[-reach, reach])
    y = alt.Y("y:Q", title="y", scale=scale)
    base = alt.Chart(lines).encode(x=alt.X("x:Q", title="x", scale=alt.Scale(nice=False)))
    clip = {"clip": True}
    return (
        base.mark_area(color="#d9e8f6", **clip).encode(y=alt.Y("low:Q", scale=scale, title="y"), y2="high:Q")
        + alt.Chart(draws).mark_line(color="#94bfe3", strokeWidth=0.6, **clip).encode(x="x:Q", y=y, detail="draw:N")
        + base.mark_line(color="#666666", strokeDash=[4, 3], **clip).encode(y=alt.Y("truth:Q", scale=scale))
        + base.mark_line(color="#134b80", strokeWidth=2.5, **clip).encode(y=alt.Y("mean:Q", scale=scale))
        + alt.Chart(pd.DataFrame({"x": example.x, "y": example.points()}))
        .mark_circle(color="#c2410c", size=40, opacity=1, **clip)
        .encode(x="x:Q", y=y)
    ).properties(width=330, height=240, title=f"{example.name}, {len(example.x)} points")


def main():
    """Fit both examples, and print how far the spread opens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", help="file for the figure, such as textbook.png")
    options = parser.parse_args()
    panels = []
    for example in EXAMPLES:
        functions = example.functions()
        spread = functions.std(axis=1)
        inside = (example.grid >= example.x.min()) & (example.grid <= example.x.max())
        between, outside = spread[inside].mean(), spread[~inside].mean()
        times = f"{outside / between:.1f} times"
        print(f"{example.name}: std {between:.2f} between the points, {outside:.2f} outside: {times}")
        panels.append(picture(example, functions))
    if options.figure:
        alt.hconcat(*panels).save(options.figure, scale_factor=1.5)
        print(f"drew {options.figure}")


if __name__ == "__main__":
    main()
