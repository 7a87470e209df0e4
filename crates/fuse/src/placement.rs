//! On which processor requests are served: the caller's.
//!
//! A program asks, sleeps, and is woken by the answer. Left alone, the kernel wakes our thread on a
//! processor that idles, and the program's own idles meanwhile: each request wakes two processors
//! out of their sleep, which takes longer than most requests. Where one program asks alone, nothing
//! is gained by the second processor, so the threads of the session go to the program's; the
//! request then costs two switches of one processor. Where several ask, or bytes are read ahead
//! while the program works, threads go where the kernel likes.
//!
//! (Queues for each processor, as FUSE over `io_uring` has them, do the same where they are there.)

use std::fs::File;
use std::io::Read as _;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::operation::Operation;
use crate::request::Header;

/// Requests of one caller, and hardly any of others among them, until it is followed. Looking where
/// it is and going there takes as long as two or three requests save.
const SURE: u32 = 8;
/// How much others have to ask before somebody who has asked for long is not followed any more.
const MOST: u32 = 64;
/// What a request of somebody else counts for.
const OTHER: u32 = 8;
/// Requests after which is looked again where the caller is.
const LOOK_AGAIN: u32 = 256;
/// Reads of more bytes are sent ahead of what the program works on meanwhile.
const READ_AHEAD_BYTES: u32 = 64 << 10;
/// No processor in particular.
const ANYWHERE: u32 = u32::MAX;

/// Where the threads of a session shall be. Its lock is a leaf.
#[derive(Debug)]
pub(crate) struct Placement {
    follow: Mutex<Follow>,
    /// A processor, or [`ANYWHERE`].
    target: AtomicU32,
    /// Where threads were allowed to be at first; `None` where there is no choice.
    allowed: Option<CpuSet>,
}

/// Where one thread is.
#[derive(Debug)]
pub(crate) struct Place {
    target: u32,
}

/// Whom to follow; decides, and does nothing.
#[derive(Debug, Default)]
struct Follow {
    caller: u32,
    /// From zero to [`MOST`].
    score: u32,
    /// Requests until it is looked where the caller is.
    look_in: u32,
    follows: bool,
}

/// What to do behind a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advice {
    Nothing,
    /// Go where this caller is.
    GoTo(u32),
    /// Go anywhere.
    LetGo,
}

impl Placement {
    /// For threads that may be where the calling one may be.
    pub(crate) fn new() -> Self {
        let allowed = sched_getaffinity(None).ok().filter(|allowed| allowed.count() > 1);
        let follow = Mutex::new(Follow::default());
        Self { follow, target: AtomicU32::new(ANYWHERE), allowed }
    }

    /// A request was served.
    pub(crate) fn served(&self, header: &Header, overlaps: bool) {
        let Some(allowed) = &self.allowed else { return };
        let advice = self.follow.lock().hear(header.pid, overlaps);
        let target = match advice {
            Advice::Nothing => return,
            Advice::LetGo => ANYWHERE,
            Advice::GoTo(caller) => match processor(caller) {
                Some(processor) if allowed.is_set(processor as usize) => processor,
                // It is not ours to see, or not where we may be.
                _ => ANYWHERE,
            },
        };
        self.target.store(target, Ordering::Relaxed);
    }

    /// Brings the calling thread where threads shall be.
    pub(crate) fn take(&self, place: &mut Place) {
        let target = self.target.load(Ordering::Relaxed);
        let Some(allowed) = &self.allowed else { return };
        if target == place.target {
            return;
        }
        place.target = target;
        let mut one = CpuSet::new();
        let set = if target == ANYWHERE {
            allowed
        } else {
            one.set(target as usize);
            &one
        };
        if let Err(error) = sched_setaffinity(None, set) {
            tracing::debug!(%error, target, "a thread stays where it is");
        }
    }
}

impl Place {
    /// Of a thread that was not brought anywhere.
    pub(crate) const fn new() -> Self {
        Self { target: ANYWHERE }
    }
}

/// Whether the caller may work on while this is served, so that a second processor is of use.
pub(crate) const fn overlaps(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Read(read) if read.size > READ_AHEAD_BYTES)
}

impl Follow {
    /// A request by `caller`; zero: nobody waits for it.
    fn hear(&mut self, caller: u32, overlaps: bool) -> Advice {
        if caller == 0 {
            return Advice::Nothing;
        }
        if caller == self.caller && !overlaps {
            self.score = MOST.min(self.score + 1);
            return self.look();
        }
        self.score = self.score.saturating_sub(OTHER);
        if self.score > 0 {
            return Advice::Nothing;
        }
        *self = Self { caller, score: u32::from(!overlaps), look_in: 0, follows: self.follows };
        if std::mem::take(&mut self.follows) { Advice::LetGo } else { Advice::Nothing }
    }

    fn look(&mut self) -> Advice {
        if self.score < SURE {
            return Advice::Nothing;
        }
        if self.look_in > 0 {
            self.look_in -= 1;
            return Advice::Nothing;
        }
        self.look_in = LOOK_AGAIN;
        self.follows = true;
        Advice::GoTo(self.caller)
    }
}

/// The processor on which a thread is, or was when it fell asleep.
fn processor(thread: u32) -> Option<u32> {
    // Enough for a name of sixteen bytes and fifty numbers.
    let mut stat = [0; 2048];
    let length = File::open(format!("/proc/{thread}/stat")).ok()?.read(&mut stat).ok()?;
    processor_of(stat.get(..length)?)
}

/// The 39th field of `/proc/PID/stat`. The second is a name in parentheses, and may have any bytes.
fn processor_of(stat: &[u8]) -> Option<u32> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(follow: &mut Follow, callers: impl IntoIterator<Item = u32>) -> Vec<Advice> {
        let heard = callers.into_iter().map(|caller| follow.hear(caller, false));
        heard.filter(|advice| *advice != Advice::Nothing).collect()
    }

    #[test]
    fn who_asks_alone_is_followed_and_looked_for_again() {
        let mut follow = Follow::default();
        assert_eq!(hear(&mut follow, [7; SURE as usize - 1]), []);
        assert_eq!(hear(&mut follow, [7]), [Advice::GoTo(7)]);
        assert_eq!(hear(&mut follow, [7; LOOK_AGAIN as usize]), []);
        assert_eq!(hear(&mut follow, [7]), [Advice::GoTo(7)]);
    }

    #[test]
    fn where_two_ask_in_turns_nobody_is_followed() {
        let mut follow = Follow::default();
        assert_eq!(hear(&mut follow, [7, 8].repeat(1000)), []);
        assert_eq!(hear(&mut follow, [7; 20]), [Advice::GoTo(7)]);
        assert_eq!(hear(&mut follow, [7, 8].repeat(1000)), [Advice::LetGo]);
    }

    #[test]
    fn a_single_question_of_another_changes_nothing() {
        let mut follow = Follow::default();
        assert_eq!(hear(&mut follow, [7; 40]), [Advice::GoTo(7)]);
        assert_eq!(hear(&mut follow, [9, 7, 7, 7, 7, 7, 7, 7, 7, 9, 0, 0, 0]), []);
    }

    #[test]
    fn the_next_of_many_short_programs_is_followed_soon() {
        let mut follow = Follow::default();
        let _advice = hear(&mut follow, [7; 1000]);
        let advice = hear(&mut follow, [8; (MOST / OTHER + SURE) as usize]);
        assert_eq!(advice, [Advice::LetGo, Advice::GoTo(8)]);
    }

    #[test]
    fn who_reads_ahead_is_left_alone() {
        let mut follow = Follow::default();
        for _ in 0..1000 {
            assert_eq!(follow.hear(7, true), Advice::Nothing);
        }
        let _advice = hear(&mut follow, [7; 40]);
        let advice: Vec<_> = (0..100).map(|_| follow.hear(7, true)).collect();
        assert_eq!(advice.iter().filter(|advice| **advice == Advice::LetGo).count(), 1);
        assert!(!advice.contains(&Advice::GoTo(7)));
    }

    #[test]
    fn the_processor_is_the_thirty_ninth_field_whatever_the_name() {
        let mut fields: Vec<String> = (1..=52).map(|field| format!("{}", 1000 + field)).collect();
        fields[1] = "(a ) 5 (b)".to_owned();
        fields[38] = "3".to_owned();
        assert_eq!(processor_of(fields.join(" ").as_bytes()), Some(3));
        for broken in [&b""[..], b"1 (x", b"1 (x) S 2", b"1 (x) \xff"] {
            assert_eq!(processor_of(broken), None);
        }
    }

    #[test]
    fn this_thread_is_on_a_processor() {
        let thread = rustix::thread::gettid().as_raw_pid();
        let allowed = sched_getaffinity(None).unwrap();
        let processor = processor(thread.cast_unsigned()).unwrap();
        assert!(allowed.is_set(processor as usize));
    }
}
