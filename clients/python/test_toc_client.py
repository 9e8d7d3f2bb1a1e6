"""Tests of the client against a real center (TOC_SERVER, TOC_TOKEN) and the vectors that all clients share."""

import json
import os
import socket
import threading
import time
import unittest
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import toc_client
from toc_client import Client, ConflictError, Dedup, Error, InvalidError, NotFoundError, Reject, RetryAfter, UnderWay, Worker
from toc_client._errors import refusal

VECTORS = json.loads((Path(__file__).parent.parent / "testdata" / "vectors.json").read_text("utf-8"))
SERVER, TOKEN = os.environ["TOC_SERVER"], os.environ["TOC_TOKEN"]


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
        self.toc.cancel(task["job_id"])
        with self.assertRaises(ConflictError) as conflict:
            self.toc.cancel(task["job_id"])
        self.assertEqual("already_cancelled", conflict.exception.outcome)

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
        results = self.toc.submit_batch([*tasks, toc_client.submission("nosuch", 1, delay=timedelta())])
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
        for wrong in ({}, {"delay": timedelta(), "action_time": datetime.now(timezone.utc)}, {"action_time": datetime(2030, 1, 1)}):
            with self.assertRaises(ValueError):
                self.toc.submit("order_close", 1, **wrong)
        with self.assertRaises(ValueError):
            Client("ftp://x")

    def test_a_server_is_not_there(self) -> None:
        toc = Client(nobody(), SERVER, token=TOKEN)
        self.addCleanup(toc.close)
        task, _ = toc.submit("order_close", self.biz_id, delay=timedelta(hours=1))
        toc.cancel(task["job_id"])
        with self.assertRaises(OSError):
            Client(nobody(), nobody()).get(1)

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
        seen: dict[str, list[int]] = {}
        done = threading.Event()

        def run(task: dict, attempt: int) -> None:
            seen.setdefault(task["attribute"], []).append(attempt)
            if task["attribute"] == "once more" and attempt == 1:
                raise RetryAfter(timedelta(milliseconds=50))
            if task["attribute"] == "gone":
                raise Reject("paid")
            if task["attribute"] == "broken":
                raise ValueError("no")
            if len(seen) == 4 and seen["once more"] == [1, 2]:
                done.set()

        ids = {a: self.toc.submit("pulled", 7, delay=timedelta(0), attribute=a)[0]["job_id"]
               for a in ("well", "once more", "gone", "broken")}
        worker = Worker(self.toc, "pulled", run, threads=4, ttr=timedelta(seconds=20))
        thread = threading.Thread(target=worker.work)
        thread.start()

        def status(a: str) -> str:
            return self.toc.get(ids[a])["status"]

        want = {"well": "processed", "once more": "processed", "gone": "cancelled", "broken": "dead"}
        until = time.time() + 30
        while {a: status(a) for a in ids} != want and time.time() < until:
            time.sleep(0.05)
        worker.stop()
        self.toc.submit("pulled", 8, delay=timedelta(0))  # ends the wait of the worker
        thread.join()
        self.assertEqual({a: status(a) for a in ids}, want)
        self.assertEqual(self.toc.get(ids["broken"])["last_error"], "ValueError: no")
        self.assertEqual(seen["once more"], [1, 2])

    def test_leases(self) -> None:
        with self.assertRaises(NotFoundError):
            self.toc.lease("nobody")
        with self.assertRaises(InvalidError):
            self.toc.lease("order_close")
        job = self.toc.submit("pulled", 9, delay=timedelta(0))[0]["job_id"]
        got = self.toc.lease("pulled", wait=timedelta(seconds=10))["tasks"]
        self.assertEqual([one["task"]["job_id"] for one in got], [job])
        lease = got[0]["lease"]
        self.assertEqual([r["result"] for r in self.toc.settle([{"lease": "x", "do": "ack"}, {"lease": lease, "do": "extend", "ttr": "1m"},
                                                                {"lease": lease, "do": "ack"}, {"lease": lease, "do": "ack"}])],
                         ["invalid", "ok", "ok", "lost"])


class Failover(unittest.TestCase):
    def serve(self, status: int) -> tuple:
        """A server that answers with a status, or hangs up (0), and its calls."""
        calls = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                calls.append(self.command)
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", "14")
                self.end_headers()
                self.wfile.write(b'{"job_id":"7"}')

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}", calls

    def test_what_is_safe_goes_on(self) -> None:
        hour = timedelta(hours=1)
        for status in (0, 502, 503, 504):
            for safe, call in (
                (True, lambda toc: toc.get(7)),
                (True, lambda toc: toc.submit("a", 1, delay=hour, dedup_key="k")),
                (False, lambda toc: toc.submit("a", 1, delay=hour)),
                (False, lambda toc: toc.submit("a", 1, delay=hour, dedup_key="k", on_duplicate="move")),
                (False, lambda toc: toc.cancel(7)),
            ):
                (bad, bad_calls), (good, good_calls) = self.serve(status), self.serve(200)
                toc = Client(bad, good)
                self.addCleanup(toc.close)
                if safe:
                    call(toc)
                else:
                    with self.assertRaises(Exception):
                        call(toc)
                self.assertEqual((1, int(safe)), (len(bad_calls), len(good_calls)))


class Vectors(unittest.TestCase):
    def test_signatures(self) -> None:
        for v in VECTORS["signatures"]:
            with self.subTest(v["name"]):
                headers = {"Webhook-Id": v["id"], "Webhook-Timestamp": v["timestamp"], "Webhook-Signature": v["signature"]}
                for now, valid in ((0, v["valid"]), (299, v["valid"]), (-299, v["valid"]), (301, False), (-301, False)):
                    try:
                        toc_client.verify(v["secret"], headers, v["body"].encode(), now=int(v["timestamp"]) + now)
                        self.assertTrue(valid)
                    except toc_client.SignatureError:
                        self.assertFalse(valid)
        with self.assertRaises(toc_client.SignatureError):
            toc_client.verify("secret", {}, b"")

    def test_refusals(self) -> None:
        kinds = {"not found": NotFoundError, "conflict": ConflictError, "changed": toc_client.ChangedError,
                 "invalid": InvalidError, "unavailable": toc_client.UnavailableError, "other": Error}
        for v in VECTORS["refusals"]:
            with self.subTest(v["status"]):
                headers = {"Content-Type": "application/problem+json", "Retry-After": v.get("retry_after", "")}
                got = refusal(v["status"], "", headers, json.dumps(v["body"]).encode())
                self.assertIs(kinds[v["kind"]], type(got))
                self.assertEqual(v["text"], str(got))
                self.assertEqual(int(v.get("retry_after", 0)), got.retry_after)
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
