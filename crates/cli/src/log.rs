//! The log: warnings on the terminal, or in the background events of INFO and above in the volume's
//! log file; and, if that is wanted, a line for each slow request.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_trace::{SlowRequest, SlowRequests};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;

/// Bytes above which a log file is truncated when its volume starts.
const LOG_BYTES: u64 = 16 << 20;
/// Bytes of events kept until the log file is known; later events are dropped.
const BUFFER_BYTES: usize = 64 << 10;

/// The environment variable with the level, or with one for each module: `debug`,
/// `pelago_server=trace,info`.
const VARIABLE: &str = "PELAGO_LOG";

/// Receives the events of the background process. Its lock is a leaf.
static SINK: Sink = Sink(Mutex::new(Target::Buffer(Vec::new())));

/// The options of the log.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct LogArgs {
    /// Write a line to the log for each request whose reply takes this many milliseconds or longer
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    log_slow: Option<u64>,
}

/// Begins the log of a process that serves or mounts a volume.
pub(crate) fn begin(args: LogArgs, in_background: bool) {
    let slow = args.log_slow.map(Duration::from_millis);
    let layer = tracing_subscriber::fmt::layer().with_ansi(false);
    match in_background {
        // Nothing is written into a folder before it is known to be a volume: [`to_file`].
        true => init(layer.with_writer(&SINK), levels(LevelFilter::INFO), slow),
        false => init(layer.with_writer(io::stderr), levels(LevelFilter::WARN), slow),
    }
}

/// Sends events to the standard error output.
pub(crate) fn to_terminal() {
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(io::stderr);
    init(layer, levels(LevelFilter::WARN), None);
}

fn init(layer: impl Layer<Registry> + Send + Sync, levels: Targets, slow: Option<Duration>) {
    let registry = tracing_subscriber::registry();
    // Fails only if a logger is set already; that one stays.
    let _set = match slow {
        // One filter for all is cheaper, and leaves the spans of requests unmade.
        None => registry.with(layer).with(levels).try_init(),
        Some(limit) => {
            let spans = Targets::new().with_target(pelago_trace::TARGET, LevelFilter::DEBUG);
            let slow = SlowRequests::new(limit, report).with_filter(spans);
            registry.with(layer.with_filter(levels)).with(slow).try_init()
        }
    };
}

fn report(request: &SlowRequest) {
    let SlowRequest { operation, inode, session, thread, took, waited } = request;
    let milliseconds = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    tracing::warn!(
        operation,
        inode,
        session,
        thread,
        took_ms = milliseconds(took),
        waited_ms = milliseconds(waited),
        "a slow request"
    );
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

/// Writes one event.
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
