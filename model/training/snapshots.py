"""Snapshots of a running training, from which ``murho train --resume`` continues.

A training is a sequence of fits. A snapshot has the outcome of every finished fit, so that it is not repeated. Of the
running fit it has the full state, so that the resumed fit ends with the same parameters, bit for bit on the CPU. The
files lie in ``CHECKPOINTS/NAME/.training/``; `model.training.snapshot_files` reads and writes them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from murho.model.errors import CheckpointError, OptionError
from murho.model.fitting.fit_state import FitState
from murho.model.training.fingerprint import changes, differences
from murho.model.training.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from murho.model.fitting.fit_state import Keeper

__all__ = ["DIRECTORY", "SECONDS_BETWEEN_SNAPSHOTS", "Snapshots"]

DIRECTORY = ".training"
"""Hidden, so that lists of checkpoints ignore it."""
SECONDS_BETWEEN_SNAPSHOTS = 30.0
LEAST_RATIO = 200.0
"""Least time between snapshots, in times of writing the last one: large networks are written less often."""

UNDER_WAY, FINISHED, FAILED = "under way", "finished", "failed"


class Snapshots:
    """The states and the outcomes of the fits of one training, by the names that the search gives the fits.

    A context manager. At its end the snapshot stays for a later ``--resume``, unless `remove` was called.

    Attributes:
        carried: Seconds that earlier, interrupted runs of this training have taken.
        resumable: Whether there is a snapshot of this training to resume.
    """

    def __init__(
        self,
        home: Path | None = None,
        *,
        resume: bool = False,
        seconds: float = SECONDS_BETWEEN_SNAPSHOTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store the options, without reading or writing.

        Args:
            home: ``CHECKPOINTS/NAME``; None: nothing is kept.
            resume: Whether to resume from an existing snapshot.
            seconds: Least time between two snapshots of a fit; 0 writes one after every epoch.
            clock: Returns monotonic seconds.
        """
        self.carried, self.resumable = 0.0, False
        self._files = None if home is None else SnapshotFiles(home / DIRECTORY)
        self._resume, self._seconds, self._clock = resume, seconds, clock
        self._fingerprint: Mapping[str, Any] = {}
        self._fits: dict[str, dict[str, Any]] = {}
        self._say: Callable[[str], None] = lambda _: None
        self._began = self._written = self._clock()
        self._cost = 0.0
        self._complained = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._files is not None:
            self._files.release()

    def begin(self, fingerprint: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """Resume from the snapshot of an interrupted training, or report that there is one.

        Args:
            fingerprint: From `model.training.fingerprint.make_fingerprint`.
            say: Gets messages about an existing snapshot, and about snapshots that can't be written.

        Raises:
            OptionError: The snapshot is from another table or from other options; the message lists the differences.
                Or a training of the same name is running.
            CheckpointError: The snapshot is damaged.
        """
        self._fingerprint, self._say = fingerprint, say
        self._began = self._written = self._clock()
        if self._files is None:
            return
        if not self._files.acquire():
            if self._resume:
                raise OptionError(
                    f"--resume: a training of the same name is running, it holds {self._files.directory}; "
                    "wait for its end, or stop it"
                )
            say("a training of the same name is running: this one keeps no snapshots")
            return
        try:
            previous = self._files.read_index()
        except CheckpointError:
            if self._resume:
                raise
            return  # the first snapshot of this training replaces the damaged one
        if previous is None:
            if self._resume:
                say("nothing to resume: training from the start")
            return
        reasons = differences(previous["fingerprint"], fingerprint)
        if self._resume:
            if reasons:
                raise OptionError(
                    f"--resume: the training in {self._files.directory} is another one: {'; '.join(reasons)}. "
                    "Give the same table and options, or leave out --resume to train from the start"
                )
            self._take_up(self._files, previous)
        elif reasons:
            say(
                f"an interrupted training with another table or other options lies in {self._files.directory}: this "
                f"one replaces it, from its first snapshot on"
            )
        else:
            say(
                f"an interrupted training of this table lies in {self._files.directory}: add --resume to go on with "
                f"it ({_progress(previous)}); starting anew, which replaces it from the first snapshot on"
            )

    def _take_up(self, files: SnapshotFiles, previous: Mapping[str, Any]) -> None:
        self._fits, self.carried, self.resumable = previous["fits"], float(previous["seconds"]), True
        for entry in self._fits.values():
            if entry["file"] is not None:
                files.check(entry["file"], entry["sha256"])  # fail now, not after hours
        changed = changes(previous["fingerprint"], self._fingerprint)
        if "learning_rate" in changed:
            # With smaller steps a failed fit may succeed, from its last good state or from the start.
            for entry in self._fits.values():
                entry["status"] = UNDER_WAY if entry["status"] == FAILED else entry["status"]
        self._say("; ".join([f"resuming after {_progress(previous)}", *changed.values()]))

    def outcome(self, fit: str) -> FitState | None:
        """The outcome of a finished fit, as `finish` got it, or None."""
        return self._state(fit, FINISHED)

    def under_way(self, fit: str) -> FitState | None:
        """The last state of an unfinished fit, as `keep` got it, or None."""
        return self._state(fit, UNDER_WAY)

    def failure(self, fit: str) -> str | None:
        """The error message of a failed fit, as `fail` got it, or None."""
        entry = self._fits.get(fit)
        return str(entry["message"]) if entry is not None and entry["status"] == FAILED else None

    def spent(self, fit: str) -> float:
        """Seconds spent on the last state of an unfinished fit; 0 without a state."""
        entry = self._fits.get(fit)
        return float(entry["numbers"].get("seconds", 0.0)) if entry and entry["status"] == UNDER_WAY else 0.0

    def _state(self, fit: str, status: str) -> FitState | None:
        entry = self._fits.get(fit)
        if self._files is None or entry is None or entry["status"] != status or entry["file"] is None:
            return None
        return FitState(self._files.read_tensors(entry["file"], entry["sha256"]), entry["numbers"])

    def keeper(self, fit: str) -> Keeper:
        """The keeper of a fit's states, for `model.fitting.fit.fit`."""
        return _FitKeeper(self, fit)

    def due(self) -> bool:
        """Whether it is time for a snapshot of the running fit."""
        if self._files is None or not self._files.held:
            return False
        wait = max(self._seconds, LEAST_RATIO * self._cost) if self._seconds else 0.0
        return self._clock() - self._written >= wait

    def keep(self, fit: str, state: FitState) -> None:
        """Write the state of the running fit."""
        self._write(fit, UNDER_WAY, state)

    def finish(self, fit: str, state: FitState) -> None:
        """Write the outcome of a fit, in place of its state."""
        self._write(fit, FINISHED, state)

    def fail(self, fit: str, message: str) -> None:
        """Record that a fit has failed; its last state stays."""
        entry = self._fits.setdefault(fit, {"file": None, "sha256": None, "numbers": {}})
        entry |= {"status": FAILED, "message": message}
        if self._files is not None and self._files.held and any(e["file"] for e in self._fits.values()):
            self._commit(self._files, self._fits)

    def advice(self, learning_rate: float) -> str:
        """Advice for the message of a training that failed: how to resume it; empty without a state to resume."""
        states = [entry for entry in self._fits.values() if entry["status"] == FAILED and entry["file"]]
        if not (self.resumable and states):
            return ""
        epoch = len(states[-1]["numbers"]["history"])
        return (
            f". The last good state, of epoch {epoch}, is kept: "
            f"--resume --learning-rate {learning_rate / 4:g} goes on from there"
        )

    def remove(self) -> None:
        """Remove the snapshot, once the checkpoint is written."""
        self.resumable = False
        if self._files is not None and self._files.held:
            self._files.remove()

    def _write(self, fit: str, status: str, state: FitState) -> None:
        if self._files is None or not self._files.held:
            return
        began = self._clock()
        try:
            file, sha256 = self._files.write_tensors(state.tensors)
        except OSError as error:
            self._complain(error)
        else:
            entry = {"status": status, "file": file, "sha256": sha256, "numbers": state.numbers}
            if self._commit(self._files, self._fits | {fit: entry}):
                self._fits[fit] = entry
        self._written = self._clock()
        self._cost = self._written - began

    def _commit(self, files: SnapshotFiles, fits: Mapping[str, Mapping[str, Any]]) -> bool:
        seconds = self.carried + self._clock() - self._began
        content = {"fingerprint": self._fingerprint, "seconds": seconds, "fits": fits}
        try:
            files.write_index(content, [entry["file"] for entry in fits.values() if entry["file"]])
        except OSError as error:
            self._complain(error)
            return False
        self.resumable = True
        return True

    def _complain(self, error: OSError) -> None:
        """Report once that no snapshot can be written: a full disk must not end a fit."""
        if not self._complained:
            self._say(f"no snapshot could be written: {error.strerror or error}; the fit goes on without")
        self._complained = True


def _progress(snapshot: Mapping[str, Any]) -> str:
    """How far an interrupted training has come, in words."""
    done = sum(entry["status"] == FINISHED for entry in snapshot["fits"].values())
    return f"{float(snapshot['seconds']):.0f} s with {done} finished fit{'' if done == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class _FitKeeper:
    """A `model.fitting.fit_state.Keeper`."""

    snapshots: Snapshots
    fit: str

    def due(self) -> bool:
        return self.snapshots.due()

    def keep(self, state: FitState) -> None:
        self.snapshots.keep(self.fit, state)
