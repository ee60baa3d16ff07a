"""The parameters of the estimators in `model.python.estimators`: the options of a training, and a few more.

Names, defaults and descriptions of the options derive from `model.training.options.TrainOptions`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from murho.model.predictive.prediction import DEFAULT_SAMPLES
from murho.model.python.answers import DataError, ParameterError
from murho.model.python.answers import as_value_errors as _as_value_errors
from murho.model.python.progress import TerminalReporter
from murho.model.training.candidates import Silence
from murho.model.training.options import TrainOptions, make_options, option_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from murho.model.training.options import OptionText

__all__ = [
    "DataError",
    "ParameterError",
    "Silence",
    "TrainingParameters",
    "as_value_errors",
]

RENAMED = {"seed": "random_state", "transform": "target_transform"}
"""Options with another name here: scikit-learn calls the seed ``random_state``, and ``transform`` is a method name."""
MOST_RANDOM_SEED = 2**31 - 1
WEIGHT = "sample_weight"
"""Name of the column of weights that are given to `fit`."""
GROUPS = "groups"
"""Name of the column of groups that are given to `fit`."""
OWN: dict[str, Any] = {"samples": DEFAULT_SAMPLES, "random_state": None, "device": "cpu", "verbose": False}
"""Parameters that only the estimator has, with defaults; ``random_state`` replaces the seed, with another default."""
DECIDED = frozenset({"seed", "task"})
"""Options that are no parameters: ``random_state`` stands for the seed, and the class of the estimator is the task."""
PLACE_OF_OPTIONS = re.compile(r"^( *)\[options of a training\]", re.MULTILINE)
"""The placeholder line in a docstring that `parameter_lines` replaces."""


def as_value_errors() -> AbstractContextManager[None]:
    """Errors as scikit-learn expects them, see `model.python.answers`."""
    return _as_value_errors(RENAMED)


def training_parameters(
    options: type[TrainOptions] = TrainOptions, without: Collection[str] = ()
) -> dict[str, OptionText]:
    """Name of a parameter → the option it stands for. ``random_state`` is not among them but in `OWN`.

    Args:
        options: `TrainOptions`, or a class with further fields.
        without: Options that are no parameters, beside `DECIDED`.
    """
    texts = [text for text in option_texts(options) if text.name not in DECIDED and text.name not in without]
    return {RENAMED.get(text.name, text.name): text for text in texts}


def parameter_lines(options: type[TrainOptions] = TrainOptions, without: Collection[str] = ()) -> str:
    """Descriptions of `training_parameters` for the ``Args:`` section of an estimator's docstring.

    Args:
        options: `TrainOptions`, or a class with further fields.
        without: Options that are no parameters.
    """
    wrapper = textwrap.TextWrapper(112, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(
        wrapper.fill(f"{name}: {' '.join(text.help.split())}")
        for name, text in training_parameters(options, without).items()
    )


def parameter_signature(options: type[TrainOptions] = TrainOptions, without: Collection[str] = ()) -> inspect.Signature:
    """The signature of an estimator: the options of a training, and the `OWN` parameters.

    Args:
        options: `TrainOptions`, or a class with further fields.
        without: Options that are no parameters.
    """
    defaults = {name: text.default for name, text in training_parameters(options, without).items()} | OWN
    return inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
    )


class TrainingParameters(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The parameters as the user gave them: the fields of `TrainOptions`, and `OWN`.

    Attributes:
        _task: The task of the estimator, ``regression`` or ``classification``.
        _without: Options that mean nothing for this task, and so are no parameters.

    Raises:
        TypeError: A parameter is unknown.
    """

    _task: ClassVar[str] = "auto"
    _without: ClassVar[frozenset[str]] = frozenset()

    if TYPE_CHECKING:  # `_constructor` makes one for every class

        def __init__(self, **parameters: Any) -> None: ...

    def __init_subclass__(cls, **rest: Any) -> None:
        """Give the class its parameters, and insert their descriptions into its docstring."""
        super().__init_subclass__(**rest)
        signature = parameter_signature(without=cls._without)
        cls.__init__ = _constructor(signature)  # type: ignore[method-assign]
        if cls.__doc__:  # None with python -OO
            # The indent depends on the version of Python: from 3.13 on the compiler removes it.
            lines = parameter_lines(without=cls._without)
            cls.__doc__ = PLACE_OF_OPTIONS.sub(lambda place: textwrap.indent(lines, place[1]), cls.__doc__)

    def train_options(self) -> TrainOptions:
        """The parameters as validated options.

        Raises:
            ParameterError: A parameter has a value that can't be used; the message names it.
        """
        names = {text.name: parameter for parameter, text in training_parameters(without=self._without).items()}
        values = {name: _plain(getattr(self, parameter)) for name, parameter in names.items()}
        values["columns"] = values["columns"] or {}
        # `quick` chooses what was not given; a parameter with its default counts as not given.
        defaults = TrainOptions.model_fields
        values = {name: value for name, value in values.items() if value != defaults[name].default}
        with as_value_errors():
            return make_options(values | {"seed": self._seed(), "task": self._task})

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

    @staticmethod
    def with_groups(options: TrainOptions, table: pa.Table, groups: Any) -> tuple[TrainOptions, pa.Table]:
        """Options and table with the groups given to `fit` as one more column; both unchanged if there are none.

        Raises:
            DataError: There is not one group for each row.
            ParameterError: Another parameter says what is held out together.
        """
        if groups is None:
            return options, table
        for name in ("group", "time"):
            if getattr(options, name):
                raise ParameterError(f"{name}: says what is held out together, as groups do: give one of the two")
        if options.keep_groups:
            raise ParameterError("keep_groups: groups given to fit are no feature: name a column of X in group instead")
        values = np.asarray(groups)
        if values.shape != (table.num_rows,):
            raise DataError(f"groups: one for each of the {table.num_rows} rows, not {values.shape}")
        name = GROUPS
        while name in table.column_names:
            name += "_"
        table = table.append_column(name, pa.array([str(value) for value in values.tolist()]))
        return options.model_copy(update={"group": (name,)}), table

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
        """Parameters from the options recorded in a checkpoint, without those that are no parameters."""
        known = {RENAMED.get(name, name): value for name, value in options.items()}
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in known.items()
            if name in inspect.signature(cls).parameters
        }


def _constructor(signature: inspect.Signature) -> Callable[..., None]:
    """A constructor with these parameters, all keyword-only."""

    def __init__(self: TrainingParameters, **parameters: Any) -> None:  # noqa: N807 - it becomes the method
        # Stored unchanged, because `clone` compares them; `fit` validates them.
        given = signature.bind(**parameters)
        given.apply_defaults()
        for name, value in given.arguments.items():
            setattr(self, name, value)

    # scikit-learn and `help` read the parameters here.
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = signature.replace(parameters=[own, *signature.parameters.values()])
    __init__.__signature__ = shown  # type: ignore[attr-defined]  # mypy knows no attributes of functions
    return __init__


def _plain(value: Any) -> Any:
    """The value without numpy types; a search over parameters often takes its values from an array."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
