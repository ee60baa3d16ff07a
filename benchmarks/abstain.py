"""`python -m benchmarks.abstain --data DIR`: how often the error of decisions that are taken stays below a limit.

Each table is fitted once, quickly, to half of its rows. The other half is answered, and split at random many times:
one part plays the held-out rows of a checkpoint, the other one is decided about. "broken" counts the splits in which
more than the limit of the decisions taken are wrong; "checkpoint" is the same of the rows that the fit itself held out,
with all of the other half. ``--known`` makes up evidence and new rows of two classes whose probabilities are known: of
members that err each by itself and all together, and are too sure of themselves. Rows that all members judge and that
chose nothing are what the theorem of `model.calibration.abstention` speaks of; a checkpoint's rows are judged by two of
ten members, make the map of the probabilities, and choose one of ten fits by their log loss.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import murho
from benchmarks.datasets import CLASSES, add_data, read_set
from benchmarks.results import Report, add_counts, command
from benchmarks.runner import mean, one_each
from murho.model.calibration.abstention import least_confidence
from murho.model.calibration.class_calibration import ClassCalibration, fit_class_map
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray
    from torch import Tensor

    Doubles = NDArray[np.float64]

LIMITS = (0.01, 0.05, 0.1)
COLUMNS = {
    "wrong": mean("wrong"),
    "broken": mean("broken"),
    "taken": mean("taken"),
    "taken by its checkpoint": mean("own_taken"),
    "wrong of these": mean("own_wrong"),
}


def measured(data: Path, name: str, repeats: int) -> dict[str, dict[str, float | None]]:
    """Return what one table shows, by limit: shares broken, taken and wrong, and those of the checkpoint's own rows."""
    dataset, random = CLASSES[name], np.random.default_rng(0)
    rows = read_set(dataset, data)
    order = random.permutation(rows.num_rows)
    learned, others = np.array_split(order, 2)
    model = murho.train(rows.take(learned), dataset.target, quick=True, task="classification")
    answer = model.posterior.predict(*_asked(model, rows.take(others)))
    classes = {each: number for number, each in enumerate(model.classes or ())}
    truth = np.array([classes.get(str(each), -1) for each in rows[dataset.target].take(others).to_pylist()])
    confidence, wrong = answer.probabilities.max(axis=1), answer.prediction != truth
    alike = ~answer.outlier
    confidence, wrong = confidence[alike], wrong[alike]
    own = model.posterior.calibration
    kept = own.held_out if isinstance(own, ClassCalibration) else None
    found: dict[str, dict[str, float | None]] = {}
    for limit in LIMITS:
        broken, taken = 0, []
        for _ in range(repeats):
            places = random.permutation(len(wrong))
            known, new = np.array_split(places, 2)
            chosen = confidence[new] >= least_confidence(confidence[known], wrong[known], limit)
            broken += bool(chosen.any() and wrong[new][chosen].mean() > limit)
            taken.append(chosen.mean())
        least = np.inf
        if kept is not None and len(kept.labels):
            missed = kept.probabilities.argmax(axis=1) != kept.labels
            least = least_confidence(kept.probabilities.max(axis=1), missed, limit)
        sure = confidence >= least
        found[str(limit)] = {
            "broken": broken / repeats,
            "taken": float(np.mean(taken)),
            "wrong": float(wrong.mean()),
            "own_taken": float(sure.mean()),
            "own_wrong": float(wrong[sure].mean()) if sure.any() else None,
        }
    return found


def _asked(model: murho.TrainedModel, rows: pa.Table) -> tuple[dict[str, NDArray[Any]], PredictOptions]:
    return columns_from_table(rows, model.posterior.schema), PredictOptions(percentiles=())


FITS, MEMBERS, KNOWN_ROWS, NEW_ROWS, KNOWN_LIMIT = 10, 10, 500, 2_000, 0.05


def _judgements(random: np.random.Generator, rows: int, sureness: Doubles) -> tuple[Doubles, Doubles]:
    """Made-up probabilities of the second class.

    Args:
        random: The source of chance.
        rows: B.
        sureness: Factor of the logits of each of F fits, ``[F]``.

    Returns:
        Those of each member of each fit, ``[F, M, B]``, and the true ones, ``[B]``.
    """
    truth, fits = random.normal(0.0, 5.0, rows), len(sureness)
    together, alone = random.normal(size=(fits, 1, rows)), random.normal(size=(fits, MEMBERS, rows))
    return _sigmoid(sureness[:, None, None] * (truth + 0.7 * together + 1.2 * alone)), _sigmoid(truth)


def _sigmoid(logits: Doubles) -> Doubles:
    return np.asarray(1.0 / (1.0 + np.exp(-logits)))


def _logs(second: Doubles) -> Tensor:
    return torch.from_numpy(np.log(np.stack([1.0 - second, second], axis=-1).clip(1e-12)))


def known_evidence(rows: int, seed: int) -> dict[str, tuple[float, float]]:
    """Return the true risk of taken decisions, and their share, by evidence: rows that chose nothing, and others.

    Args:
        rows: Held-out rows.
        seed: Of all that is made up.
    """
    random = np.random.default_rng(seed)
    sureness = random.uniform(0.6, 2.0, FITS)
    given, truth = _judgements(random, rows, sureness)
    labels = (random.random(rows) < truth).astype(np.int64)

    def outcome(evidence: Doubles, served: Doubles) -> tuple[float, float]:
        least = least_confidence(np.maximum(evidence, 1.0 - evidence), (evidence > 0.5) != labels, KNOWN_LIMIT)
        taken = np.maximum(served, 1.0 - served) >= least
        errors = np.where(served > 0.5, 1.0 - true, true)
        return (float(errors[taken].mean()) if taken.any() else 0.0), float(taken.mean())

    judges = 2 * (np.arange(rows) % (MEMBERS // 2)) + np.arange(2)[:, None]
    judged = given[:, judges, np.arange(rows)].mean(axis=1)  # [fits, rows]
    losses = -np.log(np.where(labels == 1, judged, 1.0 - judged)).mean(axis=1)
    chosen = int(losses.argmin())
    # The map of all rows, which is kinder to them than one made crosswise.
    mapped = fit_class_map(_logs(judged[chosen]), torch.from_numpy(labels))
    new, true = _judgements(random, NEW_ROWS, sureness[[0, chosen]])
    first, of_chosen = new.mean(axis=1)
    evidence, served = (
        mapped.log_probabilities(_logs(each))[:, 1].exp().numpy() for each in (judged[chosen], of_chosen)
    )
    return {
        "rows that chose nothing": outcome(given[0].mean(axis=0), first),
        "a checkpoint's rows": outcome(evidence, served),
    }


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_data(parser, CLASSES)
    add_counts(parser, repeats=(100, "splits of a table, or made-up checkpoints"))
    parser.add_argument("--known", action="store_true", help="evidence whose truth is known, and no tables")


def run(options: argparse.Namespace) -> Report:
    """Measure and print."""
    if options.known:
        repeats = [known_evidence(KNOWN_ROWS, seed) for seed in range(options.repeats)]
        of_ways: dict[str, Report] = {}
        for way in repeats[0]:
            risks, taken = np.array([each[way] for each in repeats]).T
            broken = float(np.mean(risks > KNOWN_LIMIT))
            of_ways[way] = {"broken": broken, "risk": float(risks.mean()), "taken": float(taken.mean())}
        print(one_each("evidence", {name: mean(name) for name in ("broken", "risk", "taken")}, of_ways))
        return {"known": of_ways}
    found = {name: measured(options.data, name, options.repeats) for name in options.sets}
    lines = {f"{name}, {limit}": of for name, limits in found.items() for limit, of in limits.items()}
    print(one_each("table, limit", COLUMNS, lines))
    return {"sets": found}


main = command(__doc__, add, run)

if __name__ == "__main__":
    sys.exit(main())
