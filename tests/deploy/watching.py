"""Looking at something all the time while a play runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Watching(ABC):
    """Looks every `pause_s` seconds for as long as it is entered."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @abstractmethod
    def look(self) -> None: ...

    def _run(self) -> None:
        while not self._ended.wait(self._pause_s):
            self.look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
