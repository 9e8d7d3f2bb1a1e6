<?php

declare(strict_types=1);

namespace Toc;

/**
 * Takes requests to one of the servers. A request goes to the one that answered last. If no connection to it can be made,
 * the next one is tried, each once. What is safe to repeat is tried at the next one also after a lost answer, after TRY
 * seconds without one, and after a 502, 503 or 504.
 *
 * @internal
 */
final class Transport
{
    private const TRY = 5.0; // seconds that a request is tried at one server while others are left

    /** @var list<array{address: string, host: string, path: string}> */
    private readonly array $servers;
    private int $current = 0;

    /**
     * @param list<string> $servers
     * @param array<string, mixed> $tls
     */
    public function __construct(array $servers, private readonly string $token, private readonly array $tls)
    {
        $this->servers = array_map(self::split(...), $servers);
        self::header('token', $token);
    }

    /** @return array{address: string, host: string, path: string} */
    private static function split(string $server): array
    {
        $u = parse_url(str_contains($server, '://') ? $server : "http://$server");
        $scheme = $u['scheme'] ?? '';
        if (!in_array($scheme, ['http', 'https'], true) || ($u['host'] ?? '') === '' || isset($u['query']) || isset($u['user'])
            || preg_match('/[\x00-\x20\x7f]/', $server) === 1) {
            throw new \InvalidArgumentException("\"$server\" is not the URL of a server; write http://host:port");
        }
        $port = $u['port'] ?? ($scheme === 'https' ? 443 : 80);

        return [
            'address' => ($scheme === 'https' ? 'tls' : 'tcp') . "://{$u['host']}:$port",
            'host' => "{$u['host']}:$port",
            'path' => rtrim($u['path'] ?? '', '/'),
        ];
    }

    private static function header(string $field, string $value): void
    {
        if (preg_match('/[^\x20-\x7e]/', $value) === 1) {
            throw new \InvalidArgumentException("$field: has what no HTTP header may have");
        }
    }

    /**
     * Makes a request; timeout bounds each try, in seconds. A task gets its etag.
     *
     * @param array<string, mixed>|null $body
     * @return array{int, array<mixed>} the status and the body of an answer that is no refusal
     */
    public function call(string $method, string $path, ?array $body, string $etag, bool $isRepeatable, float $timeout, ?callable $givesUp = null): array
    {
        self::header('etag', $etag);
        $sent = $body === null ? '' : self::encode($body);
        for ($i = 0, $n = count($this->servers), $first = $this->current; ; $i++) {
            $at = ($first + $i) % $n;
            $last = $i === $n - 1;
            $request = $this->request($method, $this->servers[$at], $path, $sent, $etag);
            try {
                $bounded = $isRepeatable && !$last ? min($timeout, self::TRY) : $timeout;
                $answer = Http::send($this->servers[$at]['address'], $this->tls, $request, $bounded, self::TRY, $givesUp);
            } catch (TransportError $e) {
                if ($last || !$isRepeatable && !$e instanceof ConnectError) {
                    throw $e;
                }
                continue;
            }
            if ($isRepeatable && !$last && in_array($answer[0], [502, 503, 504], true)) {
                continue;
            }
            $read = self::read("$method $path", ...$answer);
            $this->current = $at;

            return $read;
        }
    }

    /** @param array<string, mixed> $body */
    private static function encode(array $body): string
    {
        try {
            return json_encode($body === [] ? new \stdClass() : $body, JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE);
        } catch (\JsonException $e) {
            throw new \InvalidArgumentException('body: ' . $e->getMessage(), 0, $e);
        }
    }

    /** @param array{address: string, host: string, path: string} $server */
    private function request(string $method, array $server, string $path, string $body, string $etag): string
    {
        $lines = ["$method {$server['path']}$path HTTP/1.1", "Host: {$server['host']}", 'Connection: close', 'Accept: application/json'];
        if ($this->token !== '') {
            $lines[] = "Authorization: Bearer $this->token";
        }
        if ($etag !== '') {
            $lines[] = "If-Match: $etag";
        }
        if ($body !== '') {
            $lines[] = 'Content-Type: application/json';
        }
        $lines[] = 'Content-Length: ' . strlen($body);

        return implode("\r\n", $lines) . "\r\n\r\n" . $body;
    }

    /**
     * @param array<string, string> $headers
     * @return array{int, array<mixed>}
     */
    private static function read(string $what, int $status, string $reason, array $headers, string $body): array
    {
        if ($status < 200 || $status > 299) {
            throw Error::of($status, $reason, $headers, $body);
        }
        $result = json_decode($body, true, 100, JSON_BIGINT_AS_STRING);
        if (!is_array($result) || array_is_list($result) && $result !== [] || $result === [] && trim($body) !== '{}') {
            throw new TransportError("$what: whatever answered is no timeout center");
        }
        if (isset($headers['etag'])) {
            $result['etag'] = $headers['etag'];
        }

        return [$status, $result];
    }
}
