// SPDX-License-Identifier: GPL-2.0-or-later
// Manifest: what is known about one image. hostd-build writes it, hostd reads it as root: one strict, bounded parser that
// accepts exactly the keys below and hands out only what base/valid.h passed.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/digest.h"

#define MANIFEST_SIZE_MAX ((size_t) 1 << 20)
#define MANIFEST_PACKAGES_MAX 20000
#define MANIFEST_MIRRORS_MAX 64

typedef struct Manifest {
        char *name;         // VALID_NAME
        char *suite;        // VALID_SUITE, NULL when unknown (import)
        char *architecture; // "amd64", NULL when unknown
        char *built;        // "2026-01-31T12:34:56.123456Z"
        char recipe[DIGEST_TEXT_MAX]; // "" for an import
        char digest[DIGEST_TEXT_MAX];
        uint64_t size_bytes;
        json_t *packages; // object: name -> version, both checked
        char **mirrors;   // "HOST:PORT", where its package clients fetch from (clients.h); NULL: none
        bool asked;       // whether the clients were asked at all: an older hostd-build did not
} Manifest;

int manifest_parse(const char *text, size_t size, Manifest **ret, Error *err);
// One reference for the caller; NULL on OOM.
json_t *manifest_to_json(const Manifest *manifest);
// Sorted keys, indented, a newline at the end; caller frees; NULL on OOM.
char *manifest_format(const Manifest *manifest);
// Whether it is one that may stand in `mirrors`: a host name (never an address) and a port that has no other use.
bool manifest_mirror_is_valid(const char *text);
Manifest *manifest_free(Manifest *manifest);
DEFINE_CLEANUP(Manifest, manifest_free)
// Adds the installed packages of a dpkg status file (at most 64 MiB, the caller's care). Names and versions that are none
// are an error: the file may be an import's.
int manifest_add_packages(Manifest *manifest, const char *status, Error *err);
