<?php
// An order is delivered, and rated 48 hours later: with PDO.  PGHOST and the like say where
// the database is.

function deliver(PDO $db, int $id): void	// within the caller's transaction
{
	$db->prepare("UPDATE orders SET state = 'delivered' WHERE id = ?")->execute([$id]);
	$db->prepare("SELECT delay_schedule('48 hours', 'UPDATE orders SET stars = 5 WHERE id = $1 AND stars IS NULL', ?)")->execute([$id]);
}

function testIsRatedAfterTwoDays(PDO $db): void
{
	$db->beginTransaction();
	try {
		deliver($db, 1);
		$db->query("SELECT delay_run_due(now() + interval '48 hours')");
		if ($db->query('SELECT stars FROM orders WHERE id = 1')->fetchColumn() !== 5) throw new Exception('it is not rated');
	} finally {
		$db->rollBack();
	}
}

$db = new PDO('pgsql:');
testIsRatedAfterTwoDays($db);
$db->beginTransaction();
deliver($db, 2);
$db->commit();
