//! The ring: requests over io_uring instead of `read` and `writev` (Linux 6.14,
//! `fs/fuse/dev_uring.c`).
//!
//! The kernel has a queue for each processor and puts a request into the queue of the processor on
//! which its caller runs. A thread that is bound to that processor serves the queue, with a
//! scheduling policy that leaves the caller where it is ([`policy`]). So neither a request nor its
//! reply wakes another processor, and one system call sends a reply and waits for the next request.
//!
//! A queue has *slots*, the kernel's ring entries: memory for one request and its reply. A slot is
//! the kernel's from the command that offers it until the completion that says that it has a
//! request, and then ours until the command that sends the reply and offers it again. A request
//! that waits keeps its slot. Linux lets further requests wait for a slot and never gives them to
//! the device, so a queue offers another slot before its last one is in use.
//!
//! FUSE_FORGET, FUSE_INTERRUPT and notices stay on the device. Linux offers the ring only if its
//! parameter `enable_uring` is on, which it is not by default, and wants a queue with a slot for
//! each *possible* processor before it hands out the first request.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::{fs, io};

use rustix::io::Errno;

use crate::device::Device;
use crate::server::Server;

use queue::Queue;
use retries::Retries;
use shared::Shared;
use watch::Watch;

mod commands;
mod layout;
mod memory;
mod nudge;
mod policy;
mod queue;
mod resident;
pub(crate) mod retries;
mod scheduling;
mod shared;
pub(crate) mod slot;
mod system;
mod watch;

/// Limit of queues, one for each processor. With more processors the device is used: each queue
/// takes a thread and the memory of its slots.
const QUEUES: usize = 256;

/// Approximate limit of payload bytes that all queues together hold in memory while requests come.
const RESIDENT_BYTES: usize = 64 << 20;

/// The queues of a connection, which the kernel does not know yet.
#[derive(Debug)]
pub(crate) struct Ring {
    connection: Connection,
    queues: Vec<Queue>,
    /// A queue that leads the kernel back to the device if the others cannot serve: see
    /// [`give_up`].
    spare: Queue,
}

/// The queues of a connection that serve requests.
#[derive(Debug)]
pub(crate) struct Serving {
    connection: Connection,
    queues: Vec<Arc<Shared>>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that help those of the queues.
    helpers: Vec<JoinHandle<()>>,
}

/// The payloads of a queue.
#[derive(Debug, Clone, Copy)]
struct Payloads {
    /// Bytes of each.
    bytes: usize,
    /// Limit of payload bytes of the queue that stay in memory while requests come.
    resident: usize,
}

/// The state that all queues share.
#[derive(Debug, Clone)]
struct Connection {
    device: Arc<Device>,
    retries: Arc<Retries>,
    /// `None` if threads of this process may not change their scheduling policy.
    watch: Option<Arc<Watch>>,
}

/// Use of io_uring for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingUse {
    /// Never: requests come by the device.
    Never,
    /// Used if the kernel offers it and callers then stay on their processors, which needs the
    /// right to change scheduling policies. Without that the ring is no faster than the device.
    IfFaster,
    /// Used if the kernel offers it.
    IfOffered,
}

/// The reason why there is no ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRing {
    /// It is not wanted.
    #[error("not wanted")]
    NotWanted,
    /// The kernel does not offer it.
    #[error("the kernel has no FUSE over io_uring; Linux 6.14 and later can")]
    NotOffered,
    /// The kernel would offer it, but that is switched off.
    #[error("it is off; `echo Y > {SWITCH}` as root, then mount again")]
    SwitchedOff,
    /// It would be no faster than the device.
    #[error("needs root, or an RLIMIT_NICE of 20: its threads change their scheduling policy")]
    NoRight,
    /// The processors cannot have a queue each.
    #[error("{0} possible processors, of which each would have a queue")]
    Processors(usize),
    /// The system refuses a ring, its memory, or its thread.
    #[error("the system refuses it: {0}")]
    Refused(Errno),
}

/// The file by which FUSE over io_uring is switched on; old kernels have none.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl NoRing {
    /// Returns why the kernel does not offer a ring.
    pub(crate) fn not_offered() -> Self {
        match fs::read_to_string(SWITCH) {
            Ok(switch) if switch.trim_end() == "N" => Self::SwitchedOff,
            _ => Self::NotOffered,
        }
    }
}

impl Ring {
    /// Makes a queue for each processor. The kernel gets them only in [`Ring::serve`]. Once the
    /// ring is agreed on, Linux holds all requests until it has all queues; a queue that could not
    /// be made then would hang the mount. So all that can fail is done here, before the agreement.
    ///
    /// `payload_bytes`: limit of the bytes of a request or reply after its header.
    ///
    /// # Errors
    /// [`NoRing`]; the device serves then.
    pub(crate) fn new(
        device: &Arc<Device>,
        payload_bytes: usize,
        wanted: RingUse,
    ) -> Result<Self, NoRing> {
        let processors = possible_processors().map_err(NoRing::Refused)?;
        let count = u16::try_from(processors).ok().filter(|_| processors <= QUEUES);
        let count = count.ok_or(NoRing::Processors(processors))?;
        let watch: Option<Arc<Watch>> = system::may_change_policy().then(Arc::default);
        if watch.is_none() && wanted == RingUse::IfFaster {
            return Err(NoRing::NoRight);
        }
        // Once the ring is agreed on, only a slot that the kernel refuses leads back to the device,
        // and to offer one takes all system calls of a ring.
        queue::try_calls().map_err(|error| NoRing::Refused(errno(&error)))?;
        let connection = Connection { device: Arc::clone(device), retries: Arc::default(), watch };
        Self::with_queues(connection, count, payload_bytes)
    }

    fn with_queues(
        connection: Connection,
        count: u16,
        payload_bytes: usize,
    ) -> Result<Self, NoRing> {
        let resident = RESIDENT_BYTES / usize::from(count.max(1));
        let payloads = Payloads { bytes: payload_bytes, resident };
        let queue = |number| Queue::new(number, &connection, payloads);
        let short = Payloads { bytes: SHORT_PAYLOAD_BYTES, resident: 0 };
        let made = (0..count).map(queue).collect::<io::Result<_>>();
        let made = made.and_then(|queues| Ok((queues, Queue::new(0, &connection, short)?)));
        let (queues, spare) = made.map_err(|error| NoRing::Refused(errno(&error)))?;
        Ok(Self { connection, queues, spare })
    }

    /// Starts the threads, which offer their slots to the kernel.
    ///
    /// # Errors
    /// [`NoRing`]; the device serves then.
    pub(crate) fn serve(self, server: &Arc<Server>) -> Result<Serving, NoRing> {
        let Self { connection, queues, spare } = self;
        let threads = Vec::new();
        let helpers = Vec::new();
        let mut serving = Serving { connection, queues: Vec::new(), threads, helpers };
        match serving.start(queues, server) {
            Ok(()) => Ok(serving),
            Err(error) => {
                serving.end();
                give_up(spare);
                Err(NoRing::Refused(errno(&error)))
            }
        }
    }
}

impl Serving {
    /// Starts all threads, and waits until each has offered its slots.
    fn start(&mut self, queues: Vec<Queue>, server: &Arc<Server>) -> io::Result<()> {
        let retries = Arc::clone(&self.connection.retries);
        let asked = Arc::clone(server);
        let retry = move || retries.run(|request| asked.interrupt(request));
        self.helpers.push(spawn("fuse-retries", retry)?);
        if let Some(watch) = self.connection.watch.clone() {
            self.helpers.push(spawn("fuse-ring-watch", move || watch.run())?);
        }
        let (tell, told) = mpsc::channel();
        for queue in queues {
            self.queues.push(Arc::clone(queue.shared()));
            let tell = tell.clone();
            let server = Arc::clone(server);
            let name = format!("fuse-ring-{}", queue.number());
            let serve = move || queue.serve(&server, move |offered| drop(tell.send(offered)));
            self.threads.push(spawn(&name, serve)?);
        }
        drop(tell);
        told.iter().collect()
    }

    /// Returns the interrupts that are tried again.
    pub(crate) const fn retries(&self) -> &Arc<Retries> {
        &self.connection.retries
    }

    /// Ends the threads, and waits until they have ended. A request that is still being carried out
    /// keeps the memory of its slot, so that its late reply writes to no freed memory.
    pub(crate) fn end(self) {
        let Self { connection, queues, threads, helpers } = self;
        queues.iter().for_each(|queue| queue.end());
        join(threads);
        // The threads of the queues are watched until they have ended.
        connection.retries.end();
        connection.watch.iter().for_each(|watch| watch.end());
        join(helpers);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(run)
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the ring panicked");
        }
    }
}

/// Makes the kernel go back to the device, also if it waits for queues whose threads did not start.
/// Linux does so once it refuses a slot, for example one with a payload that is too short. The
/// queue with such slots was made before: the failure of the other queues need not affect it.
fn give_up(mut spare: Queue) {
    match spare.begin() {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {}
        other => tracing::error!(?other, "the kernel may wait for a ring that there is not"),
    }
}

/// A payload that the kernel refuses.
const SHORT_PAYLOAD_BYTES: usize = 4096;

/// Returns how many processors there may ever be: the kernel wants a queue for each.
fn possible_processors() -> Result<usize, Errno> {
    let listed = fs::read_to_string("/sys/devices/system/cpu/possible");
    let listed = listed.map_err(|error| errno(&error))?;
    listed_processors(&listed).ok_or(Errno::INVAL)
}

/// Returns the number of processors in a list as `0-3`; `None` if it has gaps.
fn listed_processors(list: &str) -> Option<usize> {
    let (first, last) = match list.trim_end().split_once('-') {
        Some(range) => range,
        None => ("0", list.trim_end()),
    };
    let last: usize = last.parse().ok()?;
    (first == "0").then_some(last + 1)
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// Limit of the memory of a queue before its first request (docs/limits.md).
    const QUEUE_BYTES: u64 = 256 << 10;

    /// Returns the bytes of this process that are in memory.
    fn resident_bytes() -> u64 {
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[test]
    fn queues_of_many_processors_take_little_memory() {
        let device = Arc::new(Device::new(File::open("/dev/null").unwrap().into()));
        let connection = Connection { device, retries: Arc::default(), watch: None };
        let before = resident_bytes();
        match Ring::with_queues(connection, 128, 1 << 20) {
            Ok(ring) => {
                let used = resident_bytes().saturating_sub(before);
                assert!(used <= 128 * QUEUE_BYTES, "{used} bytes");
                assert!(used > 128 * 32 * 4096 / 2, "{used} bytes: is this the measure?");
                drop(ring);
                assert!(resident_bytes() < before + (16 << 20), "a ring gives its memory back");
            }
            Err(no_ring) => println!("skipped: not here: {no_ring}"),
        }
    }

    #[test]
    fn possible_processors_are_counted() {
        assert_eq!(listed_processors("0\n"), Some(1));
        assert_eq!(listed_processors("0-127\n"), Some(128));
        assert_eq!(listed_processors("0-3,8-11\n"), None);
        assert_eq!(listed_processors("1-3\n"), None);
        assert_eq!(listed_processors(""), None);
    }
}
