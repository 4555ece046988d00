<?php
// The calls of test/t/945_drivers.pl, by PHP's pgsql.
$db = pg_connect('');	// PGHOST and the like say the rest
set_error_handler(fn ($code, $text) => throw new Exception($text));
$queue = getenv('PGUSER');
$past = new DateTimeImmutable('2001-02-03T04:05:06Z');
$ids = [];

function call(string $name, callable $does): void
{
	try { echo $does() ? 'ok ' : 'not ok ', $name, "\n"; }
	catch (Exception $e) { echo 'not ok ', $name, ': ', strtok($e->getMessage(), "\n"), "\n"; }
}

function rows(string $sql, array $values = []): array
{
	global $db;
	return pg_fetch_all(pg_query_params($db, $sql, $values));
}

function one(string $sql, array $values = []): mixed { return current(rows($sql, $values)[0]); }

function schedule(string $sql, array $values = []): bool
{
	global $ids;
	$ids[] = one($sql, $values);
	return end($ids) > 0;
}

call('untyped', fn () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', $1, $2)", ["it's", 7]));
call('typed', fn () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', $1::text, $2::int)", ["it's", 7]));
call('mixed', fn () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', $1::int, $2, 3)", [7, $past->format('c')]));
call('null', fn () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', $1, $2)", [null, 8]));
call('prepared', function () use ($db) {
	global $ids;
	pg_prepare($db, 'later', "SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2, $3)");
	foreach ([5, 6] as $n) $ids[] = pg_fetch_result(pg_execute($db, 'later', ['0', $n, $n]), 0, 0);
	return true;
});
call('text', fn () => schedule('SELECT delay_schedule($1, $2, $3)', ['100 milliseconds', 'UPDATE t SET n = 7 WHERE id = $1', 7]));
echo "none duration\n";
call('at', fn () => schedule("SELECT delay_schedule_at($1, 'UPDATE t SET at = $1 WHERE id = 9', $2)", [(new DateTime)->format('c'), $past->format('c')]));
call('args', fn () => schedule("SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => $1, delay => '0')", ['{100,10}'])
	&& schedule("SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => $1)", ['{a list,11}']));
call('named', fn () => schedule("SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => $1)", [json_encode(['note' => 'named', 'id' => 12])]));
call('rollback', function () use ($db) {
	pg_query($db, 'BEGIN');
	$id = one("SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', $1)", [13]);
	return pg_query($db, 'ROLLBACK') && $id > 0;
});
call('commit', function () use ($db) {
	pg_query($db, 'BEGIN');
	pg_query($db, "UPDATE t SET note = 'mine' WHERE id = 14");
	schedule("SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', $1, $2)", [14, 'mine']);
	return (bool) pg_query($db, 'COMMIT');
});
call('cancel_key', function () {
	one("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => $1, key => $2)", ['1 second', 'a key']);
	return one('SELECT delay_cancel(key => $1)', ['a key']) === 'cancelled';
});
call('reschedule', function () {
	global $ids;
	schedule("SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')");
	return one('SELECT delay_reschedule($1, $2)', [end($ids), '0']) === 'moved';
});
call('send', fn () => one('SELECT delay_send($1, $2)', [$queue, json_encode(['to' => 'anna', 'n' => 1])]) > 0);
call('lease', function () use ($queue) {
	$found = one("CALL delay_await($1, '30 s')", [$queue]);
	[$message] = rows('SELECT id, token, payload FROM delay_lease($1, 10)', [$queue]);
	return $found === 't' && json_decode($message['payload'])->to === 'anna' && one('SELECT delay_done($1, $2)', [$message['id'], $message['token']]) === 't';
});
call('views', function () {
	$names = rows("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'");
	foreach ($names as $name) rows("SELECT * FROM delay_wheel.{$name['viewname']}");
	return count($names) > 10;
});
call('effect', function () {
	global $ids;
	$ends = array_map(fn ($id) => one("SELECT delay_wait($1, '30 s')", [$id]), $ids);
	return !array_diff($ends, ['done', 'gone']) && rows('SELECT n, note FROM t WHERE id = 1') == [['n' => 7, 'note' => "it's"]];
});
call('error', function () {
	global $db;
	pg_send_query_params($db, "SELECT delay_schedule($1, 'SELECT 1')", ['1 hrz']);
	return pg_result_error_field(pg_get_result($db), PGSQL_DIAG_SQLSTATE) === '22007';
});
