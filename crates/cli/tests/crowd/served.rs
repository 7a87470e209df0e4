//! A volume with little memory that is served over HTTP.

use std::fs::{self, File};

use pelago_wire::limits::EXTENT_BYTES;

use crate::crowd::client::{Client, Kind};
use crate::harness::page_cache::forget;
use crate::harness::volume::{Volume, cannot_mount};

/// A volume with an HTTP server that keeps 8 MiB of files in memory.
pub(crate) struct Served {
    pub(crate) volume: Volume,
    address: String,
}

/// A part of what the server has counted.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) extents_read: u64,
    pub(crate) extents_in_memory: u64,
    pub(crate) clients: u64,
}

impl Traffic {
    /// Returns how often a file of so many bytes was read into memory.
    pub(crate) fn passes(&self, file: usize) -> f64 {
        (self.extents_read as usize * EXTENT_BYTES) as f64 / file as f64
    }
}

impl Served {
    pub(crate) fn new() -> Option<Self> {
        if let Some(reason) = cannot_mount() {
            println!("skipped: {reason}");
            return None;
        }
        let volume = Volume::new();
        let options = ["--http", "127.0.0.1:0", "--json", "--memory", "20MiB"];
        let report = volume.up(&options).expect_success().json();
        let url = report["http"].as_str().unwrap();
        let address = url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        Some(Self { volume, address })
    }

    /// Writes a file, waits until it is closed for the server too, and takes it out of the page
    /// cache.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.volume.files().join(name);
        fs::write(&path, bytes).and_then(|()| File::open(path)?.sync_all()).unwrap();
        self.volume.wait_until_closed();
        forget(&self.volume.dir.join("content"));
    }

    pub(crate) fn client(&self, name: &str, kind: Kind) -> Client {
        Client::ask(&self.address, name, kind)
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let status = self.volume.run("status", &["--json"]).expect_success().json();
        let number = |key: &str| status["http_traffic"][key].as_u64().unwrap();
        Traffic {
            extents_read: number("extents_read"),
            extents_in_memory: number("extents_in_memory"),
            clients: number("clients"),
        }
    }
}
