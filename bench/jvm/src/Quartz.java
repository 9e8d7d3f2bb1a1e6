import com.zaxxer.hikari.HikariDataSource;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Date;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.quartz.Job;
import org.quartz.JobBuilder;
import org.quartz.JobDetail;
import org.quartz.JobExecutionContext;
import org.quartz.Scheduler;
import org.quartz.SchedulerException;
import org.quartz.Trigger;
import org.quartz.TriggerBuilder;
import org.quartz.impl.StdSchedulerFactory;
import org.quartz.listeners.TriggerListenerSupport;
import org.quartz.utils.ConnectionProvider;
import org.quartz.utils.DBConnectionManager;

/** Quartz with its JDBC store, clustered, in a MariaDB: a trigger a task, one durable job. Quartz client PORT is the peer. */
public final class Quartz extends Peer {
  private static Fired fired;
  private static Runnable recorded;
  private final Scheduler scheduler;
  private final JobDetail job = JobBuilder.newJob(Close.class).withIdentity("close").storeDurably().build();

  /** The job of every trigger. */
  public static final class Close implements Job {
    @Override
    public void execute(JobExecutionContext c) {
      fired.accept(c.getTrigger().getStartTime().getTime(), Long.parseLong(c.getTrigger().getKey().getName()));
    }
  }

  public static void main(String[] args) throws Exception {
    new Quartz(Mariadb.pool(args[1], 100)).serve();
  }

  Quartz(HikariDataSource pool) throws Exception {
    try (Connection c = pool.getConnection(); Statement s = c.createStatement();
        InputStream tables = Scheduler.class.getResourceAsStream("/org/quartz/impl/jdbcjobstore/tables_mysql_innodb.sql")) {
      String script = new String(tables.readAllBytes(), StandardCharsets.UTF_8).replaceAll("(?m)^#.*$", "");
      for (String statement : script.split(";")) {
        if (!statement.isBlank()) {
          s.execute(statement);
        }
      }
    }
    DBConnectionManager.getInstance().addConnectionProvider("db", new ConnectionProvider() {
      @Override
      public Connection getConnection() throws SQLException {
        return pool.getConnection();
      }

      @Override
      public void shutdown() {}

      @Override
      public void initialize() {}
    });
    Properties p = new Properties();
    p.putAll(Map.of(
        "org.quartz.scheduler.instanceName", "bench",
        "org.quartz.scheduler.instanceId", "AUTO",
        "org.quartz.scheduler.batchTriggerAcquisitionMaxCount", "500",
        "org.quartz.threadPool.threadCount", "64",
        "org.quartz.jobStore.class", "org.quartz.impl.jdbcjobstore.JobStoreTX",
        "org.quartz.jobStore.driverDelegateClass", "org.quartz.impl.jdbcjobstore.StdJDBCDelegate",
        "org.quartz.jobStore.dataSource", "db",
        "org.quartz.jobStore.isClustered", "true",
        "org.quartz.jobStore.useProperties", "true",
        "org.quartz.jobStore.acquireTriggersWithinLock", "true"));
    scheduler = new StdSchedulerFactory(p).getScheduler();
    scheduler.addJob(job, true);
    scheduler.getListenerManager().addTriggerListener(new TriggerListenerSupport() {
      @Override
      public String getName() {
        return "recorded";
      }

      @Override
      public void triggerComplete(Trigger t, JobExecutionContext c, Trigger.CompletedExecutionInstruction i) {
        recorded.run(); // its row is deleted right after this
      }
    });
  }

  private Trigger trigger(long due) {
    return TriggerBuilder.newTrigger().withIdentity(Long.toString(unique())).forJob(job).startAt(new Date(due)).usingJobData("task", ATTRIBUTE)
        .build();
  }

  @Override
  void submit(int caller, long[] due) throws Exception {
    if (due.length == 1) {
      scheduler.scheduleJob(trigger(due[0]));
      return;
    }
    Set<Trigger> triggers = new HashSet<>();
    for (long at : due) {
      triggers.add(trigger(at));
    }
    Map<JobDetail, Set<? extends Trigger>> all = new HashMap<>();
    all.put(job, triggers);
    scheduler.scheduleJobs(all, true);
  }

  @Override
  void work(Fired onFire, Runnable onRecord) throws SchedulerException {
    fired = onFire;
    recorded = onRecord;
    scheduler.start();
  }
}
