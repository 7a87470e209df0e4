//! Each error that a program can get only in a mount of another machine has a test of its name.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::far::forwarder::Forwarder;
use crate::far::{errno, on_server, stop};
use crate::harness::program::until;

/// With `--soft` a request fails after that time, and works again once the server does.
#[test]
fn timed_out() {
    on_server(|world| {
        let far = world.mount(&world.address, "tls", &["--soft", "2"]);
        fs::write(far.path("file"), "x").unwrap();
        let server = world.volume.pid().unwrap();
        stop(server);
        let start = Instant::now();
        let failed = fs::metadata(far.path("other"));
        let waited = start.elapsed();
        rustix::process::kill_process(server, Signal::CONT).unwrap();
        assert_eq!(errno(failed), Errno::TIMEDOUT);
        assert!(waited >= Duration::from_secs(2), "{waited:?}");
        until("it works again", || fs::write(far.path("file"), "again").is_ok());
        assert_eq!(fs::read(world.volume.files().join("file")).unwrap(), b"again");
    });
}

/// The mount is cut off for so long that the server goes on without it: what it has kept back is
/// too late.
#[test]
fn lease_lost() {
    on_server(|world| {
        let forwarder = Forwarder::to(world.tcp());
        let mount = world.mount(&world.address_at(forwarder.port), "tls", &[]);
        let mut file = File::create(mount.path("file")).unwrap();
        forwarder.cut(true);
        file.write_all(b"kept back").unwrap();
        // Waits for a term.
        fs::write(world.volume.files().join("file"), "after").unwrap();
        forwarder.cut(false);
        assert_eq!(errno(file.sync_all()), Errno::IO);
        drop(file);
        assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "after");
        let point = mount.point.to_str().unwrap();
        let said = world.pelago(&["status", point, "--json"]).expect_success().json();
        assert_eq!(said["lost_writes"].as_array().unwrap().len(), 1, "{said}");
    });
}
