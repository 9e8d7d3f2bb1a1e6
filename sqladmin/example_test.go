package sqladmin_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/timeoutcenter/toc/sqladmin"
)

// Two databases with one table each answer as one.
func Example() {
	cfg := sqladmin.Config{
		Dialect:   sqladmin.SQLite,
		Tables:    1,
		TableName: func(table int) string { return fmt.Sprintf("timeout_task_%04d", table) },
	}
	for number, rows := range []string{"(1, 0, 42), (2, 2, 8)", "(3, 0, -1), (4, 0, 17)"} {
		db, err := sql.Open("sqlite", ":memory:")
		if err != nil {
			panic(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		if _, err := db.Exec("CREATE TABLE timeout_task_0000 (job_id, status, biz_id); INSERT INTO timeout_task_0000 VALUES " + rows); err != nil {
			panic(err)
		}
		cfg.Sources = append(cfg.Sources, sqladmin.Source{DB: db, Database: number})
	}
	query, err := sqladmin.Parse("SELECT status, COUNT(*) AS tasks, MAX(biz_id) FROM timeout_task GROUP BY status ORDER BY tasks DESC")
	if err != nil {
		panic(err)
	}
	result, err := query.Run(context.Background(), cfg)
	if err != nil {
		panic(err)
	}
	if err := result.WriteTable(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	//  status | tasks |          MAX(biz_id)
	// --------+-------+----------------------
	//       0 |     3 | 18446744073709551615
	//       2 |     1 |                    8
	// (2 rows)
}
