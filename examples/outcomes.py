"""A year of predictions and what came true of them: when do the error bars stop being right, and who says so?

    python examples/outcomes.py [--quick] [--figure FILE]

Bikes are rented by the hour; the table is made up, so that the truth is known. A model learns the first year and is
served with a store. In the second year it is asked for each week; a week later the rentals are told. In July a second
station opens next door, and rentals of the first fall. Printed and drawn are the share of rentals in the band of
90 % week by week, and when the alarm of live quality is raised: with the bands of the checkpoint, and with bands that
follow the outcomes (MURHO_ADAPT=adaptive).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
from murho_client import Client

import murho

WEEK = 7 * 24
OPENS = 26
"""The week in which the second station opens."""


def hours(weeks, rng, first=0):
    """Weeks of hours with their rentals; the second station opens in week 52 + `OPENS`."""
    number = first * WEEK + np.arange(weeks * WEEK)
    hour, day, week = number % 24, number // 24 % 7, number // WEEK
    temperature = 12.0 - 12.0 * np.cos(2.0 * np.pi * week / 52.0) + rng.normal(0.0, 3.0, len(number))
    rush = np.exp(-((hour - 8) ** 2) / 4.0) + np.exp(-((hour - 17) ** 2) / 6.0)
    leisure = np.exp(-((hour - 14) ** 2) / 18.0)
    expected = (5.0 + 120.0 * np.where(day < 5, rush, leisure)) * (0.5 + temperature.clip(0.0) / 24.0)
    expected *= np.where(week >= 52 + OPENS, 0.7, 1.0)
    table = pd.DataFrame({"hour": hour, "weekend": day >= 5, "temperature": temperature.round(1)})
    return table.assign(rentals=rng.poisson(expected * rng.gamma(20.0, 1 / 20.0, len(number))).astype(float))


@contextmanager
def service(folder, adapt):
    """Return a service with a store; give its address."""
    words = ["serve", "--checkpoints", folder, "--port", "0", "--store", f"{folder}/{adapt}.db"]
    log = Path(folder) / "log"
    with log.open("w") as file:
        environment = {**os.environ, "MURHO_ADAPT": adapt}
        process = subprocess.Popen([sys.executable, "-m", "murho", *words], stderr=file, env=environment)  # noqa: S603
    try:
        while not (found := re.search(r"documentation: (http://\S+)/docs", log.read_text())):
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        yield found[1]
    finally:
        process.kill()
        process.wait()


def picture(weeks, raised):
    """Return the share in the band week by week, and the alarm of the checkpoint's own bands."""
    share = alt.Y(
        "share:Q", title="rentals in the band of 90 %", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0.4, 1])
    )
    colours = alt.Scale(domain=["off", "adaptive"], range=["#9aa5b1", "#1f6fb2"])
    chart = alt.Chart(weeks).mark_line(point=True)
    chart = chart.encode(
        x=alt.X("week:Q", title="week of the second year"),
        y=share,
        color=alt.Color("adapt:N", scale=colours, title="MURHO_ADAPT"),
    )
    marks = [(OPENS, "second station", "#222222"), *([] if raised is None else [(raised, "alarm", "#d9480f")])]
    for week, name, colour in marks:
        at = alt.Chart(pd.DataFrame({"week": [week], "name": [name]}))
        chart += at.mark_rule(color=colour, strokeDash=[4, 3]).encode(x="week:Q")
        chart += at.mark_text(color=colour, align="left", dx=4, y=190 if colour == "#222222" else 206).encode(
            x="week:Q", text="name:N"
        )
    return chart.properties(width=460, height=220)


def year(folder, adapt, second, step):
    """Return the second year: the share in the band of each week, and the week of the alarm."""
    waiting, lines, raised, before = None, [], None, (0, 0.0)
    with service(folder, adapt) as address, Client(address) as client:
        for week in range(0, 52, step):
            if waiting is not None:
                client.outcomes(waiting, "bikes")
            rows = second.iloc[week * WEEK : (week + 1) * WEEK]
            answer = client.predict(rows.drop(columns="rentals"), record=True)
            if waiting is not None:
                (found,) = client.quality("bikes")["versions"]
                inside = found["n"] * found["coverage"]["90"]["share"]
                share = (inside - before[1]) / (found["n"] - before[0])
                before = found["n"], inside
                if raised is None and found["alarm"]["raised"]:
                    raised = week
                lines.append({"week": week - step, "share": share, "adapt": adapt})
            waiting = {"id": answer.ids, "value": rows["rentals"]}
    return pd.DataFrame(lines), raised


def main():
    """Learn a year, predict the next one week by week, tell the outcomes, and ask for the quality."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short fit, and every other week")
    parser.add_argument("--figure", help="file for the figure, such as outcomes.png")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    first, second = hours(52, rng), hours(52, rng, first=52)
    with tempfile.TemporaryDirectory() as folder:
        murho.train(first, target="rentals", quick=options.quick).save("bikes", folder)
        found = {adapt: year(folder, adapt, second, 2 if options.quick else 1) for adapt in ("off", "adaptive")}
    for adapt, (weeks, _) in found.items():
        before, after = (weeks["share"][(weeks["week"] >= OPENS) == later].mean() for later in (False, True))
        print(f"MURHO_ADAPT={adapt}: {before:.1%} of rentals in the band of 90 %, {after:.1%} after the station opened")
    raised = found["off"][1]
    print(f"alarm in week {raised}; the station opened in week {OPENS}, and outcomes come a week later")
    if options.figure:
        picture(pd.concat([weeks for weeks, _ in found.values()]), raised).save(options.figure, scale_factor=2)


if __name__ == "__main__":
    main()
