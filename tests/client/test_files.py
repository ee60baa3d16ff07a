"""`Client.predict_file`."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from murho_client import Client, InvalidInput, UnknownModel

from tests.client.stand_in import StandIn, client


@pytest.fixture
def service() -> StandIn:
    service = StandIn()
    kinds = {"x": "numeric", "built": "date", "lift": "boolean", "code": "categorical"}
    service.features = [{"name": name, "kind": kind, "missing": True} for name, kind in kinds.items()]
    return service


@pytest.fixture
def murho(service: StandIn) -> Client:
    return client(service, retries=0)


def lines(count: int) -> str:
    rows = [f"{index},{index + 0.5},2001-01-01,true,007,{index}" for index in range(count)]
    return "\n".join(["id,x,built,lift,code,y", *rows, ""])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_csv_file_is_answered_row_by_row_in_chunks(service: StandIn, murho: Client, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(25))
    seen: list[tuple[int, int | None]] = []
    done = murho.predict_file(
        tmp_path / "in.csv",
        tmp_path / "out.csv",
        rows_per_chunk=10,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert done == 25
    assert seen == [(10, None), (20, None), (25, None)]
    rows = read(tmp_path / "out.csv")
    assert list(rows[0]) == ["mean", "std", "epistemic_std", "aleatoric_std", "p5", "p50", "p95"]
    assert [float(row["mean"]) for row in rows] == [2 * index + 2 for index in range(25)]
    assert [float(row["p95"]) for row in rows] == [2 * index + 2.95 for index in range(25)]
    assert [len(document["inputs"]["x"]) for document in service.documents] == [10, 10, 5]
    # Chunks after the first go to the version that answered it.
    assert service.paths[-1] == "/models/line/versions/1/predict"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_cells_are_read_by_kind_and_other_columns_left_out(service: StandIn, murho: Client, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(
        "\ufeffcode; x ;built;lift;y;id\n007;1e2;2001-05-01;TRUE;3;a\nNA;;?;0;3;b\n", encoding="utf-8"
    )
    murho.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "line")
    assert service.documents[0]["inputs"] == {
        "code": ["007", "NA"],
        "x": [100.0, None],
        "built": ["2001-05-01", None],
        "lift": [True, False],
    }


@pytest.mark.parametrize(("source", "destination"), [("in.csv", "out.parquet"), ("in.parquet", "out.csv")])
def test_parquet_and_csv_mix_and_inputs_may_be_kept(
    murho: Client, tmp_path: Path, source: str, destination: str
) -> None:
    if source == "in.csv":
        (tmp_path / source).write_text(lines(7))
    else:
        names = ["x", "built", "lift", "code", "y"]
        columns = [[index + 0.5 for index in range(7)], ["2001-01-01"] * 7, [True] * 7, ["007"] * 7, [1] * 7]
        pq.write_table(pa.table(columns, names=names), tmp_path / source)
    murho.predict_file(tmp_path / source, tmp_path / destination, "line", keep_inputs=True, rows_per_chunk=3)
    if destination == "out.parquet":
        written = pq.read_table(tmp_path / destination)
        assert written.column_names[:2] == ["id", "x"]
        assert written.column("mean").to_pylist() == [2 * index + 2 for index in range(7)]
        murho.predict_file(tmp_path / source, tmp_path / destination, "line", samples=0)
        assert pq.read_table(tmp_path / destination)["p5"].to_pylist() == [None] * 7
    else:
        rows = read(tmp_path / destination)
        assert list(rows[0])[:6] == ["x", "built", "lift", "code", "y", "mean"]
        assert [float(row["mean"]) for row in rows] == [2 * float(row["x"]) + 1 for row in rows]
        assert rows[0]["lift"] == "true"


def test_a_wrong_cell_is_named_by_row_and_line_and_nothing_is_written(murho: Client, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(25).replace("22.5,2001", "big,2001"))
    with pytest.raises(InvalidInput) as raised:
        murho.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "line", rows_per_chunk=10)
    (found,) = raised.value.problems
    assert (found.row, found.label, found.feature) == (22, 22, "x")
    assert "in.csv, line 24" in found.message
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"x,code\n", "no rows"),
        (b"weight\n1\n", "no column is a feature of the model, which has x, "),
        (b"x,x\n1,2\n", "two columns are named 'x'"),
        (b"x,\n1,2\n", "column 2 has no name"),
        (b"x,code\n1,a\n\n2\n", "line 4: 1 cells where the header has 2"),
        (b'x,code\n1,"a\n', "check the quotes"),
        (b"x,code\n1,\xff\n", "UTF-8"),
        (b"PAR1", "Parquet"),
        (b"x,mean,built,lift,code\n1,1,,,\n", "'mean' already"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(murho: Client, tmp_path: Path, content: bytes, message: str) -> None:
    source = tmp_path / ("in.parquet" if content == b"PAR1" else "in.csv")
    source.write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        murho.predict_file(source, tmp_path / "out.csv", "line", keep_inputs=b"mean" in content)


def test_paths_are_checked_before_anything_is_asked(
    service: StandIn, murho: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text(lines(1))
    with pytest.raises(ValueError, match=r"\.xlsx"):
        murho.predict_file(tmp_path / "in.csv", tmp_path / "out.xlsx", "line")
    with pytest.raises(ValueError, match="is the source, too"):
        murho.predict_file(tmp_path / "in.csv", tmp_path / "in.csv", "line")
    assert service.requests == []
    with pytest.raises(FileNotFoundError):
        murho.predict_file(tmp_path / "none.csv", tmp_path / "out.csv", "line")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pyarrow"):
        murho.predict_file(tmp_path / "in.csv", tmp_path / "out.parquet", "line")
    assert service.documents == []


def test_an_unknown_model_is_an_error_and_the_old_destination_stays(murho: Client, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(1))
    (tmp_path / "out.csv").write_text("before")
    with pytest.raises(UnknownModel):
        murho.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "boats")
    assert (tmp_path / "out.csv").read_text() == "before"
