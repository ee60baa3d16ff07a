"""The parameters of `model.estimator.BBBRegressor`: the options of a training, and a few more.

Names, defaults and descriptions of the options derive from `model.training.options.TrainOptions`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
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

    from murho.model.fitting.fit_types import Epoch
    from murho.model.training.candidates import Attempt, Stage
    from murho.model.training.option_texts import OptionText

__all__ = ["DataError", "ParameterError", "TrainingParameters", "as_value_errors"]

RENAMED = {"seed": "random_state", "transform": "target_transform"}
"""Options with another name here: scikit-learn calls the seed ``random_state``, and ``transform`` is a method name."""
MOST_RANDOM_SEED = 2**31 - 1
WEIGHT = "sample_weight"
"""Name of the column of weights that are given to `fit`."""
OWN: dict[str, Any] = {"samples": DEFAULT_SAMPLES, "random_state": None, "device": "cpu", "verbose": False}
"""Parameters that only the estimator has, with defaults; ``random_state`` replaces the seed, with another default."""
PLACE_OF_OPTIONS = re.compile(r"^( *)\[options of a training\]", re.MULTILINE)
"""The placeholder line in a docstring that `parameter_lines` replaces."""


class DataError(TableError, ValueError):
    """The data can't be used; a ValueError, as scikit-learn expects."""


class ParameterError(OptionError, ValueError):
    """A parameter has a value that can't be used; a ValueError, as scikit-learn expects."""


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Convert a `TableError` to a `DataError`, and an `OptionError` to a `ParameterError`.

    Option names in the message become parameter names: ``--batch-size`` becomes ``batch_size``.
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
    """A `model.training.candidates.Reporter` without output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def stage(self, stage: Stage) -> None:
        """Do nothing."""

    def scored(self, attempt: Attempt) -> None:
        """Do nothing."""

    def say(self, message: str) -> None:
        """Do nothing."""

    def begin(self, title: str) -> None:
        """Do nothing."""

    def epoch(self, epoch: Epoch) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


def training_parameters(options: type[TrainOptions] = TrainOptions) -> dict[str, OptionText]:
    """Name of a parameter → the option it stands for. ``random_state`` is not among them but in `OWN`.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    return {RENAMED.get(text.name, text.name): text for text in option_texts(options) if text.name != "seed"}


def parameter_lines(options: type[TrainOptions] = TrainOptions) -> str:
    """Descriptions of `training_parameters` for the ``Args:`` section of an estimator's docstring.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    wrapper = textwrap.TextWrapper(112, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(
        wrapper.fill(f"{name}: {' '.join(text.help.split())}") for name, text in training_parameters(options).items()
    )


def parameter_signature(options: type[TrainOptions] = TrainOptions) -> inspect.Signature:
    """The signature of `TrainingParameters`: the options of a training, and the `OWN` parameters.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    defaults = {name: text.default for name, text in training_parameters(options).items()} | OWN
    return inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
    )


SIGNATURE = parameter_signature()


class TrainingParameters(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The parameters as the user gave them: the fields of `TrainOptions`, and `OWN`.

    Raises:
        TypeError: A parameter is unknown.
    """

    def __init__(self, **parameters: Any) -> None:
        # Stored unchanged, because `clone` compares them; `fit` validates them.
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
        """Insert the descriptions of the options into the docstring of the class."""
        super().__init_subclass__(**rest)
        if cls.__doc__:  # None with python -OO
            # The indent depends on the version of Python: from 3.13 on the compiler removes it.
            cls.__doc__ = PLACE_OF_OPTIONS.sub(lambda place: textwrap.indent(parameter_lines(), place[1]), cls.__doc__)

    def train_options(self) -> TrainOptions:
        """The parameters as validated options.

        Raises:
            ParameterError: A parameter has a value that can't be used; the message names it.
        """
        values = {name: _plain(getattr(self, RENAMED.get(name, name))) for name in TrainOptions.model_fields}
        values["columns"] = values["columns"] or {}
        with as_value_errors():
            return make_options(values | {"seed": self._seed()})

    @staticmethod
    def with_kinds(options: TrainOptions, table: pa.Table) -> TrainOptions:
        """Options with kinds from the types of the table's columns, for columns without a given kind."""
        described = dict(options.columns)
        for name, kind in declared_kinds(table).items():
            given = described.get(name, ColumnOverride())
            left_out = name in options.ignore or (name in options.group and not options.keep_groups)
            if not left_out and given.kind is None:
                described[name] = replace(given, kind=kind)
        return options.model_copy(update={"columns": described})

    @staticmethod
    def with_weights(options: TrainOptions, table: pa.Table, sample_weight: Any) -> tuple[TrainOptions, pa.Table]:
        """Options and table with the weights given to `fit` as one more column; both unchanged if there are none.

        Raises:
            DataError: There is not one weight for each row.
            ParameterError: The parameter ``weight`` names a column of weights, too.
        """
        if sample_weight is None:
            return options, table
        if options.weight is not None:
            raise ParameterError(f"weight: {options.weight!r} names a column of X: give it or sample_weight, not both")
        weights = np.array(sample_weight, dtype=np.float64)
        if weights.shape != (table.num_rows,):
            raise DataError(f"sample_weight: one number for each of the {table.num_rows} rows, not {weights.shape}")
        name = WEIGHT
        while name in table.column_names:
            name += "_"
        table = table.append_column(name, pa.array(weights))
        return options.model_copy(update={"weight": name}), table

    def reporter(self) -> TerminalReporter | Silence:
        """A reporter that shows the progress of a fit if ``verbose``, and nothing otherwise."""
        return TerminalReporter() if self.verbose else Silence()

    def sample_count(self, samples: int | None = None, *, least: int) -> int:
        """S: the argument ``samples``, or the parameter if the argument is None.

        Raises:
            ParameterError: S is not a whole number, or is below ``least``.
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
        """Parameters from the options recorded in a checkpoint, without options that no longer exist."""
        known = {name: value for name, value in options.items() if name in TrainOptions.model_fields}
        return {
            RENAMED.get(name, name): tuple(value) if isinstance(value, list) else value for name, value in known.items()
        }


def _plain(value: Any) -> Any:
    """The value without numpy types; a search over parameters often takes its values from an array."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
