"""Live quality of a model from the sums of its outcomes, and the alarm that says since when it is wrong."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from sqlalchemy import func, select

from murho.model.evaluation.martingale import PitMartingale
from murho.model.evaluation.recorded import BINS, CLASS_SUMS, COVERAGES, NUMBER_SUMS, PIT_EDGES, band_ends
from murho.service.errors import wrong
from murho.service.outcomes.schema import ROLLUPS, SUMS, reading
from murho.service.outcomes.store import HOUR, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from murho.model.arrays import Doubles
    from murho.model.files import JSON
    from murho.service.outcomes.types import Earlier, QualityQuery, Scored, VersionFacts

ALARM = "alarm"
MOST_STEPS = 60
"""Of coverage over time."""
NORMAL_95 = 1.959963984540054
MOST_MARKS = 128


def quality_of(store: Store, model: str, facts: Mapping[str, VersionFacts], query: QualityQuery) -> JSON:
    """Return the quality of a model's versions as JSON data.

    Args:
        store: The store.
        model: The model's name.
        facts: What the store knows of its versions.
        query: What is asked for.

    Raises:
        BadInputError: The feature or the coverage isn't for this model.
        NotReadyError: The store doesn't answer.
    """
    of_classes = any(each.classes is not None for each in facts.values())
    if of_classes and query.coverage is not None:
        message = "Prediction sets are judged at the coverage that they were answered with; leave it out."
        raise wrong("/coverage", message)
    features = {feature.name for each in facts.values() for feature in each.features}
    if query.by is not None and query.by not in features:
        message = f"The model has no such feature; it has {', '.join(sorted(features))}."
        raise wrong("/by", message)
    until = int(time.time() // HOUR) + 1
    since = max(0, until - query.hours)
    step = math.ceil((until - since) / MOST_STEPS)
    found, key = ROLLUPS.c, (ROLLUPS.c.version, ROLLUPS.c.feature, ROLLUPS.c.group)
    slot = ((found.hour - since) // step).label("slot")
    wanted = [found.model == model, found.feature.in_(("", query.by or "")), found.deleted == 0, found.hour >= since]
    # One that came since the facts were looked up is left out.
    wanted.append(found.version.in_([version for version in facts if query.version in (None, version)]))
    selection = select(*key, slot, *(func.sum(found[name]) for name in SUMS)).where(*wanted).group_by(*key, slot)
    with reading(store.engine) as connection:
        rows = sorted(tuple(row) for row in connection.execute(selection))
    versions: dict[str, JSON] = {}
    for (version, feature, group), part in groupby(rows, key=lambda row: row[:3]):
        told = _number_quality if facts[version].classes is None else _class_quality
        slots = {int(row[3]): np.array(row[4:]) for row in part}
        quality = told(np.sum(list(slots.values()), axis=0), query)
        if feature:
            versions[version].setdefault("groups", []).append({"group": group, **quality})
            continue
        history = [
            {"from": _moment((since + number * step) * HOUR), **_in_short(told(line, query))}
            for number, line in slots.items()
        ]
        alarm = alarm_of(store, model, version)
        versions[version] = {"version": version, **quality, "alarm": alarm, "history": history}
    return {
        "model": model,
        "task": "classification" if of_classes else "regression",
        "from": _moment(since * HOUR),
        "to": _moment(until * HOUR),
        "by": query.by,
        "versions": list(versions.values()),
    }


def _number_quality(sums: Doubles, query: QualityQuery) -> JSON:
    n, crps, error, squared = sums[:4]
    pit = sums[4 + len(COVERAGES) : len(NUMBER_SUMS)]
    levels = sorted({*COVERAGES, *([] if query.coverage is None else [query.coverage])})
    widths = {_label(coverage): float(sums[4 + place] / n) for place, coverage in enumerate(COVERAGES)}
    return {
        "n": round(n),
        "coverage": {_label(coverage): _share(float(pit[slice(*band_ends(coverage))].sum()), n) for coverage in levels},
        "width": widths,
        "crps": float(crps / n),
        "bias": float(error / n),
        "rmse": math.sqrt(max(0.0, squared / n)),
        "pit": _histogram(pit),
    }


def _histogram(pit: Doubles) -> list[int]:
    """Return the counts of twenty equal bins."""
    edges = np.array(PIT_EDGES[:-1])
    places = np.minimum((edges * 20.0 + 1e-9).astype(int), 19)
    return [round(count) for count in np.bincount(places, pit, 20)]


def _class_quality(sums: Doubles, _asked: QualityQuery) -> JSON:
    n, correct, log_loss, brier, covered, size = sums[:6]
    count, right, sure = sums[6 : len(CLASS_SUMS)].reshape(3, BINS)
    return {
        "n": round(n),
        "accuracy": _share(correct, n),
        "log_loss": float(log_loss / n),
        "brier": float(brier / n),
        "ece": float(np.abs(right - sure).sum() / n),
        "sets": {"coverage": _share(covered, n), "size": float(size / n)},
        "reliability": [
            {"n": round(many), "accuracy": float(hits / many), "probability": float(mean / many)}
            for many, hits, mean in zip(count, right, sure, strict=True)
            if many > 0.5
        ],
    }


def _in_short(quality: JSON) -> JSON:
    """Return what is told of a step of time."""
    return {
        name: quality[name] for name in ("n", "coverage", "crps", "bias", "accuracy", "log_loss") if name in quality
    }


def _share(hits: float, n: float) -> dict[str, float]:
    """Return a share with its 95 % interval (Wilson 1927, "Probable inference")."""
    share = min(1.0, max(0.0, hits / n))
    square = NORMAL_95**2 / n
    middle = (share + square / 2.0) / (1.0 + square)
    half = NORMAL_95 * math.sqrt(share * (1.0 - share) / n + square / (4.0 * n)) / (1.0 + square)
    return {"share": share, "low": max(0.0, middle - half), "high": min(1.0, middle + half)}


def _label(coverage: float) -> str:
    return f"{100.0 * coverage:.4g}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class _AlarmState(msgspec.Struct):
    """The state of the alarm of a version.

    Attributes:
        test: The martingale, as it writes itself.
        marks: Number of outcomes, and when the next one was predicted; rising.
        raised: When the alarm was raised, by the outcome's prediction; None: it wasn't.
    """

    test: dict[str, Any]
    marks: list[tuple[int, float]]
    raised: float | None = None


class AlarmFollower:
    """Bets against each version with the outcomes that come; see `store.Follower`.

    Args:
        noticed: Called with the outcomes, and whether the alarm is raised.
    """

    kind = ALARM

    def __init__(self, noticed: Callable[[Scored, bool], object] = lambda *_: None) -> None:
        self._noticed = noticed

    def begin(self, _document: str, facts: VersionFacts) -> str:
        """Return the state before all outcomes; see `store.Follower`."""
        test = PitMartingale.of(facts.rows, central=facts.central)
        return msgspec.json.encode(_AlarmState(test.to_json(), [])).decode()

    def follow(self, document: str | None, scored: Scored, _earlier: Earlier) -> str | None:
        """Return the next state; see `store.Follower`."""
        state = msgspec.json.decode(document or self.begin("", scored.facts), type=_AlarmState)
        test, marks = PitMartingale.from_json(state.test), state.marks
        if test.alarm is not None:  # it stays, until another version
            self._noticed(scored, True)
            return None
        marks = [*(marks if len(marks) < MOST_MARKS else marks[::2]), (test.outcomes, scored.predicted[0])]
        before = test.outcomes
        test.update(scored.pits)
        self._noticed(scored, test.alarm is not None)
        raised = None if test.alarm is None else scored.predicted[test.alarm.outcomes - before - 1]
        return msgspec.json.encode(_AlarmState(test.to_json(), marks, raised)).decode()


def alarm_of(store: Store, model: str, version: str) -> JSON | None:
    """Return what the alarm of a version says; None: no outcome has come.

    Raises:
        NotReadyError: The store doesn't answer.
    """
    found = store.state(model, version, ALARM)
    if found is None:
        return None
    state = msgspec.json.decode(found.document, type=_AlarmState)
    test = PitMartingale.from_json(state.test)
    said: JSON = {"raised": test.alarm is not None, "outcomes": test.outcomes, "evidence": test.log_value}
    if test.alarm is not None and state.raised is not None:
        since = [at for count, at in state.marks if count <= test.alarm.since]
        said |= {"at": _moment(state.raised), "since": _moment(since[-1] if since else state.marks[0][1])}
    return said
