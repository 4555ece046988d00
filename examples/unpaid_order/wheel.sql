--
-- Each order brings its own task along, which payment takes away.
--
CREATE TRIGGER expire_later AFTER INSERT ON purchase FOR EACH ROW EXECUTE FUNCTION
	delay_schedule_trigger('pay_until', 'SELECT wheel.expire($1)', 'id', 'key=id', 'queue=unpaid');

-- The same as that of shop.sql, with the task.
CREATE OR REPLACE FUNCTION pay(order_id bigint) RETURNS boolean LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	accepted boolean;
	task text;
BEGIN
	UPDATE purchase SET status = 'paid', ended = clock_timestamp() WHERE id = order_id AND status = 'placed';
	accepted := FOUND;
	IF accepted THEN
		task := delay_cancel(key => order_id::text, queue => 'unpaid');
	END IF;
	INSERT INTO payment VALUES (order_id, accepted, task);
	RETURN accepted;
END $$;
