<?php

declare(strict_types=1);

namespace Toc;

/**
 * Times, durations and ids as the API writes them.
 *
 * @internal
 */
final class Values
{
    private const MAX_SECONDS = 292 * 365 * 86400;

    /** Seconds as a duration of the API. */
    public static function duration(string $field, float $seconds): string
    {
        if (!(abs($seconds) <= self::MAX_SECONDS)) {
            throw new \InvalidArgumentException("$field: $seconds seconds are no duration");
        }

        return sprintf('%.0fus', $seconds * 1e6);
    }

    public static function time(\DateTimeInterface $at): string
    {
        return \DateTimeImmutable::createFromInterface($at)->setTimezone(new \DateTimeZone('UTC'))->format('Y-m-d\TH:i:s.u\Z');
    }

    /** A job_id: what goes into a path is a number. */
    public static function jobId(int|string $id): string
    {
        if (preg_match('/^(0|[1-9]\d{0,19})$/D', (string) $id) !== 1) {
            throw new \InvalidArgumentException("job_id: \"$id\" is no unsigned 64-bit number");
        }

        return (string) $id;
    }

    /** A biz_id: a number, or a text. */
    public static function bizId(int|string $id): string
    {
        if (is_int($id) && $id < 0) {
            throw new \InvalidArgumentException("biz_id: $id is negative; write numbers beyond PHP_INT_MAX as texts");
        }

        return (string) $id;
    }

    /** @param array<string, mixed> $values those that are null or empty are left out */
    public static function query(array $values): string
    {
        return '?' . http_build_query(array_filter($values, fn ($v) => $v !== null && $v !== ''), '', '&', PHP_QUERY_RFC3986);
    }
}
