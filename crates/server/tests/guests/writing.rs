//! Guests that may change something: each right gives what its row of the table says, and no more.

use pelago_keynote::{Grant, Rights, SharedObject};
use pelago_wire::{
    AllocateMode, Attr, Code, FileKind, FileLock, Handle, InodeId, LockKind, LockMode, LockOwner,
    NewMode, OpenFlags, OpenId, RenameFlags, Reply, Request, SetAttr, SetTime, Time, WriteFlags,
    XattrFlags, xattr,
};

use super::world::{Guest, World};
use crate::harness::requests::next_open;
use crate::harness::rig::name;

/// A shared directory with a file and a directory, and a file outside.
struct Desk {
    world: World,
    dir: Handle,
    file: Handle,
    below: Handle,
    outside: Handle,
}

impl Desk {
    fn new() -> Self {
        let world = World::new();
        let dir = world.make_dir(Handle::ROOT, "shared");
        let file = world.put(dir, "f", b"some bytes");
        let below = world.make_dir(dir, "below");
        let outside = world.put(Handle::ROOT, "secret", b"secret");
        Self { world, dir, file, below, outside }
    }

    /// Begins the session of a guest with these rights to the directory.
    fn guest(&self, rights: &str) -> Guest {
        self.guest_in(rights, self.dir)
    }

    fn guest_in(&self, rights: &str, dir: Handle) -> Guest {
        let rights: Rights = rights.parse().unwrap();
        let share = Grant { rights, ..self.world.to_read(dir.ino) };
        let grant = self.world.admit(2, &[&self.world.signed(1, 2, &share)]).unwrap();
        self.world.begin(grant).unwrap()
    }

    fn open(&self, guest: &Guest, node: Handle, flags: OpenFlags) -> Result<OpenId, Code> {
        let open = next_open();
        self.world.ask(guest, Request::Open { node, flags, open }).map(|_| open)
    }

    /// Creates a file by a guest. Returns it and its open.
    fn create(
        &self,
        guest: &Guest,
        dir: Handle,
        text: &str,
    ) -> Result<(Attr, Handle, OpenId), Code> {
        let open = next_open();
        let mode = NewMode { mode: 0o666, umask: 0o022 };
        let flags = OpenFlags::READ_WRITE;
        let create = Request::Create { dir, name: name(text), mode, flags, open };
        match self.world.ask(guest, create)? {
            Reply::Created { entry, .. } => Ok((entry.attr, entry.handle, open)),
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, guest: &Guest, open: OpenId) -> Result<Reply, Code> {
        self.world.ask(guest, Request::Write { open, offset: 0, flags: WriteFlags::NONE })
    }

    fn set(&self, guest: &Guest, node: Handle, set: SetAttr) -> Result<Attr, Code> {
        match self.world.ask(guest, Request::SetAttr { node, open: None, set })? {
            Reply::Attr(attr) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    /// Returns attributes as the server's own mount sees them.
    fn attr(&self, node: Handle) -> Attr {
        match self.world.call(Request::GetAttr { node }) {
            Ok(Reply::Attr(attr)) => attr,
            other => panic!("{other:?}"),
        }
    }

    fn chmod(&self, node: Handle, mode: u16) {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.world.call(Request::SetAttr { node, open: None, set }).unwrap();
    }

    fn chown(&self, node: Handle, id: u32) {
        let set = SetAttr { uid: Some(id), gid: Some(id), ..SetAttr::default() };
        self.world.call(Request::SetAttr { node, open: None, set }).unwrap();
    }

    fn set_capability(&self) {
        let name = xattr::CAPABILITIES.to_vec();
        let flags = XattrFlags::Any;
        let value = b"v".to_vec();
        let set = Request::SetXattr { node: self.file, name, value, flags, kill_setgid: false };
        self.world.call(set).unwrap();
    }

    fn has_capability(&self) -> bool {
        let name = xattr::CAPABILITIES.to_vec();
        match self.world.call(Request::GetXattr { node: self.file, name }) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error, Code::NoXattr);
                false
            }
        }
    }

    fn bytes(&self, node: Handle) -> Vec<u8> {
        let open = next_open();
        self.world.call(Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
        match self.world.call(Request::Read { open, offset: 0, size: 100 }).unwrap() {
            Reply::Data(data) => data.as_bytes().to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

/// A request, the rights that it needs, and what it is for.
type Row = (&'static str, &'static str, Request);

fn lock(mode: LockMode) -> FileLock {
    FileLock { kind: LockKind::Posix, mode, start: 0, end: 9, pid: 1 }
}

/// Returns the rows of the table in `docs/semantics.md`. Each request works once.
fn table(desk: &Desk) -> Vec<Row> {
    let Desk { dir, file, .. } = *desk;
    let mode = NewMode::exactly(0o644);
    let set = |set: SetAttr| Request::SetAttr { node: file, open: None, set };
    let open = |flags| Request::Open { node: file, flags, open: next_open() };
    let renamed = |from: Handle, old: &str, to: Handle, new: &str, flags| Request::Rename {
        from_dir: from,
        from: name(old),
        to_dir: to,
        to: name(new),
        flags,
    };
    let truncate = OpenFlags { truncate: true, ..OpenFlags::READ };
    let mtime = Time { seconds: 5, nanos: 0 };
    let name_of = |text| name(text);
    let xattr = || b"user.mine".to_vec();
    let new = next_open();
    let flags = OpenFlags::READ_WRITE;
    vec![
        ("getattr", "", Request::GetAttr { node: file }),
        ("lookup", "", Request::Lookup { dir, name: name_of("f") }),
        ("fsyncdir", "", Request::FsyncDir { dir, since: None }),
        ("open to read", "r", open(OpenFlags::READ)),
        ("open to write", "w", open(OpenFlags::WRITE)),
        ("open for both", "rw", open(OpenFlags::READ_WRITE)),
        ("truncate", "rw", open(truncate)),
        ("size", "w", set(SetAttr { size: Some(3), ..SetAttr::default() })),
        ("mode", "w", set(SetAttr { mode: Some(0o700), ..SetAttr::default() })),
        ("time", "w", set(SetAttr { mtime: Some(SetTime::To(mtime)), ..SetAttr::default() })),
        (
            "setxattr",
            "w",
            Request::SetXattr {
                node: file,
                name: xattr(),
                value: b"v".to_vec(),
                flags: XattrFlags::Any,
                kill_setgid: false,
            },
        ),
        ("getxattr", "r", Request::GetXattr { node: file, name: xattr() }),
        ("listxattr", "r", Request::ListXattr { node: file }),
        ("removexattr", "w", Request::RemoveXattr { node: file, name: xattr() }),
        ("create", "c", Request::Create { dir, name: name_of("new"), mode, flags, open: new }),
        ("tmpfile", "c", Request::CreateUnnamed { dir, mode, flags, open: next_open() }),
        ("mkdir", "c", Request::MakeDir { dir, name: name_of("made"), mode }),
        (
            "mknod",
            "c",
            Request::MakeNode { dir, name: name_of("q"), kind: FileKind::Fifo, mode, rdev: 0 },
        ),
        ("symlink", "c", Request::Symlink { dir, name: name_of("l"), target: b"t".to_vec() }),
        ("link", "c", Request::Link { node: file, dir, name: name_of("g") }),
        ("rename", "cd", renamed(dir, "f", dir, "f2", RenameFlags::NoReplace)),
        ("exchange", "cd", renamed(dir, "x", dir, "y", RenameFlags::Exchange)),
        ("unlink", "d", Request::Unlink { dir, name: name_of("old") }),
        ("rmdir", "d", Request::RemoveDir { dir, name: name_of("empty") }),
    ]
}

/// Each set of rights lets through exactly the rows whose rights it has.
#[test]
fn each_right_gives_its_rows_of_the_table_and_no_other() {
    for set in 1..32_u32 {
        let letters = ["r", "w", "c", "d", "x"];
        let rights: String =
            (0..5).filter(|bit| set & 1 << bit != 0).map(|bit| letters[bit]).collect();
        let desk = Desk::new();
        for text in ["old", "x", "y"] {
            desk.world.put(desk.dir, text, b"old");
        }
        desk.world.make_dir(desk.dir, "empty");
        let guest = desk.guest(&rights);
        for (says, needs, request) in table(&desk) {
            let told = desk.world.ask(&guest, request);
            let is_granted = needs.chars().all(|right| rights.contains(right));
            match is_granted {
                true => {
                    let is_missing = says == "getxattr" && matches!(told, Err(Code::NoXattr));
                    assert!(told.is_ok() || is_missing, "{rights}: {says}: {told:?}");
                }
                false => {
                    assert!(matches!(told, Err(Code::AccessDenied)), "{rights}: {says}: {told:?}");
                }
            }
        }
    }
}

#[test]
fn what_no_guest_may_do_is_refused_with_all_rights() {
    let desk = Desk::new();
    let guest = desk.guest("rwxcdga");
    let Desk { dir, file, .. } = desk;
    let before = desk.attr(file);
    let sets = [
        SetAttr { uid: Some(0), ..SetAttr::default() },
        SetAttr { gid: Some(0), ..SetAttr::default() },
        SetAttr { ctime: Some(Time { seconds: 1, nanos: 0 }), ..SetAttr::default() },
        SetAttr { mode: Some(0o4755), ..SetAttr::default() },
        SetAttr { mode: Some(0o2755), ..SetAttr::default() },
        SetAttr { mode: Some(0o1755), ..SetAttr::default() },
    ];
    for set in sets {
        assert_eq!(desk.set(&guest, file, set), Err(Code::AccessDenied), "{set:?}");
    }
    for kind in [FileKind::CharDevice, FileKind::BlockDevice] {
        let mode = NewMode::exactly(0o600);
        let node = Request::MakeNode { dir, name: name("device"), kind, mode, rdev: 259 };
        assert!(matches!(desk.world.ask(&guest, node), Err(Code::AccessDenied)));
    }
    let flags = RenameFlags::Whiteout { replace: true };
    let whiteout =
        Request::Rename { from_dir: dir, from: name("f"), to_dir: dir, to: name("g"), flags };
    assert!(matches!(desk.world.ask(&guest, whiteout), Err(Code::AccessDenied)));
    for (attribute, code) in [
        ("trusted.a", Code::AccessDenied),
        ("security.capability", Code::AccessDenied),
        ("user.pelago.level", Code::AccessDenied),
        ("system.posix_acl_access", Code::NotSupported),
        ("system.posix_acl_default", Code::NotSupported),
    ] {
        let name = attribute.as_bytes().to_vec();
        let flags = XattrFlags::Any;
        let value = b"v".to_vec();
        let set =
            Request::SetXattr { node: file, name: name.clone(), value, flags, kill_setgid: false };
        let removed = Request::RemoveXattr { node: file, name };
        for request in [set, removed] {
            let told = desk.world.ask(&guest, request);
            assert_eq!(told.map(drop), Err(code), "{attribute}");
        }
    }
    assert_eq!(desk.attr(file), before);
}

#[test]
fn a_file_that_a_guest_creates_belongs_to_the_owner_and_is_open_to_its_maker() {
    let desk = Desk::new();
    desk.chmod(desk.dir, 0o750);
    desk.chown(desk.dir, 77);
    // Without the right to write or to read.
    let guest = desk.guest("c");
    let (shown, handle, open) = desk.create(&guest, desk.dir, "new").unwrap();
    assert_eq!((shown.mode, shown.uid, shown.gid), (0, 0, 0), "nothing is left to it by name");
    assert!(desk.write(&guest, open).is_ok());
    assert_eq!(desk.open(&guest, handle, OpenFlags::WRITE), Err(Code::AccessDenied));
    let size = SetAttr { size: Some(3), ..SetAttr::default() };
    let cut = Request::SetAttr { node: handle, open: Some(open), set: size };
    assert!(desk.world.ask(&guest, cut).is_ok(), "ftruncate by the maker's open");
    // The open of one file is no right to another.
    let other = Request::SetAttr { node: desk.file, open: Some(open), set: size };
    assert!(matches!(desk.world.ask(&guest, other), Err(Code::BadOpen)));
    assert!(desk.world.ask(&guest, Request::Release { open }).is_ok());
    assert!(matches!(desk.write(&guest, open), Err(Code::BadOpen)));
    assert_eq!(desk.bytes(handle), b"new");
    // The bits of others are cut to those of the directory.
    let attr = desk.attr(handle);
    assert_eq!((attr.mode, attr.uid), (0o640, 0), "{attr:?}");
    assert_eq!(desk.bytes(desk.file), b"some bytes");
}

/// A program that a user has marked set-user-ID must not run a guest's bytes as that user.
#[test]
fn each_change_of_bytes_drops_set_id_bits_whatever_the_client_says() {
    let desk = Desk::new();
    let guest = desk.guest("rwxcd");
    let source = desk.world.put(desk.dir, "source", b"bytes to copy");
    let with_open = |flags: OpenFlags, request: &dyn Fn(OpenId) -> Request| {
        let open = desk.open(&guest, desk.file, flags).unwrap();
        desk.world.ask(&guest, request(open)).unwrap();
    };
    let changes: [(&str, &dyn Fn()); 6] = [
        ("write", &|| {
            with_open(OpenFlags::WRITE, &|open| Request::Write {
                open,
                offset: 0,
                flags: WriteFlags::NONE,
            });
        }),
        ("truncating open", &|| {
            desk.open(&guest, desk.file, OpenFlags { truncate: true, ..OpenFlags::WRITE }).unwrap();
        }),
        ("size", &|| {
            desk.set(&guest, desk.file, SetAttr { size: Some(3), ..SetAttr::default() }).unwrap();
        }),
        ("allocate", &|| {
            let mode = AllocateMode::Reserve { keep_size: false };
            with_open(OpenFlags::WRITE, &|open| Request::Allocate {
                open,
                offset: 0,
                length: 4096,
                mode,
            });
        }),
        ("copy", &|| {
            let from = desk.open(&guest, source, OpenFlags::READ).unwrap();
            with_open(OpenFlags::WRITE, &|to| Request::CopyRange {
                from,
                from_offset: 0,
                to,
                to_offset: 0,
                length: 5,
            });
        }),
        ("mode", &|| {
            desk.set(&guest, desk.file, SetAttr { mode: Some(0o700), ..SetAttr::default() })
                .unwrap();
        }),
    ];
    for (says, change) in changes {
        desk.chmod(desk.file, 0o6755);
        desk.set_capability();
        change();
        assert_eq!(desk.attr(desk.file).mode & 0o6000, 0, "{says}");
        let is_change_of_bytes = says != "mode";
        assert_eq!(desk.has_capability(), !is_change_of_bytes, "{says}");
    }
}

#[test]
fn a_guest_changes_the_bits_of_the_owner_alone() {
    let desk = Desk::new();
    let guest = desk.guest("rwx");
    desk.chmod(desk.file, 0o644);
    let set = |mode| {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        desk.set(&guest, desk.file, set).unwrap().mode
    };
    assert_eq!((set(0o777), desk.attr(desk.file).mode), (0o700, 0o744));
    assert_eq!((set(0o400), desk.attr(desk.file).mode), (0o400, 0o444));
    // Bits of a directory that the guest does not see stay.
    desk.chmod(desk.below, 0o3775);
    let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    desk.set(&guest, desk.below, set).unwrap();
    assert_eq!(desk.attr(desk.below).mode, 0o3775);
}

#[test]
fn attributes_show_what_is_left() {
    let desk = Desk::new();
    desk.chmod(desk.file, 0o755);
    desk.chmod(desk.dir, 0o755);
    let rows = [
        ("r", 0o400, 0o500),
        ("rx", 0o500, 0o500),
        ("rw", 0o600, 0o500),
        ("rwx", 0o700, 0o500),
        ("rc", 0o400, 0o700),
        ("rwxcd", 0o700, 0o700),
        ("d", 0, 0o300),
    ];
    for (rights, file, dir) in rows {
        let guest = desk.guest(rights);
        assert_eq!(desk.world.attr(&guest, desk.file).unwrap().mode, file, "{rights}");
        assert_eq!(desk.world.attr(&guest, desk.dir).unwrap().mode, dir, "{rights}");
        let entry = desk.world.lookup(&guest, desk.dir, "f").unwrap();
        assert_eq!((entry.attr.mode, entry.attr.uid), (file, 0), "{rights}");
    }
    desk.chmod(desk.file, 0o444);
    let guest = desk.guest("rwxcd");
    assert_eq!(desk.world.attr(&guest, desk.file).unwrap().mode, 0o400);
}

/// Otherwise a guest that may read one folder and write another one could link a file of the first
/// into the second.
#[test]
fn a_name_in_another_directory_gives_no_new_right() {
    let world = World::new();
    let read = world.make_dir(Handle::ROOT, "read");
    let write = world.make_dir(Handle::ROOT, "write");
    let file = world.put(read, "f", b"read only");
    let sub = world.make_dir(read, "sub");
    world.put(sub, "g", b"read only");
    let mine = world.put(write, "mine", b"mine");
    let volume: String = world.volume.iter().map(|byte| format!("{byte:02x}")).collect();
    let at = |ino: InodeId| format!("ancestors ~= \"/{:x}/\"", ino.raw());
    let conditions = format!(
        "app_domain == \"pelago\" && volume == \"{volume}\" && \
         (({} && (right == \"r\" || right == \"d\" || right == \"c\")) || {});",
        at(read.ino),
        at(write.ino),
    );
    let grant = world.admit(2, &[&world.written(1, 2, &conditions)]).unwrap();
    let guest = world.begin(grant).unwrap();
    let link = |node, dir| Request::Link { node, dir, name: name("gained") };
    assert!(matches!(world.ask(&guest, link(file, write)), Err(Code::CrossHome)));
    assert!(world.ask(&guest, link(mine, read)).is_ok(), "to a directory that grants less");
    let rename = |from_dir, from, to_dir, to, flags| {
        let rename = Request::Rename { from_dir, from: name(from), to_dir, to: name(to), flags };
        world.ask(&guest, rename)
    };
    for (old, new) in [("f", "f"), ("sub", "sub"), ("f", "mine")] {
        let told = rename(read, old, write, new, RenameFlags::Replace);
        assert!(matches!(told, Err(Code::CrossHome)), "{old}: {told:?}");
    }
    for (from, old, to, new) in [(read, "f", write, "mine"), (write, "mine", read, "f")] {
        let told = rename(from, old, to, new, RenameFlags::Exchange);
        assert!(matches!(told, Err(Code::CrossHome)), "{old}: {told:?}");
    }
    assert!(rename(read, "f", read, "f2", RenameFlags::Replace).is_ok(), "in one directory");
    assert!(rename(write, "mine", read, "mine", RenameFlags::Replace).is_ok());
}

/// The key may have a credential for the other directory, of which this session does not know.
#[test]
fn a_name_in_another_directory_is_for_what_the_guest_may_read_and_write() {
    for (rights, may_move) in [("cd", false), ("rxcd", false), ("wcd", false), ("rwcd", true)] {
        let desk = Desk::new();
        let Desk { world, dir, file, below, .. } = &desk;
        let guest = desk.guest(rights);
        let object = SharedObject::Folder(below.ino.raw());
        let rights_below = Grant { rights: "rwcd".parse().unwrap(), ..world.to_read(below.ino) };
        let of_below = world.signed(1, 2, &Grant { object, ..rights_below });
        let other = world.begin(world.admit(2, &[&of_below]).unwrap()).unwrap();
        let told = |told: Result<Reply, Code>| told.map(drop);
        let as_it_may = if may_move { Ok(()) } else { Err(Code::CrossHome) };
        let link = |dir| Request::Link { node: *file, dir, name: name("l") };
        assert_eq!(told(world.ask(&guest, link(*below))), as_it_may, "{rights}");
        assert_eq!(told(world.ask(&guest, link(*dir))), Ok(()), "{rights}: in its directory");
        let flags = RenameFlags::NoReplace;
        let to = name("moved");
        let rename = Request::Rename { from_dir: *dir, from: name("f"), to_dir: *below, to, flags };
        assert_eq!(told(world.ask(&guest, rename)), as_it_may, "{rights}");
        let wrote = desk.open(&other, *file, OpenFlags::WRITE).map(drop);
        assert_eq!(wrote, if may_move { Ok(()) } else { Err(Code::Stale) }, "{rights}");
    }
}

/// A name that a rename replaces is removed, which is another right than to create one.
#[test]
fn a_rename_replaces_only_what_the_guest_may_remove() {
    let world = World::new();
    let from = world.make_dir(Handle::ROOT, "from");
    let to = world.make_dir(Handle::ROOT, "to");
    world.put(from, "f", b"new");
    world.put(to, "f", b"old");
    let volume: String = world.volume.iter().map(|byte| format!("{byte:02x}")).collect();
    let conditions = format!(
        "app_domain == \"pelago\" && volume == \"{volume}\" && ((ancestors ~= \"/{:x}/\") || \
         (ancestors ~= \"/{:x}/\" && right != \"d\"));",
        from.ino.raw(),
        to.ino.raw(),
    );
    let grant = world.admit(2, &[&world.written(1, 2, &conditions)]).unwrap();
    let guest = world.begin(grant).unwrap();
    let rename = |new: &str, flags| {
        let rename =
            Request::Rename { from_dir: from, from: name("f"), to_dir: to, to: name(new), flags };
        world.ask(&guest, rename)
    };
    assert!(matches!(rename("f", RenameFlags::Replace), Err(Code::AccessDenied)));
    assert!(matches!(rename("f", RenameFlags::NoReplace), Err(Code::Exists)));
    assert!(matches!(rename("f", RenameFlags::Exchange), Err(Code::AccessDenied)));
    assert!(rename("g", RenameFlags::Replace).is_ok());
}

#[test]
fn locks_are_for_those_who_may_use_the_bytes() {
    let desk = Desk::new();
    let owner = LockOwner(9);
    let set = |guest: &Guest, open, mode| {
        let lock = lock(mode);
        desk.world.ask(guest, Request::SetLock { open, owner, lock, wait: false })
    };
    let reader = desk.guest("r");
    let open = desk.open(&reader, desk.file, OpenFlags::READ).unwrap();
    assert!(matches!(set(&reader, open, LockMode::Write), Err(Code::AccessDenied)));
    assert!(set(&reader, open, LockMode::Read).is_ok());
    let writer = desk.guest("rw");
    let open_to_write = desk.open(&writer, desk.file, OpenFlags::READ_WRITE).unwrap();
    assert!(matches!(set(&writer, open_to_write, LockMode::Write), Err(Code::LockHeld)));
    // A close ends the locks of a process, also of one that only reads.
    assert!(desk.world.ask(&reader, Request::Flush { open, owner: Some(owner) }).is_ok());
    assert!(set(&writer, open_to_write, LockMode::Write).is_ok());
    assert!(set(&writer, open_to_write, LockMode::Unlock).is_ok());
}

/// A file without a name is in the directory in which it was made, for its maker alone.
#[test]
fn an_unnamed_file_gets_a_name_from_its_maker() {
    let desk = Desk::new();
    let guest = desk.guest("rc");
    let other = desk.guest("rwcd");
    let open = next_open();
    let mode = NewMode::exactly(0o600);
    let flags = OpenFlags::READ_WRITE;
    let made = desk.world.ask(&guest, Request::CreateUnnamed { dir: desk.dir, mode, flags, open });
    let Ok(Reply::Created { entry, .. }) = made else { panic!("{made:?}") };
    assert!(desk.write(&guest, open).is_ok());
    let link = || Request::Link { node: entry.handle, dir: desk.dir, name: name("named") };
    assert!(matches!(desk.world.ask(&other, link()), Err(Code::Stale)), "of another session");
    assert!(desk.world.ask(&guest, link()).is_ok());
    assert_eq!(desk.bytes(entry.handle), b"new bytes");
}

/// The numbers of a volume's users mean nothing to the machine of a guest.
#[test]
fn ids_that_a_guest_claims_are_not_asked() {
    let desk = Desk::new();
    let guest = desk.guest("rwxcd");
    let made =
        Request::MakeDir { dir: desk.dir, name: name("made"), mode: NewMode::exactly(0o755) };
    let context = pelago_wire::Context { uid: 4711, gid: 4711, ..guest.context(&made) };
    let Ok(Reply::Entry(entry)) = desk.world.ask_as(&context, made) else { panic!("no entry") };
    assert_eq!((entry.attr.uid, entry.attr.gid), (0, 0));
    let attr = desk.attr(entry.handle);
    assert_eq!((attr.uid, attr.gid), (0, 0), "the user of the volume");
}

#[test]
fn a_guest_that_writes_is_known_to_the_next_run_and_has_no_right_until_it_is_back() {
    let desk = Desk::new();
    let guest = desk.guest("rwxcd");
    let reader = desk.guest("rx");
    desk.create(&guest, desk.dir, "new").unwrap();
    let Desk { world, dir, outside, .. } = desk;
    let world = world.restarted();
    let earlier = world.server.session_service().earlier_sessions();
    let sessions: Vec<_> = earlier.iter().map(|(session, _)| *session).collect();
    assert_eq!(sessions, [guest.session], "and not {:?}", reader.session);
    for request in [
        Request::GetAttr { node: outside },
        Request::Unlink { dir: Handle::ROOT, name: name("secret") },
        Request::Unlink { dir, name: name("new") },
    ] {
        assert!(matches!(world.ask(&guest, request), Err(Code::Stale)));
    }
    let chain =
        world.signed(1, 2, &Grant { rights: "rwxcd".parse().unwrap(), ..world.to_read(dir.ino) });
    let grant = world.admit(2, &[&chain]).unwrap();
    world.server.session_service().guest_came_back(guest.session, &grant).unwrap();
    assert!(matches!(world.ask(&guest, Request::GetAttr { node: outside }), Err(Code::Stale)));
    assert!(world.ask(&guest, Request::Unlink { dir, name: name("new") }).is_ok());
}

/// The table of an earlier run may have lost the change, or not: the attributes are set again. A
/// name is not made again, because a guest could claim the number of another user's file.
#[test]
fn attributes_that_may_be_lost_are_set_again_and_names_are_not_made_again() {
    let desk = Desk::new();
    let replayed = |guest: &Guest, request: Request| {
        let time = Some(Time { seconds: 7, nanos: 0 });
        let stamp = pelago_wire::codec::ReplyStamp::default();
        let replayed = Some(pelago_wire::Replayed { stamp, node: Some(desk.file), time });
        let context = pelago_wire::Context { replayed, ..guest.context(&request) };
        desk.world.ask_as(&context, request)
    };
    let size = SetAttr { size: Some(4), ..SetAttr::default() };
    let set = |node, set| Request::SetAttr { node, open: Some(next_open()), set };
    let writer = desk.guest("rwc");
    let told = replayed(&writer, set(desk.file, size));
    // Until the sessions of the last run are back such a request is carried out; here all are.
    assert!(matches!(told, Err(Code::TimedOut)), "{told:?}");
    let reader = desk.guest("rx");
    assert!(matches!(replayed(&reader, set(desk.file, size)), Err(Code::AccessDenied)));
    assert!(matches!(replayed(&writer, set(desk.outside, size)), Err(Code::Stale)));
    let owner = SetAttr { uid: Some(0), ..SetAttr::default() };
    assert!(matches!(replayed(&writer, set(desk.file, owner)), Err(Code::TimedOut)));
    let mode = NewMode::exactly(0o644);
    let made = Request::MakeDir { dir: desk.dir, name: name("again"), mode };
    assert!(matches!(replayed(&writer, made), Err(Code::TimedOut)));
}
