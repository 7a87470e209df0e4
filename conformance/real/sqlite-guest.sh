# As sqlite.sh, in the mount of a guest: the two processes are on one machine.

. "$SCRATCH/scripts/sqlite.sh"
