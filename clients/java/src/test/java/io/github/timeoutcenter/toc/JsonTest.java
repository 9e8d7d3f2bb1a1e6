package io.github.timeoutcenter.toc;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

final class JsonTest {
    private static final String MUTILATIONS = "{}[]\",:\\u019-eE.tfn \ud800\u0000";

    void jsonIsRead() {
        Tests.equal(Map.of("a", List.of(1L, -2L, new BigDecimal("1.50"), new BigDecimal("1E+400"), true, false, "x"), "b", Map.of(), "c", List.of()),
                JsonReader.read(" {\"a\" : [1,-2,1.50,1e400,true,false,\"x\"],\r\n\t\"b\":{ },\"c\":[ ]} "));
        Tests.equal(null, JsonReader.read("null"));
        Tests.equal(Long.MAX_VALUE, JsonReader.read("9223372036854775807"));
        Tests.equal(new BigDecimal("18446744073709551615"), JsonReader.read("18446744073709551615"));
        Tests.equal("\"\\/\b\f\n\r\tü😀\u2028", JsonReader.read("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00fc\\ud83d\\ude00\\u2028\""));
        Tests.equal("�a�", JsonReader.read("\"\\ud800a\\udc00\""));
        Tests.equal("��😀", JsonReader.read("\"\\ud800\\ud800\\ud83d\\ude00\""));
        Tests.equal(2L, ((Map<?, ?>) JsonReader.read("{\"a\":1,\"a\":2}")).get("a"));
        Tests.equal("k", ((Map<?, ?>) JsonReader.read("{\"\":\"k\"}")).get(""));
        Tests.holds(JsonReader.read("[".repeat(100) + "]".repeat(100)) != null, "a hundred is not too deep");
    }

    void jsonThatIsNoneIsRefused() throws Exception {
        for (String text : List.of("", " ", "{", "[", "\"", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{a:1}", "{'a':1}", "{1:1}",
                "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{\"a\" 1}", "{\"a\":1 \"b\":2}", "]", "}", ",", ":", "1 2", "{}{}", "nul", "nullx", "True", "NaN",
                "Infinity", "-", "+1", "01", "-01", "1.", ".1", "1.e1", "1e", "1e+", "0x1", "1_0", "١", "\"\\", "\"\\x\"", "\"\\u\"", "\"\\u12\"",
                "\"\\u12g4\"", "\"\\u١٢٣٤\"", "\"\n\"", "\"\u0000\"", "\"a", "\uFEFF{}", "/**/1", "1//", "1e99999999999", "-1e-99999999999",
                "9".repeat(1001), "[".repeat(102), "[".repeat(1_000_000), "{\"a\":".repeat(1_000_000))) {
            try {
                Tests.fails(IllegalArgumentException.class, () -> JsonReader.read(text));
            } catch (AssertionError e) {
                throw new AssertionError(text.substring(0, Math.min(50, text.length())), e);
            }
        }
    }

    void jsonIsWritten() throws Exception {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("a\"\\\n\u0000\u001fü😀\u2028</", Arrays.asList(null, true, 1, -2L, 1.5, "x", Map.of(), List.of()));
        Tests.equal("{\"a\\\"\\\\\\u000a\\u0000\\u001fü😀\u2028</\":[null,true,1,-2,1.5,\"x\",{},[]]}", JsonWriter.write(map));
        for (Object none : List.of("\ud800", "a\udc00b", "\ud800\ud800", Double.NaN, Double.NEGATIVE_INFINITY, new Object(), 'c')) {
            IllegalArgumentException e = Tests.fails(IllegalArgumentException.class, () -> JsonWriter.write(Map.of("x", List.of(1, none))));
            Tests.holds(e.getMessage().startsWith("body.x[1]: "), "the field is named: " + e.getMessage());
        }
    }

    /** What is written is read as it was, and what is mutilated is read or refused, but nothing else. */
    void jsonOfChance() {
        Random chance = new Random(1);
        for (int i = 0; i < 3000; i++) {
            Object value = any(chance, 0);
            String text = JsonWriter.write(value);
            Tests.equal(value, JsonReader.read(text));
            StringBuilder broken = new StringBuilder(text);
            for (int k = chance.nextInt(4); k >= 0 && broken.length() > 0; k--) {
                broken.setCharAt(chance.nextInt(broken.length()), MUTILATIONS.charAt(chance.nextInt(MUTILATIONS.length())));
            }
            try {
                JsonReader.read(broken.toString());
            } catch (IllegalArgumentException e) {
                Tests.holds(e.getMessage().startsWith("no JSON at character "), e.toString());
            }
        }
    }

    private static Object any(Random chance, int depth) {
        switch (chance.nextInt(depth > 4 ? 5 : 7)) {
            case 0:
                return null;
            case 1:
                return chance.nextBoolean();
            case 2:
                return chance.nextLong() >> chance.nextInt(64);
            case 3:
                return new BigDecimal(chance.nextInt()).movePointLeft(3);
            case 4:
                return text(chance);
            case 5:
                List<Object> list = new ArrayList<>();
                for (int i = chance.nextInt(5); i > 0; i--) {
                    list.add(any(chance, depth + 1));
                }
                return list;
            default:
                Map<String, Object> map = new LinkedHashMap<>();
                for (int i = chance.nextInt(5); i > 0; i--) {
                    map.put(text(chance), any(chance, depth + 1));
                }
                return map;
        }
    }

    private static String text(Random chance) {
        StringBuilder s = new StringBuilder();
        for (int i = chance.nextInt(8); i > 0; i--) {
            int code = chance.nextInt(chance.nextBoolean() ? 128 : 0x110000);
            s.appendCodePoint(code >= 0xD800 && code < 0xE000 ? 'x' : code);
        }
        return s.toString();
    }
}
