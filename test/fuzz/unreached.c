/*
 * What the tested files call besides: none of it is come to, unless a target has
 * its own.  Without PostgreSQL's headers, since it is no matter what these
 * functions look like.
 */
#include <stdio.h>

#define UNREACHED(name) \
	__attribute__((weak)) void name(void) { fprintf(stderr, "finding: %s was called\n", #name); __builtin_trap(); }

__attribute__((weak)) void *CurrentMemoryContext;
__attribute__((weak)) void *error_context_stack;
__attribute__((weak)) volatile int InterruptPending;
__attribute__((weak)) unsigned int MyDatabaseId;
__attribute__((weak)) int MyProcPid;
__attribute__((weak)) int PostmasterPid;
__attribute__((weak)) int max_worker_processes;
__attribute__((weak)) char process_shmem_requests_in_progress;
__attribute__((weak)) void *dw_executors;
__attribute__((weak)) void *dw_shared;
__attribute__((weak)) void *dw_this_executor;
__attribute__((weak)) void *emit_log_hook;

UNREACHED(AllocateFile)
UNREACHED(AllocSetContextCreateInternal)
UNREACHED(CreateCommandTag)
UNREACHED(defGetBoolean)
UNREACHED(durable_rename)
UNREACHED(dw_database_find)
UNREACHED(dw_executor_runs_autonomous)
UNREACHED(dw_now)
UNREACHED(dw_read_begin)
UNREACHED(dw_read_end)
UNREACHED(dw_task_find)
UNREACHED(dw_uptime)
UNREACHED(dw_wake_launcher)
UNREACHED(errcode)
UNREACHED(errcode_for_file_access)
UNREACHED(errcontext_msg)
UNREACHED(errdetail)
UNREACHED(errdetail_plural)
UNREACHED(errfinish)
UNREACHED(errhint)
UNREACHED(errmsg)
UNREACHED(errposition)
UNREACHED(errstart)
UNREACHED(errstart_cold)
UNREACHED(FreeFile)
UNREACHED(GetActiveSnapshot)
UNREACHED(GetCommandTagName)
UNREACHED(geterrposition)
UNREACHED(internalerrposition)
UNREACHED(internalerrquery)
UNREACHED(MemoryContextDelete)
UNREACHED(on_shmem_exit)
UNREACHED(pg_fprintf)
UNREACHED(pg_mbstrlen_with_len)
UNREACHED(pg_snprintf)
UNREACHED(ProcessInterrupts)
UNREACHED(raw_parser)
UNREACHED(RequestAddinShmemSpace)
UNREACHED(s_lock)
UNREACHED(scanner_isspace)
UNREACHED(set_errcontext_domain)
UNREACHED(ShmemInitStruct)
UNREACHED(text_to_cstring)
