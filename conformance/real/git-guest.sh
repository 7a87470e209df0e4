# As git.sh, in the mount of a guest, with fewer files.

FILES=40
LEAST=5000
. "$SCRATCH/scripts/git.sh"
