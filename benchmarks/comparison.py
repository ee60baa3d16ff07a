"""Compares Murho with peers by a score that is better when lower, over the same splits of a set.

A report of a split has ``raw`` and ``calibrated``, each the scores of that answer by name, or None. Murho counts with
its calibrated answer, which is its default, a peer with the better of its two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.command_line import mean_and_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "MURHO",
    "behind_cells",
    "error_of",
    "kinds_of",
    "lowest_line",
    "standing",
    "with_error",
]

MURHO = "Murho"


def standing(runs: Mapping[str, Sequence[Mapping[str, Any]]], score: str) -> dict[str, Any]:
    """How the systems stand on a set.

    Args:
        runs: System → reports of its splits; `MURHO` may be missing.
        score: Name of the score.

    Returns:
        Under the name of the score, system → the mean that is compared; ``error``: system → its standard error, see
        `error_of`; ``answer``: system → ``raw`` or ``calibrated``, the answer of that mean; ``best_peer``. With Murho
        also ``behind``, by how many per cent its score is above the best peer's (negative: below), ``behind_error``,
        the standard error of that over the splits, paired (None with one split), and ``lowest``.
    """
    means: dict[str, float] = {}
    error: dict[str, float | None] = {}
    answer: dict[str, str] = {}
    for system, reports in runs.items():
        kinds = ["calibrated"] if system == MURHO else kinds_of(reports)
        of_kind = {kind: float(np.mean([report[kind][score] for report in reports])) for kind in kinds}
        answer[system] = min(of_kind, key=of_kind.__getitem__)
        means[system] = of_kind[answer[system]]
        error[system] = error_of(reports, answer[system], score)
    peers = [system for system in runs if system != MURHO]
    verdict: dict[str, Any] = {score: means, "error": error, "answer": answer, "best_peer": None}
    if not peers:
        return verdict
    best = min(peers, key=means.__getitem__)
    verdict["best_peer"] = best
    if MURHO in runs:
        verdict["behind"] = 100.0 * (means[MURHO] / means[best] - 1.0)
        ours, theirs = ([report[answer[system]][score] for report in runs[system]] for system in (MURHO, best))
        verdict["behind_error"] = _paired_error(ours, theirs)
        verdict["lowest"] = means[MURHO] <= means[best]
    return verdict


def error_of(reports: Sequence[Mapping[str, Any]], kind: str, score: str) -> float | None:
    """Standard error of a system's mean score: over the splits, or, if there is one split, over its test rows.

    None for a single split whose scores were kept before errors were.

    Args:
        reports: One per split.
        kind: ``raw`` or ``calibrated``.
        score: Name of the score.
    """
    if len(reports) > 1:
        return mean_and_error([report[kind][score] for report in reports])[1]
    of_rows: float | None = reports[0][kind].get(f"{score}_error")
    return of_rows


def _paired_error(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Standard error of ``mean(ours) / mean(theirs) - 1``, per cent, from the differences on the same splits.

    With the ratio of the means r, it is that of the mean of ``ours - r theirs``, over the mean of ``theirs``.
    """
    if len(ours) < 2 or len(ours) != len(theirs):
        return None
    first, second = np.asarray(ours), np.asarray(theirs)
    left = first - first.mean() / second.mean() * second
    return float(100.0 * left.std(ddof=1) / np.sqrt(len(left)) / second.mean())


def kinds_of(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """The answers that all reports have."""
    return [kind for kind in ("raw", "calibrated") if all(report[kind] is not None for report in reports)]


def with_error(value: float, error: float | None) -> str:
    """A value ± its error, if that is known."""
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"


def behind_cells(verdict: Mapping[str, Any]) -> list[str]:
    """Cells of a summary: the best peer, how far Murho is behind it, and whether it is the lowest."""
    behind = f"{verdict['behind']:+.1f} %" if "behind" in verdict else "-"
    if verdict.get("behind_error") is not None:
        behind = f"{verdict['behind']:+.1f} ± {verdict['behind_error']:.1f} %"
    lowest = "yes" if verdict.get("lowest") else "no" if "lowest" in verdict else "-"
    return [verdict["best_peer"] or "-", behind, lowest]


def lowest_line(verdicts: Sequence[Mapping[str, Any]], score: str) -> str:
    """On how many sets Murho has the lowest score, and how far it is from the best peer at worst; without a full stop.

    Args:
        verdicts: What `standing` returned for sets with Murho and a peer, at least one.
        score: What the score is called.
    """
    return (
        f"Murho has the lowest {score} on {sum(verdict['lowest'] for verdict in verdicts)} of {len(verdicts)} sets; "
        f"at worst it is {max(verdict['behind'] for verdict in verdicts):+.1f} % from the best peer"
    )
