#ifndef LOOP_H
#define LOOP_H

#include <stdint.h>

typedef void (*LoopHandler) (void *owner, uint32_t events);

/* Monotonic time in seconds, as of the last call of loop_wait() or loop_look_at_clock(). */
extern double now;

extern void loop_init(void);
extern void loop_watch(int fd, uint32_t events, LoopHandler handler, void *owner);
extern void loop_forget(int fd);
extern void loop_wait(double until);
extern void loop_dispatch(void);
extern double loop_look_at_clock(void);

#endif
