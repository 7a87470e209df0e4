//! A volume that is served over HTTP, and downloads from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::harness::program::{Ran, pelago, run, until};
use crate::harness::volume::{Volume, cannot_mount};

/// A volume with an HTTP server, and a folder for downloads.
pub(crate) struct Served {
    pub(crate) volume: Volume,
    pub(crate) address: String,
}

impl Served {
    pub(crate) fn new() -> Option<Self> {
        if let Some(reason) = cannot_mount() {
            println!("skipped: {reason}");
            return None;
        }
        Some(Self::of(Volume::new()))
    }

    pub(crate) fn of(volume: Volume) -> Self {
        let address = up(&volume, "127.0.0.1:0");
        fs::create_dir(volume.root.join("here")).unwrap();
        Self { volume, address }
    }

    /// Starts the server again at its address.
    pub(crate) fn up_again(&self) {
        assert_eq!(up(&self.volume, &self.address), self.address);
    }

    /// Writes a file, and waits until it is closed for the server, too.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.volume.files().join(name), bytes).unwrap();
        self.volume.wait_until_closed();
    }

    pub(crate) fn here(&self, name: &str) -> PathBuf {
        self.volume.root.join("here").join(name)
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Downloads to a name in the folder for downloads.
    pub(crate) fn get(&self, url: &str, name: &str, options: &[&str]) -> Ran {
        run(&mut get(&self.volume.root, url, &self.here(name), options))
    }

    pub(crate) fn spawn(&self, url: &str, name: &str, options: &[&str]) -> Child {
        spawn(&self.volume.root, url, &self.here(name), options)
    }

    /// Checks that nothing but these files is in the folder for downloads.
    pub(crate) fn expect_here(&self, names: &[&str]) {
        let mut found: Vec<String> = fs::read_dir(self.here(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(found, names);
    }
}

/// Starts the volume's server at an address, and returns that with its port.
fn up(volume: &Volume, address: &str) -> String {
    let report = volume.up(&["--http", address, "--json"]).expect_success().json();
    let url = report["http"].as_str().unwrap();
    url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned()
}

pub(crate) fn get(home: &Path, url: &str, to: &Path, options: &[&str]) -> Command {
    let mut command = pelago(home, ["get", url]);
    command.arg(to).args(options);
    command
}

pub(crate) fn spawn(home: &Path, url: &str, to: &Path, options: &[&str]) -> Child {
    let mut command = get(home, url, to, options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns how many blocks a download has noted in the file beside its target.
pub(crate) fn noted_blocks(target: &Path) -> u32 {
    let name = format!(".{}.pelago-state", target.file_name().unwrap().to_str().unwrap());
    let bytes = fs::read(target.with_file_name(name)).unwrap_or_default();
    let records = bytes.get(8192..).unwrap_or_default().chunks(40);
    records.map(|it| u16::from_le_bytes([it[0], it[1]]).count_ones()).sum()
}

/// Waits until a download has noted so many blocks.
pub(crate) fn until_noted(target: &Path, blocks: u32) {
    until("so many blocks came", || noted_blocks(target) >= blocks);
}

/// Waits for the end of a download.
pub(crate) fn end(mut child: Child) -> Ran {
    let code = crate::harness::program::wait(&mut child);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { code, out: text(output.stdout), err: text(output.stderr) }
}
