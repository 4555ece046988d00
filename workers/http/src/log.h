#ifndef LOG_H
#define LOG_H

typedef enum LogLevel { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR } LogLevel;

/* Lines below this level are not written. */
extern LogLevel log_level;

/* One line: log_begin(), any number of pairs, log_end(). */
extern void log_begin(LogLevel level, const char *event);
extern void log_text(const char *key, const char *value);
extern void log_number(const char *key, long long value);
extern void log_seconds(const char *key, double value);
extern void log_end(void);

/* A line with one pair. */
extern void log_event(LogLevel level, const char *event, const char *key, const char *value);

#endif
