"""Runs a one-dimensional regression benchmark and makes its table, its figure and its JSON."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.figures import GREY, MIDDLE, PALE, Axis, Band, Curve, Points, Span, chart, save
from benchmarks.regression import Answer, System, answer
from benchmarks.results import facts, parse_options, table, write_json
from benchmarks.seed_range import seed_range
from murho.model.errors import MurhoError
from murho.model.json_validation import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["command", "figure", "measure", "run"]

FAINT_DRAWS = 12
THREADS = 1
"""A step works on a few thousand numbers, so that a second thread costs more than it saves."""


def command(make: Callable[[int], System], name: str, description: str, arguments: Sequence[str] | None) -> int:
    """Runs ``python -m benchmarks.NAME``.

    Args:
        make: Makes the system for a seed.
        name: Name of the module.
        description: Text for ``--help``.
        arguments: Arguments of the command line; by default those of this process.

    Returns:
        The exit status: 0, or 1 after a message on stderr.
    """
    options = parse_options(name, description, arguments)
    try:
        if options.seeds is None:
            run(make(options.seed), options.output)
        else:
            print(seed_range(make, options.seed, options.seeds))
    except (MurhoError, OSError) as error:
        print(f"python -m benchmarks.{name}: {error}", file=sys.stderr)
        return 1
    return 0


def run(system: System, output: Path) -> dict[str, Any]:
    """Fits the system, prints the table, writes ``NAME.png`` and ``NAME.json``.

    Args:
        system: The regression problem.
        output: Directory of the two files; made if missing.

    Returns:
        The content of ``NAME.json``.
    """
    output.mkdir(parents=True, exist_ok=True)
    began, began_cpu = time.perf_counter(), time.process_time()
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        solved = answer(system)
        data = {**facts(), "seed": system.options.seed}
    finally:
        torch.set_num_threads(threads)
    measures = measure(system, solved)
    picture, numbers = output / f"{system.name}.png", output / f"{system.name}.json"
    save(figure(system, solved, measures), picture)
    data |= {
        "seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - began_cpu,
        "fit_seconds": solved.fit_seconds,
        "options": _options(system),
        "measures": measures,
        "inputs": system.inputs,
        "targets": system.targets,
        "grid": system.grid,
        "function": system.function(system.grid),
        "mean": solved.mean,
        "epistemic_std": solved.epistemic_std,
        "function_band": solved.function_band,
        "observation_band": solved.observation_band,
    }
    write_json(numbers, data)
    print(_text(system, solved, measures))
    print(f"\n{data['seconds']:.1f} s on {THREADS} thread; figure {picture}, numbers {numbers}")
    return data


def measure(system: System, solved: Answer) -> dict[str, float]:
    """The measures of a fitted system.

    Args:
        system: The system.
        solved: Its answer.

    Returns:
        Mean widths of the epistemic band (percentiles of the function values) inside and outside of the training
        range, and their quotient ``factor``; root mean square errors of the mean against the true function; the share
        of points at which the band contains the true function; free energies in nats.
    """
    inside = system.inside
    width = solved.function_band[:, 1] - solved.function_band[:, 0]
    truth, truth_at_inputs = system.function(system.grid), system.function(system.inputs)
    held = _within(truth, solved.function_band)
    return {
        "band_width_inside": float(width[inside].mean()),
        "band_width_outside": float(width[~inside].mean()),
        "factor": float(width[~inside].mean() / width[inside].mean()),
        "rmse_at_inputs": _rms(solved.mean_at_inputs - truth_at_inputs),
        "rmse_inside": _rms((solved.mean - truth)[inside]),
        "rmse_outside": _rms((solved.mean - truth)[~inside]),
        "truth_in_band_at_inputs": float(_within(truth_at_inputs, solved.function_band_at_inputs).mean()),
        "truth_in_band_inside": float(held[inside].mean()),
        "truth_in_band_outside": float(held[~inside].mean()),
        "free_energy": solved.free_energy,
        "kl": solved.kl,
        "final_free_energy": solved.final_free_energy,
    }


def figure(system: System, solved: Answer, measures: dict[str, float]) -> dict[str, Any]:
    """A chart of the data, the true function, the mean, the bands and a few draws over the grid."""
    x = system.grid
    lower, upper = system.levels
    share = f"{upper - lower:g} %"
    observed, functions = solved.observation_band.T, solved.function_band.T
    lowest = min(float(functions[0].min()), float(system.targets.min()))
    highest = max(float(functions[1].max()), float(system.targets.max()))
    margin = 0.08 * (highest - lowest)
    layers: list[Band | Curve | Points] = []
    if system.noise_is_visible:
        layers.append(Band(f"{share} of new observations", x, observed[0], observed[1], PALE))
    layers += [
        Band(f"{share} of functions (epistemic)", x, functions[0], functions[1], MIDDLE),
        Curve(f"{FAINT_DRAWS} of {system.samples} draws", x, solved.draws[:FAINT_DRAWS], GREY, width=0.6),
        Curve("mean", x, solved.mean),
        Curve("true function", x, system.function(x), "#222222", dash=(6, 4), width=1.6),
        Points("training rows", system.inputs, system.targets),
    ]
    return chart(
        layers,
        title=system.title,
        subtitle=[
            f"Outside of the training range the epistemic band is {measures['factor']:.1f} times as wide as inside,"
            " on average.",
            f"It holds the true function at {_percent(measures['truth_in_band_at_inputs'])} of the rows and over "
            f"{_percent(measures['truth_in_band_inside'])} of their range.",
        ],
        x_axis=Axis("x (no unit)", float(x[0]), float(x[-1])),
        y_axis=Axis("y (no unit)", lowest - margin, highest + 2.0 * margin),
        span=Span("training range", float(system.inputs.min()), float(system.inputs.max())),
    )


def _text(system: System, solved: Answer, measures: dict[str, float]) -> str:
    places = [int(np.abs(system.grid - place).argmin()) for place in system.shown_at]
    truth = system.function(system.grid)
    rows = [
        [
            f"{system.grid[place]:g}",
            "inside" if system.inside[place] else "outside",
            *(
                f"{round(float(value), 2) + 0.0:.2f}"  # not -0.00
                for value in (
                    truth[place],
                    solved.mean[place],
                    solved.epistemic_std[place],
                    *solved.function_band[place],
                    np.ptp(solved.function_band[place]),
                )
            ),
        ]
        for place in places
    ]
    lower, upper = system.levels
    headers = ["x", "data", "truth", "mean", "epistemic std", f"{lower:g} %", f"{upper:g} %", "width"]
    closing = [
        f"mean width of the epistemic band   inside {measures['band_width_inside']:.2f}   "
        f"outside {measures['band_width_outside']:.2f}   factor {measures['factor']:.2f}",
        f"RMSE of the mean                   at the rows {measures['rmse_at_inputs']:.2f}   "
        f"inside {measures['rmse_inside']:.2f}   outside {measures['rmse_outside']:.2f}",
        f"truth within the epistemic band    at the rows {_percent(measures['truth_in_band_at_inputs'])}   "
        f"inside {_percent(measures['truth_in_band_inside'])}   outside {_percent(measures['truth_in_band_outside'])}",
        f"free energy                        {measures['free_energy']:.1f} nats, of which KL {measures['kl']:.1f}; "
        f"mean of the last epochs {measures['final_free_energy']:.1f}",
    ]
    heading = (
        f"{system.name}, seed {system.options.seed}, {system.samples} draws\n"
        "one fit: beyond the data another seed, or another kind of processor, gives another mean (--seeds N: ranges)\n"
    )
    return "\n".join([heading, table(headers, rows), "", *closing])


def _options(system: System) -> dict[str, Any]:
    options = {field.name: getattr(system.options, field.name) for field in dataclasses.fields(system.options)}
    prior = system.prior.to_json() if isinstance(system.prior, Stored) else None
    model = {"noise": system.noise, "hidden": system.hidden, "activation": system.activation}
    return {
        **options,
        **model,
        "prior": prior,
        "samples": system.samples,
    }


def _within(values: NDArray[np.float64], band: NDArray[np.float64]) -> NDArray[np.bool_]:
    within: NDArray[np.bool_] = (band[:, 0] <= values) & (values <= band[:, 1])
    return within


def _rms(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"
