"""A fake checkpoint with a real schema, and a client that calls an application without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

import anyio.from_thread
import httpx
import numpy as np
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from murho.model.bbb.network import Architecture
from murho.model.checkpoint.checkpoint import CheckpointReference
from murho.model.checkpoint.spec import LikelihoodSpec, ModelSpec
from murho.model.distributions.target_transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoder
from murho.model.errors import CheckpointError
from murho.model.predictive.answer_cost import AnswerCost
from murho.model.predictive.prediction import MonteCarloError, Prediction, PredictOptions, Question
from murho.model.tables.schema import Columns, Feature, FeatureKind, Schema, Target, UnfamiliarValue
from murho.service.app import create_app
from murho.service.engine.jobs import ModelLike
from murho.service.models.source import CheckpointSource, Stamp
from murho.service.settings import Settings
from tests.support import call_murho

SCHEMA = Schema(
    features=(
        Feature("Weight", FeatureKind.NUMERIC, "lb", False, 1000.0, 5000.0, ()),
        Feature("Horsepower", FeatureKind.NUMERIC, "hp", True, 40.0, 230.0, ()),
        Feature("Automatic", FeatureKind.BOOLEAN, None, False, 0.0, 1.0, ()),
        Feature("Year", FeatureKind.DATE, None, True, 0.0, 4383.0, ()),
        Feature("Origin/plant", FeatureKind.CATEGORICAL, None, False, None, None, ("Europe", "USA")),
    ),
    target=Target("Consumption", "mpg"),
    left_out={"Wheels": "constant"},
)
ROW: dict[str, Any] = {
    "Weight": 3000.0,
    "Horsepower": 100.0,
    "Automatic": True,
    "Year": "1975-06-01",
    "Origin/plant": "USA",
}
NAMES = list(ROW)


def spec_of(schema: Schema, **parts: Any) -> ModelSpec:
    """Return the specification of a linear model of a schema."""
    ends = {
        feature.name: np.array([*feature.categories[:1], None] if feature.categories else [0.0, 1.0])
        for feature in schema.features
    }
    encoder = Encoder.fit(schema, ends)
    of_number: dict[str, Any] = {
        "architecture": Architecture(encoder.width, (), 1),
        "likelihood": LikelihoodSpec("fixed", sigma=0.1),
        "target": Standardisation(Identity(), 20.0, 5.0),
    }
    return ModelSpec(schema=schema, encoder=encoder, **{**of_number, **parts})


class FakeModel:
    """Answers by a formula: the mean is Weight / 100 + Horsepower, draw k is the mean plus k - (S - 1) / 2."""

    def __init__(self, name: str = "cars", version: str = "1", schema: Schema = SCHEMA) -> None:
        self.name = name
        self.version = version
        self.schema = schema
        self.spec = spec_of(
            schema,
            training={"rows": 278},
            metrics={"rows": 60, "rmse": 3.0, "nll": 2.5, "calibrated": {"coverage": {"90": 0.9}}},
        )
        self.answer_cost = AnswerCost(1, 5, 1.0, 1)
        self.warm = False
        self.rows_of_pass = 256
        self.calls: list[PredictOptions] = []
        self.passes = 0
        self.before: Callable[[], None] = lambda: None

    def predict(self, columns: Columns, options: PredictOptions) -> Prediction:
        self.calls.append(options)
        self.asked = columns
        self.before()
        with np.errstate(over="ignore"):
            mean = np.nan_to_num(columns["Weight"]) / 100.0 + np.nan_to_num(columns["Horsepower"])
        seed = 7 if options.seed is None else options.seed
        extrapolation = np.isin(np.arange(len(mean)), [value.row for value in self.schema.outside(columns)])
        if options.samples == 0:
            return Prediction(0, seed, calibrated=False, mean=mean, extrapolation=extrapolation)
        samples = np.arange(options.samples) - (options.samples - 1) / 2
        draws = mean[:, None] + samples
        epistemic = np.broadcast_to(samples.std(), mean.shape)
        aleatoric = np.full(mean.shape, 2.0)
        levels, thresholds = np.array(options.percentiles), np.array(options.thresholds)
        return Prediction(
            samples=options.samples,
            seed=seed,
            calibrated=True,
            mean=mean,
            std=np.hypot(epistemic, aleatoric),
            epistemic_std=epistemic,
            aleatoric_std=aleatoric,
            extrapolation=extrapolation,
            percentiles=mean[:, None] + (levels - 50.0) / 10.0,
            grid=mean[:, None] + (np.array(options.grid) - 50.0) / 10.0 if options.grid else None,
            exceedance=1.0 / (1.0 + np.exp(np.clip(thresholds - mean[:, None], -50, 50)))
            if options.thresholds
            else None,
            draws=draws if options.draws else None,
            variances=np.full(draws.shape, 4.0) if options.noise_moments else None,
            third=np.zeros(len(mean)) if options.noise_moments else None,
            mc_error=MonteCarloError(0.01 * mean, 0.02 * mean, 0.03 * mean[:, None] + 0.0 * levels)
            if options.mc_error
            else None,
        )

    def predict_questions(
        self, columns: Columns, questions: Sequence[Question]
    ) -> list[tuple[Prediction, list[UnfamiliarValue]]]:
        self.passes += 1
        cells = [{name: column[question.rows] for name, column in columns.items()} for question in questions]
        return [
            (self.predict(rows, question.options), self.schema.outside(rows)[: question.max_warnings])
            for rows, question in zip(cells, questions, strict=True)
        ]

    def rows_without_draws(self, rows: int, incomplete: int, seconds: float) -> int:  # noqa: ARG002 - the same
        return self.rows_of_pass

    def cost(self, rows: int, options: PredictOptions, incomplete: int = 0) -> float:  # noqa: ARG002 - the same
        return rows * max(options.samples, 1) * (2 if options.mc_error else 1)

    def warm_up(self) -> None:
        self.warm = True


def failing() -> None:
    """Return what a model does before it answers."""
    raise ZeroDivisionError("secret")


class FakeSource(CheckpointSource):
    """Checkpoints in memory; a tuple of name, version and reason stands for one that can't be loaded."""

    place = "/somewhere/checkpoints"

    def __init__(self, *found: FakeModel | tuple[str, str, str]) -> None:
        self.found = found
        self.before: Callable[[], None] = lambda: None
        self.loads: list[tuple[str, str]] = []
        self.facts: dict[str, Any] = {}

    def prepare(self) -> None:
        """Nothing is compiled."""

    def list(self) -> list[CheckpointReference]:
        return [CheckpointReference(*_key(item), Path(*_key(item))) for item in self.found]

    def stamp(self, reference: CheckpointReference) -> Stamp | None:
        return next((id(item) for item in self.found if _key(item) == (reference.name, reference.version)), None)

    def load(self, reference: CheckpointReference) -> ModelLike:
        self.before()
        self.loads.append((reference.name, reference.version))
        for item in self.found:
            if isinstance(item, FakeModel):
                if (item.name, item.version) == (reference.name, reference.version):
                    return item
            elif item[:2] == (reference.name, reference.version):
                raise CheckpointError(item[2])
        raise AssertionError(reference)

    def report_facts(self, model: ModelLike) -> dict[str, Any]:
        return self.facts if model in self.found else {}


def _key(item: FakeModel | tuple[str, str, str]) -> tuple[str, str]:
    return (item.name, item.version) if isinstance(item, FakeModel) else item[:2]


class AppClient:
    """Calls an application in this process, its lifespan included, from a synchronous test.

    Args:
        app: The application.
        loaded: Whether to wait until it has loaded.
    """

    def __init__(self, app: FastAPI, *, loaded: bool = True) -> None:
        self.app, self._loaded = app, loaded
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.portal = self._stack.enter_context(anyio.from_thread.start_blocking_portal())
        lifespan: AbstractAsyncContextManager[Any] = self.app.router.lifespan_context(self.app)
        self.state: Mapping[str, Any] = self._stack.enter_context(self.portal.wrap_async_context_manager(lifespan))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await self.app({**scope, "state": dict(self.state)}, receive, send)

        # An exception that escapes the application must fail the test.
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://service")
        self._stack.callback(self.portal.call, self._client.aclose)
        if self._loaded:
            self.wait_until_loaded()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def request(self, method: str, path: str, *, kind: str = "", **arguments: Any) -> httpx.Response:
        """Send a request; `kind` is the media type of its body."""
        if kind:
            arguments["headers"] = {"content-type": kind}

        async def call() -> httpx.Response:
            return await self._client.request(method, path, **arguments)

        return self.portal.call(call)

    def get(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("GET", path, **arguments)

    def post(self, path: str, json: Any = None, **arguments: Any) -> httpx.Response:
        if json is not None:
            arguments["json"] = json
        return self.request("POST", path, **arguments)

    def wait_until_loaded(self) -> None:
        with anyio.from_thread.start_blocking_portal() as portal:
            for _ in range(12_000):
                if self.state["service"].registry.snapshot.loaded:
                    return
                portal.call(anyio.sleep, 0.005)
        raise AssertionError("the checkpoints were not loaded in 60 seconds")


def make_client(*found: FakeModel | tuple[str, str, str], **settings: Any) -> AppClient:
    """Return a client of an application that serves fake checkpoints."""
    return AppClient(create_app(Settings(**settings), source=FakeSource(*found)))


def pointers(response: httpx.Response, status: int | None = None) -> list[str]:
    """Check that a response is a problem, of a status, and return its pointers."""
    assert status in (None, response.status_code), response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == response.status_code
    assert set(problem) <= {"type", "title", "status", "detail", "errors"}
    return [error["pointer"] for error in problem.get("errors", [])]


def train_checkpoint(root: Path, name: str, *more: str) -> Path:
    """Fit a tiny checkpoint with every kind of feature in a few seconds; return its directory. `more` are options."""
    rows = np.random.default_rng(0)
    table = root / f"{name}.csv"
    lines = [",".join([*NAMES, "Consumption"])]
    for index in range(120):
        weight, power = rows.uniform(1000, 5000), rows.uniform(40, 230)
        shown = "" if index % 10 == 0 else f"{power:.1f}"
        origin = "USA" if weight > 3000 else "Europe"
        target = 40 - weight / 200 + rows.normal()
        automatic = ("false", "true")[index % 2]
        lines.append(f"{weight:.1f},{shown},{automatic},19{70 + index % 12}-06-01,{origin},{target:.2f}")
    table.write_text("\n".join(lines))
    options = ("--target", "Consumption", "--epochs", 3, "--hidden", 8, "--noise", "heteroscedastic")
    call_murho("train", table, "--name", name, "--checkpoints", root / "checkpoints", *options, *more)
    return max((root / "checkpoints" / name).iterdir())
