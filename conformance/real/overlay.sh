# An overlay whose upper directory is on the volume, as in containers. Creates, changes, renames and
# removes files of the lower directory. Checks the overlay, its upper directory, and the overlay
# after a new mount.
#
# Runs in a mount namespace of its own.

if [ -z "${INSIDE:-}" ]; then
    INSIDE=1 exec unshare --mount bash -euo pipefail "$SCRATCH/scripts/overlay.sh"
fi

lower="$SCRATCH/lower"; merged="$SCRATCH/merged"
mkdir -p "$lower/dir/sub" "$lower/old" "$merged" upper work
for name in keep gone moved over old/in dir/a dir/sub/b; do echo "$name" > "$lower/$name"; done
setfattr -n user.lower -v one "$lower/keep"
head -c 3000000 /dev/urandom > "$lower/large"
cp -p "$lower/large" "$SCRATCH/large"

attach() {
    mount -t overlay overlay \
        -o "lowerdir=$lower,upperdir=$PWD/upper,workdir=$PWD/work,$1" "$merged"
}
fails() { if "$@" 2> "$SCRATCH/why"; then echo "did not fail: $*" >&2; exit 1; fi; }
whiteout() { test "$(stat -c '%F %t:%T' "$1")" = 'character special file 0:0'; }

look() {
    test "$(ls "$merged" | tr '\n' ' ')" = 'dir2 keep large made new over remade '
    test "$(cat "$merged/keep")" = "keep
more"
    test "$(cat "$merged/new")" = moved
    test "$(cat "$merged/over")" = made
    test "$(find "$merged/dir2" | wc -l)" = 4
    test "$(cat "$merged/dir2/sub/b")" = dir/sub/b
    test -z "$(ls "$merged/remade")"
    test "$(getfattr --only-values -n user.lower "$merged/keep")" = one
    cmp "$merged/large" "$SCRATCH/changed"
    fails test -e "$merged/gone"
    fails test -e "$merged/dir"
    fails test -e "$merged/old"
}

for options in redirect_dir=off redirect_dir=on; do
    attach "$options"
    echo more >> "$merged/keep"
    rm "$merged/gone"
    mv "$merged/moved" "$merged/new"
    echo made > "$merged/made"
    cp "$merged/made" "$merged/fresh"
    mv "$merged/fresh" "$merged/over"
    # Without redirects a rename answers EXDEV, and `mv` copies and removes.
    mv "$merged/dir" "$merged/dir2"
    rm -r "$merged/old"
    mkdir "$merged/old"
    mv "$merged/old" "$merged/remade"
    cp "$SCRATCH/large" "$SCRATCH/changed"
    for file in "$merged/large" "$SCRATCH/changed"; do
        printf changed | dd of="$file" bs=1 seek=2000000 conv=notrunc status=none
    done
    ln "$merged/made" "$merged/linked"
    rm "$merged/linked"
    look
    whiteout upper/gone
    whiteout upper/moved
    whiteout upper/dir
    umount "$merged"
    attach "$options"
    look
    sync "$merged/large"
    umount "$merged"
    rm -r upper work
    mkdir upper work
done
