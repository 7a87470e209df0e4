//! A model of a server of one directory, and of the lines between it and its clients.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_proto::leases::{ChangeId, Grantor, Leased};
use pelago_wire::{
    Attr, Buffer, Bulk, Code, Context, Cookie, DataPath, DirEntry, Done, Entry, Error, FileKind,
    Granted, Handle, InodeId, LeaseHolder, LeaseMoment, LeasedDone, LeasedService, Leases, Name,
    NameHash, OpenId, Recalled, Reply, Request, Service, SessionId, SetAttr, Then, Touched,
    WriteEra,
};

pub(crate) const DIR: Handle = Handle::ROOT;
pub(crate) const SESSIONS: [SessionId; 2] = [SessionId::new(1, 1), SessionId::new(1, 2)];

/// The line between a client and the server. Requests and answers overtake each other, recalls do
/// not.
#[derive(Default)]
pub(crate) struct Line {
    queues: Mutex<Queues>,
    holder: Mutex<Option<Weak<dyn LeaseHolder>>>,
}

#[derive(Default)]
struct Queues {
    requests: Vec<SentRequest>,
    answers: Vec<Answer>,
    recalls: VecDeque<(u64, Arc<[Touched]>)>,
    recalled: VecDeque<u64>,
    is_lost: bool,
}

struct SentRequest {
    request: Request,
    bytes: Vec<u8>,
    done: LeasedDone,
}

struct Answer {
    result: Result<Reply, Error>,
    granted: Granted,
    done: LeasedDone,
    /// The nodes and names that the change has touched.
    touched: Vec<Touched>,
}

impl Line {
    fn holder(&self) -> Arc<dyn LeaseHolder> {
        self.holder.lock().as_ref().unwrap().upgrade().unwrap()
    }

    /// Brings the `which`th answer to the client.
    pub(crate) fn deliver(&self, which: usize) {
        let answer = {
            let mut queues = self.queues.lock();
            let answers = &mut queues.answers;
            if answers.is_empty() {
                return;
            }
            let at = which % answers.len();
            answers.swap_remove(at)
        };
        (answer.done)(answer.result, answer.granted);
    }

    /// Brings the next recall to the client.
    pub(crate) fn recall(self: &Arc<Self>) {
        let Some((number, touched)) = self.queues.lock().recalls.pop_front() else { return };
        let line = Arc::clone(self);
        let then = move || line.queues.lock().recalled.push_back(number);
        self.holder().recalled(touched, Box::new(then));
    }

    /// Ends the leases of the client by its own clock.
    pub(crate) fn lose(&self) {
        self.queues.lock().is_lost = true;
        self.holder().lost();
    }

    /// Returns the nodes and names of changes whose answers are under way.
    pub(crate) fn unseen(&self) -> Vec<Touched> {
        self.queues.lock().answers.iter().flat_map(|it| it.touched.iter().cloned()).collect()
    }
}

impl Service for Line {
    fn ask(
        &self,
        _: &Context,
        _: Request,
        _: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        Some(Err(Code::NotSupported.into()))
    }
}

impl LeasedService for Line {
    fn ask_leased(&self, _: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        self.queues.lock().requests.push(SentRequest { request, bytes: bulk.into_bytes(), done });
    }

    fn ask_first(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        self.ask_leased(context, request, bulk, done);
    }

    fn lease_left(&self) -> Duration {
        Duration::from_secs(if self.queues.lock().is_lost { 0 } else { 10 })
    }

    fn has_lost_lock(&self, _: OpenId) -> bool {
        false
    }

    fn when_settled(&self, _: Then) {
        panic!("no request of this line is abandoned");
    }

    fn set_holder(&self, holder: Weak<dyn LeaseHolder>) {
        *self.holder.lock() = Some(holder);
    }
}

/// A change that was announced.
struct Parked {
    client: usize,
    sent: SentRequest,
    since: LeaseMoment,
    change: ChangeId,
    touched: Vec<Touched>,
    waits: bool,
    /// The answer of a request that changes nothing, and waits for leases on the bytes of files
    /// that it shows.
    read: Option<Result<Reply, Error>>,
}

/// A write that was admitted.
struct Writing {
    client: usize,
    sent: SentRequest,
    ino: InodeId,
    is_leased: bool,
}

/// An open file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    client: usize,
    ino: InodeId,
    writes: bool,
}

/// The value of a part of a file, of 8 bytes.
pub(crate) type Value = u64;
/// Parts of a file.
pub(crate) const PARTS: u64 = 4;

/// The server.
pub(crate) struct Server {
    pub(crate) lines: [Arc<Line>; 2],
    pub(crate) names: BTreeMap<u64, (Name, InodeId)>,
    pub(crate) nodes: HashMap<InodeId, Attr>,
    pub(crate) opens: BTreeMap<OpenId, Opened>,
    pub(crate) bytes: HashMap<InodeId, [Value; PARTS as usize]>,
    grantor: Grantor,
    parked: Vec<Parked>,
    writing: Vec<Writing>,
    /// Values that the server has taken.
    pub(crate) arrived: BTreeSet<Value>,
    /// Values that it has refused.
    pub(crate) refused: Vec<(usize, InodeId, Value)>,
    version: i64,
    /// Nodes that have lost their last name with the last change.
    pub(crate) removed: Vec<InodeId>,
    /// The file that the last request has closed.
    released: Option<InodeId>,
}

/// Returns a name whose position in listings is its number.
pub(crate) fn name(number: u64) -> Name {
    Name::new(format!("n{number}").as_bytes()).unwrap()
}

fn number(name: &Name) -> u64 {
    u64::from(name.as_bytes()[1] - b'0')
}

pub(crate) fn ino(number: u64) -> InodeId {
    InodeId::from_raw(100 + number)
}

fn cookie(number: u64) -> Cookie {
    Cookie::of(NameHash((number + 1) << 40))
}

impl Server {
    /// Returns a server of some files with a name each.
    pub(crate) fn new(files: u64) -> Self {
        let mut root = Attr::empty(DIR.ino, FileKind::Directory);
        root.size = files;
        let file = |number| Attr::empty(ino(number), FileKind::Regular);
        let nodes = (0..files).map(|number| (ino(number), file(number)));
        Self {
            lines: Default::default(),
            names: (0..files).map(|number| (number, (name(number), ino(number)))).collect(),
            nodes: nodes.chain([(DIR.ino, root)]).collect(),
            opens: BTreeMap::new(),
            bytes: (0..files).map(|number| (ino(number), Default::default())).collect(),
            grantor: Grantor::new(1 << 10),
            parked: Vec::new(),
            writing: Vec::new(),
            arrived: BTreeSet::new(),
            refused: Vec::new(),
            version: 0,
            removed: Vec::new(),
            released: None,
        }
    }

    fn target(&self, name: &Name) -> Option<InodeId> {
        self.names.get(&number(name)).map(|(_, ino)| *ino)
    }

    /// Takes a request of a client.
    pub(crate) fn take(&mut self, client: usize, which: usize) {
        let sent = {
            let requests = &mut self.lines[client].queues.lock().requests;
            if requests.is_empty() {
                return;
            }
            let at = which % requests.len();
            requests.swap_remove(at)
        };
        let since = self.grantor.now();
        if let Request::Write { open, flags, .. } = sent.request {
            return self.admit_write(client, sent, open, flags.behind.is_some());
        }
        match self.touches(&sent.request) {
            Some(touched) => self.announce(client, sent, None, since, touched),
            None => {
                let result = self.read(client, &sent.request);
                self.show(client, sent, since, result);
            }
        }
    }

    /// Answers a request that changes nothing, once no other client has buffered bytes of files
    /// that it shows.
    fn show(
        &mut self,
        client: usize,
        sent: SentRequest,
        since: LeaseMoment,
        mut result: Result<Reply, Error>,
    ) {
        let shown = result.iter_mut().flat_map(Reply::attrs_mut).map(|attr| attr.ino);
        let is_written = |ino: &InodeId| self.grantor.is_written_by_other(SESSIONS[client], *ino);
        let written: Vec<Touched> = shown.filter(is_written).map(Touched::Node).collect();
        match written.is_empty() {
            true => self.answer(client, sent, since, result, Vec::new()),
            false => self.announce(client, sent, Some(result), since, written),
        }
    }

    fn admit_write(&mut self, client: usize, sent: SentRequest, open: OpenId, behind: bool) {
        let now = self.grantor.now();
        let Some(Opened { ino, .. }) = self.opens.get(&open).copied() else {
            return self.answer(client, sent, now, Err(Code::BadOpen.into()), Vec::new());
        };
        let is_leased = behind && self.grantor.begin_write(SESSIONS[client], ino);
        if behind && !is_leased {
            for value in sent.bytes.chunks(8) {
                let value = Value::from_le_bytes(value.try_into().unwrap());
                self.refused.push((client, ino, value));
            }
            return self.answer(client, sent, now, Err(Code::LeaseLost.into()), Vec::new());
        }
        self.writing.push(Writing { client, sent, ino, is_leased });
    }

    /// Carries out the `which`th write.
    pub(crate) fn write(&mut self, which: usize) {
        if self.writing.is_empty() {
            return;
        }
        let at = which % self.writing.len();
        let Writing { client, sent, ino, is_leased } = self.writing.swap_remove(at);
        let Request::Write { offset, .. } = sent.request else { unreachable!() };
        let parts = self.bytes.get_mut(&ino).unwrap();
        for (at, value) in sent.bytes.chunks(8).enumerate() {
            let value = Value::from_le_bytes(value.try_into().unwrap());
            parts[usize::try_from(offset / 8).unwrap() + at] = value;
            self.arrived.insert(value);
        }
        let end = offset + sent.bytes.len() as u64;
        let attr = self.touch(ino);
        attr.size = attr.size.max(end);
        let reply = Reply::Written { bytes: sent.bytes.len() as u64, size: attr.size };
        if is_leased {
            let ready = self.grantor.end_write(SESSIONS[client], ino);
            self.go_on(&ready);
        }
        let now = self.grantor.now();
        self.answer(client, sent, now, Ok(reply), Vec::new());
    }

    fn announce(
        &mut self,
        client: usize,
        sent: SentRequest,
        read: Option<Result<Reply, Error>>,
        since: LeaseMoment,
        touched: Vec<Touched>,
    ) {
        let announced = self.grantor.announce(SESSIONS[client], &touched);
        for recall in announced.recalls {
            let to = SESSIONS.iter().position(|it| *it == recall.session).unwrap();
            let Recalled::Things(touched) = recall.recalled else { panic!("no rights change") };
            let body = (recall.number, touched.into());
            self.lines[to].queues.lock().recalls.push_back(body);
        }
        let change = announced.change;
        let waits = announced.waits;
        self.parked.push(Parked { client, sent, since, change, touched, waits, read });
    }

    /// Takes the next answer to a recall.
    pub(crate) fn recalled(&mut self, client: usize) {
        let number = self.lines[client].queues.lock().recalled.pop_front();
        if let Some(number) = number {
            let ready = self.grantor.recalled(SESSIONS[client], number);
            self.go_on(&ready);
        }
    }

    /// Ends the leases of a client: by its own clock, then by that of the server.
    pub(crate) fn expire(&mut self, client: usize) {
        self.lines[client].lose();
        let ready = self.grantor.expire(SESSIONS[client]);
        self.go_on(&ready);
        let mut queues = self.lines[client].queues.lock();
        queues.recalls.clear();
        queues.is_lost = false;
    }

    fn go_on(&mut self, ready: &[ChangeId]) {
        let is_ready = |it: &&mut Parked| ready.contains(&it.change);
        self.parked.iter_mut().filter(is_ready).for_each(|it| it.waits = false);
    }

    /// Carries out a change that waits no longer. Returns whether there was one.
    pub(crate) fn carry_out(&mut self, which: usize) -> bool {
        let due: Vec<usize> = (0..self.parked.len()).filter(|at| !self.parked[*at].waits).collect();
        if due.is_empty() {
            return false;
        }
        let Parked { client, sent, since, change, touched, read, .. } =
            self.parked.swap_remove(due[which % due.len()]);
        if let Some(mut result) = read {
            self.grantor.end(change);
            for attr in result.iter_mut().flat_map(Reply::attrs_mut) {
                *attr = self.nodes[&attr.ino];
            }
            self.show(client, sent, since, result);
            return true;
        }
        if self.touches(&sent.request).as_ref() != Some(&touched) {
            // A name has another target since the change was announced.
            self.grantor.end(change);
            let touched = self.touches(&sent.request).unwrap();
            self.announce(client, sent, None, since, touched);
            return true;
        }
        self.removed.clear();
        let result = self.change(client, &sent.request);
        self.grantor.end(change);
        let touched = if result.is_ok() { touched } else { Vec::new() };
        self.answer(client, sent, since, result, touched);
        true
    }

    /// Returns the nodes and names that a request changes; `None` if it changes nothing.
    fn touches(&self, request: &Request) -> Option<Vec<Touched>> {
        let named = |name: &Name| Touched::Name { dir: DIR.ino, name: name.clone() };
        let target = |name: &Name| self.target(name).map(Touched::Node);
        let dir = Touched::Node(DIR.ino);
        Some(match request {
            Request::Open { node, flags, .. } if flags.write => vec![Touched::Node(node.ino)],
            Request::SetAttr { node, .. } => vec![Touched::Node(node.ino)],
            Request::Link { node, name, .. } => vec![Touched::Node(node.ino), dir, named(name)],
            Request::Unlink { name, .. } => {
                [dir, named(name)].into_iter().chain(target(name)).collect()
            }
            Request::Rename { from, to, .. } => {
                let known = [dir, named(from), named(to)].into_iter();
                known.chain(target(from)).chain(target(to)).collect()
            }
            _ => return None,
        })
    }

    fn read(&mut self, client: usize, request: &Request) -> Result<Reply, Error> {
        match request {
            Request::Lookup { name, .. } => self.entry(name).map(Reply::Entry),
            Request::GetAttr { node } => Ok(Reply::Attr(self.nodes[&node.ino])),
            Request::List { after, entries, .. } => {
                let (entries, end) = self.list(*after, *entries as usize);
                Ok(Reply::Listed { entries, end })
            }
            Request::Open { node, open, .. } => self.open(client, node.ino, *open, false),
            Request::Release { open } => {
                let released = self.opens.remove(open);
                if let Some(Opened { ino, writes: true, .. }) = released {
                    self.grantor.begin_untold(Leased::Node(ino));
                    self.grantor.end_bytes(SESSIONS[client], ino);
                    self.grantor.end_untold(Leased::Node(ino));
                }
                self.released = released.map(|it| it.ino);
                Ok(Reply::Done)
            }
            Request::Flush { .. } => Ok(Reply::Done),
            Request::Read { open, offset, size } => {
                let Opened { ino, .. } = self.opens.get(open).ok_or(Code::BadOpen)?;
                let from = usize::try_from(offset / 8).unwrap();
                let parts = self.bytes[ino].iter().skip(from).take(*size as usize / 8);
                let bytes = parts.flat_map(|value| value.to_le_bytes()).collect();
                Ok(Reply::Data(Buffer::new(bytes)))
            }
            _ => Err(Code::NotSupported.into()),
        }
    }

    fn open(
        &mut self,
        client: usize,
        ino: InodeId,
        open: OpenId,
        writes: bool,
    ) -> Result<Reply, Error> {
        let attr = self.nodes[&ino];
        if attr.links == 0 {
            return Err(Code::Stale.into());
        }
        self.opens.insert(open, Opened { client, ino, writes });
        Ok(Reply::Opened { attr, path: DataPath::Cached })
    }

    fn entry(&self, name: &Name) -> Result<Entry, Error> {
        let ino = self.target(name).ok_or(Code::NotFound)?;
        Ok(Entry { handle: Handle::own(ino), attr: self.nodes[&ino] })
    }

    /// Returns a part of the listing, and whether nothing follows.
    pub(crate) fn list(&self, after: Cookie, most: usize) -> (Vec<DirEntry>, bool) {
        let following = self.names.iter().filter(|(number, _)| cookie(**number).0 > after.0);
        let entry = |(number, (name, ino)): (&u64, &(Name, InodeId))| DirEntry {
            name: name.clone(),
            ino: *ino,
            kind: FileKind::Regular,
            cookie: cookie(*number),
            entry: Some(Entry { handle: Handle::own(*ino), attr: self.nodes[ino] }),
        };
        let all: Vec<DirEntry> = following.map(entry).collect();
        let end = all.len() <= most;
        (all.into_iter().take(most).collect(), end)
    }

    fn change(&mut self, client: usize, request: &Request) -> Result<Reply, Error> {
        match request {
            Request::Open { node, open, .. } => self.open(client, node.ino, *open, true),
            Request::SetAttr { node, set: SetAttr { mode, .. }, .. } => {
                self.touch(node.ino).mode = mode.unwrap();
                Ok(Reply::Attr(self.nodes[&node.ino]))
            }
            Request::Link { node, name, .. } => {
                if self.target(name).is_some() {
                    return Err(Code::Exists.into());
                }
                if self.nodes[&node.ino].links == 0 {
                    return Err(Code::NotFound.into());
                }
                self.touch(node.ino).links += 1;
                self.touch(DIR.ino).size += 1;
                self.names.insert(number(name), (name.clone(), node.ino));
                self.entry(name).map(Reply::Entry)
            }
            Request::Unlink { name, .. } => {
                let ino = self.target(name).ok_or(Code::NotFound)?;
                self.names.remove(&number(name));
                self.touch(DIR.ino).size -= 1;
                Ok(Reply::Removed(self.drop_link(ino)))
            }
            Request::Rename { from, to, .. } => {
                let ino = self.target(from).ok_or(Code::NotFound)?;
                let other = self.target(to);
                if other == Some(ino) {
                    return Err(Code::Exists.into());
                }
                self.names.remove(&number(from));
                self.names.insert(number(to), (to.clone(), ino));
                self.touch(ino);
                self.touch(DIR.ino).size -= u64::from(other.is_some());
                let replaced = other
                    .map(|other| Entry { handle: Handle::own(other), attr: self.drop_link(other) });
                Ok(Reply::Renamed { moved: Handle::own(ino), replaced })
            }
            _ => Err(Code::NotSupported.into()),
        }
    }

    fn drop_link(&mut self, ino: InodeId) -> Attr {
        let attr = self.touch(ino);
        attr.links -= 1;
        let attr = *attr;
        if attr.links == 0 {
            self.removed.push(ino);
        }
        attr
    }

    /// Returns the attributes of a node, with a new time of change.
    fn touch(&mut self, ino: InodeId) -> &mut Attr {
        self.version += 1;
        let attr = self.nodes.get_mut(&ino).unwrap();
        attr.ctime.seconds = self.version;
        attr
    }

    /// Grants leases as the server does, and sends the answer.
    fn answer(
        &mut self,
        client: usize,
        SentRequest { request, done, .. }: SentRequest,
        since: LeaseMoment,
        mut result: Result<Reply, Error>,
        touched: Vec<Touched>,
    ) {
        let session = SESSIONS[client];
        let mut leases = Leases::default();
        let mut made = None;
        if let (Request::Open { node, flags, .. }, Ok(_)) = (&request, &result)
            && flags.write
        {
            let mut opens = self.opens.values().filter(|it| it.ino == node.ino);
            let is_leased = opens.all(|it| it.client == client)
                && self.grantor.grant_bytes(session, node.ino, since);
            leases.bytes = is_leased.then_some(WriteEra::FIRST);
            let opens = self.opens.values().filter(|it| it.ino == node.ino).count();
            let is_written = self.writing.iter().any(|it| it.ino == node.ino);
            // As if the file were new.
            made = (is_leased && opens == 1 && !is_written).then_some(node.ino);
        }
        let written: BTreeSet<InodeId> =
            self.opens.values().filter(|it| it.writes).map(|it| it.ino).collect();
        let mut grant = |on| match on {
            Leased::Node(ino) if written.contains(&ino) && made != Some(ino) => false,
            on => self.grantor.grant(session, on, since),
        };
        let tells = result.as_ref().map_or_else(|error| error.code == Code::NotFound, |_| true);
        for attr in result.iter_mut().flat_map(Reply::attrs_mut) {
            attr.volatile = attr.links == 0 || !grant(Leased::Node(attr.ino));
            leases.node |= !attr.volatile;
        }
        leases.names =
            tells && request.tells().names().is_some_and(|dir| grant(Leased::Names(dir)));
        let released = self.released.take();
        let changed = released.or_else(|| (!touched.is_empty()).then_some(DIR.ino));
        let changed = changed.map(|ino| self.nodes[&ino]);
        // They are read now.
        leases.changed = changed.is_some_and(|Attr { ino, links, .. }| {
            let on = Leased::Node(ino);
            let now = self.grantor.now();
            links > 0 && !written.contains(&ino) && self.grantor.grant(session, on, now)
        });
        let granted = Granted { leases, changed, may_be_done: false };
        let answer = Answer { result, granted, done, touched };
        self.lines[client].queues.lock().answers.push(answer);
    }
}
