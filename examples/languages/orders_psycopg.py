"""An order is delivered, and rated 48 hours later: with psycopg 3.  PGHOST and the like say
where the database is."""
import psycopg


def deliver(db, id):
    with db.transaction():
        db.execute("UPDATE orders SET state = 'delivered' WHERE id = %s", (id,))
        db.execute("SELECT delay_schedule('48 hours', 'UPDATE orders SET stars = 5 WHERE id = $1 AND stars IS NULL', %s)", (id,))


def test_is_rated_after_two_days(db):
    with db.transaction(force_rollback=True):
        deliver(db, 1)
        db.execute("SELECT delay_run_due(now() + interval '48 hours')")
        assert db.execute("SELECT stars FROM orders WHERE id = 1").fetchone() == (5,)


with psycopg.connect(autocommit=True) as db:
    test_is_rated_after_two_days(db)
    deliver(db, 2)
