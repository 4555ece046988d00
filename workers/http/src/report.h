#ifndef REPORT_H
#define REPORT_H

#include "request.h"

extern void report_init(void);
extern void report_word(Request *request, Word word);
extern void report_flush(void);
extern void report_tick(void);
extern double report_next(void);
extern bool report_is_caught_up(void);
extern void report_close(void);

#endif
