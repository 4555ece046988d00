// The calls of test/t/945_drivers.pl, by pgx.  It asks the server for the types of values: an argument
// without a cast is a text, and takes no other.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
)

// what a connection and a transaction have in common
type querier interface {
	QueryRow(ctx context.Context, query string, values ...interface{}) pgx.Row
}

var ctx = context.Background()

var ids []int64

func one(db querier, result interface{}, query string, values ...interface{}) error {
	return db.QueryRow(ctx, query, values...).Scan(result)
}

func schedule(db querier, query string, values ...interface{}) error {
	var id int64
	err := one(db, &id, query, values...)
	ids = append(ids, id)
	return err
}

func call(name string, does func() error) {
	if err := does(); err != nil {
		fmt.Println("not ok", name+":", err)
	} else {
		fmt.Println("ok", name)
	}
}

func must(holds bool) error {
	if !holds {
		return errors.New("not what it should be")
	}
	return nil
}

func main() {
	queue := os.Getenv("PGUSER")
	past := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	db, err := pgx.Connect(ctx, "sslmode=disable")
	if err != nil {
		panic(err)
	}
	call("untyped", func() error {
		return schedule(db, "SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', $1, $2)", "it's", "7")
	})
	call("typed", func() error {
		return schedule(db, "SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', $1::text, $2::int)", "it's", 7)
	})
	call("mixed", func() error {
		return schedule(db, "SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', $1::int, $2::timestamptz, 3)", 7, past)
	})
	call("null", func() error {
		return schedule(db, "SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', $1, $2::int)", nil, 8)
	})
	call("prepared", func() error {
		_, err := db.Prepare(ctx, "later", "SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2::int, $3::int)")
		for n := 5; n <= 6 && err == nil; n++ {
			var id int64
			err = db.QueryRow(ctx, "later", "0", n, n).Scan(&id)
			ids = append(ids, id)
		}
		return err
	})
	call("text", func() error {
		return schedule(db, "SELECT delay_schedule($1, $2, $3::int)", "100 milliseconds", "UPDATE t SET n = 7 WHERE id = $1", 7)
	})
	call("duration", func() error {
		return schedule(db, "SELECT delay_schedule($1::interval, 'UPDATE t SET n = 8 WHERE id = $1', $2::int)", 100*time.Millisecond, 8)
	})
	call("at", func() error {
		return schedule(db, "SELECT delay_schedule_at($1, 'UPDATE t SET at = $1 WHERE id = 9', $2::timestamptz)", time.Now(), past)
	})
	call("args", func() error {
		if err := schedule(db, "SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => $1::int[], delay => '0')", []int{100, 10}); err != nil {
			return err
		}
		return schedule(db, "SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => $1)", []string{"a list", "11"})
	})
	call("named", func() error {
		values := map[string]interface{}{"note": "named", "id": 12}
		return schedule(db, "SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => $1)", values)
	})
	call("rollback", func() error {
		var id int64
		tx, _ := db.Begin(ctx)
		err := one(tx, &id, "SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', $1::int)", 13)
		tx.Rollback(ctx)
		return err
	})
	call("commit", func() error {
		tx, _ := db.Begin(ctx)
		tx.Exec(ctx, "UPDATE t SET note = 'mine' WHERE id = 14")
		if err := schedule(tx, "SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', $1::int, $2)", 14, "mine"); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	call("cancel_key", func() error {
		var outcome string
		db.Exec(ctx, "SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => $1, key => $2)", time.Second, "a key")
		if err := one(db, &outcome, "SELECT delay_cancel(key => $1)", "a key"); err != nil {
			return err
		}
		return must(outcome == "cancelled")
	})
	call("reschedule", func() error {
		var moved string
		schedule(db, "SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')")
		if err := one(db, &moved, "SELECT delay_reschedule($1, $2)", ids[len(ids)-1], "0"); err != nil {
			return err
		}
		return must(moved == "moved")
	})
	call("send", func() error {
		var id int64
		payload := map[string]interface{}{"to": "anna", "n": 1}
		return one(db, &id, "SELECT delay_send($1, $2)", queue, payload)
	})
	call("lease", func() error {
		var found, done bool
		var id, token int64
		var payload struct{ To string }
		if err := one(db, &found, "CALL delay_await($1, '30 s')", queue); err != nil {
			return err
		}
		if err := db.QueryRow(ctx, "SELECT id, token, payload FROM delay_lease($1, 10)", queue).Scan(&id, &token, &payload); err != nil {
			return err
		}
		err := one(db, &done, "SELECT delay_done($1, $2)", id, token)
		if err != nil {
			return err
		}
		return must(found && done && payload.To == "anna")
	})
	call("views", func() error {
		var names []string
		err := one(db, &names, "SELECT array_agg(viewname::text) FROM pg_views WHERE schemaname = 'delay_wheel'")
		for _, name := range names {
			rows, err := db.Query(ctx, "SELECT * FROM delay_wheel."+name)
			if err != nil {
				return err
			}
			for rows.Next() {
				if _, err := rows.Values(); err != nil {
					return err
				}
			}
			if rows.Err() != nil {
				return rows.Err()
			}
		}
		if err != nil {
			return err
		}
		return must(len(names) > 10)
	})
	call("effect", func() error {
		var n int
		var note string
		for _, id := range ids {
			var end string
			if err := one(db, &end, "SELECT delay_wait($1, '30 s')", id); err != nil || end != "done" && end != "gone" {
				return fmt.Errorf("%v %v", end, err)
			}
		}
		err := db.QueryRow(ctx, "SELECT n, note FROM t WHERE id = 1").Scan(&n, &note)
		if err != nil {
			return err
		}
		return must(n == 7 && note == "it's")
	})
	call("error", func() error {
		var id int64
		var failure *pgconn.PgError
		err := one(db, &id, "SELECT delay_schedule($1, 'SELECT 1')", "1 hrz")
		return must(errors.As(err, &failure) && failure.Code == "22007")
	})
}
