# Two processes write to one SQLite database in WAL mode, whose shared memory is a file. Each
# inserts its own numbers, one per transaction, and reads those of the other.

sqlite3 -bail db 'pragma journal_mode=wal; create table t (who, n, primary key (who, n));'
write() {
    echo '.timeout 120000'
    for n in $(seq 1 1500); do
        echo "begin immediate; insert into t values ($1, $n); commit;"
        if [ $((n % 100)) = 0 ]; then echo 'select count(*) > 0 from t;'; fi
    done
}
write 1 | sqlite3 -bail db > "$SCRATCH/one" & one=$!
write 2 | sqlite3 -bail db > "$SCRATCH/two" & two=$!
wait $one
wait $two
test "$(sqlite3 db 'pragma journal_mode')" = wal
test "$(sqlite3 db 'select count(*), sum(n) from t')" = '3000|2251500'
test "$(sqlite3 db 'pragma integrity_check')" = ok
sqlite3 -bail db 'delete from t where n % 2; vacuum; pragma wal_checkpoint(truncate);'
test "$(sqlite3 db 'select count(*) from t')" = 1500
test "$(sqlite3 db 'pragma integrity_check')" = ok
