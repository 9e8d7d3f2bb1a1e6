"""Tests of Dedup with a real Redis (TOC_REDIS, host:port) that it shares with the package dedup of Go."""

import os
import socket
import unittest
from datetime import timedelta
from typing import Any, Optional

from toc_client import Dedup, UnderWay


class Redis:
    """What Dedup needs of redis-py."""

    def __init__(self) -> None:
        host, _, port = os.environ["TOC_REDIS"].rpartition(":")
        self._sock = socket.create_connection((host, int(port)))
        self._answers = self._sock.makefile("rb")

    def _call(self, *words: Any) -> Any:
        parts = [str(w).encode() for w in words]
        self._sock.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        kind, rest = self._answers.read(1), self._answers.readline()
        if kind == b"$":
            return None if int(rest) < 0 else self._answers.read(int(rest) + 2)[:-2]
        if kind == b"-":
            raise RuntimeError(rest)
        return rest.strip()

    def set(self, name: str, value: str, px: int, nx: bool = False) -> Any:
        return self._call("SET", name, value, "PX", px, *["NX"] * nx)

    def get(self, name: str) -> Optional[bytes]:
        answer: Optional[bytes] = self._call("GET", name)
        return answer

    def eval(self, script: str, keys: int, *args: str) -> Any:
        return self._call("EVAL", script, keys, *args)

    def close(self) -> None:
        self._answers.close()
        self._sock.close()


class Shared(unittest.TestCase):
    def setUp(self) -> None:
        self.redis = Redis()
        self.addCleanup(self.redis.close)
        self.prefix = os.environ["TOC_PREFIX"]
        self.one = Dedup(redis=self.redis, prefix=self.prefix)
        self.other = Dedup(redis=self.redis, prefix=self.prefix)

    def test_work_is_done_once_by_two(self) -> None:
        runs = []
        self.assertTrue(self.one.do("1", lambda: runs.append(1)))
        self.assertFalse(self.other.do("1", lambda: runs.append(2)))
        self.assertFalse(self.other.do("1", lambda: runs.append(3)))
        with self.assertRaises(ZeroDivisionError):
            self.one.do("2", lambda: 1 / 0)

        def nested() -> None:
            with self.assertRaises(UnderWay):
                self.other.do("2", lambda: runs.append(4))
            runs.append(5)

        self.assertTrue(self.one.do("2", nested))
        self.assertEqual([1, 5], runs)

    def test_a_process_dies_at_work(self) -> None:
        dying = Dedup(redis=self.redis, prefix=self.prefix, timeout=timedelta(milliseconds=1))
        self.assertFalse(dying._is_done_elsewhere("3", "token"))
        while self.redis.get(self.prefix + "3") is not None:
            pass
        self.assertTrue(self.other.do("3", lambda: None))

    def test_with_go(self) -> None:
        self.assertFalse(self.one.do("by go", lambda: self.fail("it is done")))
        self.assertTrue(self.one.do("by python", lambda: None))

    def test_redis_is_lost(self) -> None:
        gone = Redis()
        lost = Dedup(redis=gone, prefix=self.prefix)
        self.assertTrue(lost.do("4", gone.close))  # it is done, and remembered here
        self.assertFalse(lost.do("4", lambda: self.fail("it is done")))
        with self.assertRaises((OSError, ValueError)):
            lost.do("5", lambda: self.fail("nobody knows whether it is done"))
