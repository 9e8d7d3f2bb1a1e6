import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.SchedulerClient;
import com.github.kagkarlsson.scheduler.task.SchedulableInstance;
import com.github.kagkarlsson.scheduler.task.helper.OneTimeTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/** db-scheduler in a MariaDB, which polls each 100 ms. DbScheduler client PORT is the peer. */
final class DbScheduler extends Peer {
  private static final String TABLE = """
      CREATE TABLE scheduled_tasks (
        task_name VARCHAR(100) NOT NULL, task_instance VARCHAR(100) NOT NULL, task_data BLOB, execution_time TIMESTAMP(6) NOT NULL,
        picked BOOLEAN NOT NULL, picked_by VARCHAR(50), last_success TIMESTAMP(6) NULL, last_failure TIMESTAMP(6) NULL,
        consecutive_failures INT, last_heartbeat TIMESTAMP(6) NULL, version BIGINT NOT NULL, priority SMALLINT,
        PRIMARY KEY (task_name, task_instance), INDEX execution_time_idx (execution_time), INDEX last_heartbeat_idx (last_heartbeat))""";
  private final HikariDataSource pool;
  private final SchedulerClient client;
  private final OneTimeTask<String> task;
  private Fired fired;
  private Runnable recorded;

  public static void main(String[] args) throws Exception {
    new DbScheduler(Mariadb.pool(args[1], 100)).serve();
  }

  DbScheduler(HikariDataSource pool) throws Exception {
    this.pool = pool;
    try (Connection c = pool.getConnection(); Statement s = c.createStatement()) {
      s.execute(TABLE);
    }
    task = Tasks.oneTime("close", String.class).execute((one, context) -> {
      String[] parts = one.getId().split("-");
      fired.accept(Long.parseLong(parts[0]), Long.parseLong(parts[1]));
      recorded.run(); // its row is deleted right after this
    });
    client = SchedulerClient.Builder.create(pool, task).build();
  }

  private SchedulableInstance<String> instance(long due) {
    return SchedulableInstance.of(task.instance(due + "-" + unique(), ATTRIBUTE), Instant.ofEpochMilli(due));
  }

  @Override
  void submit(int caller, long[] due) {
    if (due.length == 1) {
      client.scheduleIfNotExists(instance(due[0]));
      return;
    }
    List<SchedulableInstance<?>> list = new ArrayList<>();
    for (long at : due) {
      list.add(instance(at));
    }
    client.scheduleBatch(list);
  }

  @Override
  void work(Fired onFire, Runnable onRecord) {
    fired = onFire;
    recorded = onRecord;
    Scheduler.create(pool, task).threads(64).pollUsingFetchAndLockOnExecute(0.5, 3.0).pollingInterval(Duration.ofMillis(100)).build().start();
  }
}
