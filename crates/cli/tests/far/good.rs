//! Well-behaved mounts that a server must serve at all times, whatever bad peers send.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::far::on_server;
use crate::far::world::World;

/// The longest time of a few operations of a good mount beside bad peers. A quiet machine needs
/// milliseconds; this is less than the time after which a server gives up a silent peer.
const DEADLINE: Duration = Duration::from_secs(9);

/// Runs `work` beside two good mounts, by the Unix socket and by TLS. Each must be served within
/// its deadline, all the time.
pub(crate) fn with_a_good_mount(work: impl FnOnce(&World)) {
    on_server(|world| {
        let good = world.mount_both();
        let stop = AtomicBool::new(false);
        let longest = thread::scope(|scope| {
            let use_it = |root: &PathBuf| {
                let root = root.clone();
                let stop = &stop;
                scope.spawn(move || {
                    let mut rounds = 0;
                    let mut longest = Duration::ZERO;
                    while !stop.load(Ordering::Relaxed) {
                        longest = longest.max(round_trip(&root, rounds));
                        rounds += 1;
                        // The pace of the user, which leaves processors to the bad peers.
                        thread::sleep(Duration::from_millis(1));
                    }
                    (rounds, longest)
                })
            };
            let users: Vec<_> = good.iter().map(|mount| use_it(&mount.point)).collect();
            let guard = StopAtEnd(&stop);
            work(world);
            good.iter().for_each(|mount| {
                round_trip(&mount.point, u32::MAX);
            });
            drop(guard);
            users.into_iter().map(|user| user.join().unwrap()).collect::<Vec<_>>()
        });
        println!("rounds of the good mounts, and the longest of each: {longest:?}");
        assert!(longest.iter().all(|(rounds, _)| *rounds > 0), "{longest:?}");
        assert!(longest.iter().all(|(_, longest)| *longest < DEADLINE), "{longest:?}");
    });
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes, reads and removes a file. Returns how long that took.
pub(crate) fn round_trip(root: &Path, round: u32) -> Duration {
    let start = Instant::now();
    let path = root.join(format!("{}{round}", root.file_name().unwrap().display()));
    fs::write(&path, path.as_os_str().as_encoded_bytes()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), path.as_os_str().as_encoded_bytes());
    fs::remove_file(&path).unwrap();
    start.elapsed()
}
