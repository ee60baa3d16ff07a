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
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from murho.model.predictive.prediction import DEFAULT_SAMPLES
from murho.model.python.answers import as_value_errors as _as_value_errors
from murho.model.training.options import TrainOptions, make_options, option_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from murho.model.training.options import OptionText

__all__ = [
    "TrainingParameters",
    "as_value_errors",
]

RENAMED = {"seed": "random_state", "transform": "target_transform"}
"""Options with another name here: scikit-learn calls the seed ``random_state``, and ``transform`` is a method name."""
MOST_RANDOM_SEED = 2**31 - 1
OWN: dict[str, Any] = {"samples": DEFAULT_SAMPLES, "random_state": None, "device": "cpu", "verbose": False}
"""Parameters that only the estimator has, with defaults; ``random_state`` replaces the seed, with another default."""
DECIDED = frozenset({"seed", "task"})
"""Options that are no parameters: ``random_state`` stands for the seed, and the class of the estimator is the task."""
PLACE_OF_OPTIONS = re.compile(r"^( *)\[options of a training\]", re.MULTILINE)
"""The placeholder line in a docstring, for the descriptions of the options."""


def as_value_errors() -> AbstractContextManager[None]:
    """Errors as scikit-learn expects them, see `model.python.answers`."""
    return _as_value_errors(RENAMED)


class TrainingParameters(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The parameters as the user gave them: the fields of `TrainOptions`, and `OWN`.

    Attributes:
        _task: The task of the estimator, ``regression`` or ``classification``.
        _without: Options that mean nothing for this task, and so are no parameters.
        _options: Name of a parameter → the option that it stands for; without ``random_state``.

    Raises:
        TypeError: A parameter is unknown.
    """

    _task: ClassVar[str] = "auto"
    _without: ClassVar[frozenset[str]] = frozenset()
    _options: ClassVar[dict[str, OptionText]] = {}

    if TYPE_CHECKING:  # `_constructor` makes one for every class

        def __init__(self, **parameters: Any) -> None: ...

    def __init_subclass__(cls, options: type[TrainOptions] = TrainOptions, **rest: Any) -> None:
        """Give the class its parameters, and insert their descriptions into its docstring."""
        super().__init_subclass__(**rest)
        left_out = DECIDED | cls._without
        cls._options = {
            RENAMED.get(text.name, text.name): text for text in option_texts(options) if text.name not in left_out
        }
        cls.__init__ = _constructor(  # type: ignore[method-assign]
            {name: text.default for name, text in cls._options.items()} | OWN
        )
        if cls.__doc__:  # None with python -OO
            wrapper = textwrap.TextWrapper(112, subsequent_indent="    ", break_on_hyphens=False)
            lines = [wrapper.fill(f"{name}: {' '.join(text.help.split())}") for name, text in cls._options.items()]
            # The indent depends on the version of Python: from 3.13 on the compiler removes it.
            cls.__doc__ = PLACE_OF_OPTIONS.sub(lambda place: textwrap.indent("\n".join(lines), place[1]), cls.__doc__)

    def train_options(self) -> TrainOptions:
        """The parameters as validated options.

        Raises:
            ParameterError: A parameter has a value that can't be used; the message names it.
        """
        values = {text.name: _plain(getattr(self, parameter)) for parameter, text in self._options.items()}
        values["columns"] = values["columns"] or {}
        # `quick` chooses what was not given; a parameter with its default counts as not given.
        defaults = TrainOptions.model_fields
        values = {name: value for name, value in values.items() if value != defaults[name].default}
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(MOST_RANDOM_SEED)
        with as_value_errors():
            return make_options(values | {"seed": int(seed), "task": self._task})

    @classmethod
    def parameters_of(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters from the options recorded in a checkpoint, without those that are no parameters."""
        known = {RENAMED.get(name, name): value for name, value in options.items()}
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in known.items()
            if name in cls._options or name in OWN
        }


def _constructor(defaults: Mapping[str, Any]) -> Callable[..., None]:
    """A constructor with parameters that have these defaults, all keyword-only."""
    signature = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=at) for name, at in defaults.items()),
        ]
    )

    def __init__(self: TrainingParameters, **parameters: Any) -> None:  # noqa: N807 - it becomes the method
        # Stored unchanged, because `clone` compares them; `fit` validates them.
        signature.bind(self, **parameters)
        for name, default in defaults.items():
            setattr(self, name, parameters.get(name, default))

    # scikit-learn and `help` read the parameters here.
    __init__.__signature__ = signature  # type: ignore[attr-defined]  # mypy knows no attributes of functions
    return __init__


def _plain(value: Any) -> Any:
    """The value without numpy types; a search over parameters often takes its values from an array."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
