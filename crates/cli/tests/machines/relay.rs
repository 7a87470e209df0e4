//! A relay at the edge of a site, set up as README.md says: what a program has synced at level
//! *network* is at the mirror though the server is lost, or the relay too.

use rustix::process::Pid;
use serde_json::Value;

use crate::harness::program::until;
use crate::machines::lab::{kill, pid_of};
use crate::machines::mirror::{Sites, sums};
use crate::machines::network::{Machine, tried};
use crate::machines::world::typed;

/// README's commands.
const RELAY: &str = "pelago relay ~/relay --listen 127.0.0.1:7443 --detach";
const ALLOW_HOME: &str = "pelago key allow $(pelago key show -V ~/pelago) -V ~/relay";
const ALLOW_RELAY: &str = "pelago key allow $(pelago key show -V ~/relay) -V ~/mirrors";
const MIRROR: &str =
    "pelago site mirror $(pelago key show -V ~/mirrors)@127.0.0.1:7442 -V ~/pelago \\";
const THROUGH: &str = "  --relay $(pelago key show -V ~/relay)@127.0.0.1:7443";
const LEVEL: &str = "setfattr -n user.pelago.level -v network ~/pelago/files";

/// The sites of a volume and its mirror, and a machine at the edge of the first one.
struct Edge {
    sites: Sites,
    edge: Machine,
}

impl Edge {
    /// Returns the sites, with a relay that is used; `None` if this machine cannot have a network.
    fn new() -> Option<Self> {
        let sites = Sites::new()?;
        let edge = sites.lab.machine(3, "edge");
        let this = Self { sites, edge };
        this.start_relay();
        let key = |machine: &Machine, dir: &str| {
            machine.types(&format!("pelago key show -V ~/{dir}")).out.trim().to_owned()
        };
        let home = &this.sites.home;
        let there = &this.sites.there;
        let of_home = key(home, "pelago");
        let of_relay = key(&this.edge, "relay");
        let of_mirrors = key(there, "mirrors");
        let line = typed(ALLOW_HOME).replace("$(pelago key show -V ~/pelago)", &of_home);
        this.edge.types(&line);
        let line = typed(ALLOW_RELAY).replace("$(pelago key show -V ~/relay)", &of_relay);
        there.types(&line);
        let line = format!("{}\n{}", typed(MIRROR), typed(THROUGH))
            .replace("$(pelago key show -V ~/mirrors)", &of_mirrors)
            .replace("$(pelago key show -V ~/relay)", &of_relay)
            .replace("127.0.0.1:7442", &format!("{}:7442", there.address))
            .replace("127.0.0.1:7443", &format!("{}:7443", this.edge.address));
        home.types(&line);
        this.is_used();
        home.types(typed(LEVEL));
        Some(this)
    }

    fn start_relay(&self) {
        self.edge.types(&typed(RELAY).replace("127.0.0.1", &self.edge.address));
        self.sites.lab.ends(self.relay());
    }

    fn relay(&self) -> Pid {
        pid_of(&self.edge.types("pelago status ~/relay --json").json())
    }

    /// Returns the state of the relay that the primary reports.
    fn reported(&self) -> Value {
        let status = self.sites.home.types("pelago status ~/pelago --json --timeout 100");
        status.json()["mirror"]["relay"].clone()
    }

    fn is_used(&self) {
        until("changes go through the relay", || self.reported()["used"] == true);
    }

    /// Writes a file, and returns once its `fsync` does.
    fn write(&self, name: &str) {
        self.sites.home.types(&format!(
            "dd if=/dev/urandom of=$HOME/pelago/files/{name} bs=64k count=4 conv=fsync status=none"
        ));
    }
}

/// The server is lost while the mirror cannot be reached, and the relay sends on without it.
#[test]
fn what_was_synced_at_level_network_survives_the_server_while_the_mirror_is_away() {
    let Some(edge) = Edge::new() else { return };
    let Edge { sites, .. } = &edge;
    edge.write("before");
    sites.wait();
    sites.lab.network.cut(&sites.there);
    edge.write("meanwhile");
    assert_eq!(edge.reported()["used"], true);
    let files = "~/pelago/files/meanwhile ~/pelago/files/before";
    let reached = sites.home.types(&format!("pelago reached {files} --json")).json();
    // Without answers the relay may not send all of it, and the sync goes on after three seconds.
    let stage = reached["files"][0]["reached"].as_str();
    assert!(matches!(stage, Some("edge" | "sent")), "{reached}");
    assert_eq!(reached["files"][1]["reached"], "mirrored", "{reached}");
    let before = sums(&sites.home, &sites.tree());
    kill(sites.primary());
    sites.lab.network.join(&sites.there);
    until("the relay has sent all", || {
        let status = edge.edge.types("pelago status ~/relay --json").json();
        status["volumes"][0]["groups"] == 0
    });
    assert_eq!(sums(&sites.there, &sites.promote()), before);
    sites.logs_are_quiet();
}

/// Both machines of the site are lost in the moment in which a program has its answer.
#[test]
fn what_was_synced_at_level_network_survives_the_server_and_the_relay() {
    let Some(edge) = Edge::new() else { return };
    let Edge { sites, .. } = &edge;
    for number in 0..4 {
        edge.write(&format!("f{number}"));
    }
    let primary = sites.primary();
    let relay = edge.relay();
    let before = sums(&sites.home, &sites.tree());
    edge.write("last");
    kill(primary);
    kill(relay);
    let after = sums(&sites.there, &sites.promote());
    for (name, sum) in &before {
        assert_eq!(after.get(name), Some(sum), "{name}");
    }
    assert!(after.keys().any(|name| name.ends_with("last")), "{after:?}");
}

/// A relay that is lost is done without, and used again when it is back; `verify` and a handover
/// need the mirror itself.
#[test]
fn a_relay_comes_and_goes() {
    let Some(edge) = Edge::new() else { return };
    let Edge { sites, .. } = &edge;
    edge.write("one");
    let verified = sites.home.types("pelago verify -V ~/pelago --json").json();
    assert_eq!(verified["differences"], 0, "{verified}");
    edge.is_used();
    edge.write("two");
    kill(edge.relay());
    edge.write("three");
    sites.wait();
    assert_eq!(edge.reported()["used"], false);
    let status = sites.home.types("pelago status ~/pelago").out;
    assert!(status.contains(":7443: not used: "), "{status}");
    edge.start_relay();
    edge.is_used();
    edge.write("four");
    sites.wait();
    let before = sums(&sites.home, &sites.tree());
    sites.home.types("pelago site promote -V ~/pelago --busy");
    let image = sites.image();
    sites.there.types(&format!("pelago up {} --detach", image.display()));
    let status = sites.there.types(&format!("pelago status {} --json", image.display()));
    sites.lab.ends(pid_of(&status.json()));
    assert_eq!(sums(&sites.there, &image.join("files")), before);
    let lost = tried(&edge.edge, "pelago status ~/relay");
    assert_eq!(lost.code, Some(0), "{lost:?}");
}
