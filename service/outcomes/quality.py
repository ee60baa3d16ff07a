"""Live quality of a model from the sums of its outcomes, and the alarm that says since when it is wrong."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from sqlalchemy import func, select

from murho.model.errors import Problem
from murho.model.evaluation.martingale import PitMartingale
from murho.model.evaluation.recorded import BINS, CLASS_SUMS, COVERAGES, NUMBER_SUMS, PIT_EDGES
from murho.service.errors import BadInputError
from murho.service.outcomes.schema import ROLLUPS, SPANS, reading
from murho.service.outcomes.store import HOUR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from murho.service.outcomes.store import Earlier, Scored, Store, VersionFacts

    Doubles: TypeAlias = NDArray[np.float64]

__all__ = ["ALARM", "AlarmFollower", "QualityQuery", "quality_of"]

ALARM = "alarm"
WINDOW = re.compile(r"([1-9][0-9]{0,5})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}
MOST_HOURS = 7 * 24
"""A longer window is of whole days."""
MOST_STEPS = 60
"""Of coverage over time."""
NORMAL_95 = 1.959963984540054
MOST_MARKS = 128


@dataclass(frozen=True, slots=True)
class QualityQuery:
    """What is asked of the quality of a model.

    Attributes:
        hours: How far back the predictions go.
        by: A feature whose groups are told apart; None: none.
        coverage: Of a further central band, a share; None: none.
        version: The only version; None: all.
    """

    hours: int = 30 * 24
    by: str | None = None
    coverage: float | None = None
    version: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> QualityQuery:
        """Returns what query parameters ask for.

        Raises:
            BadInputError: One is unknown or can't be used.
        """
        known = ("window", "by", "coverage", "version")
        problems = [Problem(f"/{name}", f"There are only {', '.join(known)}.") for name in query if name not in known]
        window, coverage = WINDOW.fullmatch(query.get("window", "30d")), None
        if window is None:
            problems.append(Problem("/window", "Expected a number of hours, days or weeks such as 24h, 30d or 4w."))
        if "coverage" in query:
            try:
                coverage = float(query["coverage"])
            except ValueError:
                coverage = math.nan
            if _ends(coverage) is None:
                shares = "0.05, 0.1, … 0.95, 0.98 or 0.99"
                problems.append(Problem("/coverage", f"Expected a share that is counted: {shares}."))
        if problems or window is None:
            raise BadInputError(problems)
        hours = int(window[1]) * HOURS[window[2]]
        return cls(hours, query.get("by"), coverage, query.get("version"))


def _ends(coverage: float) -> tuple[int, int] | None:
    """Returns the bins of PITs that a central band holds, from and up to; None: it ends within one."""
    if not 0.0 < coverage < 1.0:
        return None
    edges = np.array(PIT_EDGES)
    found = [np.flatnonzero(np.abs(edges - 0.5 * (1.0 + side * coverage)) < 1e-9) for side in (-1.0, 1.0)]
    return (int(found[0][0]), int(found[1][0])) if all(map(len, found)) else None


def quality_of(store: Store, model: str, facts: Mapping[str, VersionFacts], asked: QualityQuery) -> dict[str, Any]:
    """Returns the quality of a model's versions as JSON data.

    Args:
        store: The store.
        model: The model's name.
        facts: What the store knows of its versions.
        asked: What is asked for.

    Raises:
        BadInputError: The feature or the coverage isn't for this model.
        NotReadyError: The store doesn't answer.
    """
    classes = {version for version, each in facts.items() if each.classes is not None}
    if classes and asked.coverage is not None:
        message = "Prediction sets are judged at the coverage that they were answered with; leave it out."
        raise BadInputError([Problem("/coverage", message)])
    features = {feature.name for each in facts.values() for feature in each.features}
    if asked.by is not None and asked.by not in features:
        message = f"The model has no such feature; it has {', '.join(sorted(features))}."
        raise BadInputError([Problem("/by", message)])
    span = SPANS[0] if asked.hours <= MOST_HOURS else SPANS[1]
    until = int(time.time() // HOUR) + 1
    since = (until - asked.hours) // span * span
    step = span * math.ceil((until - since) / span / MOST_STEPS)
    versions: dict[str, dict[str, Any]] = {}
    for of_classes in {version in classes for version in facts}:
        told = _class_quality if of_classes else _number_quality
        of_feature = [""] if asked.by is None else ["", asked.by]
        for feature in of_feature:
            sums = _sums(store, model, feature, asked, (span, since, step), of_classes=of_classes)
            for (version, group), slots in sorted(sums.items()):
                quality = told(np.sum(list(slots.values()), axis=0), asked)
                if feature:
                    versions[version].setdefault("groups", []).append({"group": group, **quality})
                else:
                    history = [
                        {"from": _moment((since + slot * step) * HOUR), **_in_short(told(line, asked))}
                        for slot, line in sorted(slots.items())
                    ]
                    alarm = alarm_of(store, model, version)
                    versions[version] = {"version": version, **quality, "alarm": alarm, "history": history}
    return {
        "model": model,
        "task": "classification" if classes else "regression",
        "from": _moment(since * HOUR),
        "to": _moment(until * HOUR),
        "by": asked.by,
        "versions": list(versions.values()),
    }


def _sums(
    store: Store, model: str, feature: str, asked: QualityQuery, times: tuple[int, int, int], *, of_classes: bool
) -> dict[tuple[str, str], dict[int, Doubles]]:
    """Returns sums by version and group, of each step of time.

    Args:
        store: The store.
        model: The model's name.
        feature: Whose groups; empty: of all.
        asked: What is asked for.
        times: Hours of the rows to add up, the first hour, and hours of a step.
        of_classes: Whether they are of classes.
    """
    table, (span, since, step) = ROLLUPS[of_classes], times
    found = table.c
    slot = ((found.hour - since) // step).label("slot")
    names = CLASS_SUMS if of_classes else NUMBER_SUMS
    key = found.version, found.group, slot
    wanted = [found.model == model, found.feature == feature, found.span == span, found.hour >= since]
    if asked.version is not None:
        wanted.append(found.version == asked.version)
    query = select(*key, *(func.sum(found[name]) for name in names)).where(*wanted).group_by(*key)
    sums: dict[tuple[str, str], dict[int, Doubles]] = {}
    with reading(store.engine) as connection:
        for version, group, number, *line in connection.execute(query):
            if line[0] > 0.5:  # outcomes that were revised away leave nothing but rounding
                sums.setdefault((version, group), {})[int(number)] = np.array(line)
    return sums


def _number_quality(sums: Doubles, asked: QualityQuery) -> dict[str, Any]:
    n, crps, error, squared = sums[:4]
    pit = sums[4 + len(COVERAGES) :]
    levels = sorted({*COVERAGES, *([] if asked.coverage is None else [asked.coverage])})
    widths = {_label(coverage): float(sums[4 + place] / n) for place, coverage in enumerate(COVERAGES)}
    return {
        "n": round(n),
        "coverage": {_label(coverage): _share(_within(pit, coverage), n) for coverage in levels},
        "width": widths,
        "crps": float(crps / n),
        "bias": float(error / n),
        "rmse": math.sqrt(max(0.0, squared / n)),
        "pit": _histogram(pit),
    }


def _within(pit: Doubles, coverage: float) -> float:
    ends = _ends(coverage)
    assert ends is not None  # noqa: S101 - `QualityQuery.of`
    return float(pit[ends[0] : ends[1]].sum())


def _histogram(pit: Doubles) -> list[int]:
    """Returns the counts of twenty equal bins."""
    edges = np.array(PIT_EDGES[:-1])
    places = np.minimum((edges * 20.0 + 1e-9).astype(int), 19)
    return [round(count) for count in np.bincount(places, pit, 20)]


def _class_quality(sums: Doubles, _asked: QualityQuery) -> dict[str, Any]:
    n, correct, log_loss, brier, covered, size = sums[:6]
    count, right, sure = sums[6:].reshape(3, BINS)
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


def _in_short(quality: dict[str, Any]) -> dict[str, Any]:
    """Returns what is told of a step of time."""
    return {
        name: quality[name] for name in ("n", "coverage", "crps", "bias", "accuracy", "log_loss") if name in quality
    }


def _share(hits: float, n: float) -> dict[str, float]:
    """Returns a share with its 95 % interval (Wilson 1927, "Probable inference")."""
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
    keeps = 1

    def __init__(self, noticed: Callable[[Scored, bool], object] = lambda *_: None) -> None:
        self._noticed = noticed

    def follow(self, document: str | None, scored: Scored, _earlier: Earlier) -> str | None:
        """Returns the next state; see `store.Follower`."""
        state = None if document is None else msgspec.json.decode(document, type=_AlarmState)
        test = PitMartingale(scored.rows) if state is None else PitMartingale.from_json(state.test)
        if test.alarm is not None:  # it stays, until another version
            self._noticed(scored, True)
            return None
        marks = [] if state is None else state.marks
        marks = [*(marks if len(marks) < MOST_MARKS else marks[::2]), (test.outcomes, float(scored.predicted[0]))]
        before = test.outcomes
        test.update(scored.pits)
        self._noticed(scored, test.alarm is not None)
        raised = None if test.alarm is None else float(scored.predicted[test.alarm.outcomes - before - 1])
        return msgspec.json.encode(_AlarmState(test.to_json(), marks, raised)).decode()


def alarm_of(store: Store, model: str, version: str) -> dict[str, Any] | None:
    """Returns what the alarm of a version says; None: no outcome has come.

    Raises:
        NotReadyError: The store doesn't answer.
    """
    found = store.state(model, version, ALARM)
    if found is None:
        return None
    state = msgspec.json.decode(found.document, type=_AlarmState)
    test = PitMartingale.from_json(state.test)
    said: dict[str, Any] = {"raised": test.alarm is not None, "outcomes": test.outcomes, "evidence": test.log_value}
    if test.alarm is not None and state.raised is not None:
        since = [at for count, at in state.marks if count <= test.alarm.since]
        said |= {"at": _moment(state.raised), "since": _moment(since[-1] if since else state.marks[0][1])}
    return said
