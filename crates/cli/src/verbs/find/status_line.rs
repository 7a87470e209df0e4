//! The line that says how far a long search is.

use std::io::{self, IsTerminal, Write};
use std::mem;
use std::time::{Duration, Instant};

/// Between two lines, and before the first one.
const REDRAW: Duration = Duration::from_millis(200);

/// The line on standard error, if that is a terminal.
#[derive(Debug)]
pub(super) struct StatusLine {
    is_terminal: bool,
    last: Instant,
    is_drawn: bool,
}

impl StatusLine {
    pub(super) fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { is_terminal, last: Instant::now(), is_drawn: false }
    }

    /// Says how many files were looked at, unless that was said a moment ago.
    pub(super) fn draw(&mut self, examined: u64, found: usize) {
        if self.is_terminal && self.last.elapsed() >= REDRAW {
            self.last = Instant::now();
            self.is_drawn = true;
            let _drawn = write!(io::stderr(), "\r\x1b[K{examined} looked at, {found} found");
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        if mem::take(&mut self.is_drawn) {
            let _cleared = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
