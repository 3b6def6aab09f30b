// SPDX-License-Identifier: GPL-2.0-or-later
// Client: blocking calls over the same wire, for hostctl.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

typedef struct Client Client;
int client_connect(const char *path, Client **ret, Error *err);
int client_from_fd(int fd, Client **ret, Error *err); // owned; for `hostctl stdio` and tests
Client *client_free(Client *client);
DEFINE_CLEANUP(Client, client_free)
int client_fd(const Client *client); // for poll
bool client_is_lost(const Client *client); // the connection broke, as opposed to an answer that is an error
// Sends a call; fds stay the caller's. Parameters are borrowed.
int client_send(Client *client, const char *method, json_t *parameters, bool more, const int *fds, size_t n_fds, Error *err);
// Next reply of the call: 0 = last one, 1 = continues. An error reply becomes `err` with the same code and field.
int client_receive(Client *client, json_t **ret, Error *err);
// The same without waiting: -EAGAIN while no whole reply is here. Call it until then before polling client_fd() again.
int client_receive_ready(Client *client, json_t **ret, Error *err);
// One call with one reply; `ret` may be NULL.
int client_call(Client *client, const char *method, json_t *parameters, json_t **ret, Error *err);
