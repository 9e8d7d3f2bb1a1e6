<?php

declare(strict_types=1);

namespace Toc;

/** The call is not from somebody who knows the secret, or it is too old. */
final class SignatureError extends \RuntimeException
{
}

/** Checks who calls a webhook (Standard Webhooks v1). */
final class Webhook
{
    /** How old a call may be, and how far ahead its clock, in seconds. */
    public const TOLERANCE = 300;

    /**
     * Throws a SignatureError unless the call was signed with the secret, within five minutes.
     *
     * @param string $secret as in webhook.secret: whsec_ and base64, or any other text, of 16 bytes or more
     * @param array<string, string|list<string>> $headers getallheaders(), $_SERVER, or those of a PSR-7 request
     * @param string $body as it came: file_get_contents('php://input')
     */
    public static function verify(string $secret, array $headers, string $body, ?int $now = null): void
    {
        $key = self::key($secret);
        $given = [];
        foreach ($headers as $name => $value) {
            $name = strtr(strtolower((string) $name), '_', '-');
            $given[str_starts_with($name, 'http-') ? substr($name, 5) : $name] = is_array($value) ? ($value[0] ?? '') : $value;
        }
        [$id, $stamp, $signatures] = array_map(fn (string $n) => (string) ($given["webhook-$n"] ?? ''), ['id', 'timestamp', 'signature']);
        if ($id === '' || preg_match('/^\d{1,12}$/D', $stamp) !== 1) {
            throw new SignatureError('the call is not signed');
        }
        if (abs(($now ?? time()) - (int) $stamp) > self::TOLERANCE) {
            throw new SignatureError('the call is older than five minutes, or a clock is wrong');
        }
        $want = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$stamp.$body", $key, true));
        foreach (explode(' ', $signatures) as $one) {
            if (hash_equals($want, $one)) {
                return;
            }
        }
        throw new SignatureError('no signature matches');
    }

    private static function key(#[\SensitiveParameter] string $secret): string
    {
        $key = str_starts_with($secret, 'whsec_') ? base64_decode(substr($secret, 6), true) : $secret;
        if ($key === false) {
            throw new \InvalidArgumentException('secret: what follows whsec_ is no base64');
        }
        if (strlen($key) < 16) {
            throw new \InvalidArgumentException('secret has fewer than 16 bytes: give that of webhook.secret');
        }

        return $key;
    }
}
