<?php
// The calls of test/t/945_drivers.pl, by PDO.
$db = new PDO('pgsql:');	// PGHOST and the like say the rest
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
	$statement = $db->prepare($sql);
	$statement->execute($values);
	return $statement->fetchAll(PDO::FETCH_ASSOC);
}

function one(string $sql, array $values = []): mixed { return current(rows($sql, $values)[0]); }

function schedule(string $sql, array $values = []): bool
{
	global $ids;
	$ids[] = one($sql, $values);
	return end($ids) > 0;
}

call('untyped', fn () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', ?, ?)", ["it's", 7]));
call('typed', fn () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', ?::text, ?::int)", ["it's", 7]));
call('mixed', fn () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', ?::int, ?, 3)", [7, $past->format('c')]));
call('null', fn () => schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', ?, ?)", [null, 8]));
call('prepared', function () use ($db) {
	global $ids;
	$later = $db->prepare("SELECT delay_schedule(:delay, 'UPDATE t SET n = $1 WHERE id = $2', :n, :id)");
	foreach ([5, 6] as $n) {
		$later->execute(['delay' => '0', 'n' => $n, 'id' => $n]);
		$ids[] = $later->fetchColumn();
	}
	return true;
});
call('text', fn () => schedule('SELECT delay_schedule(?, ?, ?)', ['100 milliseconds', 'UPDATE t SET n = 7 WHERE id = $1', 7]));
echo "none duration\n";
call('at', fn () => schedule("SELECT delay_schedule_at(?, 'UPDATE t SET at = $1 WHERE id = 9', ?)", [(new DateTime)->format('c'), $past->format('c')]));
call('args', fn () => schedule("SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => ?, delay => '0')", ['{100,10}'])
	&& schedule("SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => ?)", ['{a list,11}']));
call('named', fn () => schedule("SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => ?)", [json_encode(['note' => 'named', 'id' => 12])]));
call('rollback', function () use ($db) {
	$db->beginTransaction();
	$id = one("SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', ?)", [13]);
	return $db->rollBack() && $id > 0;
});
call('commit', function () use ($db) {
	$db->beginTransaction();
	$db->exec("UPDATE t SET note = 'mine' WHERE id = 14");
	schedule("SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', ?, ?)", [14, 'mine']);
	return $db->commit();
});
call('cancel_key', function () {
	one("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => ?, key => ?)", ['1 second', 'a key']);
	return one('SELECT delay_cancel(key => ?)', ['a key']) === 'cancelled';
});
call('reschedule', function () {
	global $ids;
	schedule("SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')");
	return one('SELECT delay_reschedule(?, ?)', [end($ids), '0']) === 'moved';
});
call('send', fn () => one('SELECT delay_send(?, ?)', [$queue, json_encode(['to' => 'anna', 'n' => 1])]) > 0);
call('lease', function () use ($queue) {
	$found = one("CALL delay_await(?, '30 s')", [$queue]);
	[$message] = rows('SELECT id, token, payload FROM delay_lease(?, 10)', [$queue]);
	return $found && json_decode($message['payload'])->to === 'anna' && one('SELECT delay_done(?, ?)', [$message['id'], $message['token']]) === true;
});
call('views', function () {
	$names = rows("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'");
	foreach ($names as $name) rows("SELECT * FROM delay_wheel.{$name['viewname']}");
	return count($names) > 10;
});
call('effect', function () {
	global $ids;
	$ends = array_map(fn ($id) => one("SELECT delay_wait(?, '30 s')", [$id]), $ids);
	return !array_diff($ends, ['done', 'gone']) && rows('SELECT n, note FROM t WHERE id = 1') == [['n' => 7, 'note' => "it's"]];
});
call('error', function () {
	try { one("SELECT delay_schedule(?, 'SELECT 1')", ['1 hrz']); }
	catch (PDOException $e) { return $e->getCode() === '22007'; }
});
