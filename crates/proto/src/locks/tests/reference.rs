//! A reference that keeps each byte of small files, and random programs that compare the table with
//! it after every step.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Bytes of a file. The last one stands for all after it.
const BYTES: u64 = 12;

/// A step of a program.
#[derive(Debug, Clone)]
enum Step {
    Set { request: LockRequest, wait: bool },
    Cancel(SessionId, RequestId),
    DropOwner(InodeId, Holder, LockKind),
    DropOpen(SessionId, OpenId),
    DropSession(SessionId),
}

/// [`Ended`] as sets: the order among several files does not matter.
#[derive(Debug, PartialEq, Eq)]
struct EndedSets {
    granted: BTreeSet<WaiterId>,
    cancelled: BTreeSet<WaiterId>,
}

/// For each byte that is locked, its holders, and whether they write.
type Bytes = BTreeMap<u64, BTreeMap<Holder, bool>>;

#[derive(Default)]
struct Reference {
    files: BTreeMap<FileKey, Bytes>,
    opens: BTreeMap<(Holder, FileKey), OpenId>,
    /// In the order of arrival.
    queue: Vec<(WaiterId, RequestId, LockRequest)>,
}

impl Reference {
    fn bytes(lock: &FileLock) -> impl Iterator<Item = u64> + use<> {
        let range = lock.range();
        range.start..=range.end.min(BYTES - 1)
    }

    fn conflicting(&self, request: &LockRequest) -> BTreeSet<Holder> {
        let LockRequest { ino, holder, lock, .. } = request;
        let writes = lock.mode == LockMode::Write;
        let Some(bytes) = self.files.get(&FileKey::of(*ino, lock.kind)) else {
            return BTreeSet::new();
        };
        let holders = Self::bytes(lock).filter_map(|byte| bytes.get(&byte)).flatten();
        holders
            .filter(|(other, other_writes)| *other != holder && (writes || **other_writes))
            .map(|(other, _)| *other)
            .filter(|_| lock.mode != LockMode::Unlock)
            .collect()
    }

    fn set(&mut self, request: &LockRequest) {
        let LockRequest { ino, open, holder, lock } = *request;
        let key = FileKey::of(ino, lock.kind);
        let bytes = self.files.entry(key).or_default();
        for byte in Self::bytes(&lock) {
            let holders = bytes.entry(byte).or_default();
            match lock.mode {
                LockMode::Unlock => holders.remove(&holder),
                mode => holders.insert(holder, mode == LockMode::Write),
            };
        }
        if bytes.values().all(|holders| !holders.contains_key(&holder)) {
            self.opens.remove(&(holder, key));
        } else if lock.mode != LockMode::Unlock {
            self.opens.insert((holder, key), open);
        }
    }

    /// Grants the oldest request that is free, again and again.
    fn grant(&mut self) -> Vec<WaiterId> {
        let mut granted = Vec::new();
        while let Some(index) =
            self.queue.iter().position(|(.., request)| self.conflicting(request).is_empty())
        {
            let (id, _, request) = self.queue.remove(index);
            self.set(&request);
            granted.push(id);
        }
        granted
    }

    fn unlock(&mut self, holder: Holder, key: FileKey) -> Vec<WaiterId> {
        let kind = if key.is_flock { LockKind::Flock } else { LockKind::Posix };
        let lock = lock(kind, LockMode::Unlock, 0..=BYTES - 1);
        self.set(&LockRequest { ino: key.ino, open: OpenId(0), holder, lock });
        self.grant()
    }

    /// Returns whether a path of waiting processes leads from the request back to its holder.
    fn is_deadlock(&self, request: &LockRequest) -> bool {
        let mut reached = self.conflicting(request);
        loop {
            let waiting = self.queue.iter().map(|(.., waiting)| waiting);
            let waiting = waiting.filter(|waiting| {
                waiting.lock.kind == LockKind::Posix && reached.contains(&waiting.holder)
            });
            let more: BTreeSet<_> = waiting.flat_map(|waiting| self.conflicting(waiting)).collect();
            if more.is_subset(&reached) {
                return reached.contains(&request.holder);
            }
            reached.extend(more);
        }
    }

    /// Ends the locks and the waiting requests for which `is_ended` is true.
    fn end(&mut self, is_ended: impl Fn(Holder, OpenId) -> bool) -> EndedSets {
        let ended = |(_, _, waiting): &(WaiterId, RequestId, LockRequest)| {
            is_ended(waiting.holder, waiting.open)
        };
        let cancelled = self.queue.extract_if(.., |waiting| ended(waiting)).map(|(id, ..)| id);
        let cancelled = cancelled.collect();
        let locks: Vec<_> = self.opens.iter().map(|(key, open)| (*key, *open)).collect();
        let mut granted = BTreeSet::new();
        for ((holder, key), open) in locks {
            if is_ended(holder, open) {
                granted.extend(self.unlock(holder, key));
            }
        }
        EndedSets { granted, cancelled }
    }

    /// Returns the ranges of a file in the order of holders and bytes, neighbours joined.
    fn ranges(&self, key: FileKey) -> Vec<(Holder, (u64, u64), bool)> {
        let mut ranges: Vec<(Holder, (u64, u64), bool)> = Vec::new();
        let bytes = self.files.get(&key).into_iter().flatten();
        let each = bytes.flat_map(|(byte, holders)| {
            holders.iter().map(|(holder, write)| (*holder, *byte, *write))
        });
        let mut each: Vec<_> = each.collect();
        each.sort_unstable();
        for (holder, byte, write) in each {
            match ranges.last_mut() {
                Some((last, range, mode))
                    if (*last, *mode) == (holder, write) && range.1 + 1 == byte =>
                {
                    range.1 = byte;
                }
                _ => ranges.push((holder, (byte, byte), write)),
            }
        }
        ranges
    }
}

/// Does one step with both, and compares the results.
fn step(table: &mut LockTable, reference: &mut Reference, number: u64, step: &Step) {
    match step {
        Step::Set { request, wait } => set(table, reference, request, *wait, number),
        Step::Cancel(session, request) => {
            let is_it = |(_, number, waiting): &(WaiterId, RequestId, LockRequest)| {
                waiting.holder.session == *session && number == request
            };
            let index = reference.queue.iter().position(is_it);
            let expected = index.map(|index| reference.queue.remove(index).0);
            assert_eq!(table.cancel(*session, *request), expected);
        }
        Step::DropOwner(ino, holder, kind) => {
            let expected = reference.unlock(*holder, FileKey::of(*ino, *kind));
            assert_eq!(table.drop_owner(*ino, *holder, *kind), expected);
        }
        Step::DropOpen(session, open) => {
            let is_it = |holder: Holder, other| (holder.session, other) == (*session, *open);
            let expected = reference.end(is_it);
            compare_ended(table.drop_open(*session, *open), expected);
        }
        Step::DropSession(session) => {
            let expected = reference.end(|holder, _| holder.session == *session);
            compare_ended(table.drop_session(*session), expected);
        }
    }
}

fn compare_ended(ended: Ended, expected: EndedSets) {
    let Ended { granted, cancelled } = ended;
    let granted = granted.into_iter().collect();
    let cancelled = cancelled.into_iter().collect();
    assert_eq!(EndedSets { granted, cancelled }, expected);
}

fn set(
    table: &mut LockTable,
    reference: &mut Reference,
    request: &LockRequest,
    wait: bool,
    number: u64,
) {
    let is_free = reference.conflicting(request).is_empty();
    assert_eq!(table.would_wait(request), !is_free);
    let deadlock =
        wait && !is_free && request.lock.kind == LockKind::Posix && reference.is_deadlock(request);
    let mut expected = Vec::new();
    if is_free {
        reference.set(request);
        expected = reference.grant();
    } else if request.lock.kind == LockKind::Flock {
        expected = reference.unlock(request.holder, FileKey::of(request.ino, LockKind::Flock));
    }
    let (result, granted) = match wait {
        true => table.set_or_wait(request, RequestId(number)),
        false => {
            let (result, granted) = table.set(request);
            (result.map(|()| SetLock::Granted), granted)
        }
    };
    assert_eq!(granted, expected);
    match result {
        Ok(SetLock::Granted) => assert!(is_free),
        Ok(SetLock::Waiting(id)) => {
            assert!(wait && !is_free && !deadlock);
            reference.queue.push((id, RequestId(number), *request));
        }
        Err(Code::Deadlock) => assert!(deadlock),
        Err(Code::LockHeld) => assert!(!wait && !is_free),
        Err(other) => panic!("{other:?}"),
    }
}

/// Compares all that can be observed, and checks the two invariants.
fn compare(table: &LockTable, reference: &Reference) {
    let mut locks = 0;
    for ino in [INO, OTHER] {
        for kind in [LockKind::Flock, LockKind::Posix] {
            let key = FileKey::of(ino, kind);
            let clip = |end: u64| end.min(BYTES - 1);
            let all = table.files.get(&key).map(|file| file.locks.all()).unwrap_or_default();
            let all = all
                .into_iter()
                .map(|(by, range, write)| (by, (range.start, clip(range.end)), write));
            let all: Vec<_> = all.collect();
            assert_eq!(all, reference.ranges(key));
            locks += all.len();
            for (one, first, writes) in &all {
                let conflicts = all.iter().any(|(other, second, _)| {
                    other != one && *writes && first.0 <= second.1 && second.0 <= first.1
                });
                assert!(!conflicts, "two locks conflict: {all:?}");
            }
            for mode in [LockMode::Read, LockMode::Write] {
                let probe = lock(kind, mode, 3..=8);
                let found = table.test(ino, holder(1, 1), &probe);
                let found = found.map(|found| (found.start, found.mode == LockMode::Write));
                let conflicting = all.iter().filter(|(other, range, write)| {
                    let overlaps = range.0 <= clip(probe.end) && range.1 >= probe.start;
                    *other != holder(1, 1) && overlaps && (*write || mode == LockMode::Write)
                });
                let first = conflicting.map(|(other, range, write)| (range.0, *other, *write));
                assert_eq!(found, first.min().map(|(start, _, write)| (start, write)));
            }
        }
    }
    assert_eq!(table.counts(), LockCounts { locks, waiters: reference.queue.len() });
    for (_, _, request) in &reference.queue {
        assert!(!reference.conflicting(request).is_empty(), "it waits for nobody: {request:?}");
    }
}

fn holders() -> impl Strategy<Value = Holder> {
    (1..3_u64, 1..4_u64).prop_map(|(session, owner)| holder(session, owner))
}

fn kinds() -> impl Strategy<Value = LockKind> {
    select(vec![LockKind::Flock, LockKind::Posix, LockKind::Posix, LockKind::OpenFile])
}

fn requests() -> impl Strategy<Value = LockRequest> {
    let modes = select(vec![LockMode::Read, LockMode::Write, LockMode::Unlock]);
    let opens = 0..2_u64;
    let range = (0..BYTES, 0..BYTES).prop_map(|(one, other)| one.min(other)..=one.max(other));
    (select(vec![INO, OTHER]), opens, holders(), kinds(), modes, range).prop_map(
        |(ino, open, holder, kind, mode, range)| LockRequest {
            ino,
            open: OpenId(open),
            holder,
            lock: lock(kind, mode, range),
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    let inos = select(vec![INO, OTHER]);
    prop_oneof![
        16 => (requests(), any::<bool>()).prop_map(|(request, wait)| Step::Set { request, wait }),
        2 => (1..3_u64, 0..60_u64)
            .prop_map(|(session, number)| Step::Cancel(SessionId(session), RequestId(number))),
        2 => (inos, holders(), kinds())
            .prop_map(|(ino, holder, kind)| Step::DropOwner(ino, holder, kind)),
        1 => (1..3_u64, 0..2_u64)
            .prop_map(|(session, open)| Step::DropOpen(SessionId(session), OpenId(open))),
        1 => (1..3_u64).prop_map(|session| Step::DropSession(SessionId(session))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn the_table_does_what_the_reference_does(program in prop::collection::vec(steps(), 1..60)) {
        let mut table = LockTable::default();
        let mut reference = Reference::default();
        for (number, next) in (1..).zip(&program) {
            step(&mut table, &mut reference, number, next);
            compare(&table, &reference);
        }
        for session in [1, 2] {
            let _ended = table.drop_session(SessionId(session));
        }
        assert_eq!(table.counts(), LockCounts::default());
        assert!(table.files.is_empty() && table.opens.is_empty() && table.holders.is_empty());
        assert!(table.waiters.all.is_empty() && table.sessions.is_empty());
    }
}
