# The calls of test/t/945_drivers.pl, by Ruby's pg.
require 'json'
require 'pg'
require 'time'

$db = PG.connect
$db.type_map_for_results = PG::BasicTypeMapForResults.new($db)
$db.type_map_for_queries = PG::BasicTypeMapForQueries.new($db)
$ids = []
queue = ENV['PGUSER']
past = Time.utc(2001, 2, 3, 4, 5, 6)

def call(name)
  puts yield ? "ok #{name}" : "not ok #{name}"
rescue StandardError => e
  puts "not ok #{name}: #{e.message.lines.first}"
end

def one(sql, values = []) = $db.exec_params(sql, values).getvalue(0, 0)
def schedule(sql, values = []) = ($ids << one(sql, values)).last.positive?

call('untyped') { schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 1', $1, $2)", ["it's", 7]) }
call('typed') { schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 2', $1::text, $2::int)", ["it's", 7]) }
call('mixed') { schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2, at = $3 WHERE id = $4', 'mixed', $1::int, $2, 3)", [7, past]) }
call('null') { schedule("SELECT delay_schedule('0', 'UPDATE t SET note = $1, n = $2 WHERE id = 4', $1, $2)", [nil, 8]) }
call('prepared') do
  $db.prepare('later', "SELECT delay_schedule($1, 'UPDATE t SET n = $1 WHERE id = $2', $2, $3)")
  [5, 6].each { |n| $ids << $db.exec_prepared('later', ['0', n, n]).getvalue(0, 0) }
end
call('text') { schedule('SELECT delay_schedule($1, $2, $3)', ['100 milliseconds', 'UPDATE t SET n = 7 WHERE id = $1', 7]) }
puts 'none duration'
call('at') { schedule("SELECT delay_schedule_at($1, 'UPDATE t SET at = $1 WHERE id = 9', $2)", [Time.now, past]) }
call('args') do
  schedule("SELECT delay_schedule_task('UPDATE t SET n = $1 WHERE id = $2', args => $1, delay => '0')", [[100, 10]]) &&
    schedule("SELECT delay_schedule_task('UPDATE t SET note = $1 WHERE id = $2', args => $1)", [['a list', '11']])
end
call('named') { schedule("SELECT delay_schedule_task('UPDATE t SET note = :note WHERE id = :id', named => $1)", [{ note: 'named', id: 12 }]) }
call('rollback') do
  $db.transaction do
    one("SELECT delay_schedule('0', 'UPDATE t SET n = 13 WHERE id = $1', $1)", [13])
    raise 'no'
  end
rescue RuntimeError => e
  e.message == 'no'
end
call('commit') do
  $db.transaction do
    $db.exec("UPDATE t SET note = 'mine' WHERE id = 14")
    schedule("SELECT delay_schedule('0', 'UPDATE t SET n = 14 WHERE id = $1 AND note = $2', $1, $2)", [14, 'mine'])
  end
end
call('zone') do
  # as ActiveRecord configures a connection
  connect = lambda do |zone|
    db = PG.connect
    ["SET client_min_messages TO 'warning'", 'SET standard_conforming_strings = on', 'SET intervalstyle = iso_8601',
     "SET SESSION timezone TO '#{zone}'"].each { |sql| db.exec(sql) }
    db
  end
  utc = connect.call('UTC')
  later = utc.exec("SELECT delay_schedule('1 hour', 'SELECT 1')").getvalue(0, 0)
  kept = utc.exec_params('SELECT settings FROM delay_wheel.tasks WHERE id = $1', [later]).getvalue(0, 0)
  one('SELECT delay_cancel($1)', [later])
  $ids << connect.call('Asia/Kolkata').exec_params("SELECT delay_schedule('0', 'UPDATE t SET at = $1, note = ($2::timestamptz = $1)::text WHERE id = 16', $1, $2)",
                                                   ['2001-02-03 09:35:06', '2001-02-03 09:35:06']).getvalue(0, 0).to_i
  kept.nil?
end
call('cancel_key') do
  one("SELECT delay_schedule_task('UPDATE t SET n = 13 WHERE id = 13', delay => $1, key => $2)", ['1 second', 'a key'])
  one('SELECT delay_cancel(key => $1)', ['a key']) == 'cancelled'
end
call('reschedule') do
  schedule("SELECT delay_schedule('1 hour', 'UPDATE t SET n = 15 WHERE id = 15')")
  one('SELECT delay_reschedule($1, $2)', [$ids.last, '0']) == 'moved'
end
call('send') { one('SELECT delay_send($1, $2)', [queue, { to: 'anna', n: 1 }]).positive? }
call('lease') do
  found = one("CALL delay_await($1, '30 s')", [queue])
  id, token, payload = $db.exec_params('SELECT id, token, payload FROM delay_lease($1, 10)', [queue]).values.first
  found && payload == { 'to' => 'anna', 'n' => 1 } && one('SELECT delay_done($1, $2)', [id, token])
end
call('views') do
  names = $db.exec("SELECT viewname FROM pg_views WHERE schemaname = 'delay_wheel'").column_values(0)
  names.each { |name| $db.exec("SELECT * FROM delay_wheel.#{name}").values }.size > 10
end
call('effect') do
  ends = $ids.map { |id| one("SELECT delay_wait($1, '30 s')", [id]) }
  (ends - %w[done gone]).empty? && $db.exec('SELECT n, note FROM t WHERE id = 1').values == [[7, "it's"]]
end
call('error') do
  one("SELECT delay_schedule($1, 'SELECT 1')", ['1 hrz'])
rescue PG::Error => e
  e.result.error_field(PG::PG_DIAG_SQLSTATE) == '22007'
end
