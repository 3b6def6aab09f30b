// SPDX-License-Identifier: GPL-2.0-or-later
// Log: one call per message. With systemd the fields go to the journal; otherwise one line goes to stderr.
// Only the API faces, job completion and main() log; everything below returns errors.
#pragma once

#include <syslog.h>

#include "base/error.h"

// Message ids of what an operator acts on; hostd/units/hostd.catalog explains each, and a test compares.
#define LOG_ID_INSTANCE_STARTED "6f2b8d50c0f64dd5a2b1a2a0ad2d5b01"
#define LOG_ID_INSTANCE_STOPPED "6f2b8d50c0f64dd5a2b1a2a0ad2d5b02"
#define LOG_ID_INSTANCE_FAILED "6f2b8d50c0f64dd5a2b1a2a0ad2d5b03"
#define LOG_ID_OOM "6f2b8d50c0f64dd5a2b1a2a0ad2d5b04"
#define LOG_ID_TABLE_LOST "6f2b8d50c0f64dd5a2b1a2a0ad2d5b05"
#define LOG_ID_WARNING "6f2b8d50c0f64dd5a2b1a2a0ad2d5b06"
#define LOG_ID_CONFIG_REFUSED "6f2b8d50c0f64dd5a2b1a2a0ad2d5b07"
#define LOG_ID_START_REFUSED "6f2b8d50c0f64dd5a2b1a2a0ad2d5b08"
#define LOG_ID_AUDIT_UNWRITABLE "6f2b8d50c0f64dd5a2b1a2a0ad2d5b09"
#define LOG_ID_AUDIT_BROKEN "6f2b8d50c0f64dd5a2b1a2a0ad2d5b0a"
#define LOG_ID_TABLE_RESTORED "6f2b8d50c0f64dd5a2b1a2a0ad2d5b0b"
#define LOG_ID_NETWORK_CLOSED "6f2b8d50c0f64dd5a2b1a2a0ad2d5b0c"
#define LOG_ID_DISK_FULL "6f2b8d50c0f64dd5a2b1a2a0ad2d5b0d"
#define LOG_ID_STORE "6f2b8d50c0f64dd5a2b1a2a0ad2d5b0e"
#define LOG_ID_ORPHAN "6f2b8d50c0f64dd5a2b1a2a0ad2d5b0f"
#define LOG_ID_GUEST_HELPER "6f2b8d50c0f64dd5a2b1a2a0ad2d5b10"
#define LOG_ID_LEAK "6f2b8d50c0f64dd5a2b1a2a0ad2d5b11"
#define LOG_ID_STORAGE_LOST "6f2b8d50c0f64dd5a2b1a2a0ad2d5b12"

// `instance` and `message_id` may be NULL.
void log_event(int priority, const char *message_id, const char *instance, const char *format, ...) _printf_(4, 5);
#define log_info(...) log_event(LOG_INFO, NULL, NULL, __VA_ARGS__)
#define log_warning(...) log_event(LOG_WARNING, NULL, NULL, __VA_ARGS__)
#define log_error(...) log_event(LOG_ERR, NULL, NULL, __VA_ARGS__)
#define log_debug(...) log_event(LOG_DEBUG, NULL, NULL, __VA_ARGS__)
void log_set_max(int priority); // default LOG_INFO
