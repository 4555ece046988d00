-- The tour of scripts/try, 2 of 3: a task fails, is understood, and is put back.

\echo
\echo '2 of 3. A task that fails is kept. This one takes 30 from an account that has 20.'
\echo
\set ECHO queries
CREATE TABLE account (owner text, balance int CHECK (balance >= 0));

INSERT INTO account VALUES ('ann', 20);

SELECT delay_schedule('1 second', 'UPDATE account SET balance = balance - 30 WHERE owner = $1', 'ann') AS id \gset
SELECT delay_wait(:id, '1 minute') AS outcome;

SELECT id, attempts, sqlstate, message FROM delay_wheel.failed;
\set ECHO none
\echo 'The message says why. Put the cause right, then the task back:'
\echo
\set ECHO queries
UPDATE account SET balance = 100 WHERE owner = 'ann';

SELECT delay_retry(:id) AS put_back;
\set ECHO none
SELECT delay_wait(:id, '1 minute') AS outcome \gset
\set ECHO queries
SELECT owner, balance, (SELECT count(*) FROM delay_wheel.failed) AS failed FROM account;
\set ECHO none
\set next '\\i :tour/3.sql'
\echo :hint
