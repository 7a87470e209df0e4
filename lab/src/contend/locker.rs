//! A program that locks parts of a file again and again, and reports the times of its calls.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::held::Held;

/// The program, in Perl. It takes a file, a flag and a seed. It locks a part of the file, reads and
/// writes under the lock, and releases it by an unlock, through another descriptor too, or by a
/// close. While the flag exists, it computes under the lock. It prints lines for [`Held::parse`],
/// `computes`, or `failed STEP ERRNO`, and ends with its input.
///
/// `struct flock` as 64-bit Linux has it; 6 is `F_SETLK`, 7 `F_SETLKW`.
const PROGRAM: &str = r#"
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);
# A close that fails tells of a lost lock.
no warnings "io";
my ($path, $flag, $seed) = @ARGV;
$| = 1;
srand($seed);
my %kinds = (read => 0, write => 1, drop => 2);
my $input = "";
vec($input, fileno(STDIN), 1) = 1;
sub now { return int(clock_gettime(CLOCK_MONOTONIC) * 1e6); }
sub lock_of { return pack("ssx4qqix4", $kinds{$_[0]}, 0, $_[1], $_[2] - $_[1] + 1, 0); }
sub is_over { my $ready = $input; return select($ready, undef, undef, 0) > 0; }
sub session {
    open(my $file, "+<", $path) or return "failed open " . ($! + 0);
    my $kind = rand(4) < 1 ? "read" : "write";
    my $start = int(rand(3));
    my $end = $start + int(rand(3));
    fcntl($file, 7, lock_of($kind, $start, $end)) or return "failed lock " . ($! + 0);
    my $from = now();
    my $until = $from;
    my $said = sub { print "$kind $start $end $from $until $_[0]\n"; };
    my $steps = int(rand(4));
    my $computed = 0;
    for (my $step = 0; $step <= $steps; $step++) {
        if (!$computed && -e $flag) {
            print "computes\n";
            $computed = 1;
            sleep(0.01) while (-e $flag && !is_over());
        } else {
            sleep(rand(0.06));
        }
        my $called = now();
        my $text;
        my $done = rand(2) < 1
            ? sysseek($file, 0, 0) && defined(sysread($file, $text, 8))
            : sysseek($file, 0, 0) && syswrite($file, "bytes");
        if (!$done) { $said->("E" . ($! + 0)); return ""; }
        $until = $called;
        last if $computed;
    }
    my $how = int(rand(4));
    my $called = now();
    my $other;
    if ($how == 0) {
        my $done = close($file);
        $until = $called if $done;
        $said->($done ? "close" : "E" . ($! + 0));
        return "";
    }
    my $by = $file;
    if ($how == 1 && open($other, "+<", $path)) { $by = $other; $called = now(); }
    my $done = fcntl($by, 6, lock_of("drop", $start, $end));
    $until = $called if $done;
    $said->($done ? "unlock" : "E" . ($! + 0));
    return "";
}
until (is_over()) {
    my $failed = session();
    print "$failed\n" if $failed ne "";
    sleep($failed eq "" ? rand(0.05) : 0.2);
}
"#;

/// The reports of the programs.
#[derive(Default)]
pub(super) struct Said {
    pub(super) held: Vec<Held>,
    /// How often a program has computed under a lock.
    pub(super) computes: u64,
    /// The number of failed calls.
    pub(super) failed: u64,
    pub(super) unknown: Vec<String>,
}

/// A program that runs.
pub(super) struct Locker {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

impl Locker {
    /// Starts the program of this number on the file of this number.
    pub(super) fn start(
        program: usize,
        file: usize,
        path: &Path,
        flag: &Path,
        said: &Arc<Mutex<Said>>,
    ) -> Result<Self, String> {
        let mut perl = Command::new("perl");
        perl.args(["-e", PROGRAM]).arg(path).arg(flag).arg(program.to_string());
        let spawned = perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|why| format!("perl: {why}"))?;
        let output = child.stdout.take().ok_or("perl has no output")?;
        let said = Arc::clone(said);
        let read = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                said.lock().unwrap_or_else(PoisonError::into_inner).record(program, file, &line);
            }
        };
        let reader = thread::Builder::new().name(format!("said-{program}")).spawn(read);
        let reader = reader.map_err(|why| format!("no thread: {why}"))?;
        Ok(Self { child, reader: Some(reader) })
    }

    /// Tells the program to end, which it does after its present lock.
    pub(super) fn tell_to_end(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for the end of the program and of its output.
    pub(super) fn finish(mut self) -> Result<(), String> {
        self.tell_to_end();
        let ended = self.child.wait().map_err(|why| format!("perl: {why}"))?;
        if let Some(reader) = self.reader.take() {
            reader.join().map_err(|_| "a reader panicked".to_owned())?;
        }
        if ended.success() { Ok(()) } else { Err(format!("perl: {ended}")) }
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        // It may have ended already; one that waits for a mount ends with that.
        let _gone = self.child.kill();
    }
}

impl Said {
    fn record(&mut self, program: usize, file: usize, line: &str) {
        if line == "computes" {
            self.computes += 1;
        } else if line.starts_with("failed ") {
            self.failed += 1;
        } else if let Some(held) = Held::parse(program, file, line) {
            self.failed += u64::from(held.last.starts_with('E'));
            self.held.push(held);
        } else {
            self.unknown.push(line.to_owned());
        }
    }
}
