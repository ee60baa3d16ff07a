"""Compiled code is loaded once a process; where it can't be had, PyTorch answers and the log says why, once."""

from __future__ import annotations

import logging
import subprocess
import sys
import time

import pytest

from murho.model.predictive.compiled.loader import _said_if_long, load

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


def test_what_takes_long_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "murho.engines")
    with _said_if_long(60.0):
        pass
    assert caplog.messages == []
    with _said_if_long(0.0):
        end = time.monotonic() + 10.0
        while not caplog.messages and time.monotonic() < end:
            time.sleep(0.005)
    assert "about 20 s" in caplog.messages[0]


def test_it_is_loaded_once() -> None:
    assert load() is load()
    assert load() is not None


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("sys.modules['numba'] = None", "PyTorch answers: compiled code needs Numba"),
        (
            "import numba; numba.njit = lambda *a, **k: 1 / 0",
            "PyTorch answers, more slowly: compiled code can't be loaded here",
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
