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

#[test]
fn an_auditor_reads_what_others_did_in_the_folder() {
    let Some(pair) = Pair::shared_for("ra") else { return };
    let Pair { alice, bob, .. } = &pair;
    let carol = "PELAGO_KEY=$HOME/carol";
    alice.types(&format!("{carol} pelago key new"));
    let key = alice.types(&format!("{carol} pelago key show")).out;
    let key = key.trim();
    // Two sessions, one of them beside.
    let inodes = [("docs/sub", "deep"), ("secret", "file")].map(|(path, file)| {
        let at = format!("{}:7440", alice.address);
        let out = format!("--to {key} --at {at} --out ~/{file}.cred --rights rx");
        alice.types(&format!("pelago share ~/pelago/files/{path} {out}"));
        alice.types(&format!(
            "mkdir ~/{file} && {carol} pelago attach ~/{file}.cred ~/{file} --detach"
        ));
        let status = alice.types(&format!("pelago status ~/{file} --json --timeout 100")).json();
        pair.lab.ends(pid_of(&status));
        assert_eq!(alice.types(&format!("cat ~/{file}/{file}")).out.trim(), file_text(file));
        let inode = alice.types(&format!("stat -c %i ~/pelago/files/{path}/{file}")).out;
        inode.trim().to_owned()
    });
    let denied = tried(alice, &format!("{carol} pelago access ~/deep --for ~/deep.cred"));
    assert!(denied.code == Some(4), "{denied:?}");
    let of_carol = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains(key)).map(str::to_owned).collect()
    };
    let [inside, outside] = &inodes;
    let said = of_carol(&bob.types("pelago log --audit ~/shared").out);
    let read = format!("used the right `r` for the first time: open of inode {inside}");
    assert!(said.iter().any(|line| line.ends_with(&read)), "{said:?}");
    let refused = |line: &String| line.contains("was denied access of inode ");
    assert_eq!(said.iter().filter(|line| refused(line)).count(), 1, "{said:?}");
    let beside = format!("open of inode {outside}");
    assert!(!said.iter().any(|line| line.ends_with(&beside)), "{said:?}");
    assert_eq!(of_carol(&bob.types("pelago log --audit ~/shared/sub").out), said);
    // The owner asks the server, too, and has the log itself.
    assert_eq!(of_carol(&alice.types("pelago log --audit ~/pelago/files/docs").out), said);
    let all = of_carol(&alice.types("pelago log --audit -V ~/pelago").out);
    assert!(all.iter().any(|line| line.ends_with(&beside)), "{all:?}");
    let json = bob.types("pelago log --audit ~/shared --json").out;
    let open = json.lines().find(|line| line.contains("\"open\"")).unwrap_or_default();
    let open: serde_json::Value = serde_json::from_str(open).unwrap();
    assert_eq!(open["node"].to_string(), *inside);
    // Others may not, and files have none.
    let denied = tried(alice, &format!("{carol} pelago log --audit ~/deep"));
    assert!(denied.code == Some(4) && denied.err.contains("needs the right `a`"), "{denied:?}");
    let file = tried(bob, "pelago log --audit ~/shared/note");
    assert!(file.code != Some(0) && file.err.contains("name the folder"), "{file:?}");
    // What has moved out is not his.
    alice.types("mv ~/pelago/files/docs/sub ~/pelago/files/secret/sub");
    assert_eq!(of_carol(&bob.types("pelago log --audit ~/shared").out), [""; 0]);
    alice.types("pelago unmount ~/deep --timeout 100 && pelago unmount ~/file --timeout 100");
    pair.finish();
}

fn file_text(file: &str) -> &str {
    if file == "file" { "secret" } else { file }
}
