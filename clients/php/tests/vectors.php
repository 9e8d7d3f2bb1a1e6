<?php

declare(strict_types=1);

// The vectors that all clients share.

use Toc\Webhook;

/** @return list<array<string, mixed>> */
function vectors(string $of): array
{
    return json_decode((string) file_get_contents((string) getenv('TOC_VECTORS')), true, flags: JSON_THROW_ON_ERROR)[$of];
}

function test_signatures(): void
{
    foreach (vectors('signatures') as $v) {
        foreach ([
            ['Webhook-Id' => $v['id'], 'Webhook-Timestamp' => $v['timestamp'], 'Webhook-Signature' => $v['signature']],
            ['HTTP_WEBHOOK_ID' => $v['id'], 'HTTP_WEBHOOK_TIMESTAMP' => $v['timestamp'], 'HTTP_WEBHOOK_SIGNATURE' => $v['signature'], 'argc' => 1],
            ['webhook-id' => [$v['id']], 'webhook-timestamp' => [$v['timestamp']], 'webhook-signature' => [$v['signature']]],
        ] as $headers) {
            foreach ([0, 299, -299, 301, -301] as $off) {
                $verify = fn () => Webhook::verify($v['secret'], $headers, $v['body'], (int) $v['timestamp'] + $off);
                $v['valid'] && abs($off) < 300 ? $verify() : fails(Toc\SignatureError::class, $verify);
            }
        }
    }
    $long = 'a secret of some length';
    fails(Toc\SignatureError::class, fn () => Webhook::verify($long, [], ''));
    fails(Toc\SignatureError::class, fn () => Webhook::verify($long, ['webhook-id' => [], 'webhook-timestamp' => '9'], ''));
    foreach (vectors('weak_secrets') as $v) {
        $headers = ['Webhook-Id' => $v['id'], 'Webhook-Timestamp' => $v['timestamp'], 'Webhook-Signature' => $v['signature']];
        fails(InvalidArgumentException::class, fn () => Webhook::verify($v['secret'], $headers, $v['body'], (int) $v['timestamp']));
    }
    fails(InvalidArgumentException::class, fn () => Webhook::verify('whsec_*', ['webhook-id' => 'a', 'webhook-timestamp' => (string) time()], ''));
}

function test_refusal_vectors(): void
{
    $kinds = ['not found' => Toc\NotFoundError::class, 'conflict' => Toc\ConflictError::class, 'changed' => Toc\ChangedError::class,
        'invalid' => Toc\InvalidError::class, 'unavailable' => Toc\UnavailableError::class, 'other' => Toc\Error::class];
    foreach (vectors('refusals') as $v) {
        $headers = ['content-type' => 'application/problem+json', 'retry-after' => $v['retry_after'] ?? ''];
        $got = Toc\Error::of($v['status'], '', $headers, (string) json_encode($v['body']));
        equal([$kinds[$v['kind']], $v['text'], (int) ($v['retry_after'] ?? 0)], [$got::class, $got->getMessage(), $got->retryAfter]);
        equal([$v['kind'] === 'changed', $v['kind'] === 'conflict' ? 'running' : ''], [$got->task !== null, $got->outcome]);
    }
    equal("502 Bad Gateway: '<html>'", Toc\Error::of(502, 'Bad Gateway', ['content-type' => 'text/html'], '<html>')->getMessage());
    foreach (['[]', '7', '{', '{"errors":[1,null,{}],"task":7}', '{"errors":7,"detail":{}}'] as $strange) {
        equal(Toc\ChangedError::class, Toc\Error::of(412, 'x', ['content-type' => 'application/problem+json'], $strange)::class);
    }
}
