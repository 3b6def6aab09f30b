# SPDX-License-Identifier: GPL-2.0-or-later
# The README's command on a fresh machine, then what its reader does next: look, restart, remove.
# LIMIT: 1500
. tests/system/lib.sh
begin=$SECONDS
./quickstart
echo "quickstart took $((SECONDS - begin)) s"
