"""What the engine serves, as front ends know it: the same snapshot, with the specifications alone."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from murho.service.models.loader import LoadedModel, Refused, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from murho.model.checkpoint.checkpoint import CheckpointReference
    from murho.model.checkpoint.spec import ModelSpec
    from murho.model.predictive.answer_cost import AnswerCost
    from murho.model.predictive.prediction import PredictOptions, Question
    from murho.model.tables.schema import Columns, Schema
    from murho.service.engine.jobs import ModelLike

MOST_SEEDS = 64
"""Seeds whose draws count as made."""


class RemoteModel:
    """A model of the engine, in a front end: all but its weights.

    Attributes:
        number: By which the engine knows it.
        name: The checkpoint's name.
        version: The checkpoint's version.
        spec: The content of `model.json`.
        schema: Features and target.
        answer_cost: What answers cost.
        reference: Where the checkpoint is stored.
    """

    def __init__(self, described: ModelDescription) -> None:
        self.number, self.name, self.version, self.spec, self.answer_cost, self.reference = described
        self.schema: Schema = self.spec.schema
        self._drawn: OrderedDict[int, int] = OrderedDict()

    def rows_without_draws(self, rows: int, incomplete: int, seconds: float) -> int:
        """Return how many of the rows take about so long without draws."""
        return self.answer_cost.rows_without_draws(rows, incomplete, seconds)

    def cost(self, rows: int, options: PredictOptions, incomplete: int = 0) -> float:
        """Return the work of an answer, in row-draws; draws of the seeds that were asked for last count as made."""
        seed, new = options.seed, 0
        if options.samples and seed is not None and seed != self.spec.default_seed:
            new = options.samples if options.samples > self._drawn.get(seed, 0) else 0
            self._drawn[seed] = max(options.samples, self._drawn.get(seed, 0))
            self._drawn.move_to_end(seed)
            if len(self._drawn) > MOST_SEEDS:
                self._drawn.popitem(last=False)
        return self.answer_cost.of(rows, options, incomplete, new)

    def predict_questions(self, columns: Columns, questions: Sequence[Question]) -> NoReturn:
        """Return the engine answers, in its own process."""
        raise NotImplementedError

    def warm_up(self) -> NoReturn:
        """Return the engine does, in its own process."""
        raise NotImplementedError


class ModelDescription(NamedTuple):
    """What a front end needs to know of a model; see `RemoteModel`."""

    number: int
    name: str
    version: str
    spec: ModelSpec
    answer_cost: AnswerCost
    reference: CheckpointReference | None


class SharedSnapshot(NamedTuple):
    """A snapshot, on its way to a front end.

    Attributes:
        models: Name to version to the number of the model and the time at which it was loaded.
        described: The models that the front end does not know yet.
        refused, loaded, place, not_served, unloaded: See `Snapshot`.
    """

    models: dict[str, dict[str, tuple[int, datetime]]]
    described: list[ModelDescription]
    refused: tuple[Refused, ...]
    loaded: bool
    place: str
    not_served: dict[str, tuple[str, ...]]
    unloaded: tuple[str, ...]

    @classmethod
    def of(
        cls, snapshot: Snapshot, numbers: Mapping[ModelLike, int], described: list[ModelDescription]
    ) -> SharedSnapshot:
        """Return a snapshot of the engine.

        Args:
            snapshot: The snapshot.
            numbers: The numbers of its models.
            described: See above.
        """
        models = {
            name: {version: (numbers[model], loaded.since[version]) for version, model in loaded.versions.items()}
            for name, loaded in snapshot.models.items()
        }
        rest = snapshot.refused, snapshot.loaded, snapshot.place, dict(snapshot.not_served), snapshot.unloaded
        return cls(models, described, *rest)

    def snapshot(self, known: Mapping[int, ModelLike]) -> Snapshot:
        """Return the snapshot of a front end, which knows models by number."""
        models = {}
        for name, versions in self.models.items():
            by_version = {version: known[number] for version, (number, _) in versions.items()}
            since = {version: at for version, (_, at) in versions.items()}
            latest = list(by_version.values())[-1]
            models[name] = LoadedModel(name, latest, MappingProxyType(by_version), MappingProxyType(since))
        return Snapshot(MappingProxyType(models), self.refused, self.loaded, self.place, self.not_served, self.unloaded)
