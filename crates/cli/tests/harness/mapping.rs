//! A program that maps a file and follows commands. It is written in Perl, which each Debian has; a
//! `read` from a pipe into the mapping is a store.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A shared mapping of a file and its descriptor, in a process of its own.
pub(crate) struct Mapping {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// read 0, write 1, mmap 9 (read and write 3, shared 1), msync 26 (sync 4).
const PERL: &str = r#"
$| = 1;
open(my $file, "+<", $ARGV[0]) or die "open: $!";
my $bytes = $ARGV[1] + 0;
my $at = syscall(9, 0, $bytes, 3, 1, fileno($file), 0);
die "mmap: $!" if $at == -1;
pipe(my $from, my $to) or die;
print "mapped\n";
while (my $line = <STDIN>) {
    chomp $line;
    my ($verb, $offset, $text) = split / /, $line, 3;
    my $size = length($text // "");
    if ($verb eq "close") {
        close($file) or die "close: $!";
    } elsif ($verb eq "put") {
        syswrite($to, $text) == $size or die;
        syscall(0, fileno($from), $at + $offset, $size) == $size or die "put: $!";
    } elsif ($verb eq "get") {
        syscall(1, fileno($to), $at + $offset, $text + 0) == $text or die "get: $!";
        sysread($from, my $got, $text + 0) == $text or die;
        print "$got\n";
        next;
    } elsif ($verb eq "write") {
        sysseek($file, $offset, 0) or die "seek: $!";
        syswrite($file, $text) == $size or die "write: $!";
    } elsif ($verb eq "sync") {
        syscall(26, $at, $bytes, 4) == 0 or die "msync: $!";
    } else {
        die $verb;
    }
    print "done\n";
}
"#;

impl Mapping {
    /// Returns the reason to skip a test that needs a mapping, if there is one.
    pub(crate) fn cannot() -> Option<&'static str> {
        let known = cfg!(target_arch = "x86_64");
        (!known).then_some("not here: the numbers of the system calls are those of x86_64")
    }

    /// Maps this many bytes of a file.
    pub(crate) fn of(path: &Path, bytes: usize) -> Self {
        let mut perl = Command::new("perl");
        perl.args(["-e", PERL]).arg(path).arg(bytes.to_string());
        let mut child = perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let from = child.stdout.take().unwrap();
        let mut mapping = Self { child, to, from: BufReader::new(from) };
        assert_eq!(mapping.hear(), "mapped");
        mapping
    }

    /// Closes the descriptor; the mapping stays.
    pub(crate) fn close(&mut self) {
        assert_eq!(self.ask("close"), "done");
    }

    /// Stores into the mapping.
    pub(crate) fn put(&mut self, offset: usize, text: &str) {
        assert_eq!(self.ask(&format!("put {offset} {text}")), "done");
    }

    /// Loads from the mapping.
    pub(crate) fn get(&mut self, offset: usize, bytes: usize) -> String {
        self.ask(&format!("get {offset} {bytes}"))
    }

    /// Writes through the descriptor.
    pub(crate) fn write(&mut self, offset: usize, text: &str) {
        assert_eq!(self.ask(&format!("write {offset} {text}")), "done");
    }

    /// `msync`.
    pub(crate) fn sync(&mut self) {
        assert_eq!(self.ask("sync"), "done");
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}").unwrap();
        self.hear()
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "perl ended: {line:?}");
        line.trim_end().to_owned()
    }
}

impl Drop for Mapping {
    /// The mapping ends with the process.
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}
