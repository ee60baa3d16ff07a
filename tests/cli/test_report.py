"""`murho report`, and the report of `murho train`."""

import shutil
from pathlib import Path
from unittest import mock

import pytest

from tests.support import call_murho

QUICK = "--epochs 2 --noise homoscedastic --hidden 8 --members 2 --encoding standard --transform none".split()  # noqa: SIM905


@pytest.fixture
def root(rent_checkpoints: Path, tmp_path: Path) -> Path:
    """Return a checkpoint without a report."""
    shutil.copytree(rent_checkpoints, tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


def test_a_training_writes_its_report_into_the_checkpoint(flats_file: Path, tmp_path: Path) -> None:
    done = call_murho("train", flats_file, "--target", "rent", "--checkpoints", tmp_path, *QUICK)
    version = tmp_path / "flats" / "1"
    assert f"report: {version / 'report.html'}" in done.stdout
    assert "surprising" in (version / "report.html").read_text()
    assert (version / "report" / "facts.json").is_file()
    # The rows that the page shows are kept nowhere else: it is not replaced unasked.
    again = call_murho("report", "flats", "--checkpoints", tmp_path, cwd=tmp_path)
    assert "wrote flats-report.html" in again.stdout
    page = (tmp_path / "flats-report.html").read_text()
    assert "flats, version 1" in page
    assert "Training curves" in page
    assert "surprising" not in page


def test_a_training_without_a_report_or_without_rows(flats_file: Path, tmp_path: Path) -> None:
    call_murho("train", flats_file, "--target", "rent", "--checkpoints", tmp_path, "--no-report", *QUICK)
    files = sorted(path.name for path in (tmp_path / "flats" / "1").iterdir())
    assert files == ["model.json", "model.safetensors"]
    call_murho("train", flats_file, "--target", "rent", "--checkpoints", tmp_path, "--no-report-rows", *QUICK)
    assert "surprising" not in (tmp_path / "flats" / "2" / "report.html").read_text()


def test_a_report_that_fails_costs_no_training(flats_file: Path, tmp_path: Path) -> None:
    with mock.patch("murho.model.report.reports.html_page", side_effect=RuntimeError("no ink")):
        done = call_murho("train", flats_file, "--target", "rent", "--checkpoints", tmp_path, *QUICK)
    assert "warning: the report could not be made: RuntimeError: no ink" in done.stderr
    assert "report:" not in done.stdout
    assert (tmp_path / "flats" / "1" / "model.safetensors").is_file()


def test_new_rows_are_judged_in_a_file_of_their_own(root: Path, flats_file: Path, tmp_path: Path) -> None:
    done = call_murho("report", "rent", flats_file, "--checkpoints", root, "--output", tmp_path / "june.html")
    assert done.stdout == f"wrote {tmp_path / 'june.html'}\n"
    page = (tmp_path / "june.html").read_text()
    assert "On the 160 labelled rows of flats.csv." in page
    assert "surprising" in page
    assert not (root / "rent" / "1" / "report.html").exists()


@pytest.mark.parametrize(("output", "message"), [("x.pdf", "must end in .html"), ("no/x.html", "does not exist")])
def test_a_bad_output_is_refused(root: Path, tmp_path: Path, output: str, message: str) -> None:
    done = call_murho("report", "rent", "--checkpoints", root, "--output", tmp_path / output, code=2)
    assert message in done.stderr
