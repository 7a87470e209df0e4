//! Each error that a program can get only in a mount of another machine has a test of its name.

use std::fs;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::harness::program::until;
use crate::{errno, on_server, stop};

/// With `--soft` a request fails after that time, and works again once the server does.
#[test]
fn timed_out() {
    on_server(|world| {
        let far = world.mount(&world.address, "tls", &["--soft", "2"]);
        fs::write(far.path("file"), "x").unwrap();
        let server = world.volume.pid().unwrap();
        stop(server);
        let start = Instant::now();
        let failed = fs::metadata(far.path("file"));
        let waited = start.elapsed();
        rustix::process::kill_process(server, Signal::CONT).unwrap();
        assert_eq!(errno(failed), Errno::TIMEDOUT);
        assert!(waited >= Duration::from_secs(2), "{waited:?}");
        until("it works again", || fs::write(far.path("file"), "again").is_ok());
        assert_eq!(fs::read(world.volume.files().join("file")).unwrap(), b"again");
    });
}
