"""The parameters of `model.estimator.BBBRegressor`, and the options that they stand for."""

from __future__ import annotations

import re
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from murho.model.commands.training_progress import TerminalReporter
from murho.model.data.frames import declared_kinds
from murho.model.errors import OptionError, TableError
from murho.model.posterior.prediction import DEFAULT_SAMPLES
from murho.model.training.options import ColumnOptions, TrainOptions, make_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from murho.model.fitting.fit_types import Epoch
    from murho.model.training.candidates import Reporter

__all__ = ["DataError", "ParameterError", "TrainingParameters", "as_value_errors"]

RENAMED = {"seed": "random_state", "transform": "target_transform"}
"""Options that bear another name here: scikit-learn's own, and one for what would pass for its method `transform`."""
MOST_RANDOM_SEED = 2**31 - 1


class DataError(TableError, ValueError):
    """The data can't be used; a ValueError, as scikit-learn expects."""


class ParameterError(OptionError, ValueError):
    """A parameter has a value that can't be used; a ValueError, as scikit-learn expects."""


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Turns what the core says of tables and options into a `DataError` or a `ParameterError`.

    Options are named as on the command line there, and as parameters here.
    """
    try:
        yield
    except (DataError, ParameterError):
        raise
    except TableError as error:
        raise DataError(str(error)) from error
    except OptionError as error:
        raise ParameterError(re.sub(r"--([a-z][a-z0-9-]*)", _parameter, str(error))) from error


def _parameter(option: re.Match[str]) -> str:
    name = option[1].replace("-", "_")
    return RENAMED.get(name, name)


class Silence:
    """A `model.training.train.Reporter` that says nothing."""

    def say(self, message: str) -> None:
        """Says nothing."""

    def begin(self, title: str) -> None:
        """Says nothing."""

    def epoch(self, epoch: Epoch) -> None:
        """Says nothing."""

    def end(self) -> None:
        """Says nothing."""


class TrainingParameters(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Holds the parameters as they were given; a new option of `TrainOptions` is added here, and nowhere else.

    `model.estimator.BBBRegressor` describes them.
    """

    def __init__(
        self,
        *,
        hidden: Sequence[int] | None = None,
        members: int = 10,
        encoding: str = "auto",
        whiten: str = "auto",
        prior: str = "empirical-bayes",
        prior_sigma: float = 1.0,
        prior_pi: float = 0.5,
        prior_sigma1: float = 1.0,
        prior_sigma2: float = 0.1,
        noise: str = "auto",
        noise_sigma: float | None = None,
        noise_components: int = 3,
        target_transform: str = "auto",
        temperature: float | None = None,
        kl_weights: str = "uniform",
        activation: str = "silu",
        skip: bool = True,
        optimiser: str = "adam",
        draws_per_step: int = 1,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 1e-2,
        patience: int = 15,
        budget: float | None = None,
        ignore: Sequence[str] = (),
        columns: Mapping[str, Any] | None = None,
        samples: int = DEFAULT_SAMPLES,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        # Stored as they are: `clone` compares them; `fit` validates.
        self.hidden = hidden
        self.members = members
        self.encoding = encoding
        self.whiten = whiten
        self.prior = prior
        self.prior_sigma = prior_sigma
        self.prior_pi = prior_pi
        self.prior_sigma1 = prior_sigma1
        self.prior_sigma2 = prior_sigma2
        self.noise = noise
        self.noise_sigma = noise_sigma
        self.noise_components = noise_components
        self.target_transform = target_transform
        self.temperature = temperature
        self.kl_weights = kl_weights
        self.activation = activation
        self.skip = skip
        self.optimiser = optimiser
        self.draws_per_step = draws_per_step
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.budget = budget
        self.ignore = ignore
        self.columns = columns
        self.samples = samples
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def train_options(self) -> TrainOptions:
        """The options that the parameters stand for, validated.

        Raises:
            ParameterError: A parameter has a value that can't be used; the message names it.
        """
        values = {name: _plain(getattr(self, RENAMED.get(name, name))) for name in TrainOptions.model_fields}
        values["columns"] = values["columns"] or {}
        with as_value_errors():
            return make_options(values | {"seed": self._seed()})

    @staticmethod
    def with_kinds(options: TrainOptions, table: pa.Table) -> TrainOptions:
        """The options with the kinds that follow from the types of features, where nobody gave one."""
        described = dict(options.columns)
        for name, kind in declared_kinds(table).items():
            given = described.get(name, ColumnOptions())
            if name not in options.ignore and given.kind is None:
                described[name] = given.model_copy(update={"kind": kind})
        return options.model_copy(update={"columns": described})

    def reporter(self) -> Reporter:
        """Who is told how a fit goes."""
        return TerminalReporter() if self.verbose else Silence()

    def sample_count(self, samples: int | None = None, *, least: int) -> int:
        """S: the one that is given, or the parameter.

        Raises:
            ParameterError: It is no whole number, or below ``least``.
        """
        value = self.samples if samples is None else samples
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ParameterError(f"samples: a whole number, at least {least} for this, not {value!r}")
        return int(value)

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(MOST_RANDOM_SEED))

    @classmethod
    def parameters_of(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that stand for the options in a checkpoint; unknown ones are passed over."""
        known = {name: value for name, value in options.items() if name in TrainOptions.model_fields}
        return {
            RENAMED.get(name, name): tuple(value) if isinstance(value, list) else value
            for name, value in known.items()
        }


def _plain(value: Any) -> Any:
    """The value without numpy: a search over parameters often takes them from an array."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
