// An order is delivered, and rated 48 hours later: with JDBC.  With the argument "work" it is
// a worker for the messages of a queue.  PGHOST and the like say where the database is.
import java.sql.*;

class Orders
{
	static Object one(Connection db, String sql, Object... values) throws SQLException
	{
		try (PreparedStatement statement = db.prepareStatement(sql))
		{
			for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
			if (!statement.execute()) return null;
			ResultSet rows = statement.getResultSet();
			return rows.next() ? rows.getObject(1) : null;
		}
	}

	static void deliver(Connection db, int id) throws SQLException	// within the caller's transaction
	{
		one(db, "UPDATE orders SET state = 'delivered' WHERE id = ?", id);
		one(db, "SELECT delay_schedule('48 hours', 'UPDATE orders SET stars = 5 WHERE id = $1 AND stars IS NULL', ?)", id);
	}

	static void testIsRatedAfterTwoDays(Connection db) throws SQLException
	{
		try
		{
			deliver(db, 1);
			one(db, "SELECT delay_run_due(now() + interval '48 hours')");
			if (!Integer.valueOf(5).equals(one(db, "SELECT stars FROM orders WHERE id = 1"))) throw new AssertionError("it is not rated");
		}
		finally { db.rollback(); }
	}

	static void work(Connection db, String queue) throws SQLException	// with autocommit
	{
		for (;;)
		{
			one(db, "CALL delay_await(?, '30 s')", queue);
			try (PreparedStatement lease = db.prepareStatement("SELECT id, token, payload ->> 'email' FROM delay_lease(?)"))
			{
				lease.setString(1, queue);
				ResultSet message = lease.executeQuery();
				if (!message.next()) continue;	// another worker was faster
				try { send(message.getString(3)); }
				catch (Exception e)
				{
					one(db, "SELECT delay_fail(?, ?, ?)", message.getLong(1), message.getLong(2), e.getMessage());
					continue;
				}
				one(db, "SELECT delay_done(?, ?)", message.getLong(1), message.getLong(2));
			}
		}
	}

	static void send(String email)
	{
		if (email == null) throw new IllegalArgumentException("no address");
		System.out.println("to " + email);
	}

	public static void main(String[] arguments) throws SQLException
	{
		var env = System.getenv();
		var url = "jdbc:postgresql://%s:%s/%s".formatted(env.get("PGHOST"), env.get("PGPORT"), env.get("PGDATABASE"));
		try (Connection db = DriverManager.getConnection(url, env.get("PGUSER"), env.get("PGPASSWORD")))
		{
			if (arguments.length > 0) work(db, env.get("PGUSER"));
			db.setAutoCommit(false);
			testIsRatedAfterTwoDays(db);
			deliver(db, 2);
			db.commit();
		}
	}
}
