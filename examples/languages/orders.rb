# An order is delivered, and rated 48 hours later: with pg.  PGHOST and the like say where the
# database is.
require 'pg'

def deliver(db, id) # within the caller's transaction
  db.exec_params("UPDATE orders SET state = 'delivered' WHERE id = $1", [id])
  db.exec_params("SELECT delay_schedule('48 hours', 'UPDATE orders SET stars = 5 WHERE id = $1 AND stars IS NULL', $1)", [id])
end

def test_is_rated_after_two_days(db)
  db.exec('BEGIN')
  deliver(db, 1)
  db.exec("SELECT delay_run_due(now() + interval '48 hours')")
  raise 'it is not rated' unless db.exec('SELECT stars FROM orders WHERE id = 1').getvalue(0, 0) == '5'
ensure
  db.exec('ROLLBACK')
end

db = PG.connect
test_is_rated_after_two_days(db)
db.transaction { deliver(db, 2) }
