"""The Dockerfile copies nothing that .dockerignore leaves out."""

from __future__ import annotations

import re

from tests.support import ROOT


def test_all_that_is_copied_is_sent_to_the_builder() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    sources = {source.partition("/")[0] for line in copied for source in line.split()}
    assert "setup.py" in sources
    assert sources <= kept
    assert all((ROOT / source).exists() for source in sources)
