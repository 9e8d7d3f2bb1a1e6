"""Extends the leases of a worker's runs."""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta, timezone
from http.client import HTTPException
from typing import Any, Mapping

from ._client import Client
from ._errors import Error

_log = logging.getLogger("toc_client")

_MIN_LEASE = 0.1  # seconds
_TIMEOUT = 5.0  # seconds of a request
_PAUSE = 0.2  # seconds after a request that has failed


class _Kept:
    """A lease. Its first end is expires_at by this machine's clock; after that it is counted from the request that extends it."""

    def __init__(self, leased: Mapping[str, Any], ttr: timedelta | None) -> None:
        self.lease: str = leased["lease"]
        self.job_id: str = leased["task"]["job_id"]
        self.began = time.monotonic()
        left = max(_MIN_LEASE, (expires_at(leased) - datetime.now(timezone.utc)).total_seconds())
        self.length = left if ttr is None else max(_MIN_LEASE, ttr.total_seconds())
        self.next = self.began + min(left, self.length) / 2


def expires_at(leased: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(leased["expires_at"].replace("Z", "+00:00"))


class LeaseKeeper:
    """Extends leases in a thread, each when half of it is over, many in one request, until a run has taken max_run."""

    def __init__(self, client: Client, ttr: timedelta | None, max_run: timedelta) -> None:
        self._client, self._ttr, self._max_run = client, ttr, max_run.total_seconds()
        self._change = threading.Condition()
        self._kept: set[_Kept] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._extend_all, name="toc-worker-leases", daemon=True)
        self._thread.start()

    def keep(self, leased: Mapping[str, Any]) -> _Kept:
        """Extends a lease until it is released. A task's own timeout is how long its run may take: its lease is left alone."""
        kept = _Kept(leased, self._ttr)
        if self._max_run > 0 and "timeout" not in leased["task"]:
            with self._change:
                self._kept.add(kept)
                self._change.notify()
        return kept

    def release(self, kept: _Kept) -> None:
        with self._change:
            self._kept.discard(kept)

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _extend_all(self) -> None:
        due = self._wait()
        while due:
            self._extend(due)
            due = self._wait()
        self._client.close()

    def _wait(self) -> list[_Kept]:
        """Waits for leases to extend; none: it is closed."""
        with self._change:
            while not self._closed:
                now = time.monotonic()
                self._kept = {k for k in self._kept if now - k.began <= self._max_run}
                due = [k for k in self._kept if k.next <= now]
                if due:
                    return due
                self._change.wait(min((k.next for k in self._kept), default=now + 3600) - now)
            return []

    def _extend(self, due: list[_Kept]) -> None:
        sent = time.monotonic()
        results: list[str] = []
        try:
            results = self._client._extend([k.lease for k in due], self._ttr, _TIMEOUT)
        except (Error, OSError, HTTPException) as e:
            _log.warning("leases are not extended; trying again: %s", e)
        results += ["unavailable"] * (len(due) - len(results))
        with self._change:
            for kept, result in zip(due, results):
                if result == "ok":
                    kept.next = sent + kept.length / 2
                elif result == "unavailable":
                    kept.next = time.monotonic() + _PAUSE
                elif kept in self._kept:
                    self._kept.discard(kept)
                    _log.warning("the lease of task %s has ended while it runs; it may run again", kept.job_id)
