//! A program on one of the machines that follows commands. The test itself opens no file in a
//! mount: each process that it starts would first close the inherited descriptor, and wait for a
//! server that does not answer.

use std::path::Path;

use crate::harness::programs::Program;

/// Answers `yes`, with what was read, or `no` and the number of the error. A load answers `begun`,
/// and at the next line how many rounds it did and which failed.
const HANDS: &str = r#"
use Fcntl qw(:DEFAULT :flock); use Errno;
$| = 1;
my $root = $ARGV[0];
my ($said, %open);
sub path { return "$root/$_[0]"; }
sub opened { my ($name, $how) = @_; return sysopen($open{$name}, path($name), $how, 0644); }
sub put_at {
    my ($name, $at, @words) = @_;
    my $text = "@words";
    sysseek($open{$name}, $at, 0) or return 0;
    return (syswrite($open{$name}, $text) // -1) == length($text);
}
sub add {
    my ($name, @words) = @_;
    my $line = "@words\n";
    return (syswrite($open{$name}, $line) // -1) == length($line);
}
sub get {
    open(my $file, "<", path($_[0])) or return 0;
    local $/;
    $said = <$file>;
    $said =~ s/\n/|/g;
    return close($file);
}
sub get_at {
    my ($name, $at, $length) = @_;
    sysseek($open{$name}, $at, 0) or return 0;
    my $read = sysread($open{$name}, $said, $length);
    $said =~ s/\n/|/g;
    return defined($read);
}
sub list {
    opendir(my $dir, path($_[0])) or return 0;
    $said = join(" ", sort(grep { !/^\.\.?$/ } readdir($dir)));
    return closedir($dir);
}
my %hands = (
    make => sub { opened($_[0], O_RDWR|O_CREAT|O_EXCL) },
    open => sub { opened($_[0], O_RDWR) },
    log => sub { opened($_[0], O_WRONLY|O_CREAT|O_APPEND) },
    close => sub { close(delete($open{$_[0]})) },
    sync => sub { $open{$_[0]}->sync },
    lock => sub { flock($open{$_[0]}, LOCK_EX|LOCK_NB) },
    "lock-wait" => sub { flock($open{$_[0]}, LOCK_EX) },
    unlock => sub { flock($open{$_[0]}, LOCK_UN) },
    add => \&add, "put-at" => \&put_at, get => \&get, "get-at" => \&get_at, list => \&list,
    size => sub { my @found = stat(path($_[0])); $said = $found[7]; return scalar(@found) },
    links => sub { my @found = stat($open{$_[0]}); $said = $found[3]; return scalar(@found) },
    rename => sub { rename(path($_[0]), path($_[1])) },
    remove => sub { unlink(path($_[0])) },
    mkdir => sub { mkdir(path($_[0])) },
    rmdir => sub { rmdir(path($_[0])) },
);
# One round, each step of which would fail, or show, if it were done twice or not at all.
sub round {
    my ($dir, $round, $log) = @_;
    my ($new, $done) = ("$dir/new$round", "$dir/done$round");
    sysopen(my $file, $new, O_WRONLY|O_CREAT|O_EXCL, 0644) or return "create: $!";
    my $bytes = "$round " x (1 + $round * 37 % 4000);
    for (my $at = 0; $at < length($bytes);) {
        my $count = syswrite($file, $bytes, 5000, $at) or return "write: $!";
        $at += $count;
    }
    rename($new, $done) or return "rename: $!";
    close($file) or return "close: $!";
    mkdir($new) or return "mkdir: $!";
    rmdir($new) or return "rmdir: $!";
    my $line = "$round\n";
    (syswrite($log, $line) // -1) == length($line) or return "log: $!";
    if ($round % 3 == 0) { unlink($done) or return "unlink: $!"; }
    return "";
}
sub load {
    my $dir = path($_[0]);
    mkdir($dir) or die("mkdir: $!");
    sysopen(my $log, "$dir/log", O_WRONLY|O_CREAT|O_EXCL|O_APPEND, 0644) or die("log: $!");
    print("begun\n");
    my ($rounds, @failed) = (0);
    my $ready = "";
    vec($ready, fileno(STDIN), 1) = 1;
    while (!select(my $found = $ready, undef, undef, 0)) {
        my $why = round($dir, $rounds, $log);
        push(@failed, "$rounds: $why") if $why;
        $rounds += 1;
    }
    <STDIN>;
    close($log) or die("close: $!");
    print("$rounds rounds; ", join(", ", @failed), "\n");
}
while (my $line = <STDIN>) {
    chomp($line);
    my ($what, @words) = split(" ", $line);
    if ($what eq "load") { load(@words); next; }
    $said = "";
    my $done = $hands{$what}->(@words);
    print($done ? "yes $said\n" : "no " . ($! + 0) . "\n");
}
"#;

/// A program that works in one mount.
pub(crate) struct Hands(Program);

impl Hands {
    pub(crate) fn on(root: &Path) -> Self {
        Self(Program::perl(HANDS, root))
    }

    /// Does what a line says, and returns what was read.
    pub(crate) fn does(&mut self, line: &str) -> String {
        self.tell(line);
        self.heard(line)
    }

    /// Says what to do next, without waiting for it.
    pub(crate) fn tell(&mut self, line: &str) {
        self.0.tell(line);
    }

    /// Returns what was read by what it was told to do.
    pub(crate) fn heard(&mut self, line: &str) -> String {
        let said = self.0.hear();
        let read = said.strip_prefix("yes ");
        read.unwrap_or_else(|| panic!("{line}: {said}")).to_owned()
    }

    /// Does what a line says, and returns what was said, or the error.
    pub(crate) fn tries(&mut self, line: &str) -> Result<String, rustix::io::Errno> {
        let said = self.0.ask(line);
        match said.strip_prefix("no ") {
            Some(errno) => Err(rustix::io::Errno::from_raw_os_error(errno.parse().unwrap())),
            None => Ok(said),
        }
    }

    /// Expects this error of what a line says.
    pub(crate) fn fails(&mut self, line: &str, errno: rustix::io::Errno) {
        assert_eq!(self.0.ask(line), format!("no {}", errno.raw_os_error()), "{line}");
    }

    /// The same, with one of these errors.
    pub(crate) fn fails_by(&mut self, line: &str, errnos: &[rustix::io::Errno]) {
        let said = self.0.ask(line);
        let is_one = errnos.iter().any(|errno| said == format!("no {}", errno.raw_os_error()));
        assert!(is_one, "{line}: {said}");
    }

    /// Works in a new directory until [`Hands::rest`].
    pub(crate) fn work(&mut self, dir: &str) {
        assert_eq!(self.0.ask(&format!("load {dir}")), "begun");
    }

    /// Ends the work. Returns how many rounds it had, and which of them failed, and why.
    pub(crate) fn rest(&mut self) -> (usize, Vec<(usize, String)>) {
        let said = self.0.ask("enough");
        let (rounds, failed) = said.split_once(" rounds; ").unwrap_or_else(|| panic!("{said}"));
        let failed = failed.split(", ").filter(|failed| !failed.is_empty());
        let failed = failed.map(|failed| failed.split_once(": ").unwrap());
        let failed = failed.map(|(round, why)| (round.parse().unwrap(), why.to_owned()));
        (rounds.parse().unwrap(), failed.collect())
    }
}
