# One SQLite database in two mounts of other processes, with a rollback journal. A process in each
# inserts its own numbers, one per transaction, and reads those of the other. Locks of SQLite are
# those of `fcntl`, which exclude each other over mounts.

insert() {
    echo '.timeout 300000'
    for n in $(seq 1 500); do
        echo "begin immediate; insert into t values ($1, $n); commit;"
        if [ $((n % 50)) = 0 ]; then echo 'select count(*) > 0 from t;'; fi
    done
}

# Writes as two processes, each in its mount, and checks the database in both.
both() {
    sqlite3 -bail "$POINT/$1" "pragma journal_mode=$2;
        create table t (who, n, primary key (who, n));"
    insert 1 | sqlite3 -bail "$POINT/$1" > "$SCRATCH/one" & one=$!
    insert 2 | sqlite3 -bail "$OTHER/$1" > "$SCRATCH/two" & two=$!
    wait $one
    wait $two
    for mount in "$POINT" "$OTHER"; do
        test "$(sqlite3 "$mount/$1" 'select count(*), sum(n) from t')" = '1000|250500'
        test "$(sqlite3 "$mount/$1" 'pragma integrity_check')" = ok
        test "$(sqlite3 "$mount/$1" 'pragma journal_mode')" = "${3:-$2}"
    done
    grep -qx 1 "$SCRATCH/one"
    grep -qx 1 "$SCRATCH/two"
}

# `persist` and `truncate` are modes of one connection: a new one says `delete`.
both deleted delete
both kept persist delete
both cut truncate delete

# A transaction of one mount that was killed is rolled back by the other one.
sqlite3 -bail "$POINT/deleted" > "$SCRATCH/killed" 2>&1 <<'SQL' || true
pragma cache_size=1;
begin immediate;
update t set n = -n;
insert into t select who + 10, n from t;
.shell kill -9 $PPID
SQL
test "$(sqlite3 "$OTHER/deleted" 'select count(*), sum(n) from t')" = '1000|250500'
test "$(sqlite3 "$OTHER/deleted" 'pragma integrity_check')" = ok
