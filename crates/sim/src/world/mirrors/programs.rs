//! The programs of a run with mirrors. Each change of theirs gives something another value, so that
//! a promoted volume says which changes it has.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::{At, FilePos, Files, Opened, Xattr};
use pelago_wire::{
    Context, Cookie, Error, Handle, Level, Name, NewMode, OpenFlags, OpenId, RenameFlags,
    WriteFlags, XattrFlags, xattr,
};

use super::Volume;
use super::reign::{Reign, Thing, Values};
use crate::history::Program;
use crate::programs::random_below;
use crate::turns;

/// The files of a run.
const FILES: usize = 4;
/// The operations of a program.
const OPERATIONS: u64 = 40;
/// The longest time between two of them, in microseconds.
const PAUSE_MICROS: u64 = 400_000;
/// A program of the server's own mount does so many at once, mostly, and pauses for longer: groups
/// are cut between two of them.
const BURST: u64 = 8;
const BURST_PAUSE_MICROS: u64 = 4_000_000;
const CONTEXT: Context = Context::direct(0, 0);

/// A program, with its mount.
pub(super) struct Runner {
    files: Files,
    volume: Volume,
    program: Program,
    reign: Arc<Mutex<Reign>>,
    /// Twice the number in the name of its file, and one more while it has the next name too;
    /// `None` if the program does not know it.
    names: Option<u64>,
    last_value: u64,
    has_bursts: bool,
}

fn at(text: &str) -> At {
    At::new(Handle::ROOT, Name::new(text.as_bytes()).expect("a name"))
}

fn file_name(file: usize) -> String {
    format!("file-{file}")
}

fn own_name(program: Program, number: u64) -> String {
    format!("own-{}-{number}", program.0)
}

/// Makes the files of a run, and sets the level of the volume.
pub(super) fn prepare(files: &Files, volume: Volume) -> Result<(), Error> {
    for file in 0..FILES {
        let created =
            files.create(&CONTEXT, at(&file_name(file)), NewMode::exactly(0o644), OpenFlags::WRITE);
        let open = created.wait()?.open;
        files.flush(&CONTEXT, open, None).wait()?;
        files.release(&CONTEXT, open).wait()?;
    }
    let level = if volume.is_remote { Level::Remote } else { Level::Local };
    let value = level.name().as_bytes().to_vec();
    let level = Xattr { name: xattr::LEVEL.to_vec(), value, kill_setgid: false };
    files.set_xattr(&CONTEXT, Handle::ROOT, level, XattrFlags::Any).wait()
}

/// Returns the values of all things.
pub(super) fn observe(files: &Files, volume: Volume) -> Result<Values, String> {
    let said = |error: Error| format!("{error:?}");
    let mut values = Values::new();
    for file in 0..FILES {
        let entry = files.lookup(&CONTEXT, at(&file_name(file))).wait().map_err(said)?;
        let opened = files.open(&CONTEXT, entry.handle, OpenFlags::READ).wait().map_err(said)?;
        for (thing, offset) in volume.places(file) {
            let bytes = files.read(&CONTEXT, opened.open, offset, 8).wait().map_err(said)?;
            values.insert(thing, bytes.as_bytes().try_into().map_or(0, u64::from_le_bytes));
        }
        files.release(&CONTEXT, opened.open).wait().map_err(said)?;
    }
    let list = files.list(&CONTEXT, Handle::ROOT, Cookie::AFTER_DOT_DOT, None, 1_000, true);
    for entry in list.wait().map_err(said)?.entries {
        let text = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
        let mut parts = text.strip_prefix("own-").into_iter().flat_map(|rest| rest.split('-'));
        let (Some(program), Some(number)) = (parts.next(), parts.next()) else { continue };
        let (Ok(program), Ok(number)) = (program.parse(), number.parse::<u64>()) else { continue };
        let value = values.entry(Thing::Names(Program(program))).or_default();
        *value = match *value {
            0 => 2 * number,
            // Names come in any order.
            one if one.abs_diff(2 * number) == 2 => one.min(2 * number) + 1,
            one => return Err(format!("program {program} has {text}, and {one}")),
        };
    }
    Ok(values)
}

/// Starts a program.
pub(super) fn start(
    files: Files,
    volume: Volume,
    program: Program,
    reign: &Arc<Mutex<Reign>>,
    has_bursts: bool,
) -> JoinHandle<u64> {
    let reign = Arc::clone(reign);
    let names = Some(0);
    let runner = Runner { files, volume, program, reign, names, last_value: 0, has_bursts };
    let thread = thread::Builder::new().name(format!("program-{}", program.0));
    thread.spawn(move || runner.run()).expect("a thread")
}

impl Runner {
    /// Returns the number of operations that have failed.
    fn run(mut self) -> u64 {
        let mut failed = 0;
        for _ in 0..OPERATIONS {
            self.pause();
            let (what, result) = match turns::random(8) {
                0..=2 => ("writes", self.write()),
                3 | 4 => ("reads", self.read()),
                _ => ("changes its names", self.change_names()),
            };
            turns::tell(format_args!("program {} {what}: {result:?}", self.program.0));
            failed += u64::from(result.is_err());
        }
        failed
    }

    fn pause(&self) {
        let most = match self.has_bursts {
            true if turns::random(BURST) == 0 => BURST_PAUSE_MICROS,
            true => return,
            false => PAUSE_MICROS,
        };
        thread::sleep(Duration::from_micros(turns::random(most)));
    }

    fn open(&self, file: usize, flags: OpenFlags) -> Result<Opened, Error> {
        let entry = self.files.lookup(&CONTEXT, at(&file_name(file))).wait()?;
        self.files.open(&CONTEXT, entry.handle, flags).wait()
    }

    fn write(&mut self) -> Result<(), Error> {
        let file = random_below(FILES);
        let mut places = self.volume.places(file);
        if turns::random(2) == 0 {
            places.reverse();
        }
        if !places.iter().all(|(thing, _)| self.reign.lock().has_room(*thing, 12)) {
            return Ok(());
        }
        self.last_value += 1;
        let value = self.last_value * 1_000 + self.program.0 as u64;
        let open = self.open(file, OpenFlags::READ_WRITE)?.open;
        let changes: Vec<_> = places.iter().map(|(thing, _)| (*thing, value)).collect();
        let mut written = Ok(());
        for (thing, offset) in places {
            self.reign.lock().begin(thing, value);
            let to = FilePos { open, offset };
            let bytes = value.to_le_bytes();
            let answer = self.files.write(&CONTEXT, to, &bytes, WriteFlags::NONE).wait();
            if let Err(error) = answer {
                written = Err(error);
            }
            if turns::random(3) == 0 {
                thread::sleep(Duration::from_micros(turns::random(150_000)));
            }
        }
        if written.is_ok() && turns::random(3) == 0 {
            written = self.sync(open, &changes);
        }
        let flushed = self.files.flush(&CONTEXT, open, None).wait();
        let result = self.files.release(&CONTEXT, open).wait().and(flushed).and(written);
        if result.is_ok() {
            let mut reign = self.reign.lock();
            changes.iter().for_each(|(thing, value)| reign.end(*thing, *value));
        }
        result
    }

    fn sync(&self, open: OpenId, changes: &[(Thing, u64)]) -> Result<(), Error> {
        let moment = self.reign.lock().moment();
        self.files.fsync(&CONTEXT, open, false).wait()?;
        if self.volume.promises() {
            turns::tell(format_args!("{changes:?} are at the mirror, and all before {moment}"));
            let mut reign = self.reign.lock();
            reign.cover(moment);
            reign.keep(changes);
        }
        Ok(())
    }

    fn read(&self) -> Result<(), Error> {
        let file = random_below(FILES);
        let begun = self.reign.lock().moment();
        let open = self.open(file, OpenFlags::READ)?.open;
        let mut result = Ok(());
        for (thing, offset) in self.volume.places(file) {
            match self.files.read(&CONTEXT, open, offset, 8).wait() {
                Ok(bytes) if self.reign.lock().has_room(thing, 8) => {
                    let value = bytes.as_bytes().try_into().map_or(0, u64::from_le_bytes);
                    self.reign.lock().saw(thing, begun, value);
                }
                Ok(_) => {}
                Err(error) => result = Err(error),
            }
        }
        self.files.release(&CONTEXT, open).wait().and(result)
    }

    /// Gives its file the next name: at once, or by a second name first.
    fn change_names(&mut self) -> Result<(), Error> {
        let thing = Thing::Names(self.program);
        let Some(names) = self.names else { return Ok(()) };
        if !self.reign.lock().has_room(thing, 12) {
            return Ok(());
        }
        let number = names / 2;
        let own = |number| at(&own_name(self.program, number));
        let is_new = names == 0 || (names % 2 == 0 && turns::random(2) == 0);
        let value = match names {
            0 => 2,
            _ if is_new || names % 2 == 1 => names + 1,
            _ => names + 2,
        };
        self.names = None;
        self.reign.lock().begin(thing, value);
        if is_new {
            let mode = NewMode::exactly(0o644);
            let created = self.files.create(&CONTEXT, own(number + 1), mode, OpenFlags::WRITE);
            let open = created.wait()?.open;
            let flushed = self.files.flush(&CONTEXT, open, None).wait();
            self.files.release(&CONTEXT, open).wait().and(flushed)?;
        } else if names % 2 == 1 {
            self.files.unlink(&CONTEXT, own(number)).wait()?;
        } else {
            let renamed =
                self.files.rename(&CONTEXT, own(number), own(number + 1), RenameFlags::default());
            renamed.wait()?;
        }
        self.names = Some(value);
        self.reign.lock().end(thing, value);
        Ok(())
    }
}
