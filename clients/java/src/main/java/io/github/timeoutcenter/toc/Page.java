package io.github.timeoutcenter.toc;

import java.util.List;
import java.util.Map;

/**
 * A part of a list of tasks. It may be short, or empty, although there is a next one.
 *
 * @param tasks the tasks
 * @param nextCursor asks for the next page; empty on the last one
 */
public record Page(List<Task> tasks, String nextCursor) {
    static Page of(Map<String, Object> answer) {
        return new Page(Values.list(answer.get("tasks")).stream().map(t -> Task.of(t, "")).toList(), Values.text(answer.get("next_cursor")));
    }
}
