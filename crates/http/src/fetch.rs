//! Downloads of a file over HTTP: from a Pelago server as blocks in any order, each extent checked
//! against its hash; from any other server as bytes in order.
//!
//! The received bytes are kept beside the target, so that the same call continues a download that
//! was killed.

use tokio::runtime::Builder;

pub use error::FetchError;
pub use event::FetchEvent;
pub use plan::{FetchPlan, Fetched};
pub use url::UrlError;
pub use violation::ServerViolation;

use run::Run;
use url::Url;
use workspace::Workspace;

mod any_order;
mod connect;
mod error;
mod event;
mod plain;
mod plan;
mod received;
mod requests;
mod run;
mod state;
mod url;
mod violation;
mod workspace;

/// Downloads a file. `observe` is called with each event.
///
/// # Errors
/// Returns [`FetchError`] if the file is not at its target.
pub fn fetch(plan: &FetchPlan, observe: &mut dyn FnMut(FetchEvent)) -> Result<Fetched, FetchError> {
    let url = Url::parse(&plan.url)?;
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(FetchError::System)?;
    let work = Workspace::open(&plan.target)?;
    let mut run = Run::new(plan, url, work, observe)?;
    match runtime.block_on(run.run()) {
        Ok(done) => run.finish(done),
        Err(error) => {
            run.leave();
            Err(error)
        }
    }
}
