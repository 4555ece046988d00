--
-- One shop, in the schema :way: what is the same in whichever way its unpaid
-- orders expire.  Included by example.sql once for each way, as role "store".
--
CREATE SCHEMA :way;
GRANT USAGE ON SCHEMA :way TO customer;
SET search_path = :way, public, pg_temp;

CREATE TABLE stock (item int PRIMARY KEY, n int NOT NULL);
CREATE TABLE purchase (
	id bigint PRIMARY KEY,
	item int NOT NULL,
	status text NOT NULL DEFAULT 'placed',	-- placed, paid, expired
	pay_until timestamptz NOT NULL,
	ended timestamptz			-- when it was paid, or expired
);

-- Who tried to pay.  Money for an order that has expired goes back.
CREATE TABLE payment (id bigint PRIMARY KEY, accepted boolean NOT NULL, task text);

-- If the order is still not paid and its time is up: it expires, and its item
-- is for sale again.
CREATE FUNCTION expire(order_id bigint) RETURNS void LANGUAGE sql
SET search_path FROM CURRENT AS $$
	WITH expired AS (
		UPDATE purchase SET status = 'expired', ended = clock_timestamp()
		WHERE id = order_id AND status = 'placed' AND pay_until <= clock_timestamp()
		RETURNING item)
	UPDATE stock SET n = n + 1 FROM expired WHERE stock.item = expired.item
$$;

CREATE FUNCTION pay(order_id bigint) RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	accepted boolean;
BEGIN
	UPDATE purchase SET status = 'paid', ended = clock_timestamp() WHERE id = order_id AND status = 'placed';
	accepted := FOUND;
	INSERT INTO payment VALUES (order_id, accepted);
	RETURN accepted;
END $$;

-- What a customer sees who looks at an order.
CREATE FUNCTION look(order_id bigint) RETURNS text LANGUAGE sql
SECURITY DEFINER SET search_path FROM CURRENT AS
	'SELECT status FROM purchase WHERE id = order_id';

INSERT INTO stock SELECT i, :orders FROM generate_series(1, 100) i;
