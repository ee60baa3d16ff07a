"""`Client.predict_file`, with a service whose mean is the size and whose spreads are a tenth of it."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from murho_client import Client, InvalidInput, UnknownModel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEATURES = [
    {"name": "size", "kind": "numeric", "unit": "m2", "min": 1, "max": 900, "categories": None, "missing": True},
    {"name": "built", "kind": "date", "unit": None, "min": "1950-01-01", "max": "2020-01-01", "categories": None,
     "missing": True},
    {"name": "lift", "kind": "boolean", "unit": None, "min": 0, "max": 1, "categories": None, "missing": True},
    {"name": "code", "kind": "categorical", "unit": None, "min": None, "max": None, "categories": ["007"],
     "missing": True},
]  # fmt: skip
DESCRIBED = {
    "name": "rent",
    "version": "2",
    "versions": ["1", "2"],
    "task": "regression",
    "target": {"name": "price", "unit": "EUR"},
    "features": FEATURES,
    "metrics": {},
}


class Service:
    """Answers, and keeps the bodies and paths of predictions.

    Attributes:
        asked: Path and body of each prediction.
        client: A client of it.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.client = Client("http://murho.test", transport=httpx.MockTransport(self.answer), retries=0)

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/models":
            return httpx.Response(200, json={"default": "rent", "models": [DESCRIBED], "refused": []})
        if path.startswith("/models/") and not path.startswith("/models/rent"):
            return problem(404, "There is no such model.")
        if request.method == "GET":
            return httpx.Response(200, json=DESCRIBED)
        body = json.loads(request.content)
        self.asked.append((path, body))
        sizes = [0.0 if size is None else size for size in body["inputs"]["size"]]
        levels = body["percentiles"]
        drawn = body["samples"] > 0
        spread = [size / 10 for size in sizes] if drawn else None
        told = {
            "model": {"name": "rent", "version": "2"},
            "target": "price",
            "samples": body["samples"],
            "seed": 7,
            "mean": sizes,
            "std": spread,
            "epistemic_std": spread,
            "aleatoric_std": spread,
            "percentiles": {"levels": levels, "values": [[size + level for level in levels] for size in sizes]}
            if drawn
            else None,
            "calibrated": True,
            "warnings": [],
        }
        return httpx.Response(200, json=told)


def problem(status: int, detail: str) -> httpx.Response:
    document = {"type": "urn:murho:problem:no", "title": "No", "status": status, "detail": detail}
    return httpx.Response(status, json=document, headers={"content-type": "application/problem+json"})


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    with service.client:
        yield service


def lines(count: int) -> str:
    rows = [f"{index},{index + 0.5},2001-01-01,true,007,{index}" for index in range(count)]
    return "\n".join(["id,size,built,lift,code,price", *rows, ""])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_csv_file_is_answered_row_by_row_in_chunks(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(25))
    done = service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "rent", rows_per_chunk=10)
    assert done == 25
    rows = read(tmp_path / "out.csv")
    assert list(rows[0]) == ["mean", "std", "epistemic_std", "aleatoric_std", "p5", "p50", "p95"]
    assert [float(row["mean"]) for row in rows] == [index + 0.5 for index in range(25)]
    assert [float(row["p95"]) for row in rows] == [index + 95.5 for index in range(25)]
    assert [len(body["inputs"]["size"]) for _, body in service.asked] == [10, 10, 5]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


def test_cells_are_read_by_kind_and_other_columns_left_out(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(
        "\ufeffcode; size ;built;lift;price;id\n007;1e2;2001-05-01;TRUE;3;a\nNA;;?;0;3;b\n", encoding="utf-8"
    )
    service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "rent")
    ((_, body),) = service.asked
    assert body["inputs"] == {
        "code": ["007", None],
        "size": [100.0, None],
        "built": ["2001-05-01", None],
        "lift": [True, False],
    }


def test_chunks_after_the_first_go_to_the_version_that_answered_first(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(4))
    service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", rows_per_chunk=2)
    assert service.asked[-1][0] == "/models/rent/versions/2/predict"


@pytest.mark.parametrize(("source", "destination"), [("in.csv", "out.parquet"), ("in.parquet", "out.csv")])
def test_parquet_and_csv_mix_and_inputs_may_be_kept(
    service: Service, tmp_path: Path, source: str, destination: str
) -> None:
    if source == "in.csv":
        (tmp_path / source).write_text(lines(7))
    else:
        table = pa.table(
            {
                "size": [index + 0.5 for index in range(7)],
                "built": ["2001-01-01"] * 7,
                "lift": [True] * 7,
                "code": ["007"] * 7,
                "price": [1] * 7,
            }
        )
        pq.write_table(table, tmp_path / source)
    service.client.predict_file(tmp_path / source, tmp_path / destination, "rent", keep_inputs=True, rows_per_chunk=3)
    if destination == "out.parquet":
        written = pq.read_table(tmp_path / destination)
        assert written.column_names[:2] == ["id", "size"]
        assert written.column("mean").to_pylist() == [index + 0.5 for index in range(7)]
    else:
        rows = read(tmp_path / destination)
        assert list(rows[0])[:5] == ["size", "built", "lift", "code", "price"]
        assert [row["mean"] for row in rows] == [row["size"] for row in rows]
        assert rows[0]["lift"] == "true"


def test_without_samples_the_spreads_are_empty(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(2))
    service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "rent", samples=0)
    (row, _) = read(tmp_path / "out.csv")
    assert row["mean"]
    assert row["std"] == row["p5"] == ""


def test_a_wrong_cell_is_named_by_row_and_line_and_nothing_is_written(service: Service, tmp_path: Path) -> None:
    text = lines(25).replace("22.5,2001", "big,2001")
    (tmp_path / "in.csv").write_text(text)
    with pytest.raises(InvalidInput) as raised:
        service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "rent", rows_per_chunk=10)
    (found,) = raised.value.problems
    assert (found.row, found.label, found.feature) == (22, 22, "size")
    assert "in.csv, line 24" in found.message
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("size,code\n", "no rows"),
        ("size,size\n1,2\n", "two columns are named 'size'"),
        ("size,\n1,2\n", "column 2 has no name"),
        ("size,code\n1,a\n\n2\n", "line 4: 1 cells where the header has 2"),
        ('size,code\n1,"a\n', "check the quotes"),
    ],
)
def test_a_damaged_csv_file_is_told(service: Service, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "in.csv").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "rent")


def test_text_that_is_not_utf8_and_a_cut_parquet_file_are_told(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"size,code\n1,\xff\n")
    with pytest.raises(InvalidInput, match="UTF-8"):
        service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "rent")
    (tmp_path / "in.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInput, match="Parquet"):
        service.client.predict_file(tmp_path / "in.parquet", tmp_path / "out.csv", "rent")


def test_paths_are_checked_before_anything_is_asked(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(1))
    with pytest.raises(ValueError, match=r"\.xlsx"):
        service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.xlsx", "rent")
    with pytest.raises(ValueError, match="is the source, too"):
        service.client.predict_file(tmp_path / "in.csv", tmp_path / "in.csv", "rent")
    with pytest.raises(FileNotFoundError):
        service.client.predict_file(tmp_path / "none.csv", tmp_path / "out.csv", "rent")
    assert service.asked == []


def test_an_unknown_model_is_an_error_and_the_old_destination_stays(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(1))
    (tmp_path / "out.csv").write_text("before")
    with pytest.raises(UnknownModel):
        service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "boats")
    assert (tmp_path / "out.csv").read_text() == "before"


def test_inputs_that_have_a_column_of_the_answer_cannot_be_kept(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(1).replace("price", "mean"))
    with pytest.raises(InvalidInput, match="'mean' already"):
        service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.csv", "rent", keep_inputs=True)


def test_parquet_without_pyarrow_says_what_to_install(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text(lines(1))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pyarrow"):
        service.client.predict_file(tmp_path / "in.csv", tmp_path / "out.parquet", "rent")


def test_progress_is_reported_in_rows(service: Service, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(lines(25))
    seen: list[tuple[int, int | None]] = []
    service.client.predict_file(
        tmp_path / "in.csv",
        tmp_path / "out.csv",
        "rent",
        rows_per_chunk=10,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(10, None), (20, None), (25, None)]


@pytest.mark.parametrize("destination", ["out.csv", "out.parquet"])
def test_a_classifiers_answers_are_written_with_a_column_a_class(tmp_path: Path, destination: str) -> None:
    told = {
        "model": {"name": "penguins", "version": "1"},
        "target": "species",
        "samples": 256,
        "seed": 0,
        "classes": ["Adelie", "Gentoo"],
        "prediction": ["Adelie", "Gentoo"],
        "probabilities": [[0.9, 0.1], [0.4, 0.6]],
        "epistemic_std": [[0.1, 0.1], [0.2, 0.2]],
        "entropy": [0.3, 0.6],
        "epistemic_entropy": [0.1, 0.2],
        "prediction_set": {"coverage": 0.9, "values": [["Adelie"], ["Adelie", "Gentoo"]]},
        "calibrated": True,
        "warnings": [],
    }

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=told) if request.method == "POST" else problem(404, "Not described.")

    (tmp_path / "in.csv").write_text("mass\n3000\n5000\n")
    with Client("http://murho.test", transport=httpx.MockTransport(answer)) as client:
        client.predict_file(tmp_path / "in.csv", tmp_path / destination, "penguins")
    names = ["prediction", "p_Adelie", "p_Gentoo", "entropy", "epistemic_entropy", "prediction_set"]
    if destination == "out.csv":
        rows = read(tmp_path / destination)
        assert list(rows[0]) == names
        assert rows[1]["prediction_set"] == '["Adelie", "Gentoo"]'
        assert [float(row["p_Gentoo"]) for row in rows] == [0.1, 0.6]
    else:
        table = pq.read_table(tmp_path / destination)
        assert table.column_names == names
        assert table.column("prediction_set").to_pylist() == [["Adelie"], ["Adelie", "Gentoo"]]
