"""Tables and figures from the numbers of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.mnist_parts.figures import Panel, density, draw
from benchmarks.results import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["draw_doubt", "draw_pruning", "draw_weights", "render"]

WEIGHT_EDGES = np.linspace(-1.0, 1.0, 401)
DECIBEL_EDGES = np.linspace(-40.0, 20.0, 121)
ENTROPY_EDGES = np.linspace(0.0, np.log(10.0), 47)


def render(report: Mapping[str, Any]) -> str:
    """All tables as text.

    Args:
        report: The numbers, as `benchmarks.mnist` writes them.
    """
    parts = []
    if report.get("systems"):
        rows = [
            [name, *(_scores(scores)), str(system["epochs"]), f"{system['seconds']:.0f}"]
            for name, system in report["systems"].items()
            for name, scores in _rows(name, system)
        ]
        head = ["network", "test error %", "+-", "log loss", "AUC", "ECE", "epochs", "processor s"]
        parts += ["Test images (a, d)", table(head, rows), ""]
    if report.get("pruning"):
        for name, pruned in report["pruning"].items():
            rows = [
                [
                    f"{100 * row['fraction']:g} %",
                    f"{row['weights']:,}",
                    f"{row['threshold']:.2f}",
                    f"{100 * row['mean_error']:.2f}",
                    f"{100 * row['error']:.2f}",
                ]
                for row in pruned
            ]
            head = ["removed", "weights left", "|mu|/sigma above", "error % (means)", "error % (draws)"]
            parts += [f"Weights of {name} removed by |mu| / sigma (c)", table(head, rows), ""]
    if report.get("doubt"):
        rows = []
        for name, found in report["doubt"].items():
            turned = found["rotated"]
            for place, angle in enumerate(turned["degrees"]):
                rows.append([name, f"turned by {angle:g}" if angle else "digits", *_doubt(turned, place)])
            rows.append([name, "pure noise", *_doubt({key: [value] for key, value in found["noise"].items()}, 0)])
        head = ["network", "images", "entropy", "mutual information", "largest probability"]
        parts += ["Doubt, nats; ln 10 = 2.303 (e)", table(head, rows), ""]
    return "\n".join(parts)


def _rows(name: str, system: Mapping[str, Any]) -> Sequence[tuple[str, Mapping[str, float]]]:
    kinds = {"mean_network": "means", "draws": "draws", "served": "served"}
    found = [(f"{name}, {title}", system[kind]) for kind, title in kinds.items() if kind in system]
    return found or [(name, system["scores"])]


def _scores(scores: Mapping[str, float]) -> list[str]:
    return [
        f"{100 * scores['error']:.2f}",
        f"{100 * scores['standard_error']:.2f}",
        f"{scores['log_loss']:.4f}",
        f"{scores['auc']:.5f}",
        f"{scores['ece']:.4f}",
    ]


def _doubt(columns: Mapping[str, Sequence[float]], place: int) -> list[str]:
    return [f"{columns[name][place]:.3f}" for name in ("entropy", "mutual_information", "confidence")]


def draw_weights(path: Path, weights: Mapping[str, NDArray[np.float64]], subtitle: Sequence[str]) -> None:
    """The densities of trained weights (b): linear, and logarithmic for the tails.

    Args:
        path: The PNG file.
        weights: Network → its weights, flat; those of a Bayesian network are draws.
        subtitle: Lines below the title.
    """
    lines = {name: density(values, WEIGHT_EDGES) for name, values in weights.items()}
    panels = [
        Panel("density", "weight", "density", lines, x_range=(-0.3, 0.3)),
        Panel("logarithmic, and wider", "weight", "density", lines, y_range=(1e-3, 100.0), logarithmic=True),
    ]
    draw(path, panels, title="Trained weights of three networks", subtitle=subtitle)


def draw_pruning(
    path: Path, ratios: NDArray[np.float64], rows: Sequence[Mapping[str, float]], subtitle: Sequence[str]
) -> None:
    """The density of the signal-to-noise ratio and the test error without the lowest ones (c).

    Args:
        path: The PNG file.
        ratios: Ratio of every weight in decibels.
        rows: The pruning table.
        subtitle: Lines below the title.
    """
    centres, heights = density(ratios, DECIBEL_EDGES)
    rules = {float(np.quantile(ratios, share)): f"{100 * share:g} %" for share in (0.75, 0.95)}
    removed = np.array([100 * row["fraction"] for row in rows])
    panels = [
        Panel(
            "density of the ratio, and where 75 % and 95 % of the weights lie below",
            "10 log10(|mu| / sigma), dB",
            "density",
            {"all weights": (centres, heights)},
            rules,
        ),
        Panel(
            "test error without the weights of the lowest ratios",
            "removed, % of the weights",
            "test error",
            {
                "means": (removed, np.array([row["mean_error"] for row in rows])),
                "draws": (removed, np.array([row["error"] for row in rows])),
            },
            y_range=(0.0, 0.05),
            points=True,
            percent=True,
        ),
    ]
    draw(path, panels, title="Pruning by signal-to-noise ratio", subtitle=subtitle)


def draw_doubt(path: Path, doubt: Mapping[str, Mapping[str, Any]], subtitle: Sequence[str]) -> None:
    """Entropy along the angle, and the densities of entropy on digits and on pure noise (e).

    Args:
        path: The PNG file.
        doubt: Network → what `benchmarks.mnist_parts.unlike_images.doubt_table` found, with ``entropies``.
        subtitle: Lines below the title.
    """
    turned = {
        name: (np.array(found["rotated"]["degrees"]), np.array(found["rotated"]["entropy"]))
        for name, found in doubt.items()
    }
    noise = {name: _cumulative(found["entropies"]["noise"]) for name, found in doubt.items()}
    panels = [
        Panel("test digits, turned", "degrees", "mean entropy, nats", turned, y_range=(0.0, 2.303), points=True),
        Panel(
            "pure noise: share of the images with less entropy",
            "entropy, nats",
            "share",
            noise,
            x_range=(0.0, 2.303),
            y_range=(0.0, 1.0),
        ),
    ]
    draw(path, panels, title="Doubt about images that are no digits", subtitle=subtitle)


def _cumulative(entropies: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return ENTROPY_EDGES, np.searchsorted(np.sort(entropies), ENTROPY_EDGES, side="right") / len(entropies)
