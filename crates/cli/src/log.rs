//! The destination of log events: the terminal for warnings, or in the background the volume's log
//! file for events of INFO and above.

use std::fs::File;
use std::io::{self, Write};

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Bytes above which a log file is truncated when its volume starts.
const LOG_BYTES: u64 = 16 << 20;
/// The limit for events that are buffered until the log file is known; later events are dropped.
const BUFFER_BYTES: usize = 64 << 10;

/// The environment variable with the level, or with a level for each module, as in `debug` and
/// `pelago_server=trace,info`.
const VARIABLE: &str = "PELAGO_LOG";

/// Receives the events of the background process. Its lock is a leaf.
static SINK: Sink = Sink(Mutex::new(Target::Buffer(Vec::new())));

/// Sends events to the standard error output.
pub(crate) fn to_terminal() {
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(io::stderr);
    let registry = tracing_subscriber::registry().with(layer).with(levels(LevelFilter::WARN));
    // Fails only if a logger is set already; that one stays.
    let _set = registry.try_init();
}

/// Buffers events until [`to_file`] is called, so that nothing is written into a folder before it
/// is known to be a volume.
pub(crate) fn to_buffer() {
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(&SINK);
    let registry = tracing_subscriber::registry().with(layer).with(levels(LevelFilter::INFO));
    // Fails only if a logger is set already; that one stays.
    let _set = registry.try_init();
}

/// Sends buffered and further events to the log file, which is open for appending. Returns a second
/// descriptor of it.
pub(crate) fn to_file(mut file: File) -> io::Result<File> {
    if file.metadata()?.len() > LOG_BYTES {
        file.set_len(0)?;
    }
    let copy = file.try_clone()?;
    let mut target = SINK.0.lock();
    if let Target::Buffer(bytes) = &*target {
        match file.write_all(bytes) {
            // A full disk must not keep a volume from starting.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            written => written?,
        }
    }
    *target = Target::File(file);
    Ok(copy)
}

fn levels(default: LevelFilter) -> Targets {
    let value = std::env::var(VARIABLE).ok();
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| Targets::new().with_default(default))
}

struct Sink(Mutex<Target>);

enum Target {
    Buffer(Vec<u8>),
    File(File),
}

/// The writer of one event.
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
            Target::Buffer(buffer) if buffer.len() + bytes.len() > BUFFER_BYTES => {}
            Target::Buffer(buffer) => buffer.extend_from_slice(bytes),
            Target::File(file) => file.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
