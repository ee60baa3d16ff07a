"""Measurement in turns: the processes of several systems work one at a time, so that other load affects all alike."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarks.processes import ProcessError, SystemProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from typing import Self

__all__ = ["Turns"]


class Turns:
    """Started systems, of which one works at a time; a context manager that ends them.

    A system that failed once gets no further requests.

    Attributes:
        ready: System → its first answer, for all systems that became ready.
        failed: System → reason of its failure.
    """

    def __init__(self, start: Mapping[str, Callable[[], SystemProcess]]) -> None:
        """Takes the systems; entering the context starts them.

        Args:
            start: System → function that starts its process, and waits until it is ready.
        """
        self._start = start
        self._processes: dict[str, SystemProcess] = {}
        self._stack = ExitStack()
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        with self._stack:
            # One at a time, so that they do not slow each other down.
            for name, start in self._start.items():
                try:
                    self._processes[name] = self._stack.enter_context(start())
                except ProcessError as error:
                    self.failed[name] = str(error)
            self._stack = self._stack.pop_all()  # all are started: they end with this context
        return self

    @property
    def ready(self) -> dict[str, dict[str, Any]]:
        """System → its first answer, for all systems that became ready."""
        return {name: process.ready for name, process in self._processes.items()}

    def ask(
        self, request: Mapping[str, Any], *, rounds: int, without: Container[str] = ()
    ) -> dict[str, list[dict[str, Any]]]:
        """Sends the request to each system in turn, and waits for its answer, in every round.

        Args:
            request: The request.
            rounds: Number of rounds.
            without: Systems to leave out.

        Returns:
            System → its answers, one per round; without systems that failed in this or an earlier call.
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
        return {name: replies for name, replies in answers.items() if name not in self.failed}

    def __exit__(self, *_: object) -> None:
        self._stack.close()
