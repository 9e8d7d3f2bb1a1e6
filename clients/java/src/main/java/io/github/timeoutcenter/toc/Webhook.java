package io.github.timeoutcenter.toc;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.function.Function;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Checks who calls a webhook (Standard Webhooks v1). */
public final class Webhook {
    /** How old a call may be, and how far ahead its clock. */
    public static final Duration TOLERANCE = Duration.ofMinutes(5);

    private Webhook() {}

    /** The call is not from somebody who knows the secret, or it is too old. */
    public static final class SignatureException extends Exception {
        private static final long serialVersionUID = 1;

        private SignatureException(String message) {
            super(message);
        }
    }

    /**
     * Throws a SignatureException unless the call was signed with the secret, within five minutes.
     *
     * @param secret as in webhook.secret: whsec_ and base64, or any other text, of 16 bytes or more; else IllegalArgumentException
     * @param header gives a header of the call by its name, or null: request::getHeader
     * @param body the body as it came, not read and written again
     */
    public static void verify(String secret, Function<String, String> header, byte[] body) throws SignatureException {
        verify(secret, header, body, Instant.now());
    }

    static void verify(String secret, Function<String, String> header, byte[] body, Instant now) throws SignatureException {
        byte[] key = key(secret);
        String id = header.apply("webhook-id");
        String stamp = header.apply("webhook-timestamp");
        String signatures = header.apply("webhook-signature");
        if (id == null || stamp == null || signatures == null || !stamp.matches("[0-9]{1,12}")) {
            throw new SignatureException("the call is not signed");
        }
        if (Math.abs(now.getEpochSecond() - Long.parseLong(stamp)) > TOLERANCE.toSeconds()) {
            throw new SignatureException("the call is older than five minutes, or a clock is wrong");
        }
        byte[] want = sign(key, id + "." + stamp + ".", body);
        for (String one : signatures.split(" ")) {
            if (one.startsWith("v1,") && MessageDigest.isEqual(one.substring(3).getBytes(StandardCharsets.UTF_8), want)) {
                return;
            }
        }
        throw new SignatureException("no signature matches");
    }

    private static byte[] key(String secret) {
        byte[] key = secret.startsWith("whsec_") ? Base64.getDecoder().decode(secret.substring("whsec_".length()))
                : secret.getBytes(StandardCharsets.UTF_8);
        if (key.length < 16) {
            throw new IllegalArgumentException("secret has fewer than 16 bytes: give that of webhook.secret");
        }
        return key;
    }

    private static byte[] sign(byte[] key, String head, byte[] body) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            mac.update(head.getBytes(StandardCharsets.UTF_8));
            return Base64.getEncoder().encode(mac.doFinal(body));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("every JDK has HmacSHA256", e);
        }
    }
}
