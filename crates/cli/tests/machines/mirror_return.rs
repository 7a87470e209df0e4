//! The way back after a forced promotion: the old primary's machine is there again, its folder
//! becomes a mirror of the new primary without a copy, and what only it had is listed and kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::harness::program::until;
use crate::harness::volume::detach_all;
use crate::machines::lab::{kill, pid_of};
use crate::machines::mirror::{Sites, sums};
use crate::machines::network::tried;

/// A command like README's, at the first site.
const ADOPT: &str = "pelago serve ~/mirrors --mirrors --adopt ~/pelago --listen";

impl Sites {
    /// Has the old primary's site keep mirrors, with these options, and returns the process's id.
    fn keep_at_home(&self, options: &str) {
        let at = &self.home.address;
        self.home.types(&format!(
            "pelago serve ~/mirrors --mirrors {options} --listen {at}:7442 \
            --detach"
        ));
        let status = self.home.types("pelago status ~/mirrors --json").json();
        self.lab.ends(pid_of(&status));
    }

    /// Serves the folder of a promoted mirror at its site.
    fn up_there(&self, image: &Path) {
        let up = format!("pelago up {} --detach --passthrough never", image.display());
        self.there.types(&up);
        let status = self.there.types(&format!("pelago status {} --json", image.display()));
        self.lab.ends(pid_of(&status.json()));
    }

    /// Kills the adoption of the old primary's folder in several moments, and completes it.
    fn adopt(&self) {
        let folder = self.home.home.join("pelago");
        for round in 0..6 {
            let line = format!("exec {ADOPT} {}:7442", self.home.address);
            let mut adopting = self.home.command("sh");
            let quiet = adopting.args(["-c", &line]).stdout(Stdio::null()).stderr(Stdio::null());
            let mut adopting = quiet.spawn().unwrap();
            // Not a wait for a condition: each round kills it at another moment.
            thread::sleep(Duration::from_millis(20 + 40 * round));
            adopting.kill().unwrap();
            adopting.wait().unwrap();
            if !folder.exists() {
                break;
            }
        }
        self.keep_at_home(if folder.exists() { "--adopt ~/pelago" } else { "" });
        assert!(!folder.exists());
    }

    /// Returns the only folder of a mirror at the first site.
    fn returned(&self) -> PathBuf {
        let mut found = fs::read_dir(self.home.home.join("mirrors/mirrors")).unwrap();
        found.next().unwrap().unwrap().path()
    }
}

/// Fire, promotion, work at both, the way back, and the planned handover home.
#[test]
fn an_old_primary_comes_back_as_a_mirror_and_takes_over_again() {
    let Some(sites) = Sites::new() else { return };
    let line = "cd ~/pelago/files && mkdir folder && echo inner > folder/inner && echo gone > gone \
                && head -c 3000000 /dev/urandom > large && echo both > both && echo a > a";
    tried(&sites.home, line).expect_success();
    sites.wait();
    // The mirror is away; the primary goes on, and burns.
    kill(sites.keeper());
    let line = "cd ~/pelago/files && printf here | dd of=large bs=1 seek=1500000 conv=notrunc \
                status=none && rm gone && echo own > own && echo filled > folder/filled && \
                mv both both-here && echo more >> both-here && chmod 600 a";
    tried(&sites.home, line).expect_success();
    sites.home.types("pelago wait ~/pelago/files --level local");
    let own_large = fs::read(sites.tree().join("large")).unwrap();
    kill(sites.primary());
    detach_all(&sites.home.home);

    let image = sites.image();
    let promoted = sites.there.types("pelago site promote ~/mirrors/mirrors/* --force").out;
    assert!(promoted.contains("reign 2") && promoted.contains("--adopt"), "{promoted}");
    sites.up_there(&image);
    let tree = image.join("files");
    let line = format!(
        "cd {} && rm -r folder && mv both both-there && echo there >> both-there && \
         echo new > new && head -c 500000 /dev/urandom > other",
        tree.display()
    );
    tried(&sites.there, &line).expect_success();

    // The machine is back. Its volume is served until it hears of the promotion.
    sites.keep();
    // It may be down before its status can be asked.
    sites.home.types("pelago up ~/pelago --detach --passthrough never");
    until("it has heard of the promotion", || {
        tried(&sites.home, "pelago status ~/pelago --json").json()["state"] == "down"
    });
    detach_all(&sites.home.home);
    let log = fs::read_to_string(sites.home.home.join("pelago/log")).unwrap();
    assert!(
        log.contains("it is served here no more. `pelago serve DIR --mirrors --adopt"),
        "{log}"
    );
    let status = tried(&sites.home, "pelago status ~/pelago");
    assert!(status.out.contains("--mirrors --adopt"), "{status:?}");
    let refused = tried(&sites.home, "pelago up ~/pelago --detach");
    assert!(refused.err.contains("is not the primary") && refused.err.contains("--adopt"));

    sites.adopt();
    let status = sites.home.types("pelago status ~/mirrors").out;
    assert!(status.contains("was the primary of reign 1, and waits for the new one"), "{status}");
    let key = sites.there.types(&format!("pelago key show -V {}", image.display())).out;
    sites.home.types(&format!("pelago key allow {} -V ~/mirrors", key.trim()));
    let keeper = sites.home.types("pelago key show -V ~/mirrors").out;
    let at = format!("{}@{}:7442", keeper.trim(), sites.home.address);
    sites.there.types(&format!("pelago site mirror {at} -V {}", image.display()));
    // Killed in the middle of the comparison, or of carrying out what it has brought.
    for round in 0..4 {
        thread::sleep(Duration::from_millis(30 + 60 * round));
        kill(pid_of(&sites.home.types("pelago status ~/mirrors --json").json()));
        sites.keep_at_home("");
    }
    sites.there.types(&format!("pelago wait {} --level remote", tree.display()));
    let verified = sites.there.types(&format!("pelago verify {}", tree.display())).out;
    assert!(verified.starts_with("equal"), "{verified}");
    let log = fs::read_to_string(image.join("log")).unwrap();
    assert!(log.contains("the mirror is compared with the volume"), "{log}");
    assert!(!log.contains("all of the volume is copied"), "{log}");
    expect_kept(&sites, &own_large);

    // The planned way home.
    let after = sums(&sites.there, &tree);
    let handed = sites.there.types(&format!("pelago site promote -V {}", image.display())).out;
    assert!(handed.contains("reign 3"), "{handed}");
    let back = sites.returned();
    for (machine, path) in [(&sites.home, &back), (&sites.there, &image)] {
        let checked = machine.types(&format!("pelago check {} --json", path.display()));
        assert_eq!(checked.json()["whole"], true, "{checked:?}");
    }
    sites.home.types(&format!("pelago up {} --detach", back.display()));
    let status = sites.home.types(&format!("pelago status {} --json", back.display()));
    sites.lab.ends(pid_of(&status.json()));
    let files = back.join("files");
    assert_eq!(sums(&sites.home, &files), after);
    // What only the old primary had is copied back.
    let line = format!("cp -a ~/mirrors/kept/*/files/own {0} && cat {0}/own", files.display());
    assert_eq!(tried(&sites.home, &line).expect_success().out, "own\n");
    sites.logs_are_quiet_after_return(&back);
}

/// Checks the list of what only the old primary had, and the files.
fn expect_kept(sites: &Sites, large: &[u8]) {
    let kept = sites.home.types("pelago conflicts -V ~/mirrors --json").json();
    let kept = &kept["kept"][0];
    let changes = kept["changes"].as_array().unwrap();
    let mut lines: Vec<String> = changes
        .iter()
        .map(|change| {
            let text = |name: &str| change[name].as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", text("what"), text("path"), text("there"))
        })
        .collect();
    lines.sort();
    let expected = [
        "attributes a -",
        "changed both-here both-there",
        "changed large -",
        "missing folder/filled -",
        "missing own -",
        "named both-here both-there",
        "removed gone -",
    ];
    assert_eq!(lines, expected, "{kept}");
    let files = PathBuf::from(kept["files"].as_str().unwrap());
    assert!(fs::read(files.join("large")).unwrap() == large);
    assert_eq!(fs::read_to_string(files.join("folder/filled")).unwrap(), "filled\n");
    assert_eq!(fs::read_to_string(files.join("both-here")).unwrap(), "both\nmore\n");
    let listed = sites.home.types("pelago conflicts -V ~/mirrors").out;
    assert!(listed.contains("changed     large\n"), "{listed}");
    let status = sites.home.types("pelago status ~/mirrors").out;
    assert!(status.contains("kept      what only a replaced primary had"), "{status}");
}

impl Sites {
    fn logs_are_quiet_after_return(&self, back: &Path) {
        for log in [back.join("log"), self.home.home.join("mirrors/log")] {
            let text = fs::read_to_string(log).unwrap();
            assert!(!text.contains("panicked"), "{text}");
        }
    }
}
