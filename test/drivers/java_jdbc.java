// The calls of test/t/945_drivers.pl, by JDBC.
import java.sql.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.Callable;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PGobject;

class Jdbc
{
	static Connection db;
	static final List<Long> ids = new ArrayList<>();

	static PreparedStatement prepare(String sql, Object... values) throws SQLException
	{
		PreparedStatement statement = db.prepareStatement(sql);
		for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
		return statement;
	}

	static Object one(String sql, Object... values) throws SQLException
	{
		try (PreparedStatement statement = prepare(sql, values)) { return one(statement); }
	}

	static Object one(PreparedStatement statement) throws SQLException
	{
		ResultSet rows = statement.executeQuery();
		rows.next();
		return rows.getObject(1);
	}

	static boolean schedule(String sql, Object... values) throws SQLException { return ids.add((Long) one(sql, values)); }

	static PGobject jsonb(String text) throws SQLException
	{
		PGobject object = new PGobject();
		object.setType("jsonb");
		object.setValue(text);
		return object;
	}

	static void call(String name, Callable<Boolean> does)
	{
		try { System.out.println((does.call() ? "ok " : "not ok ") + name); }
		catch (Exception e) { System.out.println("not ok " + name + ": " + e); }
	}

	static Connection connect() throws SQLException
	{
		var env = System.getenv();
		return DriverManager.getConnection("jdbc:postgresql://%s:%s/%s".formatted(env.get("PGHOST"), env.get("PGPORT"), env.get("PGDATABASE")), env.get("PGUSER"), "");
	}

	public static void main(String[] arguments) throws Exception
	{
		var queue = System.getenv("PGUSER");
		var past = OffsetDateTime.parse("2001-02-03T04:05:06Z");

		db = connect();
		call("untyped", () -> schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', ?, ?)", "it's", 7));
		call("typed", () -> schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', ?::text, ?::int)", "it's", 7));
		call("mixed", () -> schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', ?::int, ?, 3)", 7, past));
		call("null", () -> schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', ?, ?)", null, 8));
		call("prepared", () -> {
			try (PreparedStatement later = prepare("SELECT delay_schedule(?, 'UPDATE t SET n = $1 WHERE id = $2', ?, ?)"))
			{
				later.unwrap(org.postgresql.PGStatement.class).setPrepareThreshold(1); // on the server
				for (int n : new int[] { 5, 6 })
				{
					later.setString(1, "0");
					later.setInt(2, n);
					later.setInt(3, n);
					ids.add((Long) one(later));
				}
			}
			return true;
		});
		call("text", () -> schedule("SELECT delay_schedule(?, ?, ?)", "100 milliseconds", "UPDATE t SET n = 7 WHERE id = $1", 7));
		call("duration", () -> schedule("SELECT delay_schedule(?, 'UPDATE t SET n = 8 WHERE id = $1', ?)", new PGInterval(0, 0, 0, 0, 0, 0.1), 8));
		call("at", () -> schedule("SELECT delay_schedule_at(?, 'UPDATE t SET at = $1 WHERE id = 9', ?)", OffsetDateTime.now(), past));
		call("args", () ->
			schedule("SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => ?, delay => '0')", db.createArrayOf("int", new Integer[] { 100, 10 }))
			&& schedule("SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => ?)", db.createArrayOf("text", new String[] { "a list", "11" })));
		call("named", () -> schedule("SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => ?::jsonb)", "{\"note\": \"named\", \"id\": 12}"));
		db.setAutoCommit(false);
		call("rollback", () -> {
			one("SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', ?)", 13);
			db.rollback();
			return true;
		});
		call("commit", () -> {
			prepare("UPDATE t SET note = 'mine' WHERE id = 14").execute();
			schedule("SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', ?, ?)", 14, "mine");
			db.commit();
			return true;
		});
		db.setAutoCommit(true);
		call("zone", () -> {
			Object later = one("SELECT delay_schedule('1 hour', 'SELECT 1')");
			Object kept = one("SELECT settings FROM delay_wheel.tasks WHERE id = ?", later);
			one("SELECT delay_cancel(?)", later);
			Connection first = db;
			TimeZone zone = TimeZone.getDefault();
			TimeZone.setDefault(TimeZone.getTimeZone("Asia/Kolkata")); // the driver makes it the session's
			try
			{
				db = connect();
				LocalDateTime local = LocalDateTime.parse("2001-02-03T09:35:06");
				return kept == null && schedule("SELECT delay_schedule('0', 'UPDATE t SET at = $1, note = ($2 = $1 AND $3::timestamptz = $1)::text WHERE id = 16', ?, ?, ?)",
					local, Timestamp.valueOf(local), "2001-02-03 09:35:06");
			}
			finally
			{
				db.close();
				db = first;
				TimeZone.setDefault(zone);
			}
		});
		call("cancel_key", () -> {
			one("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => ?::interval, key => ?)", "1 second", "a key");
			return one("SELECT delay_cancel(key => ?)", "a key").equals("cancelled");
		});
		call("reschedule", () -> {
			schedule("SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')");
			return one("SELECT delay_reschedule(?, ?)", ids.get(ids.size() - 1), "0").equals("moved");
		});
		call("send", () -> (Long) one("SELECT delay_send(?, ?)", queue, jsonb("{\"to\": \"anna\", \"n\": 1}")) > 0);
		call("lease", () -> {
			if (!(Boolean) one("CALL delay_await(?, '30 s')", queue)) return false;
			ResultSet row = prepare("SELECT id, token, payload FROM delay_lease(?, 10)", queue).executeQuery();
			row.next();
			return row.getString("payload").equals("{\"n\": 1, \"to\": \"anna\"}")
				&& (Boolean) one("SELECT delay_done(?, ?)", row.getLong("id"), row.getLong("token"));
		});
		call("views", () -> {
			int n = 0;
			ResultSet names = prepare("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'").executeQuery();
			for (; names.next(); n++)
			{
				ResultSet rows = prepare("SELECT * FROM delay_wheel." + names.getString(1)).executeQuery();
				while (rows.next()) for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) rows.getObject(i);
			}
			return n > 10;
		});
		call("effect", () -> {
			for (Long id : ids)
				if (!List.of("done", "gone").contains(one("SELECT delay_wait(?, '30 s')", id))) return false;
			ResultSet row = prepare("SELECT n, note FROM t WHERE id = 1").executeQuery();
			return row.next() && row.getInt(1) == 7 && row.getString(2).equals("it's");
		});
		call("error", () -> {
			try { one("SELECT delay_schedule(?, 'SELECT 1')", "1 hrz"); }
			catch (SQLException e) { return e.getSQLState().equals("22007"); }
			return false;
		});
	}
}
