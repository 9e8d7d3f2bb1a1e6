"""A worker for business types whose processor is pull."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from http.client import HTTPException
from typing import Any, Callable, Dict

from ._client import Client, Task
from ._errors import Error, InvalidError, NotFoundError, UnavailableError

_log = logging.getLogger("toc_client")

_WAIT = timedelta(seconds=10)  # of a lease
_PAUSE = 1.0  # seconds after a failed request
_SETTLE_PAUSE = 0.1  # seconds before a lease is settled again


class Reject(Exception):
    """Raised by the function of a Worker: nobody wants the task any more. It is cancelled."""


class RetryAfter(Exception):
    """Raised by the function of a Worker: the run has failed, and the task is to be tried again after a while."""

    def __init__(self, delay: timedelta, reason: str = "") -> None:
        super().__init__(reason or f"try again in {delay}")
        self.delay = delay


class Worker:
    """Leases the tasks of a pull type, runs each in a thread, and settles the leases.

    run gets a task, and its attempt: 1 for the first. Its return acks the task. Reject cancels it, RetryAfter says when to
    try again, and any other exception nacks it: it is tried again after the back-off of the business type, or dead after
    max_retries. It must end within ttr, or the task's own timeout: then the task is handed out again. A task may come twice;
    Dedup remembers what was done.
    """

    def __init__(self, client: Client, biz_type: str, run: Callable[[Task, int], Any], *, threads: int = 16,
                 ttr: timedelta | None = None) -> None:
        if not 1 <= threads <= 256:
            raise ValueError(f"threads is {threads}; give 1 to 256")
        self._client, self._biz_type, self._run, self._threads, self._ttr = client, biz_type, run, threads, ttr
        self._stop = threading.Event()

    def stop(self) -> None:
        """Makes work return, once the tasks that run have ended. Any thread may call it."""
        self._stop.set()

    def work(self) -> None:
        """Works until stop is called. It raises an Error that a repeat would not mend, such as an unknown business type."""
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(self._threads) as pool:
            while not self._stop.is_set():
                if len(running) == self._threads:
                    _, running = wait(running, return_when=FIRST_COMPLETED)
                running = {f for f in running if not f.done()}
                free = self._threads - len(running)
                try:
                    leased = self._client.lease(self._biz_type, free, wait=_WAIT, ttr=self._ttr)["tasks"]
                except UnavailableError as e:
                    _log.warning("no tasks of %s leased; trying again: %s", self._biz_type, e)
                    self._stop.wait(_PAUSE)
                except (InvalidError, NotFoundError):
                    raise
                except (Error, OSError, HTTPException) as e:
                    if isinstance(e, Error) and 400 <= e.status < 500:
                        raise
                    _log.warning("no tasks of %s leased; trying again: %s", self._biz_type, e)
                    self._stop.wait(_PAUSE)
                else:
                    running |= {pool.submit(self._one, one) for one in leased}

    def _one(self, leased: Dict[str, Any]) -> None:
        settle = {"lease": leased["lease"], "do": "ack"}
        try:
            self._run(leased["task"], leased["attempt"])
        except Reject as e:
            settle.update(do="reject", error=str(e))
        except RetryAfter as e:
            settle.update(do="nack", error=str(e), retry_after=f"{max(0, e.delay // timedelta(microseconds=1))}us")
        except Exception as e:  # noqa: BLE001 - whatever the function raises
            _log.warning("run of task %s failed", leased["task"]["job_id"], exc_info=True)
            settle.update(do="nack", error=f"{type(e).__name__}: {e}"[:255])
        expires = datetime.fromisoformat(leased["expires_at"].replace("Z", "+00:00")).timestamp()
        while True:
            try:
                result = self._client.settle([settle])[0]["result"]
            except (UnavailableError, OSError, HTTPException) as e:
                _log.warning("a lease of %s is not settled; trying again: %s", self._biz_type, e)
                result = "unavailable"
            except Error:
                _log.exception("a lease of %s cannot be settled", self._biz_type)
                return
            if result == "ok":
                return
            if result != "unavailable" or time.time() > expires:
                _log.warning("the lease of task %s ended before it was settled; it may run again", leased["task"]["job_id"])
                return
            time.sleep(_SETTLE_PAUSE)
