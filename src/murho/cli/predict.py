"""The command `murho predict`: predictions with error bars, or class probabilities, for the rows of a file.

It also has the options that the command shares with every engine, and what they ask. Imports of numpy and torch wait
until a command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import inspect
import math
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    EngineOption,
    ModelOption,
    VersionOption,
    naming,
    only_checkpoint,
    require_local,
)
from murho.model.errors import OptionError
from murho.model.predictive.prediction import DEFAULT_COVERAGE, DEFAULT_PERCENTILES, DEFAULT_SAMPLES, PredictOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from murho.cli.batch_prediction import Scored
    from murho.model.progress import Advance
    from murho.model.tables.schema import Schema

__all__ = [
    "Asked",
    "predict",
    "read_asked",
    "read_coverage",
    "read_levels",
    "read_thresholds",
    "require_options",
    "say_cut_warnings",
    "say_extra_columns",
    "say_unusual_rows",
    "with_predict_options",
]


OF_NUMBERS = {
    "--percentiles": "--coverage sets how often the prediction set holds the class; percentiles of probabilities come "
    "over HTTP and in Python",
    "--thresholds": "p_CLASS is the probability of a class",
    "--no-noise": "A class has no noise that could be left out",
}
"""Options for numbers alone, and what classes have instead."""


def read_levels(text: str) -> tuple[float, ...]:
    """The levels of ``--percentiles``: distinct, strictly between 0 and 100.

    Raises:
        OptionError: They are not.
    """
    levels = _numbers("--percentiles", text, "5,50,95")
    for level in levels:
        if not 0.0 < level < 100.0:
            raise OptionError(f"--percentiles: levels lie strictly between 0 and 100, not {level:g}")
    return levels


def read_thresholds(text: str) -> tuple[float, ...]:
    """The values of ``--thresholds``: distinct and finite, in the target's unit.

    Raises:
        OptionError: They are not.
    """
    thresholds = _numbers("--thresholds", text, "20,30")
    for threshold in thresholds:
        if not math.isfinite(threshold):
            raise OptionError(f"--thresholds: expected finite numbers, not {threshold:g}")
    return thresholds


def _numbers(option: str, text: str, example: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise OptionError(f"{option}: expected numbers parted by commas, such as {example}, not {text!r}") from None
    if len(set(numbers)) < len(numbers):
        raise OptionError(f"{option}: each {'level' if option == '--percentiles' else 'number'} once, not {text!r}")
    return numbers


def read_coverage(coverage: float) -> float:
    """The share of ``--coverage``, strictly between 0 and 1.

    Raises:
        OptionError: It is not.
    """
    if 1.0 < coverage < 100.0:
        raise OptionError(f"--coverage is a share: give {coverage / 100.0:g} for {coverage:g} %")
    if not 0.0 < coverage < 1.0:
        raise OptionError(f"--coverage lies strictly between 0 and 1, not {coverage:g}")
    return coverage


def require_options(
    schema: Schema, *, percentiles: bool, coverage: bool, thresholds: bool = False, no_noise: bool = False
) -> None:
    """Check that no option is given that only the other kind of target has.

    Args:
        schema: The schema of the model.
        percentiles: Whether ``--percentiles`` is given.
        coverage: Whether ``--coverage`` is given.
        thresholds: Whether ``--thresholds`` is given.
        no_noise: Whether ``--no-noise`` is given.

    Raises:
        OptionError: One is given.
    """
    target = schema.target
    given = {"--percentiles": percentiles, "--thresholds": thresholds, "--no-noise": no_noise}
    for option, advice in OF_NUMBERS.items():
        if target.classes is not None and given[option]:
            raise OptionError(
                f"{option} is for a target that is a number; {target.name!r} has {len(target.classes)} classes: leave "
                f"it out. {advice}"
            )
    if target.classes is None and coverage:
        raise OptionError(
            f"--coverage is for the prediction sets of classes; {target.name!r} is a number: leave it out. "
            "--percentiles 5,95 are the ends of a 90 % band"
        )


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


MOST_NAMED = 5
"""Columns named in a note; of more the first ones."""


def say_unusual_rows(unlike: int, imputed: int, *, warnings: bool) -> None:
    """Say what is unusual about rows that were scored.

    Args:
        unlike: Number of rows unlike the training rows.
        imputed: Number of rows that lack a cell that no training row lacked.
        warnings: Whether there is a column of warnings.
    """
    if unlike:
        rows = "1 row is" if unlike == 1 else f"{unlike} rows are"
        more = "" if warnings else "; --warnings says which and why"
        sys.stderr.write(f"note: {rows} unlike the training rows (far from them, or with an unseen category){more}\n")
    if imputed:
        rows = "1 row lacks" if imputed == 1 else f"{imputed} rows lack"
        sys.stderr.write(
            f"note: {rows} a cell that no training row lacked: the answer averages over what it may have been\n"
        )


def say_cut_warnings() -> None:
    """Say that a service has listed some of the warnings only."""
    sys.stderr.write(
        "note: a service lists the first 100 warnings of a request, so the column warnings is not complete; "
        "without --url it is\n"
    )


def say_extra_columns(names: Sequence[str], schema: Schema) -> None:
    """Name the columns that the training did not see; those that it left out, and the target, were said then."""
    known = {feature.name for feature in schema.features} | {schema.target.name} | set(schema.left_out)
    extra = [name for name in names if name not in known]
    if extra:
        named = ", ".join(map(repr, extra[:MOST_NAMED])) + (", …" if len(extra) > MOST_NAMED else "")
        what = "1 column that is no feature is" if len(extra) == 1 else f"{len(extra)} columns that are no features are"
        sys.stderr.write(f"note: {what} not used: {named}\n")


@with_predict_options
def predict(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, JSON or Excel file; .gz and .zip, too.")],
    model: ModelOption = None,
    checkpoints: CheckpointsOption = "checkpoints",
    url: Annotated[str | None, typer.Option(help="Address of a running service, instead of a checkpoint.")] = None,
    version: VersionOption = None,
    output: Annotated[Path | None, typer.Option(help=".csv or .parquet; by default CSV on stdout.")] = None,
    device: DeviceOption = "auto",
    engine: EngineOption = "local",
    **given: Any,
) -> None:
    """Score a file, offline or through a running service."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.errors import OptionError
    from murho.model.runtime import check_device, resolve_device, use_threads_for_answering
    from murho.model.tables.files import require_file

    # First what can be said at once; then the imports that take seconds.
    require_local(engine)
    asked = read_asked(**given)
    if output is not None and output.suffix.lower() not in (".csv", ".parquet"):
        raise OptionError(f"--output: {output} must end in .csv or .parquet")
    check_device(device)
    directory = None
    if url is None:
        store = store_at(checkpoints)
        directory = store.find(model or only_checkpoint(store), version)
    require_file(data)
    from murho.cli.shared import check_first_rows
    from murho.model.tables.files import open_table

    table = open_table(data)
    if directory is not None:
        with naming(data):
            check_first_rows(table, directory, labelled=False)
    from murho.cli.batch_prediction import (
        LocalScorer,
        Scorer,
        ServiceScorer,
        connect,
        only_model,
        score_chunks,
        scored_output,
    )
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.predictive.compiled_engine import engine_worth
    from murho.model.predictive.prediction import level_hint

    scorer: Scorer
    with ExitStack() as clients:
        if directory is None:
            client = clients.enter_context(connect(str(url)))
            scorer = ServiceScorer(client, model or only_model(client, str(url)), version, warnings=asked.warnings)
        else:
            use_threads_for_answering()
            engine = engine_worth(table.num_rows, asked.options.samples)
            posterior = Posterior.load(directory, resolve_device(device), engine=engine)
            scorer = LocalScorer(posterior, warnings=asked.warnings)
        asked.require_fitting(scorer.schema)
        unlike, imputed, cut = 0, 0, False
        with (
            scored_output(output, keep_inputs=asked.keep_inputs) as sink,
            _progress(table.num_rows, among_rows=output is None and sys.stdout.isatty()) as advance,
        ):
            for rows, scored in _naming_each(data, score_chunks(table, scorer, asked.options, advance)):
                sink.append(rows, scored.columns)
                unlike, imputed = unlike + int(scored.unlike.sum()), imputed + int(scored.imputed.sum())
                cut = cut or scored.cut
    hint = level_hint(asked.options.percentiles)
    if hint is not None:
        sys.stderr.write(f"note: --percentiles: {hint}\n")
    say_unusual_rows(unlike, imputed, warnings=asked.warnings)
    if asked.warnings and cut:
        say_cut_warnings()
    say_extra_columns(table.column_names, scorer.schema)


def _progress(rows: int, *, among_rows: bool) -> AbstractContextManager[Advance]:
    """Progress on stderr; none where it would be drawn among the rows on the same terminal."""
    from murho.model.progress import advancing, ignore_rows

    return nullcontext(ignore_rows) if among_rows else advancing("scoring", rows)


def _naming_each(data: Path, chunks: Iterator[tuple[pa.Table, Scored]]) -> Iterator[tuple[pa.Table, Scored]]:
    """The chunks; what is wrong with them, and not what becomes of them, is said with the name of the file."""
    with naming(data):
        yield from chunks
