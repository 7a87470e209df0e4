#!/bin/bash
# enter.sh SYSTEM FOLDER TREE RESULTS PELAGO TEST...: runs tests of xfstests on `pelago` or `ext4`.
#
# It is the first process of a PID namespace and of a private mount namespace: all that it starts or
# mounts ends with it. FOLDER has two sparse files, test.img and scratch.img. For ext4 these are the
# devices; for Pelago each has a file system with a volume.
set -eu -o pipefail

if [ $$ -ne 1 ]; then
    echo "enter.sh: runs only as the first process of a namespace" >&2
    exit 1
fi
system=$1 folder=$2 tree=$3 results=$4 pelago=$5
shift 5
ours=$(dirname "$(readlink -f "$0")")
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
# With this, tests that read /proc/locks find the machine's, below the /proc of this namespace.
export FSTESTS_ISOL=privatens
export PELAGO=/mnt/pelago HOST_OPTIONS=/mnt/ours/$system.config RESULT_BASE=/mnt/results

# This namespace has copies of the machine's mounts. The process of a mounted volume would wait
# until its copy is unmounted too.
umount --all --lazy --types fuse.pelago || true

# The same short paths on each machine.
mount -t tmpfs -o mode=755 pelago-xtask /mnt
mkdir /mnt/{xfstests,results,ours,sbin,test,scratch,below} /mnt/below/{test,scratch}
touch /mnt/pelago
mount --bind "$tree" /mnt/xfstests
mount --bind "$results" /mnt/results
mount --bind "$ours" /mnt/ours
mount --bind "$pelago" /mnt/pelago

# A loop device that is detached while it is open stays until its last user has closed it. This
# process keeps both open.
TEST_LOOP=$(losetup --find --show "$folder/test.img")
exec 8<"$TEST_LOOP"
losetup --detach "$TEST_LOOP"
SCRATCH_LOOP=$(losetup --find --show "$folder/scratch.img")
exec 9<"$SCRATCH_LOOP"
losetup --detach "$SCRATCH_LOOP"
export TEST_LOOP SCRATCH_LOOP
mkfs.ext4 -q -F "$TEST_LOOP"
mkfs.ext4 -q -F "$SCRATCH_LOOP"

# xfstests needs these users. They exist in this namespace only; no file of the machine is changed.
cp /etc/passwd /etc/group "$folder"
number=64100
for name in fsgqa fsgqa2 123456-fsgqa; do
    number=$((number + 1))
    if ! grep -q "^$name:" /etc/group; then
        echo "$name:*:$number:" >>"$folder/group"
    fi
    if ! grep -q "^$name:" /etc/passwd; then
        echo "$name:*:$number:$number::/tmp:/bin/bash" >>"$folder/passwd"
    fi
done
mount --bind "$folder/passwd" /etc/passwd
mount --bind "$folder/group" /etc/group

# mount(8) searches its helpers in /sbin only.
sbin=$(readlink -f /sbin)
install -m 755 "$ours/mount.fuse.pelago" /mnt/sbin
mount -t overlay -o "ro,lowerdir=/mnt/sbin:$sbin" pelago-xtask "$sbin"

# Tests name their files in /tmp by process ids, which repeat in each namespace.
mkdir -m 1777 "$folder/tmp"
mount --bind "$folder/tmp" /tmp

if [ "$system" = pelago ]; then
    mount "$TEST_LOOP" /mnt/below/test
    mount "$SCRATCH_LOOP" /mnt/below/scratch
fi
cd /mnt/xfstests
code=0
./check "$@" 8<&- 9<&- || code=$?
if [ "$system" = pelago ]; then
    for volume in /mnt/below/*/volume; do
        [ -d "$volume" ] || continue
        "$PELAGO" check "$volume" 8<&- 9<&- || exit 7
    done
fi
exit "$code"
