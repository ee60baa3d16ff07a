"""The fixtures of the model: its small table, and checkpoints trained on it."""

from __future__ import annotations

from tests.model.conftest import heed_interrupts, rent, rent_checkpoints, room_checkpoints, rooms, two_threads

__all__ = ["heed_interrupts", "rent", "rent_checkpoints", "room_checkpoints", "rooms", "two_threads"]
