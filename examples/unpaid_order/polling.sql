--
-- A job looks each minute for orders whose time is up.  It has the index that it
-- needs: it reads nothing but these.
--
CREATE INDEX ON purchase (pay_until) WHERE status = 'placed';

CREATE FUNCTION expire_all() RETURNS void LANGUAGE sql
SET search_path FROM CURRENT AS $$
	WITH expired AS (
		UPDATE purchase SET status = 'expired', ended = clock_timestamp()
		WHERE status = 'placed' AND pay_until <= now()
		RETURNING item)
	UPDATE stock SET n = n + gone FROM (SELECT item, count(*) AS gone FROM expired GROUP BY item) x
	WHERE stock.item = x.item
$$;
