"""The distribution: what is in its wheel, and what an import of it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import murho_client
import pytest

from tests.support import ROOT

CLIENT = ROOT / "client"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel of the client, built from a copy so that nothing is left in the working tree."""
    made = tmp_path_factory.mktemp("wheel")
    source = made / "client"
    files = (CLIENT / name for name in ("pyproject.toml", "README.md", "LICENSE"))
    for path in [*files, *(CLIENT / "murho_client").glob("*")]:
        if path.is_file():
            target = source / path.relative_to(CLIENT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(made), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (found,) = made.glob("*.whl")
    return found


def run(code: str, path: Path) -> str:
    """Return what a program prints that has the client from a wheel and not from the working tree."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_the_package_its_types_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"murho_client-{murho_client.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
    modules = {f"murho_client/{path.name}" for path in (CLIENT / "murho_client").glob("*.py")}
    assert names == {*modules, "murho_client/py.typed"}
    required = [line.split(": ")[1] for line in text.splitlines() if line.startswith("Requires-Dist")]
    assert sorted(required) == ["httpx2>=2.12", "numpy>=1.26"]


def test_the_import_needs_httpx2_and_numpy_alone(wheel: Path) -> None:
    blocked = ("torch", "fastapi", "pydantic", "orjson", "pyarrow", "pandas", "polars", "murho", "tqdm", "structlog")
    code = f"""
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
import murho_client
print(murho_client.__file__, murho_client.__version__)
for name in murho_client.__all__:
    getattr(murho_client, name)
with murho_client.Client("http://127.0.0.1:1", retries=0) as client:
    print(client.ready())
"""
    place, version, ready = run(code, wheel).split()
    assert place.startswith(str(wheel))
    assert (version, ready) == (murho_client.__version__, "False")
