// SPDX-License-Identifier: GPL-2.0-or-later
// Clients: where a template's package clients (apt, pip, npm, cargo, go) fetch from, by their own word. hostd knows no registry: whatever a
// template is configured for, a private mirror or the client's own default, is what "@packages" means in its instances.
//
// The clients are the template's programs and may be anything. They run in its root, read-only, as its first user (uid 1000) or nobody, without a
// capability, in namespaces of their own inside the job's, with bounds on time, files and output; what they say is scanned for hosts,
// and what is no host name and port is dropped.
#pragma once

#include <stdbool.h>

#include "base/error.h"

// Root of the inner namespace calls it, with `root` the template's. Lines "HOST:PORT" go to `out`. What a client does not say is no error.
// `index_only`: just cargo, where a network is: its index says where crates are downloaded.
int clients_ask(int root, bool index_only, int out, Error *err);
// Takes lines from `in` until its end: at most MANIFEST_MIRRORS_MAX that are right, each once. `ret_whole`: all clients were asked.
#define CLIENTS_END "."
int clients_take(int in, char ***mirrors, bool *ret_whole);

// clients_scan.c: hosts in what a client printed.
typedef enum ClientScan {
        SCAN_URLS,     // every http and https address
        SCAN_QUOTED,   // those behind a backquote: cargo's messages, which also name pages of help
        SCAN_SETTINGS, // of lines "registry = …", "@scope:registry = …", "index = …", "proxy = …", "https-proxy = …"
        SCAN_WORDS,    // addresses, and bare host names, which are meant with TLS
        SCAN_INDEX,    // the "dl" of an index's config.json
} ClientScan;
int clients_scan(ClientScan how, const char *text, char ***mirrors); // adds what is not there yet
