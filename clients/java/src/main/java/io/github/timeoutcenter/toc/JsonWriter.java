package io.github.timeoutcenter.toc;

import java.util.Map;

/** Writes Maps, Iterables, texts, numbers, Booleans and null as JSON. */
final class JsonWriter {
    private final StringBuilder out = new StringBuilder();

    private JsonWriter() {}

    /** Writes a value. It throws an IllegalArgumentException that names the field which JSON cannot carry. */
    static String write(Object value) {
        JsonWriter w = new JsonWriter();
        w.value("body", value);
        return w.out.toString();
    }

    private void value(String field, Object value) {
        if (value instanceof Map<?, ?> map) {
            object(field, map);
        } else if (value instanceof Iterable<?> list) {
            array(field, list);
        } else if (value instanceof String text) {
            string(field, text);
        } else if (value instanceof Double number && !Double.isFinite(number)) {
            throw new IllegalArgumentException(field + ": " + number + " is no number of JSON");
        } else if (value == null || value instanceof Boolean || value instanceof Number) {
            out.append(value);
        } else {
            throw new IllegalArgumentException(field + ": JSON has no " + value.getClass());
        }
    }

    private void object(String field, Map<?, ?> map) {
        char before = '{';
        for (Map.Entry<?, ?> e : map.entrySet()) {
            String name = field + "." + e.getKey();
            out.append(before);
            string(name, String.valueOf(e.getKey()));
            out.append(':');
            value(name, e.getValue());
            before = ',';
        }
        out.append(map.isEmpty() ? "{}" : "}");
    }

    private void array(String field, Iterable<?> list) {
        out.append('[');
        int i = 0;
        for (Object one : list) {
            if (i > 0) {
                out.append(',');
            }
            value(field + "[" + i++ + "]", one);
        }
        out.append(']');
    }

    private void string(String field, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20) {
                out.append(String.format("\\u%04x", (int) c));
            } else if (!Character.isSurrogate(c)) {
                out.append(c);
            } else if (i + 1 < text.length() && Character.isSurrogatePair(c, text.charAt(i + 1))) {
                out.append(c).append(text.charAt(++i));
            } else {
                throw new IllegalArgumentException(field + ": is no text: half a surrogate pair is at character " + i);
            }
        }
        out.append('"');
    }
}
