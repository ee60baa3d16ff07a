"""`TrainedModel`: a model in a notebook, which answers with distributions and can be saved for the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murho.model.engines.prediction import DEFAULT_SAMPLES, PredictOptions
from murho.model.posterior.checkpoint import default_root, write_checkpoint
from murho.model.python_interface.asked_rows import AskedRows
from murho.model.python_interface.class_distribution import ClassDistribution
from murho.model.python_interface.given_data import table_of
from murho.model.python_interface.number_distribution import NumberDistribution
from murho.model.python_interface.value_errors import ParameterError, as_value_errors
from murho.model.storage.places import directory_at

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from murho.model.posterior.posterior import Posterior

__all__ = ["TrainedModel", "distribution_of"]


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A trained model, as `murho.load` and `murho.train` return it.

    Attributes:
        posterior: The posterior that answers. ``posterior.facts`` has the content of ``model.json``.
        tensors: Its parameters by name.
    """

    posterior: Posterior
    tensors: Mapping[str, Tensor]

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
        """The predictive distribution of the target of every row.

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
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 0:
            raise ParameterError(f"samples: a whole number from 0, not {samples!r}")
        with as_value_errors():
            options = PredictOptions(samples=samples, seed=seed, calibrated=calibrated)
            return distribution_of(AskedRows.of(self.posterior, table_of(data), options))

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
        root = default_root() if checkpoints is None else directory_at(checkpoints)
        return write_checkpoint(root, name, self.posterior.spec, self.tensors)


def distribution_of(rows: AskedRows) -> NumberDistribution | ClassDistribution:
    """The distribution of the target of rows, by the kind of the target."""
    return NumberDistribution(rows) if rows.posterior.schema.target.classes is None else ClassDistribution(rows)
