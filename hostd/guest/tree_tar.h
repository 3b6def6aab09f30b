// SPDX-License-Identifier: GPL-2.0-or-later
// Tree: to and from tar, for people and programs that have one. It is done where the client is: what a guest packed has passed the checks of the reader
// of trees, so that no tar made here holds a path that leads out of where it is unpacked; and a tar that is sent is unpacked as a tree is.
#pragma once

#include "guest/tree.h"

// A tree stream as a tar of the pax format; `name` is what a root that is one file is called. Returns how many files had another size
// when they were read than before: they are cut, or filled with zeros, since a tar says the size first.
int tree_to_tar(int in_fd, int out_fd, const char *name, Error *err);
// A tar (ustar, pax, GNU's long names) as a tree stream; directories that it does not name come before what is in them. Hard links and sparse files are
// refused. Returns how many devices and pipes were left out.
int tree_from_tar(int in_fd, int out_fd, Error *err);
