"""The course of a training: its candidates, and the curves of the fits that led to the kept one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.fitting.fit_types import Epoch
    from murho.model.posterior.model_spec import ModelSpec
    from murho.model.training.candidates import Attempt
    from murho.model.training.evidence import Evidence

__all__ = ["curve_points", "curves", "training_facts"]

MOST_POINTS = 150
"""Most epochs of a curve that are kept, evenly spaced: as many as a chart can show."""


def training_facts(spec: ModelSpec, evidence: Evidence | None) -> dict[str, Any]:
    """How the checkpoint was made.

    Args:
        spec: Its specification.
        evidence: What the training knows besides; None: without curves.

    Returns:
        ``seconds, members, hidden, noise, transform, encoding, prior, temperature, seed, parameters, interrupted``,
        ``candidates`` with ``chosen`` for the kept one, and ``curves`` (`curves`; None without evidence).
    """
    training = spec.training
    candidates = [dict(candidate) for candidate in training.get("candidates", [])]
    kept = _chosen(candidates, training, evidence)
    for number, candidate in enumerate(candidates):
        candidate["chosen"] = number == kept
    sizes = (math.prod(shape) for name, shape in spec.architecture.shapes().items() if name.endswith(".mu"))
    return {
        "seconds": training.get("seconds"),
        "interrupted": training.get("interrupted", False),
        "members": spec.architecture.members,
        "hidden": list(spec.architecture.hidden),
        "parameters": 2 * sum(sizes),
        "noise": spec.likelihood.kind,
        "transform": spec.target.transform.kind,
        "encoding": candidates[kept]["encoding"] if kept is not None else None,
        "prior": training.get("options", {}).get("prior"),
        "temperature": spec.temperature,
        "seed": spec.default_seed,
        "validation_rows": training.get("validation_rows"),
        "calibration_rows": training.get("calibration_rows"),
        "candidates": candidates,
        "curves": None if evidence is None else curves(evidence.attempts, evidence.chosen),
    }


def _chosen(candidates: Sequence[Any], training: Any, evidence: Evidence | None) -> int | None:
    """Number of the kept candidate; without evidence the last one of its temperature."""
    if evidence is not None:
        return next((n for n, attempt in enumerate(evidence.attempts) if attempt is evidence.chosen), None)
    fitting = [n for n, candidate in enumerate(candidates) if candidate["temperature"] == training.get("temperature")]
    return fitting[-1] if fitting else None


def curves(attempts: Sequence[Attempt], chosen: Attempt) -> list[dict[str, Any]]:
    """The epochs of the kept fit and, if it continued the full fit, of that one before it.

    Returns:
        One entry a fit: ``stage``, and the lists ``epoch, free_energy, nll, kl, validation``, all in nats per row of
        standardised targets; ``validation`` is None before the first one.
    """
    before = [attempt for attempt in attempts if attempt.stage == "full" and attempt is not chosen and attempt.history]
    fits = [*(before[-1:] if chosen.stage == "settling" else []), chosen]
    return [{"stage": attempt.stage, **curve_points(attempt.history)} for attempt in fits if attempt.history]


def curve_points(history: Sequence[Epoch]) -> dict[str, list[Any]]:
    """The curves of one fit, as `curves` lists them, from all its epochs."""
    places = np.unique(np.linspace(0, len(history) - 1, min(MOST_POINTS, len(history))).round().astype(int))
    epochs = [history[place] for place in places]
    return {
        "epoch": [epoch.number for epoch in epochs],
        "free_energy": [_short(epoch.free_energy) for epoch in epochs],
        "nll": [_short(epoch.negative_log_likelihood) for epoch in epochs],
        "kl": [_short(epoch.kl) for epoch in epochs],
        "validation": [_short(epoch.validation) for epoch in epochs],
    }


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
