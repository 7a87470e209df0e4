//! Copies of the other office's files on the disk of this one.

use std::fs;
use std::path::PathBuf;

use crate::harness::program::until;
use crate::machines::network::tried;
use crate::two_offices::office::Offices;

/// Blocks of 256 KiB of the file.
const BLOCKS: u64 = 64;

impl Offices {
    /// Returns the only map in the folder of the copies, with its bytes.
    fn map(&self) -> Option<(PathBuf, u64)> {
        let found = fs::read_dir(self.berlin.home.join("berlin/copies")).ok()?;
        let mut maps = found.filter_map(|entry| {
            let path = entry.ok()?.path();
            let bytes = path.metadata().ok()?.len();
            path.extension().is_some_and(|end| end == "map").then_some((path, bytes))
        });
        maps.next()
    }

    fn sums(&self) -> [String; 2] {
        let first = self.first.types("sha256sum < ~/pelago/files/large").out;
        [first, self.berlin.types("sha256sum < ~/berlin/files/large").out]
    }
}

/// The second reader of an office moves no bytes, also after a restart of the office.
#[test]
fn a_large_file_crosses_the_line_once() {
    let Some(offices) = Offices::new() else { return };
    offices.first.types("head -c 16777216 /dev/urandom > ~/pelago/files/large");
    let [here, there] = offices.sums();
    assert_eq!(here, there);
    assert!(offices.asked_from_there() >= BLOCKS);
    until("all blocks count as copies", || {
        // The head, each block, and the hash at the end.
        offices.map().is_some_and(|(_, bytes)| bytes == 54 + BLOCKS * 24 + 16)
    });
    let listed = offices.berlin.types("pelago site list -V ~/berlin").out;
    assert!(listed.contains("copies of 1 files of others: 16 MiB of at most 8.0 GiB"), "{listed}");
    offices.berlin.types("pelago unmount -V ~/berlin --timeout 100");
    offices.up_there();
    let before = offices.asked_from_there();
    assert_eq!(offices.sums(), [here.clone(), here]);
    let asked = offices.asked_from_there() - before;
    assert!(asked <= 8, "{asked}");
    // A change at the home makes another version, of which one block and the hashes are fetched.
    let change =
        "printf new | dd of=$HOME/pelago/files/large bs=1 seek=9000000 conv=notrunc 2> /dev/null";
    offices.first.types(change);
    let before = offices.asked_from_there();
    let [here, there] = offices.sums();
    assert_eq!(here, there);
    let asked = offices.asked_from_there() - before;
    assert!(asked <= 10, "{asked}");
    // Another mode makes one, too, of which no block is fetched.
    offices.first.types("chmod 640 ~/pelago/files/large");
    let before = offices.asked_from_there();
    assert_eq!(offices.sums()[1], there);
    let asked = offices.asked_from_there() - before;
    assert!(asked <= 10, "{asked}");
    offices.finish();
}

/// All of it is as it was at the cut, and nothing is changed.
#[test]
fn what_was_read_is_read_on_while_the_line_is_cut() {
    let Some(offices) = Offices::new() else { return };
    offices.first.types(
        "cd ~/pelago/files && mkdir docs && cd docs && echo text > note && ln -s note link && \
         head -c 1000000 /dev/urandom > large && echo never > unread",
    );
    let look = "cd ~/berlin/files/docs && ls && cat note link && readlink link && stat -c %s large \
                && sha256sum large && stat -c %a:%U note";
    let seen = offices.berlin.types(look).out;
    until("the copies count", || {
        let listed = offices.berlin.types("pelago site list -V ~/berlin").out;
        listed.contains("copies of 2 files of others")
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    offices.lab.network.cut(&offices.first);
    until("the first office counts as silent", || {
        tried(&offices.berlin, "cat ~/berlin/files/docs/unread").err.contains("Host is down")
    });
    offices.first.types("cd ~/pelago/files/docs && rm note && echo new > other && chmod 600 large");
    assert_eq!(offices.berlin.types(look).out, seen);
    for line in
        ["echo x >> note", "echo x > new", "rm note", "mv note moved", "mkdir dir && rmdir dir"]
    {
        let changed = tried(&offices.berlin, &format!("cd ~/berlin/files/docs && {line}"));
        assert!(changed.err.contains("Host is down"), "{line}: {changed:?}");
    }
    assert_eq!(offices.berlin.types(look).out, seen);
    let listed = offices.berlin.types("pelago site list -V ~/berlin").out;
    assert!(listed.contains("calls were answered from before its silence"), "{listed}");
    offices.lab.network.join(&offices.first);
    until("both have one tree again", || {
        tried(&offices.berlin, "ls ~/berlin/files/docs").out == "large\nlink\nother\nunread\n"
    });
    let link = tried(&offices.berlin, "cat ~/berlin/files/docs/link");
    assert!(link.err.contains("No such file"), "{link:?}");
    assert_eq!(offices.berlin.types("stat -c %a ~/berlin/files/docs/large").out, "600\n");
    offices.finish();
}
