#!/usr/bin/python3
"""Writes fixture.tsv and years.tsv, beside this file: what croniter says.

    apt-get install python3-croniter; test/cron/generate.py

sql/cron.sql compares ours with them; croniter is not needed for that.

fixture.tsv: some thousand schedules in our syntax, each with a time zone, a start,
and the next times in UTC, as croniter has them in that time zone.  years.tsv: fewer
schedules, each with its times over years, how many, and a digest of them; croniter
is asked in bare local times, which Python's zoneinfo turns into instants.

croniter takes seconds last and the last Friday as L5; that is only written
otherwise.  Where it means something else, or is wrong, nothing is asked:

* */2 in a day field: for Vixie's cron, and us, what begins with * does not
  restrict, so that both day fields must match; for croniter either is enough.
  It takes 1-31 and 0-6 for *, which we and Vixie's do not.
* Day of month together with fri#2 or L5 (both have to match in croniter 1.3.5),
  or L together with other days (29,L misses 28 February).
* Days beyond the 28th together with the first three: at the end of a shorter month
  croniter steps over the latter (36 8 */29 * * from 28 February: not 1 March).
* 7 for Sunday in six fields: croniter 1.3.5 accepts it, and never comes to it.
* Ranges that go over the end (22-2), and fri#2 together with plain days of the
  week, which croniter 1.3.5 refuses.

Changes of the clock: what croniter makes of them depends on where it started, and
is not ours.  So a case is left out if a time of it falls on a change (tests made by
hand are in sql/cron.sql), if the hour begins with * and the clock is changed between
its start and its last time, or, in fixture.tsv, if croniter in the time zone does
not say the same as croniter in bare local times.  Zones and times are such that
their rules are settled; the years up to 2105 are asked in UTC.
"""

import datetime as dt
import hashlib
import os
import random
from importlib.metadata import version
from zoneinfo import ZoneInfo

import croniter as package
from croniter import croniter

UTC = dt.timezone.utc
TIMES = 4
MANY = 1500
SEED = 6
MONTHS = 'jan feb mar apr may jun jul aug sep oct nov dec'.split()
DAYS = 'sun mon tue wed thu fri sat'.split()

# offsets of the half hour and quarter of an hour, both hemispheres, a change
# by half an hour, and at midnight
ZONES = ['Europe/Berlin', 'Europe/Dublin', 'America/New_York', 'America/Los_Angeles', 'America/St_Johns',
         'America/Sao_Paulo', 'Africa/Cairo', 'Asia/Kolkata', 'Asia/Kathmandu', 'Asia/Tokyo', 'Asia/Tehran',
         'Australia/Adelaide', 'Australia/Lord_Howe', 'Pacific/Auckland', 'Pacific/Apia', 'Pacific/Chatham']

# what people write, and corners
CLASSICS = """
* * * * *
*/5 * * * *
*/15 * * * *
*/7 * * * *
5/15 * * * *
0 * * * *
30 */2 * * *
0 */5 * * *
15 3 * * *
0 9-17 * * mon-fri
*/10 9-17 * * 1-5
0 0 * * 0
0 0 * * 7
0 0 * * sun
0 12 * * fri-sun
0 0 1 * *
0 0 31 * *
0 0 30 * *
0 0 29 * *
0 0 29 2 *
0 0 28 2 *
0 0 31 feb *
0 0 31 2,4,6,9,11 *
59 23 31 12 *
0 0 L * *
30 23 L 2 *
0 6 L 1-11/2 *
0 0 L * fri
0 0 1,15 * *
0 0 13 * fri
0 0 13 * 5
0 4 8-14 * *
0 0 1-7 * mon
0 0 * feb *
0 0 29 feb mon
0 0 1 1 *
0 0 1 JAN,JUL *
0 0 * * MON#1
0 0 * * fri#5
0 0 * * 0#2,3#4
30 8 * * 5L
30 8 * 2 0L
0 0 * * 1L,3L
10-50/7 * * * *
0-29/10,45 1-5/2 * * *
0 0 */1 * *
0 0 10-20/3 * *
0 0 * */3 *
0 0 1 */4 *
0 0 * 2-12/5 *
0 0 * * 1/2
0 0 20/4 * *
30 0 0 1 * *
*/10 * * * * *
*/20 */15 * * * *
0 30 12 * * mon
15,45 59 23 L * *
5-10 0 0 29 2 *
59 59 23 31 12 *
@hourly
@daily
@midnight
@weekly
@monthly
@yearly
@annually
""".strip().splitlines()


def number(low, high, names):
    value = random.randint(low, high)
    if names and random.random() < 0.4:
        name = names[value - low]
        return random.choice([name, name.upper(), name.title()])
    return str(value)


def element(low, high, names=()):
    kind = random.random()
    if kind < 0.5:
        return number(low, high, names)
    if kind < 0.6:
        return '%d/%d' % (random.randint(low, high), random.randint(1, high - low + 1))
    first, last = sorted(random.sample(range(low, high + 1), 2))
    text = '%s-%s' % tuple(names[v - low] if names and random.random() < 0.3 else v for v in (first, last))
    if kind < 0.8:
        text += '/%d' % random.randint(1, (high - low + 1) // 2)
    return text


def field(low, high, names=(), star=0.3):
    if random.random() < star:
        return '*'
    if random.random() < 0.25:
        return '*/%d' % random.randint(1, high - low + 1)
    return ','.join(element(low, high, names) for _ in range(random.choice([1, 1, 1, 2, 3])))


def day_fields():
    kind = random.random()
    if kind < 0.15:
        return 'L', '*'
    if kind < 0.35:
        days = random.sample(range(7), random.randint(1, 3))
        return '*', ','.join(random.choice([str(d), DAYS[d]]) + '#%d' % random.randint(1, 5) for d in days)
    if kind < 0.5:
        return '*', ','.join('%dL' % d for d in random.sample(range(7), random.randint(1, 3)))
    while True:
        day = field(1, 31, star=0.5)
        weekday = field(0, 6, DAYS, star=0.5)
        both = day != '*' and weekday != '*'
        if not (both and (day[0] == '*' or weekday[0] == '*')):
            return day, weekday


def schedule():
    day, weekday = day_fields()
    fields = [field(0, 59, star=0.2), field(0, 23, star=0.35), day, field(1, 12, MONTHS, star=0.6), weekday]
    if random.random() < 0.2:
        fields.insert(0, field(0, 59, star=0.2))
    return ' '.join(fields)


def as_croniter(ours):
    """Our schedule in croniter's syntax."""
    fields = ours.split()
    if len(fields) == 6:
        fields.append(fields.pop(0))
    if len(fields) >= 5:
        fields[4] = ','.join('L' + e[:-1] if e[-1] == 'L' else e for e in fields[4].split(','))
    return ' '.join(fields)


def means_the_same(theirs):
    """False where croniter means something else, or is wrong: see above."""
    fields = theirs.split()
    if len(fields) < 5:
        return True
    expanded = croniter(theirs).expanded
    days = [d for d in expanded[2] if isinstance(d, int)]
    if days and max(days) > 28 and min(days) <= 3:
        return False
    if len(fields) == 6 and 7 in expanded[4]:
        return False
    both_restrict = fields[2][0] != '*' and fields[4][0] != '*'
    return not both_restrict or (expanded[2] != ['*'] and expanded[4] != ['*'])


def run(theirs, start):
    times = croniter(theirs, start, ret_type=dt.datetime)
    return [times.get_next() for _ in range(TIMES)]


def is_changed(zone, local):
    """Does the clock leave this time out, or show it twice?"""
    early, late = (local.replace(tzinfo=zone, fold=f) for f in (0, 1))
    return early.utcoffset() != late.utcoffset()


def changes_between(zone, first, last):
    t = first
    while t < last:
        if t.astimezone(zone).utcoffset() != first.astimezone(zone).utcoffset():
            return True
        t += dt.timedelta(days=1)
    return last.astimezone(zone).utcoffset() != first.astimezone(zone).utcoffset()


def any_hour(ours):
    fields = ours.split()
    return ours == '@hourly' or len(fields) > 1 and fields[-4][0] == '*'


def answer(ours, zone_name, start):
    """The next times in UTC; None where croniter cannot be asked."""
    zone = ZoneInfo(zone_name)
    theirs = as_croniter(ours)
    if not means_the_same(theirs):
        return None
    try:
        aware = [t.astimezone(UTC) for t in run(theirs, start.astimezone(zone))]
        local_start = start.astimezone(zone).replace(tzinfo=None)
        local = run(theirs, local_start)
    except package.CroniterBadDateError:
        return []
    if any(is_changed(zone, t) for t in [local_start] + local):
        return None
    if [t.replace(tzinfo=zone).astimezone(UTC) for t in local] != aware:
        return None
    if any_hour(ours) and changes_between(zone, start, aware[-1]):
        return None
    return aware


def years(ours, zone_name, start, end):
    """All times in UTC until then, at most MANY; None where croniter cannot be asked."""
    zone = ZoneInfo(zone_name)
    theirs = as_croniter(ours)
    if not means_the_same(theirs):
        return None
    times = croniter(theirs, start, ret_type=dt.datetime)
    local = []
    try:
        while len(local) < MANY:
            t = times.get_next()
            if t >= end:
                break
            local.append(t)
    except package.CroniterBadDateError:
        pass
    if not local or any(is_changed(zone, t) for t in local):
        return None
    result = [t.replace(tzinfo=zone).astimezone(UTC) for t in local]
    if any_hour(ours) and changes_between(zone, result[0], result[-1]):
        return None
    return result


def text(t):
    return t.strftime('%Y-%m-%d %H:%M:%S')


def starts():
    """Zones and starts: leap days and ends of months in UTC, any time in others."""
    year = random.choice([2023, 2024, 2024, 2027, 2028, 2028, 2095, 2096, 2099, 2100, 2100, 2103, 2104])
    month = random.choice([1, 2, 2, 2, 3, random.randint(4, 12)])
    yield 'UTC', dt.datetime(year, month, random.choice([1, 26, 27, 28, 28]), random.randint(0, 23),
                             random.randint(0, 59), random.choice([0, random.randint(0, 59)]), tzinfo=UTC)
    for zone in random.sample(ZONES, 2):
        yield zone, dt.datetime(2005, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=random.randint(0, 16 * 365 * 86400))


def write(name, heading, lines, left_out):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), 'w') as f:
        f.write('%s (croniter %s, seed %d, %d cases, %d left out)\n' % (heading, version('croniter'), SEED, len(lines), left_out))
        f.write(''.join(line + '\n' for line in lines))


def write_fixture():
    lines = []
    left_out = 0
    for ours in CLASSICS * 3 + [schedule() for _ in range(1400)]:
        for zone, start in starts():
            times = answer(ours, zone, start)
            if times is None:
                left_out += 1
            else:
                lines.append('%s\t%s\t%s\t{%s}' % (ours, zone, text(start), ','.join(text(t) for t in times)))
    write('fixture.tsv', 'schedule\ttime zone\tstart\tnext times', lines, left_out)


def write_years():
    lines = []
    left_out = 0
    for ours in CLASSICS:
        for zone in ['UTC'] + ZONES:
            end = dt.datetime(2105 if zone == 'UTC' else 2021, 1, 1)
            start = dt.datetime(2004, 1, 31, 12, 0, 1)
            times = years(ours, zone, start, end)
            if times is None:
                left_out += 1
            else:
                digest = hashlib.md5(','.join(text(t) for t in times).encode()).hexdigest()
                begin = start.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
                lines.append('%s\t%s\t%s\t%d\t%s\t%s' % (ours, zone, text(begin), len(times), text(times[-1]), digest))
    write('years.tsv', 'schedule\ttime zone\tstart\tnumber of times\tlast\tdigest of all', lines, left_out)


if __name__ == '__main__':
    random.seed(SEED)
    write_fixture()
    write_years()
