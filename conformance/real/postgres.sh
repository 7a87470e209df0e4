# PostgreSQL 15 on a volume: a minute of pgbench, then kill -9 of the database and of Pelago.
#
# During each kill pgbench runs, and a witness inserts numbers one by one and notes each
# acknowledged one. After recovery every noted number must be there, the sums of pgbench must agree,
# and pg_amcheck must find nothing. Sockets, log and notes are beside the volume, so that
# $sockets/pid is readable without it.

bin=/usr/lib/postgresql/15/bin data=$POINT/postgres/data sockets=$SCRATCH/postgres
export PGHOST=$sockets PGUSER=postgres PGDATABASE=postgres
# PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    owner="-o postgres"
    as() { runuser -u postgres -- "$@"; }
else
    owner=
    as() { "$@"; }
fi
start() {
    as $bin/pg_ctl -s -D "$data" -w -t 300 -l "$sockets/log" -o "-c listen_addresses= \
        -c unix_socket_directories=$sockets -c external_pid_file=$sockets/pid" start ||
        { tail -20 "$sockets/log"; exit 1; }
}
ask() { as $bin/psql -qAtX -v ON_ERROR_STOP=1 -c "$1"; }
# The postmaster and its children.
family() {
    postmaster=$(head -1 "$sockets/pid")
    echo $postmaster $(cat /proc/$postmaster/task/$postmaster/children 2> /dev/null || true)
}
# Kills these processes and waits until they have ended; a zombie has no program.
end() {
    kill -9 "$@" 2> /dev/null || true
    for one in "$@"; do
        while readlink -q /proc/$one/exe > /dev/null; do sleep 0.05; done
    done
}

initialise() {
    install -d $owner -m 700 postgres "$sockets"
    as $bin/initdb -U postgres -D "$data" --data-checksums --auth=trust --encoding=UTF8 --locale=C
    start
    as $bin/pgbench -q -i -s 10
    ask 'create table witness (n bigint primary key)'
}

# Starts pgbench and the witness, which inserts from $first on, and waits until both work.
work() {
    first=$1
    cd /
    as $bin/pgbench -n -T 600 -c 4 -j 2 > "$sockets/busy" 2>&1 & busy=$!
    : > "$sockets/noted.$first"
    seq $first 100000000 | sed 's/.*/insert into witness values (&) returning n;/' |
        as stdbuf -oL $bin/psql -qAtX -v ON_ERROR_STOP=1 > "$sockets/noted.$first" \
        2> "$sockets/witness" & witness=$!
    until [ "$(wc -l < "$sockets/noted.$first")" -ge 500 ]; do
        kill -0 $witness
        sleep 0.05
    done
}

# Waits for both after a kill.
reap() {
    wait $busy || true
    wait $witness || true
}

recover() {
    # All processes have ended, but without a parent that reaps them their ids still exist.
    rm -f "$data/postmaster.pid" "$sockets"/.s.PGSQL.*.lock
    start
    ask 'select n from witness' | sort > "$sockets/there"
    lost=$(cat "$sockets"/noted.* | sort | comm -23 - "$sockets/there")
    if [ -n "$lost" ]; then echo "acknowledged and lost: $lost"; exit 1; fi
    test "$(ask "select a = t and t = b from
        (select sum(abalance) a from pgbench_accounts) x,
        (select sum(tbalance) t from pgbench_tellers) y,
        (select sum(bbalance) b from pgbench_branches) z")" = t
    as $bin/pg_amcheck --all --install-missing --heapallindexed --parent-check
}

# Ends the database after a failure, so that nothing uses the volume.
abandon() {
    cd /
    if [ -s "$sockets/pid" ] && grep -qx postgres "/proc/$(head -1 "$sockets/pid")/comm"; then
        end $(family)
    fi
}
trap abandon EXIT

initialise
as $bin/pgbench -T 60 -c 4 -j 2

work 1
end $(family)
reap
recover

work 10000000
before=$(family)
pelago=$("$PELAGO" status --json "$VOLUME" | sed -nE 's/.*"pid": ?([0-9]+).*/\1/p')
test -n "$pelago"
end $pelago
# The database cannot use a mount whose process has ended.
end $before $(family)
reap
"$PELAGO" up "$VOLUME" --mount "$POINT" --detach --passthrough "$PASSTHROUGH"
recover

as $bin/pg_ctl -s -D "$data" -m fast -w -t 300 stop
