// SPDX-License-Identifier: GPL-2.0-or-later
// ConfigText: the text of one configuration file, read by a strict scanner of our own first and by libconfig second.
//
// The scanner finds the extent of each top-level setting, which libconfig does not tell, so that an edit replaces exactly one
// setting and keeps comments and everything else. It also keeps from libconfig what libconfig would do and we must not:
// @include (opens files), "\x00" in a string (cuts the value off without a word) and deep nesting. A text of which the two
// disagree on the top-level settings is refused, hence every text that was accepted can be edited.
#pragma once

#include <libconfig.h>
#include <stdbool.h>

#include "base/error.h"

#define CONFIG_TEXT_MAX (1 << 20) // bytes
#define CONFIG_TEXT_DEPTH 8       // brackets in brackets

typedef struct ConfigSpan {
        size_t name, name_size; // offsets in the text
        size_t end;             // behind the terminator
} ConfigSpan;

typedef struct ConfigText {
        const char *file; // as errors call it, "instances.d/a.conf"; borrowed, NULL for none
        config_t config;
        bool ready;
        ConfigSpan *spans; // one per top-level setting, in order
        size_t n_spans;
} ConfigText;

#define CONFIG_TEXT_NULL ((ConfigText) {0})

// `ret` holds borrowed `file` until config_text_done(). Errors: "file:line: reason".
int config_text_parse(ConfigText *ret, const char *file, const char *text, Error *err);
void config_text_done(ConfigText *text);
#define _cleanup_config_text_ _cleanup_(config_text_done)

// Prefixes "file:line: " to a filled error and returns r, whatever err is.
int config_text_locate(const ConfigText *text, const config_setting_t *setting, int r, Error *err);
// Replaces, adds (at the end) or removes (value NULL) one top-level setting. `value` is libconfig text.
int config_text_edit(const char *text, const ConfigText *parsed, const char *key, const char *value, char **ret);
// A quoted libconfig string. NULL on OOM; caller frees.
char *config_text_quote(const char *value);
