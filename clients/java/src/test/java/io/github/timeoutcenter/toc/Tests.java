package io.github.timeoutcenter.toc;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Objects;

/** Runs every method of the test classes, with nothing but a JDK; prints "ok name" for each, and fails with what failed. */
public final class Tests {
    private Tests() {}

    public static void main(String[] args) throws Exception {
        int failed = 0;
        for (Class<?> c : new Class<?>[] {JsonTest.class, ValuesTest.class, VectorsTest.class, FailoverTest.class, GatherTest.class,
                CenterTest.class, PullTest.class}) {
            for (Method m : c.getDeclaredMethods()) {
                if (m.getParameterCount() == 0 && m.getReturnType() == void.class && !m.isSynthetic() && !m.getName().startsWith("lambda")) {
                    failed += passes(c, m) ? 0 : 1;
                }
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    private static boolean passes(Class<?> c, Method m) throws ReflectiveOperationException {
        String name = m.getName().replaceAll("([A-Z])", "_$1").toLowerCase();
        try {
            m.invoke(c.getDeclaredConstructor().newInstance());
            System.out.println("ok " + name);
            return true;
        } catch (InvocationTargetException e) {
            System.out.println("FAIL " + c.getSimpleName() + " " + name);
            e.getCause().printStackTrace(System.out);
            return false;
        }
    }

    /** Some steps that may throw. */
    interface Steps {
        void run() throws Exception;
    }

    static void equal(Object want, Object got) {
        if (!Objects.equals(want, got)) {
            throw new AssertionError("want " + want + ", got " + got);
        }
    }

    static void holds(boolean fact, String what) {
        if (!fact) {
            throw new AssertionError(what);
        }
    }

    /** Expects exactly this kind of exception. */
    static <E extends Throwable> E fails(Class<E> kind, Steps steps) throws Exception {
        try {
            steps.run();
        } catch (Throwable e) {
            if (e.getClass() != kind) {
                throw new AssertionError("want " + kind + ", got " + e, e);
            }
            return kind.cast(e);
        }
        throw new AssertionError("want " + kind + ", got nothing");
    }
}
