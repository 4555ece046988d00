#ifndef RECEIVE_H
#define RECEIVE_H

#include <stdbool.h>

extern void receive_init(void);
extern void receive_go_on(void);
extern void receive_tick(void);
extern double receive_next(void);
extern bool receive_stop(void);

#endif
