<?php

declare(strict_types=1);

// Against a real center.

use Toc\Client;

function biz_id(): string
{
    return 'php-' . bin2hex(random_bytes(8));
}

function test_a_life(): void
{
    [$toc, $biz] = [toc(), biz_id()];
    $at = new DateTimeImmutable('+1 hour', new DateTimeZone('Asia/Shanghai'));
    [$task, $known] = $toc->submit('order_close', $biz, actionTime: $at, attribute: '{"ü":"😀\u0000/"}', dedupKey: 'k', timeout: 1.5);
    equal(false, $known);
    [$again, $known] = $toc->submit('order_close', $biz, delay: 1, dedupKey: 'k');
    equal([true, $task['job_id']], [$known, $again['job_id']]);
    $got = $toc->get($task['job_id']);
    equal(['pending', '{"ü":"😀\u0000/"}', '1.5s', $biz], [$got['status'], $got['attribute'], $got['timeout'], $got['biz_id']]);
    $late = (float) (new DateTimeImmutable($got['action_time']))->format('U.u') - (float) $at->format('U.u');
    equal(true, $late >= 0 && $late < 0.002);
    equal(true, isset($toc->why($task['job_id'])['because']));

    $moved = $toc->reschedule($task['job_id'], delay: 7200, etag: $got['etag']);
    equal(true, $moved['action_time'] > $got['action_time']);
    $changed = fails(Toc\ChangedError::class, fn () => $toc->cancel($task['job_id'], etag: $got['etag']));
    equal([$moved['action_time'], $moved['etag']], [$changed->task['action_time'], $changed->task['etag']]);
    $other = $toc->reschedule($task['job_id'], attribute: '', timeout: 90);
    equal([false, '1m30s', $moved['action_time']], [isset($other['attribute']), $other['timeout'], $other['action_time']]);
    $toc->cancel($task['job_id'], etag: $other['etag']);
    equal('already_cancelled', fails(Toc\ConflictError::class, fn () => $toc->cancel($task['job_id']))->outcome);
}

function test_by_key(): void
{
    [$toc, $key, $largest] = [toc(), biz_id(), '18446744073709551615'];
    [$task] = $toc->submit('order_close', $largest, delay: 3600, dedupKey: $key);
    $got = $toc->getByKey('order_close', $largest, $key);
    equal([$task['job_id'], $largest], [$got['job_id'], $got['biz_id']]);
    equal('moved', $toc->rescheduleByKey('order_close', $largest, $key, attribute: 'moved')['attribute']);
    $toc->submit('order_close', $largest, delay: 3600, attribute: 'again', dedupKey: $key, moveDuplicate: true);
    equal('again', $toc->get($task['job_id'])['attribute']);
    $toc->cancelByKey('order_close', $largest, $key);
    equal('cancelled', $toc->get($task['job_id'])['status']);
    fails(Toc\NotFoundError::class, fn () => $toc->getByKey('order_close', 1, $key));
}

function test_again_and_past(): void
{
    [$toc, $key, $past] = [toc(), biz_id(), new DateTimeImmutable('2020-01-02T03:04:05Z')];
    $submit = fn () => $toc->submit('order_close', '007', delay: 3600, dedupKey: $key, again: true);
    [$first] = $submit();
    equal('007', $toc->getByKey('order_close', '007', $key)['biz_id']);
    equal(true, $submit()[1]);
    $toc->cancelByKey('order_close', '007', $key);
    [$second, $known] = $submit();
    equal([false, false], [$known, $second['job_id'] === $first['job_id']]);
    fails(Toc\InvalidError::class, fn () => $toc->submit('order_close', biz_id(), actionTime: $past));
    [$fired] = $toc->submit('order_close', biz_id(), actionTime: $past, firePast: true);
    equal('2020-01-02T03:04:05.000Z', $fired['action_time']);
    equal('2020-01-02T03:04:05.000Z', $toc->rescheduleByKey('order_close', '007', $key, actionTime: $past, firePast: true)['action_time']);
    fails(InvalidArgumentException::class, fn () => $toc->get('007'));
    fails(InvalidArgumentException::class, fn () => $toc->submit('order_close', 1, delay: 1, dedupKey: 'k', moveDuplicate: true, again: true));
}

function test_it_fires(): void
{
    $toc = toc();
    [$task] = $toc->submit('order_close', biz_id(), delay: 0);
    await(fn () => $toc->get($task['job_id'])['status'] === 'processed');
}

function test_batches_and_lists(): void
{
    [$toc, $biz] = [toc(), biz_id()];
    $now = new DateTimeImmutable();
    $tasks = array_map(fn (int $i) => Client::submission('order_close', $biz, delay: 3600, dedupKey: "$i"), range(1, 1200));
    $results = $toc->submitBatch([...$tasks, Client::submission('nosuch', 1, delay: 0)]);
    equal('biz_type', array_pop($results)['error']['field']);
    $stored = array_column($results, 'job_id');
    equal(1200, count(array_unique($stored)));
    $listed = array_column(iterator_to_array($toc->listTasks($biz, bizType: 'order_close'), false), 'job_id');
    sort($stored);
    sort($listed);
    equal($stored, $listed);
    $all = array_column(iterator_to_array($toc->listAll(bizType: 'order_close', since: $now), false), 'job_id');
    equal([], array_diff($stored, $all));
    equal([], iterator_to_array($toc->listDead(bizType: 'order_close', error: 'none like this')));
    equal(1200, count(array_filter($toc->submitBatch($tasks), fn (array $r) => $r['duplicate'] ?? false)));
}

function test_dead_and_pause(): void
{
    $toc = toc();
    equal(['matched' => 0, 'redriven' => 0], $toc->redriveDead(['biz_type' => 'order_close', 'dry_run' => true]));
    equal(['matched' => 0, 'discarded' => 0], $toc->discardDead(['since' => new DateTimeImmutable()]));
    equal(['matched' => 0, 'redriven' => 0], $toc->redriveDead());
    equal(['matched' => 0, 'retried' => 0], $toc->retry('demo'));
    equal(0, $toc->retry('demo', 5)['matched']);
    $toc->pause('demo', reason: 'a test', until: new DateTimeImmutable('+1 minute'));
    $toc->resume('demo');
}

function test_refusals(): void
{
    $toc = toc();
    fails(Toc\NotFoundError::class, fn () => $toc->get(1));
    $invalid = fails(Toc\InvalidError::class, fn () => $toc->submit('nosuch', 1, delay: 0));
    equal('body.biz_type', $invalid->errors[0]['location']);
    equal(401, fails(Toc\Error::class, fn () => (new Client((string) getenv('TOC_SERVER')))->get(1))->status);
    fails(Toc\NotFoundError::class, fn () => $toc->resume('../../x y'));
    foreach ([
        fn () => $toc->submit('order_close', 1),
        fn () => $toc->submit('order_close', 1, delay: 1, actionTime: new DateTimeImmutable()),
        fn () => $toc->submit('order_close', 1, delay: NAN),
        fn () => $toc->submit('order_close', 1, delay: 1e300),
        fn () => $toc->submit('order_close', -1, delay: 1),
        fn () => $toc->submit('order_close', 1, delay: 1, attribute: "\xe4"),
        fn () => $toc->cancel('1/redrive'),
        fn () => $toc->cancel("1\n"),
        fn () => $toc->cancel(1, etag: "x\r\nHost: y"),
        fn () => new Client([]),
        fn () => new Client('ftp://x'),
        fn () => new Client('http://'),
        fn () => new Client("http://a\r\nb"),
        fn () => new Client('http://a?b'),
        fn () => new Client(token: "a\r\nb"),
        fn () => new Client(timeout: 0),
    ] as $wrong) {
        fails(InvalidArgumentException::class, $wrong);
    }
}
