//! Programs in processes of their own, with memory of their own: Perl, which each Debian has,
//! follows commands line by line.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use super::program::{DEADLINE, until};

/// A program that answers each line with a line; killed on drop.
pub(crate) struct Program {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<String>,
}

impl Program {
    pub(crate) fn perl(script: &str, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        Self::start(Command::new("perl").args(["-e", script]).arg(argument))
    }

    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (said, from) = channel();
        // Ends when the pipe is closed, at either end.
        let listen = move || {
            for line in lines.map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().spawn(listen).unwrap();
        Self { to: child.stdin.take(), child, from }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a command, without waiting for the answer.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends it a command, and waits until it sleeps in a system call to carry it out.
    pub(crate) fn tell_to_wait(&mut self, line: &str) {
        let call = || {
            let call = fs::read_to_string(format!("/proc/{}/syscall", self.child.id())).unwrap();
            call.split(' ').next().and_then(|number| number.trim().parse::<u32>().ok())
        };
        let mut idle = None;
        until("it reads commands", || {
            idle = call();
            idle.is_some()
        });
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
        until("it waits", || call().is_some_and(|call| Some(call) != idle));
        // Only the clock ends this wait: the request of the system call is on its way to the
        // server, where another one may overtake it, and no process reports that it has arrived.
        thread::sleep(Duration::from_millis(50));
    }

    /// Returns its next line.
    pub(crate) fn hear(&self) -> String {
        self.from.recv_timeout(DEADLINE).unwrap()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// Kills it (`kill -9`).
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.to.take());
        // It may have exited already.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Sets and tests locks: `try|wait|test HOW KIND START LENGTH [DESCRIPTOR]`, `open`, `close
/// DESCRIPTOR`, `fill COUNT`; writes and reads: `put TEXT`, `get`. `struct flock` as 64-bit Linux
/// has it; 5 to 7 are `F_GETLK`, `F_SETLK` and `F_SETLKW`, 36 to 38 the same for open file
/// descriptions.
const LOCKS: &str = r#"
$| = 1;
$SIG{USR1} = sub {};
my @files;
sub opened { open(my $file, "+<", $ARGV[0]) or die "open: $!"; push(@files, $file); }
opened();
my %base = (fcntl => 5, ofd => 36);
my %step = (test => 0, try => 1, wait => 2);
my %kinds = (read => 0, write => 1, drop => 2);
my %flocks = (read => 1, write => 2, drop => 8);
my @names = ("read", "write");
sub lock_of { return pack("ssx4qqix4", $_[0], 0, $_[1], $_[2], 0); }
while (my $line = <STDIN>) {
    my ($what, $how, $kind, $start, $length, $file) = split(" ", $line);
    my $done;
    if ($what eq "open") {
        $done = opened();
    } elsif ($what eq "close") {
        $done = close($files[$how]);
    } elsif ($what eq "fill") {
        $done = 1;
        for (my $at = 0; $done && $at < $how; $at++) {
            $done = fcntl($files[0], 6, lock_of(1, 2 * $at, 1));
        }
    } elsif ($what eq "put") {
        $done = sysseek($files[0], 0, 0) && syswrite($files[0], substr($line, 4));
    } elsif ($what eq "get") {
        my $text;
        $done = sysseek($files[0], 0, 0) && defined(sysread($files[0], $text, 100));
    } elsif ($how eq "flock") {
        $done = flock($files[$file // 0], $flocks{$kind} + ($what eq "try" ? 4 : 0));
    } else {
        my $lock = lock_of($kinds{$kind}, $start, $length);
        $done = fcntl($files[$file // 0], $base{$how} + $step{$what}, $lock);
        if ($done && $what eq "test") {
            my ($type, $whence, $from, $bytes, $pid) = unpack("ssx4qqi", $lock);
            print $type == 2 ? "free\n" : "$names[$type] $from $bytes $pid\n";
            next;
        }
    }
    print $done ? "yes\n" : "no, " . ($! + 0) . "\n";
}
"#;

/// Starts a program that locks this file.
pub(crate) fn locker(path: &std::path::Path) -> Program {
    Program::perl(LOCKS, path)
}
