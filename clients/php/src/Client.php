<?php

declare(strict_types=1);

namespace Toc;

/**
 * Calls one timeout center at one or more of its servers: each takes any request.
 *
 * A request goes to the server that answered last. If no connection to it can be made, the next one is tried, each once.
 * What is safe to repeat is tried at the next one also after a lost answer, after 5 s without one, and after a 502, 503 or
 * 504: requests that only read, and submits of which each has a dedupKey. Without an answer the last TransportError is
 * thrown; a refusal is an Error.
 *
 * Tasks are arrays with the fields of the API (docs/http.md), in which empty ones are left out, and etag. Ids are texts: an
 * unsigned 64-bit number does not fit an int. Durations are seconds, and may have fractions.
 */
final class Client
{
    private readonly Transport $transport;

    /**
     * timeout bounds each try at a server, in seconds, with the answer's body; a lease may take its wait longer.
     *
     * @param string|list<string> $servers URLs, like http://127.0.0.1:8080
     * @param array<string, mixed> $tls options of PHP's ssl context, such as cafile, local_cert and local_pk
     */
    public function __construct(string|array $servers = 'http://127.0.0.1:8080', string $token = '', private readonly float $timeout = 30.0, array $tls = [])
    {
        if ($servers === []) {
            throw new \InvalidArgumentException('servers: is empty; give the URL of one');
        }
        if (!($timeout > 0)) {
            throw new \InvalidArgumentException("timeout: is $timeout; give seconds, more than 0");
        }
        $this->transport = new Transport(array_values((array) $servers), $token, $tls);
    }

    // Submit

    /**
     * Stores one task, due at actionTime or after delay. When it returns, the task is committed.
     *
     * If a task has the dedupKey, moveDuplicate moves it; again makes a new one if it has ended. firePast: an actionTime more
     * than 5 s ago is due at once.
     *
     * @return array{array<string, mixed>, bool} the task; true: the dedupKey was known, and this is the task that has it
     */
    public function submit(
        string $bizType,
        int|string $bizId,
        ?\DateTimeInterface $actionTime = null,
        ?float $delay = null,
        string $attribute = '',
        string $dedupKey = '',
        ?float $timeout = null,
        bool $moveDuplicate = false,
        bool $again = false,
        bool $firePast = false,
    ): array {
        $body = self::submission($bizType, $bizId, $actionTime, $delay, $attribute, $dedupKey, $timeout, $moveDuplicate, $again, $firePast);
        [$status, $task] = $this->call('POST', '/v1/tasks', $body, '', self::isRepeatable($body));

        return [$task, $status === 200];
    }

    /**
     * One task of submitBatch.
     *
     * @return array<string, mixed>
     */
    public static function submission(
        string $bizType,
        int|string $bizId,
        ?\DateTimeInterface $actionTime = null,
        ?float $delay = null,
        string $attribute = '',
        string $dedupKey = '',
        ?float $timeout = null,
        bool $moveDuplicate = false,
        bool $again = false,
        bool $firePast = false,
    ): array {
        if (($actionTime === null) === ($delay === null)) {
            throw new \InvalidArgumentException('action_time: give a time or a delay, one of them');
        }
        if ($moveDuplicate && $again) {
            throw new \InvalidArgumentException('on_duplicate: give moveDuplicate or again, not both');
        }

        return ['biz_type' => $bizType, 'biz_id' => Values::bizId($bizId)] + self::when($actionTime, $delay) + array_filter([
            'attribute' => $attribute,
            'dedup_key' => $dedupKey,
            'timeout' => $timeout === null ? '' : Values::duration('timeout', $timeout),
            'on_duplicate' => $moveDuplicate ? 'move' : ($again ? 'again' : ''),
            'past' => $firePast ? 'fire' : '',
        ], fn (string $v) => $v !== '');
    }

    /**
     * Stores up to 10,000 tasks, at most 8 MiB of JSON, and answers for each in order: job_id, or error. One that is refused
     * spoils no other.
     *
     * @param list<array<string, mixed>> $tasks each made by submission
     * @return list<array<string, mixed>>
     */
    public function submitBatch(array $tasks): array
    {
        $isRepeatable = true;
        foreach ($tasks as $t) {
            $isRepeatable = $isRepeatable && self::isRepeatable($t);
        }

        return $this->call('POST', '/v1/tasks/batch', ['tasks' => array_values($tasks)], '', $isRepeatable)[1]['results'];
    }

    // Look up

    /**
     * Reads one task; NotFoundError if there is none.
     *
     * @return array<string, mixed>
     */
    public function get(int|string $jobId): array
    {
        return $this->read('/v1/tasks/' . Values::jobId($jobId));
    }

    /**
     * Reads the task that was submitted under a key.
     *
     * @return array<string, mixed>
     */
    public function getByKey(string $bizType, int|string $bizId, string $dedupKey): array
    {
        return $this->read('/v1/tasks/by-key' . self::key($bizType, $bizId, $dedupKey));
    }

    /**
     * Tells where a task waits, and what holds it.
     *
     * @return array<string, mixed>
     */
    public function why(int|string $jobId): array
    {
        return $this->read('/v1/tasks/' . Values::jobId($jobId) . '/why');
    }

    /**
     * Goes through the tasks of a biz_id.
     *
     * @return \Generator<int, array<string, mixed>>
     */
    public function listTasks(int|string $bizId, string $bizType = '', string $status = ''): \Generator
    {
        return $this->pages('/v1/tasks', ['biz_id' => Values::bizId($bizId), 'biz_type' => $bizType, 'status' => $status]);
    }

    /**
     * Goes through the tasks of all tables: the pending ones, or those of a status, with an action_time in between.
     *
     * @return \Generator<int, array<string, mixed>>
     */
    public function listAll(string $bizType = '', string $status = '', ?\DateTimeInterface $since = null, ?\DateTimeInterface $until = null): \Generator
    {
        return $this->pages('/v1/tasks', self::times($since, $until, 'from', 'to') + ['biz_type' => $bizType, 'status' => $status]);
    }

    /**
     * Goes through the dead tasks; error is a part of last_error.
     *
     * @return \Generator<int, array<string, mixed>>
     */
    public function listDead(string $bizType = '', string $error = '', ?\DateTimeInterface $since = null, ?\DateTimeInterface $until = null): \Generator
    {
        return $this->pages('/v1/dead', self::times($since, $until, 'since', 'until') + ['biz_type' => $bizType, 'error' => $error]);
    }

    // Change

    /** Cancels a pending task. With the etag of a task that you have read, only if it is still so (ChangedError). */
    public function cancel(int|string $jobId, string $etag = ''): void
    {
        $this->cancelled('/v1/tasks/' . Values::jobId($jobId) . '/cancel', $etag);
    }

    /** Cancels the pending task that was submitted under a key. */
    public function cancelByKey(string $bizType, int|string $bizId, string $dedupKey, string $etag = ''): void
    {
        $this->cancelled('/v1/tasks/by-key/cancel' . self::key($bizType, $bizId, $dedupKey), $etag);
    }

    /**
     * Moves a pending task, or changes its attribute or timeout; what is left out stays.
     *
     * @return array<string, mixed> the task as it stands then
     */
    public function reschedule(
        int|string $jobId,
        ?\DateTimeInterface $actionTime = null,
        ?float $delay = null,
        ?string $attribute = null,
        ?float $timeout = null,
        string $etag = '',
        bool $firePast = false,
    ): array {
        $change = self::change($actionTime, $delay, $attribute, $timeout, $firePast);

        return $this->call('PATCH', '/v1/tasks/' . Values::jobId($jobId), $change, $etag)[1];
    }

    /**
     * Changes the pending task that was submitted under a key, as reschedule.
     *
     * @return array<string, mixed>
     */
    public function rescheduleByKey(
        string $bizType,
        int|string $bizId,
        string $dedupKey,
        ?\DateTimeInterface $actionTime = null,
        ?float $delay = null,
        ?string $attribute = null,
        ?float $timeout = null,
        string $etag = '',
        bool $firePast = false,
    ): array {
        $path = '/v1/tasks/by-key' . self::key($bizType, $bizId, $dedupKey);

        return $this->call('PATCH', $path, self::change($actionTime, $delay, $attribute, $timeout, $firePast), $etag)[1];
    }

    /**
     * Gives a dead task a fresh start: pending, attempts 0, due now.
     *
     * @return array<string, mixed>
     */
    public function redrive(int|string $jobId, string $etag = ''): array
    {
        return $this->call('POST', '/v1/tasks/' . Values::jobId($jobId) . '/redrive', null, $etag)[1];
    }

    /**
     * Redrives the dead tasks that match biz_type, error, since, until; with limit, rate and dry_run as in the API.
     *
     * @param array<string, mixed> $filters
     * @return array<string, mixed>
     */
    public function redriveDead(array $filters = []): array
    {
        return $this->call('POST', '/v1/dead/redrive', self::filters($filters))[1];
    }

    /**
     * Cancels the dead tasks that match, as redriveDead.
     *
     * @param array<string, mixed> $filters
     * @return array<string, mixed>
     */
    public function discardDead(array $filters = []): array
    {
        return $this->call('POST', '/v1/dead/discard', self::filters($filters))[1];
    }

    /**
     * Runs the pending tasks of a business type now that have failed and would run again later, rate a second; null: at once.
     *
     * @return array<string, mixed>
     */
    public function retry(string $bizType, ?float $rate = null): array
    {
        return $this->call('POST', '/v1/biz-types/' . rawurlencode($bizType) . '/retry', $rate === null ? [] : ['rate' => $rate])[1];
    }

    /** Keeps the tasks of a business type from starting; until null: until resume. */
    public function pause(string $bizType, string $reason = '', ?\DateTimeInterface $until = null): void
    {
        $this->call('POST', '/v1/biz-types/' . rawurlencode($bizType) . '/pause', self::filters(['reason' => $reason, 'until' => $until]));
    }

    /** Ends a pause. */
    public function resume(string $bizType): void
    {
        $this->call('POST', '/v1/biz-types/' . rawurlencode($bizType) . '/resume', []);
    }

    // Pull

    /**
     * Leases up to 256 due tasks of a business type whose processor is pull, and waits up to a minute for one. ttr is how
     * long the caller has those without a timeout of their own; null: as the type says. The settlements are settled first, as settle
     * does; then it does not wait, and the answer has their results. Worker does all of this.
     *
     * @param list<array<string, string>> $settlements
     * @return array{tasks: list<array{lease: string, expires_at: string, attempt: int, task: array<string, mixed>}>, paused: bool,
     *     results?: list<array{lease: string, result: string}>}
     */
    public function lease(
        string $bizType,
        int $max = 1,
        float $wait = 0.0,
        ?float $ttr = null,
        ?callable $givesUp = null,
        array $settlements = [],
    ): array {
        $body = ['max' => $max, 'wait' => Values::duration('wait', $wait)] + ($ttr === null ? [] : ['ttr' => Values::duration('ttr', $ttr)])
            + ($settlements === [] ? [] : ['settle' => $settlements]);

        return $this->transport->call('POST', '/v1/biz-types/' . rawurlencode($bizType) . '/lease', $body, '', false, $this->timeout + max(0, $wait), $givesUp)[1];
    }

    /**
     * Settles up to 1,000 leases: lease, do (ack, nack, extend or reject), and retry_after, ttr (durations of the API, such
     * as 1.5s) or error.
     *
     * @param list<array<string, string>> $settlements
     * @return list<array{lease: string, result: string}> ok, lost (the lease is over or was settled before), invalid, or
     *         unavailable (send it again)
     */
    public function settle(array $settlements): array
    {
        return $this->call('POST', '/v1/leases/settle', ['settle' => array_values($settlements)])[1]['results'];
    }

    // The way to a server

    /**
     * @param array<string, mixed>|null $body
     * @return array{int, array<string, mixed>}
     */
    private function call(string $method, string $path, ?array $body = null, string $etag = '', bool $isRepeatable = false): array
    {
        return $this->transport->call($method, $path, $body, $etag, $isRepeatable, $this->timeout);
    }

    /** @return array<string, mixed> */
    private function read(string $path): array
    {
        return $this->call('GET', $path, null, '', true)[1];
    }

    private function cancelled(string $path, string $etag): void
    {
        if (($this->call('POST', $path, null, $etag)[1]['outcome'] ?? '') !== 'cancelled') {
            throw new TransportError("$path: whatever answered is no timeout center");
        }
    }

    /** @param array<string, mixed> $query */
    private function pages(string $path, array $query): \Generator
    {
        $cursor = '';
        do {
            $page = $this->read($path . Values::query($query + ['limit' => 1000, 'cursor' => $cursor]));
            foreach ($page['tasks'] as $task) {
                yield $task;
            }
            $cursor = $page['next_cursor'] ?? '';
        } while ($cursor !== '');
    }

    private static function key(string $bizType, int|string $bizId, string $dedupKey): string
    {
        return Values::query(['biz_type' => $bizType, 'biz_id' => Values::bizId($bizId), 'dedup_key' => $dedupKey]);
    }

    /** @return array<string, string> */
    private static function times(?\DateTimeInterface $since, ?\DateTimeInterface $until, string $sinceName, string $untilName): array
    {
        return [$sinceName => $since === null ? '' : Values::time($since), $untilName => $until === null ? '' : Values::time($until)];
    }

    /** @return array<string, string> */
    private static function when(?\DateTimeInterface $actionTime, ?float $delay): array
    {
        if ($actionTime !== null && $delay !== null) {
            throw new \InvalidArgumentException('action_time: give a time or a delay, not both');
        }

        return array_filter([
            'action_time' => $actionTime === null ? '' : Values::time($actionTime),
            'delay' => $delay === null ? '' : Values::duration('delay', $delay),
        ], fn (string $v) => $v !== '');
    }

    /** @return array<string, string> */
    private static function change(?\DateTimeInterface $actionTime, ?float $delay, ?string $attribute, ?float $timeout, bool $firePast): array
    {
        return self::when($actionTime, $delay) + ($attribute === null ? [] : ['attribute' => $attribute])
            + ($timeout === null ? [] : ['timeout' => Values::duration('timeout', $timeout)]) + ($firePast ? ['past' => 'fire'] : []);
    }

    /**
     * @param array<string, mixed> $filters
     * @return array<string, mixed>
     */
    private static function filters(array $filters): array
    {
        $filters = array_filter($filters, fn ($v) => $v !== null && $v !== '');

        return array_map(fn ($v) => $v instanceof \DateTimeInterface ? Values::time($v) : $v, $filters);
    }

    /** @param array<string, mixed> $submission */
    private static function isRepeatable(array $submission): bool
    {
        return ($submission['dedup_key'] ?? '') !== '' && ($submission['on_duplicate'] ?? 'keep') === 'keep';
    }
}
