-- Who sends, who receives, and the table whose rows send mails.
CREATE EXTENSION IF NOT EXISTS delay_wheel;
CREATE ROLE shop LOGIN;
CREATE ROLE mailer LOGIN;
SELECT delay_wheel.allow('shop', 'mailer');
SELECT delay_wheel.create_queue('mail', external => true, users => '{shop}', receivers => '{mailer}', max_attempts => 5,
	options => '{"lease": "1 minute", "retry_delay": "1 minute"}');

CREATE TABLE purchase (id int PRIMARY KEY, email text NOT NULL, at interval NOT NULL DEFAULT '30 minutes');
GRANT SELECT, INSERT, UPDATE ON purchase TO shop;
CREATE TRIGGER remind AFTER INSERT ON purchase FOR EACH ROW
	EXECUTE FUNCTION delay_send_trigger('at', 'mail', 'id', 'email', 'key=id');
