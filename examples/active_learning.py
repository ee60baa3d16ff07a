"""Which rows are worth a label? Those of which the model knows least.

    python examples/active_learning.py [--quick] [--seeds N] [--figure FILE] [--ask-like-the-log] [--spread S]
    python examples/active_learning.py --data FILE --target COLUMN

Labels are dear: somebody must run the test or ask the expert. Two buyers start with the same 20 labels and buy ten at
a time. One takes rows at random, the other those with the largest epistemic_std. Both fit the same network to what
they have, and are judged on the same rows.

The table is made up, so that the truth is known: 1,000 rows from the log of a machine with three settings. Nine in
ten are from ordinary operation, a small part of what the settings allow. The model will be asked about all settings
evenly; with --ask-like-the-log, about rows like those of the log. With --data, a third of that table judges.
"""

from __future__ import annotations

import argparse

import altair as alt
import numpy as np
import pandas as pd

from murho import BBBRegressor

# Nothing is searched, so that a fit takes a second.
CHOICES = {
    "noise": "homoscedastic",
    "target_transform": "none",
    "encoding": "standard",
    "whiten": "no",
    "temperature": 0.1,
    "hidden": (32,),
    "members": 5,
    "epochs": 200,
    "random_state": 0,
}
START, STEP = 20, 10


def most_uncertain(model, candidates, count):
    """Places of the rows with the largest epistemic_std, found one by one.

    A label also tells about rows like its own. So after each pick, what its label would tell is taken out of the
    draws of all other rows; otherwise the ten picks could be ten copies of one row.
    """
    draws = model.sample_functions(candidates, samples=200)  # [rows, draws]: each column is one function
    draws = draws - draws.mean(axis=1, keepdims=True)
    picks = []
    for _ in range(count):
        epistemic_std = draws.std(axis=1)
        epistemic_std[picks] = -1.0
        pick = int(epistemic_std.argmax())
        picks.append(pick)
        known = draws[pick]
        draws = draws - np.outer(draws @ known / (known @ known), known)
    return picks


def machine(rows, ordinary, spread, rng):
    """Rows of the machine, of which a share is from ordinary operation; the noise has a standard deviation of 0.1."""
    settings = rng.uniform(-1.0, 1.0, (rows, 3))
    usual = rng.random(rows) < ordinary
    settings[usual] = rng.normal(-0.3, spread, (usual.sum(), 3))
    a, b, c = settings.T
    output = np.sin(3 * a) + 2 * b**2 + a * c + rng.normal(0.0, 0.1, rows)
    return pd.DataFrame(settings, columns=["a", "b", "c"]), pd.Series(output)


def tables(options, seed):
    """Features and targets of the rows that can be bought, and of those that judge."""
    rng = np.random.default_rng(seed)
    if options.data is None:
        log = machine(1000, 0.9, options.spread, rng)
        return log, machine(400, 0.9 if options.ask_like_the_log else 0.0, options.spread, rng)
    table = pd.read_csv(options.data).dropna(subset=options.target)
    table = table.iloc[rng.permutation(len(table))].reset_index(drop=True)
    X, y, third = table.drop(columns=options.target), table[options.target], len(table) // 3
    return (X[third:].reset_index(drop=True), y[third:].reset_index(drop=True)), (X[:third], y[:third])


def errors_of_a_buyer(offered, judges, seed, end, clever):
    """RMSE on the judging rows after each purchase."""
    rng = np.random.default_rng(seed)
    X, y = offered
    labelled, unlabelled = np.arange(START), np.arange(START, len(X))
    errors = []
    while True:
        model = BBBRegressor(**CHOICES).fit(X.iloc[labelled], y.iloc[labelled])
        errors.append(float(np.sqrt(np.mean((model.predict(judges[0]) - judges[1]) ** 2))))
        if len(labelled) >= end:
            return errors
        if clever:
            picks = most_uncertain(model, X.iloc[unlabelled], STEP)
        else:
            picks = rng.choice(len(unlabelled), STEP, replace=False)
        labelled = np.concatenate([labelled, unlabelled[picks]])
        unlabelled = np.delete(unlabelled, picks)


def picture(labels, random, clever):
    """Mean error of both buyers, with a band of one standard error over the seeds."""
    parts = []
    for name, errors in (("at random", random), ("largest epistemic_std", clever)):
        mean, error = errors.mean(axis=0), errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
        parts.append(
            pd.DataFrame({"labels": labels, "rmse": mean, "low": mean - error, "high": mean + error, "rows": name})
        )
    base = alt.Chart(pd.concat(parts)).encode(
        x=alt.X("labels:Q", title="labelled rows", scale=alt.Scale(zero=False)),
        color=alt.Color(
            "rows:N", title=None, scale=alt.Scale(range=["#888888", "#1f6fb2"]), legend=alt.Legend(orient="top-right")
        ),
    )
    y = alt.Y("low:Q", title="RMSE on the judging rows")
    band = base.mark_area(opacity=0.2).encode(y=y, y2="high:Q")
    return (band + base.mark_line(point=True).encode(y="rmse:Q")).properties(width=560, height=300)


def main():
    """Compare the two buyers, and print and draw the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds and few labels")
    parser.add_argument("--seeds", type=int, default=10, help="runs to average over, at least 2 (default 10)")
    parser.add_argument("--figure", help="file for the figure, such as labels.png")
    parser.add_argument("--ask-like-the-log", action="store_true", help="judge on rows like those that are offered")
    parser.add_argument("--spread", type=float, default=0.12, help="of ordinary operation (default 0.12)")
    parser.add_argument("--data", help="another table (CSV)")
    parser.add_argument("--target", help="its target")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("--seeds is at least 2: a standard error needs two runs")
    if (options.data is None) != (options.target is None):
        parser.error("--data and --target go together")
    seeds, end = (2, 30) if options.quick else (options.seeds, 100)

    random, clever = [], []
    for seed in range(seeds):
        offered, judges = tables(options, seed)
        random.append(errors_of_a_buyer(offered, judges, seed, end, clever=False))
        clever.append(errors_of_a_buyer(offered, judges, seed, end, clever=True))
        print(
            f"run {seed + 1} of {seeds}: RMSE {random[-1][-1]:#.3g} at random, {clever[-1][-1]:#.3g} by epistemic_std"
        )
    random, clever = np.array(random), np.array(clever)

    labels = np.arange(START, end + 1, STEP)
    print("\nlabels  at random  largest epistemic_std")
    for row in zip(labels, random.mean(axis=0), clever.mean(axis=0), strict=True):
        print("{:6d}  {:#9.3g}  {:#21.3g}".format(*row))
    gain = 100.0 * (1.0 - clever[:, -1] / random[:, -1])
    error = gain.std(ddof=1) / np.sqrt(seeds)
    print(f"\nWith {end} labels the error is {gain.mean():.0f} % smaller with epistemic_std than at random")
    print(f"(± {error:.0f}, one standard error), and smaller in {np.sum(gain > 0)} of {seeds} runs.")
    if options.figure:
        picture(labels, random, clever).save(options.figure, scale_factor=1.5)
        print(f"drew {options.figure}")


if __name__ == "__main__":
    main()
