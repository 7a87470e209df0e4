# One repository in two mounts of other processes. A repository is cloned, committed to, repacked
# and checked in each, one after the other, and then both commit at the same time to branches of
# their own. The user's configuration is ignored, and no gc runs in the background.

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=gc.auto GIT_CONFIG_VALUE_0=0

folders=20
files=60
# Commits by each mount in turn, and then by both at once.
rounds=5

# Writes the files of a round into the current folder; each changes one file of each folder.
write() {
    awk -v folders=$folders -v first="$1" -v end="$2" 'BEGIN {
        for (folder = 0; folder < folders; folder++)
            for (file = first; file < end; file++) {
                path = "folder" folder "/file" file
                for (line = 0; line <= (folder + file) % 300; line++) print folder, file, end > path
                close(path)
            }
    }'
}

check() {
    git -C "$1" fsck --full --strict --no-progress
    test -z "$(git -C "$1" status --porcelain)"
}

# The first repository is made on the disk beside the volume.
git init -q "$SCRATCH/origin"
cd "$SCRATCH/origin"
for folder in $(seq 0 $((folders - 1))); do mkdir folder$folder; done
write 0 $files
git add .
git commit -qm first

git clone -q --no-local "$SCRATCH/origin" "$POINT/repository"
diff -r --exclude=.git "$SCRATCH/origin" "$OTHER/repository"
commits=1
for round in $(seq $rounds); do
    for mount in "$POINT" "$OTHER"; do
        cd "$mount/repository"
        # What the other mount has done last.
        test "$(git log --oneline | wc -l)" = $commits
        test -z "$(git status --porcelain)"
        write $((commits - 1)) $commits
        echo "$commits" > last
        git add .
        git commit -qm "commit $commits"
        commits=$((commits + 1))
    done
    check "$POINT/repository"
    check "$OTHER/repository"
done
cd /
git -C "$POINT/repository" gc -q --prune=now
check "$OTHER/repository"
git -C "$OTHER/repository" repack -adqf
check "$POINT/repository"

# Two processes, each in its mount, commit to branches of their own, with an index of their own.
work() {
    export GIT_INDEX_FILE="$SCRATCH/index-$1"
    cd "$2/repository"
    git read-tree HEAD
    git branch -q "$1"
    for round in $(seq 50); do
        blob=$(echo "$1 $round" | git hash-object -w --stdin)
        git update-index --add --cacheinfo "100644,$blob,$1"
        commit=$(git commit-tree -p "$1" -m "$1 $round" "$(git write-tree)")
        git update-ref "refs/heads/$1" "$commit"
    done
}
work one "$POINT" & one=$!
work two "$OTHER" & two=$!
wait $one
wait $two
for mount in "$POINT" "$OTHER"; do
    for name in one two; do
        test "$(git -C "$mount/repository" log --oneline $name | wc -l)" = $((commits + 50))
        test "$(git -C "$mount/repository" show $name:$name)" = "$name 50"
    done
    check "$mount/repository"
done
git -C "$POINT/repository" gc -q --prune=now
check "$OTHER/repository"
