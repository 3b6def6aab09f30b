// SPDX-License-Identifier: GPL-2.0-or-later
// Job: one run of hostd-build, from checked arguments to image.erofs and manifest.json in the output directory, which
// holds nothing else afterwards (and neither of them after a failure).
#pragma once

#include "build/jail.h"

typedef struct JobSpec {
        const char *origin; // of the recipe, for messages
        char *recipe_text;  // build; NULL for import
        const char *suite;  // build: replaces the recipe's; NULL
        const char *name;   // import
        int input_fd;       // import: a tar stream or a directory
        int out_fd;         // directory
        JailNetwork network; // build
        int wire_fd;         // build: see JailPlan
} JobSpec;

int job_run(const JobSpec *spec, Error *err);
// "progress PERCENT TEXT" on stdout, as hostd reads it.
void job_progress(unsigned percent, const char *format, ...) _printf_(2, 3);
