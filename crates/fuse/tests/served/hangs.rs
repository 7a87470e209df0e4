//! Callers that are killed while calls of the file system do not return.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use crate::{Mounted, mounted, until};

/// Threads that read requests (`mounted`).
const THREADS: usize = 2;
/// Programs that close a file: more than there are threads.
const CLOSERS: usize = 5;

/// A program that is killed at the end of a test.
struct Program(Child);

impl Program {
    /// Returns one that has a file open until it is killed.
    fn with_open(path: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "exec 3< \"$1\"; echo open; read end", "sh"]).arg(path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "open\n");
        Self(child)
    }

    /// Returns one that looks a name up.
    fn looking_up(path: &Path) -> Self {
        let mut command = Command::new("stat");
        command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn is_gone(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may be gone.
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Ends the hang also if a test fails: its programs could not be killed else.
struct Hang<'a>(&'a Mounted);

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        self.0.tree.held.free();
    }
}

/// Each thread has one request in its hand, others are not read, and the closes of programs that
/// are killed cannot be taken back.
#[test]
fn killed_callers_are_gone_before_calls_that_hang_return() {
    let Some(mut mounted) = mounted() else { return };
    if mounted.path.ring().is_ok() {
        return println!("skipped: not here: a ring has no thread in reserve (decision 28)");
    }
    mounted.tree.put("file", b"bytes");
    // The kernel does not know it yet.
    mounted.tree.put("other", b"");
    let path = mounted.path("file");
    let closers = (0..CLOSERS).map(|_| Program::with_open(&path));
    let mut programs: Vec<Program> = closers.collect();
    let before = mounted.tree.seen.flushes.load(Ordering::Relaxed);
    let hang = Hang(&mounted);
    for number in 0..2 * THREADS {
        programs.push(Program::looking_up(&mounted.path(&format!("hangs-{number}"))));
    }
    mounted.tree.held.wait_for_hanging(THREADS);
    let mut living = Program::looking_up(&mounted.path("other"));
    programs.iter_mut().for_each(|program| program.0.kill().unwrap());
    for program in &mut programs {
        until(|| program.is_gone());
    }
    assert!(!living.is_gone(), "nothing answers");
    assert_eq!(mounted.tree.held.free(), THREADS, "no call has returned");
    drop(hang);
    // What was read meanwhile is carried out, and nothing that was asked is lost.
    until(|| living.is_gone());
    assert!(living.0.wait().unwrap().success());
    let flushed = || mounted.tree.seen.flushes.load(Ordering::Relaxed) - before;
    until(|| flushed() == CLOSERS as u64);
    assert_eq!(fs::read(&path).unwrap(), b"bytes");
    let absent = fs::metadata(mounted.path("hangs-0")).unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound);
    mounted.tree.held.wait_for_hanging(0);
    drop(programs);
    mounted.end().unwrap();
}
