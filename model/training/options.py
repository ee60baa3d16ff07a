"""Options of a fit as people give them: on the command line, in a TOML file, or from Python."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from murho.model.data.schema import FeatureKind  # noqa: TC001 - pydantic reads the annotation
from murho.model.data.schema_inference import ColumnOverride
from murho.model.errors import OptionError
from murho.model.likelihoods.mixture import MOST_COMPONENTS
from murho.model.networks.priors import EmpiricalBayesPrior, GaussianPrior, Prior, ScaleMixturePrior

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ColumnOptions", "TrainOptions", "make_options", "read_config"]

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class ColumnOptions(BaseModel):
    """What a TOML file may say of a column.

    Attributes:
        kind: Overrides the inferred kind.
        unit: Unit of its numbers, shown in answers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FeatureKind | None = None
    unit: str | None = None


class TrainOptions(BaseModel):
    """Options of `murho train`; what is None is chosen from the training rows, and said.

    Attributes:
        ignore: Columns that are no features.
        columns: Kinds and units of columns.
        hidden: Width of each hidden layer; by default two of 64.
        members: Independently trained networks in one checkpoint, M.
        encoding: How numbers become inputs; ``auto`` takes what validates better.
        whiten: Whether directions hidden among correlated numbers are inputs, too; ``auto`` takes what validates
            better.
        prior: Prior of the weights.
        prior_sigma: Standard deviation of the ``gaussian`` prior.
        prior_pi: Weight of the wide component of the ``scale-mixture`` prior.
        prior_sigma1: Standard deviation of its wide component.
        prior_sigma2: Standard deviation of its narrow component.
        noise: Observation model; ``auto`` takes heteroscedastic noise or a mixture (homoscedastic on tables
            of fewer than 200 rows), whichever validates better.
        noise_sigma: Known noise in the target's unit, for ``fixed``.
        noise_components: Gaussians a row, K, for ``mixture``.
        transform: Of the target; ``auto`` tries the logarithm where no target is negative.
        temperature: Factor of the KL at the end of the fit; 1 is the exact free energy. By default it is chosen on
            rows held out, from 0.01 to 1.
        kl_weights: How minibatches share the KL.
        activation: Activation between layers.
        skip: Whether the last layer also reads the inputs, past the hidden layers.
        optimiser: Gradient method.
        draws_per_step: Draws a row in each optimiser step.
        epochs: Most epochs.
        batch_size: Rows a minibatch.
        learning_rate: First learning rate.
        patience: Validations without improvement before the fit stops.
        budget: Most seconds to fit, all candidates together; by default by table size, and then of processor time
            (at most twice as long by the clock), so that a busy machine changes no answer.
        seed: Seed of the split, the initial weights, the minibatches and the draws.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ignore: tuple[str, ...] = ()
    columns: dict[str, ColumnOptions] = Field(default_factory=dict)
    hidden: tuple[Annotated[int, Field(ge=1, le=16_384)], ...] | None = Field(default=None, max_length=16)
    members: int = Field(default=10, ge=1, le=64)
    encoding: Literal["auto", "standard", "piecewise"] = "auto"
    whiten: Literal["auto", "yes", "no"] = "auto"
    prior: Literal["gaussian", "scale-mixture", "empirical-bayes"] = "empirical-bayes"
    prior_sigma: Positive = 1.0
    prior_pi: float = Field(default=0.5, gt=0.0, lt=1.0)
    prior_sigma1: Positive = 1.0
    prior_sigma2: Positive = 0.1
    noise: Literal["auto", "fixed", "homoscedastic", "heteroscedastic", "mixture"] = "auto"
    noise_sigma: Positive | None = None
    noise_components: int = Field(default=3, ge=1, le=MOST_COMPONENTS)
    transform: Literal["auto", "none", "log"] = "auto"
    temperature: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    kl_weights: Literal["uniform", "geometric"] = "uniform"
    activation: Literal["relu", "silu", "gelu", "tanh", "sigmoid"] = "silu"
    skip: bool = True
    optimiser: Literal["adam", "rmsprop", "sgd"] = "adam"
    draws_per_step: int = Field(default=1, ge=1, le=64)
    epochs: int | None = Field(default=None, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    learning_rate: Positive = 1e-2
    patience: int = Field(default=15, ge=1)
    budget: Positive | None = None
    seed: int = Field(default=0, ge=0, le=2**63 - 1)

    def make_prior(self) -> Prior:
        """The prior that the options describe."""
        if self.prior == "gaussian":
            return GaussianPrior(self.prior_sigma)
        if self.prior == "scale-mixture":
            return ScaleMixturePrior(self.prior_pi, self.prior_sigma1, self.prior_sigma2)
        return EmpiricalBayesPrior()

    def overrides(self) -> dict[str, ColumnOverride]:
        """Kinds and units for `model.data.schema_inference.plan_columns`."""
        return {name: ColumnOverride(column.kind, column.unit) for name, column in self.columns.items()}


def make_options(values: dict[str, Any]) -> TrainOptions:
    """Validated options.

    Raises:
        OptionError: Names each option with a bad value, and what is expected.
    """
    try:
        options = TrainOptions.model_validate(values)
    except ValidationError as error:
        lines = [
            f"{_option_name(problem['loc'])}: {problem['msg']}, not {problem['input']!r}"
            for problem in error.errors()
        ]
        raise OptionError("; ".join(lines)) from None
    if options.noise == "fixed" and options.noise_sigma is None:
        raise OptionError(
            "fixed noise needs its standard deviation: give --noise-sigma, in the target's unit"
        )
    if options.noise == "fixed" and options.transform == "log":
        raise OptionError(
            "fixed noise is known in the target's unit: give --transform none, or another --noise"
        )
    return options


def _option_name(location: tuple[int | str, ...]) -> str:
    if location and location[0] == "columns":
        return ".".join(str(part) for part in location)
    return "--" + str(location[0]).replace("_", "-") if location else "options"


def read_config(path: Path) -> dict[str, Any]:
    """Options from a TOML file: the names of the command line, and ``[columns.NAME]`` tables.

    Args:
        path: The file. ``target`` and ``name`` may be in it beside the fields of `TrainOptions`.

    Returns:
        Its values, with ``-`` in names read as ``_``; not yet validated.

    Raises:
        OptionError: The file can't be read or is no TOML.
    """
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise OptionError(f"{path}: can't read the configuration: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: not valid TOML: {error}") from error
    return {name.replace("-", "_"): value for name, value in values.items()}
