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
from ._errors import Error
from ._leases import LeaseKeeper, expires_at
from ._transport import Stop
from ._values import Duration, duration, span

_log = logging.getLogger("toc_client")

_WAIT = timedelta(seconds=20)  # of a lease
_PAUSE = 1.0  # seconds after a failed request
_SETTLE_PAUSE = 0.1  # seconds before a lease is settled again
_MAX_SETTLE = 1000  # leases that a request settles
_APART = 60.0  # seconds for which requests settle or lease, after a center has refused one that did both
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
        self._apart = 0.0  # until then no request does both: the center does not know that

    def stop(self) -> None:
        """Makes work return, once the tasks that run have ended. Any thread, and a signal handler, may call it."""
        self._stop.stop()

    def work(self) -> None:
        """Works until stop is called. It raises an Error that a repeat would not mend, such as an unknown business type. A
        worker works once."""
        keeper = LeaseKeeper(self._client, self._ttr, self._max_run)
        tasks: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        again = _Outbox()
        results = _Outbox(again)

        def thread(target: Callable[..., None], *args: Any) -> threading.Thread:
            started = threading.Thread(target=target, args=args, name="toc-worker", daemon=True)
            started.start()
            return started

        threads = [thread(self._run_all, tasks, results, keeper) for _ in range(self._threads)]
        settlers = [(box, thread(self._settle_all, box)) for box in (results, again)]
        try:
            results.hold()
            while self._stop.at is None:
                free = self._take()
                leased = self._lease(free, results) if free else []
                results.hold()
                for _ in range(free - len(leased)):
                    self._free.release()
                for one in leased:
                    tasks.put(one)
        finally:
            results.let_go()
            for _ in threads:
                tasks.put(None)
            for one_thread in threads:
                one_thread.join()
            for box, settler in settlers:
                box.close()
                settler.join()
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

    def _lease(self, free: int, results: _Outbox) -> list[dict[str, Any]]:
        """Leases tasks, and settles what waits for that in the same request."""
        if time.monotonic() < self._apart:
            results.let_go()
        outcomes = results.take_held()
        answered: list[dict[str, Any]] = []
        wrong: Exception | None = None
        try:
            if outcomes:
                answer = self._client._lease(self._biz_type, free, None, self._ttr, None, [one.settlement for one in outcomes])
                answered = answer.get("results", [])
            else:
                answer = self._client._lease(self._biz_type, free, _WAIT, self._ttr, self._stop, [])
            return list(answer["tasks"])
        except Error as e:
            if outcomes and any(field.get("location") == "body.settle" for field in e.errors):  # an older center
                self._apart = time.monotonic() + _APART
                results.add(*outcomes)
                outcomes = []
                return []
            wrong = e
            if 400 <= e.status < 500 and e.status not in (408, 429):
                raise
        except (OSError, HTTPException) as e:
            wrong = e
        finally:
            results.again.add(*self._settled(outcomes, answered, wrong if outcomes else None))
        if self._stop.at is None:
            _log.warning("no tasks of %s leased; trying again: %s", self._biz_type, wrong)
            self._stop.pause(_PAUSE)
        return []

    def _run_all(self, tasks: SimpleQueue[dict[str, Any] | None], results: _Outbox, keeper: LeaseKeeper) -> None:
        try:
            for leased in iter(tasks.get, None):
                self._one(leased, results, keeper)
        finally:
            self._client.close()  # the connections of this thread

    def _one(self, leased: dict[str, Any], results: _Outbox, keeper: LeaseKeeper) -> None:
        try:
            kept = keeper.keep(leased)
            try:
                settlement = self._outcome(leased)
            finally:
                keeper.release(kept)
            results.add(_Outcome(leased, settlement))
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

    def _settle_all(self, results: _Outbox) -> None:
        """Settles the outcomes that no request for tasks takes along."""
        try:
            for outcomes in iter(results.take, []):
                answered, wrong = [], None
                try:
                    answered = self._client.settle(one.settlement for one in outcomes)
                except (Error, OSError, HTTPException) as e:
                    wrong = e
                again = self._settled(outcomes, answered, wrong)
                results.again.add(*again)
                if again and results.again is results:
                    time.sleep(_SETTLE_PAUSE)
        finally:
            self._client.close()

    def _settled(self, outcomes: list[_Outcome], answered: list[dict[str, Any]], wrong: Exception | None) -> list[_Outcome]:
        """Reads the results of settlements, and returns the outcomes that are to be settled again."""
        if wrong is not None:
            _log.warning("leases of %s are not settled; trying again: %s", self._biz_type, wrong)
        again = []
        for i, one in enumerate(outcomes):
            result = answered[i]["result"] if i < len(answered) else "unavailable"
            if result == "unavailable" and time.time() < one.until:
                again.append(one)
            elif result != "ok":
                _log.warning("task %s is not settled: %s; it may run again", one.job_id, result)
        return again


class _Outcome:
    """A run that has ended."""

    def __init__(self, leased: dict[str, Any], settlement: dict[str, str]) -> None:
        self.settlement, self.job_id = settlement, leased["task"]["job_id"]
        self.until = max(time.time() + _SETTLE_TIME, expires_at(leased).timestamp())


class _Outbox:
    """The outcomes that are to be settled. While the worker waits for a free thread they wait for its next request for tasks; else a
    request settles them that does nothing else."""

    def __init__(self, again: _Outbox | None = None) -> None:
        # of the outcomes that could not be settled: their rows may be locked, and must hold up neither others nor the leases
        self.again = again or self
        self._changed = threading.Condition()
        self._list: list[_Outcome] = []
        self._held = self._closed = False

    def hold(self) -> None:
        """Keeps outcomes for the next request for tasks."""
        with self._changed:
            self._held = True

    def let_go(self) -> None:
        """Has outcomes settled at once."""
        with self._changed:
            self._held = False
            self._changed.notify()

    def add(self, *outcomes: _Outcome) -> None:
        with self._changed:
            self._list += outcomes
            self._changed.notify()

    def take_held(self) -> list[_Outcome]:
        """Takes what is held for a request for tasks. What comes afterwards is not held."""
        with self._changed:
            taken = self._take() if self._held else []
            self._held = False
            self._changed.notify()
            return taken

    def take(self) -> list[_Outcome]:
        """Takes as many outcomes as fit into a request, and waits for one. None: there will be no more."""
        with self._changed:
            while not self._closed and (self._held or not self._list):
                self._changed.wait()
            return self._take()

    def _take(self) -> list[_Outcome]:
        taken, self._list = self._list[:_MAX_SETTLE], self._list[_MAX_SETTLE:]
        return taken

    def close(self) -> None:
        """Says that no further outcome comes."""
        with self._changed:
            self._closed = True
            self._changed.notify()


def _text(error: str) -> str:
    """What the center keeps of an error, without what JSON cannot carry."""
    return error[:255].encode("utf-8", "replace").decode()
