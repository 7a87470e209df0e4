//! A late reply delays no other request.

use std::fs::{self, File};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::mounted;
use crate::memory::spread;

const DEADLINE: Duration = Duration::from_secs(60);
/// More fsyncs than there can be event loops.
const STALLED: usize = 12;

#[test]
fn stalled_fsyncs_delay_no_other_request() {
    let Some(mounted) = mounted(spread) else { return };
    mounted.memory.stalls.store(true, Ordering::SeqCst);
    let (tell, told) = mpsc::channel();
    let mut threads = Vec::new();
    for index in 0..STALLED {
        let file = File::create(mounted.path(&format!("stalled{index}"))).unwrap();
        let tell = tell.clone();
        let syncs = move || tell.send(file.sync_all().is_ok()).unwrap();
        threads.push(thread::Builder::new().spawn(syncs).unwrap());
    }
    let start = Instant::now();
    while mounted.memory.waiting() < STALLED {
        assert!(start.elapsed() < DEADLINE, "fsyncs did not arrive");
        thread::yield_now();
    }
    fs::write(mounted.path("free"), b"moves on").unwrap();
    assert_eq!(fs::read(mounted.path("free")).unwrap(), b"moves on");
    assert_eq!(fs::read_dir(mounted.mount.point()).unwrap().count(), STALLED + 1);
    assert!(told.try_recv().is_err());
    mounted.memory.go_on();
    for _ in 0..STALLED {
        assert_eq!(told.recv_timeout(DEADLINE), Ok(true));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}
