//! Where log events go: warnings to the terminal, or everything from INFO to the volume's log file
//! when nobody looks.

use std::fs::File;
use std::io::{self, Write};

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A log file that is larger when a volume comes up is begun anew.
const LOG_BYTES: u64 = 16 << 20;
/// What is kept until the file is known; more is dropped.
const HELD_BYTES: usize = 64 << 10;

/// Names the level, or a level for each module: `debug`, `pelago_server=trace,info`.
const VARIABLE: &str = "PELAGO_LOG";

/// The door between events and the file. Its lock is a leaf.
static SINK: Sink = Sink(Mutex::new(State::Held(Vec::new())));

/// Sends events to the standard error output.
pub(crate) fn to_terminal() {
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(io::stderr);
    let registry = tracing_subscriber::registry().with(layer).with(wanted(LevelFilter::WARN));
    // Only a second call fails, and then the first one holds.
    let _set = registry.try_init();
}

/// Holds events back until [`to_file`] names the file: before it is known whose folder it is,
/// nothing is written there.
pub(crate) fn hold() {
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(&SINK);
    let registry = tracing_subscriber::registry().with(layer).with(wanted(LevelFilter::INFO));
    // Only a second call fails, and then the first one holds.
    let _set = registry.try_init();
}

/// Sends to the log file what was held and what comes. It is open to append.
pub(crate) fn to_file(mut file: File) -> io::Result<File> {
    if file.metadata()?.len() > LOG_BYTES {
        file.set_len(0)?;
    }
    let given = file.try_clone()?;
    let mut state = SINK.0.lock();
    if let State::Held(bytes) = &*state {
        match file.write_all(bytes) {
            // A volume comes up on a full disk, too; what is in it says nothing of it.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            written => written?,
        }
    }
    *state = State::File(file);
    Ok(given)
}

fn wanted(default: LevelFilter) -> Targets {
    let said = std::env::var(VARIABLE).ok();
    said.and_then(|said| said.parse().ok()).unwrap_or_else(|| Targets::new().with_default(default))
}

struct Sink(Mutex<State>);

enum State {
    Held(Vec<u8>),
    File(File),
}

/// One event, written whole.
struct Entry;

impl<'a> MakeWriter<'a> for &'static Sink {
    type Writer = Entry;

    fn make_writer(&'a self) -> Entry {
        Entry
    }
}

impl Write for Entry {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *SINK.0.lock() {
            State::Held(held) if held.len() + bytes.len() > HELD_BYTES => {}
            State::Held(held) => held.extend_from_slice(bytes),
            State::File(file) => file.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
