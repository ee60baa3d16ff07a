from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import generate_latest

from murho.model.predictive.prediction import Prediction
from murho.service.engine.jobs import Timing
from murho.service.engine.scheduler import Scheduler
from murho.service.telemetry.metrics import Telemetry
from murho.service.telemetry.model_series import IDLE_SECONDS, OTHERS, ModelSeries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.service.engine.jobs import Slice
    from murho.service.engine.scheduler import Outcome

ONE = np.ones(1)
ANSWER = Prediction(256, 0, True, ONE, ONE, ONE, ONE)


class Bench:
    """Two places for series; each is the text of its labels."""

    def __init__(self) -> None:
        self.now, self.removed = 0.0, list[tuple[str, str, bool]]()
        self.series = ModelSeries(2, lambda *labels: " ".join(labels), self._remove, lambda: self.now)

    def _remove(self, name: str, version: str, name_stays: bool) -> None:
        self.removed.append((name, version, name_stays))

    def ask(self, *versions: str) -> list[str]:
        return [self.series.of(*version.split()) for version in versions]


def test_the_first_versions_have_places_and_all_others_share_one_series() -> None:
    bench = Bench()
    assert bench.ask("a 1", "b 1", "c 1", "d 1", "a 1") == ["a 1", "b 1", "(others) ", "(others) ", "a 1"]
    assert bench.series.places() == [("b", "1"), ("a", "1")]
    assert bench.removed == []


def test_a_version_that_is_idle_for_long_gives_its_place_away() -> None:
    bench = Bench()
    bench.ask("a 1", "a 2")
    bench.now = IDLE_SECONDS - 1.0
    bench.ask("a 1")
    bench.now = IDLE_SECONDS
    assert bench.ask("c 1", "d 1") == ["c 1", "(others) "]
    assert bench.removed == [("a", "2", True)]
    bench.now = 2 * IDLE_SECONDS
    bench.ask("d 1")
    assert bench.removed[1:] == [("a", "1", False)]


def compute(_slices: Sequence[Slice]) -> list[Outcome]:
    raise AssertionError


def of(telemetry: Telemetry, metric: str) -> dict[str, float]:
    """Labels of a metric to its value."""
    text = generate_latest(telemetry.registry).decode()
    return {labels: float(value) for labels, value in re.findall(rf"^{metric}{{(.*)}} (\S+)$", text, re.M)}


def test_the_sum_over_models_is_right_however_many_there_are_and_a_scrape_is_bounded() -> None:
    telemetry = Telemetry(Scheduler(compute, 10, 1e9), most_models=3)
    telemetry.served.show([(f"m{number}", "1") for number in range(500)])
    assert telemetry.served.named() == []
    for number in range(500):
        telemetry.record_rows(f"m{number}", "1", 1, ANSWER)
        telemetry.record_timing(f"m{number}", "1", Timing(0.0, 0.0), warned=True)
    named = [f'model="m{number}",version="1"' for number in range(3)]
    others = f'model="{OTHERS[0]}",version=""'
    assert of(telemetry, "murho_rows_total") == {**dict.fromkeys(named, 1.0), others: 497.0}
    assert of(telemetry, "murho_warned_requests_total") == {**dict.fromkeys(named, 1.0), others: 497.0}
    assert of(telemetry, "murho_queue_seconds_count")[f'model="{OTHERS[0]}"'] == 497.0
    assert of(telemetry, "murho_std_total") == dict.fromkeys(named, 1.0)  # the others have different units
    assert of(telemetry, "murho_model_info") == dict.fromkeys(named, 1.0)
    assert len(generate_latest(telemetry.registry)) < 40_000


def test_few_models_are_all_named_before_they_are_asked() -> None:
    telemetry = Telemetry(Scheduler(compute, 10, 1e9), most_models=3)
    telemetry.served.show([("a", "1"), ("b", "1")])
    assert of(telemetry, "murho_model_info") == {'model="a",version="1"': 1.0, 'model="b",version="1"': 1.0}
    telemetry.served.show([("b", "2")])
    assert of(telemetry, "murho_model_info") == {'model="b",version="2"': 1.0}
