<?php

// Tests of the client against a real center (TOC_SERVER, TOC_TOKEN), servers that are not well (TOC_FAKE) and the vectors
// that all clients share (TOC_VECTORS), with nothing but PHP. Prints "ok name" for each test, and fails with what failed.

declare(strict_types=1);

require __DIR__ . '/../src/autoload.php';

set_error_handler(function (int $level, string $message, string $file, int $line): bool {
    if ((error_reporting() & $level) === 0) {
        return false; // of @
    }
    throw new ErrorException($message, 0, $level, $file, $line);
});

foreach (['center', 'pull', 'failover', 'vectors'] as $file) {
    require __DIR__ . "/$file.php";
}

function toc(): Toc\Client
{
    return new Toc\Client((string) getenv('TOC_SERVER'), (string) getenv('TOC_TOKEN'));
}

function equal(mixed $want, mixed $got): void
{
    if ($want !== $got) {
        throw new LogicException('want ' . var_export($want, true) . ', got ' . var_export($got, true));
    }
}

/**
 * Expects exactly this kind of exception.
 *
 * @template E of Throwable
 * @param class-string<E> $kind
 * @return E
 */
function fails(string $kind, callable $steps): Throwable
{
    try {
        $steps();
    } catch (Throwable $e) {
        equal($kind, $e::class === LogicException::class ? "$e" : $e::class);

        return $e;
    }
    throw new LogicException("want $kind, got nothing");
}

/** Waits for what should come at once. */
function await(callable $fact): void
{
    for ($until = microtime(true) + 60; !$fact(); usleep(20000)) {
        equal(true, microtime(true) < $until);
    }
}

$failed = 0;
foreach (get_defined_functions()['user'] as $test) {
    if (!str_starts_with($test, 'test_')) {
        continue;
    }
    try {
        $test();
        echo 'ok ', substr($test, 5), "\n";
    } catch (Throwable $e) {
        echo "FAIL $test: $e\n";
        $failed = 1;
    }
}
exit($failed);
