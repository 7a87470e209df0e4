# Copies the tree into the volume and out of it with tar. rsync compares both sides byte by byte,
# getfattr their attributes.

. "$SCRATCH/scripts/tree.sh"

keep=-aHAXS
options="--acls --xattrs --xattrs-include=* --sparse"
mkdir in "$SCRATCH/out"
tar $options -cf - -C "$SCRATCH/tree" . | tar $options -xpf - -C in
same "$SCRATCH/tree" in
tar $options -cf archive.tar -C in .
tar $options -df archive.tar -C "$SCRATCH/tree"
tar $options -xpf archive.tar -C "$SCRATCH/out"
same in "$SCRATCH/out"
rm -r in
