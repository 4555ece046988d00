# delay_wheel: run SQL later, once, on time, inside PostgreSQL.
#
#   make, make install   build against the PostgreSQL of $(PG_CONFIG)
#   make demo            build, install, start a throw-away server, show the
#                        main example on it, remove the server again
#   make examples        all examples, each on a throw-away server (examples/run)
#   make check           the quick ones, some two minutes: ring, layers, SQL tests, static
#                        analysis of what changed
#   make test            all tests (test-long: also those that take long)
#   make coverage        the tests with a look at which lines of src they run
#   make sanitize        the tests under gcc's sanitizers
#   make test-majors     the tests on every major and on a server with
#                        assertions (test/majors; as root)
#   make test-newcomer   README's and the tutorial's commands on a bare Debian
#                        (test/newcomer; as root)
#   make test-packages   Debian's package, built, installed, upgraded and removed in a
#                        chroot, and the images (test/packages; as root)
#   make test-patroni    three nodes under Patroni, with faults (test/patroni; as root)
#   make bench           how fast it is, beside plain PostgreSQL (40 minutes; see
#                        doc/benchmarks.md)
#   make chaos           faults of all kinds at random, five minutes long
#                        (test/chaos)
#   make check-ring      the ring alone, against a sorted list
#   make check-model     the protocol model (needs spin)
#   make fuzz            libFuzzer over what parses text (needs clang), test/fuzz;
#                        SECONDS=30 for each target
#   make dist            what PGXN takes, build/delay_wheel-VERSION.zip, of the last commit
#   make docs            the manual as a site, in build/site (scripts/docs)
#   make injection       the test build, in build/injection
#   make installcheck    the SQL tests on a running server of one's own, with
#                        delay_wheel in its shared_preload_libraries
#
# What demo, examples, test, coverage, sanitize, bench and docs need they install (scripts/setup).
#
#   PG_CONFIG=...   another PostgreSQL than that of the pg_config in the path
#   WERROR=1        a warning is an error
#   INJECTION=1     the points at which tests stop or break a process

EXTENSION = delay_wheel
MODULE_big = delay_wheel

# The script of CREATE EXTENSION, of files that are joined in this order.
SCRIPT = delay_wheel--1.0.sql
DATA_built = $(SCRIPT)
WINGS = failed history recurring ends batches copies
TOPICS = $(addprefix src/sql/,begin tables triggers schedule queues messages rights readable views) \
	$(foreach wing,$(WINGS),src/$(wing)/$(wing)) \
	$(addprefix src/sql/,state forecast nodes pictures page end)

SOURCES = $(sort $(wildcard src/*/*.c))
OWN_HEADERS = $(wildcard src/*/*.h)
OBJS = $(SOURCES:.c=.o)

REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
# pg_regress gives its sessions a time zone that depends on its minor.
REGRESS_OPTS = --load-extension=delay_wheel --launcher='env PGTZ=America/Los_Angeles'

# PostgreSQL's own headers and idioms set off these, so with -Wextra they would
# be noise: unused parameters of hooks and SQL functions; comparisons of signed
# with unsigned in its inline functions and macros; "might be clobbered" for
# variables of its inline functions beside a PG_TRY.  PostgreSQL forbids
# declarations after statements in its own code; we do not.  (The last one is
# for clang, which does not know all of gcc's.)  No -std: headers of 19 need the standard with
# which PostgreSQL was built, C11 or C23.
PG_CFLAGS += -Wall -Wextra \
	-Wno-unused-parameter -Wno-sign-compare -Wno-clobbered \
	-Wno-declaration-after-statement -Wno-unknown-warning-option
ifeq ($(WERROR),1)
PG_CFLAGS += -Werror
endif
ifeq ($(INJECTION),1)
PG_CPPFLAGS += -DDW_INJECTION
endif

# No bitcode unless asked for: it needs the very clang that PostgreSQL was
# built with, and a module of this kind gains nothing from inlining.
ifneq ($(origin with_llvm),command line)
override with_llvm = no
endif

EXTRA_CLEAN = build log tmp_check

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

.DEFAULT_GOAL := all

# PostgreSQL's build files have a target of this name, which only says that there is
# no such test.
ifneq ($(filter check,$(MAKECMDGOALS)),)
PGXS :=
check:
	@test/run --quick
endif

ifneq ($(wildcard $(PGXS)),)

include $(PGXS)

# What is built depends on these as much as on the sources.
BUILD_FLAGS = $(VERSION) $(shell $(PG_CONFIG) --includedir-server) $(CC) $(CFLAGS) $(CPPFLAGS)

build/flags: FORCE
	@mkdir -p build
	@echo '$(subst ','\'',$(BUILD_FLAGS))' | cmp -s - $@ || echo '$(subst ','\'',$(BUILD_FLAGS))' > $@

$(SCRIPT): $(TOPICS:%=%.sql) Makefile
	for topic in $(TOPICS); do cat $$topic.sql && echo || exit 1; done > $@

$(OBJS): $(OWN_HEADERS) Makefile build/flags

# The test build, beside the ordinary one.
INJECTION_OBJS = $(SOURCES:src/%.c=build/injection/%.o)
INJECTION_LIB = build/injection/$(MODULE_big)$(DLSUFFIX)

injection: $(INJECTION_LIB)

$(INJECTION_LIB): $(INJECTION_OBJS)
	$(LINK.shared) -o $@ $(INJECTION_OBJS) $(LDFLAGS) $(LDFLAGS_SL) $(SHLIB_LINK)

$(INJECTION_OBJS): build/injection/%.o: src/%.c $(OWN_HEADERS) Makefile build/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CPPFLAGS) -DDW_INJECTION -c -o $@ $<

else

# Without PostgreSQL's build files only that works which brings them along.
all install uninstall installcheck clean injection:
	@echo "$(PG_CONFIG) leads to no PostgreSQL to build against:" >&2
	@echo "scripts/setup installs what is missing (with apt-get), PG_CONFIG=... names another one." >&2
	@exit 1

endif

# The scripts find the PostgreSQL by themselves, unless told which.
ifneq ($(origin PG_CONFIG),file)
export PG_CONFIG
endif

demo:
	@scripts/demo

examples:
	@examples/run

test:
	@test/run

test-long:
	@test/run --long

coverage:
	@test/run --coverage

sanitize:
	@test/run --sanitize

test-majors:
	@test/majors/run

test-newcomer:
	@test/newcomer/run

test-packages:
	@test/packages/run

test-patroni:
	@test/patroni/run

bench:
	@test/bench/run

chaos:
	@test/chaos/run

docs:
	@scripts/docs

# All that is committed, under a directory of the distribution's name and version.
DIST = $(EXTENSION)-$(shell sed -n 's/^   "version": "\(.*\)",$$/\1/p' META.json)
dist:
	@mkdir -p build
	git archive --format=zip --prefix=$(DIST)/ --output=build/$(DIST).zip HEAD

check-ring:
	$(MAKE) -C test/ring check

check-model:
	$(MAKE) -C test/model check

SECONDS = 30
fuzz:
	$(MAKE) -C test/fuzz fuzz SECONDS=$(SECONDS)

FORCE:

.PHONY: all check install uninstall installcheck clean injection demo examples test test-long \
	coverage sanitize test-majors test-newcomer test-packages test-patroni bench docs dist check-ring check-model chaos fuzz FORCE
