//! A third office, which cannot be connected to: it joins, works with both others, and leaves.

use std::fs;
use std::time::Instant;

use crate::harness::program::until;
use crate::machines::lab::{kill, lock_holder};
use crate::machines::network::{Machine, tried};
use crate::two_offices::office::{BACK, Offices};

/// The third office.
struct Rome<'a> {
    offices: &'a Offices,
    machine: Machine,
}

impl<'a> Rome<'a> {
    /// Joins the volume without listening, as behind NAT.
    fn join(offices: &'a Offices) -> Self {
        let machine = offices.lab.machine(3, "rome");
        offices.first.types("pelago site invite rome -V ~/pelago > ~/rome.ticket");
        fs::copy(offices.first.home.join("rome.ticket"), machine.home.join("ticket")).unwrap();
        machine.types("pelago join \"$(cat ~/ticket)\" ~/rome --no-listen --detach");
        let rome = Self { offices, machine };
        rome.is_up();
        rome
    }

    fn is_up(&self) {
        self.offices.lab.ends(lock_holder(&self.machine.home.join("rome")));
    }
}

/// Returns the names of the other offices that an office knows, with whether it knows an address.
fn known(machine: &Machine, dir: &str) -> Vec<(String, bool)> {
    let sites = machine.types(&format!("pelago site list -V ~/{dir} --json")).json();
    let named = |site: &serde_json::Value| {
        let name = site["name"].as_str().unwrap().to_owned();
        (name, site["address"] != "")
    };
    sites["sites"].as_array().unwrap().iter().map(named).collect()
}

#[test]
fn a_third_office_that_cannot_be_reached_works_with_both_others() {
    let Some(offices) = Offices::new() else { return };
    let rome = Rome::join(&offices);
    let pair = |name: &str, has_address| (name.to_owned(), has_address);
    until("both others know it by the list", || {
        known(&offices.first, "pelago") == [pair("berlin", true), pair("rome", false)]
            && known(&offices.berlin, "berlin") == [pair("first", true), pair("rome", false)]
            && known(&rome.machine, "rome") == [pair("first", true), pair("berlin", true)]
    });
    let listening = fs::read_to_string(rome.machine.home.join("rome/listen")).unwrap();
    assert_eq!(listening.trim(), "none");
    // Each has a folder, and writes in those of the others.
    let all = [(&offices.first, "pelago"), (&offices.berlin, "berlin"), (&rome.machine, "rome")];
    for (machine, dir) in all {
        machine.types(&format!("mkdir ~/{dir}/files/of-{dir}"));
    }
    for (machine, dir) in all {
        for (_, of) in all {
            machine.types(&format!("echo {dir} > ~/{dir}/files/of-{of}/by-{dir}"));
            machine.types(&format!("mkdir ~/{dir}/files/of-{of}/dir-{dir}"));
        }
    }
    for (machine, dir) in all {
        for (_, of) in all {
            let read =
                machine.types(&format!("cd ~/{dir}/files/of-{of} && cat by-* && ls -d dir-*"));
            assert_eq!(read.out, "berlin\npelago\nrome\ndir-berlin\ndir-pelago\ndir-rome\n");
            let up = machine.types(&format!("ls ~/{dir}/files/of-{of}/dir-berlin/.. | wc -l"));
            assert_eq!(up.out.trim(), "6");
        }
    }
    // Its mount ends, and the others still ask it.
    rome.machine.types("umount ~/rome/files");
    let read = offices.berlin.types("cat ~/berlin/files/of-rome/by-rome").out;
    assert_eq!(read, "rome\n");
    // It is killed and starts again: it still does not listen, and is asked by both.
    kill(lock_holder(&rome.machine.home.join("rome")));
    rome.machine.types("pelago up ~/rome --detach");
    rome.is_up();
    let began = Instant::now();
    for (machine, dir) in &all[..2] {
        until("its folder is read", || {
            tried(machine, &format!("cat ~/{dir}/files/of-rome/by-rome")).out == "rome\n"
        });
    }
    assert!(began.elapsed() < BACK, "{:?}", began.elapsed());
    // The first office is away: the two others have each other's folders.
    offices.lab.network.cut(&offices.first);
    until("the second office reads the third one's", || {
        tried(&offices.berlin, "cat ~/berlin/files/of-rome/by-berlin").out == "berlin\n"
    });
    until("the third office writes in the second one's", || {
        tried(&rome.machine, "echo late > ~/rome/files/of-berlin/late").code == Some(0)
    });
    offices.lab.network.join(&offices.first);
    until("all read it", || {
        tried(&offices.first, "cat ~/pelago/files/of-berlin/late").out == "late\n"
    });
    leaves(&rome);
    offices.finish();
}

/// The third office leaves once it has no folders.
fn leaves(rome: &Rome<'_>) {
    let Rome { offices, machine } = rome;
    let leave = "pelago site leave -V ~/rome";
    let refused = tried(machine, leave);
    assert!(refused.err.contains("/of-rome"), "{refused:?}");
    assert!(refused.err.contains("/of-berlin/dir-rome"), "{refused:?}");
    until("its folders are removed, once the line is back", || {
        let cleared = "cd ~/rome/files && rm -rf of-rome of-berlin/dir-rome of-pelago/dir-rome";
        tried(machine, cleared).code == Some(0)
    });
    let first = tried(&offices.first, "pelago site leave -V ~/pelago");
    assert!(first.err.contains("the first site of a volume cannot leave it"), "{first:?}");
    machine.types(leave);
    until("the others have heard it", || {
        known(&offices.first, "pelago").len() == 1 && known(&offices.berlin, "berlin").len() == 1
    });
    until("its process has ended", || tried(machine, "pelago status ~/rome").code != Some(0));
    let again = tried(machine, "pelago up ~/rome --detach");
    assert!(again.err.contains("has left its volume: remove it"), "{again:?}");
    // What it has written in the folders of the others is theirs.
    let read = offices.first.types("cat ~/pelago/files/of-berlin/by-rome").out;
    assert_eq!(read, "rome\n");
}
