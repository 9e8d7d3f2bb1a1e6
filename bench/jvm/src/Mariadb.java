import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Statement;

/** A pool of connections to a new database. */
final class Mariadb {
  static HikariDataSource pool(String port, int size) throws Exception {
    String server = "jdbc:mariadb://127.0.0.1:" + port + "/";
    try (Connection c = DriverManager.getConnection(server, "root", ""); Statement s = c.createStatement()) {
      s.execute("CREATE DATABASE bench");
    }
    HikariConfig c = new HikariConfig();
    c.setJdbcUrl(server + "bench?rewriteBatchedStatements=true");
    c.setUsername("root");
    c.setPassword("");
    c.setMaximumPoolSize(size);
    return new HikariDataSource(c);
  }

  private Mariadb() {}
}
