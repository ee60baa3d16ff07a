"""`load` a checkpoint, or `train` a model on a data frame: both return a `TrainedModel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn
from warnings import warn

import numpy as np
import pyarrow as pa

from murho.model.checkpoint.checkpoint import DEFAULT_ROOT, FACTS_FILE
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.stores import DirectoryStore, directory_at, is_url, store_at
from murho.model.errors import CheckpointError, InputError, OptionError
from murho.model.evaluation.judging import evaluate_table
from murho.model.evaluation.why import Explained, explain
from murho.model.predictive.decisions import (
    Actions,
    DecideOptions,
    Decisions,
    cross,
    decide,
    draw_numbers,
    join_decisions,
)
from murho.model.predictive.prediction import DEFAULT_PERCENTILES, DEFAULT_SAMPLES, PredictOptions
from murho.model.predictive.totals import TotalsAnswer, TotalsOptions, default_statistic
from murho.model.python.answers import (
    ClassDistribution,
    DataError,
    NumberDistribution,
    ParameterError,
    as_value_errors,
    require_whole,
)
from murho.model.python.table_scoring import check_options
from murho.model.python.table_totals import add_up_table, answer_of
from murho.model.python.terminal_reporter import TerminalReporter
from murho.model.runtime import resolve_device
from murho.model.tables.columns import plain, stored_kind
from murho.model.tables.overrides import ColumnOverride
from murho.model.tables.schema import FeatureKind, Schema
from murho.model.tables.schema_inference import GROUPS, IGNORED, columns_from_table
from murho.model.tables.table_files import is_frame, read_table, table_from_frame
from murho.model.training.candidates import Reporter
from murho.model.training.options import TrainOptions, make_options
from murho.model.training.train import train as train_on_table

HARMLESS = (IGNORED, GROUPS, "every cell is the same", "every cell is missing")
"""Reasons to leave out a column without a warning."""


def table_of(data: Any) -> pa.Table:
    """Return data as a table of B rows.

    Args:
        data: A data frame of pandas, polars or pyarrow, or the path of a file that `murho predict` reads.

    Raises:
        TableError: The data can't be used; the message says where and why.
    """
    if isinstance(data, str | Path):
        return read_table(Path(data))
    if not is_frame(data):
        raise DataError(
            "data: give a data frame of pandas, polars or pyarrow, or the path of a file, "
            f"not {type(data).__name__}; one row of a data frame is frame.iloc[[0]]"
        )
    names = data.column_names if hasattr(data, "column_names") else data.columns
    return table_from_frame(data, [str(name) for name in names])


def declared_kinds(table: pa.Table) -> dict[str, FeatureKind]:
    """Return the kinds that follow from the Arrow types of a table's columns.

    A numeric column stays numeric even if it numbers the rows, and a categorical column stays categorical even if its
    categories are numbers. Text columns get no kind here, since text often holds dates and numbers: their kind is
    inferred from the cells.

    Returns:
        Column → kind, for columns of numbers, truth values and categories only.
    """
    kinds = {}
    for name, column in zip(table.column_names, table.slice(0, 0).columns, strict=True):
        if pa.types.is_dictionary(column.type):
            kinds[name] = FeatureKind.CATEGORICAL
        elif (kind := stored_kind(plain(column, name))) in (FeatureKind.NUMERIC, FeatureKind.BOOLEAN):
            kinds[name] = kind
    return kinds


def with_declared_kinds(options: TrainOptions, table: pa.Table, target: str | None = None) -> TrainOptions:
    """Options with kinds from the types of the table's columns, for columns without a given kind.

    Args:
        options: The options.
        table: The columns.
        target: Name of the target, if it is one of them: of its types only that it is categorical counts.
    """
    described = dict(options.columns)
    for name, kind in declared_kinds(table).items():
        given = described.get(name, ColumnOverride())
        left_out = name in options.ignore or name in options.group
        if name == target and name not in options.columns:
            left_out = kind is not FeatureKind.CATEGORICAL
        if not left_out and name != options.weight and given.kind is None:
            described[name] = replace(given, kind=kind)
    return options.model_copy(update={"columns": described})


def warn_of_left_out(schema: Schema, *, stacklevel: int) -> None:
    """Warn of columns that are no features for a reason worth knowing.

    Args:
        schema: The features and the columns left out.
        stacklevel: How many calls above the caller the warning points to, as in `warnings.warn`.
    """
    for name, reason in schema.left_out.items():
        if reason not in HARMLESS:
            warn(f"column {name!r} is no feature: {reason}", UserWarning, stacklevel=stacklevel + 1)


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A trained model, as `murho.load` and `murho.train` return it.

    Attributes:
        posterior: The posterior that answers. ``posterior.facts`` has the content of ``model.json``.
    """

    posterior: Posterior

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a model is kept as a checkpoint, which executes nothing when it is loaded."""
        raise TypeError("a model can't be pickled: save it with model.save(NAME), and load it with murho.load(NAME)")

    @property
    def target(self) -> str:
        """Name of the predicted column."""
        return self.posterior.schema.target.name

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that `predict` needs."""
        return tuple(feature.name for feature in self.posterior.schema.features)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes of the target, sorted; None: it is a number."""
        return self.posterior.schema.target.classes

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Scores on held-out rows, as in ``model.json``."""
        return self.posterior.spec.metrics

    def __repr__(self) -> str:
        task = "a number" if self.classes is None else f"{len(self.classes)} classes"
        return f"<model of {self.target!r} ({task}) from {', '.join(self.features)}>"

    def predict(
        self,
        data: Any,
        *,
        samples: int = DEFAULT_SAMPLES,
        seed: int | None = None,
        calibrated: bool = True,
    ) -> Any:
        """Return the predictive distribution of the target of every row.

        Args:
            data: B rows: a data frame of pandas, polars or pyarrow, or the path of a file. Columns that are no features
                are ignored.
            samples: S, the draws behind the answer; 0: the mean, or the probabilities, of the mu-only network alone.
            seed: Seed of the draws; None: that of the model.
            calibrated: Whether the answer is calibrated, if the model has a calibration.

        Returns:
            A `NumberDistribution`, or a `ClassDistribution` if the model has `classes`.

        Raises:
            ValueError: The data or an argument can't be used; the message says where and why.
        """
        options = _options(samples, seed, calibrated)
        kind = NumberDistribution if self.classes is None else ClassDistribution
        with as_value_errors():
            return kind(self.posterior, table_of(data), options)

    def aggregate(
        self,
        data: Any,
        *,
        by: str | Sequence[str] = (),
        statistic: str = "",
        threshold: float | None = None,
        weights: str | None = None,
        percentiles: Sequence[float] = DEFAULT_PERCENTILES,
        thresholds: Sequence[float] = (),
        samples: int = DEFAULT_SAMPLES,
        seed: int | None = None,
        calibrated: bool = True,
    ) -> TotalsAnswer:
        """Return the sum, the mean or a count over the rows of each group, with error bars.

        Args:
            data: B rows, as `predict` takes them, with the columns of ``by`` and ``weights``.
            by: Columns whose cells say which rows belong together; none: all do.
            statistic: ``sum`` (default), ``mean`` or ``count_above``; of classes ``count`` of each class.
            threshold: Of ``count_above``, in the target's unit.
            weights: The column of the weights, such as quantities; None: all rows count alike.
            percentiles: Levels, strictly between 0 and 100.
            thresholds: For each, the probability that the total exceeds it.
            samples: S, the draws behind the answer; 0: the mean alone.
            seed: Seed of the draws; None: that of the model.
            calibrated: Whether the answer is calibrated, if the model has a calibration.

        Raises:
            ValueError: The data or an argument can't be used; the message says where and why.
        """
        of = replace(
            _options(samples, seed, calibrated),
            percentiles=tuple(map(float, percentiles)),
            thresholds=tuple(map(float, thresholds)),
        )
        options = TotalsOptions(statistic or default_statistic(self.posterior.schema), threshold, of)
        with as_value_errors():
            check_options(of)
            groups = (by,) if isinstance(by, str) else tuple(by)
            return answer_of(add_up_table(self.posterior, table_of(data), options, groups, weights), self.posterior)

    def decide(
        self,
        contexts: Any,
        actions: Sequence[Mapping[str, Any]] | None = None,
        *,
        policy: str = "thompson",
        goal: str = "max",
        width: float = 1.0,
        threshold: float | None = None,
        at_least: float = 0.9,
        risk: float | None = None,
        draw: Sequence[int] | None = None,
        samples: int = DEFAULT_SAMPLES,
        seed: int | None = None,
        calibrated: bool = True,
    ) -> Decisions:
        """Choose one of several actions for each context, by draws of the model.

        Args:
            contexts: N rows, as `predict` takes them, with the features that no action sets.
            actions: ``{"id": "eat", "inputs": {…}, "cost": 0}`` each: the features that the action sets, and its cost
                in the target's unit. Of a classifier also ``"utility": {class: number}``, and inputs may be left out;
                None: its classes are the actions.
            policy: ``thompson``, ``greedy``, ``ucb`` or ``threshold`` (`model.predictive.decisions`).
            goal: ``max`` or ``min``.
            width: Of ``ucb``: number of epistemic standard deviations.
            threshold: Of ``threshold``: what a new observation is to be beyond.
            at_least: Of ``threshold``: with this probability.
            risk: ``unsure`` is answered so that about this share of a classifier's other decisions is wrong at most, as
                held-out rows show; `model.calibration.abstention` says what is guaranteed. None: never.
            draw: Number of the draw that decides for each context, ``[N]``; None: at random.
            samples: S, at least 1.
            seed: Seed of the draws; None: that of the model.
            calibrated: Whether means and spreads are calibrated, if the model has a calibration.

        Raises:
            ValueError: The data or an argument can't be used; the message says where and why.
        """
        of = _options(samples, seed, calibrated, least=1)
        options = DecideOptions(policy, goal, width, threshold, at_least, risk, of)
        with as_value_errors():
            return decide_about_table(
                self.posterior, table_of(contexts), None if actions is None else list(actions), options, draw
            )

    def evaluate(self, data: Any, *, weight: str | None = None) -> dict[str, Any]:
        """Scores on labelled rows, as ``murho evaluate --json`` prints them.

        Args:
            data: Rows with the target, as `predict` takes them.
            weight: Column with the weights of the rows.

        Raises:
            ValueError: The data can't be used; the message says where and why.
        """
        with as_value_errors():
            return evaluate_table(self.posterior, table_of(data), weight=weight)

    def explain(
        self,
        data: Any,
        *,
        samples: int = DEFAULT_SAMPLES,
        seed: int | None = None,
        calibrated: bool = True,
    ) -> Explained:
        """Return what the known cells of each row add to its answer, and what its missing cells are worth.

        Args:
            data: B rows, as `predict` takes them.
            samples: S, the draws behind the answer; 0: shares of the mean, or probability, alone.
            seed: Seed of the draws; None: that of the model.
            calibrated: Whether the answer is calibrated, if the model has a calibration.

        Raises:
            ValueError: The data or an argument can't be used, or the model was trained to refuse missing cells.
        """
        options = _options(samples, seed, calibrated)
        with as_value_errors():
            columns = columns_from_table(table_of(data), self.posterior.schema)
            return explain(self.posterior, columns, options)

    def save(self, name: str, checkpoints: str | Path | None = None) -> Path:
        """Write the model as the next version of a checkpoint, for ``murho serve`` and `murho.load`.

        Args:
            name: Name of the checkpoint.
            checkpoints: Directory of checkpoints, by default ``checkpoints``; created if it does not exist.

        Returns:
            The directory of the version, ``checkpoints/name/version``.

        Raises:
            CheckpointError: The name is invalid, or the directory can't be written.
        """
        root = DEFAULT_ROOT if checkpoints is None else directory_at(checkpoints)
        return self.posterior.save(root, name)


def _options(samples: int, seed: int | None, calibrated: bool, *, least: int = 0) -> PredictOptions:
    """Options without percentiles, after a check of the numbers; raises a `ParameterError`."""
    seed = None if seed is None else require_whole(seed, "seed", 0)
    return PredictOptions(require_whole(samples, "samples", least), (), seed, calibrated=calibrated)


def load(
    source: str | Path,
    *,
    version: int | str | None = None,
    checkpoints: str | Path | None = None,
    device: str = "cpu",
) -> TrainedModel:
    """Load a model that ``murho train``, `train` or an estimator has saved.

    Args:
        source: Name of a checkpoint, or the path of one: ``NAME``, ``somewhere/NAME`` or ``somewhere/NAME/VERSION``.
        version: The version; by default the latest.
        checkpoints: Where a name is looked for, by default in ``checkpoints``; or the URL of a storage,
            ``s3://bucket/prefix``.
        device: Where to compute: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.

    Raises:
        CheckpointError: There is no such checkpoint, or it is damaged; the message says what there is.
        ValueError: The device can't be used.
    """
    chosen = None if version is None else str(version)
    with as_value_errors():
        resolved = resolve_device(device)
        store = store_at(checkpoints) if checkpoints is not None and is_url(checkpoints) else None
    # What a store has fetched stays as long as the store does: to the end of this function.
    directory = (
        version_directory(Path(source), chosen, checkpoints) if store is None else store.find(str(source), chosen)
    )
    return TrainedModel(Posterior.load(directory, resolved))


def train(data: Any, target: str | int, *, device: str = "cpu", verbose: bool = False, **options: Any) -> TrainedModel:
    """Train a model on a table, as ``murho train`` does.

    Args:
        data: A data frame of pandas, polars or pyarrow, or the path of a file.
        target: Name of the column to predict; pandas' may be whole numbers. A number gets error bars; text and truth
            values get probabilities of classes (``task="classification"`` makes classes of numbers).
        device: Where to compute: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        verbose: Whether to show the progress on stderr.
        options: Options of ``murho train`` by name: ``budget=20``, ``seed=1``, ``ignore=("Name",)``,
            ``columns={"Cylinders": {"kind": "categorical"}}`` and so on.

    Returns:
        The model. After Ctrl-C it has the best parameters so far, and a warning says so.

    Raises:
        ValueError: The data or an option can't be used; the message says where and why.
        FitError: The fit became non-finite.
    """
    with as_value_errors():
        if not isinstance(target, str | int | np.integer):
            raise DataError(f"target: give the name of a column, not {type(target).__name__}; the table comes first")
        chosen = make_options(options)
        resolved = resolve_device(device)
        table, target = table_of(data), str(target)
        if not isinstance(data, str | Path):
            chosen = with_declared_kinds(chosen, table, target)
        with TerminalReporter() if verbose else Reporter() as reporter:
            trained = train_on_table(table, target, chosen, reporter=reporter, device=resolved)
    if trained.spec.training["interrupted"]:
        warn("the training was interrupted: the model has the best parameters so far", UserWarning, stacklevel=2)
    warn_of_left_out(trained.spec.schema, stacklevel=2)
    return TrainedModel(Posterior(trained.spec, trained.posterior.tensors, device=resolved))


def version_directory(source: Path, version: str | None = None, checkpoints: str | Path | None = None) -> Path:
    """Return the directory of the version that is meant.

    Args:
        source: ``NAME``, ``somewhere/NAME`` or ``somewhere/NAME/VERSION``.
        version: The version; None: the latest.
        checkpoints: Where a name is looked for; by default in ``checkpoints``.

    Raises:
        CheckpointError: There is no such version; the message says what there is.
        ParameterError: Two versions are named.
    """
    root = DEFAULT_ROOT if checkpoints is None else Path(checkpoints)
    for path in (source, root / source):
        if (path / FACTS_FILE).is_file():
            if version not in (None, path.name):
                raise ParameterError(f"version: {path} is version {path.name!r}; leave out version, or give the name")
            return path
    if source.is_file():
        raise CheckpointError(
            f"{str(source)!r} is a file: give a checkpoint's name, or a path that ends in NAME/VERSION"
        )
    if len(source.parts) == 1 and not source.is_absolute():
        return DirectoryStore(root).find(source.name, version)
    if not source.name:
        raise CheckpointError(f"{str(source)!r} is no checkpoint: give its name, or a path that ends in NAME/VERSION")
    return DirectoryStore(source.parent).find(source.name, version)


def decide_about_table(
    posterior: Posterior,
    table: pa.Table,
    given: list[Any] | None,
    options: DecideOptions,
    draw: Sequence[int] | None,
) -> Decisions:
    """Choose an action for each row.

    Args:
        posterior: What answers.
        table: The contexts, with all features that no action sets; other columns are ignored.
        given: The actions, see `Actions.read`.
        options: How to choose.
        draw: Number of the draw that decides for each row; None: at random.

    Raises:
        TableError: A column is missing, or a cell can't be used.
        OptionError: An action, an option or a draw can't be used.
    """
    schema, count, samples = posterior.schema, table.num_rows, options.of.samples
    try:
        actions = Actions.read(given, schema.target)
        options.check(schema.target, actions)
        step = actions.contexts_at_a_time(samples)
    except InputError as error:
        raise OptionError(str(error)) from None
    names = actions.features
    for name in set(names) - {feature.name for feature in schema.features}:
        raise OptionError(f"actions: {name!r} is not a feature of this model")
    draws = draw_numbers(count, samples) if draw is None else np.asarray(draw)
    if draws.shape != (count,) or draws.dtype.kind not in "iu" or ((draws < 0) | (draws >= samples)).any():
        raise OptionError(f"draw: expected a whole number from 0 to {samples - 1} for each of {count} contexts")
    own, others = (
        replace(schema, features=tuple(each for each in schema.features if (each.name in names) is set_by_action))
        for set_by_action in (True, False)
    )
    of_actions = columns_from_table(pa.Table.from_pylist(list(actions.inputs)), own) if names else {}
    parts = []
    for start in range(0, count, step):
        block = table.slice(start, step)
        contexts = columns_from_table(block, others)
        rows = cross(contexts, of_actions, schema, (block.num_rows, actions.rows))
        answer = posterior.predict(rows, options.predict_options)
        parts.append(decide(answer, actions, options, draws[start : start + step], posterior.spec.calibration))
    if not parts:
        raise OptionError("contexts: there are none")
    return join_decisions(parts)
