use std::sync::mpsc::{Receiver, channel};

use pelago_wire::{
    Bulk, Code, Context, Done, FileKind, Hit, Reply, Request, SearchAt, Service, Time,
};

use super::*;

/// A server that answers when it is told to, or at once.
#[derive(Default)]
struct Server {
    at_once: bool,
    asked: Mutex<Vec<(Context, Search, Option<Done>)>>,
}

impl Server {
    /// Answers the oldest search, with one file on a page.
    fn answer(&self, more: bool) {
        let (_, _, done) = self.asked.lock().remove(0);
        done.expect("it answers later")(Ok(Reply::Found(page(more))));
    }

    fn count(&self) -> usize {
        self.asked.lock().len()
    }
}

impl Service for Server {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        _bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let Request::Search { search, .. } = request else { return Some(Err(Code::Bug.into())) };
        if self.at_once {
            let mut asked = self.asked.lock();
            asked.push((*context, search, None));
            return Some(Ok(Reply::Found(page(asked.len() < 50_000))));
        }
        let done = later();
        self.asked.lock().push((*context, search, Some(done)));
        None
    }
}

fn page(more: bool) -> SearchPage {
    let now = Time { seconds: 1, nanos: 0 };
    let hit =
        Hit { ino: InodeId::from_raw(5), kind: FileKind::Regular, path: b"sub/file".to_vec() };
    let after = more.then_some(SearchPlace { now, at: SearchAt::Rank(1) });
    SearchPage { hits: vec![hit], as_of: now, after, examined: 1 }
}

fn folder(number: u64) -> (InodeId, Folder) {
    let dir = InodeId::from_raw(7);
    let parent = InodeId::from_raw(8);
    let name = Box::from(&b"a=b"[..]);
    (
        InodeId::from_raw(number),
        Folder { dir, parent, name, query: b"a=b".as_slice().into(), depth: 1 },
    )
}

fn rights(uid: u32) -> Rights {
    Rights { uid, gid: 3, asker: Default::default() }
}

struct Bench {
    server: Arc<Server>,
    files: Files,
    searches: Arc<Searches>,
}

type Heard = Receiver<Result<Arc<Links>, Errno>>;

impl Bench {
    fn new(at_once: bool) -> Self {
        let server = Arc::new(Server { at_once, ..Server::default() });
        let files = Files::new(Arc::clone(&server) as Arc<dyn Service>);
        Self { server, files, searches: Arc::default() }
    }

    fn ask(&self, number: u64, uid: u32, unique: u64) -> Heard {
        let (tell, heard) = channel();
        let (number, folder) = folder(number);
        let then = move |links| tell.send(links).unwrap();
        self.searches.ask(&self.files, number, &folder, rights(uid), unique, then);
        heard
    }
}

#[test]
fn an_answer_is_shared_by_requests_of_one_asker_only() {
    let bench = Bench::new(false);
    let first = bench.ask(1, 10, 1);
    let second = bench.ask(1, 10, 2);
    let other = bench.ask(1, 11, 3);
    let other_folder = bench.ask(2, 10, 4);
    assert_eq!(bench.server.count(), 3, "the second one waits for the first");
    assert!(first.try_recv().is_err());
    bench.server.answer(false);
    let links = first.recv().unwrap().unwrap();
    assert_eq!(links.behind(0).len(), 1);
    assert!(Arc::ptr_eq(&links, &second.recv().unwrap().unwrap()));
    assert!(other.try_recv().is_err(), "another user has another answer");
    let kept = bench.ask(1, 10, 5);
    assert!(Arc::ptr_eq(&links, &kept.recv().unwrap().unwrap()));
    bench.server.answer(false);
    assert!(!Arc::ptr_eq(&links, &other.recv().unwrap().unwrap()));
    bench.server.answer(false);
    assert!(other_folder.recv().unwrap().is_ok());
    assert_eq!(bench.server.count(), 0);
}

#[test]
fn an_answer_is_kept_for_a_second() {
    let mut table = Table::default();
    let now = Instant::now();
    let meet = |table: &mut Table, at| {
        let waiter = Waiter { unique: 1, then: Box::new(|_| {}) };
        table.meet(InodeId::from_raw(1), &rights(1), waiter, at)
    };
    let Met::Begin(number) = meet(&mut table, now) else { panic!("it was empty") };
    assert_eq!(table.end(number, Some(&Arc::default()), now).len(), 1);
    assert!(matches!(meet(&mut table, now + KEPT / 2), Met::Links(..)));
    assert!(matches!(meet(&mut table, now + KEPT), Met::Begin(_)));
}

#[test]
fn fifty_thousand_pages_that_are_ready_take_no_stack() {
    let bench = Bench::new(true);
    let links = bench.ask(1, 10, 1).recv().unwrap().unwrap();
    assert_eq!(links.behind(0).len(), 1, "one file, found often");
    let asked = bench.server.asked.lock();
    // The folder was full before.
    assert_eq!(asked.len(), limits::FIND_FOLDER_HITS + 1);
    assert_eq!((asked[0].1.after.clone(), asked[0].0.uid), (None, 10));
    assert!(asked[1].1.after.is_some());
}

#[test]
fn a_search_that_nobody_waits_for_ends_at_its_next_page() {
    let bench = Bench::new(false);
    let waits = bench.ask(1, 10, 1);
    bench.server.answer(true);
    assert_eq!(bench.server.count(), 1);
    assert!(!bench.searches.interrupt(2) && bench.searches.interrupt(1));
    assert_eq!(waits.recv().unwrap(), Err(Errno::INTR));
    assert!(!bench.searches.interrupt(1));
    bench.server.answer(true);
    assert_eq!(bench.server.count(), 0);
    assert!(bench.searches.table.lock().entries.is_empty());
}

#[test]
fn searches_are_bounded_for_each_user_and_in_all() {
    let bench = Bench::new(false);
    let mine: Vec<Heard> =
        (0..limits::FIND_USER_FOLDERS as u64).map(|n| bench.ask(n, 10, n)).collect();
    assert_eq!(bench.ask(99, 10, 99).recv().unwrap(), Err(Errno::AGAIN));
    let room = (limits::FIND_FOLDERS - limits::FIND_USER_FOLDERS) as u64;
    let others: Vec<Heard> = (0..room).map(|n| bench.ask(n, 100 + n as u32, 200 + n)).collect();
    assert_eq!(bench.ask(99, 11, 99).recv().unwrap(), Err(Errno::AGAIN));
    bench.server.answer(false);
    assert!(mine[0].recv().unwrap().is_ok());
    // What is only kept gives way.
    let next = bench.ask(99, 11, 99);
    (0..limits::FIND_FOLDERS).for_each(|_| bench.server.answer(false));
    assert!(mine[1..].iter().chain(&others).all(|heard| heard.recv().unwrap().is_ok()));
    assert!(next.recv().unwrap().is_ok());
    assert_eq!(bench.searches.table.lock().entries.len(), limits::FIND_FOLDERS);
}
