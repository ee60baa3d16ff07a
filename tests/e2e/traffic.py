"""Traffic for a service: requests whose right answers are known from `Posterior.predict`, sent from many threads."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import httpx
import numpy as np
import pyarrow as pa

from benchmarks.requests import records, rows_of
from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.model.tables.schema_inference import columns_from_table

ACCURACY = 1e-5
"""Of the larger of |value| and std: the public contract."""
ROUNDING = 3e-7
"""Of |mean|: a few roundings of float32."""
PROBLEM = "application/problem+json"
REFUSALS = frozenset({429, 503, 504})


@dataclass(frozen=True)
class Ask:
    """A request and what its answer must be.

    Attributes:
        body: The request.
        path: Its path.
        prediction: The answer; None where it must be 422.
    """

    body: dict[str, Any]
    path: str
    prediction: Prediction | None


def offline(posterior: Posterior, body: dict[str, Any]) -> Prediction:
    """Return the answer to a request with records, without any service."""
    columns = columns_from_table(pa.Table.from_pylist(body["inputs"]), posterior.schema)
    options = {name: value for name, value in body.items() if name != "inputs"}
    for name in ("percentiles", "thresholds"):
        if name in options:
            options[name] = tuple(map(float, options[name]))
    include = options.pop("include", [])
    answer: Prediction = posterior.predict(columns, PredictOptions(**options, draws="draws" in include))
    return answer


def asks(posterior: Posterior, count: int, path: str = "/predict", *, bad: float = 0.0, seed: int = 0) -> list[Ask]:
    """Different requests: rows, options, seeds; a share of them with a row that is refused."""
    rng = np.random.default_rng(seed)
    rows = rows_of(records(posterior.schema, 40, seed))
    made = []
    for _ in range(count):
        chosen = [rows[index] for index in rng.integers(len(rows), size=rng.choice([1, 1, 1, 2, 7]))]
        body: dict[str, Any] = {
            "inputs": chosen,
            "samples": int(rng.choice([0, 1, 2, 64, 256], p=[0.1, 0.1, 0.1, 0.5, 0.2])),
        }
        choices: dict[str, list[Any]] = {
            "seed": [0, 3, 2**40],
            "percentiles": [[], [50], [5, 50, 95], [0.1, 99.9, 20]],
            "noise": [True, False],
            "calibrated": [True, False],
            "thresholds": [[], [20.0], [-1e9, 25.5, 30]],
            "include": [[], ["draws"]],
        }
        for name, values in choices.items():
            if rng.random() < 0.4:
                body[name] = values[rng.integers(len(values))]
        if rng.random() < bad:
            name = posterior.schema.features[0].name
            broken = [{**chosen[0], name: "heavy"}, *chosen[1:]]
            made.append(Ask({**body, "inputs": broken}, path, None))
        else:
            made.append(Ask(body, path, offline(posterior, body)))
    return made


def differences(answer: dict[str, Any], prediction: Prediction) -> list[str]:
    """Names of the parts of an answer that are not the prediction's."""
    # The std of two draws may be less than what a rounding changes in each of them.
    std = 0.0 if prediction.std is None else prediction.std
    scale = np.maximum(std, ROUNDING / ACCURACY * np.abs(prediction.mean))
    nested = {"percentiles": "values", "exceedance": "values"}
    wrong = [] if answer["samples"] == prediction.samples and answer["seed"] == prediction.seed else ["samples"]
    for name in ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles", "exceedance", "draws"):
        given, right = answer.get(name), getattr(prediction, name)
        if given is not None and name in nested:
            given = given[nested[name]]
        if given is None or right is None or not np.size(right):
            if given is not None and np.size(given) and right is None:
                wrong.append(name)
            continue
        numbers, exact = np.array(given, dtype=np.float64), np.asarray(right)
        spread = scale if exact.ndim == 1 else scale[:, None]
        most = ACCURACY * (1.0 if name == "exceedance" else np.maximum(np.abs(exact), spread))
        if numbers.shape != exact.shape or not (np.abs(numbers - exact) <= most + 1e-12).all():
            wrong.append(name)
    return wrong


class Traffic:
    """Threads that send requests until the context ends; each waits for its answer.

    Attributes:
        outcomes: Number of requests by what came of them: ``right``, ``refused`` (with a reason), ``wrong``, ``lost``
            (accepted, no answer), ``unreachable`` (no connection).
        faults: What was wrong, in words; the first few.
    """

    def __init__(
        self,
        port: int,
        requests: Sequence[Ask],
        threads: int = 8,
        timeout: float = 60.0,
        refusals: frozenset[int] = REFUSALS,
    ) -> None:
        self.port, self.requests, self.timeout, self.refusals = port, requests, timeout, refusals
        self.outcomes: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.faults: list[str] = []
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(self.timeout + 30.0)

    def wait_for(self, count: int, outcome: str = "right") -> None:
        """Wait until so many more requests had this outcome."""
        begin = self.outcomes[outcome]
        wait_until(lambda: self.outcomes[outcome] >= begin + count)

    def require(self, *allowed: str) -> None:
        """Check that there were answers, and that nothing came of a request but these outcomes."""
        assert self.outcomes["right"], self.outcomes
        assert set(self.outcomes) <= {"right", *allowed}, (self.outcomes, self.faults)

    def _send(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        turn = number
        while not self._done.is_set():
            ask = self.requests[turn % len(self.requests)]
            turn += len(self._threads)
            try:
                connection.connect() if connection.sock is None else None
            except OSError:
                self._count("unreachable")
                connection.close()
                self._done.wait(0.05)
                continue
            try:
                connection.request("POST", ask.path, json.dumps(ask.body), {"content-type": "application/json"})
                response = connection.getresponse()
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                self._count("lost", repr(error))
                connection.close()
                continue
            media_type = response.headers.get("content-type", "")
            outcome, fault = judge(ask, response.status, media_type, content, self.refusals)
            with self._lock:
                self.statuses[response.status] += 1
            self._count(outcome, fault)
            if outcome == "refused":
                self._done.wait(0.02)
        with suppress(OSError):
            connection.close()

    def _count(self, outcome: str, fault: str = "") -> None:
        with self._lock:
            self.outcomes[outcome] += 1
            if fault and len(self.faults) < 5:
                self.faults.append(fault)


def judge(
    ask: Ask, status: int, media_type: str, content: bytes, refusals: frozenset[int] = REFUSALS
) -> tuple[str, str]:
    """Return what an answer is, ``right``, ``wrong`` or ``refused``, and what is wrong with it."""
    shown = f"{status} {content[:300]!r} to {str(ask.body)[:300]}"
    if status in refusals:
        reason = media_type == PROBLEM and json.loads(content).get("detail")
        return ("refused", "") if reason else ("wrong", shown)
    if ask.prediction is None:
        return ("right", "") if status == 422 and media_type == PROBLEM else ("wrong", shown)
    if status != 200:
        return "wrong", shown
    parts = differences(json.loads(content), ask.prediction)
    return ("wrong", f"{parts} in {shown}") if parts else ("right", "")


def wait_until(true: Callable[[], bool], seconds: float = 60.0, every: float = 0.02) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)


class OneRow:
    """Clients that ask for one row again and again, and check every answer against the version that it names.

    Args:
        address: Of the service.
        model: Name of the model.
        row: The row.
        expected: Its mean by the version.

    Attributes:
        versions: Versions that answered.
    """

    def __init__(
        self, address: str, model: str, row: dict[str, Any], expected: Callable[[str], float], clients: int = 4
    ) -> None:
        self.versions: set[str] = set()
        self._ending = threading.Event()
        self._threads = ThreadPoolExecutor(clients)
        asked = f"{address}/models/{model}/predict", row, expected
        self._clients = [self._threads.submit(self._ask, *asked) for _ in range(clients)]

    def _ask(self, address: str, row: dict[str, Any], expected: Callable[[str], float]) -> None:
        with httpx.Client(timeout=30) as client:
            while not self._ending.is_set():
                response = client.post(address, json={"inputs": [row]})
                assert response.status_code == 200, response.text
                answer = response.json()
                version = answer["model"]["version"]
                assert abs(answer["mean"][0] / expected(version) - 1.0) < 1e-5
                self.versions.add(version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for client in self._clients:
            client.result(30)
        self._threads.shutdown()
