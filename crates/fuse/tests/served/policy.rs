//! Callers beside a program that is busy, and the scheduling policy of threads that rest.

use std::fs;
use std::hint::spin_loop;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::alone::is_alone;
use crate::callers::{caller, on_one_processor};
use crate::mounted;

const LOOKUPS: usize = 2000;

#[test]
fn a_busy_program_keeps_no_caller_from_its_replies() {
    let Some(mut mounted) = mounted() else { return };
    let has_ended = &AtomicBool::new(false);
    let begin = Instant::now();
    on_one_processor(|| {
        thread::scope(|scope| {
            caller(scope, || {
                while !has_ended.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
            for number in 0..LOOKUPS {
                let absent = fs::metadata(mounted.path(&format!("absent-{number}")));
                assert_eq!(absent.unwrap_err().kind(), ErrorKind::NotFound);
            }
            has_ended.store(true, Ordering::Relaxed);
        });
    });
    let taken = begin.elapsed();
    println!("{LOOKUPS} lookups beside a busy program took {taken:?}");
    assert!(taken < Duration::from_secs(60));
    mounted.end().unwrap();
}

/// Alone, because it looks at all threads of the process.
#[test]
fn threads_that_rest_have_the_usual_policy() {
    if !is_alone("policy::threads_that_rest_have_the_usual_policy") {
        return;
    }
    let Some(mut mounted) = mounted() else { return };
    let begin = Instant::now();
    while idle_threads().is_empty() && begin.elapsed() < Duration::from_millis(500) {
        assert!(fs::metadata(mounted.path("absent")).is_err());
    }
    println!("{} threads let others go first", idle_threads().len());
    thread::sleep(Duration::from_secs(1));
    assert_eq!(idle_threads(), Vec::<String>::new());
    mounted.end().unwrap();
}

/// `SCHED_IDLE`, and where the policy is behind the state of a thread (`proc(5)`).
const SCHED_IDLE: &str = "5";
const POLICY: usize = 38;

/// Returns the threads of the ring that have `SCHED_IDLE`.
fn idle_threads() -> Vec<String> {
    let stats = fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")).ok());
    let is_idle = |stat: &String| {
        let (name, rest) = stat.rsplit_once(") ").unwrap();
        name.contains("(fuse-ring-") && rest.split(' ').nth(POLICY) == Some(SCHED_IDLE)
    };
    stats.filter(is_idle).collect()
}
