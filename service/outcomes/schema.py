"""The tables of the store, in SQLite or PostgreSQL, and how a store is opened.

Times are seconds since 1970-01-01 UTC. A prediction is known by model and id; its answer is kept in the form in which
`model.evaluation.recorded` scores it, with its outcome once that has come. Rollups are sums of scores by hour and day,
so that quality needs no look at outcomes.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Dialect,
    Double,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from murho.model.errors import OptionError
from murho.model.evaluation.recorded import CLASS_SUMS, NUMBER_SUMS
from murho.service.errors import NotReadyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy.sql.compiler import SQLCompiler

BUSY_SECONDS = 10.0
"""How long SQLite waits for another process that writes."""
LOCK = 0x4D7572686F
"""Of PostgreSQL's advisory locks, the one of those who create tables."""

HAS_COME = text("came IS NOT NULL")
METADATA = MetaData()
FORMAT = Table("murho_store", METADATA, Column("format", Integer, nullable=False))
VERSIONS = Table(
    "versions",
    METADATA,
    Column("model", String, primary_key=True),
    Column("version", String, primary_key=True),
    # JSON: what scoring and grouping need to know of it (`store.VersionFacts`).
    Column("facts", String, nullable=False),
)
PREDICTIONS = Table(
    "predictions",
    METADATA,
    Column("model", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("version", String, nullable=False),
    Column("at", Double, nullable=False),
    # Of a number; a class has none.
    Column("mean", Double),
    # See `store.Batch`.
    Column("answer", LargeBinary, nullable=False),
    # JSON: the cells by feature; only with `record_inputs`.
    Column("inputs", String),
    # JSON: the decision that this was the chosen action of. Its `shared` is the id in `requests` of what it shares with
    # the other decisions of its request.
    Column("decision", String),
    # The state of adaptation that made the bands; none: the checkpoint's calibration.
    Column("state", String),
    # When the outcome came; none: it hasn't. It is a number, or the name of a class.
    Column("came", Double),
    Column("value", Double),
    Column("label", String),
    Column("pit", Double),
    Index("predictions_at", "at"),
    Index("predictions_came", "model", "came", "id", sqlite_where=HAS_COME, postgresql_where=HAS_COME),
)
REQUESTS = Table(
    "requests",
    METADATA,
    Column("id", String, primary_key=True),
    # When a decision last shared it.
    Column("at", Double, nullable=False),
    Column("document", String, nullable=False),
)
REVISIONS = Table(
    "revisions",
    METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("model", String, nullable=False),
    Column("id", String, nullable=False),
    # When this value came, which a later one has replaced.
    Column("came", Double, nullable=False),
    Column("value", Double),
    Column("label", String),
    Index("revisions_id", "model", "id"),
)
STATES = Table(
    "states",
    METADATA,
    Column("model", String, primary_key=True),
    Column("version", String, primary_key=True),
    Column("kind", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    # When it was made: the outcomes that came until then are in it.
    Column("at", Double, nullable=False),
    Column("document", String, nullable=False),
    # It is as if no outcome that came later had been; none: one that is in it has been revised or deleted.
    Column("until", Double),
)


SUMS = tuple(f"s{place}" for place in range(max(len(NUMBER_SUMS), len(CLASS_SUMS))))
"""Columns of sums: of `NUMBER_SUMS` or of `CLASS_SUMS`, and then zeros."""
ROLLUPS = Table(
    "rollups",
    METADATA,
    Column("model", String, primary_key=True),
    # Empty: all predictions, in one group.
    Column("feature", String, primary_key=True),
    # 1: of outcomes whose predictions are deleted, as long as the hour has others; those of 0 count them, too.
    Column("deleted", Integer, primary_key=True, server_default="0"),
    # Since 1970, by the time of predictions.
    Column("hour", Integer, primary_key=True),
    Column("version", String, primary_key=True),
    Column("group", String, primary_key=True),
    *(Column(name, Double, nullable=False) for name in SUMS),
)
STORE_FORMAT = 1
"""Of the tables above."""


def address_of(store: str) -> URL:
    """Return the address of a store: a file is one of SQLite.

    Raises:
        OptionError: It is none.
    """
    try:
        url = make_url(store if "://" in store else f"sqlite:///{Path(store).expanduser()}")
    except ArgumentError as error:
        raise OptionError(f"The store's address can't be read: {error}.") from None
    if url.drivername in {"postgres", "postgresql"}:
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in {"sqlite", "postgresql+psycopg"} or (url.drivername == "sqlite" and not url.database):
        raise OptionError(
            f"The store {hide_password(url)!r} is neither a file nor an address such as "
            "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE."
        )
    if url.drivername == "sqlite" and (url.query or str(url.database).startswith((":memory:", "file:"))):
        raise OptionError(
            f"The store {store!r} isn't a file that several processes write. Give the path of a file, without options."
        )
    return url


def hide_password(url: URL) -> str:
    """Return a store's address without its password."""
    return url.database or "" if url.drivername == "sqlite" else url.render_as_string(hide_password=True)


def open_engine(url: URL) -> Engine:
    """Return the engine of a store whose tables are there and up to date.

    Raises:
        OptionError: It can't be opened.
    """
    options: dict[str, Any] = {}
    if url.drivername != "sqlite":  # a server that is cut off says nothing: the kernel gives up after some seconds
        options = {"pool_pre_ping": True, "connect_args": {"connect_timeout": 5, "tcp_user_timeout": 10_000}}
    try:
        engine = create_engine(url, **options)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise OptionError(
            f"The store {hide_password(url)} needs the package {getattr(error, 'name', None) or 'psycopg'}: "
            "pip install 'murho[postgres]'."
        ) from None
    if url.drivername == "sqlite":
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
    try:
        with engine.execution_options(writes=True).begin() as connection:
            _create_tables(connection, hide_password(url))
    except (SQLAlchemyError, OptionError) as error:
        engine.dispose()
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"The store {hide_password(url)} can't be opened: {reason_of(error)}.") from None
    return engine


def reason_of(error: SQLAlchemyError) -> str:
    """Return what a database says, in one line."""
    said = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    return (said.splitlines() or [type(error).__name__])[0].rstrip(".")


def _set_up(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin with `_begin`, not where the driver guesses
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * BUSY_SECONDS)}").close()
    connection.execute("PRAGMA synchronous = FULL").close()
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError:  # another process makes the file; SQLite itself doesn't wait for this
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _begin(connection: Connection) -> None:
    """Begin a transaction of SQLite: one that writes takes the lock at once, so that it never has to give up later."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _create_tables(connection: Connection, place: str) -> None:
    if connection.dialect.name == "postgresql":  # one process at a time, as SQLite's lock holds it
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    if not inspect(connection).has_table(FORMAT.name):
        METADATA.create_all(connection)
        connection.execute(insert(FORMAT).values(format=STORE_FORMAT))
    elif (found := connection.scalar(select(FORMAT.c.format))) != STORE_FORMAT:
        raise OptionError(f"The store {place} was made by another Murho: format {found} in place of {STORE_FORMAT}.")


@contextmanager
def _transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Return a transaction.

    Raises:
        NotReadyError: The store doesn't answer.
    """
    try:
        with engine.execution_options(writes=writes).begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise NotReadyError(
            f"The store {hide_password(engine.url)} can't be used now: {reason_of(error)}. Try again later."
        ) from error


reading, writing = (partial(_transaction, writes=writes) for writes in (False, True))


def serialise_writes(connection: Connection, *models: str) -> None:
    """Make other transactions that write about these models wait for the end of this one; SQLite does by itself."""
    if connection.dialect.name == "postgresql":
        for model in sorted(set(models)):
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:model))"), {"model": model})


def dialect_insert(dialect: Dialect, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that can say what to do if a key is there."""
    return postgresql.insert(table) if dialect.name == "postgresql" else sqlite.insert(table)


def upsert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows; one whose key is there replaces it: a prediction one that is as old or older, without outcome."""
    if rows:
        compiled = _upserting(connection.dialect, table, tuple(rows[0]))
        order = compiled.positiontup
        # The driver takes values as they are: SQLAlchemy's way for each row takes as long as SQLite's own.
        values = rows if order is None else list(map(itemgetter(*order), rows))
        connection.exec_driver_sql(str(compiled), values)


@lru_cache
def _upserting(dialect: Dialect, table: Table, names: tuple[str, ...]) -> SQLCompiler:
    insert = dialect_insert(dialect, table)
    changed = {name: insert.excluded[name] for name in names if name not in table.primary_key.columns}
    newer = table.c.at <= insert.excluded.at if "at" in table.c else None
    newer = table.c.came.is_(None) & newer if table is PREDICTIONS and newer is not None else newer
    statement = insert.on_conflict_do_update(index_elements=table.primary_key, set_=changed, where=newer)
    return statement.compile(dialect=dialect, column_keys=names)
