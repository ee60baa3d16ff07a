"""The parameters of `model.estimator.BBBRegressor`: the options of a training, and a few of its own.

Names, defaults and descriptions of the former derive from `model.training.options.TrainOptions`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from murho.model.commands.training_progress import TerminalReporter
from murho.model.data.column_overrides import ColumnOverride
from murho.model.data.frames import declared_kinds
from murho.model.engines.prediction import DEFAULT_SAMPLES
from murho.model.errors import OptionError, TableError
from murho.model.training.option_texts import option_texts
from murho.model.training.options import TrainOptions, make_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from murho.model.fitting.fit_types import Epoch
    from murho.model.training.candidates import Reporter
    from murho.model.training.option_texts import OptionText

__all__ = ["DataError", "ParameterError", "TrainingParameters", "as_value_errors"]

RENAMED = {"seed": "random_state", "transform": "target_transform"}
"""Options with another name here: scikit-learn says ``random_state``, and ``transform`` is a method there."""
MOST_RANDOM_SEED = 2**31 - 1
OWN: dict[str, Any] = {"samples": DEFAULT_SAMPLES, "random_state": None, "device": "cpu", "verbose": False}
"""Parameters of the estimator alone and their defaults; ``random_state`` replaces the seed, with another default."""
PLACE_OF_OPTIONS = re.compile(r"^( *)\[options of a training\]", re.MULTILINE)
"""The line of a docstring that `parameter_lines` replaces."""


class DataError(TableError, ValueError):
    """The data can't be used; a ValueError, as scikit-learn expects."""


class ParameterError(OptionError, ValueError):
    """A parameter has a value that can't be used; a ValueError, as scikit-learn expects."""


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Raises a `TableError` as a `DataError`, and an `OptionError` as a `ParameterError`.

    Options are renamed in the message: ``--batch-size`` becomes ``batch_size``.
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
    """A `model.training.candidates.Reporter` that says nothing."""

    def say(self, message: str) -> None:
        """Says nothing."""

    def begin(self, title: str) -> None:
        """Says nothing."""

    def epoch(self, epoch: Epoch) -> None:
        """Says nothing."""

    def end(self) -> None:
        """Says nothing."""


def training_parameters(options: type[TrainOptions] = TrainOptions) -> dict[str, OptionText]:
    """Parameter → the option of the same meaning; without ``random_state``, which is one of `OWN`.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    return {RENAMED.get(text.name, text.name): text for text in option_texts(options) if text.name != "seed"}


def parameter_lines(options: type[TrainOptions] = TrainOptions) -> str:
    """Describes `training_parameters` for the ``Args:`` of an estimator's docstring.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    wrapper = textwrap.TextWrapper(112, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(
        wrapper.fill(f"{name}: {' '.join(text.help.split())}")
        for name, text in training_parameters(options).items()
    )


def parameter_signature(options: type[TrainOptions] = TrainOptions) -> inspect.Signature:
    """The signature of `TrainingParameters`: the options of a training, and the `OWN` parameters.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    defaults = {name: text.default for name, text in training_parameters(options).items()} | OWN
    return inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in defaults.items()
        ]
    )


SIGNATURE = parameter_signature()


class TrainingParameters(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Holds the parameters as they were given: the fields of `TrainOptions`, and `OWN`.

    Raises:
        TypeError: A parameter is unknown.
    """

    def __init__(self, **parameters: Any) -> None:
        # Stored as they are: `clone` compares them; `fit` validates.
        given = SIGNATURE.bind(**parameters)
        given.apply_defaults()
        for name, value in given.arguments.items():
            setattr(self, name, value)

    # scikit-learn and `help` read the parameters here.
    __init__.__signature__ = SIGNATURE.replace(  # type: ignore[attr-defined]  # mypy knows no attributes of functions
        parameters=[
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *SIGNATURE.parameters.values(),
        ]
    )

    def __init_subclass__(cls, **rest: Any) -> None:
        """Puts the descriptions of the options into the docstring of the class."""
        super().__init_subclass__(**rest)
        if cls.__doc__:  # none with python -OO
            # The indent depends on the version of Python: from 3.13 on the compiler takes it away.
            cls.__doc__ = PLACE_OF_OPTIONS.sub(
                lambda place: textwrap.indent(parameter_lines(), place[1]), cls.__doc__
            )

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
        """Adds the kinds that follow from the types of the table's columns, where no kind was given."""
        described = dict(options.columns)
        for name, kind in declared_kinds(table).items():
            given = described.get(name, ColumnOverride())
            if name not in options.ignore and given.kind is None:
                described[name] = replace(given, kind=kind)
        return options.model_copy(update={"columns": described})

    def reporter(self) -> Reporter:
        """Shows how a fit goes, if ``verbose``."""
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
        """Parameters from the options recorded in a checkpoint; an option that no longer exists is left out."""
        known = {name: value for name, value in options.items() if name in TrainOptions.model_fields}
        return {
            RENAMED.get(name, name): tuple(value) if isinstance(value, list) else value
            for name, value in known.items()
        }


def _plain(value: Any) -> Any:
    """The value without numpy types: a search over parameters often takes values from an array."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
