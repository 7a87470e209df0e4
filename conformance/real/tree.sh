# Makes $SCRATCH/tree, and defines `same`. tar.sh and rsync.sh begin with this.
#
# The tree has files of every type: modes, times, links, holes, attributes, access control lists,
# odd names; as root also owners and devices.

mkdir "$SCRATCH/tree"
cd "$SCRATCH/tree"
for folder in $(seq 1 40); do
    mkdir -p "d$folder/inner"
    for file in $(seq 1 50); do
        head -c $((folder * file * 37)) < <(yes "$folder $file") > "d$folder/inner/f$file"
    done
done
: > empty
ln d1/inner/f1 d2/second
ln d1/inner/f1 third
ln -s ../d1/inner/f1 d3/link
ln -s nowhere dangling
truncate -s 50M sparse
printf x >> sparse
printf y | dd of=sparse bs=1 seek=7000000 conv=notrunc status=none
mkfifo pipe
echo long > "$(printf 'n%.0s' $(seq 1 255))"
printf odd > $'a name\nwith \xff and *'
chmod 4755 d4/inner/f1
chmod 2755 d5
chmod 1777 d6
setfattr -n user.colour -v blue third
setfattr -n user.colour -v red d9
setfattr -n user.binary -v 0x00ff10 empty
setfacl -m u:1:r,g:2:rw third d14/inner/*
setfacl -m u:1:rwx -d -m u:1:rwx,g:2:- d13 d14
touch -d '1999-12-31 23:59:59.123456789' d11/inner/f1
touch -d '2101-01-01 00:00:00.000000001' d12
if [ "$(id -u)" = 0 ]; then
    mknod null c 1 3
    mknod disk b 7 200
    chown 65534:12345 d8/inner/*
    chown -h 1:2 dangling
    chmod 000 d7/inner/f1
    setfattr -n trusted.mark -v yes d10/inner/f1
fi
touch -h -d '2000-01-01' dangling

cd "$POINT"

# Fails unless $1 and $2 are equal; $keep has the options of rsync.
attributes() {
    cd "$1"
    find . -print0 | sort -z | xargs -0 getfattr -hdm - 2> "$SCRATCH/errors"
}
same() {
    difference=$(rsync $keep -ni --checksum --delete "$1/" "$2/")
    if [ -n "$difference" ]; then
        echo "$1 and $2 differ:"
        echo "$difference"
        exit 1
    fi
    diff <(attributes "$1") <(attributes "$2")
}
