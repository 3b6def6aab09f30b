// SPDX-License-Identifier: GPL-2.0-or-later
// Apt: package sources, proxies and validity options of the host, rewritten for the suite a template asks for. No mirror's
// name is known to hostd: what the host installs from is what templates are built from.
#pragma once

#include "base/error.h"

// `root` is "" (tests: another tree). Texts are owned by the caller.
// ret_sources: one-line format for apt; ret_image: the same without user names and passwords, for the image.
int apt_sources(const char *root, const char *suite, char **ret_sources, char **ret_image, Error *err);
// Options for apt while building (proxies included) and those that stay in the image (never proxies).
// `dump` is what `apt-config dump` printed.
int apt_options(const char *dump, char **ret_build, char **ret_image, Error *err);
