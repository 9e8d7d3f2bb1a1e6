"""The way to a server."""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import threading
import time
from typing import Any, Mapping
from urllib.parse import SplitResult, urlsplit

from ._errors import UnreachableError, refusal
from ._values import encode

_TRY = 5.0  # seconds that a request is tried at one server while others are left
_AGE = 60.0  # seconds for which a connection is used again
_MAX_ANSWER = 64 << 20  # bytes
_PART = 1 << 16  # bytes


class Stop:
    """A stop that any thread, and a signal handler, may call."""

    _GRACE = 0.5  # seconds: an answer may be under way

    def __init__(self) -> None:
        self.at: float | None = None
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)

    def stop(self) -> None:
        if self.at is None:
            self.at = time.monotonic()
            self._write.send(b"x")

    def pause(self, seconds: float) -> None:
        """Waits, until stop at most."""
        readable(seconds, self._read)

    def wait(self, answer: socket.socket, seconds: float) -> None:
        """Waits until an answer comes in."""
        if answer not in readable(seconds, answer, self._read):
            left = self._GRACE if self.at is None else self.at + self._GRACE - time.monotonic()
            if not readable(max(0, left), answer):
                raise TimeoutError("the request was given up")

    def close(self) -> None:
        self._read.close()
        self._write.close()


def readable(seconds: float, *sockets: socket.socket) -> list[Any]:
    """Waits until one of the sockets has something to read, and returns those that have."""
    with selectors.DefaultSelector() as selector:
        for s in sockets:
            selector.register(s, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds)]


class Transport:
    """Takes requests to one of the servers; see Client."""

    def __init__(self, servers: tuple[str, ...], token: str) -> None:
        self._servers = [_split(s) for s in servers]
        self._token = token
        self._current = 0
        self._local = threading.local()  # connections: http.client's serve one thread

    def call(self, method: str, path: str, body: Mapping[str, Any] | bytes | None, *, timeout: float, etag: str = "", safe: bool,
             stop: Stop | None = None) -> tuple[int, Any]:
        """Makes a request, and returns the status and the body of an answer that is no refusal. timeout bounds each try."""
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        if etag:
            headers["If-Match"] = etag
        sent = None
        if body is not None:
            sent = body if isinstance(body, bytes) else encode(body)
            headers["Content-Type"] = "application/json"
        n, first, sent_before = len(self._servers), self._current, False
        for i in range(n):
            at, last = (first + i) % n, i == n - 1
            reached = False
            try:
                until = time.monotonic() + (min(timeout, _TRY) if safe and not last else timeout)
                conn, used = self._connection(at, until)
                if conn.sock is None:
                    conn.connect()
                    self._local.born[at] = time.monotonic()
                reached = True
                answer, text = self._send(conn, used, until, method, self._servers[at].path + path, sent, headers, stop)
            except (OSError, http.client.HTTPException) as e:
                self._forget(at)
                if last and not reached and not sent_before:
                    raise UnreachableError(", ".join(u.geturl() for u in self._servers), e) from e
                if last or reached and not safe:
                    raise
                sent_before = sent_before or reached
                continue
            if answer.status in (502, 503, 504) and safe and not last:
                sent_before = True
                continue
            if not 200 <= answer.status <= 299:
                raise refusal(answer.status, answer.reason, answer.headers, text)
            result = _read(f"{method} {path}", text, answer.headers.get("ETag"))
            self._current = at
            return answer.status, result
        raise AssertionError("the last server always answers or raises")

    def _send(self, conn: http.client.HTTPConnection, used: bool, until: float, method: str, path: str, body: bytes | None,
              headers: Mapping[str, str], stop: Stop | None) -> tuple[http.client.HTTPResponse, bytes]:
        for again in (used, False):
            try:
                conn.request(method, path, body, dict(headers))
                if stop is not None:
                    stop.wait(conn.sock, _left(until))
                answer = conn.getresponse()
                return answer, _body(conn, answer, until)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # The server closes idle connections. A GET is sent once more on a new one.
                if not again or method != "GET":
                    raise
                conn.close()
                conn.timeout = _left(until)
        raise AssertionError("the second try returns or raises")

    def _connection(self, at: int, until: float) -> tuple[http.client.HTTPConnection, bool]:
        """The connection of this thread to a server, and whether it has been used before."""
        open_ = self._local.__dict__.setdefault("connections", {})
        conn: http.client.HTTPConnection | None = open_.get(at)
        used = conn is not None
        if conn is None:
            u = self._servers[at]
            make = http.client.HTTPSConnection if u.scheme == "https" else http.client.HTTPConnection
            conn = open_[at] = make(u.hostname or "", u.port)
        born = self._local.__dict__.setdefault("born", {})
        old = time.monotonic() - born.get(at, 0.0) > _AGE  # its name may mean another server by now
        if conn.sock is not None and (old or readable(0, conn.sock)):
            conn.close()  # or the server has closed it while it was idle
            used = False
        conn.timeout = _left(until)
        if conn.sock is not None:
            conn.sock.settimeout(conn.timeout)
        return conn, used

    def _forget(self, at: int) -> None:
        conn = self._local.__dict__.get("connections", {}).pop(at, None)
        if conn is not None:
            conn.close()

    def close(self) -> None:
        """Closes the connections of this thread."""
        for at in list(self._local.__dict__.get("connections", {})):
            self._forget(at)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the answer took too long")
    return left


def _body(conn: http.client.HTTPConnection, answer: http.client.HTTPResponse, until: float) -> bytes:
    """Reads a body, bounded in time and size."""
    text = b""
    while True:
        if conn.sock is not None:  # None: the connection ends with the answer, and its time is bounded part by part
            conn.sock.settimeout(_left(until))
        _left(until)
        part = answer.read1(_PART)
        if not part:
            if answer.length:
                raise http.client.IncompleteRead(text, answer.length)
            answer.close()  # so that the connection can be used again
            return text
        text += part
        if len(text) > _MAX_ANSWER:
            raise http.client.HTTPException(f"the answer is larger than {_MAX_ANSWER} bytes")


def _read(what: str, text: bytes, etag: str | None) -> dict[str, Any]:
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict):
        raise http.client.HTTPException(f"{what}: whatever answered is no timeout center")
    if etag:
        result["etag"] = etag
    return result


def _split(server: str) -> SplitResult:
    u = urlsplit(server if "://" in server else "http://" + server)
    if u.scheme not in ("http", "https") or not u.hostname or u.query:
        raise ValueError(f"{server!r} is not the URL of a server; write http://host:port")
    return u._replace(path=u.path.rstrip("/"))
