//! Sharing, offices, mirrors, shared stores, passthrough, HTTP and searches used together, as
//! docs/semantics.md says: one test of all, and one of each pair that no other test has. They run
//! once more with requests over io_uring.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::harness::program::until;
use crate::machines::lab::{Lab, kill, pid_of};
use crate::machines::network::{Machine, tried};

/// The time in which those that are left hear that a site is gone.
const HEARS: Duration = Duration::from_secs(15);

/// Machines of one network, and the processes that were started on them.
struct Machines {
    lab: Lab,
}

impl Machines {
    /// Returns an empty network; `None` if this machine cannot have one.
    fn new() -> Option<Self> {
        Some(Self { lab: Lab::new()? })
    }

    fn machine(&self, number: u8, name: &str) -> Machine {
        self.lab.machine(number, name)
    }

    /// Notes the process that serves this folder or mount, so that it ends with the test. Returns
    /// it.
    fn note(&self, machine: &Machine, of: &str) -> Pid {
        let status = machine.types(&format!("pelago status {of} --json --timeout 100")).json();
        let pid = pid_of(&status);
        self.lab.ends(pid);
        pid
    }

    /// Brings up a volume that listens, and says so.
    fn up(&self, machine: &Machine, more: &str) -> Pid {
        let listen = format!("--listen {}:7440", machine.address);
        let requests = requests();
        machine.types(&format!("pelago up ~/pelago --detach {listen} {requests} {more}"));
        self.note(machine, "~/pelago")
    }

    /// Starts a server of a shared store, which listens. Returns its process.
    fn serve_store(&self, machine: &Machine, team: &str) -> Pid {
        let listen = format!("--listen {}:7440", machine.address);
        machine.types(&format!("pelago serve ~/server --store {team} {listen} --detach"));
        self.note(machine, "~/server")
    }

    /// Shares a folder of a volume with the user of another machine, who attaches it.
    fn share(&self, owner: &Machine, guest: &Machine, path: &str) {
        owner.types("test -e ~/.config/pelago/key || pelago key new");
        guest.types("pelago key new && mkdir -p ~/shared");
        let key = guest.types("pelago key show").out;
        let at = format!("--at {}:7440", owner.address);
        owner.types(&format!("pelago share {path} --to {} {at} > ~/cred", key.trim()));
        fs::copy(owner.home.join("cred"), guest.home.join("cred")).unwrap();
        guest.types("pelago attach ~/cred ~/shared --detach");
        self.note(guest, "~/shared");
    }

    /// Keeps mirrors on a machine, and gives the volume of another one a mirror there.
    fn mirror(&self, primary: &Machine, keeper: &Machine) {
        let listen = format!("--listen {}:7442", keeper.address);
        keeper.types(&format!("pelago serve ~/mirrors --mirrors {listen} --detach"));
        self.note(keeper, "~/mirrors");
        let key = primary.types("pelago key show -V ~/pelago").out;
        keeper.types(&format!("pelago key allow {} -V ~/mirrors", key.trim()));
        let key = keeper.types("pelago key show -V ~/mirrors").out;
        let address = format!("{}@{}:7442", key.trim(), keeper.address);
        primary.types(&format!("pelago site mirror {address} -V ~/pelago"));
    }

    fn logs_are_quiet(&self, logs: &[PathBuf]) {
        for log in logs {
            let text = fs::read_to_string(log).unwrap();
            assert!(!text.contains("panicked"), "{}: {text}", log.display());
        }
    }
}

/// Returns the option by which the requests of a mount come over io_uring, or by the device.
fn requests() -> &'static str {
    match std::env::var_os("PELAGO_FUSE_RING") {
        Some(_) => "--io-uring always",
        None => "--io-uring never",
    }
}

/// Returns the path of the only mirror of a keeper.
fn image(keeper: &Machine) -> PathBuf {
    let mut found = fs::read_dir(keeper.home.join("mirrors/mirrors")).unwrap();
    found.next().unwrap().unwrap().path()
}

/// Five places: Rome has the volume, Berlin is an office of it, Oslo keeps its mirror, a guest
/// reads one of its folders, and a client mounts it.
struct Places {
    rome: Machine,
    berlin: Machine,
    oslo: Machine,
    guest: Machine,
    client: Machine,
    primary: Pid,
}

impl Places {
    fn new(machines: &Machines) -> Self {
        let names = [(1, "rome"), (2, "berlin"), (3, "oslo"), (4, "guest"), (5, "client")];
        let [rome, berlin, oslo, guest, client] =
            names.map(|(number, name)| machines.machine(number, name));
        let primary = machines.up(&rome, "--passthrough never --http 127.0.0.1:8080");
        machines.mirror(&rome, &oslo);
        rome.types("mkdir ~/pelago/files/docs && echo note > ~/pelago/files/docs/note");
        machines.share(&rome, &guest, "~/pelago/files/docs");
        rome.types("pelago site invite berlin -V ~/pelago > ~/ticket");
        fs::copy(rome.home.join("ticket"), berlin.home.join("ticket")).unwrap();
        let listen = format!("--listen {}:7441", berlin.address);
        berlin.types(&format!("pelago join \"$(cat ~/ticket)\" ~/berlin {listen} --detach"));
        machines.note(&berlin, "~/berlin");
        client.types("pelago key new && mkdir ~/far");
        let key = client.types("pelago key show").out;
        rome.types(&format!("pelago key allow {} -V ~/pelago", key.trim()));
        let server = rome.types("pelago key show -V ~/pelago").out;
        let from = format!("{}@{}:7440", server.trim(), rome.address);
        client.types(&format!("pelago mount {from} ~/far --detach"));
        machines.note(&client, "~/far");
        Self { rome, berlin, oslo, guest, client, primary }
    }

    /// Berlin writes in a folder of Rome, and the guest reads it; both see one tree.
    fn work(&self) {
        let Self { rome, berlin, guest, client, .. } = self;
        let write = "mkdir ~/berlin/files/own && for i in $(seq 40); do \
                     echo line $i >> ~/berlin/files/docs/log; done";
        let mut writing = berlin.command("sh").args(["-c", write]).spawn().unwrap();
        let mut last = 0;
        until("the guest has read what Berlin writes", || {
            let read = tried(guest, "cat ~/shared/log 2>/dev/null").out;
            let lines: Vec<&str> = read.lines().collect();
            assert!(lines.len() >= last, "what was read is not gone again");
            let expected: Vec<String> =
                (1..=lines.len()).map(|line| format!("line {line}")).collect();
            assert_eq!(lines, expected);
            last = lines.len();
            last == 40
        });
        assert!(writing.wait().unwrap().success());
        assert_eq!(client.types("tail -1 ~/far/docs/log").out, "line 40\n");
        rome.types("pelago get http://127.0.0.1:8080/docs/log ~/got");
        rome.types("cmp ~/got ~/pelago/files/docs/log");
        berlin.types("echo mine > ~/berlin/files/own/file");
        rome.types("pelago wait ~/pelago/files --level remote");
    }

    /// Promotes the mirror and serves it; the client mounts it by the address that it is told, with
    /// the key that it had. Returns the folder.
    fn move_over(&self, machines: &Machines) -> PathBuf {
        let Self { oslo, client, .. } = self;
        let path = image(oslo);
        let promoted = oslo.types(&format!("pelago site promote {} --force", path.display())).out;
        assert!(promoted.contains("`pelago mount KEY@HOST:PORT POINT`"), "{promoted}");
        let listen = format!("--listen {}:7440", oslo.address);
        oslo.types(&format!("pelago serve {} {listen} --detach", path.display()));
        machines.note(oslo, path.to_str().unwrap());
        client.types("pelago unmount ~/far --force --timeout 100 || true; mkdir ~/again");
        let server = oslo.types(&format!("pelago key show -V {}", path.display())).out;
        let from = format!("{}@{}:7440", server.trim(), oslo.address);
        client.types(&format!("pelago mount {from} ~/again --detach"));
        machines.note(client, "~/again");
        assert_eq!(client.types("tail -1 ~/again/docs/log").out, "line 40\n");
        client.types("echo new > ~/again/docs/new && cat ~/again/docs/new");
        path
    }

    /// Berlin and the guest hear that Rome is gone, and that nothing moves them over.
    fn hear(&self) {
        let Self { berlin, guest, .. } = self;
        until("Berlin hears that Rome is gone", || {
            tried(berlin, "cat ~/berlin/files/docs/note").err.contains("Host is down")
        });
        until("and that it does not move over", || {
            let sites = berlin.types("pelago site list -V ~/berlin").out;
            sites.contains("does not move over by itself yet")
        });
        until("the guest hears it too", || {
            let status = guest.types("pelago status ~/shared --timeout 100").out;
            status.contains("not connected") && status.contains("does not move over by itself yet")
        });
    }
}

/// A guest of Rome reads while Berlin writes there, and another machine mounts Rome's volume. Rome
/// burns: the mirror is the volume, Berlin's own folder goes on, and the others hear of it.
#[test]
fn all_of_it_together() {
    let Some(machines) = Machines::new() else { return };
    let places = Places::new(&machines);
    places.work();
    let Places { rome, berlin, oslo, .. } = &places;
    // A program of Berlin is in its own folder.
    let line = "cd ~/berlin/files/own && touch ready && while [ ! -e ~/go ]; do sleep 0.1; done; \
                i=0; while [ $i -lt 100 ]; do echo $i > f$i || exit 1; i=$((i+1)); done; \
                cat file > ~/done";
    let mut working = berlin.command("sh").args(["-c", line]).spawn().unwrap();
    until("it is there", || tried(rome, "test -e ~/pelago/files/own/ready").code == Some(0));
    kill(places.primary);
    let burnt = Instant::now();
    let path = places.move_over(&machines);
    fs::write(berlin.home.join("go"), "").unwrap();
    assert!(working.wait().unwrap().success());
    assert_eq!(fs::read_to_string(berlin.home.join("done")).unwrap(), "mine\n");
    places.hear();
    assert!(burnt.elapsed() < HEARS + Duration::from_secs(5), "{:?}", burnt.elapsed());
    let logs = [
        rome.home.join("pelago/log"),
        berlin.home.join("berlin/log"),
        oslo.home.join("mirrors/log"),
        path.join("log"),
    ];
    machines.logs_are_quiet(&logs);
    berlin.types("pelago unmount -V ~/berlin --timeout 100");
    let checked = berlin.types("pelago check ~/berlin --json").json();
    assert_eq!(checked["whole"], true, "{checked}");
}

/// A root may also share after a promotion, at the new address.
#[test]
fn share_and_mirror() {
    let Some(machines) = Machines::new() else { return };
    let [alice, oslo, bob] = [(1, "alice"), (2, "oslo"), (3, "bob")]
        .map(|(number, name)| machines.machine(number, name));
    let primary = machines.up(&alice, "--passthrough never");
    machines.mirror(&alice, &oslo);
    alice.types("mkdir ~/pelago/files/docs && echo note > ~/pelago/files/docs/note");
    machines.share(&alice, &bob, "~/pelago/files/docs");
    assert_eq!(bob.types("cat ~/shared/note").out, "note\n");
    alice.types("cp ~/cred ~/other && pelago revoke ~/cred -V ~/pelago");
    alice.types("pelago wait --level remote -V ~/pelago");
    kill(primary);
    let path = image(&oslo);
    oslo.types(&format!("pelago site promote {} --force", path.display()));
    let listen = format!("--listen {}:7440", oslo.address);
    oslo.types(&format!("pelago up {} {listen} --detach", path.display()));
    machines.note(&oslo, path.to_str().unwrap());
    // The keys that may share are there: Alice shares again, at the new place.
    let config = ".config/pelago";
    fs::create_dir_all(oslo.home.join(config)).unwrap();
    fs::copy(alice.home.join(config).join("key"), oslo.home.join(config).join("key")).unwrap();
    let key = bob.types("pelago key show").out;
    let docs = path.join("files/docs");
    let at = format!("--at {}:7440", oslo.address);
    oslo.types(&format!("pelago share {} --to {} {at} > ~/cred", docs.display(), key.trim()));
    fs::copy(oslo.home.join("cred"), bob.home.join("again")).unwrap();
    bob.types("pelago unmount ~/shared --force --timeout 100 || true; mkdir -p ~/at-oslo");
    bob.types("pelago attach ~/again ~/at-oslo --detach");
    machines.note(&bob, "~/at-oslo");
    assert_eq!(bob.types("cat ~/at-oslo/note").out, "note\n");
    // And the revocation is: taking the old one back again changes nothing.
    fs::copy(alice.home.join("cred"), oslo.home.join("old")).unwrap();
    let again = tried(&oslo, &format!("pelago revoke ~/old -V {}", path.display()));
    assert_eq!(again.code, Some(0), "{again:?}");
}

/// The kernel of the owner's machine writes without a request, and the guest sees each write.
#[test]
fn share_and_passthrough() {
    let Some(machines) = Machines::new() else { return };
    let [alice, bob] = [(1, "alice"), (2, "bob")].map(|(n, name)| machines.machine(n, name));
    machines.up(&alice, "--passthrough always");
    let path = alice.types("pelago status ~/pelago --json").json()["data_path"].clone();
    if path != "passthrough" {
        println!("skipped: the kernel takes no descriptors here");
        return;
    }
    alice.types("mkdir ~/pelago/files/docs && head -c 100000 /dev/zero > ~/pelago/files/docs/f");
    machines.share(&alice, &bob, "~/pelago/files/docs");
    for round in 0..20 {
        let at = format!("dd of=$HOME/pelago/files/docs/f bs=1 seek={} conv=notrunc", round * 5000);
        alice.types(&format!("printf {round:02} | {at} status=none"));
        let read = format!("dd if=$HOME/shared/f bs=1 skip={} count=2 status=none", round * 5000);
        assert_eq!(bob.types(&read).out, format!("{round:02}"));
    }
}

/// A guest finds what is below its folder, and HTTP shows the tree of its user, shared or not.
#[test]
fn share_find_and_http() {
    let Some(machines) = Machines::new() else { return };
    let [alice, bob] = [(1, "alice"), (2, "bob")].map(|(n, name)| machines.machine(n, name));
    machines.up(&alice, "--http 127.0.0.1:8080");
    alice.types("mkdir ~/pelago/files/docs && echo note > ~/pelago/files/docs/note");
    machines.share(&alice, &bob, "~/pelago/files/docs");
    alice.types("echo note > ~/pelago/files/note");
    let found = bob.types("cd ~/shared && pelago find 'name=note' .").out;
    assert_eq!(found, "./note\n");
    assert_eq!(bob.types("ls ~/shared/.find/name=note").out, "note\n");
    assert_eq!(bob.types("cat ~/shared/.find/name=note/note").out, "note\n");
    let own = alice.types("pelago find 'name=note' ~/pelago/files").out;
    assert_eq!(own.lines().count(), 2, "{own}");
    let get = "pelago get http://127.0.0.1:8080/docs/note ~/got > ~/says && cat ~/got && \
               rm ~/got";
    assert_eq!(alice.types(get).out, "note\n");
    alice.types("pelago revoke ~/cred -V ~/pelago");
    assert_eq!(alice.types(get).out, "note\n", "HTTP has its own rights");
    assert_ne!(tried(&bob, "cat ~/shared/note").code, Some(0));
}

/// Passthrough also works in an office that has joined, for files that have their home there.
#[test]
fn office_and_passthrough() {
    let Some(machines) = Machines::new() else { return };
    let [rome, berlin] = [(1, "rome"), (2, "berlin")].map(|(n, name)| machines.machine(n, name));
    machines.up(&rome, "");
    rome.types("pelago site invite berlin -V ~/pelago > ~/ticket");
    fs::copy(rome.home.join("ticket"), berlin.home.join("ticket")).unwrap();
    let listen = format!("--listen {}:7441", berlin.address);
    berlin.types(&format!("pelago join \"$(cat ~/ticket)\" ~/berlin {listen} --detach"));
    machines.note(&berlin, "~/berlin");
    let path = berlin.types("pelago status ~/berlin --json").json()["data_path"].clone();
    if path != "passthrough" {
        println!("skipped: the kernel takes no descriptors here");
        return;
    }
    berlin.types("mkdir ~/berlin/files/own");
    for (machine, tree) in [(&berlin, "berlin"), (&rome, "pelago")] {
        for dir in ["", "own/"] {
            let file = format!("~/{tree}/files/{dir}of-{tree}");
            machine.types(&format!(
                "head -c 3000000 /dev/urandom > ~/bytes && cp ~/bytes {file} && \
                 cmp ~/bytes {file} && printf more >> {file}"
            ));
        }
    }
    for name in ["of-berlin", "of-pelago", "own/of-berlin", "own/of-pelago"] {
        let sum = |machine: &Machine, tree: &str| {
            machine.types(&format!("md5sum < ~/{tree}/files/{name}")).out
        };
        assert_eq!(sum(&rome, "pelago"), sum(&berlin, "berlin"), "{name}");
    }
}

/// A download reads one version of a file while programs change it and the mirror gets each.
#[test]
fn mirror_and_http() {
    let Some(machines) = Machines::new() else { return };
    let [rome, oslo] = [(1, "rome"), (2, "oslo")].map(|(n, name)| machines.machine(n, name));
    machines.up(&rome, "--passthrough never --http 127.0.0.1:8080");
    machines.mirror(&rome, &oslo);
    for round in 0..5 {
        rome.types("head -c 8000000 /dev/urandom > ~/bytes && cp ~/bytes ~/pelago/files/f");
        let got = rome.types(&format!("pelago get http://127.0.0.1:8080/f ~/got{round}"));
        drop(got);
        rome.types(&format!("cmp ~/bytes ~/got{round}"));
        rome.types("pelago wait --level remote -V ~/pelago");
    }
}

/// A volume on a shared store, with a second server that takes over: what works with it works
/// after that too, and what is not built for it says so in one line.
#[test]
fn a_shared_store_with_each_of_the_others() {
    let Some(machines) = Machines::new() else { return };
    let [one, two, client] = [(1, "one"), (2, "two"), (3, "client")]
        .map(|(number, name)| machines.machine(number, name));
    let team = machines.lab.root.join("team");
    let team = team.to_str().unwrap();
    let owner = machines.serve_store(&one, team);
    machines.serve_store(&two, team);
    client.types("pelago key new && mkdir ~/far");
    let key = client.types("pelago key show").out;
    one.types(&format!("pelago key allow {} -V ~/server", key.trim()));
    let server = one.types("pelago key show -V ~/server").out;
    let requests = requests();
    let from = format!("{}@{}:7440", server.trim(), one.address);
    client.types(&format!("pelago mount {from} ~/far {requests} --detach"));
    machines.note(&client, "~/far");
    client.types("mkdir ~/far/docs && echo note > ~/far/docs/note");
    client.types("pelago tag ~/far/docs/note project=apollo");
    client.types("head -c 3000000 /dev/urandom > ~/bytes && cp ~/bytes ~/far/docs/large");

    let refused = |machine: &Machine, line: &str, says: &str| {
        let ran = tried(machine, line);
        assert_ne!(ran.code, Some(0), "{line}: {ran:?}");
        assert!(ran.err.contains(says), "{line}: {ran:?}");
    };
    let share = format!("pelago share ~/far/docs --to {}", key.trim());
    refused(&client, &share, "is not in the mount of a volume that this machine serves");
    let office = "a second office of a volume on a shared store is not built yet";
    refused(&one, "pelago site invite berlin -V ~/server", office);
    let mirror = format!("pelago site mirror {from} -V ~/server");
    refused(&one, &mirror, "a mirror of a volume on a shared store is not built yet");
    let both = format!("pelago serve ~/mirrors --store {team} --mirrors");
    refused(&one, &both, "cannot be used with");
    for more in ["", " --passthrough always", " --http 127.0.0.1:0"] {
        refused(&one, &format!("pelago up {team}{more}"), "is a shared store");
        refused(&one, &format!("pelago up ~/server{more}"), "of a server of a shared store");
    }
    refused(&one, &format!("pelago check {team}"), "a server owns the volume");
    refused(&one, &format!("pelago check {team} --apply"), "not built yet for a shared store");

    for round in 0..2 {
        let found = client.types("pelago find 'project=apollo' ~/far").out;
        assert!(found.ends_with("/docs/note\n"), "{round}: {found}");
        assert_eq!(client.types("cat ~/far/.find/name=note/note").out, "note\n", "{round}");
        client.types("cmp ~/bytes ~/far/docs/large");
        if round == 0 {
            kill(owner);
        }
    }
    client.types("printf more | tee -a ~/bytes >> ~/far/docs/large; cmp ~/bytes ~/far/docs/large");
    machines.serve_store(&one, team);
    client.types("pelago unmount ~/far --timeout 100");
    for machine in [&one, &two] {
        machine.types("pelago unmount -V ~/server --timeout 100");
    }
    machines.logs_are_quiet(&[one.home.join("server/log"), two.home.join("server/log")]);
    let checked = one.types(&format!("pelago check {team} --json")).json();
    assert_eq!(checked["whole"], true, "{checked}");
}
