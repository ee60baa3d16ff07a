"""The options that `murho predict` has with every engine, and what they ask.

Imports of numpy and torch wait until a command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from murho.model.commands.answer_options import read_coverage, read_levels, read_thresholds, require_options
from murho.model.engines.prediction import DEFAULT_COVERAGE, DEFAULT_PERCENTILES, DEFAULT_SAMPLES, PredictOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.data.schema import Schema

__all__ = ["Asked", "read_asked", "with_predict_options"]

Command = TypeVar("Command", bound="Callable[..., None]")

OF_ONE_KIND = ("percentiles", "coverage", "thresholds", "no_noise")
"""Options for one kind of target alone, as `require_options` names them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line asks about the rows of a table.

    Attributes:
        options: Options of the prediction, validated but for the kind of target.
        given: Names, among those of `require_options`, of the options that the user gave.
        warnings: Whether to add a column of warnings.
        keep_inputs: Whether the input columns come first.
    """

    options: PredictOptions
    given: frozenset[str]
    warnings: bool
    keep_inputs: bool

    def require_fitting(self, schema: Schema) -> None:
        """Check that no option is given that only the other kind of target has.

        Raises:
            OptionError: One is given.
        """
        require_options(schema, **{name: name in self.given for name in OF_ONE_KIND})


def read_asked(
    samples: Annotated[
        int, typer.Option(min=0, help="Draws behind each answer; 0: the mean, or the probabilities, alone.")
    ] = DEFAULT_SAMPLES,
    percentiles: Annotated[
        str | None, typer.Option(help="Levels of the percentile columns, for a number.  [default: 5,50,95]")
    ] = None,
    thresholds: Annotated[
        str | None,
        typer.Option(help="Values such as 20,30: columns exceedance_20, … with the probability of more than that."),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="How often the prediction set holds the class, as a share.  [default: 0.9]"),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of the draws.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Leave std, percentiles, probabilities as they are before calibration.")
    ] = False,
    noise: Annotated[
        bool, typer.Option("--noise/--no-noise", help="Describe a new observation, or the function alone.")
    ] = True,
    draws: Annotated[
        bool, typer.Option("--draws", help="Add a column draws: a list of the function values of all draws.")
    ] = False,
    mc_error: Annotated[
        bool, typer.Option("--mc-error", help="Add standard errors that come from the finite number of draws.")
    ] = False,
    warnings: Annotated[
        bool, typer.Option("--warnings", help="Add a column warnings: which features of a row are unusual, and why.")
    ] = False,
    keep_inputs: Annotated[bool, typer.Option("--keep-inputs", help="Put the input columns first.")] = False,
) -> Asked:
    """What the options ask; each parameter is an option of the command.

    Raises:
        OptionError: A list, or the coverage, is no such thing; the option is named.
    """
    options = PredictOptions(
        samples=samples,
        percentiles=DEFAULT_PERCENTILES if percentiles is None else read_levels(percentiles),
        seed=seed,
        noise=noise,
        thresholds=() if thresholds is None else read_thresholds(thresholds),
        draws=draws,
        calibrated=not raw,
        mc_error=mc_error,
        coverage=DEFAULT_COVERAGE if coverage is None else read_coverage(coverage),
    )
    present = (percentiles is not None, coverage is not None, thresholds is not None, not noise)
    given = frozenset(name for name, is_given in zip(OF_ONE_KIND, present, strict=True) if is_given)
    return Asked(options, given, warnings, keep_inputs)


def with_predict_options(command: Command) -> Command:
    """Replace the ``**given`` of a command, which it hands to `read_asked`, by the options above."""
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    shared = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(read_asked, eval_str=True).parameters.values()
    ]
    signature = inspect.Signature([*own, *shared])
    command.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect.signature`, and so typer, reads
    return command
