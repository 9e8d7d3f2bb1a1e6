"""A worker for business types whose processor is pull."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from http.client import HTTPException
from queue import SimpleQueue
from typing import Any, Callable

from ._client import Client, Task
from ._errors import Error, UnavailableError
from ._leases import LeaseKeeper, expires_at
from ._transport import Stop
from ._values import Duration, duration, span

_log = logging.getLogger("toc_client")

_WAIT = timedelta(seconds=20)  # of a lease
_PAUSE = 1.0  # seconds after a failed request
_SETTLE_PAUSE = 0.1  # seconds before a lease is settled again
_SETTLE_TIME = 20.0  # seconds that a lease is settled again, and longer if it lasts longer


class Reject(Exception):
    """Raised by the function of a Worker: nobody wants the task any more. It is cancelled."""


class RetryAfter(Exception):
    """Raised by the function of a Worker: the run has failed, and the task is to be tried again after a while."""

    def __init__(self, delay: Duration, reason: str = "") -> None:
        self.delay = span("delay", delay)
        super().__init__(reason or f"try again in {self.delay}")


class Worker:
    """Leases the tasks of a pull type, runs each in a thread, and settles the leases. It leases no more than it has free
    threads, so no task waits here.

    run gets a task, and its attempt: 1 for the first. Its return acks the task. Reject cancels it, RetryAfter says when to
    try again, and any other exception nacks it: it is tried again after the back-off of the business type, or dead after
    max_retries. A task may come twice; Dedup remembers what was done.

    The lease of a run that takes longer than ttr is extended, until max_run (zero: not at all), but that of a task with a
    timeout of its own: that is how long its run may take. The clock of this machine and those of the center should agree.
    """

    def __init__(self, client: Client, biz_type: str, run: Callable[[Task, int], Any], *, threads: int = 16,
                 ttr: Duration | None = None, max_run: Duration = timedelta(hours=1)) -> None:
        if not callable(run):
            raise TypeError(f"run is {run!r}; give a function of a task and its attempt")
        if not 1 <= threads <= 256:
            raise ValueError(f"threads is {threads}; give 1 to 256")
        self._client, self._biz_type, self._run, self._threads = client, biz_type, run, threads
        self._ttr, self._max_run = None if ttr is None else span("ttr", ttr), span("max_run", max_run)
        self._free = threading.Semaphore(threads)
        self._stop = Stop()

    def stop(self) -> None:
        """Makes work return, once the tasks that run have ended. Any thread, and a signal handler, may call it."""
        self._stop.stop()

    def work(self) -> None:
        """Works until stop is called. It raises an Error that a repeat would not mend, such as an unknown business type. A
        worker works once."""
        keeper = LeaseKeeper(self._client, self._ttr, self._max_run)
        tasks: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        threads = [threading.Thread(target=self._run_all, args=(tasks, keeper), name="toc-worker", daemon=True) for _ in range(self._threads)]
        for thread in threads:
            thread.start()
        try:
            while self._stop.at is None:
                free = self._take()
                leased = self._lease(free) if free else []
                for _ in range(free - len(leased)):
                    self._free.release()
                for one in leased:
                    tasks.put(one)
        finally:
            for _ in threads:
                tasks.put(None)
            for thread in threads:
                thread.join()
            keeper.close()
            self._stop.close()

    def _take(self) -> int:
        """Takes all free threads, and waits for one; none: it is stopped."""
        while not self._free.acquire(timeout=0.5):
            if self._stop.at is not None:
                return 0
        n = 1
        while n < self._threads and self._free.acquire(blocking=False):
            n += 1
        return n

    def _lease(self, free: int) -> list[dict[str, Any]]:
        try:
            return list(self._client._lease(self._biz_type, free, _WAIT, self._ttr, self._stop)["tasks"])
        except Error as e:
            if 400 <= e.status < 500 and e.status not in (408, 429):
                raise
            wrong: Exception = e
        except (OSError, HTTPException) as e:
            wrong = e
        if self._stop.at is None:
            _log.warning("no tasks of %s leased; trying again: %s", self._biz_type, wrong)
            self._stop.pause(_PAUSE)
        return []

    def _run_all(self, tasks: SimpleQueue[dict[str, Any] | None], keeper: LeaseKeeper) -> None:
        try:
            for leased in iter(tasks.get, None):
                self._one(leased, keeper)
        finally:
            self._client.close()  # the connections of this thread

    def _one(self, leased: dict[str, Any], keeper: LeaseKeeper) -> None:
        try:
            kept = keeper.keep(leased)
            try:
                settlement = self._outcome(leased)
            finally:
                keeper.release(kept)
            self._settle(leased, settlement)
        except Exception:
            _log.exception("task %s is not settled", leased["task"]["job_id"])
        finally:
            self._free.release()

    def _outcome(self, leased: dict[str, Any]) -> dict[str, str]:
        settlement: dict[str, str] = {"lease": leased["lease"], "do": "nack"}
        try:
            self._run(leased["task"], leased["attempt"])
            settlement["do"] = "ack"
        except Reject as e:
            settlement.update(do="reject", error=_text(str(e)))
        except RetryAfter as e:
            settlement.update(error=_text(str(e)), retry_after=duration("delay", max(timedelta(), e.delay)))
        except BaseException as e:  # whatever the function raises
            _log.warning("run of task %s failed", leased["task"]["job_id"], exc_info=True)
            settlement.update(error=_text(f"{type(e).__name__}: {e}"))
        return settlement

    def _settle(self, leased: dict[str, Any], settlement: dict[str, str]) -> None:
        until = max(time.time() + _SETTLE_TIME, expires_at(leased).timestamp())
        while True:
            try:
                result = self._client.settle([settlement])[0]["result"]
            except (UnavailableError, OSError, HTTPException) as e:
                _log.warning("a lease of %s is not settled; trying again: %s", self._biz_type, e)
                result = "unavailable"
            if result == "ok":
                return
            if result != "unavailable" or time.time() > until:
                _log.warning("task %s is not settled: %s; it may run again", leased["task"]["job_id"], result)
                return
            time.sleep(_SETTLE_PAUSE)


def _text(error: str) -> str:
    """What the center keeps of an error, without what JSON cannot carry."""
    return error[:255].encode("utf-8", "replace").decode()
