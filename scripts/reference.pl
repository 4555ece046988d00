#!/usr/bin/env perl
#
# Writes the reference manual into a directory: reference.md, the index, and
# reference/functions.md, settings.md and messages.md.  It is made from
#
#   the catalog     of the database that psql reaches: every object of the
#                   extension with its COMMENT, and the settings of the server
#   src             errors, log lines, wait events, kinds of processes
#   doc/reference.notes   causes and remedies, which none of these tell
#
#   scripts/reference.pl DIRECTORY | --lacking
#
# --lacking: prints instead what lacks a word, one a line: objects and columns without
# a COMMENT, messages that the notes do not explain, and notes on what is not
# there (any more).
#
# "make reference" (scripts/reference) runs it against a throw-away server.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp;
use JSON::PP qw(decode_json);
use lib dirname(__FILE__);
use Messages qw(read_messages);

binmode(STDOUT, ':encoding(UTF-8)');

my $root = dirname(__FILE__) . '/..';
my $width = 118;

#
# What is there
#

# Rights are tried: a role that was allowed, and one that was not.  The functions in the schema
# given to CREATE EXTENSION, and those that pause a queue, look themselves whether their caller was allowed.
my $catalog_query = <<'END';
\set ON_ERROR_STOP 1
\set QUIET 1
BEGIN;
SET LOCAL search_path = pg_catalog;
CREATE ROLE dw_reference_allowed;
CREATE ROLE dw_reference_nobody;
SELECT delay_wheel.allow('dw_reference_allowed') \g /dev/null
CREATE TEMPORARY VIEW members AS
	SELECT d.classid, d.objid
	FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
	WHERE d.deptype = 'e' AND e.extname = 'delay_wheel';
SELECT json_build_object(
	'functions', (
		SELECT json_agg(json_build_object(
			'schema', n.nspname, 'home', n.oid = e.extnamespace, 'name', proname,
			'args', pg_get_function_arguments(p.oid), 'result', pg_get_function_result(p.oid),
			'identity', pg_get_function_identity_arguments(p.oid), 'comment', obj_description(p.oid, 'pg_proc'),
			'arg_names', (SELECT json_agg(name) FROM unnest(proargnames, proargmodes) a(name, mode)
				WHERE COALESCE(mode, 'i') IN ('i', 'v')),
			'everybody', NOT asks AND has_function_privilege('dw_reference_nobody', p.oid, 'EXECUTE'),
			'allowed', asks AND has_function_privilege('dw_reference_allowed', p.oid, 'EXECUTE'))
			ORDER BY proname COLLATE "C", pronargs, pg_get_function_arguments(p.oid) COLLATE "C")
		FROM members m JOIN pg_proc p ON p.oid = m.objid
		JOIN pg_namespace n ON n.oid = pronamespace, pg_extension e,
			LATERAL (VALUES (n.oid = e.extnamespace OR proname IN ('pause_queue', 'resume_queue'))) a(asks)
		WHERE m.classid = 'pg_proc'::regclass AND e.extname = 'delay_wheel'),
	'options', (SELECT json_agg(o) FROM delay_wheel.options o),
	'relations', (
		SELECT json_agg(json_build_object(
			'name', c.oid::regclass::text, 'kind', relkind, 'comment', obj_description(c.oid, 'pg_class'),
			'everybody', has_table_privilege('dw_reference_nobody', c.oid, 'SELECT'),
			'columns', (SELECT json_agg(json_build_object(
					'name', attname, 'type', format_type(atttypid, atttypmod),
					'comment', col_description(attrelid, attnum)) ORDER BY attnum)
				FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped))
			ORDER BY relname COLLATE "C")
		FROM members m JOIN pg_class c ON c.oid = m.objid
		WHERE m.classid = 'pg_class'::regclass AND relkind IN ('r', 'v', 'm', 'f', 'S')),
	'others', (
		SELECT json_agg(json_build_object('name', pg_describe_object(classid, objid, 0),
			'comment', obj_description(objid, classid::regclass::name))
			ORDER BY pg_describe_object(classid, objid, 0) COLLATE "C")
		FROM members
		WHERE classid NOT IN ('pg_proc'::regclass, 'pg_class'::regclass)
			AND NOT (classid = 'pg_type'::regclass AND EXISTS (
				SELECT FROM pg_type t WHERE t.oid = objid AND (typrelid <> 0 OR typelem <> 0)))),
	'settings', (
		SELECT json_agg(json_build_object('name', name, 'type', vartype, 'unit', unit, 'value', boot_val,
			'min', min_val, 'max', max_val, 'values', enumvals, 'context', context,
			'short', short_desc, 'extra', extra_desc) ORDER BY name COLLATE "C")
		FROM pg_settings
		-- those of the tests' build have no place in a sample file
		WHERE name LIKE 'delay\_wheel.%' AND NOT 'NOT_IN_SAMPLE' = ANY (pg_settings_get_flags(name))));
ROLLBACK;
END

sub read_catalog
{
	my $file = File::Temp->new;

	print $file $catalog_query;
	close($file);
	my $answer = qx(psql -XAtq -f $file);
	die "psql failed\n" if $? != 0;
	return decode_json($answer);
}

sub slurp
{
	my ($file) = @_;

	open(my $handle, '<:encoding(UTF-8)', $file) or die "$file: $!\n";
	local $/ = undef;
	return scalar <$handle>;
}

# SQLSTATEs and their names, by their names in C.
sub read_sqlstates
{
	my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
	chomp(my $sharedir = qx($pg_config --sharedir));
	my %states;

	for my $line (split /\n/, slurp("$sharedir/errcodes.txt"))
	{
		my ($code, $macro, $name) = $line =~ /^([0-9A-Z]{5})\s+[EWS]\s+(ERRCODE_\w+)(?:\s+(\w+))?/ or next;
		$states{$macro} //= { code => $code, name => $name // lc($macro =~ s/^ERRCODE_//r) };
	}
	my $errors = slurp("$root/src/base/errors.h");
	my %own = $errors =~ /^#define (DW_ERRCODE_\w+)\s+MAKE_SQLSTATE\(([^)]*)\)/gm;
	$states{$_} = { code => $own{$_} =~ tr/A-Z0-9//cdr, name => undef } for keys %own;
	return \%states;
}

#
# The notes: a line without indentation is what they are on, several if they share
# them; indented lines are the text, with empty lines between paragraphs; one that
# begins with "Do:" is the remedy; what is between backticks stays as it is.  "PostgreSQL: " is before messages that are not ours.
#
sub read_notes
{
	my (%notes, @keys, $note);

	for (split /\n/, slurp("$root/doc/reference.notes"))
	{
		next if /^#/;
		if (/^\S/)
		{
			@keys = () if defined $note;
			$note = undef;
			push @keys, $_;
		}
		elsif (@keys && (/\S/ || defined $note))
		{
			$note //= { paragraphs => [''] };
			$notes{$_} = $note for @keys;
			if (/^\s+(.*)/) { $note->{paragraphs}[-1] .= ($note->{paragraphs}[-1] eq '' ? '' : ' ') . $1 }
			else { push @{ $note->{paragraphs} }, '' }
		}
	}
	$_->{paragraphs} = [ grep { $_ ne '' } @{ $_->{paragraphs} } ] for values %notes;
	return \%notes;
}

sub read_matches
{
	my ($pattern) = @_;
	my %found;

	for my $file (glob "$root/src/*/*.c")
	{
		my $text = slurp($file);
		$found{$1} = 1 while $text =~ /$pattern/g;
	}
	return sort keys %found;
}

# What is said with the same words is one message.
sub merge_messages
{
	my (@messages, %by_text);

	for my $found (@_)
	{
		my $message = $by_text{ $found->{texts}[0] };
		if (!$message)
		{
			$message = { texts => $found->{texts}, internal => $found->{internal} };
			push @messages, $message;
		}
		$by_text{$_} //= $message for @{ $found->{texts} };
		$message->{internal} &&= $found->{internal};
		$message->{levels}{ $found->{level} } = 1;
		for my $part (qw(codes details hints))
		{
			my %seen = map { $_ => 1 } @{ $message->{$part} // [] };
			push @{ $message->{$part} }, grep { !$seen{$_}++ } @{ $found->{$part} };
		}
	}
	return sort { sort_key($a) cmp sort_key($b) || $a->{texts}[0] cmp $b->{texts}[0] } @messages;
}

# By the first word that one would look for.
sub sort_key
{
	return lc($_[0]{texts}[0]) =~ s/^[^a-z]+//r;
}

my $catalog = read_catalog();
my $states = read_sqlstates();
my $notes = read_notes();
my @messages = merge_messages(read_messages($root));
my @processes = map { "delay_wheel $_" } read_matches(qr/\bdw_worker_(?:start\(|describe\(&worker, )"([^"]+)"/);
my @wait_events = read_matches(qr/\bdw_wait_event\(\w+, "(\w+)"\)/);

#
# What lacks a word
#

sub qualified { return $_[0]{home} ? $_[0]{name} : "$_[0]{schema}.$_[0]{name}" }

sub lacking_comments
{
	my @lacking;

	for my $function (@{ $catalog->{functions} })
	{
		my $name = qualified($function) . "($function->{identity})";
		push @lacking, "COMMENT ON FUNCTION $name" if !defined $function->{comment};
	}
	for my $relation (@{ $catalog->{relations} })
	{
		push @lacking, "COMMENT ON $relation->{name}" if !defined $relation->{comment};
		next if $relation->{kind} eq 'S';
		push @lacking, map { "COMMENT ON COLUMN $relation->{name}.$_->{name}" }
		  grep { !defined $_->{comment} } @{ $relation->{columns} };
	}
	push @lacking, map { "COMMENT ON $_->{name}" } grep { !defined $_->{comment} } @{ $catalog->{others} // [] };
	return @lacking;
}

# Arguments that the COMMENT does not speak of, where there are so many that it must.
sub lacking_arguments
{
	my @lacking;

	for my $function (@{ $catalog->{functions} })
	{
		my @names = grep { $_ ne '' } @{ $function->{arg_names} // [] };

		next if @names < 4 || !defined $function->{comment} || $function->{comment} =~ /^like /;
		push @lacking, map { 'argument ' . $_ . ' of ' . qualified($function) }
		  grep { $_ ne 'sql_text' && $function->{comment} !~ /\b\Q$_\E\b/ } @names;
	}
	return @lacking;
}

sub is_explained
{
	my ($message) = @_;

	return 1 if $message->{internal} || (keys %{ $message->{levels} } == 1 && $message->{levels}{DEBUG1});
	return grep { $notes->{$_} } @{ $message->{texts} };
}

sub known_keys
{
	return ((map { @{ $_->{texts} } } @messages), @processes, @wait_events,
		map { $states->{$_}{code} } grep { /^DW_/ } keys %$states);
}

sub lacking
{
	my %known = map { $_ => 1 } known_keys();

	return (lacking_comments(), lacking_arguments(),
		(map { "cause and remedy of: $_->{texts}[0]" } grep { !is_explained($_) } @messages),
		(map { "note on: $_" } grep { !$notes->{$_} } @processes, @wait_events,
			map { $states->{$_}{code} } grep { /^DW_/ } sort keys %$states),
		(map { "message of the note on: $_" } grep { !$known{$_} && !/^PostgreSQL: / } sort keys %$notes));
}

if (($ARGV[0] // '') eq '--lacking')
{
	print map { "$_\n" } lacking();
	exit 0;
}

#
# Markdown
#

# The file that is being written, without .md; where each entry is, as [file, anchor].
my ($page, %target_of, %anchors, @contents);

sub link_to
{
	my ($file, $anchor) = @_;

	return "#$anchor" if $file eq $page;
	return ($page eq 'reference' ? 'reference/' : '') . "$file.md#$anchor";
}

# As GitHub makes them.
sub anchor
{
	my ($heading) = @_;
	my $anchor = lc($heading) =~ s/[^\w\- ]//gr;

	$anchor =~ tr/ /-/;
	my $n = $anchors{$anchor}++;
	return $n ? "$anchor-$n" : $anchor;
}

# What would begin a list in a line of its own stays behind the word before it.
sub wrap
{
	my ($text, $first, $rest) = @_;
	my @lines = ($first // '');
	my $empty = 1;

	for my $word (split / +/, $text)
	{
		if ($empty || length("$lines[-1] $word") <= $width || $word =~ /^(?:[-+*#>|=]+|\d+[.)])$/)
		{
			$lines[-1] .= ($empty ? '' : ' ') . $word;
		}
		else { push @lines, ($rest // '') . $word }
		$empty = 0;
	}
	return join("\n", @lines) . "\n";
}

sub escape
{
	my ($text) = @_;

	$text =~ s/([\\`*\[\]<])/\\$1/g;
	$text =~ s/^_|_$/\\_/g;
	return $text;
}

# A function, with or without arguments, a view, or a column of it, a setting.
my $name_in_text = qr/\b(?:delay_wheel(?:_data)?\.\w+(?:\.\w+)?|delay_(?!wheel\b)[a-z]\w*)(?:\((?:[^()']|'[^']*')*\))?/;

# Names become code, those with an entry of their own links.
sub marked_up
{
	my ($text, $here) = @_;
	my $out = '';

	while ($text =~ /\G(?:(?<code>`[^`]*`)|(?<name>$name_in_text)|(?<value>\$\d+|'[^' ]+')|(?<blank>\s+)|(?<other>\w+|.))/gs)
	{
		my ($code, $name, $value, $blank, $other) = @+{qw(code name value blank other)};

		if (defined $code) { $out .= $code }
		elsif (defined $name) { $out .= linked($name, $here) }
		elsif (defined $value) { $out .= "`$value`" }
		else { $out .= defined $blank ? ' ' : escape($other) }
	}
	return $out;
}

sub linked
{
	my ($name, $here) = @_;
	my $plain = $name =~ s/\(.*//sr;
	my $object = $plain =~ s/^(\w+\.\w+)\.\w+$/$1/r;
	my $target = $target_of{$object} // $target_of{"setting $object"};

	return "`$name`" if !defined $target || $plain eq ($here // '');
	return "[`$name`](" . link_to(@$target) . ')';
}

sub paragraphs { return join "\n", map { wrap(marked_up($_)) } @_ }

# The lines of a COMMENT; those that begin with an argument are a list.
sub comment_text
{
	my ($comment, $here, @arg_names) = @_;
	my $names = join '|', map { quotemeta } grep { $_ ne '' } @arg_names;
	my $out = '';
	my $in_list = 0;

	for my $line (split /\n/, $comment)
	{
		if ($names ne '' && $line =~ /^((?:$names)(?:, (?:$names))*)((?:, [^:]*)?: .*)$/s)
		{
			my ($which, $what) = ($1, $2);
			$out .= "\n" if $out ne '' && !$in_list;
			$out .= wrap('**' . $which . '**' . marked_up($what, $here), '* ', '  ');
			$in_list = 1;
			next;
		}
		$out .= "\n" if $out ne '';
		$out .= wrap(marked_up(ucfirst_sentence($line), $here));
		$in_list = 0;
	}
	return $out;
}

# COMMENTs begin in lower case and end without a period.
sub ucfirst_sentence
{
	my ($text) = @_;

	$text = ucfirst $text if $text =~ /^[a-z']+[ ,]/;
	return $text =~ /[.:;!?]$/ ? $text : "$text.";
}

sub in_cell { return marked_up($_[0], $_[1]) =~ s/\|/\\|/gr }

sub heading
{
	my ($level, $text, $known_as) = @_;
	my $anchor = anchor($text);

	$target_of{$known_as} = [ $page, $anchor ] if defined $known_as;
	push @contents, [ $level, $text, $page, $anchor ] if $level <= 4;
	return ('#' x $level) . " $text\n\n";
}

#
# The parts
#

my @groups = (
	[ 'Scheduling', qr/^delay_schedule/ ],
	[ 'Cancelling, changing, waiting', qr/^delay_(?:cancel|reschedule|update|wait|status)/ ],
	[ 'Running now, and again', qr/^delay_(?:run|now$|retry|discard)/ ],
	[ 'Recurring tasks', qr/^(?:delay_(?:every|cron|unschedule|\w+_recurring)|cron_times)$/ ],
	[ 'Messages', qr/^delay_(?:send|receive|lease|done|fail|extend|release|await)/ ],
	[ 'Queues and pauses', qr/^(?:delay_(?:pause|resume)|(?:create|drop|pause|resume)_queue$|(?:pause|resume)_database$)/ ],
	[ 'Rights', qr/^(?:dis)?allow$/ ],
	[ 'Copies of a database', qr/^arm$/ ],
	[ 'Citus', qr/^(?:set_up_citus|follow_shards)$/ ],
	[ 'Forecast, pictures, pages', qr/_svg$|page|^forecast/ ],
	[ 'What the views call', qr/^(?!task_|queue_|cancellation_|history_)/ ],
	[ 'Trigger functions of the tables', qr/./ ]);

sub group_of
{
	my ($function) = @_;

	for my $i (0 .. $#groups)
	{
		return $i if $function->{name} =~ $groups[$i][1];
	}
	return $#groups;
}

sub short_types { return $_[0] =~ s/timestamp with time zone/timestamptz/gr }

sub signature
{
	my ($function) = @_;
	my @args = map { short_types(s/( DEFAULT [^:]*)::.*/$1/r) } split /, /, $function->{args};
	# their columns are those of a view
	@args = grep { !/^OUT / } @args if $function->{name} =~ /^get_/;
	# a procedure returns what its INOUT parameters say
	my $result = defined $function->{result} ? ' returns ' . short_types($function->{result}) : '';
	my ($begin, $end) = (qualified($function) . '(', ")$result");
	my $line = $begin . join(', ', @args) . $end;

	return "$line\n" if length($line) <= $width;
	return "$begin\n" . join(",\n", map { "    $_" } @args) . "$end\n";
}

sub rights
{
	my ($function) = @_;

	return '' if ($function->{result} // '') eq 'trigger' && !$function->{home};
	return "May be called by everybody.\n" if $function->{everybody};
	return "May be called by roles that were allowed to by " . linked('delay_wheel.allow()') . ".\n" if $function->{allowed};
	return "May be called by superusers and the owner of the extension, and by roles that were granted EXECUTE.\n";
}

# Overloaded ones are one entry.
sub function_entry
{
	my (@functions) = @_;
	my $name = qualified($functions[0]);
	my $out = heading(4, $name, $name);

	for my $function (@functions)
	{
		$out .= "```\n" . signature($function) . "```\n\n";
		$out .= comment_text($function->{comment} // '', $name, @{ $function->{arg_names} // [] }) . "\n";
	}
	my $rights = rights($functions[0]);
	return $out . ($rights eq '' ? '' : wrap($rights =~ s/\n//r) . "\n");
}

# What somebody may look for that has another name here.
my @sought = (
	[ 'delay_at, delay_schedule with timestamptz', 'delay_schedule_at()' ],
	[ 'delay_reschedule_all', "SELECT count(delay_reschedule(id, '1 hour')) FROM delay_wheel.tasks WHERE ..." ],
	[ 'delay_delete, delay_remove', 'delay_cancel(), delay_unschedule() of a recurring task, delay_discard() of a failed one' ],
	[ 'delay_list', 'the views delay_wheel.tasks, delay_wheel.failed, delay_wheel.status; delay_status() of one task' ],
	[ 'delay_redrive, delay_requeue', 'delay_retry(), delay_retry_all()' ],
	[ 'delay_pause, delay_resume', 'delay_pause_all() of a role, delay_wheel.pause_queue(), delay_wheel.pause_database(), delay_pause_recurring()' ],
	[ 'delay_queue', 'delay_wheel.create_queue()' ],
	[ 'delay_stop, delay_kill', 'delay_cancel() with stop_running' ]);

sub sought_part
{
	return heading(3, 'You may look for') . "| name | here |\n|---|---|\n"
	  . join('', map { "| $_->[0] | " . in_cell($_->[1], '') . " |\n" } @sought) . "\n";
}

sub options_part
{
	my $out = heading(3, 'Options') . paragraphs('What the functions take by name: as parameters, or in the JSON object of their parameter options. '
		  . 'What they mean stands with delay_schedule_task(), delay_every() and delay_wheel.create_queue(). In JSON, intervals and points in time are '
		  . 'texts, and arrays are arrays of texts; an interval needs a unit. delay_send_trigger() takes what is of triggers and of messages. The view delay_wheel.options has the same table.')
	  . "\n| option | type | from | to | of |\n|---|---|---|---|---|\n";

	$out .= sprintf("| `%s` | %s | %s | %s | %s |\n", $_->{name}, short_types($_->{type}), $_->{minimum} // '', $_->{maximum} // '', join(', ', @{ $_->{given_to} }))
	  for @{ $catalog->{options} };
	return "$out\n";
}

sub functions_part
{
	my @in_group = map { [] } @groups;
	my %by_name;

	push @{ $by_name{ qualified($_) } }, $_ for @{ $catalog->{functions} };
	push @{ $in_group[ group_of($by_name{$_}[0]) ] }, $_ for sort keys %by_name;
	my $out = heading(2, 'Functions') . paragraphs(
		'Functions without a schema here are in the schema given to CREATE EXTENSION. What views and triggers call is in '
		  . 'delay_wheel_internal: it is not meant to be called otherwise, and may change with each version.',
		'Times are timestamptz. A delay counts from the start of the transaction. Intervals are those of PostgreSQL.')
	  . "\n" . sought_part();
	for my $i (grep { @{ $in_group[$_] } } 0 .. $#groups)
	{
		$out .= heading(3, $groups[$i][0]);
		$out .= function_entry(@{ $by_name{$_} }) for @{ $in_group[$i] };
		$out .= options_part() if $i == 0;
	}
	return $out;
}

sub relation_entry
{
	my ($relation) = @_;
	my $out = heading(3, $relation->{name}, $relation->{name}) . comment_text($relation->{comment} // '', $relation->{name}) . "\n";

	return $out if $relation->{kind} eq 'S';
	$out .= "| column | type | |\n|---|---|---|\n";
	$out .= sprintf("| `%s` | %s | %s |\n", $_->{name}, short_types($_->{type}), in_cell($_->{comment} // '', $relation->{name}))
	  for @{ $relation->{columns} };
	return "$out\n";
}

# what the views are made of
sub is_internal { return $_[0]{name} =~ /^delay_wheel_(?:internal\.|data\.(?:readable_|mark$|owner_mark$|queue_name$))/ }

sub views_part
{
	my $out = heading(2, 'Views') . paragraphs(
		'All are in the schema delay_wheel. Everybody may read them; each says whose rows it shows to whom.') . "\n";

	$out .= relation_entry($_) for grep { $_->{kind} =~ /[vm]/ && !is_internal($_) } @{ $catalog->{relations} };
	return $out;
}

sub tables_part
{
	my $out = heading(2, 'Tables and sequences') . paragraphs(
		'These are for the views, for pg_dump, and for repairs by superusers. Nobody else may use their schema, but the '
		  . 'owner of the database, who may read them. What is in delay_wheel_internal may change with each version.') . "\n";

	$out .= relation_entry($_) for grep { $_->{kind} =~ /[rfS]/ || is_internal($_) } @{ $catalog->{relations} };
	return $out;
}

my %factors = (
	ms => [ [ 24 * 3600 * 1000, 'd' ], [ 3600 * 1000, 'h' ], [ 60 * 1000, 'min' ], [ 1000, 's' ] ],
	s => [ [ 24 * 3600, 'd' ], [ 3600, 'h' ], [ 60, 'min' ] ],
	min => [ [ 24 * 60, 'd' ], [ 60, 'h' ] ],
	kB => [ [ 1024 * 1024, 'GB' ], [ 1024, 'MB' ] ]);

# In the largest unit in which it is a whole number.
sub amount
{
	my ($value, $unit) = @_;

	return $value if !defined $unit || $value <= 0;
	for my $factor (@{ $factors{$unit} })
	{
		return $value / $factor->[0] . $factor->[1] if $value % $factor->[0] == 0;
	}
	return "$value$unit";
}

my %contexts = (
	postmaster => 'In postgresql.conf, or by ALTER SYSTEM; takes effect at the start of the server.',
	sighup => 'In postgresql.conf, or by ALTER SYSTEM; takes effect by a reload.',
	superuser => 'By superusers: in postgresql.conf, ALTER SYSTEM, ALTER DATABASE, ALTER ROLE, SET.',
	user => 'By anybody: SET, ALTER ROLE for oneself; also in postgresql.conf, ALTER SYSTEM, ALTER DATABASE.');

sub setting_entry
{
	my ($setting) = @_;
	my ($type, $unit) = ($setting->{type} =~ s/^bool$/boolean/r, $setting->{unit});
	my @facts = ($type . (defined $unit ? " ($unit without a unit)" : ''), 'default ' . ($setting->{value} eq '' ? 'empty' : amount($setting->{value}, $unit)));

	push @facts, amount($setting->{min}, $unit) . ' to ' . amount($setting->{max}, $unit) if $type eq 'integer';
	push @facts, 'one of ' . join(', ', @{ $setting->{values} }) if $type eq 'enum';
	return heading(3, $setting->{name}, "setting $setting->{name}")
	  . wrap(ucfirst(join '; ', @facts) . '. ' . $contexts{ $setting->{context} }) . "\n"
	  . wrap(marked_up(join(' ', grep { defined } @$setting{qw(short extra)}), $setting->{name})) . "\n";
}

sub settings_part
{
	return heading(2, 'Settings')
	  . wrap('They are there when the library is in `shared_preload_libraries`. How they play together is in '
		  . '[operations.md](../operations.md#settings).')
	  . "\n| can be changed | settings |\n|---|---|\n"
	  . join('', map { "| $_->[1] | " . settings_of($_->[0]) . " |\n" }
		[ postmaster => 'at the start of the server' ],
		[ sighup => 'by a reload, for the server' ],
		[ superuser => 'by a reload; by superusers, and who has the right, also for a database, a role, or a session' ],
		[ user => 'by a reload; by everybody also for a role or a session, by its owner for a database' ])
	  . "\n"
	  . join('', map { setting_entry($_) } @{ $catalog->{settings} });
}

# Links to the settings of a context.
sub settings_of
{
	my ($context) = @_;

	return join ', ', map { "[$_](" . '#' . ($_ =~ s/[.]//r) . ')' } map { $_->{name} } grep { $_->{context} eq $context } @{ $catalog->{settings} };
}

sub note_text
{
	my (@keys) = @_;
	my ($note) = grep { defined } map { $notes->{$_} } @keys;

	return '' if !$note;
	return join "\n", map { wrap(marked_up($_) =~ s/^Do: /**What to do:** /r) } @{ $note->{paragraphs} };
}

sub processes_part
{
	my $out = heading(2, 'Processes and wait events')
	  . wrap('As `backend_type` and `wait_event` of `pg_stat_activity`, which lists all processes of delay_wheel; its '
		  . 'other columns are in [monitoring.md](../monitoring.md#processes-in-pg_stat_activity). Wait events have these names from '
		  . 'PostgreSQL 17 on; on 15 and 16 each of them is `Extension`.')
	  . "\n";

	for my $name (@processes, @wait_events)
	{
		$out .= heading(4, $name) . note_text($name) . "\n";
	}
	return $out;
}

my @levels = (
	[ 'Errors, warnings and notices', qr/^(?:ERROR|WARNING|NOTICE)$/, 'As a statement gets them. An error of a task stands in delay_wheel.failed '
		  . 'and in the log instead, see there; warnings that background processes raise are in the log, too.' ],
	[ "Lines of the server's log", qr/^(?:LOG|FATAL|PANIC)$/, "Written by delay_wheel's own processes. After a line "
		  . 'of level LOG the work goes on by itself, unless its entry says otherwise.' ],
	[ 'Failed tasks', qr/^failed$/, 'In the column message of delay_wheel.failed, if the task did not raise an error itself.' ],
	[ 'Last problem', qr/^last_problem$/, 'In the column last_problem of delay_wheel.status, with the time in last_problem_at. '
		  . 'The message stays there until another problem replaces it, even when the problem is over.' ],
	[ 'Reasons', qr/^reason$/, 'In the column reason of delay_wheel.lanes and delay_wheel.queues.' ],
	[ 'With log_min_messages = debug1', qr/^DEBUG/, 'For a closer look.' ]);

sub level_of
{
	my ($message) = @_;

	for my $i (0 .. $#levels)
	{
		return $i if grep { $_ =~ $levels[$i][1] } keys %{ $message->{levels} };
	}
	die "message of unknown level: $message->{texts}[0]\n";
}

sub state_text
{
	my ($code) = @_;

	return "the task's own SQLSTATE" if $code eq 'task';
	return 'SQLSTATE by what the operating system said (42501, 53100, 58P01, ...)' if $code eq 'errno';
	my $state = $states->{$code} // die "unknown SQLSTATE $code\n";
	return "SQLSTATE $state->{code}" . (defined $state->{name} ? " (`$state->{name}`)" : '');
}

my %level_texts = (failed => 'in `delay_wheel.failed`', last_problem => 'in `delay_wheel.status`', reason => 'in `delay_wheel.lanes`');

sub message_entry
{
	my ($message) = @_;
	my ($text, @others) = @{ $message->{texts} };
	my @where = map { $level_texts{$_} // $_ } sort { $a cmp $b } keys %{ $message->{levels} };
	my $out = heading(5, "`$text`", "message $text");

	$out .= join('', map { "or `$_`\n" } @others) . "\n" if @others;
	$out .= wrap(ucfirst(join(', ', @where, map { state_text($_) } @{ $message->{codes} }) . '.')) . "\n";
	my $note = note_text(@{ $message->{texts} });
	$out .= "$note\n" if $note ne '';
	my @said = ((map { "Detail: $_" } @{ $message->{details} }), (map { "Hint: $_" } @{ $message->{hints} }));
	$out .= join('', map { wrap(marked_up($_), '* ', '  ') } @said) . "\n" if @said;
	return $out;
}

sub messages_part
{
	my $out = heading(2, 'Messages') . paragraphs(
		'Three dots stand for what differs: look for the words before or after. Texts are in English, whatever lc_messages is. '
		  . 'Within a section they are in the order of their first word.') . "\n" . sqlstates_table();

	for my $i (0 .. $#levels)
	{
		my @here = grep { !$_->{internal} && level_of($_) == $i } @messages;
		next if !@here;
		$out .= heading(3, $levels[$i][0]) . paragraphs($levels[$i][2]) . "\n";
		$out .= message_entry($_) for @here;
	}
	$out .= core_messages();
	my @internal = grep { $_->{internal} } @messages;
	$out .= heading(3, 'Internal errors') . paragraphs(
		'With SQLSTATE XX000. They must not come up: please report them, with what was done and the lines of the log before.') . "\n";
	$out .= "* `$_->{texts}[0]`\n" for @internal;
	return "$out\n";
}

# Messages that are not ours, but that users of delay_wheel meet: the notes have all of them.
sub core_messages
{
	my $out = heading(3, "PostgreSQL's own messages") . paragraphs('Those that have to do with delay_wheel.') . "\n";

	for my $key (sort grep { /^PostgreSQL: / } keys %$notes)
	{
		$out .= heading(5, '`' . $key =~ s/^PostgreSQL: //r . '`') . note_text($key) . "\n";
	}
	return $out;
}

# By SQLSTATE, for a reader who has no text.
sub sqlstates_table
{
	my (%of_state, %name_of, $out);

	for my $message (grep { !$_->{internal} } @messages)
	{
		for my $state (grep { defined } map { $states->{$_} } @{ $message->{codes} })
		{
			$name_of{ $state->{code} } = $state->{name};
			push @{ $of_state{ $state->{code} } }, $message;
		}
	}
	$out = heading(3, 'By SQLSTATE') . paragraphs('Those that begin with DW are of tasks that were given up without an error of their own.')
	  . "\n| SQLSTATE | messages |\n|---|---|\n";
	for my $state (sort keys %of_state)
	{
		my $name = defined $name_of{$state} ? "`$name_of{$state}`" : note_text($state) =~ s/\n/ /gr =~ s/ $//r;
		$out .= "| $state $name | " . join('; ', map { link_to_message($_) } @{ $of_state{$state} }) . " |\n";
	}
	return "$out\n";
}

sub link_to_message
{
	my $text = $_[0]{texts}[0];

	return '[' . escape($text) =~ s/\|/\\|/gr . '](' . link_to(@{ $target_of{"message $text"} // [ $page, '' ] }) . ')';
}

# Sections whose entries the index does not list: one comes to these from elsewhere.
my %without_entries = map { $_ => 1 } (
	'What the views call', 'Trigger functions of the tables', 'Tables and sequences', 'Processes and wait events');

# A line for each part, and for its sections if these have parts of their own.
sub contents
{
	my (@lines, $parent);

	for my $i (0 .. $#contents)
	{
		my ($level, $text, $file, $anchor) = @{ $contents[$i] };
		my $has_parts = ($contents[ $i + 1 ][0] // 0) > $level;
		my $link = '[' . $text =~ s/^delay_wheel\.//r . '](' . link_to($file, $anchor) . ')';

		if ($level == 2 || ($level == 3 && $has_parts))
		{
			push @lines, ('  ' x ($level - 2)) . "* $link";
			$parent = $text;
		}
		elsif (!$without_entries{$parent}) { $lines[-1] .= ($lines[-1] =~ /: / ? ', ' : ': ') . $link }
	}
	return join '', map { "$_\n" } @lines;
}

my @pages = (
	[ 'functions', 'Functions, views and tables', \&functions_part, \&views_part, \&tables_part ],
	[ 'settings', 'Settings', \&settings_part ],
	[ 'messages', 'Messages and processes', \&messages_part, \&processes_part ]);

sub banner
{
	return '<!-- Written by scripts/reference ("make reference"); do not edit. Texts come from the COMMENTs of the SQL scripts,'
	  . "\nthe settings, the messages of src, and doc/reference.notes. -->\n\n";
}

# The text of each file, by its name without .md.
sub whole
{
	my %text;

	@contents = ();
	for (@pages)
	{
		my ($name, $title, @parts) = @$_;

		($page, %anchors) = ($name);
		anchor("Reference: $title");
		$text{"reference/$name"} = "# Reference: $title\n\n" . banner() . "[Contents of the reference](../reference.md), [glossary](../glossary.md)\n\n"
		  . join('', map { $_->() } @parts);
	}
	$page = 'reference';
	$text{reference} = "# Reference\n\n" . banner()
	  . wrap('Every [function, view and table](reference/functions.md), [setting](reference/settings.md) and '
		  . '[message](reference/messages.md). The [operations manual](operations.md) says how they play together, the '
		  . '[glossary](glossary.md) explains words such as lane and armed. The same texts are in the database: `\df+`, `\d+` and `\dd` of psql show COMMENTs.')
	  . "\n" . contents();
	return %text;
}

# Links lead to what comes later: the first pass finds the anchors.
whole();
my %text = whole();
my $directory = $ARGV[0] // die "usage: reference.pl DIRECTORY | --lacking\n";
make_path("$directory/reference");
for my $file (sort keys %text)
{
	open(my $handle, '>:encoding(UTF-8)', "$directory/$file.md") or die "$directory/$file.md: $!\n";
	print $handle $text{$file} =~ s/\n+\z/\n/r;
	close($handle) or die "$directory/$file.md: $!\n";
}
