"""The client and a real service over loopback; every snippet of the client's documents runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.support import Service
from tests.support import ROOT


def snippets(path: Path) -> str:
    """All Python of a page, one block after the other."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", ["docs/sdk.md", "client/README.md", "README.md"])
def test_every_snippet_runs(
    of_cars: Service,
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    code = snippets(ROOT / page)
    assert "murho_client" in code
    code = code.replace("http://127.0.0.1:8000", of_cars.address)
    exec(compile(code, page, "exec"), {"__name__": "snippets"})  # noqa: S102 - our own documents
    printed = capsys.readouterr().out
    if page == "docs/sdk.md":
        assert "Weight_in_lbs" in printed  # of the warning about the truck
        assert "1 Cylinders" in printed  # of the wrong cell
        assert "406 rows" in printed
