//! Writes in many places of a file that no other program uses.

use std::thread;
use std::time::Duration;

use pelago_client::FilePos;
use pelago_wire::{Code, Error, NewMode, OpenFlags, OpenId, WriteFlags};

use super::{CONTEXT, Runner, name};
use crate::turns;

/// Places that a program writes: more than a mount sends at a time.
const PLACES: usize = 40;

impl Runner {
    /// Writes a file of its own in many places, some of them again, and reads it.
    pub(super) fn scatter(&mut self) {
        let result = self.open_own().and_then(|open| {
            let scattered = self.scatter_values(open);
            self.close(open).and(scattered)
        });
        self.note("scattered writes", result);
    }

    /// Opens the file of the program, or makes it.
    fn open_own(&self) -> Result<OpenId, Error> {
        let text = format!("of-program-{}", self.plan.program.0);
        let dir = self.plan.program.0;
        match self.open(dir, &text, OpenFlags::READ_WRITE) {
            Err(Error { code: Code::NotFound }) => {
                let mode = NewMode::exactly(0o644);
                let flags = OpenFlags::READ_WRITE;
                let at = name(self.plan.dirs.of(dir), &text);
                let created = self.files.create(&CONTEXT, at, mode, flags).wait()?;
                Ok(created.open)
            }
            opened => Ok(opened?.open),
        }
    }

    fn scatter_values(&mut self, open: OpenId) -> Result<(), Error> {
        let mut values = vec![0; PLACES];
        let at = |place: usize| FilePos { open, offset: 16 * place as u64 };
        for number in 0..PLACES + PLACES / 4 {
            let is_first = number < PLACES;
            let place = if is_first { number } else { random_place() };
            values[place] = self.value();
            let bytes = values[place].to_le_bytes();
            self.files.write(&CONTEXT, at(place), &bytes, WriteFlags::NONE).wait()?;
            if !is_first {
                thread::sleep(Duration::from_micros(turns::random(40_000)));
            }
        }
        self.files.fsync(&CONTEXT, open, false).wait()?;
        for (place, value) in values.into_iter().enumerate() {
            let read = self.files.read(&CONTEXT, open, at(place).offset, 8).wait()?;
            let found = read.as_bytes().try_into().map_or(0, u64::from_le_bytes);
            if found != value {
                let program = self.plan.program;
                let what = format!("{program:?} reads {found} in its own file, not {value}");
                self.history.lock().wrong.push(what);
            }
        }
        Ok(())
    }
}

fn random_place() -> usize {
    usize::try_from(turns::random(PLACES as u64)).unwrap_or(0)
}
