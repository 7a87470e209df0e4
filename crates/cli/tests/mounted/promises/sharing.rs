//! Visibility of changes between programs on one mount.

use std::fs::{self, File};

use crate::harness::programs::Program;
use crate::mounted::beside::on_both;

/// Takes and drops locks. `struct flock` as 64-bit Linux has it: kind, from where, start, length,
/// process. 6 and 7 are `F_SETLK` and `F_SETLKW`, 37 and 38 the same for open file descriptions.
const LOCK: &str = r#"
$| = 1;
open(my $file, "+<", $ARGV[0]) or die "open: $!";
my %commands = (fcntl => [6, 7], ofd => [37, 38]);
my %kinds = (read => 0, write => 1, drop => 2);
while (my $line = <STDIN>) {
    my ($how, $kind, $start, $wait) = split(" ", $line);
    my $done;
    if ($how eq "flock") {
        my %flags = (read => 1, write => 2, drop => 8);
        $done = flock($file, $flags{$kind} | ($wait ? 0 : 4));
    } else {
        my $lock = pack("ssx4qqix4", $kinds{$kind}, 0, $start, 10, 0);
        $done = fcntl($file, $commands{$how}[$wait], $lock);
    }
    print $done ? "yes\n" : "no, " . ($! + 0) . "\n";
}
"#;

/// `EAGAIN`.
const TAKEN: &str = "no, 11";

#[test]
fn flock_fcntl_locks() {
    if !cfg!(target_pointer_width = "64") {
        println!("skipped: not here: the lock of a range looks otherwise");
        return;
    }
    on_both(|root| {
        let path = root.join("lock");
        fs::write(&path, "x").unwrap();
        for how in ["flock", "fcntl", "ofd"] {
            let mut one = Program::perl(LOCK, &path);
            let mut other = Program::perl(LOCK, &path);
            assert_eq!(one.ask(&format!("{how} read 0 0")), "yes");
            assert_eq!(other.ask(&format!("{how} read 0 0")), "yes");
            assert_eq!(other.ask(&format!("{how} write 0 0")), TAKEN, "{how}");
            // `flock` has released its previous lock.
            other.ask(&format!("{how} drop 0 0"));
            assert_eq!(one.ask(&format!("{how} write 0 0")), "yes");
            assert_eq!(other.ask(&format!("{how} read 5 0")), TAKEN, "{how}");
            if how != "flock" {
                assert_eq!(other.ask(&format!("{how} write 10 0")), "yes", "{how}");
            }
            wait_for_it(how, &mut one, &mut other, false);
            assert_eq!(other.ask(&format!("{how} drop 5 0")), "yes");
            // A lock ends with its process.
            assert_eq!(one.ask(&format!("{how} write 0 0")), "yes");
            wait_for_it(how, &mut one, &mut other, true);
        }
    });
}

/// `other` waits for a lock of `one`, until that releases it or is killed.
fn wait_for_it(how: &str, one: &mut Program, other: &mut Program, kill: bool) {
    other.tell_to_wait(&format!("{how} read 5 1"));
    match kill {
        true => one.kill(),
        false => assert_eq!(one.ask(&format!("{how} drop 0 0")), "yes"),
    }
    assert_eq!(other.hear(), "yes", "{how}");
}

/// Stores into a mapping and loads from it, by `read` and `write` of its memory: 9 is `mmap` (read
/// and write, shared), 0 `read`, 1 `write`, 26 `msync` (and wait).
const MAP: &str = r#"
$| = 1;
open(my $file, "+<", $ARGV[0]) or die "open: $!";
my $size = -s $file;
my $at = syscall(9, 0, $size, 3, 1, fileno($file), 0);
die "mmap: $!" if $at == -1;
close($file);
pipe(my $from, my $to) or die;
while (my $line = <STDIN>) {
    my ($what, $where, $text) = split(" ", $line);
    if ($what eq "store") {
        syswrite($to, $text) or die;
        syscall(0, fileno($from), $at + $where, length($text)) == length($text) or die "read: $!";
        print "stored\n";
    } elsif ($what eq "load") {
        syscall(1, fileno($to), $at + $where, $text + 0) == $text or die "write: $!";
        sysread($from, my $bytes, $text) == $text or die;
        print "$bytes\n";
    } else {
        print syscall(26, $at, $size, 4) == 0 ? "synced\n" : "no, $!\n";
    }
}
"#;

/// Two programs map one file, and others read and write it.
#[test]
fn mmap() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: not here: the numbers of the system calls are those of x86_64");
        return;
    }
    on_both(|root| {
        for size in [1000_usize, 200_000] {
            let path = root.join(format!("f{size}"));
            fs::write(&path, vec![b'.'; size]).unwrap();
            let mut one = Program::perl(MAP, &path);
            let mut other = Program::perl(MAP, &path);
            let place = size - 100;
            assert_eq!(one.ask(&format!("store {place} hello")), "stored");
            assert_eq!(other.ask(&format!("load {place} 5")), "hello");
            assert_eq!(other.ask(&format!("store {} HELLO", place + 5)), "stored");
            assert_eq!(one.ask(&format!("load {place} 10")), "helloHELLO");
            assert_eq!(one.ask("sync"), "synced");
            let mut expected = vec![b'.'; size];
            expected[place..place + 10].copy_from_slice(b"helloHELLO");
            assert!(fs::read(&path).unwrap() == expected);
            // Writes are visible through the mapping.
            let file = File::options().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"from a write", 10).unwrap();
            drop(file);
            assert_eq!(other.ask("load 15 7"), "a write");
            // A mapping outlives its descriptor and the name of its file.
            fs::remove_file(&path).unwrap();
            assert_eq!(one.ask("store 10 bye"), "stored");
            assert_eq!(other.ask("load 10 3"), "bye");
            assert_eq!(other.ask("sync"), "synced");
        }
    });
}
