//! Files that both offices have written while the line was cut: the bytes of the second one are
//! listed, copied, and written or removed.

use std::fs;

use rustix::io::Errno;

use crate::harness::program::until;
use crate::machines::hands::Hands;
use crate::machines::network::tried;
use crate::two_offices::office::Offices;

/// More than goes home with a close.
const BYTES: usize = 100_000;

impl Offices {
    fn kept(&self) -> u64 {
        let sites = self.berlin.types("pelago site list -V ~/berlin --json").json();
        sites["kept_versions"].as_u64().unwrap()
    }

    /// Has the second office write two files of the first one, which are still open then.
    fn writes_there(&self) -> Hands {
        let mine = "m".repeat(BYTES);
        fs::write(self.berlin.home.join("mine"), &mine).unwrap();
        self.first.types("mkdir ~/pelago/files/docs");
        let mut there = Hands::on(&self.tree_there());
        for name in ["docs/plan", "top"] {
            there.does(&format!("make {name}"));
            there.does(&format!("put-at {name} 0 {mine}"));
        }
        let sites = self.berlin.types("pelago site list -V ~/berlin --json").json();
        assert_eq!(sites["staying_files"], 2);
        there
    }

    /// Has the first office write the same files while the line is cut.
    fn writes_meanwhile(&self, mut there: Hands) {
        self.lab.network.cut(&self.first);
        self.first.types("cd ~/pelago/files && echo theirs > docs/plan && echo theirs > top");
        self.lab.network.join(&self.first);
        until("the offices are connected again", || {
            tried(&self.berlin, "ls ~/berlin/files/docs").code == Some(0)
        });
        for name in ["docs/plan", "top"] {
            there.fails(&format!("close {name}"), Errno::IO);
        }
        assert_eq!(self.kept(), 2);
    }
}

#[test]
fn what_both_have_written_is_decided() {
    let Some(offices) = Offices::new() else { return };
    let there = offices.writes_there();
    offices.writes_meanwhile(there);
    let berlin = &offices.berlin;
    let listed = berlin.types("pelago conflicts -V ~/berlin").out;
    for name in ["docs/plan", "top"] {
        let path = offices.tree_there().join(name);
        assert!(listed.contains(&format!("  first  {}\n", path.display())), "{listed}");
    }
    assert!(listed.starts_with("  98 KiB  "), "{listed}");
    // The bytes are copied, and nothing is decided.
    berlin.types("pelago conflicts ~/berlin/files/docs/plan --save ~/saved");
    berlin.types("cmp ~/mine ~/saved");
    let again = tried(berlin, "pelago conflicts ~/berlin/files/docs/plan --save ~/saved");
    assert!(again.err.contains("name a file that does not exist"), "{again:?}");
    let one = berlin.types("pelago conflicts ~/berlin/files/docs/plan --json").json();
    assert_eq!(one["conflicts"].as_array().unwrap().len(), 1, "{one}");
    assert_eq!(one["conflicts"][0]["bytes"], BYTES, "{one}");
    let none = tried(berlin, "pelago conflicts ~/berlin/files/docs --keep theirs");
    assert!(none.err.contains("nothing is kept of"), "{none:?}");
    assert_eq!(offices.kept(), 2);
    // Without the line nothing can be written there.
    offices.lab.network.cut(&offices.first);
    let inode = one["conflicts"][0]["inode"].as_u64().unwrap();
    let cut = tried(berlin, &format!("pelago conflicts {inode} --keep mine -V ~/berlin"));
    assert!(cut.code == Some(5) && cut.err.contains("repeat it"), "{cut:?}");
    assert_eq!(offices.kept(), 2);
    offices.lab.network.join(&offices.first);
    until("it is written when the line is back", || {
        let kept = "pelago conflicts ~/berlin/files/docs/plan --keep mine";
        tried(berlin, kept).code == Some(0)
    });
    offices.first.types(&format!(
        "cmp ~/pelago/files/docs/plan {}",
        offices.berlin.home.join("mine").display()
    ));
    let theirs = berlin.types("pelago conflicts ~/berlin/files/top --keep theirs --json").json();
    assert_eq!(theirs["kept"], "theirs", "{theirs}");
    for (machine, dir) in [(&offices.first, "pelago"), (berlin, "berlin")] {
        assert_eq!(machine.types(&format!("cat ~/{dir}/files/top")).out, "theirs\n");
    }
    assert_eq!(berlin.types("pelago conflicts -V ~/berlin").out, "no conflict\n");
    berlin.types("cmp ~/mine ~/berlin/files/docs/plan");
    offices.finish();
}
