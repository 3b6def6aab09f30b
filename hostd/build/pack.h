// SPDX-License-Identifier: GPL-2.0-or-later
// Pack: the last stage, in the inner namespace: a checked and cleaned tree becomes image.erofs and manifest.json.
#pragma once

#include "build/manifest.h"

// `root` is the tree, `work` the directory for both files. Fills digest, size, packages and time of `manifest`.
int pack_image(int root, int work, Manifest *manifest, Error *err);
