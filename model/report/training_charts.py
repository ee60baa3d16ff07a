"""Charts of the course of a training: its curves, and its candidates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from murho.model.likelihoods.registry import CLASS_KINDS
from murho.model.report.chart_style import BLUE, GREY, INK, MUTED, ORANGE, axis, named, number

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["candidate_chart", "candidate_name", "curve_chart"]

CURVES = {"nll": ("training", BLUE), "validation": ("validation, rows not seen", ORANGE)}
PARTS = {"free_energy": ("free energy", INK), "kl": ("KL", BLUE)}
STAGES = {"full": ("full fit", "circle"), "settling": ("settling fit", "diamond"), "trial": ("trial", "square")}


def curve_chart(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Negative log likelihood, KL and free energy over the epochs of the fits that were kept; None without curves."""
    fits = facts["training"]["curves"]
    if not fits:
        return None
    rows, joints, offset = [], [], 0
    for place, fit in enumerate(fits):
        if offset:
            joints.append({"at": offset})
        for name in (*CURVES, *PARTS):
            label = (CURVES | PARTS)[name][0]
            for number_, value in zip(fit["epoch"], fit[name], strict=True):
                if value is not None:
                    rows.append({"epoch": offset + number_, "value": value, "curve": label, "fit": place})
        offset += fit["epoch"][-1]
    panels = [
        _panel(rows, joints, offset, CURVES, "negative log likelihood", nats="nats per row, standardised"),
        _panel(rows, joints, offset, PARTS, "free energy and its KL", nats="nats per row", symlog=True),
    ]
    return {
        "hconcat": panels,
        "spacing": 30,
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
    }


def _panel(
    rows: list[dict[str, Any]],
    joints: list[dict[str, Any]],
    last: int,
    curves: Mapping[str, tuple[str, str]],
    title: str,
    *,
    nats: str,
    symlog: bool = False,
) -> dict[str, Any]:
    labels = [label for label, _ in curves.values()]
    x = number("epoch", "epoch", domain=(0, last), tickCount=6, grid=False)
    y = number("value", nats)
    if symlog:  # the KL falls by powers of ten, and the free energy may be negative
        y["scale"] = {"type": "symlog", "constant": 1}
        y["axis"] |= {"values": [-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100, 300, 1000, 3000]}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [row for row in rows if row["curve"] in labels]},
            "mark": {"type": "line", "strokeWidth": 1.8, "clip": True},
            "encoding": {
                "x": x,
                "y": y,
                "detail": {"field": "fit"},  # no line from the end of a fit to the begin of the next
                "color": {
                    "field": "curve",
                    "type": "nominal",
                    "scale": {"domain": labels, "range": [colour for _, colour in curves.values()]},
                    "legend": {"title": None},
                },
                # Where two curves are the same, both are seen.
                "strokeDash": {
                    "field": "curve",
                    "type": "nominal",
                    "scale": {"domain": labels, "range": [[1, 0], [6, 4] if symlog else [1, 0]]},
                    "legend": None,
                },
            },
        }
    ]
    if joints:
        layers.append(
            {
                "data": {"values": joints},
                "mark": {"type": "rule", "color": MUTED, "strokeDash": [3, 3]},
                "encoding": {"x": {"field": "at", "type": "quantitative"}},
            }
        )
    return {"width": 290, "height": 230, "title": title, "layer": layers}


def candidate_name(candidate: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> str:
    """The choices of a candidate in words.

    Args:
        candidate: One of the facts' ``candidates``.
        other: Another one; choices that are the same in both are left out.
    """
    widths = "x".join(str(width) for width in candidate["hidden"]) or "no"
    temperature, unread = candidate["temperature"], len(candidate.get("unread", ()))
    words = {
        **({} if candidate["noise"] in CLASS_KINDS else _of_number(candidate)),
        "encoding": f"{candidate['encoding']} encoding",
        "whitened": "whitened" if candidate.get("whitened") else "not whitened",
        "unread": f"without {unread} idle features" if unread else "all features" if other else "",
        "hidden": f"hidden {widths}",
        "temperature": "" if temperature is None else f"temperature {temperature:.3g}",
    }
    return ", ".join(text for choice, text in words.items() if text and not (other and _same(candidate, other, choice)))


def _of_number(candidate: Mapping[str, Any]) -> dict[str, str]:
    transform = candidate["transform"]
    return {
        "noise": f"{candidate['noise']} noise",
        "transform": "no transform" if transform == "none" else f"{transform} transform",
    }


def _same(candidate: Mapping[str, Any], other: Mapping[str, Any], choice: str) -> bool:
    # A trial may leave the temperature to the fit, which then tells it to more digits than anyone reads.
    first, second = candidate.get(choice), other.get(choice)
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=0.01)
    return bool(first == second)


def candidate_chart(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """CRPS, or log loss, of every candidate on rows that it has not seen; None with fewer than two."""
    candidates = facts["training"]["candidates"]
    if len(candidates) < 2:
        return None
    kept = next((candidate for candidate in candidates if candidate["chosen"]), None)
    rows = []
    for place, candidate in enumerate(candidates, start=1):
        name = f"{place}. {'kept' if candidate is kept else candidate_name(candidate, kept) or 'the same choices'}"
        stage = STAGES.get(candidate["stage"], (candidate["stage"], "circle"))[0]
        score = candidate["nll" if "classes" in facts["target"] else "crps"]
        if score is not None:
            rows.append(
                {
                    "name": name,
                    "score": score,
                    "stage": stage,
                    "kept": "kept" if candidate["chosen"] else "not kept",
                }
            )
    order = [row["name"] for row in rows]
    title = named("CRPS on validation rows", facts["target"]["unit"])
    if "classes" in facts["target"]:
        title = "log loss on validation rows (nats)"
    known = [stage for stage in STAGES.values() if stage[0] in {row["stage"] for row in rows}]
    return {
        "width": 330,
        "height": {"step": 24},
        "data": {"values": rows},
        "mark": {"type": "point", "filled": True, "size": 85, "opacity": 1},
        "encoding": {
            "y": {"field": "name", "type": "ordinal", "sort": order, "axis": axis(None, labelLimit=300, grid=True)},
            "x": number("score", title, tickCount=6),
            "shape": {
                "field": "stage",
                "type": "nominal",
                "scale": {"domain": [stage[0] for stage in known], "range": [stage[1] for stage in known]},
                "legend": {"title": None, "symbolFillColor": GREY},
            },
            "color": {
                "field": "kept",
                "type": "nominal",
                "scale": {"domain": ["kept", "not kept"], "range": [BLUE, GREY]},
                "legend": None,
            },
        },
    }
