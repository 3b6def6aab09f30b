#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The network of sandboxes against real packets, as network.sh. usage: network_sandbox.sh [path of network_driver]
exec "$(dirname "$0")/network.sh" "${1:-.}" network_sandbox.py
