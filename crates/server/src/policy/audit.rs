//! The audit log: the shares that were seen, their first uses, denials, revocations, changes of the
//! policy, and the ends of sessions.
//!
//! A request never waits for the disk: its line is put into a queue, which a thread of the pool
//! writes. A share of the roots has a budget of bytes a day, so that a hostile guest fills its own
//! part of the log only. What is left out is counted, in a line.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;
use pelago_keynote::{Principal, Right, SharedObject, hex};
use pelago_meta::shard::Placement;
use pelago_store::folder::Folder;
use pelago_wire::{Context, InodeId, Operation, limits};
use serde_json::{Map, Value, json};

use super::chain::{Chain, Link};
use super::moment::Moment;
use super::{Guest, Revoked};
use crate::pool::{Caller, Invocation, Pool};
use files::Files;

mod files;
pub(super) mod reading;

/// Bytes of lines that wait to be written.
const QUEUE_BYTES: usize = 1 << 20;
/// Chains whose first session was recorded. Beyond that the server forgets them all, and records
/// each of them once more.
const CHAINS: usize = 4096;
/// Shares of the roots that have a budget of their own a day. All others have one together.
const BUDGETS: usize = 4096;
/// Bytes of the conditions of a credential in a line.
const CONDITIONS_BYTES: usize = 512;
/// Keys of one credential in a line.
const KEYS: usize = 4;
/// Denials of one session in a second that get a line each.
const DENIALS_PER_SECOND: u32 = 10;
/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// The audit log of a volume.
pub(super) struct Audit {
    pool: Arc<Pool>,
    /// The folder of the volume.
    folder: Folder,
    /// A leaf lock, except that the pool's is taken after it.
    queue: Mutex<Queue>,
    /// Held while lines are written.
    files: Mutex<Files>,
    /// The days whose files could not be read, and `None` for the folder, each of which is in the
    /// server's log. A leaf lock.
    unread: Mutex<BTreeSet<Option<u32>>>,
}

#[derive(Default)]
struct Queue {
    lines: Vec<Line>,
    /// Bytes of the lines.
    bytes: usize,
    /// Lines that had no room.
    omitted: u64,
    /// True if a thread writes the lines, or will.
    is_scheduled: bool,
    /// The chains whose first session was recorded.
    chains: HashSet<[u8; 32]>,
    /// The day of the budgets, since 1970.
    day: u64,
    /// What each share of a root has written on this day.
    spent: HashMap<[u8; 32], Spent>,
}

/// What a share has written on one day.
#[derive(Default)]
struct Spent {
    bytes: usize,
    omitted: u64,
}

/// A line of the log.
struct Line {
    /// The second since 1970 in which it was recorded.
    seconds: u64,
    /// The object, without the line end.
    text: String,
}

/// The part of a guest's session that the log needs.
#[derive(Default)]
pub(super) struct SessionAudit {
    /// A bit for each right that was used, and one for any of them.
    used: AtomicU16,
    /// A leaf lock.
    denials: Mutex<Denials>,
}

/// The denials of a session.
#[derive(Default)]
struct Denials {
    /// The last second with a denial.
    second: u64,
    /// Denials in that second.
    count: u32,
    /// Denials without a line, since the last line.
    omitted: u64,
}

impl Denials {
    /// Counts a denial. Returns whether it gets a line.
    const fn counts(&mut self, seconds: u64) -> bool {
        if self.second != seconds {
            self.second = seconds;
            self.count = 0;
        }
        if self.count >= DENIALS_PER_SECOND {
            self.omitted += 1;
            return false;
        }
        self.count += 1;
        true
    }
}

/// The reason for the end of a session.
pub(super) enum End {
    /// A credential of its chain has ended.
    Expired,
    /// A credential of its chain was taken back.
    Revoked,
    /// The first credential's signer is no root any more.
    NoRoot,
    /// Its client is gone.
    Closed,
}

impl End {
    const fn word(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::NoRoot => "no-root",
            Self::Closed => "closed",
        }
    }
}

/// The subject of a guest's request.
pub(crate) struct Subject<'a> {
    pub(crate) operation: Operation,
    /// The rights of which one was needed; none for what no guest may do.
    pub(crate) rights: &'a [Right],
    /// The node, if the request has one.
    pub(crate) node: Option<InodeId>,
    /// The directories in which the node is: itself, if it is one; none if they are not known.
    pub(crate) dirs: &'a [InodeId],
    /// True for a denial by a mode or an access list, although the rights suffice.
    pub(crate) by_modes: bool,
}

impl Audit {
    /// Returns the log in the volume's folder. Nothing is created before the first line.
    pub(super) fn new(folder: Folder, pool: Arc<Pool>) -> Arc<Self> {
        let files = Mutex::new(Files::new(folder.clone()));
        Arc::new(Self { pool, folder, queue: Mutex::default(), files, unread: Mutex::default() })
    }

    /// Records a chain with which a session begins, or that it attaches, if none has in this run.
    pub(super) fn begin(self: &Arc<Self>, seconds: u64, guest: &Guest, chain: &Chain) {
        let mut queue = self.queue.lock();
        if queue.chains.len() >= CHAINS {
            queue.chains.clear();
        }
        if !queue.chains.insert(chain.id) {
            return;
        }
        drop(queue);
        let links: Vec<Value> = chain.links.iter().map(words_of).collect();
        let mut line = of_guest("share", guest);
        add_credential(&mut line, chain.links.last());
        line.insert("chain".to_owned(), Value::Array(links));
        self.record(seconds, budget_of(chain), line);
    }

    /// Records the first use of a right in a session.
    pub(super) fn first_use(self: &Arc<Self>, seconds: u64, guest: &Guest, subject: &Subject<'_>) {
        let mut line = of_guest("use", guest);
        add_subject(&mut line, subject);
        self.record(seconds, budget_of(&guest.chain), line);
    }

    /// Records a denial; counts it if the session has had too many in this second.
    pub(super) fn denial(self: &Arc<Self>, seconds: u64, guest: &Guest, subject: &Subject<'_>) {
        let Some(omitted) = guest.audit.next_denial(seconds) else { return };
        let mut line = of_guest("denial", guest);
        add_subject(&mut line, subject);
        add_omitted(&mut line, omitted);
        self.record(seconds, budget_of(&guest.chain), line);
    }

    /// Records that a chain opens no session any more.
    pub(super) fn refusal(
        self: &Arc<Self>,
        seconds: u64,
        key: &Principal,
        chain: &Chain,
        why: &End,
        link: Option<&Link>,
    ) {
        let mut line = object(json!({
            "what": "refusal",
            "key": hex::text(&key.0),
            "why": why.word(),
        }));
        add_credential(&mut line, link.or_else(|| chain.links.last()));
        self.record(seconds, budget_of(chain), line);
    }

    /// Records a revocation.
    pub(super) fn revocation(self: &Arc<Self>, seconds: u64, revoked: &Revoked) {
        let line = object(json!({
            "what": "revocation",
            "credential": hex::text(&revoked.id),
            "by": hex::text(&revoked.by.0),
            "root": revoked.is_of_root,
        }));
        self.record(seconds, None, line);
    }

    /// Records that a credential was issued for a node to the guest that has made it.
    pub(super) fn issued(
        self: &Arc<Self>,
        seconds: u64,
        guest: &Guest,
        position: &Placement,
        credential: &[u8; 32],
    ) {
        let mut line = of_guest("issue", guest);
        line.insert("node".to_owned(), position.ino.raw().into());
        add_directories(&mut line, &position.dirs);
        line.insert("issued".to_owned(), hex::text(credential).into());
        self.record(seconds, budget_of(&guest.chain), line);
    }

    /// Records the roots of the volume, which the server has read.
    pub(super) fn policy<'a>(
        self: &Arc<Self>,
        seconds: u64,
        roots: impl Iterator<Item = &'a Principal>,
    ) {
        let mut roots: Vec<String> = roots.map(|root| hex::text(&root.0)).collect();
        roots.sort_unstable();
        self.record(seconds, None, object(json!({ "what": "policy", "roots": roots })));
    }

    /// Records the end of a chain that a session has attached.
    pub(super) fn lapse(self: &Arc<Self>, seconds: u64, guest: &Guest, why: &End, link: &Link) {
        let mut line = of_guest("lapse", guest);
        line.insert("why".to_owned(), why.word().into());
        add_credential(&mut line, Some(link));
        self.record(seconds, budget_of(&guest.chain), line);
    }

    /// Records the end of a session. One that its client has ended gets a line only if denials were
    /// left out.
    pub(super) fn end(
        self: &Arc<Self>,
        seconds: u64,
        guest: &Guest,
        why: &End,
        link: Option<&Link>,
    ) {
        let omitted = mem::take(&mut guest.audit.denials.lock().omitted);
        if matches!(why, End::Closed) && omitted == 0 {
            return;
        }
        let mut line = of_guest("end", guest);
        line.insert("why".to_owned(), why.word().into());
        add_credential(&mut line, link.or_else(|| guest.chain.links.last()));
        add_omitted(&mut line, omitted);
        self.record(seconds, budget_of(&guest.chain), line);
    }

    /// Writes all lines that wait. Blocks on the disk.
    pub(super) fn write(&self) {
        let mut files = self.files.lock();
        loop {
            let mut queue = self.queue.lock();
            if queue.lines.is_empty() && queue.omitted == 0 {
                queue.is_scheduled = false;
                return;
            }
            let lines = mem::take(&mut queue.lines);
            let omitted = mem::take(&mut queue.omitted);
            queue.bytes = 0;
            drop(queue);
            files.omit(omitted);
            files.write(&lines);
        }
    }

    /// Puts a line into the queue. `share` is the share of a root to whose budget it counts.
    fn record(
        self: &Arc<Self>,
        seconds: u64,
        share: Option<[u8; 32]>,
        mut line: Map<String, Value>,
    ) {
        line.insert("time".to_owned(), Moment::at(seconds).written().into());
        let text = Value::Object(line).to_string();
        let mut queue = self.queue.lock();
        queue.begin_day(seconds);
        let may_write = share.is_none_or(|share| queue.spend(seconds, share, text.len()));
        if may_write {
            queue.push(seconds, text);
        }
        if queue.lines.is_empty() || mem::replace(&mut queue.is_scheduled, true) {
            return;
        }
        drop(queue);
        let audit = Arc::clone(self);
        let job = move |invocation| match invocation {
            Invocation::Run => audit.write(),
            // The server stops, and writes the rest itself.
            Invocation::Cancelled => {}
        };
        self.pool.submit(Caller::from(&Context::direct(0, 0)), Box::new(job));
    }
}

impl Queue {
    /// Begins the budgets of a day anew. What was left out on the day before is counted in a line.
    fn begin_day(&mut self, seconds: u64) {
        let day = seconds / DAY;
        if mem::replace(&mut self.day, day) == day {
            return;
        }
        for (share, spent) in mem::take(&mut self.spent) {
            if spent.omitted > 0 {
                self.push(seconds, omitted_line(seconds, Some(share), spent.omitted));
            }
        }
    }

    /// Takes the bytes of a line from the budget of a share. Returns whether there was as much.
    fn spend(&mut self, seconds: u64, share: [u8; 32], bytes: usize) -> bool {
        let is_full = self.spent.len() >= BUDGETS && !self.spent.contains_key(&share);
        let share = if is_full { [0; 32] } else { share };
        let spent = match self.spent.entry(share) {
            Entry::Occupied(spent) => spent.into_mut(),
            Entry::Vacant(new) => new.insert(Spent::default()),
        };
        if spent.bytes + bytes <= limits::AUDIT_SHARE_BYTES {
            spent.bytes += bytes;
            return true;
        }
        spent.omitted += 1;
        if spent.omitted == 1 {
            let text = omitted_line(seconds, Some(share), 0);
            self.push(seconds, text);
        }
        false
    }

    fn push(&mut self, seconds: u64, text: String) {
        if self.bytes + text.len() > QUEUE_BYTES {
            self.omitted += 1;
            return;
        }
        self.bytes += text.len();
        self.lines.push(Line { seconds, text });
    }
}

impl SessionAudit {
    /// Returns whether this is the first use of one of these rights.
    #[inline]
    pub(super) fn is_first_use(&self, rights: &[Right]) -> bool {
        let bit = match rights {
            [right] => 1 << *right as u8,
            _ => 1 << Right::ALL.len(),
        };
        self.used.load(Ordering::Relaxed) & bit == 0
            && self.used.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Returns the number of denials without a line before this one; `None` if it gets none itself.
    fn next_denial(&self, seconds: u64) -> Option<u64> {
        let mut denials = self.denials.lock();
        denials.counts(seconds).then(|| mem::take(&mut denials.omitted))
    }

    /// Returns whether a denial gets a line in which none is counted.
    pub(super) fn may_deny(&self, seconds: u64) -> bool {
        self.denials.lock().counts(seconds)
    }
}

/// Returns the share of a root to whose budget the lines of a chain count: guests cannot make more
/// of them.
fn budget_of(chain: &Chain) -> Option<[u8; 32]> {
    chain.links.first().map(|link| link.id)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn of_guest(what: &str, guest: &Guest) -> Map<String, Value> {
    let mut line = object(json!({
        "what": what,
        "key": hex::text(&guest.principal),
        "session": format!("{:x}", guest.session.0),
    }));
    add_credential(&mut line, guest.chain.links.last());
    line
}

fn add_credential(line: &mut Map<String, Value>, link: Option<&Link>) {
    if let Some(link) = link {
        line.insert("credential".to_owned(), hex::text(&link.id).into());
    }
}

fn add_subject(line: &mut Map<String, Value>, subject: &Subject<'_>) {
    let Subject { operation, rights, node, dirs, by_modes } = subject;
    let letters: String = rights.iter().map(|right| right.letter()).collect();
    line.insert("operation".to_owned(), operation.name().into());
    line.insert("rights".to_owned(), letters.into());
    if let Some(node) = node {
        line.insert("node".to_owned(), node.raw().into());
    }
    add_directories(line, dirs);
    if *by_modes {
        line.insert("why".to_owned(), "modes".into());
    }
}

/// Adds the directories of a node, each once: a file may have many names in one of them.
fn add_directories(line: &mut Map<String, Value>, dirs: &[InodeId]) {
    let mut told: Vec<Value> = Vec::new();
    for dir in dirs {
        let dir = Value::from(dir.raw());
        if told.len() < limits::AUDIT_LINE_DIRS && !told.contains(&dir) {
            told.push(dir);
        }
    }
    if !told.is_empty() {
        line.insert(reading::DIRECTORIES.to_owned(), told.into());
    }
}

fn add_omitted(line: &mut Map<String, Value>, omitted: u64) {
    if omitted > 0 {
        line.insert("omitted".to_owned(), omitted.into());
    }
}

/// Returns the line that counts lines which were left out; of a share of a root without a number,
/// that those which follow on this day are.
fn omitted_line(seconds: u64, share: Option<[u8; 32]>, lines: u64) -> String {
    let mut line = object(json!({ "what": "omitted", "time": Moment::at(seconds).written() }));
    if let Some(share) = share {
        line.insert("credential".to_owned(), hex::text(&share).into());
    }
    add_omitted(&mut line, lines);
    Value::Object(line).to_string()
}

/// Returns a credential of a chain: who has signed it, for whom, and what it grants.
fn words_of(link: &Link) -> Value {
    let keys: Vec<String> =
        link.assertion.licensees().keys().take(KEYS).map(|key| hex::text(&key.0)).collect();
    let mut words = object(json!({
        "credential": hex::text(&link.id),
        "by": hex::text(&link.authorizer.0),
        "to": keys,
    }));
    match (&link.share, link.assertion.conditions()) {
        (Some(share), _) => {
            words.insert("rights".to_owned(), share.rights.to_string().into());
            let field = match share.object {
                SharedObject::Folder(_) | SharedObject::Name { .. } => "directory",
                SharedObject::File(_) => "file",
            };
            words.insert(field.to_owned(), share.object.inode().into());
            if let SharedObject::Name { name, .. } = &share.object {
                words.insert("name".to_owned(), name.to_string().into());
            }
            if let Some(until) = &share.until {
                words.insert("until".to_owned(), until.as_str().into());
            }
            if let Some(from) = share.from {
                words.insert("from".to_owned(), from.to_string().into());
            }
        }
        (None, Some(conditions)) => {
            let mut text = conditions.to_string();
            text.truncate(text.floor_char_boundary(CONDITIONS_BYTES));
            words.insert("conditions".to_owned(), text.into());
        }
        (None, None) => {}
    }
    Value::Object(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_fills_its_own_part_of_a_day_only() {
        let mut queue = Queue::default();
        let half = limits::AUDIT_SHARE_BYTES / 2;
        assert!(queue.spend(7, [1; 32], half) && queue.spend(7, [1; 32], half));
        assert!(queue.lines.is_empty());
        for _ in 0..3 {
            assert!(!queue.spend(7, [1; 32], 1));
        }
        let texts = |queue: &mut Queue| -> Vec<String> {
            mem::take(&mut queue.lines).into_iter().map(|line| line.text).collect()
        };
        let id = "01".repeat(32);
        let full = format!(
            "{{\"credential\":\"{id}\",\"time\":\"1970-01-01T00:00:07Z\",\"what\":\"omitted\"}}"
        );
        assert_eq!(texts(&mut queue), [full]);
        assert!(queue.spend(7, [2; 32], half), "another share");
        queue.begin_day(DAY);
        let counted = format!(
            "{{\"credential\":\"{id}\",\"omitted\":3,\"time\":\"1970-01-02T00:00:00Z\",\
             \"what\":\"omitted\"}}"
        );
        assert_eq!(texts(&mut queue), [counted]);
        assert!(queue.spend(DAY, [1; 32], half));
    }

    #[test]
    fn shares_beyond_the_number_of_budgets_have_one_together() {
        let mut queue = Queue::default();
        let share = |number: usize| {
            let mut share = [9; 32];
            share[..8].copy_from_slice(&number.to_le_bytes());
            share
        };
        for number in 0..BUDGETS {
            assert!(queue.spend(0, share(number), 1));
        }
        let all = limits::AUDIT_SHARE_BYTES;
        assert!(queue.spend(0, share(BUDGETS), all));
        assert!(!queue.spend(0, share(BUDGETS + 1), 1));
        assert!(queue.spend(0, share(0), all - 1), "one of the first");
        assert!(queue.spent.len() <= BUDGETS + 1);
    }

    #[test]
    fn what_waits_for_a_slow_disk_has_a_limit() {
        let mut queue = Queue::default();
        for _ in 0..3 {
            queue.push(0, "x".repeat(QUEUE_BYTES / 2));
        }
        assert_eq!((queue.lines.len(), queue.omitted, queue.bytes), (2, 1, QUEUE_BYTES));
    }
}
