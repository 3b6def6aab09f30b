// SPDX-License-Identifier: GPL-2.0-or-later
// Rootfs: an instance's root and data, mounted in this process' own mount namespace, with which they vanish.
#pragma once

#include "instance/spec.h"

// Exist in that namespace only.
#define ROOTFS_STAGE "/dev/shm"
#define ROOTFS_PATH ROOTFS_STAGE "/rootfs"
#define ROOTFS_PIVOT ROOTFS_STAGE "/pivot" // where liblxc binds it before pivot_root()
#define ROOTFS_LXC ROOTFS_STAGE "/lxc"     // lxcpath; liblxc keeps nothing in it
#define ROOTFS_DEVICES ROOTFS_STAGE "/dev" // nodes of our own for what liblxc does not make: fuse, tun

// A mount namespace of our own: unmounts on the host still arrive (slave), nothing of ours leaves.
int rootfs_private_mounts(Error *err);
// Assembles everything; refuses a root whose /dev, /proc or /sys is no directory, or which has no /sbin/init.
int rootfs_assemble(const InstanceSpec *spec, Error *err);

// home.c: copies the template's /home below `to` as root of the user namespace. Both are descriptors of idmapped mounts.
int home_copy(int userns, int from, int to, Error *err);
