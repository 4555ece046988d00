"""An order is delivered, and rated 48 hours later: with Django.  PGHOST and the like say
where the database is."""
import os
import unittest

import django
from django.conf import settings

settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "USER": os.environ["PGUSER"],
    "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"]}})
django.setup()

from django.db import connection, transaction  # noqa: E402
from django.test import TestCase  # noqa: E402


def deliver(id):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE orders SET state = 'delivered' WHERE id = %s", [id])
        cursor.execute("SELECT delay_schedule('48 hours', 'UPDATE orders SET stars = 5 WHERE id = $1 AND stars IS NULL', %s)", [id])


class Rating(TestCase):  # each of its tests is rolled back
    def test_is_rated_after_two_days(self):
        deliver(1)
        with connection.cursor() as cursor:
            cursor.execute("SELECT delay_run_due(now() + interval '48 hours')")
            cursor.execute("SELECT stars FROM orders WHERE id = 1")
            self.assertEqual(cursor.fetchone(), (5,))


if unittest.main(exit=False).result.wasSuccessful():
    deliver(2)
