"""Bands that follow outcomes: learned with the outcomes, in their transaction, and read by every front end.

States are kept in the store by number, so that all front ends and replicas use the same, every answer can name its own,
and an earlier one can be taken up again. An outcome is compared with the state that its answer was made with. Of older
states only some are kept (`store`); where the one of an answer is gone, the one before it stands for it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

import structlog

from murho.model.calibration.adaptation import Adaptation, AdaptationMethod
from murho.model.errors import CheckpointError, OptionError
from murho.model.evaluation.recorded import SCORES
from murho.model.predictive.prediction import AdaptedBands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from murho.service.engine.jobs import ModelLike
    from murho.service.outcomes.store import Store
    from murho.service.outcomes.types import Earlier, Scored, State, VersionFacts

ADAPTATION = "adaptation"
REFRESH_SECONDS = 1.0
"""Between two looks of a front end at the store."""
PARSED = 256


@lru_cache(PARSED)
def state_of(document: str | None) -> Adaptation | None:
    """Return the state that a document of the store has, with its map; None: this Murho can't read it."""
    with suppress(CheckpointError):
        return None if document is None else Adaptation.from_json(json.loads(document))
    return None


class AdaptationFollower:
    """Learns from outcomes, a `store.Follower`.

    Args:
        method: How bands follow; None: as they did, where they did.
    """

    kind = ADAPTATION

    def __init__(self, method: AdaptationMethod | None = None) -> None:
        self._method = method

    def begin(self, document: str, _facts: VersionFacts) -> str:
        """Return the state before all outcomes; see `store.Follower`."""
        return _start(document)

    def follow(self, document: str | None, scored: Scored, earlier: Earlier) -> str | None:
        """Return the next state; None for classes, whose sets stay as they are; see `store.Follower`."""
        before = state_of(document)
        method = self._method or (None if before is None else before.method)
        if scored.facts.classes is not None or method is None:
            return None
        state = (before or Adaptation(method)).by(method)
        for name, places in groupby(range(len(scored.pits)), key=scored.states.__getitem__):
            then = None if name is None else state_of(earlier(int(name)))
            if name is None or then is not None:
                state = state.update(scored.pits[list(places)], then, SCORES)
        return json.dumps(state.to_json())


class Bands:
    """The states that the answers of a front end use, looked up in the store every second, off the way of answers.

    While the store doesn't answer, the last ones stay.

    Args:
        store: The store.
        served: Returns the models that are served.
    """

    def __init__(self, store: Store, served: Callable[[], Iterable[ModelLike]]) -> None:
        self._store, self._served = store, served
        self._states: dict[tuple[str, str], tuple[int, AdaptedBands | None]] = {}
        self._lock = threading.Lock()

    def of(self, model: ModelLike) -> AdaptedBands | None:
        """Return how outcomes move a version's bands; None: they are the checkpoint's."""
        return self._states.get((model.name, model.version), (0, None))[1]

    def refresh(self) -> None:
        """Take up the latest states; blocks.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        with self._lock:
            states = {}
            for model in self._served():
                key = model.name, model.version
                known = self._states.get(key, (0, None))
                if model.schema.target.classes is None:
                    latest = self._store.state(*key, ADAPTATION)
                    states[key] = known if latest is None or latest.number == known[0] else _bands_of(latest)
            self._states = states

    async def run(self) -> None:
        """Follow the store until it is cancelled."""
        log, wrong = structlog.get_logger("murho.outcomes"), False
        while True:
            try:
                await asyncio.to_thread(self.refresh)
                wrong = False
            except Exception as error:  # it is needed as long as there are answers
                if not wrong:
                    log.warning("bands can't follow outcomes now", error=str(error))
                wrong = True
            await asyncio.sleep(REFRESH_SECONDS)


def _bands_of(state: State) -> tuple[int, AdaptedBands | None]:
    found = state_of(state.document)
    if found is None or found.drift_map is None:
        return state.number, None
    return state.number, AdaptedBands(found.drift_map, found.outcomes, str(state.number))


def take_up(store: Store, model: str, version: str, number: int) -> int:
    """Make an earlier state the latest, under a new number, which is returned; 0: that before all outcomes.

    Raises:
        OptionError: There is no such state.
        NotReadyError: The store doesn't answer.
    """
    states = store.states(model, version, ADAPTATION)
    document = next((each.document for each in states if each.number == number), None)
    if not states or (document is None and number != 0):
        kept = f"there are {states[-1].number} to {states[0].number}" if states else "there is none"
        raise OptionError(f"{model}/{version} has no state {number} of its bands in the store: {kept}.")
    return store.put_state(model, version, ADAPTATION, document or _start(states[0].document))


def _start(document: str) -> str:
    """Return the state before all outcomes, by the method of a later one."""
    later = state_of(document)
    return json.dumps(Adaptation("adaptive" if later is None else later.method).to_json())
