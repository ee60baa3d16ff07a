"""The store: predictions as they were answered, what came true of them, and the states that follow from outcomes.

All of it is plain blocking calls, for threads; `service.outcomes.recorder` records off the way of an answer. Each call
is one transaction or a few that can be repeated: what is there already is not counted twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
import numpy as np
from sqlalchemy import and_, delete, exists, func, or_, select, text
from sqlalchemy.dialects import postgresql, sqlite

from murho.model.evaluation.recorded import class_pits, class_sums, number_pits, number_sums
from murho.service.outcomes.groups import FeatureFacts, group_names
from murho.service.outcomes.schema import (
    OUTCOMES,
    PREDICTIONS,
    REVISIONS,
    ROLLUPS,
    SPANS,
    STATES,
    VERSIONS,
    address_of,
    open_engine,
    reading,
    serialised,
    writing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from numpy.typing import NDArray
    from sqlalchemy import Connection, Engine, Row, Table
    from sqlalchemy.sql.elements import ColumnElement

    from murho.model.checkpoint.spec import ModelSpec

    Doubles: TypeAlias = NDArray[np.float64]

__all__ = [
    "Accepted",
    "Batch",
    "Earlier",
    "Follower",
    "Pair",
    "Recorded",
    "Scored",
    "State",
    "Store",
    "Unknown",
    "Value",
    "VersionFacts",
]

Value: TypeAlias = float | str
"""An outcome: a number, or the name of a class."""
Earlier: TypeAlias = "Callable[[int], str | None]"
"""From the number of a state to its document, or to that of the one before it that is kept; None: it is gone."""

AT_A_TIME = 2000
"""Rows of one statement and, of outcomes, of one transaction."""
HOUR = 3600
THINNED = ((256, 16), (4096, 256))
"""How far back only each so-many-th state is kept."""
SHRINK = 0.05
"""Share of the predictions that go at a time while the store is too large."""


class VersionFacts(msgspec.Struct, frozen=True):
    """What scoring and grouping need to know of a version, kept in the store as JSON.

    Attributes:
        target: The target's name.
        classes: Its classes; None: it predicts a number.
        features: Its features.
        rows: Held-out rows behind its calibration; None: it has none.
    """

    target: str
    classes: tuple[str, ...] | None
    features: tuple[FeatureFacts, ...]
    rows: int | None = None

    @classmethod
    def of(cls, spec: ModelSpec) -> Self:
        """Returns the facts of a version's specification."""
        schema, calibration = spec.schema, spec.calibration
        features = tuple(map(FeatureFacts.of, schema.features))
        rows = None if calibration is None else calibration.rows
        return cls(schema.target.name, schema.target.classes, features, rows)


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """The predictions of one request that are to be recorded, B rows.

    Attributes:
        model: The model's name.
        version: Its version.
        at: When they were made, in seconds since 1970.
        ids: One a row.
        means: Of numbers, float64 `[B]`; empty for classes.
        answers: float32 `[B, …]`: of numbers the percentiles at `LEVELS` less the mean; of classes the probabilities,
            then 1 for each class in the prediction set.
        inputs: The cells of each row as JSON; None: they aren't recorded.
        decisions: The decision of each row as JSON; None: these are no decisions.
        state: The state of adaptation that made the bands; None: the checkpoint's calibration.
        facts: What is to be known of the version; None: the store knows it.
    """

    model: str
    version: str
    at: float
    ids: list[str]
    means: bytes
    answers: bytes
    inputs: list[str] | None = None
    decisions: list[str] | None = None
    state: str | None = None
    facts: VersionFacts | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """One prediction in the store; see `Batch`. `inputs` and `decision` are JSON, `answer` is float32."""

    id: str
    version: str
    at: float
    mean: float | None
    answer: NDArray[np.float32]
    inputs: str | None
    decision: str | None
    state: str | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A prediction and its outcome.

    Attributes:
        prediction: The prediction.
        value: The outcome.
        came: When it came, in seconds since 1970.
        pit: See `model.evaluation.recorded`.
    """

    prediction: Recorded
    value: Value
    came: float
    pit: float


@dataclass(frozen=True, slots=True)
class Unknown:
    """An outcome that was not kept: its place among those given, its id, and why."""

    place: int
    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of outcomes: how many are kept, how many of them replaced another value, and which are unknown."""

    accepted: int
    revised: int
    unknown: list[Unknown]


@dataclass(frozen=True, slots=True)
class Scored:
    """Outcomes of one version that have just come, in the order of their predictions.

    Attributes:
        model: The model's name.
        version: Its version.
        classes: Its classes; None: the outcomes are numbers.
        rows: Held-out rows behind its calibration; None: it has none.
        predicted: When they were predicted, `[B]`.
        values: The outcomes, numbers or indices of classes, `[B]`.
        means: Of numbers, `[B]`; NaN for classes.
        answers: See `Batch`, `[B, …]`.
        pits: See `model.evaluation.recorded`, `[B]`.
        states: The state of adaptation behind each prediction.
    """

    model: str
    version: str
    classes: tuple[str, ...] | None
    rows: int | None
    predicted: Doubles
    values: Doubles
    means: Doubles
    answers: NDArray[np.float32]
    pits: Doubles
    states: list[str | None]

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each outcome is in the central band of 90 %, or in the prediction set, `[B]`."""
        if self.classes is None:
            return np.abs(self.pits - 0.5) <= 0.45
        sets = self.answers[:, len(self.classes) :] > 0.0
        inside: NDArray[np.bool_] = sets[np.arange(len(sets)), self.values.astype(np.intp)]
        return inside


class Follower(Protocol):
    """What is kept up to date with the outcomes of each version: the alarm, adaptation.

    Attributes:
        kind: Names its states.
        keeps: How far back its states stay in the store; of those far back only some (`THINNED`).
    """

    kind: str
    keeps: int

    def follow(self, document: str | None, scored: Scored, earlier: Earlier) -> str | None:
        """Returns the next state as JSON; None: it stays.

        Args:
            document: The latest state; None: there is none.
            scored: Outcomes that came since. One that revises an earlier one isn't among them.
            earlier: Gives an earlier state of this kind.
        """


@dataclass(frozen=True, slots=True)
class State:
    """A state of a follower: its number, counted from 1, when it was made, and its document, JSON."""

    number: int
    at: float
    document: str


class Store:
    """The store, open.

    Args:
        address: A file of SQLite, or the address of a PostgreSQL database.
        followers: What is kept up to date with outcomes.

    Raises:
        OptionError: It can't be opened.
    """

    def __init__(self, address: str, followers: Sequence[Follower] = ()) -> None:
        self.url = address_of(address)
        self.engine: Engine = open_engine(self.url)
        self._followers = followers

    def close(self) -> None:
        """Closes its connections."""
        self.engine.dispose()

    def record(self, batches: Iterable[Batch]) -> None:
        """Keeps predictions, in one transaction.

        An id that is there already is predicted anew, unless its outcome has come: then the first prediction stays.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        rows: list[dict[str, Any]] = []
        facts: dict[tuple[str, str], str] = {}
        for batch in batches:
            rows += _rows_of(batch)
            if batch.facts is not None:
                facts[batch.model, batch.version] = msgspec.json.encode(batch.facts).decode()
        came = exists().where(OUTCOMES.c.model == PREDICTIONS.c.model, OUTCOMES.c.id == PREDICTIONS.c.id)
        with writing(self.engine) as connection:
            known = [{"model": model, "version": version, "facts": said} for (model, version), said in facts.items()]
            _upsert(connection, VERSIONS, known, ("model", "version"))
            _upsert(connection, PREDICTIONS, rows, ("model", "id"), ~came)

    def facts(self, model: str) -> dict[str, VersionFacts]:
        """Returns what is known of each version of a model with predictions.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        with reading(self.engine) as connection:
            return _facts(connection, model)

    def models_of(self, ids: Sequence[str]) -> dict[str, str]:
        """Returns a model that has a prediction of each id, for ids that any has."""
        found: dict[str, str] = {}
        with reading(self.engine) as connection:
            for part in _parts(ids):
                query = select(PREDICTIONS.c.id, PREDICTIONS.c.model).where(PREDICTIONS.c.id.in_(part))
                found |= {row.id: row.model for row in connection.execute(query)}
        return found

    def predictions(self, model: str, ids: Sequence[str]) -> list[Recorded]:
        """Returns the predictions of those ids that there are, in any order.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        with reading(self.engine) as connection:
            return [_recorded(row) for part in _parts(ids) for row in _predicted(connection, model, part)]

    def pairs(
        self, model: str, *, version: str | None = None, since: float = 0.0, until: float | None = None
    ) -> Iterator[Pair]:
        """Yields predictions with their outcomes, in the order in which outcomes came.

        Args:
            model: The model's name.
            version: Its version; None: all of them.
            since: Only outcomes that came then or later, in seconds since 1970.
            until: Only those that came before; None: now.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        found, known = OUTCOMES.c, PREDICTIONS.c
        wanted = [found.model == model, found.at < (time.time() if until is None else until)]
        if version is not None:
            wanted.append(found.version == version)
        joined = OUTCOMES.join(PREDICTIONS, and_(found.model == known.model, found.id == known.id))
        columns = (*PREDICTIONS.columns, found.value, found.label, found.at.label("came"), found.pit)
        after: ColumnElement[bool] = found.at >= since
        while True:
            query = select(*columns).select_from(joined).where(*wanted, after).order_by(found.at, found.id)
            with reading(self.engine) as connection:
                rows = connection.execute(query.limit(AT_A_TIME)).all()
            for row in rows:
                yield Pair(_recorded(row), _value(row), row.came, row.pit)
            if len(rows) < AT_A_TIME:
                return
            last = rows[-1]
            after = (found.at > last.came) | ((found.at == last.came) & (found.id > last.id))

    def add(self, model: str, ids: Sequence[str], values: Sequence[Value], at: float | None = None) -> Accepted:
        """Keeps outcomes: late ones, in any order, any number. Of equal ids the last holds.

        The same value again changes nothing; another one revises, and the earlier one is kept beside it.

        Args:
            model: The model's name.
            ids: Of its predictions.
            values: A number or the name of a class each, as the model predicts.
            at: When they came; None: now.

        Raises:
            NotReadyError: The store doesn't answer. Those before may be kept; adding them again is right.
        """
        at = time.time() if at is None else at
        latest = {key: place for place, key in enumerate(ids)}
        accepted, revised, unknown = 0, 0, list[Unknown]()
        for part in _parts(tuple(latest)):
            given = {key: values[latest[key]] for key in part}
            with writing(self.engine) as connection:
                serialised(connection, model)
                coming = _Coming(connection, model, at)
                revised += coming.add(given)
                for version, scored in coming.new.items():
                    self._follow(connection, model, version, scored, at)
            accepted += len(part) - len(coming.refused)
            unknown += [Unknown(latest[key], key, why) for key, why in coming.refused.items()]
        return Accepted(accepted, revised, sorted(unknown, key=lambda each: each.place))

    def _follow(self, connection: Connection, model: str, version: str, scored: Scored, at: float) -> None:
        for follower in self._followers:
            latest = _latest(connection, model, version, follower.kind)
            earlier = partial(_document, connection, (model, version, follower.kind))
            document = follower.follow(None if latest is None else latest.document, scored, earlier)
            if document is not None:
                _put(connection, (model, version, follower.kind), latest, document, at, follower.keeps)

    def state(self, model: str, version: str, kind: str) -> State | None:
        """Returns the latest state of a kind, None if there is none.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        with reading(self.engine) as connection:
            return _latest(connection, model, version, kind)

    def states(self, model: str, version: str, kind: str) -> list[State]:
        """Returns the states of a kind that are kept, the latest first; raises what `state` does."""
        with reading(self.engine) as connection:
            return [State(*row) for row in connection.execute(_states(model, version, kind))]

    def put_state(self, model: str, version: str, kind: str, document: str, keeps: int = 1) -> int:
        """Makes a document the latest state of a kind; returns its number.

        Args:
            model: The model's name.
            version: Its version.
            kind: The kind.
            document: JSON.
            keeps: See `Follower`.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        with writing(self.engine) as connection:
            serialised(connection, model)
            latest = _latest(connection, model, version, kind)
            return _put(connection, (model, version, kind), latest, document, time.time(), keeps)

    def forget(self, model: str, ids: Sequence[str]) -> int:
        """Deletes predictions with all that belongs to them; sums of many outcomes stay. Returns how many there were.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        gone = 0
        with writing(self.engine) as connection:
            serialised(connection, model)
            for part in _parts(ids):
                for table in (REVISIONS, OUTCOMES, PREDICTIONS):
                    done = connection.execute(delete(table).where(table.c.model == model, table.c.id.in_(part)))
                gone += done.rowcount
        return gone

    def clean(self, before: float | None = None, most_bytes: int | None = None) -> int:
        """Deletes old predictions with their outcomes; sums of outcomes stay. Returns how many.

        Args:
            before: Those made before, in seconds since 1970; None: however old.
            most_bytes: And the oldest ones until the store takes no more; None: however large.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        gone = 0 if before is None else self._delete(before)
        while most_bytes is not None and self.size() > most_bytes:
            with reading(self.engine) as connection:
                count = connection.scalar(select(func.count()).select_from(PREDICTIONS)) or 0
                place = max(1, int(SHRINK * count))
                end = connection.scalar(select(PREDICTIONS.c.at).order_by(PREDICTIONS.c.at).limit(1).offset(place))
            gone += self._delete(time.time() + 1.0 if end is None else float(np.nextafter(end, np.inf)))
            if end is None:
                break
        return gone

    def _delete(self, before: float) -> int:
        """Deletes what was predicted before, some at a time, so that others may write meanwhile."""
        gone = 0
        oldest = select(PREDICTIONS.c.model, PREDICTIONS.c.id).where(PREDICTIONS.c.at < before).limit(AT_A_TIME)
        while True:
            with writing(self.engine) as connection:
                rows = sorted((row.model, row.id) for row in connection.execute(oldest))
                for model, part in groupby(rows, key=lambda row: row[0]):
                    ids = [key for _, key in part]
                    for table in (REVISIONS, OUTCOMES, PREDICTIONS):
                        connection.execute(delete(table).where(table.c.model == model, table.c.id.in_(ids)))
            gone += len(rows)
            if len(rows) < AT_A_TIME:
                return gone

    def size(self) -> int:
        """Returns the bytes that the store takes, but for the room that deleted rows have left.

        Raises:
            NotReadyError: The store doesn't answer.
        """
        with reading(self.engine) as connection:
            if connection.dialect.name == "sqlite":
                pages, free, size = (
                    connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                    for name in ("page_count", "freelist_count", "page_size")
                )
                return int((pages - free) * size)
            live = "n_live_tup::float / greatest(n_live_tup + n_dead_tup, 1)"
            query = text(
                f"SELECT coalesce(sum(pg_total_relation_size(relid) * {live}), 0) FROM pg_stat_user_tables "  # noqa: S608 - of constants
                "WHERE relname = ANY(:names)"
            )
            names = [table.name for table in (PREDICTIONS, OUTCOMES, REVISIONS)]
            return int(connection.scalar(query, {"names": names}) or 0)


class _Coming:
    """Outcomes of one model that come in one transaction.

    Attributes:
        refused: Ids that can't be kept → why.
        new: Those without an earlier value, by version.
    """

    def __init__(self, connection: Connection, model: str, at: float) -> None:
        self._connection, self._model, self._facts, self._at = connection, model, _facts(connection, model), at
        self.refused: dict[str, str] = {}
        self.new: dict[str, Scored] = {}

    def add(self, given: Mapping[str, Value]) -> int:
        """Keeps outcomes; returns how many revise an earlier value."""
        rows = {row.id: row for row in _predicted(self._connection, self._model, tuple(given))}
        earlier = self._earlier(tuple(given))
        coming: list[tuple[Row[Any], Value]] = []
        for key, value in given.items():
            row = rows.get(key)
            if row is None or row.version not in self._facts:
                self.refused[key] = f"No prediction of {self._model!r} with this id is recorded."
            elif (why := _misfit(value, self._facts[row.version].classes, row.version)) is not None:
                self.refused[key] = why
            elif key not in earlier or _value(earlier[key]) != value:
                coming.append((row, value))
        revised = [key for key in (row.id for row, _ in coming) if key in earlier]
        if revised:
            self._revise(rows, earlier, revised)
        coming.sort(key=lambda each: (each[0].version, each[0].at, each[0].id))
        found: list[dict[str, Any]] = []
        for version, part in groupby(coming, key=lambda each: each[0].version):
            of_version = list(part)
            scored = self._scored(version, of_version)
            self._roll(scored, [row for row, _ in of_version], 1.0)
            found += [
                self._row(row, value, pit) for (row, value), pit in zip(of_version, scored.pits.tolist(), strict=True)
            ]
            fresh = np.array([row.id not in earlier for row, _ in of_version])
            if fresh.any():
                self.new[version] = scored if fresh.all() else _some(scored, fresh)
        _upsert(self._connection, OUTCOMES, found, ("model", "id"))
        return len(revised)

    def _earlier(self, ids: tuple[str, ...]) -> dict[str, Row[Any]]:
        wanted = OUTCOMES.c.model == self._model, OUTCOMES.c.id.in_(ids)
        return {row.id: row for row in self._connection.execute(select(OUTCOMES).where(*wanted))}

    def _revise(self, rows: Mapping[str, Row[Any]], earlier: Mapping[str, Row[Any]], ids: list[str]) -> None:
        """Keeps values that are replaced beside the new ones, and takes them off the sums."""
        columns = ("model", "id", "at", "value", "label")
        history = [{name: getattr(earlier[key], name) for name in columns} for key in ids]
        self._connection.execute(REVISIONS.insert(), history)
        before = sorted(((rows[key], _value(earlier[key])) for key in ids), key=lambda each: each[0].version)
        for version, part in groupby(before, key=lambda each: each[0].version):
            of_version = list(part)
            self._roll(self._scored(version, of_version), [row for row, _ in of_version], -1.0)

    def _row(self, row: Row[Any], value: Value, pit: float) -> dict[str, Any]:
        number = None if isinstance(value, str) else value
        return {
            "model": self._model,
            "id": row.id,
            "version": row.version,
            "predicted": row.at,
            "at": self._at,
            "value": number,
            "label": value if number is None else None,
            "pit": pit,
        }

    def _scored(self, version: str, pairs: Sequence[tuple[Row[Any], Value]]) -> Scored:
        classes = self._facts[version].classes
        rows = [row for row, _ in pairs]
        answers = np.frombuffer(b"".join(row.answer for row in rows), np.float32).reshape(len(rows), -1)
        shares = np.array([_share(row.id) for row in rows])
        if classes is None:
            values, means = np.array([value for _, value in pairs], float), np.array([row.mean for row in rows], float)
            pits = number_pits(answers, values - means, shares)
        else:
            places = {name: place for place, name in enumerate(classes)}
            indices = np.array([places[str(value)] for _, value in pairs], np.intp)
            values, means = indices.astype(float), np.full(len(rows), np.nan)
            pits = class_pits(answers[:, : len(classes)], indices, shares)
        predicted, states = np.array([row.at for row in rows]), [row.state for row in rows]
        rows_behind = self._facts[version].rows
        return Scored(self._model, version, classes, rows_behind, predicted, values, means, answers, pits, states)

    def _roll(self, scored: Scored, rows: Sequence[Row[Any]], sign: float) -> None:
        """Adds outcomes to the sums, of all and of each group; or takes them off, with the sign -1."""
        if scored.classes is None:
            sums = number_sums(scored.answers, scored.values - scored.means, scored.pits)
        else:
            count = len(scored.classes)
            probabilities, sets = scored.answers[:, :count], scored.answers[:, count:] > 0.0
            sums = class_sums(probabilities, sets, scored.values.astype(np.intp))
        hours = (scored.predicted // HOUR).astype(int).tolist()
        keys: list[tuple[str, int, str]] = [("", hour, "") for hour in hours]
        places = list(range(len(rows)))
        for place, row in enumerate(rows):
            if row.inputs is not None:
                named = group_names(msgspec.json.decode(row.inputs), self._facts[scored.version].features)
                keys += [(feature, hours[place], group) for feature, group in named]
                places += [place] * len(named)
        known: dict[tuple[str, int, str], int] = {}
        numbers = [known.setdefault(key, len(known)) for key in keys]
        totals = np.zeros((len(known), sums.shape[1]))
        np.add.at(totals, numbers, sign * sums[places])
        table = ROLLUPS[scored.classes is not None]
        names = [column.name for column in table.columns][-sums.shape[1] :]
        lines = [
            {
                "model": self._model,
                "version": scored.version,
                "feature": feature,
                "span": span,
                "hour": hour - hour % span,
                "group": group,
                **dict(zip(names, line, strict=True)),
            }
            for span in SPANS
            for (feature, hour, group), line in zip(known, totals.tolist(), strict=True)
        ]
        _add_up(self._connection, table, lines, names)


def _facts(connection: Connection, model: str) -> dict[str, VersionFacts]:
    found = connection.execute(select(VERSIONS.c.version, VERSIONS.c.facts).where(VERSIONS.c.model == model))
    return {version: msgspec.json.decode(said, type=VersionFacts) for version, said in found}


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields ids, as many at a time as one statement takes."""
    for start in range(0, len(ids), AT_A_TIME):
        yield ids[start : start + AT_A_TIME]


def _misfit(value: Value, classes: tuple[str, ...] | None, version: str) -> str | None:
    """Returns why a value can't be an outcome of a version; None: it can."""
    if classes is None:
        return f"Version {version} predicted a number, not {value!r}." if isinstance(value, str) else None
    return None if value in classes else f"Version {version} predicted one of its classes, and {value!r} is none."


def _share(key: str) -> float:
    """Returns a number in (0, 1) that is an id's own."""
    return (int.from_bytes(blake2b(key.encode(), digest_size=6).digest()) + 0.5) / 2.0**48


def _some(scored: Scored, rows: NDArray[np.bool_]) -> Scored:
    return replace(
        scored,
        predicted=scored.predicted[rows],
        values=scored.values[rows],
        means=scored.means[rows],
        answers=scored.answers[rows],
        pits=scored.pits[rows],
        states=[state for state, kept in zip(scored.states, rows, strict=True) if kept],
    )


def _rows_of(batch: Batch) -> Iterator[dict[str, Any]]:
    count = len(batch.ids)
    size = len(batch.answers) // count
    none: list[None] = [None] * count
    means = np.frombuffer(batch.means, np.float64).tolist() if batch.means else none
    for place, (key, mean, inputs, decision) in enumerate(
        zip(batch.ids, means, batch.inputs or none, batch.decisions or none, strict=True)
    ):
        yield {
            "model": batch.model,
            "id": key,
            "version": batch.version,
            "at": batch.at,
            "mean": mean,
            "answer": batch.answers[size * place : size * (place + 1)],
            "inputs": inputs,
            "decision": decision,
            "state": batch.state,
        }


def _predicted(connection: Connection, model: str, ids: Sequence[str]) -> Sequence[Row[Any]]:
    return connection.execute(select(PREDICTIONS).where(PREDICTIONS.c.model == model, PREDICTIONS.c.id.in_(ids))).all()


def _recorded(row: Row[Any]) -> Recorded:
    answer = np.frombuffer(row.answer, np.float32)
    return Recorded(row.id, row.version, row.at, row.mean, answer, row.inputs, row.decision, row.state)


def _value(row: Row[Any]) -> Value:
    value: Value = row.value if row.label is None else row.label
    return value


def _insert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _upsert(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    key: tuple[str, ...],
    where: ColumnElement[bool] | None = None,
) -> None:
    """Inserts rows; one whose key is there replaces it, if the condition holds."""
    if rows:
        statement = _insert(connection, table)
        changed = {name: statement.excluded[name] for name in rows[0] if name not in key}
        connection.execute(statement.on_conflict_do_update(index_elements=key, set_=changed, where=where), rows)


def _add_up(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Inserts rows of sums, or adds them to those of the same key."""
    statement = _insert(connection, table)
    changed = {name: table.c[name] + statement.excluded[name] for name in names}
    key = [column.name for column in table.primary_key.columns]
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=changed), rows)


def _states(model: str, version: str, kind: str) -> Any:
    found = STATES.c
    columns = found.number, found.at, found.document
    wanted = found.model == model, found.version == version, found.kind == kind
    return select(*columns).where(*wanted).order_by(found.number.desc())


def _latest(connection: Connection, model: str, version: str, kind: str) -> State | None:
    row = connection.execute(_states(model, version, kind).limit(1)).first()
    return None if row is None else State(*row)


def _put(
    connection: Connection, key: tuple[str, str, str], latest: State | None, document: str, at: float, keeps: int
) -> int:
    """Inserts a state; returns its number, and deletes those that are too far back or left out there."""
    model, version, kind = key
    number = 1 if latest is None else latest.number + 1
    row = {"model": model, "version": version, "kind": kind, "number": number, "at": at, "document": document}
    connection.execute(STATES.insert(), row)
    wanted = STATES.c.model == model, STATES.c.version == version, STATES.c.kind == kind
    left_out = [number - back for back, step in THINNED if (number - back) % step]
    gone = or_(STATES.c.number <= number - keeps, STATES.c.number.in_(left_out))
    connection.execute(delete(STATES).where(*wanted, gone))
    return number


def _document(connection: Connection, key: tuple[str, str, str], number: int) -> str | None:
    found = connection.execute(_states(*key).where(STATES.c.number <= number).limit(1)).first()
    return None if found is None else State(*found).document
