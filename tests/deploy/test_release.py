"""A release is tested, of one version, tried before it is pushed, and attested."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.support import ROOT

TEXT = (ROOT / ".github" / "workflows" / "release.yml").read_text()
JOBS: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["jobs"]


@pytest.mark.parametrize(("before", "status"), [("v", 0), ("", 1), ("v1", 1)])
def test_a_tag_is_the_version_of_all_that_is_released(before: str, status: int) -> None:
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    command = [sys.executable, str(ROOT / "scripts" / "release_version.py"), before + version]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == status
    assert ("pyproject.toml says" in done.stderr) == bool(status)


def test_nothing_is_published_before_it_is_tested() -> None:
    runs = "\n".join(step.get("run", "") for step in JOBS["test"]["steps"])
    assert 'scripts/release_version.py "$GITHUB_REF_NAME"' in runs
    assert ".ci/run" in runs
    assert JOBS["build"]["needs"] == JOBS["image"]["needs"] == "test"
    assert JOBS["publish"]["needs"] == ["build", "image"]


def test_the_image_is_tried_then_pushed_then_attested_with_what_is_in_it() -> None:
    steps = JOBS["image"]["steps"]
    places = [
        next(place for place, step in enumerate(steps) if word in f"{step.get('run')} {step.get('uses')}")
        for word in (
            "docker build",
            "scripts/try_image.sh",
            "docker push",
            "attest-build-provenance@",
            "actions/attest@",
        )
    ]
    assert places == sorted(places)
    for step in steps[places[-2] :]:
        assert step["with"]["subject-digest"] == "${{ steps.push.outputs.digest }}"
    for job in ("build", "image"):
        assert "sbom.spdx.json" in [step.get("with", {}).get("sbom-path") for step in JOBS[job]["steps"]]
    subprocess.run(["bash", "-n", str(ROOT / "scripts" / "try_image.sh")], check=True)


def test_actions_are_pinned() -> None:
    assert all(re.search(r"@[0-9a-f]{40}$", use) for use in re.findall(r"uses: (\S+)", TEXT))
