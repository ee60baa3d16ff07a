"""A small table with every kind of column, and a checkpoint trained on it once a session."""

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
import torch

from murho.model.bbb.fit import Epoch, Fit, Progress, fit
from murho.model.bbb.fit_rows import Rows
from murho.model.bbb.likelihood import Likelihood
from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.bbb.priors import GaussianPrior, Prior
from murho.model.bbb.registry import make_likelihood
from murho.model.bbb.schedule import FitOptions
from murho.model.checkpoint.posterior import Posterior
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.training import candidates as candidates_module
from murho.model.training.candidate_fits import CandidateFits
from murho.model.training.candidates import Attempt, Candidate, Reporter, Stage
from murho.model.training.options import make_options
from murho.model.training.train import Trained, train

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """Return the value, after a check that it is not None."""
    assert value is not None
    return value


class Notes(Reporter):
    """A reporter that records its messages, titles and epochs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.titles: list[str] = []
        self.stages: list[Stage] = []
        self.epochs = 0

    def stage(self, stage: Stage) -> None:
        self.stages.append(stage)

    def show_scores(self, attempt: Attempt) -> None:
        self.say(str(attempt))

    def say(self, message: str) -> None:
        self.lines.append(message)

    def begin(self, title: str) -> None:
        self.titles.append(title)

    def epoch(self, epoch: Epoch) -> None:
        self.epochs = epoch.number


def rescored(attempt: Attempt, nll: float, crps: float = 1.0) -> Attempt:
    """Return the attempt with the same NLL in every row, and, of a regression, the same CRPS."""
    rows = torch.tensor([nll, crps]).double().unsqueeze(1).expand(2, 100)
    if attempt.crps is None:
        return replace(attempt, nll=nll, rows=rows[:1])
    return replace(attempt, nll=nll, crps=crps, rows=rows)


def with_few_rows_below(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Let a table have many rows from a number of them on, whatever its features."""
    monkeypatch.setattr(candidates_module, "FEW_ROWS", rows)
    monkeypatch.setattr(candidates_module, "ROWS_A_FEATURE", 0)


def with_scores(
    monkeypatch: pytest.MonkeyPatch, scores: Callable[[Candidate, str], float | tuple[float, float]]
) -> dict[str, Fit | None]:
    """Let every fit of a search have an NLL, or an NLL and a CRPS, by its candidate and stage.

    Returns:
        The last fit of each stage.
    """

    def scored(
        fits: CandidateFits, candidate: Candidate, stage: str, start: Fit | None = None
    ) -> tuple[Attempt, Fit | None]:
        assert (start is not None) == (stage in {"settling", "longer"})
        attempt, kept[stage] = fit(fits, candidate, stage, start)
        given = scores(candidate, stage)
        return rescored(attempt, *(given if isinstance(given, tuple) else (given,))), kept[stage]

    fit, kept = CandidateFits.fit, dict[str, Fit | None]()
    monkeypatch.setattr(CandidateFits, "fit", scored)
    return kept


def with_losses_of_judges(monkeypatch: pytest.MonkeyPatch, first: float, second: float, both: float) -> None:
    """Let two judges, and both together, score every row alike."""
    judge_scores = CandidateFits.judge_scores

    def scored(*arguments: Any) -> torch.Tensor:
        scores = judge_scores(*arguments)
        given = torch.tensor([first, second, both]).double()
        return given[:, None, None].expand_as(scores) if len(scores) == len(given) else scores

    monkeypatch.setattr(CandidateFits, "judge_scores", scored)


@pytest.fixture
def heed_interrupts() -> Iterator[None]:
    """Heed SIGINT, which is ignored where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Set PyTorch to two threads for one test."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def make_table(rows: int = 160, seed: int = 0) -> pa.Table:
    """Return a table of flats: size (m2, some missing), district, lift, day of letting, and rent in euro."""
    generator = np.random.default_rng(seed)
    size = generator.uniform(20.0, 120.0, rows)
    district = generator.choice(["east", "north", "west"], rows)
    lift = generator.random(rows) < 0.5
    day = generator.integers(18_000, 19_000, rows)
    rent = 200.0 + 9.0 * size + 80.0 * (district == "west") + 30.0 * lift + generator.normal(0.0, 40.0, rows)
    known = generator.random(rows) > 0.1
    return pa.table(
        {
            "size": pa.array(np.where(known, size, np.nan), from_pandas=True),
            "district": district,
            "lift": lift,
            "day": pa.array(day.astype("datetime64[D]")),
            "rent": rent,
        }
    )


def schema_of_kinds(target: str = "y", **kinds: FeatureKind) -> Schema:
    """Features of these kinds that may miss, without ranges."""
    features = (Feature(name, kind, None, True, None, None, ()) for name, kind in kinds.items())
    return Schema(tuple(features), Target(target, None), {})


QUICK = {
    "hidden": (8,),
    "epochs": 15,
    "noise": "homoscedastic",
    "encoding": "standard",
    "transform": "none",
    "temperature": 1.0,
    "columns": {"size": {"unit": "m2"}, "rent": {"unit": "EUR"}},
}


def train_quickly(table: pa.Table, notes: Notes | None = None, **changes: object) -> Trained:
    """Return a fit that takes about a second."""
    return train(table, "rent", make_options(QUICK | changes), reporter=notes or Notes())


@pytest.fixture(scope="session")
def rent_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the checkpoint ``rent`` version 1, two members, heteroscedastic."""
    root: Path = tmp_path_factory.mktemp("checkpoints")
    trained = train_quickly(make_table(), members=2, noise="heteroscedastic", epochs=60)
    trained.posterior.save(root, "rent")
    return root


@pytest.fixture(scope="session")
def rent(rent_checkpoints: Path) -> Posterior:
    """Return the posterior of ``rent``."""
    return Posterior.load(rent_checkpoints / "rent" / "1")


@pytest.fixture(scope="session")
def room_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the checkpoint ``rooms`` version 1, a classifier of four members."""
    from tests.model.rooms import rooms_table, train_rooms  # it imports this module

    root: Path = tmp_path_factory.mktemp("checkpoints of rooms")
    trained = train_rooms(rooms_table())
    trained.posterior.save(root, "rooms")
    return root


@pytest.fixture(scope="session")
def rooms(room_checkpoints: Path) -> Posterior:
    """Return the posterior of ``rooms``."""
    return Posterior.load(room_checkpoints / "rooms" / "1")


def small_model(
    noise: str = "homoscedastic",
    *,
    hidden: tuple[int, ...] = (6,),
    members: int = 1,
    unread: tuple[tuple[int, ...], ...] = (),
    alike: bool = True,
    known: Mapping[str, Any] | None = None,
    inputs: int = 2,
    seed: int = 0,
) -> tuple[BayesianNetwork, Likelihood]:
    """Return a network and its observation model before a fit.

    Args:
        noise: A kind of observation model.
        hidden: Widths of the hidden layers.
        members: M.
        unread: The inputs that each member does not read; empty: all members read all.
        alike: Whether members differ in what they read by chance alone, if at all.
        known: Options of the observation model.
        inputs: D.
        seed: Seed of the initial means.
    """
    likelihood = make_likelihood(noise, members=members, **(known or {}))
    architecture = Architecture(inputs, hidden, likelihood.outputs, members=members, unread=unread)
    start = torch.Generator().manual_seed(seed)
    return BayesianNetwork(architecture, start, likelihood.initial_outputs, alike=alike), likelihood


OF_MODEL = ("noise", "hidden", "members", "unread", "alike", "known")


def small_fit(
    training: Rows,
    validation: Rows,
    *,
    prior: Prior | None = None,
    progress: Progress | None = None,
    seed: int = 0,
    **options: Any,
) -> Fit:
    """Return a fit that takes a fraction of a second.

    Args:
        training: Training rows.
        validation: Validation rows.
        prior: The prior; N(0, 1) by default.
        progress: Gets every epoch.
        seed: Seed of the initial means, the minibatches and the draws.
        options: Options of `small_model`, and fields of `FitOptions`.
    """
    of_model = {name: options.pop(name) for name in OF_MODEL if name in options}
    model = small_model(**of_model, inputs=training.features.shape[1], seed=seed)
    fit_options = FitOptions(**({"batch_size": 16, "epochs": 12, "warm_up_steps": 5} | options), seed=seed)
    return fit(*model, prior or GaussianPrior(), training, validation, fit_options, progress=progress)


def small_rows(count: int = 50) -> Rows:
    """Return a noisy sine of the first of two features."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(count, 2, generator=generator)
    return Rows(features, torch.sin(features[:, 0]) + 0.1 * torch.randn(count, generator=generator))
