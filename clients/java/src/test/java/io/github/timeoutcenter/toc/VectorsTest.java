package io.github.timeoutcenter.toc;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/** The vectors that all clients share. */
final class VectorsTest {
    private static List<?> vectors(String of) throws Exception {
        Path path = Path.of(System.getenv("TOC_VECTORS"));
        return Values.list(Values.object(JsonReader.read(Files.readString(path))).get(of));
    }

    void signatures() throws Exception {
        for (Object one : vectors("signatures")) {
            Map<String, Object> v = Values.object(one);
            Map<String, String> headers = Map.of("webhook-id", Values.text(v.get("id")), "webhook-timestamp", Values.text(v.get("timestamp")),
                    "webhook-signature", Values.text(v.get("signature")));
            byte[] body = Values.text(v.get("body")).getBytes(StandardCharsets.UTF_8);
            for (int off : new int[] {0, 299, -299, 301, -301}) {
                boolean valid = v.get("valid") == Boolean.TRUE && Math.abs(off) < 300;
                Instant now = Instant.ofEpochSecond(Long.parseLong(headers.get("webhook-timestamp")) + off);
                Tests.Steps verify = () -> Webhook.verify(Values.text(v.get("secret")), headers::get, body, now);
                if (valid) {
                    verify.run();
                } else {
                    Tests.fails(Webhook.SignatureException.class, verify);
                }
            }
        }
        String secret = "a secret of some length";
        Tests.fails(Webhook.SignatureException.class, () -> Webhook.verify(secret, name -> null, new byte[0]));
        Tests.fails(Webhook.SignatureException.class, () -> Webhook.verify(secret, name -> "9".repeat(30), new byte[0]));
        for (Object one : vectors("weak_secrets")) {
            Map<String, Object> v = Values.object(one);
            Tests.fails(IllegalArgumentException.class, () -> Webhook.verify(Values.text(v.get("secret")),
                    name -> Values.text(v.get(name.substring("webhook-".length()))), Values.text(v.get("body")).getBytes(StandardCharsets.UTF_8),
                    Instant.ofEpochSecond(Long.parseLong(Values.text(v.get("timestamp"))))));
        }
    }

    void refusalVectors() throws Exception {
        Map<String, Class<?>> kinds = Map.of("not found", TocException.NotFound.class, "conflict", TocException.Conflict.class, "changed",
                TocException.Changed.class, "invalid", TocException.Invalid.class, "unavailable", TocException.Unavailable.class, "other", TocException.class);
        for (Object one : vectors("refusals")) {
            Map<String, Object> v = Values.object(one);
            String retry = Values.text(v.get("retry_after"));
            TocException got = TocException.of(Values.count(v.get("status")), "application/problem+json", retry, "\"e\"", JsonWriter.write(v.get("body")));
            Tests.equal(kinds.get(Values.text(v.get("kind"))), got.getClass());
            Tests.equal(v.get("text"), got.getMessage());
            Tests.equal(retry.isEmpty() ? Duration.ZERO : Duration.ofSeconds(Long.parseLong(retry)), got.retryAfter());
            Tests.equal(got instanceof TocException.Changed, got.task() != null);
            Tests.equal(got instanceof TocException.Conflict ? "running" : "", got.outcome());
        }
        Tests.equal("502 refused: '<html>'", TocException.of(502, "text/html", "", "", "<html>").getMessage());
        for (String strange : List.of("[]", "{", "{\"errors\":[1,null,{}],\"task\":7}", "{\"task\":{\"attempts\":1e9,\"action_time\":\"x\"}}")) {
            Tests.equal(TocException.Changed.class, TocException.of(412, "application/problem+json", "x", "", strange).getClass());
        }
    }
}
