// SPDX-License-Identifier: GPL-2.0-or-later
// What the four files of the template registry share; nobody else includes this.
#pragma once

#include "core/template.h"

struct TemplateRegistry {
        int state_fd, images_fd; // STATE, STATE/templates
        char *run_dir;
        Template **items; // sorted
        size_t n_items;
};

// "DIGEST<suffix>", asserted to be a digest. ret holds 80 bytes.
#define TEMPLATE_NAME_MAX 80
#define TEMPLATE_ADOPTING ".new" // beside the image, until its manifest is there
char *template_digest_path(const char *digest, const char *suffix, char *ret);
// Reads templates/DIGEST.json, checks it against the image, adds it. Idempotent.
int template_registry_load(TemplateRegistry *registry, const char *digest, Error *err);
int template_detach(TemplateRegistry *registry, const char *digest, Error *err);
bool template_is_mounted(const TemplateRegistry *registry, const char *digest);
// Starts hostd-build for `job`, whose pidfd and out_fd are set then; `out` and `input` stay the caller's.
int template_job_run(TemplateJob *job, const TemplateBuildSpec *spec, int out, int input, Error *err);
