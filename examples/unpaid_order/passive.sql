--
-- An order expires when somebody looks at it.
--
CREATE OR REPLACE FUNCTION look(order_id bigint) RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM expire(order_id);
	RETURN (SELECT status FROM purchase WHERE id = order_id);
END $$;
