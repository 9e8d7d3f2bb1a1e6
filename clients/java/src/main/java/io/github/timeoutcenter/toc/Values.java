package io.github.timeoutcenter.toc;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.net.URLEncoder;
import java.time.Duration;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Times, durations and ids as the API writes them. */
final class Values {
    private static final Pattern PART = Pattern.compile("(\\d+(?:\\.\\d+)?)(ns|us|µs|μs|ms|s|m|h)");
    private static final Map<String, Long> NANOS = Map.of("ns", 1L, "us", 1_000L, "µs", 1_000L, "μs", 1_000L, "ms", 1_000_000L,
            "s", 1_000_000_000L, "m", 60_000_000_000L, "h", 3_600_000_000_000L);

    private Values() {}

    /** Writes a duration as Go does; at most 292 years. */
    static String duration(String field, Duration d) {
        try {
            return d.toNanos() + "ns";
        } catch (ArithmeticException e) {
            throw new IllegalArgumentException(field + ": " + d + " is longer than 292 years", e);
        }
    }

    /** Reads a duration of Go, such as 1m1.5s; null of null. */
    static Duration duration(Object value) {
        if (value == null) {
            return null;
        }
        String text = text(value);
        Matcher m = PART.matcher(text);
        BigDecimal nanos = BigDecimal.ZERO;
        int at = 0;
        while (m.find() && m.start() == at) {
            nanos = nanos.add(new BigDecimal(m.group(1)).multiply(BigDecimal.valueOf(NANOS.get(m.group(2)))));
            at = m.end();
        }
        if (text.isEmpty() || at != text.length()) {
            throw new IllegalArgumentException(text + " is no duration");
        }
        return Duration.ofNanos(nanos.longValue());
    }

    /** Writes a time in RFC 3339. */
    static String time(String field, Instant at) {
        if (at.isBefore(Instant.parse("0000-01-01T00:00:00Z")) || at.isAfter(Instant.parse("9999-12-31T23:59:59.999999999Z"))) {
            throw new IllegalArgumentException(field + ": " + at + " is not in the years 0 to 9999");
        }
        return at.toString();
    }

    /** Reads a time in RFC 3339; null of null. */
    static Instant time(Object text) {
        try {
            return text == null ? null : Instant.parse(text.toString());
        } catch (DateTimeParseException e) {
            throw new IllegalArgumentException(text + " is no time", e);
        }
    }

    /** Checks a job_id: what goes into a path is a number. */
    static String jobId(String id) {
        try {
            if (Long.toUnsignedString(Long.parseUnsignedLong(id)).equals(id)) {
                return id;
            }
        } catch (NumberFormatException e) {
            // refused below
        }
        throw new IllegalArgumentException("job_id: \"" + id + "\" is no unsigned 64-bit number");
    }

    /** Writes a query of names and values, which take turns; without those that are null or empty. */
    static String query(Object... namesAndValues) {
        StringBuilder q = new StringBuilder();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            Object value = namesAndValues[i + 1];
            if (value != null && !value.equals("")) {
                q.append(q.length() == 0 ? '?' : '&').append(namesAndValues[i]).append('=').append(escape(unicode(namesAndValues[i], value.toString())));
            }
        }
        return q.toString();
    }

    /** Refuses a text with half a surrogate pair, which UTF-8 cannot carry: URLEncoder would write a question mark. */
    static String unicode(Object field, String text) {
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
            throw new IllegalArgumentException(field + ": is no text: it has half a surrogate pair");
        }
        return text;
    }

    /** Escapes a text for a path or a query. */
    static String escape(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        if (value instanceof Map<?, ?> map) {
            return (Map<String, Object>) map;
        }
        throw new IllegalArgumentException("an object is missing");
    }

    static List<?> list(Object value) {
        if (value instanceof List<?> list) {
            return list;
        }
        throw new IllegalArgumentException("a list is missing");
    }

    static String text(Object value) {
        return value instanceof String text ? text : "";
    }

    static int count(Object value) {
        return value instanceof Long n ? Math.toIntExact(n) : 0;
    }
}
