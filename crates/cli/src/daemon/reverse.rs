//! Connections from a site that does not listen to all others, which ask this one over them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use pelago_net::ReverseService;
use pelago_server::{Neighbour, Server};
use pelago_store::folder::Folder;

use super::neighbours::{address_of, key_of};
use super::sessions::Doors;

/// The time within which a change of the list of sites is seen.
const LOOK: Duration = Duration::from_secs(2);

/// Keeps a connection to the server of each other site until the server ends.
pub(super) fn keep_connected(server: &Arc<Server>, doors: &Arc<Doors>, folder: &Folder) {
    let keeper = Keeper {
        server: Arc::downgrade(server),
        doors: Arc::downgrade(doors),
        folder: folder.clone(),
        services: HashMap::new(),
    };
    if let Err(error) = thread::Builder::new().name("reverse".to_owned()).spawn(|| keeper.run()) {
        tracing::error!(%error, "the other offices cannot ask this one");
    }
}

struct Keeper {
    server: Weak<Server>,
    doors: Weak<Doors>,
    folder: Folder,
    /// The connections, by the numbers of their sites.
    services: HashMap<u16, (Neighbour, ReverseService)>,
}

impl Keeper {
    fn run(mut self) {
        while let (Some(server), Some(doors)) = (self.server.upgrade(), self.doors.upgrade()) {
            self.look(&server, &doors);
            drop((server, doors));
            // Nothing tells of a changed list; a look costs a lock and a comparison.
            thread::sleep(LOOK);
        }
    }

    /// Begins and ends connections by the list of sites.
    fn look(&mut self, server: &Server, doors: &Doors) {
        let mut wanted = server.neighbours();
        wanted.retain(|neighbour| !neighbour.address.is_empty());
        self.services.retain(|_, (served, _)| wanted.contains(served));
        for neighbour in wanted {
            if !self.services.contains_key(&neighbour.site) {
                self.serve(neighbour, doors);
            }
        }
    }

    fn serve(&mut self, neighbour: Neighbour, doors: &Doors) {
        let site = neighbour.site;
        let served = address_of(&neighbour).and_then(|address| {
            let key = key_of(&self.folder).map_err(|error| error.to_string())?;
            doors.sessions.serve_at(address, site, key).map_err(|error| error.to_string())
        });
        match served {
            Ok(service) => {
                self.services.insert(site, (neighbour, service));
            }
            Err(why) => tracing::warn!(site, why, "a site cannot ask this one"),
        }
    }
}
