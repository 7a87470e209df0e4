# Copies the tree into the volume and out of it with rsync, again after changes, and compares.

. "$SCRATCH/scripts/tree.sh"

keep=-aHAXS
rsync $keep "$SCRATCH/tree/" in/
same "$SCRATCH/tree" in
test "$(stat -c %h in/third)" = 3
test "$(stat -c %b in/sparse)" -lt 1000
rsync $keep in/ "$SCRATCH/out/"
same in "$SCRATCH/out"
echo changed > in/d1/inner/f2
rm in/d1/inner/f3
mv in/d2 in/renamed
rsync $keep --delete in/ "$SCRATCH/out/"
same in "$SCRATCH/out"
rsync $keep --inplace --delete "$SCRATCH/tree/" in/
same "$SCRATCH/tree" in
rm -r in
