//! Direct writes beside reads through the page cache.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::mapping::Mapping;
use super::{Mounted, mounted};
use crate::memory::spread;

const DEADLINE: Duration = Duration::from_secs(60);
const BYTES: usize = 3 * 4096;

/// Writes `BYTES` of the letter on each line of its input by an asynchronous direct write. The
/// system calls are io_setup 206, io_getevents 208, io_submit 209 of x86_64; 040000 is `O_DIRECT`.
const PERL: &str = r#"
$| = 1;
sysopen(my $file, $ARGV[0], 2 | 040000) or die "open: $!";
my $context = pack("Q", 0);
syscall(206, 8, $context) == 0 or die "io_setup: $!";
my $id = unpack("Q", $context);
sub address { unpack("Q", pack("P", $_[0])) }
print "open\n";
while (my $letter = <STDIN>) {
    chomp $letter;
    my $data = $letter x $ARGV[1];
    my $block = pack("Q L L S s L Q Q q Q L L",
        0, 0, 0, 1, 0, fileno($file), address($data), $ARGV[1], 0, 0, 0, 0);
    my $blocks = pack("Q", address($block));
    syscall(209, $id, 1, $blocks) == 1 or die "io_submit: $!";
    print "submitted\n";
    my $event = "\0" x 32;
    syscall(208, $id, 1, 1, $event, 0) == 1 or die "io_getevents: $!";
    my ($data_, $object, $result, $second) = unpack("Q Q q q", $event);
    print "wrote $result\n";
}
"#;

/// A program that keeps a file open for direct writes.
struct Writer {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Writer {
    fn of(path: &Path) -> Self {
        let mut perl = Command::new("perl");
        perl.args(["-e", PERL]).arg(path).arg(BYTES.to_string());
        let mut child = perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let mut writer = Self { child, says };
        assert_eq!(writer.hear(), "open");
        writer
    }

    fn submit(&mut self, letter: char) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{letter}").unwrap();
        assert_eq!(self.hear(), "submitted");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn letters(file: &File) -> String {
    let mut bytes = [0; BYTES];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "all of one write");
    char::from(bytes[0]).to_string()
}

fn until(mounted: &Mounted, what: &str, mut reached: impl FnMut(&Mounted) -> bool) {
    let start = Instant::now();
    while !reached(mounted) {
        assert!(start.elapsed() < DEADLINE, "{what}");
        thread::yield_now();
    }
}

/// Pages that are read during an asynchronous direct write do not stay: after the write, readers
/// get the new bytes, and a mapping, which sends no request, shows them soon.
#[test]
fn pages_read_beside_an_asynchronous_direct_write_are_dropped() {
    let Some(mounted) = mounted(spread) else { return };
    if let Some(reason) = Mapping::cannot() {
        println!("skipped: {reason}");
        return;
    }
    let path = mounted.path("file");
    fs::write(&path, [b'a'; BYTES]).unwrap();
    let reader = File::open(&path).unwrap();
    let mut mapping = Mapping::of(&path, BYTES);
    let mut writer = Writer::of(&path);
    let mut before = "a".to_owned();
    for letter in "bcdefgh".chars() {
        mounted.memory.holds_writes.store(true, Ordering::SeqCst);
        writer.submit(letter);
        until(&mounted, "a write arrives", |mounted| mounted.memory.held_requests() == 1);
        assert_eq!(letters(&reader), before, "not written yet");
        assert_eq!(mapping.get(5000, 1), before, "not written yet");
        mounted.memory.let_requests_go();
        assert_eq!(writer.hear(), format!("wrote {BYTES}"));
        before = letter.to_string();
        until(&mounted, "the mapping follows", |_| mapping.get(5000, 1) == before);
        assert_eq!(letters(&reader), before);
        assert_eq!(letters(&File::open(&path).unwrap()), before);
    }
}
