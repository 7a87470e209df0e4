# Tags and queries on the source tree of git, against find, grep and getfattr: before and after its
# folder is renamed, and after kill -9 of Pelago.
#
# The tree is that of Debian's source package, from the machine's own list of sources. $parts has
# the list with types of source packages, and $lists what it names.

fetch() {
    parts=$SCRATCH/apt/parts lists=$SCRATCH/apt/lists
    mkdir -p "$parts" "$lists/partial" "$SCRATCH/source"
    for list in debian.sources ../sources.list; do
        if [ -r /etc/apt/sources.list.d/$list ]; then
            sed 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' /etc/apt/sources.list.d/$list \
                > "$parts/debian.${list##*.}"
        fi
    done
    options="-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$parts
        -o Dir::State::lists=$lists -o Dir::Cache=$SCRATCH/apt"
    apt-get -q $options update &&
        (cd "$SCRATCH/source" && apt-get -q $options source --download-only git)
}

# Compares the answer to query $1 below $2 with the paths of standard input.
agree() {
    sort > "$SCRATCH/expected"
    { "$PELAGO" find "$1" "$2" || test $? = 1; } | sort > "$SCRATCH/answered"
    cmp "$SCRATCH/expected" "$SCRATCH/answered" || { echo "differs: $1 in $2"; exit 1; }
}

# Asks all that is asked of the tree in folder $1.
ask() {
    # The folder itself is not below itself. getfattr writes a blank in its own way, and ends with 1
    # if any file has no such attribute.
    { getfattr -R -P -h --absolute-names -n user.tag.area "$1" 2> /dev/null || test $? = 1; } |
        sed -n 's/\\040/ /g; s/^# file: \(.*\/.*\)/\1/p' | agree tag:area "$1"
    find "$1" -path '*/Documentation/*' -name 'git-*.txt' | agree area=manual "$1"
    find "$1" -name '*.[ch]' | agree 'name~*.[ch]' "$1"
    find "$1" -mindepth 1 -name 'Makefile' | agree name=Makefile "$1"
    find "$1" -mindepth 1 -type d | agree kind=dir "$1"
    find "$1" -type f -size +102400c | agree 'size>100K' "$1"
    # grep divides words as Pelago does if they have letters of ASCII only.
    grep -rliw --include='*.c' rebase "$1" | sort > "$SCRATCH/grep"
    "$PELAGO" find 'text:rebase name~*.c' "$1" | sort > "$SCRATCH/text"
    # The words of the beginning are sought, and grep takes `_` for a letter.
    test "$(comm -23 "$SCRATCH/grep" "$SCRATCH/text" | xargs -r ls -l | awk '$5 <= 262144' |
        wc -l)" = 0
    # Once the index has read all texts, what is about a word comes before what names it.
    tries=0
    until [ "$("$PELAGO" find text:rebase "$1" --limit 40 | grep -c rebase)" -ge 10 ]; do
        tries=$((tries + 1))
        test $tries -lt 300
        sleep 0.2
    done
    test "$(ls "$1/.find/area=manual" | wc -l)" = "$("$PELAGO" find area=manual "$1" | wc -l)"
    cmp "$1/.find/name=git.c/git.c" "$1/git.c"
}

fetch || exit 77
mkdir tree
tar xf "$SCRATCH"/source/git_*.orig.tar.* -C tree --strip-components 1
"$PELAGO" tag tree area=root
for page in $(find tree/Documentation -name 'git-*.txt'); do "$PELAGO" tag "$page" area=manual; done
ask tree

# A file is found as soon as it is there, under the folder's new name too.
mv tree "renamed tree"
echo "the rebase of a reef" > "renamed tree/new.c"
"$PELAGO" find 'name=new.c text:reef' . | grep -qx './renamed tree/new.c'
ask "renamed tree"

cd /
pelago=$("$PELAGO" status --json "$VOLUME" | sed -nE 's/.*"pid": ?([0-9]+).*/\1/p')
kill -9 $pelago
while readlink -q /proc/$pelago/exe > /dev/null; do sleep 0.05; done
"$PELAGO" up "$VOLUME" --mount "$POINT" --detach --passthrough "$PASSTHROUGH"
cd "$POINT"
ask "renamed tree"
rm -r "renamed tree"
agree tag:area . < /dev/null
agree name=git.c . < /dev/null
