<?php

declare(strict_types=1);

// Servers that are not well: those of TOC_FAKE do what the first part of their path says.

use Toc\Client;

/** A server that does so, with a count of its own. */
function server(string $behaviour): string
{
    return getenv('TOC_FAKE') . "/$behaviour/" . biz_id();
}

/** How many requests it got, to paths with that end. */
function calls(string $server, string $end = ''): int
{
    return (int) file_get_contents(getenv('TOC_FAKE') . '/calls/' . basename($server) . $end);
}

function nobody(): string
{
    $listens = stream_socket_server('tcp://127.0.0.1:0');
    $name = stream_socket_get_name($listens, false);
    fclose($listens);

    return "http://$name";
}

function test_what_is_safe_goes_on(): void
{
    $batch = fn (string ...$keys) => array_map(fn (string $k) => Client::submission('a', 1, delay: 1, dedupKey: $k), $keys);
    foreach (['0', '502', '503', '504'] as $status) {
        foreach ([
            [true, fn (Client $toc) => $toc->get(7)],
            [true, fn (Client $toc) => $toc->submit('a', 1, delay: 1, dedupKey: 'k')],
            [true, fn (Client $toc) => $toc->submitBatch($batch('k', 'l'))],
            [false, fn (Client $toc) => $toc->submit('a', 1, delay: 1)],
            [false, fn (Client $toc) => $toc->submitBatch($batch('k', ''))],
            [false, fn (Client $toc) => $toc->submit('a', 1, delay: 1, dedupKey: 'k', moveDuplicate: true)],
            [false, fn (Client $toc) => $toc->submit('a', 1, delay: 1, dedupKey: 'k', again: true)],
            [false, fn (Client $toc) => $toc->cancel(7)],
            [false, fn (Client $toc) => $toc->settle([['lease' => 'x', 'do' => 'ack']])],
        ] as [$safe, $call]) {
            [$bad, $good] = [server($status), server('200')];
            $failed = false;
            try {
                $call(new Client([$bad, $good]));
            } catch (Toc\TransportError | Toc\Error) {
                $failed = true;
            }
            equal([!$safe, 1, (int) $safe], [$failed, calls($bad), calls($good)]);
        }
    }
}

function test_a_server_is_not_there(): void
{
    $good = server('200');
    $toc = new Client([nobody(), $good]);
    $toc->cancel(7);
    $toc->cancel(7);
    equal(2, calls($good));
    fails(Toc\ConnectError::class, fn () => (new Client([nobody(), nobody()]))->get(1));
    fails(Toc\NotFoundError::class, fn () => (new Client([server('404'), $good]))->get(1));
    equal(2, calls($good));
}

function test_bad_answers(): void
{
    foreach (['hang', 'drip'] as $silent) {
        foreach ([fn (Client $toc) => $toc->get(7), fn (Client $toc) => $toc->cancel(7)] as $call) {
            fails(Toc\TransportError::class, fn () => $call(new Client(server($silent), timeout: 0.3)));
        }
    }
    foreach (['html', 'list', 'deep', 'short', 'latin1', '0'] as $garbage) {
        fails(Toc\TransportError::class, fn () => (new Client(server($garbage)))->cancel(7));
    }
    $thief = server('redirect');
    equal(302, fails(Toc\Error::class, fn () => (new Client($thief, token: 'secret-of-mine-123'))->get(7))->status);
    equal(1, calls($thief));
}

/** What servers and those in between may send, byte by byte. */
function test_http(): void
{
    $listens = stream_socket_server('tcp://127.0.0.1:0');
    $address = 'tcp://' . stream_socket_get_name($listens, false);
    foreach ([
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" => [200, 'OK', '{}'],
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}junk" => [200, 'OK', '{}'],
        "HTTP/1.0 200\r\n\r\nto the end" => [200, '', 'to the end'],
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nCONTENT-LENGTH:0\r\n\r\n" => [404, 'Not Found', ''],
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\na\r\n\r\nA\r\n0\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n" => [200, 'OK', "a\r\n0\r\n\r\n0\r\n\r\n"],
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n" => null,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" => null,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n\r\n" => null,
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}" => null,
        "HTTP/1.1 200 OK\r\nContent-" => null,
        "HTTP/2 200\r\n\r\n" => null,
        "SSH-2.0-x\r\n\r\n" => null,
        '' => null,
    ] as $answer => $want) {
        $child = pcntl_fork();
        if ($child === 0) {
            $conn = stream_socket_accept($listens, 20);
            for ($got = ''; !str_ends_with($got, '{}');) {
                $got .= fread($conn, 100);
            }
            foreach (str_split((string) $answer, 7) as $part) {
                @fwrite($conn, $part); // the client may have hung up
            }
            posix_kill(posix_getpid(), SIGKILL); // without PHP's end: it is the parent's
        }
        $send = fn () => Toc\Http::send($address, [], "POST / HTTP/1.1\r\n\r\n{}", 20, 20, null);
        if ($want === null) {
            fails(Toc\TransportError::class, $send);
        } else {
            [$status, $reason, , $body] = $send();
            equal($want, [$status, $reason, $body]);
        }
        pcntl_waitpid($child, $ended);
    }
}
