// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, instances: from a checked request to the verbs of lifecycle.h and instance.h.
#pragma once

#include "core/request.h"

// instance
void handle_create(Request *request);
void handle_launch(Request *request);
void handle_start(Request *request);
void handle_stop(Request *request);
void handle_restart(Request *request);
void handle_pause(Request *request);
void handle_resume(Request *request);
void handle_delete(Request *request);
void handle_rebuild(Request *request);
// show
void handle_list(Request *request);
void handle_show(Request *request);
void handle_console(Request *request);
void handle_log(Request *request);
// diff
void handle_diff(Request *request);
// flow
void handle_flows(Request *request);
void handle_why(Request *request);
// command
void handle_exec(Request *request);
void handle_shell(Request *request);
void handle_command_attach(Request *request);
void handle_command_signal(Request *request);
void handle_command_list(Request *request);
void handle_command_start(Request *request);
void handle_command_kept(Request *request); // background.c
void handle_logs(Request *request);
// file
void handle_file(Request *request); // every method of files, but for those that have a check of their own
void handle_file_replace(Request *request);
void handle_file_chown(Request *request);
// sandbox
void handle_sandbox_create(Request *request);
void handle_sandbox_list(Request *request);
void handle_sandbox_show(Request *request);
void handle_sandbox_why(Request *request);
void handle_sandbox_exec(Request *request); // handle_command.c
void handle_sandbox_delete(Request *request);
void handle_sandbox_renew(Request *request);
void handle_sandbox_pause(Request *request);
void handle_sandbox_resume(Request *request);
// The place that the parameter "name" names: an instance, or, if there is none of that name, a sandbox by its id, and then the instance that it is in. NULL,
// noted: neither.
struct Sandbox;
Instance *request_place(Request *request, struct Sandbox **ret_sandbox);
// Whether a place, INSTANCE or INSTANCE/SANDBOX, is that of one of these names, or within it. Pure.
bool place_is_of(const char *place, const char *name);
// Calls `ready` once the instance's helper takes requests, with a hold on the request; or notes why that cannot be.
void request_await_guest(Request *request, Instance *instance, InstanceDone ready);
// template
void handle_template_build(Request *request);
void handle_template_import(Request *request);
void handle_template_list(Request *request);
void handle_template_show(Request *request);
void handle_template_delete(Request *request);
void handle_template_prune(Request *request);
// config
void handle_set(Request *request);
void handle_unset(Request *request);
void handle_label(Request *request);
void handle_config_log(Request *request);
void handle_config_diff(Request *request);
void handle_config_rollback(Request *request);
void handle_apply(Request *request);
// policy, network
void handle_policy_list(Request *request);
void handle_policy_show(Request *request);
void handle_policy_set(Request *request);
void handle_policy_delete(Request *request);
void handle_policy_explain(Request *request);
void handle_network_show(Request *request);
void handle_network_packages(Request *request);
void handle_network_cut(Request *request);
void handle_network_restore(Request *request);
void handle_expose(Request *request);
void handle_unexpose(Request *request);
void handle_exposed(Request *request);
// approval
void handle_approvals(Request *request);
void handle_approve(Request *request);
void handle_deny(Request *request);
// host
void handle_carve(Request *request);
void handle_doctor(Request *request);
void handle_leaks(Request *request);
void handle_info(Request *request);
void handle_events(Request *request);
void handle_audit_verify(Request *request);
void handle_audit_tail(Request *request);
void handle_audit_query(Request *request);
void handle_warning_list(Request *request);
void handle_warning_clear(Request *request);
// secret
void handle_secret_set(Request *request);
void handle_secret_rotate(Request *request);
void handle_secret_revoke(Request *request);
void handle_secret_list(Request *request);
void handle_secret_grant(Request *request);
void handle_secret_ungrant(Request *request);
void handle_secret_grants(Request *request);
void handle_secret_authority(Request *request);

// Commits what the request wrote, named after its words and target; holds the request until git is done.
void handle_commit(Request *request);
// The same for all that differs from the history: what was changed by hand.
void handle_commit_all(Request *request);
// The file of a new instance; caller frees both. Shared by create and carve.
typedef struct NewInstance { char *text; InstanceConfig *config; } NewInstance;
void new_instance_done(NewInstance *instance);
int new_instance_make(Manager *manager, const char *name, const json_t *parameters, NewInstance *ret, Error *err);
// new_instance_make() + lifecycle_create() + reload.
int new_instance_create(Manager *manager, const char *name, const json_t *parameters, Instance **ret, Error *err);
