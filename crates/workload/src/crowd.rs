//! A crowd: many clients that download a file over HTTP, or several, each at a rate of its own, on
//! one thread.
//!
//! A client begins at a seeded time and takes a whole file, in order or as blocks in any order.
//! Each byte is counted once; some clients, the samples, also compare hashes. A sample of the same
//! file has the same root in both forms.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use pelago_random::Random;

use client::Client;
pub use failure::DownloadFailure;
pub use outcome::{CrowdOutcome, TimedDownload};
pub use root::{RootHasher, hex};

mod client;
mod content;
mod failure;
mod outcome;
mod pace;
mod response;
mod root;

/// The pause between two looks at all connections.
const TICK: Duration = Duration::from_millis(10);
/// Bytes of the buffer into which all connections are read.
const BUFFER_BYTES: usize = 256 << 10;

/// Clients of one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrowdClass {
    /// Bytes in a second; `None` for no limit.
    pub rate: Option<f64>,
    /// The number of clients.
    pub clients: usize,
}

/// The form in which a client requests a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownloadForm {
    /// The bytes in their order.
    Plain,
    /// Blocks in any order.
    Blocks,
}

/// The downloads of a crowd: the files, the rates, and the times at which they begin.
#[derive(Debug, Clone, PartialEq)]
pub struct CrowdPlan {
    /// The address of the server.
    pub server: SocketAddr,
    /// The paths of the URLs, with their first slash, at least one. Client after client takes the
    /// next, in turn. The files have equal sizes.
    pub paths: Vec<String>,
    /// The form of all requests.
    pub form: DownloadForm,
    /// The clients.
    pub classes: Vec<CrowdClass>,
    /// The time in which they begin.
    pub window: Duration,
    /// The time at which clients give up, counted from the beginning of the crowd.
    pub limit: Duration,
    /// The seed of the times at which clients begin.
    pub seed: u64,
    /// The number of clients that also compare hashes.
    pub samples: usize,
}

/// Runs a crowd to its end.
///
/// # Errors
/// Returns an error if no connection can be made for want of descriptors; all other failures of a
/// client are in its [`TimedDownload`].
pub fn run(plan: &CrowdPlan) -> io::Result<CrowdOutcome> {
    let mut clients = clients(plan);
    let mut buffer = vec![0; BUFFER_BYTES];
    let began = Instant::now();
    loop {
        let mut under_way = 0;
        for client in &mut clients {
            client.step(plan, began, &mut buffer)?;
            under_way += usize::from(!client.has_ended());
        }
        if under_way == 0 || began.elapsed() >= plan.limit {
            break;
        }
        thread::sleep(TICK);
    }
    let downloads = clients.into_iter().map(|client| client.finish(began)).collect();
    Ok(CrowdOutcome { downloads, window: plan.window })
}

/// Returns the clients. The classes take turns, so that the clients of each begin over the whole
/// window.
fn clients(plan: &CrowdPlan) -> Vec<Client> {
    let most = plan.classes.iter().map(|class| class.clients).max().unwrap_or(0);
    let rates = (0..most).flat_map(|turn| {
        plan.classes.iter().filter(move |class| turn < class.clients).map(|class| class.rate)
    });
    let window = u64::try_from(plan.window.as_micros()).unwrap_or(u64::MAX);
    let mut random = Random::new(plan.seed);
    let client = |(number, rate)| {
        let begins = Duration::from_micros(random.below(window));
        Client::new(begins, rate, number % plan.paths.len(), number < plan.samples)
    };
    rates.enumerate().map(client).collect()
}
