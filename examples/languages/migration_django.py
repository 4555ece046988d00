from django.db import migrations


class Migration(migrations.Migration):
    dependencies = []
    operations = [migrations.RunSQL("""
        CREATE TRIGGER unpaid AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger(
            '30 minutes', 'UPDATE orders SET state = ''cancelled'' WHERE id = $1 AND state = ''open''', 'id')
        """, "DROP TRIGGER unpaid ON orders")]
