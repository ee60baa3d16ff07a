"""The store: predictions as they were answered, what came true of them, and the states that follow from outcomes.

All of it is plain blocking calls, for threads; `service.outcomes.recorder` records off the way of an answer. Each call
is one transaction or a few that can be repeated: what is there already is not counted twice.
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, or_, select, text, update

from murho.model.errors import OptionError
from murho.service.outcomes.schema import (
    PREDICTIONS,
    REQUESTS,
    REVISIONS,
    ROLLUPS,
    STATES,
    SUMS,
    VERSIONS,
    address_of,
    dialect_insert,
    open_engine,
    reading,
    serialise_writes,
    upsert,
    writing,
)
from murho.service.outcomes.types import (
    Accepted,
    Batch,
    Earlier,
    Follower,
    Pair,
    RowOutcome,
    Scored,
    State,
    Value,
    VersionFacts,
    by_version,
    misfit,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Select
    from sqlalchemy.sql.elements import ColumnElement

    from murho.model.arrays import Doubles

AT_A_TIME = 2000
"""Rows of one statement and, of outcomes, of one transaction."""
HOUR = 3600
STEP = 1e-6
"""Seconds between two moments that are told apart."""
KEEPS = 500_000
"""How far back states are kept, for answers and revisions that come late ..."""
THINNED = ((256, 16), (4096, 256))
"""... and from how far back only each so-many-th: 13 MB of a version at most."""
SAMPLED = 1000
"""Rows whose mean size stands for all of a table in PostgreSQL."""
ROW_BYTES = 8
"""Of each row in PostgreSQL, for its pointer and for alignment."""


class Store:
    """The store, open. All calls raise a `NotReadyError` if it doesn't answer.

    Args:
        address: A file of SQLite, or the address of a PostgreSQL database.
        followers: What is kept up to date with outcomes.
        new: Whether a file that isn't there is made.

    Raises:
        OptionError: It can't be opened.
    """

    def __init__(self, address: str, followers: Sequence[Follower] = (), *, new: bool = True) -> None:
        self.url = address_of(address)
        if not new and self.url.drivername == "sqlite" and not Path(str(self.url.database)).exists():
            raise OptionError(f"There is no store {self.url.database}: give the one of `murho serve --store`.")
        self.engine = open_engine(self.url)
        self._followers = followers

    def close(self) -> None:
        """Close its connections."""
        self.engine.dispose()

    def record(self, batches: Sequence[Batch]) -> None:
        """Keep predictions, in one transaction.

        Of several under one id the latest holds, in whatever order they come; once its outcome has come, it stays.
        """
        rows: list[dict[str, Any]] = []
        facts: dict[tuple[str, str], str] = {}
        for batch in batches:
            rows += batch.rows()
            if batch.facts is not None:
                facts[batch.model, batch.version] = msgspec.json.encode(batch.facts).decode()
        shared = [
            {"id": key, "at": batch.at, "document": document}
            for batch in batches
            for key, document in batch.shared.items()
        ]
        known = [{"model": model, "version": version, "facts": said} for (model, version), said in facts.items()]
        with writing(self.engine) as connection:
            serialise_writes(connection, *{batch.model for batch in batches})
            upsert(connection, VERSIONS, known)
            upsert(connection, PREDICTIONS, rows)
            upsert(connection, REQUESTS, shared)

    def facts(self, model: str) -> dict[str, VersionFacts]:
        """Return what is known of each version of a model with predictions."""
        with reading(self.engine) as connection:
            return _facts(connection, model)

    def models_of(self, ids: Sequence[str]) -> dict[str, str]:
        """Return a model that has a prediction of each id, for ids that any has; it looks at all predictions."""
        query = select(PREDICTIONS.c.id, PREDICTIONS.c.model).where(PREDICTIONS.c.id.in_(ids))
        with reading(self.engine) as connection:
            return {row.id: row.model for row in connection.execute(query)}

    def known(self, model: str, ids: Sequence[str]) -> set[str]:
        """Return those of the ids under which a prediction of a model is recorded."""
        with reading(self.engine) as connection:
            return {row.id for part in _parts(ids) for row in _select_predictions(connection, model, part)}

    def prediction(self, model: str, key: str) -> Row[Any] | None:
        """Return the row of an id among the predictions of a model; None: there is none."""
        with reading(self.engine) as connection:
            return next(iter(_select_predictions(connection, model, (key,))), None)

    def shared(self, key: str) -> str | None:
        """Return what decisions share, JSON, by its id; None: it isn't there."""
        with reading(self.engine) as connection:
            return connection.scalar(select(REQUESTS.c.document).where(REQUESTS.c.id == key))

    def pairs(self, model: str, since: float = 0.0) -> Iterator[Pair]:
        """Yield predictions with outcomes that have come since, in the order in which they came."""
        found, now = PREDICTIONS.c, time.time()
        after: ColumnElement[bool] = found.came >= since
        while True:
            query = select(PREDICTIONS).where(found.model == model, found.came < now, after)
            with reading(self.engine) as connection:
                rows = connection.execute(query.order_by(found.came, found.id).limit(AT_A_TIME)).all()
            for row in rows:
                answer = np.frombuffer(row.answer, np.float32)
                yield Pair(row.id, row.version, row.at, row.mean, answer, row.inputs, value_of(row), row.came, row.pit)
            if len(rows) < AT_A_TIME:
                return
            last = rows[-1]
            after = (found.came > last.came) | ((found.came == last.came) & (found.id > last.id))

    def add(self, model: str, ids: Sequence[str], values: Sequence[Value]) -> Accepted:
        """Keep outcomes: late ones, in any order, any number. Of equal ids the last holds.

        The same value again changes nothing. Another one revises: all is then as if the earlier one had never come, but
        that it is kept among revisions. If the store ceases to answer, some may be kept; adding all again is right.

        Args:
            model: The model's name.
            ids: Of its predictions.
            values: A number or the name of a class each, as the model predicts.
        """
        given = dict(zip(ids, values, strict=True))
        revised, unknown = 0, dict[str, str]()
        for part in _parts(tuple(given)):
            with writing(self.engine) as connection:
                serialise_writes(connection, model)
                facts = _facts(connection, model)
                rows = {row.id: row for row in _select_predictions(connection, model, part)}
                new, earlier = list[RowOutcome](), list[Row[Any]]()
                for key in part:
                    row, value = rows.get(key), given[key]
                    why = misfit(model, row, value, facts)
                    if row is None or why is not None:
                        unknown[key] = str(why)
                    elif row.came is None or value_of(row) != value:
                        new.append((row, value))
                        earlier += [] if row.came is None else [row]
                at = _moment(connection, model)
                if earlier:
                    names = ("model", "id", "came", "value", "label")
                    connection.execute(
                        REVISIONS.insert(), [{name: getattr(row, name) for name in names} for row in earlier]
                    )
                    gone = PREDICTIONS.c.model == model, PREDICTIONS.c.id.in_([row.id for row in earlier])
                    connection.execute(update(PREDICTIONS).where(*gone).values(came=None))
                    self._leave_out(connection, model, facts, earlier, at)
                self._take(connection, model, facts, new, at + STEP)
                revised += len(earlier)
        return Accepted(len(given) - len(unknown), revised, unknown)

    def _take(
        self,
        connection: Connection,
        model: str,
        facts: dict[str, VersionFacts],
        row_outcomes: list[RowOutcome],
        at: float,
    ) -> None:
        """Score outcomes by version, keeps them, adds them to the sums, and let followers learn from them."""
        for scored, pairs in by_version(model, facts, row_outcomes):
            _roll(connection, scored, pairs)
            changes = [
                {
                    "of": row.id,
                    "came": at,
                    "value": None if isinstance(value, str) else value,
                    "label": value if isinstance(value, str) else None,
                    "pit": pit,
                }
                for (row, value), pit in zip(pairs, scored.pits.tolist(), strict=True)
            ]
            own = PREDICTIONS.c.model == model, PREDICTIONS.c.id == bindparam("of")
            connection.execute(update(PREDICTIONS).where(*own), changes)
            self._follow(connection, scored, at)

    def _leave_out(
        self,
        connection: Connection,
        model: str,
        facts: dict[str, VersionFacts],
        rows: Sequence[Row[Any]],
        at: float,
        since: float | None = None,
    ) -> None:
        """Make sums and states as if outcomes had never come, which are no longer among the predictions.

        States are counted again from those on that are older than these outcomes, or than `since`.
        """
        for version in {str(row.version) for row in rows} & facts.keys():
            gone = [row for row in rows if row.version == version]
            _recount(connection, model, version, facts, {int(row.at // HOUR) for row in gone})
            begin = min(row.came for row in gone) if since is None else since
            self._replay(connection, model, version, facts[version], begin, at)

    def _replay(
        self, connection: Connection, model: str, version: str, facts: VersionFacts, since: float, at: float
    ) -> None:
        """Let followers learn again from the outcomes that have come since, from the latest state before."""
        found, kept = PREDICTIONS.c, STATES.c
        names = (found.at, found.state, found.pit)
        query = select(*names).where(found.model == model, found.version == version)
        for follower in self._followers:
            key = model, version, follower.kind
            latest = _state(connection, key)
            if latest is None:
                continue
            begin = connection.execute(_states(key).where(kept.until < since).limit(1)).first()
            number, after, document = (0, 0.0, follower.begin(latest.document, facts)) if begin is None else begin
            connection.execute(update(STATES).where(*_of(key), kept.number > number).values(until=None))
            later = query.where(found.came > after).order_by(found.came, found.at, found.id)
            earlier = _earlier(connection, key)
            for rows in connection.execute(later, execution_options={"yield_per": AT_A_TIME}).partitions():
                times, states, pits = (list(column) for column in zip(*rows, strict=True))
                none = np.zeros(0, dtype=np.bool_), np.zeros((0, 0))
                again = Scored(model, version, facts, times, states, np.array(pits, float), *none)
                document = follower.follow(document, again, earlier) or document
            if document != latest.document:
                _put(connection, key, document, at)

    def _follow(self, connection: Connection, scored: Scored, at: float) -> None:
        for follower in self._followers:
            key = scored.model, scored.version, follower.kind
            latest = _state(connection, key)
            before = None if latest is None else latest.document
            document = follower.follow(before, scored, _earlier(connection, key))
            if document is not None:
                if latest is None:  # outcomes from before, if there are any, are in none of its states
                    _put(connection, key, follower.begin(document, scored.facts), at - STEP, until=0.0)
                _put(connection, key, document, at)

    def state(self, model: str, version: str, kind: str) -> State | None:
        """Return the latest state of a kind, None if there is none."""
        with reading(self.engine) as connection:
            return _state(connection, (model, version, kind))

    def states(self, model: str, version: str, kind: str) -> list[State]:
        """Return the states of a kind that are kept, the latest first."""
        with reading(self.engine) as connection:
            query = _states((model, version, kind)).where(STATES.c.number > 0)
            return [State(*row) for row in connection.execute(query)]

    def put_state(self, model: str, version: str, kind: str, document: str) -> int:
        """Make a document, JSON, the latest state of a kind, whatever comes of outcomes that have come until now.

        Returns its number.
        """
        with writing(self.engine) as connection:
            serialise_writes(connection, model)
            return _put(connection, (model, version, kind), document, _moment(connection, model), until=0.0)

    def forget(self, model: str, ids: Sequence[str]) -> int:
        """Delete predictions as if they and their outcomes had never been. Returns how many there were."""
        with writing(self.engine) as connection:
            serialise_writes(connection, model)
            rows = [
                row
                for part in _parts(ids)
                for row in _select_predictions(connection, model, part)
                if row.came is not None
            ]
            gone = sum(_delete(connection, model, part) for part in _parts(ids))
            self._leave_out(connection, model, _facts(connection, model), rows, _moment(connection, model))
            return gone

    def recount(self, model: str) -> int:
        """Count sums and states again from all outcomes that are in the store; return how many these are."""
        found = PREDICTIONS.c
        query = select(found.version, found.at).where(found.model == model, found.came.is_not(None))
        with writing(self.engine) as connection:
            serialise_writes(connection, model)
            rows: Sequence[Any] = connection.execute(query).all()
            self._leave_out(connection, model, _facts(connection, model), rows, _moment(connection, model), since=-1.0)
        return len(rows)

    def clean(self, before: float | None = None, most_bytes: int | None = None) -> int:
        """Delete old predictions with their outcomes; sums of outcomes stay. Returns how many.

        Args:
            before: Those made before, in seconds since 1970; None: however old.
            most_bytes: And of the oldest ones the share by which the store takes more; None: however much it takes.
        """
        gone = 0 if before is None else self._clean(before)
        if most_bytes is not None and (size := self.size()) > most_bytes:
            with reading(self.engine) as connection:
                count = connection.scalar(select(func.count()).select_from(PREDICTIONS)) or 0
                place = int(count * (size - most_bytes) / size)
                end = connection.scalar(select(PREDICTIONS.c.at).order_by(PREDICTIONS.c.at).limit(1).offset(place))
            if end is not None:
                gone += self._clean(float(np.nextafter(end, np.inf)))
        return gone

    def _clean(self, before: float) -> int:
        """Delete what was predicted before, some at a time, so that others may write meanwhile."""
        gone, found, hour = 0, PREDICTIONS.c, int(before // HOUR)
        oldest = select(found.model, found.id).where(found.at < before).limit(AT_A_TIME)
        while True:
            with writing(self.engine) as connection:
                rows = sorted((row.model, row.id) for row in connection.execute(oldest))
                for model, part in groupby(rows, key=lambda row: row[0]):
                    serialise_writes(connection, model)
                    ids, facts = [key for _, key in part], _facts(connection, model)
                    # An hour that keeps some of its predictions may be counted again.
                    last = found.model == model, found.id.in_(ids), found.at < before, found.at >= hour * HOUR
                    _roll_rows(connection, model, facts, select(PREDICTIONS).where(*last), deleted=1)
                    gone += _delete(connection, model, ids, found.at < before)
                connection.execute(delete(ROLLUPS).where(ROLLUPS.c.deleted == 1, ROLLUPS.c.hour < hour))
            if len(rows) < AT_A_TIME:
                break
        with writing(self.engine) as connection:
            connection.execute(delete(REQUESTS).where(REQUESTS.c.at < before))
        return gone

    def size(self) -> int:
        """Return the bytes that the store takes, but for the room that deleted rows have left.

        In PostgreSQL files stay as large as they were, and its counts of rows come late: rows are counted, and take as
        much of indices and large values as of the table itself.
        """
        with reading(self.engine) as connection:
            if connection.dialect.name == "sqlite":
                pages, free, size = (
                    connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                    for name in ("page_count", "freelist_count", "page_size")
                )
                return int((pages - free) * size)
            size = 0.0
            for table in (PREDICTIONS, REVISIONS):
                sample = select(table).limit(SAMPLED).subquery("sample")
                each = select(func.avg(func.pg_column_size(text("sample")))).select_from(sample)
                rows = connection.scalar(select(func.count()).select_from(table)) or 0
                whole, heap = func.pg_total_relation_size(table.name), func.pg_relation_size(table.name)
                files, per_row, own = connection.execute(select(whole, each.scalar_subquery(), heap)).one()
                size += rows * (ROW_BYTES + float(per_row or 0)) * files / max(own, 1)
            return int(size)


_Key: TypeAlias = tuple[str, str, str]
"""Model, version, and kind of a state."""


def _facts(connection: Connection, model: str) -> dict[str, VersionFacts]:
    found = connection.execute(select(VERSIONS.c.version, VERSIONS.c.facts).where(VERSIONS.c.model == model))
    return {version: msgspec.json.decode(said, type=VersionFacts) for version, said in found}


def _moment(connection: Connection, model: str) -> float:
    """Return the time of a transaction: later than all outcomes before, whatever the clocks of replicas say."""
    last = connection.scalar(select(func.max(PREDICTIONS.c.came)).where(PREDICTIONS.c.model == model))
    return max(time.time(), (last or 0.0) + STEP)


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield ids, as many at a time as one statement takes."""
    for start in range(0, len(ids), AT_A_TIME):
        yield ids[start : start + AT_A_TIME]


def _recount(connection: Connection, model: str, version: str, facts: dict[str, VersionFacts], hours: set[int]) -> None:
    """Count the sums of hours again from the outcomes of a version, and from what is kept of deleted ones."""
    found, sums = PREDICTIONS.c, ROLLUPS.c
    kept = [each for each in sums if each is not sums.deleted]  # its default is 0
    for hour in hours:
        own = sums.model == model, sums.version == version, sums.hour == hour
        connection.execute(delete(ROLLUPS).where(*own, sums.deleted == 0))
        copies = select(*kept).where(*own, sums.deleted == 1)
        connection.execute(insert(ROLLUPS).from_select([each.name for each in kept], copies))
        within = found.at >= hour * HOUR, found.at < (hour + 1) * HOUR
        _roll_rows(
            connection, model, facts, select(PREDICTIONS).where(found.model == model, found.version == version, *within)
        )


def _roll_rows(
    connection: Connection,
    model: str,
    facts: dict[str, VersionFacts],
    query: Select[Any],
    deleted: int = 0,
) -> None:
    """Add those predictions of a model that have outcomes to the sums."""
    chosen = query.where(PREDICTIONS.c.came.is_not(None))
    for rows in connection.execute(chosen, execution_options={"yield_per": AT_A_TIME}).partitions():
        for scored, pairs in by_version(model, facts, [(row, value_of(row)) for row in rows]):
            _roll(connection, scored, pairs, deleted)


def _roll(connection: Connection, scored: Scored, row_outcomes: Sequence[RowOutcome], deleted: int = 0) -> None:
    """Add outcomes to the sums of all, and of each group of the rows whose inputs are known."""
    totals: defaultdict[tuple[int, str, str], Doubles] = defaultdict(lambda: np.zeros(len(SUMS)))
    for (row, _), sums in zip(row_outcomes, scored.sums, strict=True):
        cells, hour = {} if row.inputs is None else msgspec.json.decode(row.inputs), int(row.at // HOUR)
        groups = [(each.name, each.group(cells[each.name])) for each in scored.facts.features if each.name in cells]
        for feature, group in (("", ""), *groups):
            totals[hour, feature, group][: len(sums)] += sums
    own = {"model": scored.model, "version": scored.version, "deleted": deleted}
    lines = [
        own | {"hour": hour, "feature": feature, "group": group} | dict(zip(SUMS, line.tolist(), strict=True))
        for (hour, feature, group), line in totals.items()
    ]
    statement = dialect_insert(connection.dialect, ROLLUPS)
    changed = {name: ROLLUPS.c[name] + statement.excluded[name] for name in SUMS}
    connection.execute(statement.on_conflict_do_update(index_elements=ROLLUPS.primary_key, set_=changed), lines)


def _select_predictions(connection: Connection, model: str, ids: Sequence[str]) -> Sequence[Row[Any]]:
    return connection.execute(select(PREDICTIONS).where(PREDICTIONS.c.model == model, PREDICTIONS.c.id.in_(ids))).all()


def _delete(connection: Connection, model: str, ids: Sequence[str], *where: ColumnElement[bool]) -> int:
    """Delete predictions of a model, if a condition holds, with what belongs to them; return how many."""
    connection.execute(delete(REVISIONS).where(REVISIONS.c.model == model, REVISIONS.c.id.in_(ids)))
    own = PREDICTIONS.c.model == model, PREDICTIONS.c.id.in_(ids)
    return connection.execute(delete(PREDICTIONS).where(*own, *where)).rowcount


def _of(key: _Key) -> tuple[ColumnElement[bool], ...]:
    return STATES.c.model == key[0], STATES.c.version == key[1], STATES.c.kind == key[2]


def _states(key: _Key) -> Any:
    found = STATES.c
    return select(found.number, found.at, found.document).where(*_of(key)).order_by(found.number.desc())


def _earlier(connection: Connection, key: _Key) -> Earlier:
    def document_of(number: int) -> str | None:
        found = _state(connection, key, number)
        return None if found is None else found.document

    return document_of


def _state(connection: Connection, key: _Key, most: int | None = None) -> State | None:
    """Return the latest state, of those up to a number."""
    query = _states(key) if most is None else _states(key).where(STATES.c.number <= most)
    row = connection.execute(query.limit(1)).first()
    return None if row is None else State(*row)


def _put(connection: Connection, key: _Key, document: str, at: float, until: float | None = None) -> int:
    """Insert a state; return its number, from 0 on, and delete those that are too far back or left out there."""
    latest = _state(connection, key)
    number = 0 if latest is None else latest.number + 1
    line = dict(zip(STATES.c.keys(), (*key, number, at, document, at if until is None else until), strict=True))
    connection.execute(STATES.insert(), line)
    left_out = [number - back for back, step in THINNED if (number - back) % step]
    gone = or_(STATES.c.number <= number - KEEPS, STATES.c.number.in_(left_out))
    connection.execute(delete(STATES).where(*_of(key), gone))
    return number
