"""Compiled code is kept, and loaded once a process; where there is none, PyTorch answers and the log says why."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config

from murho.model import compiling

ASK = """
import logging, sys
logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
{before}
from murho.model.predictive.compiled_engine import select_engine
from tests.model.predictive.engine_contract import CPU, EVERYTHING, Case, assert_same, target_model
target = target_model("mixture")
for _ in range(2):
    engine = select_engine(target, CPU)
case = Case.of(target, 20)
expected = case.expected(EVERYTHING)
assert_same(case.asked(engine, EVERYTHING), expected, expected["std"])
print(engine.name)
"""


def test_code_of_other_sources_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, home = tmp_path / "compiling.py", tmp_path / "home"
    monkeypatch.setattr(compiling, "__file__", str(source))
    monkeypatch.setattr(config, "CACHE_DIR", "")
    source.write_text("HALF = 0.5")
    folder = compiling.code_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "__pycache__"
    assert folder == compiling.code_folder()
    source.write_text("HALF = 0.50")
    assert compiling.code_folder() != folder
    monkeypatch.setattr(config, "CACHE_DIR", str(home))
    other = compiling.code_folder()
    assert other is not None
    assert other.parent == home


def test_where_no_folder_can_be_made_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "file"))
    assert compiling.code_folder() is None


TOGETHER = """
from murho.model.compiling import compile_package

with compile_package(__name__):
    from kernels import outer
"""
COMPILED = """
from murho.model.compiling import compiled, part, widest_vectors

@part
def inner(value):
    return value + 1.0

@compiled("float64(float64)")
def outer(value):
    widest_vectors()
    return 2.0 * inner(value)

if outer.stats.cache_misses:
    assert '"prefer-vector-width"="512"' in "".join(outer.inspect_llvm().values())
print(outer(3.0), len(outer.stats.cache_hits), len(outer.stats.cache_misses))
"""


def ask_for(place: Path, *codes: str) -> list[list[str]]:
    """Return what processes print that import the same kernels at the same time."""
    (place / "kernels").mkdir(exist_ok=True)
    (place / "kernels" / "__init__.py").write_text(TOGETHER)
    (place / "kernels" / "outer.py").write_text(COMPILED)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(place / "home")}
    asked = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, cwd=place)
        for code in codes
    ]
    return [one.communicate(timeout=120)[0].split()[:2] for one in asked]


def test_processes_load_what_one_of_them_has_compiled_whole(tmp_path: Path) -> None:
    assert sorted(ask_for(tmp_path, "import kernels", "import kernels")) == [["8.0", "0"], ["8.0", "1"]]
    read_only = "import os; os.access = lambda path, mode: False; import kernels"
    another_folder = "import os; os.environ['NUMBA_CACHE_DIR'] += '/other'; import kernels"
    assert ask_for(tmp_path, read_only, another_folder) == [["8.0", "1"], ["8.0", "0"]]
    for whole in (tmp_path / "home").rglob("whole"):
        whole.unlink()  # as if the process had been interrupted
    assert ask_for(tmp_path, "import kernels") == [["8.0", "0"]]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("sys.modules['numba'] = None", "PyTorch computes: compiled code needs Numba"),
        (
            "import numba; numba.njit = lambda *a, **k: 1 / 0",
            "PyTorch computes, more slowly: compiled code can't be loaded here",
        ),
    ],
    ids=["without Numba", "where compiling fails"],
)
def test_where_it_cannot_be_had_pytorch_answers_and_the_log_says_why_once(before: str, said: str) -> None:
    code = ASK.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    line, name = done.stdout.splitlines()
    assert said in line
    assert name == "torch"
