"""The answers of `benchmarks.truth` that a service, Ray and streams of outcomes give, beside the same truth.

What a client and Ray answer is the model's own answer. Live quality is a direct count over the outcomes, revised ones
included. The alarm is false as seldom as promised, and adapted bands hold again after a change.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
from murho_client import Client

from benchmarks.alarm import ROWS, SHAPES, alarm_at
from benchmarks.live import WAYS, Asked
from benchmarks.servers import running
from benchmarks.truth_answers import Case, Measure
from benchmarks.truth_tables import Known, Rows, known_table
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import at_most_threads
from murho.model.training.candidates import Reporter
from murho.model.training.options import make_options
from murho.model.training.train import Trained, train

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.results import Report
    from murho.model.arrays import Bools

ASKED = ("complete", "two features at 1.25 x", "30 % of cells missing")
STREAMS, OUTCOMES = 50, 1_000
BEFORE, AFTER = 500, 1_000
SERVICE_CELLS: Mapping[str, tuple[str, ...]] = {
    "service": (
        *(f"{by}*{of}" for by in ("client", "ray") for of in ASKED),
        "quality*outcomes",
        "quality*revised outcomes",
    ),
    "streams": (*(f"alarm*{shape}, {rows} rows" for shape in SHAPES for rows in ROWS), "adaptation*after a shift"),
}
"""Name of a job → its cells."""


def _fit(known: Known, repeat: int) -> Trained:
    options = make_options({"quick": True, "seed": repeat})
    return train(known.training.labelled(0), "y", options, reporter=Reporter())


def measure_service(name: str, repeat: int, _budget: float | None = None) -> Report:
    """Return what `benchmarks.truth.measure_table` reports, for a quick fit behind a service or streams of outcomes."""
    began, known = time.monotonic(), known_table("complete", repeat)
    with at_most_threads(1):
        trained = _fit(known, repeat)
        measures = _service_measures(known, trained) if name == "service" else _stream_measures(known, trained, repeat)
    cells = {cell: {of: asdict(each) for of, each in found.items()} for cell, found in measures.items()}
    return {"cells": cells, "left_out": {}, "warnings": {}, "seconds": time.monotonic() - began}


def _equal(close: Bools) -> dict[str, Measure]:
    return {"equal": Measure(float(np.mean(close)), 1.0, within=0.0, count=close.size)}


def _service_measures(known: Known, trained: Trained) -> dict[str, dict[str, Measure]]:
    found: dict[str, dict[str, Measure]] = {}
    with TemporaryDirectory() as folder:
        checkpoints, store = Path(folder) / "checkpoints", Path(folder) / "murho.db"
        trained.posterior.save(checkpoints, "known")
        config = Path(folder) / "murho.toml"
        config.write_text(f'store = "{store}"\n')
        words = [sys.executable, "-m", "murho", "serve", "--checkpoints", str(checkpoints), "--config", str(config)]
        row = known.queries["complete"].some(np.arange(1)).features().to_pylist()
        with (
            running("/models/known/predict", [*words, "--device", "cpu"], [orjson.dumps({"inputs": row})]) as server,
            Client(f"http://127.0.0.1:{server.port}", timeout=300.0) as client,
        ):
            for condition in ASKED:
                case = Case(known, trained.posterior, condition, known.queries[condition])
                answer: Any = client.predict(case.rows.features(), "known")
                own = case.answer(PredictOptions())
                pairs = [(answer.mean, own.mean), (answer.std, own.std)]
                pairs += list(zip(answer.percentiles.T, own.percentiles.T, strict=True))
                found[f"client*{condition}"] = _equal(np.array([abs(a - b) <= 1e-4 * own.std for a, b in pairs]))
            found |= _quality(client, Case(known, trained.posterior, "complete", known.queries["complete"]))
        return found | _by_ray(known, trained, checkpoints)


def _quality(client: Client, case: Case) -> dict[str, dict[str, Measure]]:
    """RMSE, bias and coverage of live quality beside a direct count, before and after a wrong outcome is corrected."""
    answer: Any = client.predict(case.rows.features(), "known", percentiles=[5, 95], record=True)
    truth, found = case.rows.outcomes.copy(), {}
    ids, wrong = list(answer.ids), truth.copy()
    wrong[7] = 1.76e12
    for name, values in (("outcomes", wrong), ("revised outcomes", truth)):
        sent = slice(None) if name == "outcomes" else slice(7, 8)
        client.outcomes({"id": ids[sent], "value": values[sent].tolist()}, "known")
        quality = client.quality("known")["versions"][0]
        errors = answer.mean - values
        inside = (answer.percentiles[:, 0] <= values) & (values <= answer.percentiles[:, 1])
        pairs = [
            (quality["n"], len(values)),
            (quality["rmse"], np.sqrt(np.mean(errors**2))),
            (quality["bias"], errors.mean()),
            (quality["coverage"]["90"]["share"], inside.mean()),
        ]
        close = [
            abs(a - b) <= 1e-3 * max(abs(b), 1e-3) + (0.003 if place == 3 else 0.0)
            for place, (a, b) in enumerate(pairs)
        ]
        found[f"quality*{name}"] = _equal(np.array(close))
    return found


def _by_ray(known: Known, trained: Trained, checkpoints: Path) -> dict[str, dict[str, Measure]]:
    """Answers of Ray's workers beside the model's own."""
    import ray

    import murho.ray
    from murho.ray.library import ray_running

    cases = [Case(known, trained.posterior, of, known.queries[of]) for of in ASKED]
    with ray_running(1):
        rows = ray.data.from_arrow(pa.concat_tables(case.rows.features() for case in cases))
        answers = murho.ray.predict(rows, "known", checkpoints=checkpoints, workers=1)
        whole = pa.concat_tables(answers.iter_batches(batch_size=None, batch_format="pyarrow"))
    found, start = {}, 0
    for case in cases:
        own, part = case.answer(PredictOptions()), whole.slice(start, len(case.rows))
        start += len(case.rows)
        close = [np.abs(part[name].to_numpy() - getattr(own, name)) <= 1e-4 * own.std for name in ("mean", "std")]
        found[f"ray*{case.condition}"] = _equal(np.array(close))
    return found


def _stream_measures(known: Known, trained: Trained, repeat: int) -> dict[str, dict[str, Measure]]:
    """Return false alarms in streams without a change; bands that follow outcomes, after all of them shift."""
    found = {}
    for shape in SHAPES:
        for rows in ROWS:
            seeds = range(STREAMS * repeat, STREAMS * (repeat + 1))
            raised = [alarm_at(shape, rows, OUTCOMES, seed) is not None for seed in seeds]
            found[f"alarm*{shape}, {rows} rows"] = {
                "false": Measure(float(np.mean(raised)), 0.005, 0.005, "most", count=STREAMS)
            }
    generator = np.random.default_rng([repeat, 1])
    numbers, category = generator.uniform(-1.0, 1.0, (BEFORE + AFTER, 4)), generator.integers(4, size=BEFORE + AFTER)
    outcomes = known.world.outcomes(generator, numbers, category)
    outcomes[BEFORE:] += 0.8
    stream = Asked(trained.posterior, Rows(numbers, category, outcomes).labelled(0))
    found["adaptation*after a shift"] = _adapted_coverage(stream)
    return found


def _adapted_coverage(stream: Asked) -> dict[str, Measure]:
    """Coverage of adapted 90 % bands in the second half of what comes after the shift."""
    late = slice(BEFORE + AFTER // 2, None)
    found = {}
    for method in ("adaptive", "rolling"):
        bands = WAYS[f"Murho, {method}"](stream, 0)[late]
        truth = stream.truth[late]
        inside = (bands[:, 0] <= truth) & (truth <= bands[:, 1])
        found[method] = Measure(float(np.mean(inside)), 0.9, count=len(inside))
    return found
