"""The commands `train`, `predict` and `evaluate`.

Imports of numpy and torch wait until a command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.model.commands.shared_options import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    VersionOption,
    levels,
    naming,
    print_json,
    print_lines,
    whole_numbers,
)
from murho.model.posterior.prediction import DEFAULT_SAMPLES, PredictOptions

if TYPE_CHECKING:
    from murho.model.training.train import Trained

__all__ = ["evaluate", "predict", "train"]


def train(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow or JSON file.")],
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Column that is no feature; may be repeated.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the checkpoint; by default that of the file.")
    ] = None,
    checkpoints: CheckpointsOption = Path("checkpoints"),
    config: Annotated[
        Path | None, typer.Option(help="TOML file with options, and kinds and units of columns.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the whole fit.  [default: 0]")] = None,
    hidden: Annotated[
        str | None, typer.Option(help="Widths of the hidden layers, such as 50,50.  [default: 64,64]")
    ] = None,
    members: Annotated[
        int | None, typer.Option(help="Independent networks in the checkpoint.  [default: 10]")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="auto, standard or piecewise.  [default: auto]")
    ] = None,
    whiten: Annotated[
        str | None,
        typer.Option(
            help="Directions hidden among correlated numbers as inputs: auto, yes or no.  [default: auto]"
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="gaussian, scale-mixture or empirical-bayes.  [default: empirical-bayes]"),
    ] = None,
    prior_sigma: Annotated[
        float | None, typer.Option(help="Scale of the gaussian prior.  [default: 1]")
    ] = None,
    prior_pi: Annotated[
        float | None, typer.Option(help="Weight of the wide component.  [default: 0.5]")
    ] = None,
    prior_sigma1: Annotated[
        float | None, typer.Option(help="Scale of the wide component.  [default: 1]")
    ] = None,
    prior_sigma2: Annotated[
        float | None, typer.Option(help="Scale of the narrow component.  [default: 0.1]")
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="auto, fixed, homoscedastic, heteroscedastic or mixture.  [default: auto]"),
    ] = None,
    noise_sigma: Annotated[float | None, typer.Option(help="Known noise, in the target's unit.")] = None,
    noise_components: Annotated[
        int | None, typer.Option(help="Gaussians a row of mixture noise.  [default: 3]")
    ] = None,
    transform: Annotated[
        str | None, typer.Option(help="Of the target: auto, none or log.  [default: auto]")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Weight of the prior, up to 1, its exact weight; by default chosen by validation."),
    ] = None,
    kl_weights: Annotated[str | None, typer.Option(help="uniform or geometric.  [default: uniform]")] = None,
    skip: Annotated[
        bool | None, typer.Option(help="Let the last layer also read the inputs.  [default: skip]")
    ] = None,
    activation: Annotated[
        str | None, typer.Option(help="relu, silu, gelu, tanh or sigmoid.  [default: silu]")
    ] = None,
    optimiser: Annotated[
        str | None, typer.Option(help="adam, adamw, rmsprop or sgd.  [default: adam]")
    ] = None,
    draws_per_step: Annotated[
        int | None, typer.Option(help="Draws a row in each step.  [default: 1]")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs; by default by table size.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows a minibatch; by default by table size.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="First learning rate.  [default: 0.01]")] = None,
    patience: Annotated[int | None, typer.Option(help="Validations without gain before it stops.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Most seconds to fit; by default by table size.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted training of this table.")
    ] = False,
    snapshot_every: Annotated[
        float, typer.Option(min=0.0, help="Seconds between snapshots for --resume; 0: after every epoch.")
    ] = 30.0,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Fit a Bayesian network to a table and save it as a checkpoint."""
    from murho.model.commands.training_progress import TerminalReporter
    from murho.model.data.tables import read_table
    from murho.model.errors import OptionError
    from murho.model.posterior.checkpoint import check_writable, validate_name, write_checkpoint
    from murho.model.runtime.devices import resolve_device, use_threads_for_fitting
    from murho.model.training.options import make_options, read_config
    from murho.model.training.snapshots import Snapshots
    from murho.model.training.train import train as train_on_table

    given: dict[str, Any] = {
        "ignore": tuple(ignore) if ignore else None,
        "hidden": None if hidden is None else whole_numbers("--hidden", hidden),
        "seed": seed,
        "members": members,
        "encoding": encoding,
        "whiten": whiten,
        "prior": prior,
        "prior_sigma": prior_sigma,
        "prior_pi": prior_pi,
        "prior_sigma1": prior_sigma1,
        "prior_sigma2": prior_sigma2,
        "noise": noise,
        "noise_sigma": noise_sigma,
        "noise_components": noise_components,
        "transform": transform,
        "temperature": temperature,
        "kl_weights": kl_weights,
        "activation": activation,
        "skip": skip,
        "optimiser": optimiser,
        "draws_per_step": draws_per_step,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "patience": patience,
        "budget": budget,
    }
    values = {} if config is None else read_config(config)
    column = target or values.pop("target", None)
    values.pop("target", None)
    chosen_name = validate_name(str(name or values.pop("name", None) or _name_of(data)))
    values.pop("name", None)
    options = make_options(values | {key: value for key, value in given.items() if value is not None})
    if not isinstance(column, str):
        raise OptionError("say which column to predict: --target COLUMN")
    check_writable(checkpoints, chosen_name)
    resolved = resolve_device(device)

    reporter = TerminalReporter()
    table = read_table(data)
    with Snapshots(checkpoints / chosen_name, resume=resume, seconds=snapshot_every) as snapshots:
        with use_threads_for_fitting(resolved), naming(data):
            trained = train_on_table(
                table, column, options, reporter=reporter, device=resolved, snapshots=snapshots
            )
        directory = write_checkpoint(checkpoints, chosen_name, trained.spec, trained.tensors)
        if not trained.spec.training["interrupted"]:
            snapshots.remove()
    _report(trained, directory, as_json=json)


def _name_of(data: Path) -> str:
    return data.name.split(".")[0] or data.name


def _report(trained: Trained, directory: Path, *, as_json: bool) -> None:
    from murho.model.evaluation import metrics

    spec = trained.spec
    if as_json:
        print_json(
            {
                "checkpoint": str(directory),
                "name": directory.parent.name,
                "version": directory.name,
                "interrupted": spec.training["interrupted"],
                "metrics": spec.metrics,
            }
        )
        return
    lines = [
        f"on {spec.metrics['n']} held-out rows, after {spec.training['seconds']:.1f} s:",
        *metrics.summary(spec.metrics, spec.schema.target.unit),
        f"saved {directory}" + (" (interrupted)" if spec.training["interrupted"] else ""),
    ]
    print_lines(lines)


def predict(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow or JSON file.")],
    model: Annotated[str, typer.Option(help="Name of the checkpoint.")],
    checkpoints: CheckpointsOption = Path("checkpoints"),
    url: Annotated[
        str | None, typer.Option(help="Address of a running service, instead of a checkpoint.")
    ] = None,
    version: VersionOption = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Draws behind each answer; 0: the mean alone.")
    ] = DEFAULT_SAMPLES,
    percentiles: Annotated[str, typer.Option(help="Levels of the percentile columns.")] = "5,50,95",
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of the draws.")] = None,
    output: Annotated[Path | None, typer.Option(help=".csv or .parquet; by default CSV on stdout.")] = None,
    keep_inputs: Annotated[bool, typer.Option("--keep-inputs", help="Put the input columns first.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Score a file, offline or through a running service."""
    from murho.model.commands.batch_prediction import LocalScorer, RemoteScorer, Scorer, score_table
    from murho.model.data.tables import read_table, write_table
    from murho.model.errors import OptionError
    from murho.model.posterior.checkpoint import find_checkpoint
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.devices import resolve_device, use_threads_for_answering
    from murho.model.runtime.row_progress import advancing

    options = PredictOptions(samples=samples, percentiles=levels(percentiles), seed=seed)
    if output is not None and output.suffix.lower() not in (".csv", ".parquet"):
        raise OptionError(f"--output: {output} must end in .csv or .parquet")
    scorer: Scorer
    if url is None:
        use_threads_for_answering()
        directory = find_checkpoint(checkpoints, model, version)
        scorer = LocalScorer(Posterior.load(directory, resolve_device(device)))
    else:
        scorer = RemoteScorer(url, model if version is None else f"{model}/versions/{version}")
    table = read_table(data)
    with naming(data), advancing("scoring", table.num_rows) as advance:
        scored, unlike = score_table(table, scorer, options, advance)
    if unlike:
        rows = "1 row is" if unlike == 1 else f"{unlike} rows are"
        sys.stderr.write(f"note: {rows} unlike the training rows (beyond their range, in a gap, or unseen)\n")
    columns: dict[str, Any] = {}
    if keep_inputs:
        clash = sorted(set(scored) & set(table.column_names))
        if clash:
            raise OptionError(f"--keep-inputs: the input already has a column {clash[0]!r}; rename it")
        columns |= {name: table.column(name) for name in table.column_names}
    write_table(output, columns | _empty_for_nan(scored))


def evaluate(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow or JSON file with the target column.")],
    model: Annotated[str, typer.Option(help="Name of the checkpoint.")],
    checkpoints: CheckpointsOption = Path("checkpoints"),
    version: VersionOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Judge a checkpoint on labelled rows."""
    from murho.model.commands.evaluation_report import report_lines
    from murho.model.data.tables import read_table
    from murho.model.evaluation.evaluate import evaluate_table
    from murho.model.posterior.checkpoint import find_checkpoint
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.devices import resolve_device, use_threads_for_answering
    from murho.model.runtime.row_progress import advancing

    use_threads_for_answering()
    posterior = Posterior.load(find_checkpoint(checkpoints, model, version), resolve_device(device))
    table = read_table(data)
    with naming(data), advancing("judging", table.num_rows) as advance:
        report = evaluate_table(posterior, table, advance=advance)
    left_out = report.pop("left_out")
    if left_out:
        sys.stderr.write(f"left out {left_out} rows without a value of {posterior.schema.target.name!r}\n")
    if json:
        print_json(report)
        return
    title = f"{posterior.name} version {posterior.version} on {report['n']} rows"
    print_lines([title, *report_lines(report, posterior.schema.target.unit)])


def _empty_for_nan(scored: dict[str, Any]) -> dict[str, Any]:
    import pyarrow as pa

    return {name: pa.array(values, from_pandas=True) for name, values in scored.items()}
