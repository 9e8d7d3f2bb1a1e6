"""Submits of concurrent threads in one request."""

from __future__ import annotations

import threading
import time
from http.client import HTTPException
from typing import Any, Callable

from ._errors import Error, refused

_TASKS = 256  # in a request
_BYTES = 4000  # of a task; a larger one goes alone
_FLIGHT = 2  # requests under way
_SLOW = 0.05  # seconds; a request that takes longer holds up no other: the row of one of its tasks may be locked
_PAUSE = 60.0  # seconds for which all go alone after a server has refused to take them together

Send = Callable[[str, bytes, bool], "tuple[int, Any]"]
"""Sends a body to a path; True: it is safe to repeat."""


class Gathered:
    """The submit of a thread, and its answer."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.wake = threading.Event()
        self.is_answered = self.is_alone = False  # alone: its thread sends it
        self.status = 0
        self.task: dict[str, Any] = {}
        self.error: BaseException | None = None
        self.flight: list[Gathered] = []  # what its thread sends

    def answer(self) -> None:
        self.is_answered = True
        self.wake.set()

    def read(self, result: Any) -> None:
        """Reads the answer to this task of a request."""
        said = result.get("answer") if isinstance(result, dict) else None
        problem, task = (said.get("problem"), said.get("task")) if isinstance(said, dict) else (None, None)
        if isinstance(problem, dict):
            self.error = refused(said.get("status", 0), "", problem, said.get("retry_after", 0))
        elif isinstance(task, dict):
            self.status, self.task = said.get("status", 0), {**task, "etag": said.get("etag", "")}
        else:
            self.error = HTTPException("/v1/tasks/batch: the answer has neither a task nor a problem")


class Line:
    """Submits that wait for their request. The thread of the first one sends it, so that there is no other thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting: list[Gathered] = []
        self._flights: dict[int, float] = {}  # when they have begun, by the id of their first submit

    def board(self, one: Gathered) -> None:
        """Waits until one is answered, or until its thread is to send its flight."""
        with self._lock:
            self.waiting.append(one)
            patience = self._take(one)
        while not one.flight:
            one.wake.wait(patience)
            one.wake.clear()
            if one.is_answered:
                return
            with self._lock:
                patience = self._take(one)

    def _take(self, one: Gathered) -> float | None:
        """Begins a flight if one is the next and may be sent now. If not, it returns how long to wait for that; None: it is woken."""
        if not self.waiting or self.waiting[0] is not one:
            return None
        now = time.monotonic()
        under_way = [begun for begun in self._flights.values() if now - begun < _SLOW]
        if len(under_way) >= _FLIGHT:
            return max(0.001, min(under_way) + _SLOW - now)
        one.flight, self.waiting = self.waiting[:_TASKS], self.waiting[_TASKS:]
        self._flights[id(one)] = now
        self._wake_next()
        return None

    def _wake_next(self) -> None:
        if self.waiting:
            self.waiting[0].wake.set()

    def leave(self, one: Gathered) -> None:
        """Ends the flight of one, which may have been interrupted while it waited."""
        with self._lock:
            if one in self.waiting:
                self.waiting.remove(one)
                self._wake_next()
            if self._flights.pop(id(one), None):
                self._wake_next()


class Gatherer:
    """Sends the submits of concurrent threads together; see Client."""

    def __init__(self, send: Send, several: bool) -> None:
        self._send, self._several = send, several  # several servers
        # Submits that may be repeated at another server never go together with the others.
        self.safe, self.others = Line(), Line()
        self._paused_until = 0.0

    def submit(self, text: bytes, safe: bool) -> tuple[int, Any]:
        if len(text) > _BYTES or time.monotonic() < self._paused_until:
            return self._send("/v1/tasks", text, safe)
        line, one = self.safe if safe else self.others, Gathered(text)
        try:
            line.board(one)
            if len(one.flight) == 1:
                return self._send("/v1/tasks", text, safe)
            if one.flight:
                self._together(one.flight, safe)
        finally:
            line.leave(one)
            for other in one.flight:
                if not other.is_answered:  # this thread was interrupted
                    other.is_alone, other.error = safe, ConnectionError("the request was given up by the thread that sent it")
                    other.answer()
        if one.is_alone:
            return self._send("/v1/tasks", text, safe)
        if one.error is not None:
            raise one.error.with_traceback(None)
        return one.status, one.task

    def _together(self, flight: list[Gathered], safe: bool) -> None:
        results: Any = []
        error: Exception | None = None
        try:
            text = b'{"full":true,"tasks":[' + b",".join(one.text for one in flight) + b"]}"
            results = self._send("/v1/tasks/batch", text, safe)[1].get("results")
            if not isinstance(results, list) or len(results) != len(flight):
                raise HTTPException(f"/v1/tasks/batch: the answer has no results for {len(flight)} tasks")
        except (Error, OSError, HTTPException) as e:
            error = e
        for_good = isinstance(error, Error) and 400 <= error.status < 500 and error.status not in (408, 429)
        if for_good:  # nothing is stored; the server is older than this client, say
            self._paused_until = time.monotonic() + _PAUSE
        for i, one in enumerate(flight):
            if error is None:
                one.read(results[i])
                goes_on = isinstance(one.error, Error) and one.error.status in (502, 503, 504)
                one.is_alone = goes_on and safe and self._several
            else:
                one.error, one.is_alone = error, for_good
            one.answer()
