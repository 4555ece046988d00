// The calls of test/t/945_drivers.pl, by lib/pq and database/sql.
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lib/pq"
)

// what *sql.DB and *sql.Tx have in common
type querier interface {
	QueryRow(query string, values ...interface{}) *sql.Row
}

var ids []int64

func one(db querier, result interface{}, query string, values ...interface{}) error {
	return db.QueryRow(query, values...).Scan(result)
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
	db, err := sql.Open("postgres", "sslmode=disable")
	if err != nil {
		panic(err)
	}
	call("untyped", func() error {
		return schedule(db, "SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', $1, $2)", "it's", 7)
	})
	call("typed", func() error {
		return schedule(db, "SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', $1::text, $2::int)", "it's", 7)
	})
	call("mixed", func() error {
		return schedule(db, "SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', $1::int, $2, 3)", 7, past)
	})
	call("null", func() error {
		return schedule(db, "SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', $1, $2)", nil, 8)
	})
	call("prepared", func() error {
		later, err := db.Prepare("SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2, $3)")
		for n := 5; n <= 6 && err == nil; n++ {
			var id int64
			err = later.QueryRow("0", n, n).Scan(&id)
			ids = append(ids, id)
		}
		return err
	})
	call("text", func() error {
		return schedule(db, "SELECT delay_schedule($1, $2, $3)", "100 milliseconds", "UPDATE t SET n = 7 WHERE id = $1", 7)
	})
	call("duration", func() error {
		return schedule(db, "SELECT delay_schedule($1, 'UPDATE t SET n = 8 WHERE id = $1', $2)", (100 * time.Millisecond).String(), 8)
	})
	call("at", func() error {
		return schedule(db, "SELECT delay_schedule_at($1, 'UPDATE t SET at = $1 WHERE id = 9', $2)", time.Now(), past)
	})
	call("args", func() error {
		if err := schedule(db, "SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => $1, delay => '0')", pq.Array([]int{100, 10})); err != nil {
			return err
		}
		return schedule(db, "SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => $1)", pq.Array([]string{"a list", "11"}))
	})
	call("named", func() error {
		values, _ := json.Marshal(map[string]interface{}{"note": "named", "id": 12})
		return schedule(db, "SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => $1)", values)
	})
	call("rollback", func() error {
		var id int64
		tx, _ := db.Begin()
		err := one(tx, &id, "SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', $1)", 13)
		tx.Rollback()
		return err
	})
	call("commit", func() error {
		tx, _ := db.Begin()
		tx.Exec("UPDATE t SET note = 'mine' WHERE id = 14")
		if err := schedule(tx, "SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', $1, $2)", 14, "mine"); err != nil {
			return err
		}
		return tx.Commit()
	})
	call("cancel_key", func() error {
		var outcome string
		db.Exec("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => $1, key => $2)", "1 second", "a key")
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
		payload, _ := json.Marshal(map[string]interface{}{"to": "anna", "n": 1})
		return one(db, &id, "SELECT delay_send($1, $2)", queue, payload)
	})
	call("lease", func() error {
		var found, done bool
		var id, token int64
		var text []byte
		var payload struct{ To string }
		if err := one(db, &found, "CALL delay_await($1, '30 s')", queue); err != nil {
			return err
		}
		if err := db.QueryRow("SELECT id, token, payload FROM delay_lease($1, 10)", queue).Scan(&id, &token, &text); err != nil {
			return err
		}
		json.Unmarshal(text, &payload)
		err := one(db, &done, "SELECT delay_done($1, $2)", id, token)
		if err != nil {
			return err
		}
		return must(found && done && payload.To == "anna")
	})
	call("views", func() error {
		var names []string
		err := one(db, pq.Array(&names), "SELECT array_agg(viewname::text) FROM pg_views WHERE schemaname = 'delay_wheel'")
		for _, name := range names {
			rows, err := db.Query("SELECT * FROM delay_wheel." + name)
			if err != nil {
				return err
			}
			columns, _ := rows.Columns()
			values := make([]interface{}, len(columns))
			for i := range values {
				values[i] = new(interface{})
			}
			for rows.Next() {
				if err := rows.Scan(values...); err != nil {
					return err
				}
			}
			rows.Close()
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
		err := db.QueryRow("SELECT n, note FROM t WHERE id = 1").Scan(&n, &note)
		if err != nil {
			return err
		}
		return must(n == 7 && note == "it's")
	})
	call("error", func() error {
		var id int64
		var failure *pq.Error
		err := one(db, &id, "SELECT delay_schedule($1, 'SELECT 1')", "1 hrz")
		return must(errors.As(err, &failure) && failure.Code == "22007")
	})
}
