"""`TrainOptions`: name, type, default, range and help text of every option of a training.

The command line, the TOML file, the estimator's parameters and the README's table derive from `TrainOptions`. A new
option is a new field here, and the code that uses it. This module imports no torch, so that ``murho train --help``
answers at once.

With ``--quick`` nothing is searched: each choice has its first value, except the temperature of a small table. The
budget is a small share of the work of a full search, counted in work too (`model.bbb.fit`), so the same seed gives the
same fit, however busy the machine is.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError

from murho.model.errors import OptionError
from murho.model.tables.overrides import ColumnOverride, composed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from murho.model.bbb.priors import StoredPrior

QUICK_MEMBERS = 5
"""Members, M: one a fold. Each row is held out by one member."""
QUICK_TEMPERATURE = 0.1
"""Temperature on tables that are too small to find it along the fit: what searches choose most often."""
SHARE_OF_BUDGET = 1.0 / 20.0
"""Share of the full search's work."""


def default_budget(rows: int) -> float:
    """Return the default budget of a search, in reference seconds (`model.bbb.fit`).

    48 up to 1,000 rows, 290 from 10,000 to 50,000 rows, then in proportion to the rows, at most 900. With compiled
    steps two cores take about a quarter of a second for each.
    """
    small = 48.0 + 242.0 * min(1.0, max(0.0, (rows - 1_000) / 9_000))
    return min(900.0, small * max(1.0, rows / 50_000))


def quick_budget(rows: int) -> float:
    """Return the default budget of a quick training, in reference seconds."""
    return SHARE_OF_BUDGET * default_budget(rows)


Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Width = Annotated[int, Field(ge=1, le=16_384)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


def _limit(value: float) -> float:
    if math.isnan(value):
        raise ValueError("a limit is a number, or inf for none")
    return value


# JSON has no infinite numbers: they are written as text, which is read as well.
Limit = Annotated[
    float,
    AfterValidator(_limit),
    PlainSerializer(lambda value: value if math.isfinite(value) else str(value), when_used="json"),
]


Column = Annotated[str, AfterValidator(composed)]


class TrainOptions(BaseModel):
    """Options of `murho train`.

    Where an option is None, the training chooses the value; ``unset`` says how. Standard deviations are in units of the
    standardised inputs and target; only ``noise_sigma`` is in the target's unit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["auto", "regression", "classification"] = Field(
        default="auto",
        description="Kind of the target. auto takes text, truth values, and numbers that are only 0 or 1 for classes.",
    )
    ignore: tuple[Column, ...] = Field(default=(), description="Columns to exclude.")
    group: tuple[Column, ...] = Field(
        default=(),
        description="Columns that name groups of rows, such as patients: whole groups are held out, because new "
        "rows will be of new groups. They are not features.",
    )
    time: Column | None = Field(
        default=None,
        description="Column of dates or numbers, or row-order: networks are judged on later rows than they "
        "learned from.",
        json_schema_extra={"unset": "rows are held out at random"},
    )
    columns: dict[Column, ColumnOverride] = Field(
        default_factory=dict,
        description="Kinds and units of columns and the target, by name: {'kind': …, 'unit': …}, either or both.",
    )
    decimal: Literal[".", ","] | None = Field(
        default=None,
        description="Decimal mark of columns that leave it open, such as one of 1,234 and 5,678.",
        json_schema_extra={"unset": "as in the other columns, else a point"},
    )
    date_order: Literal["month-first", "day-first", "year-first"] | None = Field(
        default=None,
        description="Order of dates that leave it open: 03/04/05 may be in March 2005, April 2005 or April 2003.",
        json_schema_extra={"unset": "as in the other columns, else with the fewest dates in the future"},
    )
    pivot_year: int = Field(
        default=69,
        ge=0,
        le=100,
        description="Two-digit years below this are in the 2000s, the others in the 1900s.",
    )
    missing_value: tuple[Column, ...] = Field(
        default=(),
        description="Texts or numbers that stand for a missing value, besides the usual ones (NA, ?, None, …), in "
        "requests too; COLUMN=WORD for one column.",
    )
    keep: tuple[Column, ...] = Field(
        default=(),
        description="Usual words for a missing value, such as None, that are categories here; COLUMN=WORD for one "
        "column.",
    )
    drop_bad_rows: bool = Field(
        default=False,
        description="Leave out rows whose target is a text, such as TBD, among numbers.",
    )
    weight: Column | None = Field(
        default=None,
        description="Column with the weights of rows in fit, validation, calibration and scores. It is not a "
        "feature, and rows of weight 0 are left out.",
    )
    missing: Literal["accept", "refuse"] = Field(
        default="accept",
        description="What to do if a row lacks a value that no training row lacked; accept averages over what it "
        "may have been.",
    )
    rare: Literal["pool", "name"] = Field(
        default="pool",
        description="Categories of fewer than 5 training rows: pool counts them as one, unnamed; name names them, "
        "which may reveal rows.",
    )
    target_minimum: Limit | None = Field(
        default=None,
        description="Least value of the target, which no mean, percentile or draw is below; -inf for none.",
        json_schema_extra={"unset": "a cap, if many targets are exactly the smallest"},
    )
    target_maximum: Limit | None = Field(
        default=None,
        description="Largest value of the target, which no mean, percentile or draw exceeds; inf for none.",
        json_schema_extra={"unset": "a cap, if many targets are exactly the largest"},
    )
    hidden: tuple[Width, ...] = Field(default=(64, 64), max_length=16, description="Widths of the hidden layers.")
    members: int = Field(
        default=10,
        ge=1,
        le=64,
        description="Independently trained networks, M, each without a fifth of the rows.",
    )
    encoding: Literal["auto", "standard", "piecewise", "mixed"] = Field(
        default="auto",
        description="How numbers become inputs. piecewise adds bins, mixed (only for classes) adds them for half "
        "of the members. auto takes mixed for classes below 1,000 rows, otherwise what validates "
        "better.",
    )
    whiten: Literal["auto", "yes", "no"] = Field(
        default="auto",
        description="Whether small differences between correlated numbers are inputs too; auto takes what "
        "validates better.",
    )
    idle_features: Literal["auto", "keep"] = Field(
        default="auto",
        description="Below 50 rows per feature, auto ignores features whose shuffling does no harm, if this validates "
        "better.",
    )
    prior: Literal["gaussian", "scale-mixture", "empirical-bayes"] = Field(
        default="empirical-bayes", description="Prior of the weights."
    )
    prior_sigma: Positive = Field(default=1.0, description="Standard deviation of the gaussian prior.")
    prior_pi: float = Field(default=0.5, gt=0.0, lt=1.0, description="Weight of the wide component of a scale mixture.")
    prior_sigma1: Positive = Field(default=1.0, description="Standard deviation of a scale mixture's wide component.")
    prior_sigma2: Positive = Field(default=0.1, description="Standard deviation of a scale mixture's narrow component.")
    noise: Literal["auto", "fixed", "homoscedastic", "heteroscedastic", "mixture", "negative-binomial"] = Field(
        default="auto",
        description="Observation model. auto takes heteroscedastic noise (homoscedastic below 200 rows), a "
        "mixture or, for counts, negative-binomial, whichever validates better.",
    )
    noise_sigma: Positive | None = Field(
        default=None, description="Standard deviation of fixed noise, in the target's unit."
    )
    noise_components: int = Field(default=3, ge=1, le=20, description="Gaussians in the mixture noise of a row, K.")
    transform: Literal["auto", "none", "log"] = Field(
        default="auto",
        description="Transform of the target. auto takes what validates better, log only if no target is negative.",
    )
    temperature: float | None = Field(
        default=None,
        gt=0.0,
        le=1.0,
        description="Factor of the KL at the end of the fit; 1 is the exact free energy.",
        json_schema_extra={"unset": "by validation, from 0.01 to 1"},
    )
    kl_weights: Literal["uniform", "geometric"] = Field(
        default="uniform", description="How the minibatches of an epoch share the KL."
    )
    activation: Literal["relu", "silu", "sigmoid"] = Field(default="silu", description="Activation between the layers.")
    skip: bool = Field(default=True, description="Whether the last layer also reads the inputs.")
    draws_per_step: int = Field(default=1, ge=1, le=64, description="Draws for each row in an optimiser step.")
    epochs: int | None = Field(
        default=None, ge=1, description="Most epochs of a fit.", json_schema_extra={"unset": "by table size"}
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Rows in a minibatch.",
        json_schema_extra={"unset": "an eighth of the rows, from 32 to 512"},
    )
    learning_rate: Positive = Field(default=1e-2, description="First learning rate.")
    patience: int = Field(default=15, ge=1, description="Validations without improvement before a fit stops.")
    budget: Positive | None = Field(
        default=None,
        description="Most seconds by the clock to fit all candidates, on a sample if the table is too large for "
        "that; the default counts work, not time.",
        json_schema_extra={"unset": "about 15 s on two cores up to 1,000 rows, 80 s from 10,000 to 50,000"},
    )
    quick: bool = Field(
        default=False,
        description="Fit one candidate, of 5 members by default (and a linear one if rows are few), in seconds "
        "instead of a search.",
    )
    seed: Seed = Field(
        default=0,
        description="Seed of split, initial weights, minibatches and draws. Without --budget, the same seed gives "
        "the same fit on the same kind of processor.",
    )

    @property
    def textbook(self) -> bool:
        """Whether the fit is that of the textbook (Blundell et al. 2015): one network, and the exact free energy.

        Nothing then clips, limits or moves a draw: the network alone says what lies beyond the training rows.
        """
        return self.members == 1 and self.temperature == 1.0 and self.encoding == "standard"

    def make_prior(self) -> StoredPrior:
        """Return the prior that the options describe."""
        # Imported here: priors need torch, and ``--help`` must not wait for it.
        from murho.model.bbb.priors import EmpiricalBayesPrior, GaussianPrior, ScaleMixturePrior

        if self.prior == "gaussian":
            return GaussianPrior(self.prior_sigma)
        if self.prior == "scale-mixture":
            return ScaleMixturePrior(self.prior_pi, self.prior_sigma1, self.prior_sigma2)
        return EmpiricalBayesPrior()


Options = TypeVar("Options", bound=BaseModel)


def validate_options(kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Options of a kind; an OptionError names each invalid one and what is expected."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise OptionError("; ".join(map(problem_text, error.errors()))) from None


def make_options(values: Mapping[str, Any]) -> TrainOptions:
    """Validate options.

    Args:
        values: Value by name of the option; the other options get their defaults.

    Raises:
        OptionError: A value is invalid. The message names each invalid option and what is expected.
    """
    options = validate_options(TrainOptions, values)
    if options.group and options.time is not None:
        raise OptionError(
            "--group and --time can't be combined: give --group if rows of new groups will be asked for, or --time if "
            "later rows of the same groups will be"
        )
    if options.noise == "fixed" and options.noise_sigma is None:
        raise OptionError("fixed noise needs its standard deviation: give --noise-sigma, in the target's unit")
    if options.noise == "fixed" and options.transform == "log":
        raise OptionError("fixed noise is known in the target's unit: give --transform none, or another --noise")
    if options.quick and "members" not in options.model_fields_set:
        return options.model_copy(update={"members": QUICK_MEMBERS})
    return options


def flag(name: str) -> str:
    """Return the name of an option on the command line: ``batch_size`` becomes ``--batch-size``."""
    return "--" + name.replace("_", "-")


def problem_text(problem: ErrorDetails) -> str:
    """Return what is wrong with an option, by its name on the command line, and what may be meant."""
    name, given = _name(problem["loc"]), problem["input"]
    if problem["type"] == "extra_forbidden":
        return f"there is no option {name}{_meant(str(problem['loc'][0]), TrainOptions.model_fields)}"
    if problem["type"] == "unexpected_keyword_argument":
        return f"there is no {name}: a column has {', '.join(field.name for field in fields(ColumnOverride))}"
    choices = re.findall(r"'([^']*)'", problem["msg"]) if problem["type"] in ("literal_error", "enum") else []
    expected = problem["msg"].replace("Input should be", "must be").replace("a valid integer", "a whole number")
    expected = expected.partition(", unable to parse")[0]
    if problem["type"].startswith(("greater_than", "less_than")):
        expected = next((f"must be {text.values}" for text in option_texts() if text.flag == name), expected)
    return f"{name} {expected}, not {given!r}{_meant(str(given), choices)}"


def _meant(name: str, known: Iterable[str]) -> str:
    """Return a question after the known name that is most like another; empty if none is like it."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _name(location: tuple[int | str, ...]) -> str:
    if location and location[0] == "columns":
        return ".".join(str(part) for part in location)
    return flag(str(location[0])) if location else "options"


BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
"""Keyword of a JSON schema → words for the bound. A range with minimum and maximum is written "… to …" instead."""


@dataclass(frozen=True, slots=True)
class OptionText:
    """One option in words.

    Attributes:
        name: The field of `TrainOptions`.
        type: A type of JSON schema (``boolean``, ``integer``, ``number``, ``string``, ``object``), or ``integers`` or
            ``strings`` for a list.
        default: The default value; None for an ``object`` and where the training chooses the value.
        description: The meaning, in whole sentences.
        values: The choices or the range in words; empty if every value of the type is allowed.
        default_text: The default in words, or how the training chooses the value; empty if there is no default.
    """

    name: str
    type: str
    default: Any
    description: str
    values: str
    default_text: str

    @property
    def flag(self) -> str:
        """The option on the command line, such as ``--batch-size``."""
        return flag(self.name)

    @property
    def help(self) -> str:
        """Description, values and default in one text."""
        default = f"default: {self.default_text}" if self.default_text else ""
        notes = "; ".join(note for note in (self.values, default) if note)
        return f"{self.description}  [{notes}]" if notes else self.description


def option_texts(options: type[TrainOptions] = TrainOptions) -> list[OptionText]:
    """Every option in words, in the order of the fields.

    Args:
        options: `TrainOptions`, or a class with further fields.
    """
    schemas = options.model_json_schema()["properties"]
    return [_text(name, field, schemas[name]) for name, field in options.model_fields.items()]


def _text(name: str, field: FieldInfo, schema: Mapping[str, Any]) -> OptionText:
    # The schema of an optional value is ``anyOf``: the schema of the value, and null.
    value = next((choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}), schema)
    item = value.get("items")
    default = None if field.default_factory else field.default
    return OptionText(
        name=name,
        type=item["type"] + "s" if item else value["type"],
        default=default,
        description=field.description or "",
        values=f"each {_values(item)}" if item and _values(item) else _values(value),
        default_text=schema.get("unset", "") if default is None else _default_text(default),
    )


def _values(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        *others, last = schema["enum"]
        return f"{', '.join(others)} or {last}"
    if {"minimum", "maximum"} <= schema.keys():
        return f"{_number(schema['minimum'])} to {_number(schema['maximum'])}"
    return ", ".join(f"{words} {_number(schema[bound])}" for bound, words in BOUNDS.items() if bound in schema)


def _default_text(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return ",".join(str(item) for item in default)
    return _number(default) if isinstance(default, float) else str(default)


def _number(value: float) -> str:
    return "2^63 - 1" if value == 2**63 - 1 else f"{value:g}" if isinstance(value, float) else f"{value:,}"


class UpdateOptions(BaseModel):
    """Options of an update.

    Attributes:
        epochs: Most epochs; None: as many as make 2000 steps.
        learning_rate: First learning rate. Half of a training's: the weights move by a few of their own sigma at most.
        seed: Seed of the split, the minibatches and the draws; None: the checkpoint's seed.
    """

    model_config = ConfigDict(frozen=True)

    epochs: int | None = Field(default=None, ge=1)
    learning_rate: Positive = 5e-3
    seed: Seed | None = None
