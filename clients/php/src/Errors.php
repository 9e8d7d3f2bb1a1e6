<?php

declare(strict_types=1);

namespace Toc;

/** No answer came from any server, or none of a timeout center. */
class TransportError extends \RuntimeException
{
}

/** No connection to the server could be made: nothing was sent. */
final class ConnectError extends TransportError
{
}

/** A refusal of the center: an RFC 9457 problem. */
class Error extends \RuntimeException
{
    /**
     * status is the HTTP status, and detail says what is wrong. errors has location and message of each field that is wrong.
     * outcome is that of a ConflictError, task the task as it stands, if the center tells it, and retryAfter how many
     * seconds to wait, or 0.
     *
     * @param list<array{location: string, message: string}> $errors
     * @param array<string, mixed>|null $task
     */
    final public function __construct(
        public readonly int $status,
        public readonly string $title,
        public readonly string $detail,
        public readonly array $errors = [],
        public readonly string $outcome = '',
        public readonly ?array $task = null,
        public readonly int $retryAfter = 0,
    ) {
        $said = array_map(fn (array $e) => "{$e['location']}: {$e['message']}", $errors);
        parent::__construct("$status $title: " . ($said === [] ? $detail : implode('; ', $said)), $status);
    }

    /**
     * Makes an exception of an answer. What stands between client and server may have sent it.
     *
     * @param array<string, string> $headers by names in lower case
     */
    public static function of(int $status, string $reason, array $headers, string $body): self
    {
        $problem = [];
        if (str_starts_with($headers['content-type'] ?? '', 'application/problem+json')) {
            $problem = json_decode($body, true, 100, JSON_BIGINT_AS_STRING);
        }
        $problem = is_array($problem) ? $problem : [];
        $text = fn (mixed $v, string $else = ''): string => is_string($v) && $v !== '' ? $v : $else;
        $errors = [];
        foreach (is_array($problem['errors'] ?? null) ? $problem['errors'] : [] as $e) {
            $errors[] = ['location' => $text($e['location'] ?? null), 'message' => $text($e['message'] ?? null)];
        }
        $task = is_array($problem['task'] ?? null) ? $problem['task'] : null;
        if ($task !== null && isset($headers['etag'])) {
            $task['etag'] = $headers['etag'];
        }
        $kind = match ($status) {
            404 => NotFoundError::class,
            409 => ConflictError::class,
            412 => ChangedError::class,
            422 => InvalidError::class,
            503 => UnavailableError::class,
            default => self::class,
        };
        $wait = $headers['retry-after'] ?? '';

        return new $kind(
            $status,
            $text($problem['title'] ?? null, $reason),
            $text($problem['detail'] ?? null, "'" . substr($body, 0, 200) . "'"),
            $errors,
            $text($problem['outcome'] ?? null),
            $task,
            preg_match('/^\d{1,9}$/', $wait) === 1 ? (int) $wait : 0,
        );
    }
}

/** No task, business type or operation is there by this name. */
final class NotFoundError extends Error
{
}

/** The task cannot be changed: outcome is already_processed, already_cancelled, dead, running or pending. */
final class ConflictError extends Error
{
}

/** The task is not as you have seen it (etag): task is how it is now. */
final class ChangedError extends Error
{
}

/** The request is wrong: errors names the fields. */
final class InvalidError extends Error
{
}

/** The center cannot do it now: detail says whether something was changed. Try again after retryAfter seconds. */
final class UnavailableError extends Error
{
}
