"""Tests of the client against a real center (TOC_SERVER, TOC_TOKEN), servers that are not well (TOC_FAKE) and the vectors that
all clients share (TOC_VECTORS)."""

import json
import logging
import os
import resource
import socket
import sys
import threading
import time
import unittest
import unittest.mock
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone
from http.client import HTTPException
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import toc_client
from toc_client import Client, ConflictError, Dedup, Error, InvalidError, NotFoundError, Reject, RetryAfter, UnderWay, Worker
from toc_client._errors import refusal
from toc_client._gather import Gatherer

VECTORS = json.loads(Path(os.environ["TOC_VECTORS"]).read_text("utf-8"))
SERVER, TOKEN, FAKE = os.environ["TOC_SERVER"], os.environ["TOC_TOKEN"], os.environ["TOC_FAKE"]

logging.disable()  # it would stand between a test and its result


def nobody() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}"


class Center(unittest.TestCase):
    def setUp(self) -> None:
        self.toc = Client(SERVER, token=TOKEN)
        self.addCleanup(self.toc.close)
        self.biz_id = f"{self.id()}-{os.getpid()}"

    def test_a_life(self) -> None:
        at = datetime.now(timezone.utc) + timedelta(hours=1)
        task, known = self.toc.submit("order_close", self.biz_id, action_time=at, attribute='{"ü":1}', dedup_key="k",
                                      timeout=timedelta(milliseconds=1500))
        self.assertFalse(known)
        again, known = self.toc.submit("order_close", self.biz_id, delay=timedelta(seconds=1), dedup_key="k")
        self.assertTrue(known)
        self.assertEqual(task["job_id"], again["job_id"])
        got = self.toc.get(task["job_id"])
        self.assertEqual(("pending", '{"ü":1}', "1.5s"), (got["status"], got["attribute"], got["timeout"]))
        self.assertEqual(got["job_id"], self.toc.get_by_key("order_close", self.biz_id, "k")["job_id"])
        self.assertIn("because", self.toc.why(task["job_id"]))

        moved = self.toc.reschedule(task["job_id"], delay=timedelta(hours=2), etag=got["etag"])
        self.assertGreater(moved["action_time"], got["action_time"])
        with self.assertRaises(toc_client.ChangedError) as changed:
            self.toc.cancel(task["job_id"], etag=got["etag"])
        self.assertEqual(moved["action_time"], changed.exception.task["action_time"])
        self.assertEqual(moved["etag"], changed.exception.task["etag"])
        other = self.toc.reschedule(task["job_id"], attribute="", timeout=timedelta(seconds=90))
        self.assertEqual((None, "1m30s", moved["action_time"]), (other.get("attribute"), other["timeout"], other["action_time"]))
        self.toc.cancel(task["job_id"], etag=other["etag"])
        with self.assertRaises(ConflictError) as conflict:
            self.toc.cancel(task["job_id"])
        self.assertEqual("already_cancelled", conflict.exception.outcome)

    def test_durations_in_seconds(self) -> None:
        task, _ = self.toc.submit("order_close", self.biz_id, delay=3600, timeout=1.5)
        self.assertEqual("1.5s", task["timeout"])
        later = self.toc.reschedule(task["job_id"], delay=7200.5, timeout=90)
        self.assertEqual("1m30s", later["timeout"])
        self.assertGreater(later["action_time"], task["action_time"])
        self.assertEqual("0us", toc_client.submission("a", 1, delay=0)["delay"])
        for wrong in ("30", "30s", [], datetime.now(timezone.utc)):
            with self.assertRaises(TypeError):
                self.toc.submit("order_close", 1, delay=wrong)
        Dedup(keep=60, timeout=0.5)

    def test_by_key(self) -> None:
        largest, key = 2**64 - 1, self.biz_id
        job = self.toc.submit("order_close", largest, delay=timedelta(hours=1), dedup_key=key)[0]["job_id"]
        got = self.toc.get_by_key("order_close", largest, key)
        self.assertEqual((job, str(largest)), (got["job_id"], got["biz_id"]))
        self.assertEqual("moved", self.toc.reschedule_by_key("order_close", str(largest), key, attribute="moved")["attribute"])
        self.toc.submit("order_close", largest, delay=timedelta(hours=1), attribute="again", dedup_key=key, on_duplicate="move")
        self.assertEqual("again", self.toc.get(job)["attribute"])
        self.toc.cancel_by_key("order_close", largest, key)
        self.assertEqual("cancelled", self.toc.get(job)["status"])
        with self.assertRaises(NotFoundError):
            self.toc.get_by_key("order_close", 1, key)

    def test_again_and_past(self) -> None:
        key, past = self.biz_id, datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone.utc)

        def submit() -> tuple[dict[str, Any], bool]:
            return self.toc.submit("order_close", "007", delay=timedelta(hours=1), dedup_key=key, on_duplicate="again")

        first = submit()[0]["job_id"]
        self.assertEqual("007", self.toc.get_by_key("order_close", "007", key)["biz_id"])
        self.assertEqual((first, True), (submit()[0]["job_id"], submit()[1]))
        self.toc.cancel_by_key("order_close", "007", key)
        second, known = submit()
        self.assertFalse(known)
        self.assertNotEqual(first, second["job_id"])
        with self.assertRaises(InvalidError):
            self.toc.submit("order_close", self.biz_id, action_time=past)
        fired, _ = self.toc.submit("order_close", self.biz_id, action_time=past, past="fire")
        self.assertEqual("2020-01-02T03:04:05.000Z", fired["action_time"])
        moved = self.toc.reschedule_by_key("order_close", "007", key, action_time=past, past="fire")
        self.assertEqual("2020-01-02T03:04:05.000Z", moved["action_time"])
        for wrong in ("007", " 7", "+7"):
            with self.assertRaises(ValueError):
                self.toc.get(wrong)

    def test_it_fires(self) -> None:
        task, _ = self.toc.submit("order_close", self.biz_id, delay=timedelta())
        done = threading.Event()
        for _ in range(200):
            if self.toc.get(task["job_id"])["status"] == "processed":
                return
            done.wait(0.05)
        self.fail("it has not fired")

    def test_batches_and_lists(self) -> None:
        tasks = [toc_client.submission("order_close", self.biz_id, delay=timedelta(hours=1), dedup_key=str(i)) for i in range(1200)]
        results = self.toc.submit_batch([*tasks, toc_client.submission("nosuch", biz_id=1, delay=timedelta())])
        self.assertEqual(1201, len(results))
        self.assertIn("nosuch", str(results[-1]["error"]))
        listed = [t["job_id"] for t in self.toc.list_tasks(self.biz_id)]
        self.assertEqual(sorted(r["job_id"] for r in results[:-1]), sorted(listed))
        mine = {t["job_id"] for t in self.toc.list_all(biz_type="order_close", since=datetime.now(timezone.utc))}
        self.assertTrue(mine.issuperset(listed))
        self.assertEqual([], list(self.toc.list_dead(biz_type="order_close", error="none like this")))

    def test_dead_and_pause(self) -> None:
        self.assertEqual({"matched": 0, "redriven": 0}, self.toc.redrive_dead(biz_type="order_close", dry_run=True))
        self.assertEqual({"matched": 0, "discarded": 0}, self.toc.discard_dead(since=datetime.now(timezone.utc)))
        self.assertEqual({"matched": 0, "retried": 0}, self.toc.retry("demo"))
        self.assertEqual(0, self.toc.retry("demo", rate=5)["matched"])
        self.toc.pause("demo", reason="a test", until=datetime.now(timezone.utc) + timedelta(minutes=1))
        self.toc.resume("demo")

    def test_refusals(self) -> None:
        with self.assertRaises(NotFoundError):
            self.toc.get(1)
        with self.assertRaises(InvalidError) as invalid:
            self.toc.submit("nosuch", 1, delay=timedelta())
        self.assertEqual("body.biz_type", invalid.exception.errors[0]["location"])
        with self.assertRaises(Error) as refused, Client(SERVER) as nobody_known:
            nobody_known.get(1)
        self.assertEqual(401, refused.exception.status)
        with self.assertRaises(NotFoundError):
            self.toc.resume("../../x y")
        half = {"delay": timedelta(), "attribute": "a\ud800"}
        for wrong in ({}, {"delay": timedelta(), "action_time": datetime.now(timezone.utc)}, {"action_time": datetime(2030, 1, 1)}, half):
            with self.assertRaises(ValueError):
                self.toc.submit("order_close", 1, **wrong)
        for id_ in (-1, 2**64):
            with self.assertRaises(ValueError):
                self.toc.submit("order_close", id_, delay=timedelta())
        for field, wrong, error in (("biz_id", None, TypeError), ("biz_id", 4.5, TypeError), ("biz_id", True, TypeError), ("biz_id", -1, ValueError),
                                    ("delay", "30m", TypeError), ("timeout", "30s", TypeError), ("action_time", "2030-01-01T00:00:00Z", TypeError),
                                    ("action_time", datetime(2030, 1, 1), ValueError)):
            given = {"biz_id": 1, **({} if field == "action_time" else {"delay": 1}), field: wrong}
            with self.subTest(field, wrong=wrong), self.assertRaisesRegex(error, f"^{field} is .*; give "):
                self.toc.submit("order_close", **given)
        with self.assertRaisesRegex(ValueError, "^job_id is 'x'; give "):
            self.toc.get("x")
        given_id = uuid.UUID("6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d")
        self.assertEqual(str(given_id), toc_client.submission("order_close", given_id, delay=1)["biz_id"])
        for url in ("ftp://x", "http://", "http://a?b"):
            with self.assertRaises(ValueError):
                Client(url)

    def test_many_threads(self) -> None:
        wrong = []

        def work(i: int) -> None:
            try:
                task, _ = self.toc.submit("order_close", f"{self.biz_id}-{i}", delay=timedelta(hours=1))
                self.toc.cancel(task["job_id"])
            except Exception as e:
                wrong.append(e)
            finally:
                self.toc.close()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([], wrong)


class Pull(unittest.TestCase):
    setUp = Center.setUp

    def test_a_worker(self) -> None:
        seen: Dict[str, List[int]] = {}

        def run(task: Dict[str, Any], attempt: int) -> None:
            seen.setdefault(task.get("attribute", ""), []).append(attempt)
            if task.get("attribute", "") == "once more" and attempt == 1:
                raise RetryAfter(0.05)
            if task.get("attribute", "") == "gone":
                raise Reject("paid")
            if task.get("attribute", "") == "broken":
                raise ValueError("no\ud800")

        ids = {a: self.toc.submit("pulled", 7, delay=timedelta(0), attribute=a)[0]["job_id"]
               for a in ("well", "once more", "gone", "broken")}
        worker = Worker(self.toc, "pulled", run, threads=4, ttr=timedelta(seconds=20))
        thread = threading.Thread(target=worker.work)
        thread.start()

        def status(a: str) -> str:
            return self.toc.get(ids[a])["status"]

        want = {"well": "processed", "once more": "processed", "gone": "cancelled", "broken": "dead"}
        until = time.time() + 60
        while {a: status(a) for a in ids} != want and time.time() < until:
            time.sleep(0.05)
        worker.stop()
        thread.join()
        self.assertEqual({a: status(a) for a in ids}, want)
        self.assertEqual(self.toc.get(ids["broken"])["last_error"], "ValueError: no?")
        self.assertEqual(seen["once more"], [1, 2])
        again = self.toc.redrive(ids["broken"])
        self.assertEqual(("pending", 0), (again["status"], again["attempts"]))
        self.toc.cancel(again["job_id"])

    def started(self, biz_type: str, run: Callable[[Dict[str, Any], int], None], **more: Any) -> Tuple[Worker, threading.Thread]:
        worker = Worker(self.toc, biz_type, run, **more)
        thread = threading.Thread(target=worker.work)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(worker.stop)
        return worker, thread

    def wait(self, fact: Callable[[], bool]) -> None:
        until = time.time() + 60
        while not fact():
            self.assertLess(time.time(), until)
            time.sleep(0.02)

    def test_a_worker_extends(self) -> None:
        # The lease of a run that takes longer than the ttr is extended, and nobody else gets the task.
        def run(task: Dict[str, Any], _: int) -> None:
            with Client(SERVER, token=TOKEN) as toc:
                first = toc.get(task["job_id"])["running"]["until"]
                self.wait(lambda: bool(toc.get(task["job_id"])["running"]["until"] > first))

        job = self.toc.submit("slow", 1, delay=timedelta(0))[0]["job_id"]
        worker, thread = self.started("slow", run, ttr=6, max_run=600)
        self.wait(lambda: self.toc.get(job)["status"] == "processed")
        worker.stop()
        thread.join()
        self.assertEqual(0, self.toc.get(job)["attempts"])

    def test_a_worker_stops(self) -> None:
        # A worker that is stopped settles what runs, and takes nothing more.
        runs, go = threading.Event(), threading.Event()

        def run(*_: Any) -> None:
            runs.set()
            go.wait()

        job = self.toc.submit("stopped", 1, delay=timedelta(0))[0]["job_id"]
        worker, thread = self.started("stopped", run, threads=2)
        self.addCleanup(go.set)
        runs.wait()
        stopped = time.monotonic()
        worker.stop()
        thread.join(0.7)
        self.assertTrue(thread.is_alive(), "it waits for the task that runs")
        go.set()
        thread.join()
        self.assertLess(time.monotonic() - stopped, 15, "it hangs up, and does not wait for tasks")
        self.assertEqual("processed", self.toc.get(job)["status"])
        after = self.toc.submit("stopped", 1, delay=timedelta(0))[0]["job_id"]
        got = self.toc.lease("stopped", 2, wait=timedelta(seconds=20))["tasks"]
        self.assertEqual([after], [one["task"]["job_id"] for one in got])
        self.toc.settle([{"lease": got[0]["lease"], "do": "ack"}])

    def test_a_worker_is_refused(self) -> None:
        for biz_type, kind in (("nobody", NotFoundError), ("order_close", InvalidError)):
            with self.assertRaises(kind):
                Worker(self.toc, biz_type, lambda *_: None).work()
        with self.assertRaises(TypeError):
            Worker(self.toc, "pulled", None)
        for threads in (0, 257):
            with self.assertRaises(ValueError):
                Worker(self.toc, "pulled", lambda *_: None, threads=threads)

    def test_leases(self) -> None:
        with self.assertRaises(NotFoundError):
            self.toc.lease("nobody")
        with self.assertRaises(InvalidError):
            self.toc.lease("order_close")
        job = self.toc.submit("pulled", 9, delay=timedelta(0))[0]["job_id"]
        got = self.toc.lease("pulled", wait=10, ttr=60.0)["tasks"]
        self.assertEqual([one["task"]["job_id"] for one in got], [job])
        lease = got[0]["lease"]
        self.assertEqual([r["result"] for r in self.toc.settle([{"lease": "x", "do": "ack"}, {"lease": lease, "do": "extend", "ttr": "1m"},
                                                                {"lease": lease, "do": "ack"}, {"lease": lease, "do": "ack"}])],
                         ["invalid", "ok", "ok", "lost"])


class Fakes(unittest.TestCase):
    """The servers of TOC_FAKE do what the first part of their path says."""

    def client(self, *servers: str, **more: Any) -> Client:
        toc = Client(*servers, **more)
        self.addCleanup(toc.close)
        return toc

    def server(self, behaviour: str) -> str:
        """A server that does so, with a count of its own."""
        return f"{FAKE}/{behaviour}/{uuid.uuid4()}"

    def calls(self, server: str, end: str = "") -> int:
        """How many requests it got, to paths with that end."""
        with urllib.request.urlopen(f"{FAKE}/calls/{server.split('/')[-1]}{end}", timeout=30) as answer:
            return int(answer.read())


class Gather(Fakes):
    def setUp(self) -> None:
        self.biz_id = f"{self.id()}-{os.getpid()}"
        self.outcomes: Dict[str, Any] = {}
        self.threads: List[threading.Thread] = []

    def release(self, server: str) -> None:
        urllib.request.urlopen(f"{FAKE}/release/{server.split('/')[-1]}", timeout=30).close()

    def wait(self, fact: Callable[[], bool]) -> None:
        until = time.time() + 60
        while not fact():
            self.assertLess(time.time(), until)
            time.sleep(0.02)

    def submit(self, toc: Client, name: str, biz_type: str = "order_close", **more: Any) -> None:
        """Submits in another thread."""

        def run() -> None:
            try:
                self.outcomes[name] = toc.submit(biz_type, self.biz_id, delay=3600, attribute=name, **more)
            except Exception as e:
                self.outcomes[name] = e
            toc.close()

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join()

    def fill(self, behaviour: str, *more: str) -> Tuple[Client, str]:
        """A client with two submits under way at a server that holds them, as long as it takes, and six behind them."""
        patched = unittest.mock.patch("toc_client._gather._SLOW", 600)
        patched.start()
        self.addCleanup(patched.stop)
        server = self.server("held-" + behaviour)
        toc = self.client(server, *more, token=TOKEN)
        for i in range(2):
            self.submit(toc, f"first {i}")
        self.wait(lambda: self.calls(server) == 2)
        for i in range(5):
            self.submit(toc, str(i))
        self.submit(toc, "nosuch", biz_type="nosuch")
        self.wait(lambda: len(toc._gatherer.others.waiting) == 6)
        return toc, server

    def test_submits_go_together(self) -> None:
        toc, server = self.fill("center")
        for i in range(2):
            self.submit(toc, f"safe {i}", dedup_key="k")
        self.wait(lambda: self.calls(server) == 4)  # they are not behind the others
        self.release(server)
        self.join()
        self.assertEqual(5, self.calls(server))
        self.assertEqual(1, self.calls(server, "/batch"))
        alone = self.client(SERVER, token=TOKEN, gather=False)
        with self.assertRaises(InvalidError) as invalid:
            alone.submit("nosuch", self.biz_id, delay=3600)
        wrong = self.outcomes.pop("nosuch")
        self.assertIsInstance(wrong, InvalidError)
        self.assertEqual((str(invalid.exception), invalid.exception.errors), (str(wrong), wrong.errors))
        self.assertEqual(9, len(self.outcomes))
        for name, (task, known) in self.outcomes.items():
            self.assertEqual(task, alone.get(task["job_id"]))
            if name.startswith("safe"):
                continue
            self.assertEqual((name, False), (task["attribute"], known))
        self.assertEqual([False, True], sorted(self.outcomes[f"safe {i}"][1] for i in range(2)))

    def test_a_slow_request_holds_up_no_other(self) -> None:
        server = self.server("held-center")
        toc = self.client(server, token=TOKEN)
        for i in range(2):
            self.submit(toc, f"first {i}")
        self.wait(lambda: self.calls(server) == 2)
        self.submit(toc, "another")
        self.wait(lambda: self.calls(server) == 3)
        self.release(server)
        self.join()
        self.assertEqual(3, len([one for one in self.outcomes.values() if isinstance(one, tuple)]))

    def test_gathering_at_an_older_center(self) -> None:
        _, server = self.fill("old")
        self.release(server)
        self.join()
        self.assertEqual(2 + 1 + 6, self.calls(server))
        self.assertIsInstance(self.outcomes.pop("nosuch"), InvalidError)
        self.assertEqual({name: name for name in self.outcomes}, {name: one[0]["attribute"] for name, one in self.outcomes.items()})

    def test_gathered_submits_get_no_answer(self) -> None:
        good = self.server("center")
        _, bad = self.fill("0", good)
        self.release(bad)
        self.join()
        self.assertEqual((3, 0), (self.calls(bad), self.calls(good)), "they are not safe to repeat")
        for one in self.outcomes.values():
            self.assertIsInstance(one, (OSError, HTTPException))

    def test_a_thread_is_interrupted(self) -> None:
        patched = unittest.mock.patch("toc_client._gather._SLOW", 600)
        patched.start()
        self.addCleanup(patched.stop)
        go, outcomes = threading.Event(), []

        def send(path: str, text: bytes, safe: bool) -> Tuple[int, Any]:
            if path.endswith("/batch"):
                raise KeyboardInterrupt
            go.wait()
            return 201, {}

        gatherer = Gatherer(send, False)

        def submit() -> None:
            try:
                outcomes.append(type(gatherer.submit(b"{}", False)))
            except BaseException as e:
                outcomes.append(type(e))

        threads = [threading.Thread(target=submit) for _ in range(5)]
        for i, thread in enumerate(threads):
            thread.start()
            self.wait(lambda: len(gatherer.others.waiting) == max(0, i - 1))
        go.set()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(map(str, [tuple, tuple, KeyboardInterrupt, ConnectionError, ConnectionError])), sorted(map(str, outcomes)))


class WorkerRequests(Fakes):
    def work(self, behaviour: str) -> str:
        """Has a worker with one thread run five tasks, and returns its server."""
        with Client(SERVER, token=TOKEN) as toc:
            ids = [toc.submit("pulled", i, delay=0)[0]["job_id"] for i in range(5)]
            server = self.server(behaviour)
            worker = Worker(self.client(server, token=TOKEN), "pulled", lambda *_: None, threads=1)
            thread = threading.Thread(target=worker.work)
            thread.start()
            until = time.time() + 60
            while {toc.get(i)["status"] for i in ids} != {"processed"} and time.time() < until:
                time.sleep(0.02)
            worker.stop()
            thread.join()
            self.assertEqual({"processed"}, {toc.get(i)["status"] for i in ids})
        return server

    def test_a_worker_settles_with_its_next_lease(self) -> None:
        self.assertEqual(0, self.calls(self.work("center"), "/settle"))

    def test_a_worker_at_an_older_center(self) -> None:
        self.assertGreater(self.calls(self.work("old"), "/settle"), 0)


class Failover(Fakes):

    def test_what_is_safe_goes_on(self) -> None:
        hour = timedelta(hours=1)
        keyed = toc_client.submission("a", 1, delay=hour, dedup_key="k")
        for status in ("0", "502", "503", "504"):
            for safe, call in (
                (True, lambda toc: toc.get(7)),
                (True, lambda toc: toc.submit("a", 1, delay=hour, dedup_key="k")),
                (True, lambda toc: toc.submit_batch([keyed])),
                (False, lambda toc: toc.submit("a", 1, delay=hour)),
                (False, lambda toc: toc.submit_batch([keyed, toc_client.submission("a", 1, delay=hour)])),
                (False, lambda toc: toc.submit("a", 1, delay=hour, dedup_key="k", on_duplicate="move")),
                (False, lambda toc: toc.submit("a", 1, delay=hour, dedup_key="k", on_duplicate="again")),
                (False, lambda toc: toc.cancel(7)),
                (False, lambda toc: toc.settle([{"lease": "x", "do": "ack"}])),
            ):
                bad, good = self.server(status), self.server("200")
                toc = self.client(bad, good)
                if safe:
                    call(toc)
                else:
                    with self.assertRaises((Error, OSError, HTTPException)):
                        call(toc)
                self.assertEqual((1, int(safe)), (self.calls(bad), self.calls(good)))

    def test_a_server_is_not_there(self) -> None:
        good = self.server("200")
        toc = self.client(nobody(), good)
        toc.cancel(7)
        toc.cancel(7)
        self.assertEqual(2, self.calls(good))
        with self.assertRaisesRegex(toc_client.UnreachableError, "^no server can be reached: http://127.0.0.1:.*refused"):
            self.client(nobody(), nobody()).get(1)
        with self.assertRaises(NotFoundError):
            self.client(self.server("404"), good).get(1)
        self.assertEqual(2, self.calls(good))

    def test_bad_answers(self) -> None:
        for silent in ("hang", "drip"):
            for call in (lambda toc: toc.get(7), lambda toc: toc.cancel(7)):
                with self.assertRaises(TimeoutError if sys.version_info >= (3, 10) else OSError):
                    call(self.client(self.server(silent), timeout=0.3))
        for garbage in ("html", "list", "deep", "short", "latin1", "0"):
            with self.assertRaises((HTTPException, ConnectionError)):
                self.client(self.server(garbage)).cancel(7)
        thief = self.server("redirect")
        with self.assertRaises(Error) as refused:
            self.client(thief, token="secret-of-mine-123").get(7)
        self.assertEqual((302, 1), (refused.exception.status, self.calls(thief)))

    def test_more_than_1024_files_are_open(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 1200:
            self.skipTest(f"this machine allows {hard} open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        toc = self.client(self.server("200"))
        files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1050)]
        try:
            toc.get(7)
            toc.get(7)
        finally:
            for f in files:
                os.close(f)


class Vectors(unittest.TestCase):
    def test_signatures(self) -> None:
        for v in VECTORS["signatures"]:
            with self.subTest(v["name"]):
                headers = {"Webhook-Id": v["id"], "Webhook-Timestamp": v["timestamp"], "Webhook-Signature": v["signature"]}
                for now, valid in ((0, v["valid"]), (299, v["valid"]), (-299, v["valid"]), (301, False), (-301, False)):
                    try:
                        toc_client.verify(v["secret"], headers, v["body"].encode(), now=int(v["timestamp"]) + now)
                        environ = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
                        toc_client.verify(v["secret"], environ, v["body"], now=int(v["timestamp"]) + now)
                        self.assertTrue(valid)
                    except toc_client.SignatureError:
                        self.assertFalse(valid)
        with self.assertRaises(toc_client.SignatureError):
            toc_client.verify("a secret of some length", {}, b"")
        with self.assertRaisesRegex(ValueError, "no base64"):
            toc_client.verify("whsec_" + "x" * 41, {}, b"")
        for v in VECTORS["weak_secrets"]:
            headers = {"Webhook-Id": v["id"], "Webhook-Timestamp": v["timestamp"], "Webhook-Signature": v["signature"]}
            with self.subTest(v["secret"]), self.assertRaises(ValueError):
                toc_client.verify(v["secret"], headers, v["body"].encode(), now=int(v["timestamp"]))

    def test_refusal_vectors(self) -> None:
        kinds = {"not found": NotFoundError, "conflict": ConflictError, "changed": toc_client.ChangedError,
                 "invalid": InvalidError, "unavailable": toc_client.UnavailableError, "other": Error}
        for v in VECTORS["refusals"]:
            with self.subTest(v["status"]):
                headers = {"Content-Type": "application/problem+json", "Retry-After": v.get("retry_after", "")}
                got = refusal(v["status"], "", headers, json.dumps(v["body"]).encode())
                self.assertIs(kinds[v["kind"]], type(got))
                self.assertEqual(v["text"], str(got))
                self.assertEqual(int(v.get("retry_after", 0)), got.retry_after)
        for text in (b"[]", b"7", b"{", b"[" * 100000, b'{"errors":[1,null,{}],"task":7}', b'{"errors":7}'):
            self.assertIs(toc_client.ChangedError, type(refusal(412, "", {"Content-Type": "application/problem+json"}, text)))
        strange = refusal(502, "Bad Gateway", {"Content-Type": "text/html"}, b"<html>")
        self.assertEqual("502 Bad Gateway: '<html>'", str(strange))


class Once(unittest.TestCase):
    def test_work_is_done_once(self) -> None:
        done, runs = Dedup(size=2), []
        self.assertTrue(done.do("1", lambda: runs.append(1)))
        self.assertFalse(done.do("1", lambda: runs.append(1)))
        with self.assertRaises(ZeroDivisionError):
            done.do("2", lambda: 1 / 0)
        self.assertTrue(done.do("2", lambda: runs.append(2)))

        def nested() -> None:
            with self.assertRaises(UnderWay):
                done.do("3", lambda: runs.append(3))

        self.assertTrue(done.do("3", nested))
        self.assertTrue(done.do("1", lambda: runs.append(4)), "it is forgotten")
        self.assertEqual([1, 2, 4], runs)


if __name__ == "__main__":
    unittest.main()
