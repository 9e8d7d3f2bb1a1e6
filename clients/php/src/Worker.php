<?php

declare(strict_types=1);

namespace Toc;

/** Thrown by the function of a Worker: nobody wants the task any more. It is cancelled. */
final class Reject extends \Exception
{
}

/** Thrown by the function of a Worker: the run has failed, and the task is to be tried again after a while. */
final class RetryAfter extends \Exception
{
    public function __construct(public readonly float $seconds, string $reason = '')
    {
        parent::__construct($reason);
    }
}

/**
 * Leases the tasks of a pull type one after the other, runs each, and settles its lease. Start several processes to run
 * several at once.
 *
 * The function gets the task, its attempt (1 for the first) and a function that extends the lease: a run that takes longer
 * than ttr calls it now and then; false: the lease is over, and the task is another worker's. Its return acks the task,
 * Reject cancels it, RetryAfter says when to try again, and any other exception nacks it: it is tried again after the
 * back-off of the business type, or dead after max_retries. A task may come twice: keep a note of the job_id, best in the
 * transaction of the work.
 *
 * With ext-pcntl, SIGTERM and SIGINT stop it, once the task that runs is settled. Otherwise its request for the next task settles it.
 */
final class Worker
{
    private const WAIT = 20.0; // seconds of a lease
    private const PAUSE = 1.0; // seconds after a failed request
    private const SETTLE_PAUSE = 0.1; // seconds before a lease is settled again
    private const APART = 60.0; // seconds, after a center has refused a request that leases and settles
    private const STOP_PAUSE = 0.5; // seconds: an answer may be under way when stop is called

    private ?float $stopped = null;
    private float $apart = 0.0; // until then no request leases and settles: the center does not know that
    /** @var list<array{job_id: string, settlement: array<string, string>, until: float}> runs that the next request for tasks settles */
    private array $ended = [];
    /** @var callable(array<string, mixed>, int, callable(): bool): mixed */
    private $run;
    /** @var callable(string): mixed */
    private $log;

    /**
     * ttr is how long a lease is, in seconds; null: as the business type says.
     *
     * @param callable(array<string, mixed>, int, callable(): bool): mixed $run
     * @param (callable(string): mixed)|null $log gets what fails; PHP's error log if left out
     */
    public function __construct(private readonly Client $client, private readonly string $bizType, callable $run, private readonly ?float $ttr = null, ?callable $log = null)
    {
        $this->run = $run;
        $this->log = $log ?? error_log(...);
    }

    /** Makes work return, once the task that runs is settled. A signal handler or the function may call it. */
    public function stop(): void
    {
        $this->stopped ??= microtime(true);
    }

    /** Works until stop. It throws an Error that a repeat would not mend, such as an unknown business type. */
    public function work(): void
    {
        $before = [];
        if (function_exists('pcntl_async_signals')) {
            pcntl_async_signals(true);
            foreach ([SIGTERM, SIGINT] as $signal) {
                $before[$signal] = pcntl_signal_get_handler($signal);
                pcntl_signal($signal, $this->stop(...));
            }
        }
        try {
            while ($this->stopped === null) {
                foreach ($this->lease() as $one) {
                    $settlement = $this->outcome($one);
                    $until = max(microtime(true) + self::WAIT, (float) (new \DateTimeImmutable($one['expires_at']))->format('U.u'));
                    $this->ended[] = ['job_id' => $one['task']['job_id'], 'settlement' => $settlement, 'until' => $until];
                }
            }
        } finally {
            $this->settle();
            foreach ($before as $signal => $handler) {
                pcntl_signal($signal, $handler);
            }
        }
    }

    /** @return list<array<string, mixed>> */
    private function lease(): array
    {
        if (microtime(true) < $this->apart) {
            $this->settle();
        }
        $settlements = array_column($this->ended, 'settlement');
        // The center gives a caller that hangs up no lease. A request that settles does not wait, and its results are needed.
        $givesUp = fn () => $settlements === [] && $this->stopped !== null && microtime(true) > $this->stopped + self::STOP_PAUSE;
        $answer = [];
        try {
            $answer = $this->client->lease($this->bizType, 1, $settlements === [] ? self::WAIT : 0.0, $this->ttr, $givesUp, $settlements);
        } catch (Error $e) {
            if ($settlements !== [] && in_array('body.settle', array_column($e->errors, 'location'), true)) { // an older center
                $this->apart = microtime(true) + self::APART;

                return [];
            }
            if ($e->status >= 400 && $e->status < 500 && !in_array($e->status, [408, 429], true)) {
                throw $e;
            }
            $this->pause($e);
        } catch (TransportError $e) {
            if ($this->stopped === null) {
                $this->pause($e);
            }
        }
        $this->ended = $this->unsettled($answer['results'] ?? []);

        return $answer['tasks'] ?? [];
    }

    private function pause(\Exception $e): void
    {
        ($this->log)("no tasks of $this->bizType leased; trying again: {$e->getMessage()}");
        usleep((int) (self::PAUSE * 1e6));
    }

    /**
     * @param array<string, mixed> $one
     * @return array<string, string>
     */
    private function outcome(array $one): array
    {
        try {
            ($this->run)($one['task'], $one['attempt'], fn () => $this->extend($one['lease']));

            return ['lease' => $one['lease'], 'do' => 'ack'];
        } catch (Reject $e) {
            return ['lease' => $one['lease'], 'do' => 'reject', 'error' => self::text($e->getMessage())];
        } catch (RetryAfter $e) {
            $after = Values::duration('retry_after', max(0.0, $e->seconds));

            return ['lease' => $one['lease'], 'do' => 'nack', 'error' => self::text($e->getMessage()), 'retry_after' => $after];
        } catch (\Throwable $e) {
            ($this->log)("run of task {$one['task']['job_id']} failed: $e");

            return ['lease' => $one['lease'], 'do' => 'nack', 'error' => self::text($e::class . ': ' . $e->getMessage())];
        }
    }

    /** What JSON can carry of an error: 255 bytes, as the center keeps, of UTF-8. */
    private static function text(string $error): string
    {
        return (string) json_decode((string) json_encode(substr($error, 0, 255), JSON_INVALID_UTF8_SUBSTITUTE));
    }

    private function extend(string $lease): bool
    {
        $settlement = ['lease' => $lease, 'do' => 'extend'] + ($this->ttr === null ? [] : ['ttr' => Values::duration('ttr', $this->ttr)]);
        try {
            return in_array($this->client->settle([$settlement])[0]['result'], ['ok', 'unavailable'], true);
        } catch (UnavailableError | TransportError $e) {
            ($this->log)("a lease of $this->bizType is not extended: {$e->getMessage()}");

            return true; // it may still be
        }
    }

    /** Settles the runs that have ended in requests of their own. */
    private function settle(): void
    {
        while ($this->ended !== []) {
            $answered = [];
            try {
                $answered = $this->client->settle(array_column($this->ended, 'settlement'));
            } catch (Error | TransportError $e) {
                ($this->log)("leases of $this->bizType are not settled; trying again: {$e->getMessage()}");
            }
            $this->ended = $this->unsettled($answered);
        }
    }

    /**
     * Reads the results of settlements, and returns the runs that are to be settled again, after a pause.
     *
     * @param list<array{lease: string, result: string}> $answered
     * @return list<array{job_id: string, settlement: array<string, string>, until: float}>
     */
    private function unsettled(array $answered): array
    {
        $again = [];
        foreach ($this->ended as $i => $one) {
            $result = $answered[$i]['result'] ?? 'unavailable';
            if ($result === 'unavailable' && microtime(true) < $one['until']) {
                $again[] = $one;
            } elseif ($result !== 'ok') {
                ($this->log)("task {$one['job_id']} is not settled: $result; it may run again");
            }
        }
        if ($again !== []) {
            usleep((int) (self::SETTLE_PAUSE * 1e6));
        }

        return $again;
    }
}
