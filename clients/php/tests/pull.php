<?php

declare(strict_types=1);

// Against the business types pulled, slow and stopped of a real center.

use Toc\Worker;

function quiet(): callable
{
    return function (string $message): void {
    };
}

function test_a_worker(): void
{
    $toc = toc();
    $seen = [];
    $worker = new Worker($toc, 'pulled', function (array $task, int $attempt) use (&$seen): void {
        $seen[$task['attribute']][] = $attempt;
        match (true) {
            $task['attribute'] === 'once more' && $attempt === 1 => throw new Toc\RetryAfter(0.05, 'busy'),
            $task['attribute'] === 'gone' => throw new Toc\Reject('paid'),
            $task['attribute'] === 'broken' => throw new TypeError("no\xe4"),
            default => null,
        };
    }, ttr: 20, log: quiet());
    $want = ['well' => 'processed', 'once more' => 'processed', 'gone' => 'cancelled', 'broken' => 'dead'];
    $ids = [];
    foreach ($want as $attribute => $_) {
        $ids[$attribute] = $toc->submit('pulled', 7, delay: 0, attribute: $attribute)[0]['job_id'];
    }
    until($worker, fn () => array_map(fn (string $id) => $toc->get($id)['status'], $ids) === $want);
    equal([1, 2], $seen['once more']);
    equal('TypeError: no�', $toc->get($ids['broken'])['last_error']);
    $again = $toc->redrive($ids['broken']);
    equal(['pending', 0], [$again['status'], $again['attempts']]);
    $toc->cancel($again['job_id']);
}

/** Lets a worker work until a fact holds: an alarm looks every second. */
function until(Worker $worker, callable $fact): void
{
    $left = 60;
    pcntl_async_signals(true);
    pcntl_signal(SIGALRM, function () use ($worker, $fact, &$left): void {
        $fact() || --$left === 0 ? $worker->stop() : pcntl_alarm(1);
    });
    pcntl_alarm(1);
    $worker->work();
    pcntl_alarm(0);
    equal(true, $fact());
}

function test_a_worker_extends(): void
{
    $toc = toc();
    $until = fn (array $task) => $toc->get($task['job_id'])['running']['until'];
    $extended = null;
    $worker = new Worker($toc, 'slow', function (array $task, int $attempt, callable $extend) use ($toc, $until, &$extended, &$worker): void {
        $first = $until($task);
        usleep(2000);
        $extended = $extend() && $until($task) > $first;
        $worker->stop();
    }, ttr: 20);
    [$task] = $toc->submit('slow', 1, delay: 0);
    $worker->work();
    equal([true, 'processed'], [$extended, $toc->get($task['job_id'])['status']]);

    $worker = new Worker($toc, 'slow', function (array $task, int $attempt, callable $extend) use ($toc, &$extended, &$worker): void {
        if ($attempt === 1) {
            await(fn () => $toc->get($task['job_id'])['attempts'] === 1); // its lease has ended
        }
        $extended = $extend();
        $worker->stop();
    }, ttr: 0.1, log: quiet());
    [$task] = $toc->submit('slow', 1, delay: 0);
    $worker->work();
    equal([false, 'pending'], [$extended, $toc->get($task['job_id'])['status']]);
}

/** A worker that gets SIGTERM settles what runs, and takes nothing more. */
function test_a_worker_stops(): void
{
    $toc = toc();
    $runs = 0;
    $worker = new Worker($toc, 'stopped', function () use (&$runs): void {
        $runs++;
        posix_kill(posix_getpid(), SIGTERM);
    });
    [$task] = $toc->submit('stopped', 1, delay: 0);
    $worker->work();
    equal([1, 'processed'], [$runs, $toc->get($task['job_id'])['status']]);
    equal(SIG_DFL, pcntl_signal_get_handler(SIGTERM));

    $waits = new Worker($toc, 'stopped', fn () => $runs++);
    pcntl_signal(SIGALRM, fn () => posix_kill(posix_getpid(), SIGTERM));
    pcntl_alarm(1);
    $began = microtime(true);
    $waits->work();
    equal(true, microtime(true) - $began < 15); // it hangs up, and does not wait for tasks
    [$next] = $toc->submit('stopped', 1, delay: 0);
    $got = $toc->lease('stopped', 2, wait: 20)['tasks'];
    equal([$next['job_id']], array_map(fn (array $one) => $one['task']['job_id'], $got));
    $toc->settle([['lease' => $got[0]['lease'], 'do' => 'ack']]);
}

/** Has a worker run five tasks, and returns its server. */
function worked(string $behaviour): string
{
    $toc = toc();
    $ids = array_map(fn (int $i) => $toc->submit('pulled', $i, delay: 0)[0]['job_id'], range(1, 5));
    $server = server($behaviour);
    $left = 5;
    $worker = new Worker(new Toc\Client($server, (string) getenv('TOC_TOKEN')), 'pulled', function () use (&$left, &$worker): void {
        if (--$left === 0) {
            $worker->stop();
        }
    });
    $worker->work();
    equal(array_fill(0, 5, 'processed'), array_map(fn (string $id) => $toc->get($id)['status'], $ids));

    return $server;
}

function test_a_worker_settles_with_its_next_lease(): void
{
    equal(1, calls(worked('center'), '/settle')); // the last task has no next lease
}

function test_a_worker_at_an_older_center(): void
{
    equal(5, calls(worked('old'), '/settle'));
}

function test_a_worker_is_refused(): void
{
    fails(Toc\NotFoundError::class, fn () => (new Worker(toc(), 'nobody', fn () => null))->work());
    fails(Toc\InvalidError::class, fn () => (new Worker(toc(), 'order_close', fn () => null))->work());
}

function test_leases(): void
{
    $toc = toc();
    fails(Toc\NotFoundError::class, fn () => $toc->lease('nobody'));
    fails(Toc\InvalidError::class, fn () => $toc->lease('order_close'));
    equal(['tasks' => [], 'paused' => false], $toc->lease('pulled'));
    [$task] = $toc->submit('pulled', 9, delay: 0);
    $got = $toc->lease('pulled', wait: 20, ttr: 50)['tasks'];
    equal([[$task['job_id'], 1]], array_map(fn (array $one) => [$one['task']['job_id'], $one['attempt']], $got));
    $lease = $got[0]['lease'];
    equal(['invalid', 'ok', 'ok', 'lost'], array_column($toc->settle([
        ['lease' => 'x', 'do' => 'ack'],
        ['lease' => $lease, 'do' => 'extend', 'ttr' => '1m'],
        ['lease' => $lease, 'do' => 'ack'],
        ['lease' => $lease, 'do' => 'nack', 'error' => 'late'],
    ]), 'result'));
}
