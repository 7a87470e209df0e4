# A repository of more than 20,000 objects ($LEAST): commits, a clone, fsck and repacking. The user's
# configuration is ignored, and no gc runs in the background.

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=gc.auto GIT_CONFIG_VALUE_0=0

export folders=100
files=${FILES:-190}
least=${LEAST:-20000}
# Commits after the first; each changes one file of each folder.
rounds=8

# Writes the files from $first to before $end in each folder. No two files are equal, so each is an
# object.
write() {
    for folder in $(seq 0 $((folders - 1))); do mkdir -p folder$folder; done
    awk 'BEGIN {
        for (folder = 0; folder < ENVIRON["folders"]; folder++)
            for (file = ENVIRON["first"] + 0; file < ENVIRON["end"] + 0; file++) {
                path = "folder" folder "/file" file
                for (line = 0; line <= (folder + file) % 900; line++)
                    print folder, file, ENVIRON["round"] > path
                close(path)
            }
    }'
}

check() {
    for one in repository clone; do
        git -C $one fsck --full --strict --no-progress
        test -z "$(git -C $one status --porcelain)"
    done
}

git init -q repository
for round in $(seq 0 $rounds); do
    first=$round end=$((round + 1))
    if [ "$round" = 0 ]; then end=$files; fi
    export round first end
    (
        cd repository
        write
        git add .
        git commit -qm round
    )
done
objects=$(git -C repository count-objects -v |
    awk '/^(count|in-pack):/ { sum += $2 } END { print sum }')
if [ "$objects" -lt "$least" ]; then
    echo "only $objects objects were made"
    exit 1
fi
git clone -q --no-local repository clone
diff -r --exclude=.git repository clone
check
git -C repository gc -q --prune=now
git -C clone repack -adqf
git -C clone checkout -q HEAD~5
git -C clone checkout -q -
git -C clone pull -q
check
