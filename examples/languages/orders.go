// An order is delivered, and rated 48 hours later: with pgx.  With the argument "work" it is
// a worker for the messages of a queue.  PGHOST and the like say where the database is.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v4"
)

func deliver(ctx context.Context, tx pgx.Tx, id int) error {
	if _, err := tx.Exec(ctx, "UPDATE orders SET state = 'delivered' WHERE id = $1", id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "SELECT delay_schedule('48 hours', 'UPDATE orders SET stars = 5 WHERE id = $1 AND stars IS NULL', $1::int)", id)
	return err
}

func testIsRatedAfterTwoDays(ctx context.Context, tx pgx.Tx) (err error) {
	var stars int
	defer tx.Rollback(ctx)
	if err = deliver(ctx, tx, 1); err != nil {
		return err
	}
	if _, err = tx.Exec(ctx, "SELECT delay_run_due(now() + interval '48 hours')"); err != nil {
		return err
	}
	if err = tx.QueryRow(ctx, "SELECT coalesce(stars, 0) FROM orders WHERE id = 1").Scan(&stars); err == nil && stars != 5 {
		err = fmt.Errorf("%d stars", stars)
	}
	return err
}

type message struct {
	id, token int64
	payload   struct{ Email string }
}

func work(ctx context.Context, db *pgx.Conn, queue string, send func(email string) error) error {
	for {
		var m message
		if _, err := db.Exec(ctx, "CALL delay_await($1, '30 s')", queue); err != nil {
			return err
		}
		err := db.QueryRow(ctx, "SELECT id, token, payload FROM delay_lease($1)", queue).Scan(&m.id, &m.token, &m.payload)
		if err == pgx.ErrNoRows { // another worker was faster
			continue
		} else if err != nil {
			return err
		}
		if e := send(m.payload.Email); e != nil {
			_, err = db.Exec(ctx, "SELECT delay_fail($1, $2, $3)", m.id, m.token, e.Error())
		} else {
			_, err = db.Exec(ctx, "SELECT delay_done($1, $2)", m.id, m.token)
		}
		if err != nil {
			return err
		}
	}
}

func send(email string) error {
	if email == "" {
		return fmt.Errorf("no address")
	}
	fmt.Println("to", email)
	return nil
}

func main() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, "sslmode=disable")
	if err == nil && len(os.Args) > 1 {
		err = work(ctx, db, os.Getenv("PGUSER"), send)
	} else if err == nil {
		for _, does := range []func(tx pgx.Tx) error{
			func(tx pgx.Tx) error { return testIsRatedAfterTwoDays(ctx, tx) },
			func(tx pgx.Tx) error {
				if err := deliver(ctx, tx, 2); err != nil {
					return err
				}
				return tx.Commit(ctx)
			},
		} {
			var tx pgx.Tx
			if tx, err = db.Begin(ctx); err == nil {
				err = does(tx)
			}
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		panic(err)
	}
}
