"""`load` a checkpoint, or `train` a model on a data frame: both return a `TrainedModel`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from murho.model.commands.training_progress import TerminalReporter
from murho.model.data.schema import FeatureKind
from murho.model.errors import CheckpointError
from murho.model.posterior.checkpoint import FACTS_FILE, default_root, find_checkpoint, name_and_version, read_stored
from murho.model.posterior.posterior import Posterior
from murho.model.python_interface.given_data import table_of, warn_of_left_out, with_declared_kinds
from murho.model.python_interface.trained_model import TrainedModel
from murho.model.python_interface.value_errors import ParameterError, as_value_errors
from murho.model.runtime.devices import resolve_device, use_threads_for_fitting
from murho.model.storage.places import is_url
from murho.model.storage.stores import store_at
from murho.model.training.options import TrainOptions, make_options
from murho.model.training.silence import Silence
from murho.model.training.train import train as train_on_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["load", "train"]


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
    directory = _directory(Path(source), chosen, checkpoints) if store is None else store.find(str(source), chosen)
    stored = read_stored(directory)
    name, found = name_and_version(directory)
    posterior = Posterior(stored.spec, stored.tensors, name=name, version=found, device=resolved)
    stored.require_answers(posterior)
    return TrainedModel(posterior, stored.tensors)


def train(data: Any, target: str, *, device: str = "cpu", verbose: bool = False, **options: Any) -> TrainedModel:
    """Train a model on a table, as ``murho train`` does.

    Args:
        data: A data frame of pandas, polars or pyarrow, or the path of a file.
        target: Name of the column to predict. A number gets error bars; text and truth values get probabilities of
            classes (``task="classification"`` makes classes of numbers).
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
        chosen = make_options(_known(options))
        resolved = resolve_device(device)
        table = table_of(data)
        if not isinstance(data, str | Path):
            chosen = _with_kinds(chosen, table, target)
        with use_threads_for_fitting(resolved), TerminalReporter() if verbose else Silence() as reporter:
            trained = train_on_table(table, target, chosen, reporter=reporter, device=resolved)
    if trained.spec.training["interrupted"]:
        warn("the training was interrupted: the model has the best parameters so far", UserWarning, stacklevel=2)
    warn_of_left_out(trained.spec.schema, stacklevel=2)
    return TrainedModel(Posterior(trained.spec, trained.tensors, device=resolved), trained.tensors)


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options after a check of their names; lists become tuples."""
    for name in options:
        if name not in TrainOptions.model_fields:
            close = difflib.get_close_matches(name, TrainOptions.model_fields, n=1)
            hint = f": did you mean {close[0]!r}?" if close else "; they are those of `murho train`"
            raise ParameterError(f"there is no option {name!r}{hint}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _with_kinds(options: TrainOptions, table: pa.Table, target: str) -> TrainOptions:
    """Options with the kinds that a data frame declares; of a target only that it is categorical counts."""
    described = with_declared_kinds(options, table)
    columns = dict(described.columns)
    if target in columns and target not in options.columns and columns[target].kind is not FeatureKind.CATEGORICAL:
        del columns[target]
    return described.model_copy(update={"columns": columns})


def _directory(source: Path, version: str | None, checkpoints: str | Path | None) -> Path:
    """The directory of the version that is meant."""
    root = default_root() if checkpoints is None else Path(checkpoints)
    for path in (source, root / source):
        if (path / FACTS_FILE).is_file():
            if version not in (None, path.name):
                raise ParameterError(f"version: {path} is version {path.name!r}; leave out version, or give the name")
            return path
    if len(source.parts) == 1 and not source.is_absolute():
        return find_checkpoint(root, source.name, version)
    if not source.name:
        raise CheckpointError(f"{str(source)!r} is no checkpoint: give its name, or a path that ends in NAME/VERSION")
    return find_checkpoint(source.parent, source.name, version)
