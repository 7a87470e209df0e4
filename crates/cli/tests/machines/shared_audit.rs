//! A stranger with the right `a`: he sees what others have in the folder, and takes it back.

use std::fs;

use rustix::io::Errno;

use crate::harness::program::until;
use crate::machines::hands::Hands;
use crate::machines::lab::pid_of;
use crate::machines::network::tried;
use crate::machines::shared::Pair;

#[test]
fn an_auditor_sees_what_others_have_and_takes_it_back() {
    let Some(pair) = Pair::shared_for("ra") else { return };
    let alice = &pair.alice;
    // A second guest, on Alice's machine: her own key is a root.
    let carol = "PELAGO_KEY=$HOME/carol";
    alice.types(&format!("{carol} pelago key new"));
    let own = alice.types(&format!("{carol} pelago key show")).out;
    for (path, file) in [("docs/sub", "sub"), ("docs/note", "note"), ("secret", "secret")] {
        let at = format!("{}:7440", alice.address);
        let to = own.trim();
        let out = format!("--to {to} --at {at} --out ~/{file}.cred");
        alice.types(&format!("pelago share ~/pelago/files/{path} {out} --rights rwx"));
        let name = format!("{file}.cred");
        fs::copy(alice.home.join(&name), pair.bob.home.join(&name)).unwrap();
    }
    alice.types(&format!("mkdir ~/again && {carol} pelago attach ~/sub.cred ~/again --detach"));
    let status = alice.types("pelago status ~/again --json --timeout 100").json();
    pair.lab.ends(pid_of(&status));
    let mut guest = Hands::on(&alice.home.join("again"));
    assert_eq!(guest.does("get deep"), "deep|");
    // Bob is told of her below, and not above, where she has nothing.
    let said = pair.bob.types("pelago access ~/shared/sub").out;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("ra ") && lines[0].ends_with("/shared/sub"), "{said}");
    assert!(lines[1].starts_with("rwx ") && lines[1].contains(own.trim()), "{said}");
    assert!(lines[2].starts_with("not listed: "), "{said}");
    let id = lines[1].rsplit(' ').next().unwrap().to_owned();
    assert_eq!(pair.bob.types("pelago access ~/shared").out.lines().count(), 1);
    // About one who is not connected.
    let said = pair.bob.types("pelago access ~/shared/note --for ~/note.cred").out;
    assert!(said.starts_with("rw") && said.contains(own.trim()), "{said}");
    // What is beside is not his.
    let outside = tried(&pair.bob, "pelago revoke ~/secret.cred --mount ~/shared");
    assert!(outside.code == Some(4) && outside.err.contains("access denied"), "{outside:?}");
    let unknown = tried(&pair.bob, "pelago revoke 0123456789ab --mount ~/shared");
    assert!(unknown.code == Some(3) && unknown.err.contains("0 credentials"), "{unknown:?}");
    let own_one = tried(&pair.bob, "pelago revoke ~/docs.cred --mount ~/shared");
    assert!(own_one.code == Some(4), "{own_one:?}");
    // Below it is: by the id that was printed, and by the file.
    pair.bob.types(&format!("pelago revoke {id} --mount ~/shared/sub"));
    until("it is taken back", || fs::metadata(alice.home.join("again/deep")).is_err());
    guest.fails("get deep", Errno::ACCESS);
    let said = pair.bob.types("pelago revoke ~/note.cred --mount ~/shared").out;
    assert!(said.contains("it grants nothing any more"), "{said}");
    let again = format!("mkdir ~/note && {carol} pelago attach ~/note.cred ~/note --detach");
    let again = tried(alice, &again);
    assert!(again.code == Some(4) && again.err.contains("was taken back"), "{again:?}");
    let log = alice.types("pelago log --audit -V ~/pelago --json").out;
    let taken = log.lines().filter(|line| line.contains("\"revocation\"")).count();
    assert_eq!(taken, 2, "{log}");
    assert_eq!(pair.hands().does("get note"), "note|", "Bob goes on");
    drop(guest);
    alice.types("pelago unmount ~/again --timeout 100");
    pair.finish();
}
