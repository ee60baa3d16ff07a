"""Processes of several systems take turns on one machine: what else it does falls on all of them alike."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarks.processes import ProcessError, SystemProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from typing import Self

__all__ = ["Turns"]


class Turns:
    """Started systems, of which one at a time does something; a context manager that ends them.

    A system that fails once is asked no more.

    Attributes:
        ready: System → what it said of itself when it was ready, without those that never were.
        failed: System → why.
    """

    def __init__(self, start: Mapping[str, Callable[[], SystemProcess]]) -> None:
        """Takes what there is to start.

        Args:
            start: System → starts its process, and waits until it is ready.
        """
        self._start = start
        self._processes: dict[str, SystemProcess] = {}
        self._stack = ExitStack()
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        with self._stack:
            for (
                name,
                start,
            ) in self._start.items():  # one after the other, so as not to be in each other's way
                try:
                    self._processes[name] = self._stack.enter_context(start())
                except ProcessError as error:
                    self.failed[name] = str(error)
            self._stack = self._stack.pop_all()  # all are started: they end with this context
        return self

    @property
    def ready(self) -> dict[str, dict[str, Any]]:
        """See the class."""
        return {name: process.ready for name, process in self._processes.items()}

    def ask(
        self, request: Mapping[str, Any], *, rounds: int, without: Container[str] = ()
    ) -> dict[str, list[dict[str, Any]]]:
        """In every round, sends each of them the request and waits for its answer.

        Args:
            request: What is asked.
            rounds: How often.
            without: Systems that are not asked.

        Returns:
            System → its answers, one a round; without those that have failed in this or an earlier call.
        """
        answers: dict[str, list[dict[str, Any]]] = {}
        for _ in range(rounds):
            for name, process in self._processes.items():
                if name in self.failed or name in without:
                    continue
                try:
                    answers.setdefault(name, []).append(process.ask(request))
                except ProcessError as error:
                    self.failed[name] = str(error)
        return {name: said for name, said in answers.items() if name not in self.failed}

    def __exit__(self, *_: object) -> None:
        self._stack.close()
