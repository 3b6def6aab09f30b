// SPDX-License-Identifier: GPL-2.0-or-later
// Debootstrap: the stage of a build that runs mmdebstrap, in the outer namespaces.
#pragma once

#include "build/recipe.h"

typedef struct Debootstrap {
        const Recipe *recipe;
        char *sources, *image_sources; // apt.h
        char *options, *image_options;
} Debootstrap;

int debootstrap_prepare(Debootstrap *d, const Recipe *recipe, Error *err); // reads the host's apt configuration
void debootstrap_done(Debootstrap *d);
// Fills JAIL_WORK/root; JAIL_WORK/tmp must be there and is scratch.
int debootstrap_run(const Debootstrap *d, Error *err);
// In the inner namespace: what mmdebstrap left of the host in the tree becomes what belongs into an image.
int debootstrap_finish(const Debootstrap *d, int root, Error *err);
