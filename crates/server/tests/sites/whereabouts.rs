//! The attribute that says at which sites a file and its bytes are.

use pelago_server::{Options, Server};
use pelago_wire::{
    Code, Handle, InodeId, NewMode, OpenFlags, OpenId, Reply, Request, SessionId, XattrFlags, xattr,
};

use super::stays::{DIRECT, SIZE, content, create, flush, open, read, release, write, write_new};
use super::world::{Offices, ask, client, founded, lookup, options, wait_for};
use crate::harness::rig::{entry, name};

fn sites_of(server: &Server, session: SessionId, node: Handle) -> Result<String, Code> {
    let question = Request::GetXattr { node, name: xattr::SITES.to_vec() };
    match ask(server, session, question)? {
        Reply::Bytes(bytes) => Ok(String::from_utf8(bytes).unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_offices_say_where_a_file_and_its_bytes_are() {
    let offices = Offices::with(Options { copy_bytes: 64 << 20, ..options() });
    let Offices { first, berlin, .. } = &offices;
    let told = |server, node| sites_of(server, DIRECT, node).unwrap();
    for (at, other) in [(first, "home=here"), (berlin, "home=first")] {
        assert_eq!(told(at, Handle::ROOT), other);
    }
    let small = offices.written("small", b"of the first one");
    assert_eq!(told(first, small), "home=here bytes=here");
    assert_eq!(told(berlin, small), "home=first bytes=first");
    let large = write_new(berlin, "large", &content(1, SIZE));
    assert_eq!(told(first, large), "home=here bytes=berlin");
    assert_eq!(told(berlin, large), "home=first bytes=here");
    // Machines of an office are told the same.
    let session = client(berlin);
    assert_eq!(sites_of(berlin, session, large).unwrap(), "home=first bytes=here");
    // Until its first byte is told, only this site knows that it is here.
    let writing = OpenId(7);
    let new = create(berlin, DIRECT, "new", writing);
    write(berlin, writing, 0, &content(2, SIZE)).unwrap();
    assert_eq!(told(berlin, new), "home=first bytes=here");
    flush(berlin, writing).unwrap();
    release(berlin, writing);
    // Copies of what was read.
    let read_there = offices.written("read", &content(3, SIZE));
    assert_eq!(read(berlin, "read").unwrap(), content(3, SIZE));
    let expected = format!("home=first bytes=first copied={SIZE}");
    wait_for("the copy", || told(berlin, read_there) == expected);
    // What is brought home leaves the other office.
    open(first, large, OpenFlags::WRITE, OpenId(9)).unwrap();
    write(first, OpenId(9), 0, b"x").unwrap();
    wait_for("the removal of the node", || told(berlin, large) == "home=first bytes=first");
    // A directory of the second office.
    let made =
        Request::MakeDir { dir: Handle::ROOT, name: name("own"), mode: NewMode::exactly(0o755) };
    let own = entry(ask(berlin, DIRECT, made).unwrap()).unwrap().handle;
    assert_eq!((told(berlin, own), told(first, own)), ("home=here".into(), "home=berlin".into()));
}

#[test]
fn it_is_in_no_list_and_cannot_be_set_or_removed() {
    let offices = Offices::new();
    let file = offices.written("file", b"bytes");
    for server in [&offices.first, &offices.berlin] {
        let list = ask(server, DIRECT, Request::ListXattr { node: file });
        assert!(matches!(list, Ok(Reply::Bytes(names)) if names.is_empty()));
        let name = xattr::SITES.to_vec();
        let set = Request::SetXattr {
            node: file,
            name: name.clone(),
            value: b"mine".to_vec(),
            flags: XattrFlags::Any,
            kill_setgid: false,
        };
        assert_eq!(ask(server, DIRECT, set).err(), Some(Code::NotSupported));
        let removed = ask(server, DIRECT, Request::RemoveXattr { node: file, name });
        assert_eq!(removed.err(), Some(Code::NoXattr));
        assert!(sites_of(server, DIRECT, file).is_ok());
    }
}

#[test]
fn a_volume_of_one_office_has_no_such_attribute() {
    let folder = tempfile::tempdir().unwrap();
    let server = founded(&folder);
    assert_eq!(sites_of(&server, DIRECT, Handle::ROOT).err(), Some(Code::NoXattr));
}

#[test]
fn a_file_that_is_gone_and_an_office_that_is_away_are_errors() {
    let offices = Offices::new();
    let none = Handle::own(InodeId::new(0, 0, 4000).unwrap());
    for server in [&offices.first, &offices.berlin] {
        assert_eq!(sites_of(server, DIRECT, none).err(), Some(Code::Stale));
    }
    let file = offices.written("file", b"bytes");
    assert_eq!(lookup(&offices.berlin, Handle::ROOT, "file"), Ok(file));
    offices.cut(true);
    assert!(sites_of(&offices.berlin, DIRECT, file).is_err());
    assert!(sites_of(&offices.first, DIRECT, file).is_ok());
}
