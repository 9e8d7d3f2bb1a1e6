package io.github.timeoutcenter.toc;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads JSON (RFC 8259), strictly. An object becomes a Map in the order of its names, an array a List, a number a Long or,
 * if it is none, a BigDecimal. Of a name that comes twice the last value counts.
 */
final class JsonReader {
    /** How deep arrays and objects may be in each other. */
    private static final int MAX_DEPTH = 100;

    /** How long a number may be, in characters: reading one takes time by the square of its length. */
    private static final int MAX_NUMBER = 1000;

    private final String text;
    private int at;

    private JsonReader(String text) {
        this.text = text;
    }

    /** Reads one value, with nothing behind it. It throws an IllegalArgumentException that tells where the fault is. */
    static Object read(String text) {
        JsonReader r = new JsonReader(text);
        Object value = r.value(0);
        r.space();
        if (r.at < text.length()) {
            throw r.fault("there is more behind the value");
        }
        return value;
    }

    private IllegalArgumentException fault(String what) {
        return new IllegalArgumentException("no JSON at character " + at + ": " + what);
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    /** The next character that is no space, which stays; 0 at the end. */
    private char peek() {
        space();
        return at < text.length() ? text.charAt(at) : 0;
    }

    private void take(char wanted) {
        if (peek() != wanted) {
            throw fault("a " + wanted + " is missing");
        }
        at++;
    }

    private Object value(int depth) {
        if (depth > MAX_DEPTH) {
            throw fault("it is nested deeper than " + MAX_DEPTH);
        }
        char c = peek();
        switch (c) {
            case '{':
                return object(depth);
            case '[':
                return array(depth);
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                if (c == '-' || isDigit(c)) {
                    return number();
                }
                throw fault("a value is missing");
        }
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw fault("a value is missing");
        }
        at += word.length();
        return value;
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> result = new LinkedHashMap<>();
        take('{');
        if (peek() == '}') {
            at++;
            return result;
        }
        while (true) {
            if (peek() != '"') {
                throw fault("a name is missing");
            }
            String name = string();
            take(':');
            result.put(name, value(depth + 1));
            if (peek() == '}') {
                at++;
                return result;
            }
            take(',');
        }
    }

    private List<Object> array(int depth) {
        List<Object> result = new ArrayList<>();
        take('[');
        if (peek() == ']') {
            at++;
            return result;
        }
        while (true) {
            result.add(value(depth + 1));
            if (peek() == ']') {
                at++;
                return result;
            }
            take(',');
        }
    }

    private static boolean isDigit(char c) {
        return c >= '0' && c <= '9';
    }

    private void digits() {
        if (at >= text.length() || !isDigit(text.charAt(at))) {
            throw fault("a digit is missing");
        }
        while (at < text.length() && isDigit(text.charAt(at))) {
            at++;
        }
    }

    private boolean skip(String oneOf) {
        boolean found = at < text.length() && oneOf.indexOf(text.charAt(at)) >= 0;
        at += found ? 1 : 0;
        return found;
    }

    private Object number() {
        int from = at;
        skip("-");
        if (!skip("0")) {
            digits();
        }
        boolean whole = true;
        if (skip(".")) {
            whole = false;
            digits();
        }
        if (skip("eE")) {
            whole = false;
            skip("+-");
            digits();
        }
        if (at - from > MAX_NUMBER) {
            throw fault("a number is longer than " + MAX_NUMBER + " characters");
        }
        String digits = text.substring(from, at);
        try {
            return whole ? (Object) Long.valueOf(digits) : new BigDecimal(digits);
        } catch (NumberFormatException tooLarge) {
            return large(digits);
        }
    }

    private BigDecimal large(String digits) {
        try {
            return new BigDecimal(digits);
        } catch (NumberFormatException e) {
            throw fault("the exponent of a number is out of range");
        }
    }

    private String string() {
        StringBuilder s = new StringBuilder();
        at++;
        while (true) {
            char c = next("the end of a text is missing");
            if (c == '"') {
                return scalars(s);
            }
            if (c < 0x20) {
                throw fault("a control character is in a text");
            }
            s.append(c == '\\' ? escaped() : c);
        }
    }

    private char next(String orElse) {
        if (at >= text.length()) {
            throw fault(orElse);
        }
        return text.charAt(at++);
    }

    private char escaped() {
        char c = next("the end of a text is missing");
        int known = "\"\\/bfnrt".indexOf(c);
        if (known >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(known);
        }
        if (c != 'u') {
            throw fault("\\" + c + " is in a text");
        }
        int code = 0;
        for (int i = 0; i < 4; i++) {
            char digit = next("the end of a text is missing");
            int value = digit < 0x80 ? Character.digit(digit, 16) : -1;
            if (value < 0) {
                throw fault("\\u needs four hexadecimal digits");
            }
            code = code * 16 + value;
        }
        return (char) code;
    }

    /** Half a surrogate pair is no character; like the center, this puts U+FFFD in its place. */
    private static String scalars(StringBuilder s) {
        for (int i = 0; i < s.length(); i++) {
            if (!Character.isSurrogate(s.charAt(i))) {
                continue;
            }
            if (i + 1 < s.length() && Character.isSurrogatePair(s.charAt(i), s.charAt(i + 1))) {
                i++;
            } else {
                s.setCharAt(i, '\uFFFD');
            }
        }
        return s.toString();
    }
}
