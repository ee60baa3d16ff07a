"""Compiled code is kept for the next process, and compiled again when one of its source files changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from murho.model.distributions import steps
from murho.model.predictive.compiled import jit
from murho.model.predictive.compiled.answers import answer_rows
from murho.model.predictive.compiled.passes import _forward_draws
from tests.support import ROOT

INNER = """
from murho.model.predictive.compiled.jit import part

@part
def inner(value):
    return value + 1.0
"""
OUTER = """
from inner import inner
from murho.model.predictive.compiled.jit import compiled

@compiled("float64(float64)")
def outer(value):
    return 2.0 * inner(value)
"""
ASK = """
from outer import outer
print(outer(3.0), len(outer.stats.cache_hits), len(outer.stats.cache_misses))
"""
READ_ONLY = """
import os
os.access = lambda path, mode: False
"""
"""As a file system says that is mounted read-only; whoever runs the tests may be allowed to write anywhere."""
NOWHERE = """
import tempfile
def nowhere():
    raise FileNotFoundError("No usable temporary directory found")
tempfile.gettempdir = nowhere
tempfile._gettempdir = nowhere
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Two modules, of which one calls the other's function."""
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "inner.py").write_text(INNER)
    (tmp_path / "outer.py").write_text(OUTER)
    return tmp_path


def ask(modules: Path, before: str = "", **settings: str) -> list[str]:
    """What the outer function of 3 is in a new process, how often its code was found, and how often not."""
    home = modules / "home"
    environment = os.environ | {"PYTHONPATH": f"{modules}{os.pathsep}{ROOT / 'src'}", "HOME": str(home)}
    environment.pop("NUMBA_CACHE_DIR", None)
    said: subprocess.CompletedProcess[str] = subprocess.run(
        [sys.executable, "-W", "error", "-c", before + ASK],
        env=environment | settings,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return list(said.stdout.split())


def test_a_second_process_finds_what_the_first_has_compiled(modules: Path) -> None:
    assert ask(modules) == ["8.0", "0", "1"]
    assert ask(modules) == ["8.0", "1", "0"]


@pytest.mark.parametrize(
    "place",
    [
        "beside the code",
        *(pytest.param(place, marks=pytest.mark.slow) for place in ("the user's cache", "a directory of the user's")),
    ],
)
def test_a_change_of_a_part_in_another_file_counts_wherever_the_code_is_kept(modules: Path, place: str) -> None:
    settings = {"NUMBA_CACHE_DIR": str(modules / "elsewhere")} if place == "a directory of the user's" else {}
    if place == "the user's cache":
        (modules / "__pycache__").rmdir()
        (modules / "__pycache__").touch()
    assert ask(modules, **settings)[0] == "8.0"
    (modules / "inner.py").write_text(INNER.replace("1.0", "2.0"))
    assert ask(modules, **settings) == ["10.0", "0", "1"]
    assert len(list(modules.rglob("compiled-*"))) == 1


def test_a_change_of_any_file_beside_it_counts_and_what_was_kept_before_is_removed(modules: Path) -> None:
    beside = modules / "constants.py"
    beside.write_text("HALF = 0.5")
    ask(modules)
    (before,) = (modules / "__pycache__").glob("compiled-*")
    beside.write_text("HALF = 0.50")
    assert ask(modules) == ["8.0", "0", "1"]
    (after,) = (modules / "__pycache__").glob("compiled-*")
    assert after != before


def test_every_file_that_kernels_come_from_counts() -> None:
    counted = {*Path(jit.__file__).parent.glob("*.py"), Path(steps.__file__)}
    seen: set[Path] = set()

    def walk(function: Any) -> None:
        seen.add(Path(function.__code__.co_filename))
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, Dispatcher):
                walk(called.py_func)

    kernels: tuple[Any, ...] = (answer_rows, _forward_draws)
    for kernel in kernels:
        walk(kernel.py_func)
    assert len(seen) > 5
    assert seen <= counted


def test_two_processes_that_start_at_once_compile_once(modules: Path) -> None:
    with ThreadPoolExecutor() as both:
        said = sorted(both.map(lambda _: ask(modules), range(2)))
    assert said == [["8.0", "0", "1"], ["8.0", "1", "0"]]


def test_wider_vectors_are_a_mark_on_the_function_and_change_no_number(modules: Path) -> None:
    marked = OUTER.replace("import compiled", "import compiled, widest_vectors")
    (modules / "outer.py").write_text(marked.replace("    return", "    widest_vectors()\n    return"))
    said = "assert '\"prefer-vector-width\"=\"512\"' in ''.join(outer.inspect_llvm().values())"
    assert ask(modules, f"from outer import outer\n{said}\n") == ["8.0", "0", "1"]


@pytest.mark.slow
def test_where_the_package_cannot_be_written_what_lies_there_is_used(modules: Path) -> None:
    ask(modules)
    before = sorted(modules.rglob("*"))
    assert ask(modules, READ_ONLY) == ["8.0", "1", "0"]
    assert sorted(modules.rglob("*")) == before


@pytest.mark.slow
def test_where_nothing_at_all_can_be_written_it_is_compiled_all_the_same(modules: Path) -> None:
    ask(modules)
    assert ask(modules, READ_ONLY + NOWHERE) == ["8.0", "0", "1"]


def test_where_neither_is_possible_it_is_kept_in_the_user_s_cache_directory(modules: Path) -> None:
    shutil.rmtree(modules / "__pycache__")
    (modules / "__pycache__").touch()
    assert ask(modules) == ["8.0", "0", "1"]
    assert list((modules / "home").rglob("*.nbc"))
    assert ask(modules) == ["8.0", "1", "0"]


@pytest.mark.slow
def test_without_any_place_to_keep_it_it_is_compiled_all_the_same(modules: Path) -> None:
    shutil.rmtree(modules / "__pycache__")
    (modules / "__pycache__").touch()
    (modules / "home").touch()
    assert ask(modules) == ["8.0", "0", "1"]
    assert ask(modules) == ["8.0", "0", "1"]


@pytest.mark.slow
def test_a_directory_of_the_user_s_is_heeded(modules: Path) -> None:
    elsewhere = modules / "elsewhere"
    assert ask(modules, NUMBA_CACHE_DIR=str(elsewhere)) == ["8.0", "0", "1"]
    assert list(elsewhere.rglob("*.nbc"))
    assert not list((modules / "__pycache__").rglob("*.nbc"))
    assert ask(modules, NUMBA_CACHE_DIR=str(elsewhere)) == ["8.0", "1", "0"]


def test_the_folder_of_kept_code_is_known_and_filled() -> None:
    folder, filled = jit.kept_code()
    assert folder is not None
    assert filled
