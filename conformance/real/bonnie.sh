# 2 GiB of one file in several access patterns, then 16,384 files created, read and removed.
# bonnie++ runs as root only with -u.

mkdir bonnie
if [ "$(id -u)" = 0 ]; then user="-u root"; else user=; fi
bonnie++ -d bonnie -s 2048 -r 1024 -n 16 $user
test -z "$(ls -A bonnie)"
