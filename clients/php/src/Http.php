<?php

declare(strict_types=1);

namespace Toc;

/**
 * One request over a connection of its own. The whole of it, with the answer's body, is bounded in time and size.
 *
 * @internal
 */
final class Http
{
    private const MAX_ANSWER = 64 << 20; // bytes
    private const PART = 1 << 16; // bytes

    /** @var resource */
    private $stream;

    /** @param (callable(): bool)|null $givesUp asked now and then while it waits: whether to hang up */
    private function __construct(private readonly float $deadline, private readonly mixed $givesUp)
    {
    }

    /**
     * Sends a request to a server, and returns status, reason, headers by names in lower case, and body.
     *
     * @param array<string, mixed> $tls options of PHP's ssl context
     * @return array{int, string, array<string, string>, string}
     */
    public static function send(string $address, array $tls, string $request, float $timeout, float $connect, ?callable $givesUp): array
    {
        $http = new self(microtime(true) + $timeout, $givesUp);
        $stream = @stream_socket_client($address, $code, $message, min($connect, $timeout), STREAM_CLIENT_CONNECT, stream_context_create(['ssl' => $tls]));
        if ($stream === false) {
            throw new ConnectError("$address: no connection: " . ($message ?: 'TLS failed'));
        }
        $http->stream = $stream;
        try {
            stream_set_blocking($stream, false);
            $http->write($request);

            return $http->read();
        } finally {
            fclose($stream);
        }
    }

    private function write(string $text): void
    {
        for ($at = 0; $at < strlen($text);) {
            $n = @fwrite($this->stream, substr($text, $at, self::PART));
            if ($n === false) {
                throw new TransportError('the connection broke while the request was sent');
            }
            if ($n === 0) {
                $this->wait(true);
            }
            $at += $n;
        }
    }

    /** Waits until there is something to read or room to write. */
    private function wait(bool $writes): void
    {
        $left = $this->deadline - microtime(true);
        if ($left <= 0) {
            throw new TransportError('the answer took too long');
        }
        if ($this->givesUp !== null && ($this->givesUp)()) {
            throw new TransportError('the caller gave up');
        }
        $left = min($left, $this->givesUp === null ? $left : 0.2);
        $read = $writes ? null : [$this->stream];
        $write = $writes ? [$this->stream] : null;
        $except = null;
        @stream_select($read, $write, $except, (int) $left, (int) (fmod($left, 1) * 1e6)); // a signal ends it, too
    }

    /** @return array{int, string, array<string, string>, string} */
    private function read(): array
    {
        $text = '';
        $head = null;
        while (true) {
            $part = @fread($this->stream, self::PART);
            if ($part === false || $part === '') {
                if (feof($this->stream)) {
                    return self::answer($head ?? throw new TransportError('the connection broke before the answer'), $text, true);
                }
                $this->wait(false);
                continue;
            }
            $text .= $part;
            if (strlen($text) > self::MAX_ANSWER) {
                throw new TransportError('the answer is larger than ' . self::MAX_ANSWER . ' bytes');
            }
            if (microtime(true) > $this->deadline) {
                throw new TransportError('the answer took too long');
            }
            while ($head === null && ($end = strpos($text, "\r\n\r\n")) !== false) {
                $head = self::head(substr($text, 0, $end));
                $text = substr($text, $end + 4);
                if ($head[0] < 200) {
                    $head = null; // such as 100 Continue
                }
            }
            if ($head !== null && self::isWhole($head[2], $text)) {
                return self::answer($head, $text, false);
            }
        }
    }

    /** @return array{int, string, array<string, string>} */
    private static function head(string $text): array
    {
        $lines = explode("\r\n", $text);
        if (preg_match('#^HTTP/1\.[01] (\d{3})(?: (.*))?$#D', (string) array_shift($lines), $m) !== 1) {
            throw new TransportError('the answer is no HTTP');
        }
        $headers = [];
        foreach ($lines as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $headers[strtolower($name)] = trim($value);
        }

        return [(int) $m[1], $m[2] ?? '', $headers];
    }

    /** @param array<string, string> $headers */
    private static function isChunked(array $headers): bool
    {
        return strtolower($headers['transfer-encoding'] ?? '') === 'chunked';
    }

    /** @param array<string, string> $headers */
    private static function isWhole(array $headers, string $text): bool
    {
        if (self::isChunked($headers)) {
            return str_ends_with($text, "0\r\n\r\n") && self::dechunk($text) !== null;
        }

        return isset($headers['content-length']) && strlen($text) >= (int) $headers['content-length'];
    }

    /**
     * @param array{int, string, array<string, string>} $head
     * @return array{int, string, array<string, string>, string}
     */
    private static function answer(array $head, string $text, bool $isOver): array
    {
        [$status, $reason, $headers] = $head;
        if ($isOver && !self::isWhole($headers, $text) && (self::isChunked($headers) || isset($headers['content-length']))) {
            throw new TransportError('the connection broke in the middle of the answer');
        }
        $body = match (true) {
            self::isChunked($headers) => (string) self::dechunk($text),
            isset($headers['content-length']) => substr($text, 0, (int) $headers['content-length']),
            default => $text,
        };

        return [$status, $reason, $headers, $body];
    }

    /** Puts chunks together; null: some are missing. */
    private static function dechunk(string $text): ?string
    {
        $body = '';
        for ($at = 0; preg_match('/\G([0-9a-fA-F]{1,8})[^\r\n]*\r\n/', $text, $m, 0, $at) === 1;) {
            $size = (int) hexdec($m[1]);
            $at += strlen($m[0]);
            if ($size === 0) {
                return $body;
            }
            if (substr($text, $at + $size, 2) !== "\r\n") {
                return null;
            }
            $body .= substr($text, $at, $size);
            $at += $size + 2;
        }

        return null;
    }
}
