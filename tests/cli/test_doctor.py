"""`murho doctor`: finds what is wrong, names it, and ends with exit code 1 if something is."""

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from murho.cli import doctor
from murho.cli.doctor import Finding, examine
from murho.service.settings import Settings
from tests.support import ROOT, call_murho

FIXTURES = ROOT / "tests" / "fixtures" / "checkpoints"


@pytest.fixture(autouse=True)
def without_compiling() -> Iterator[None]:
    """Leave out the check of the compiled engine, which takes seconds."""
    checks = {name: check for name, check in doctor.CHECKS.items() if name != "compiled engine"}
    with mock.patch.object(doctor, "CHECKS", checks):
        yield


def found(checkpoints: Path, device: str = "cpu", port: int = 0) -> dict[str, Finding]:
    settings = Settings.model_construct(checkpoints=checkpoints, device=device, host="127.0.0.1", port=port)
    return {finding.check: finding for finding in examine(settings)}


def test_a_sound_installation_has_no_problem() -> None:
    findings = found(FIXTURES)
    assert [finding for finding in findings.values() if finding.status == "problem"] == []
    assert findings["checkpoints"].found.startswith("1 of 1 versions")
    assert findings["device"].found == "cpu"
    assert {"python", "murho", "torch", "numpy", "threads", "port"} < set(findings)


def test_a_damaged_checkpoint_a_taken_port_and_a_missing_device_are_problems(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES, tmp_path / "checkpoints")
    (version,) = (tmp_path / "checkpoints" / "rents").iterdir()
    (version / "model.safetensors").write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        findings = found(tmp_path / "checkpoints", "cuda:99", taken.getsockname()[1])
    problems = {name for name, finding in findings.items() if finding.status == "problem"}
    assert problems == {f"checkpoint rents/{version.name}", "port", "device"}
    assert "truncated" in findings[f"checkpoint rents/{version.name}"].found
    assert "in use" in findings["port"].found


def test_no_checkpoint_is_a_note_that_says_what_to_do(tmp_path: Path) -> None:
    finding = found(tmp_path / "none")["checkpoints"]
    assert finding.status == "note"
    assert "murho train" in finding.found


def test_a_check_that_fails_is_a_problem_and_the_next_ones_follow() -> None:
    def broken(_: Settings) -> Iterator[Finding]:
        raise RuntimeError("oops")

    with mock.patch.object(doctor, "CHECKS", {"first": broken, "threads": doctor.CHECKS["threads"]}):
        findings = found(FIXTURES)
    assert findings["first"] == Finding("first", "problem", "the check failed: RuntimeError: oops")
    assert findings["threads"].status == "ok"


def test_the_exit_code_says_whether_something_is_wrong(tmp_path: Path) -> None:
    good = call_murho("doctor", "--checkpoints", FIXTURES, "--port", 0, "--json")
    assert json.loads(good.stdout)["ok"] is True
    (tmp_path / "empty").mkdir()
    bad = call_murho("doctor", "--checkpoints", tmp_path, "--port", 0, code=1)
    assert "PROBLEM checkpoint empty: the directory holds no version" in bad.stdout
    assert bad.stdout.endswith("1 problem\n")
