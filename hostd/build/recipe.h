// SPDX-License-Identifier: GPL-2.0-or-later
// Recipe: what a template shall contain, read from one libconfig file and checked whole before anything is run.
// Every string passed base/valid.h, every number has bounds, so that the stages behind may use them in paths, in
// /etc/passwd and in argument vectors. Keys are rows of the tables in recipe.c; hostd-template.conf(5) says the same.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/strv.h"

// Ids inside an instance: its range is 2^20 wide (design: identity maps), images themselves use the first 2^16.
#define RECIPE_ID_RANGE ((int64_t) 1 << 20)
#define RECIPE_IMAGE_IDS ((int64_t) 1 << 16)
#define RECIPE_SIZE_MAX ((size_t) 256 * 1024)

typedef struct RecipeUser {
        char *name, *shell, *subids; // subids: "START:COUNT", NULL for none
        int64_t uid, subid_start, subid_count;
        bool linger;
        char **groups;
} RecipeUser;

typedef struct RecipeFile {
        char *path, *mode, *content;
        int64_t uid, gid;
        mode_t mode_bits;
} RecipeFile;

typedef struct Recipe {
        char *name, *description, *suite, *variant;
        char **packages, **packages_bookworm, **packages_trixie;
        char **mask_units, **enable_units, **cleanup;
        RecipeUser *users;
        size_t n_users;
        RecipeFile *files;
        size_t n_files;
        char digest[DIGEST_TEXT_MAX]; // of the file's bytes
} Recipe;

// `origin` is the name for messages. `suite` (may be NULL) replaces the recipe's own.
int recipe_parse(const char *origin, const char *text, const char *suite, Recipe **ret, Error *err);
Recipe *recipe_free(Recipe *recipe);
DEFINE_CLEANUP(Recipe, recipe_free)
// Those of the suite added; caller frees.
char **recipe_packages(const Recipe *recipe);
