//! The progress line of a long search.

use std::io::{self, IsTerminal, Write};
use std::mem;
use std::time::{Duration, Instant};

/// The shortest time between two lines, and before the first one.
const REDRAW: Duration = Duration::from_millis(200);

/// The progress line on standard error, if that is a terminal.
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

    /// Draws the number of examined files, unless the line was drawn a moment ago.
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
