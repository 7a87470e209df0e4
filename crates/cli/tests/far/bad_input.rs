//! Bytes that no correct client sends, over the sockets of a server: it answers as the protocol
//! says, or ends the connection, and serves the others as before.

use std::fs;
use std::io::Write;

use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::tls;
use pelago_random::bytes_of;
use pelago_wire::frame::{FrameKind, HEADER_BYTES, Header};
use pelago_wire::handshake::{ClosingCode, HELLO_BYTES, Hello, RefusalCode};
use pelago_wire::{
    Code, Handle, Name, NewMode, OpenFlags, OpenId, Reply, Request, limits, version,
};

use crate::far::good::with_a_good_mount;
use crate::far::peer::{Peer, body, hello, is_end, tcp};
use crate::harness::program::until;

fn create(name: &str, open: u64) -> Request {
    Request::Create {
        dir: Handle::ROOT,
        name: Name::new(name.as_bytes()).unwrap(),
        mode: NewMode::exactly(0o644),
        flags: OpenFlags::READ_WRITE,
        open: OpenId(open),
    }
}

fn mkdir(name: &str) -> Request {
    let name = Name::new(name.as_bytes()).unwrap();
    Request::MakeDir { dir: Handle::ROOT, name, mode: NewMode::exactly(0o755) }
}

fn code_of(result: Result<Reply, pelago_wire::Error>) -> Code {
    result.unwrap_err().code
}

#[test]
fn what_is_no_hello_is_refused() {
    with_a_good_mount(|world| {
        let socket = world.socket();
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut peer = Peer::unix(&socket);
            let mut body = hello().encode().to_vec();
            change(&mut body);
            peer.send_frame(FrameKind::Hello, 0, &body, &[]);
            peer.hear_refused()
        };
        for change in [
            &(|body: &mut Vec<u8>| body[0] = b'p') as &dyn Fn(&mut Vec<u8>),
            &|body: &mut Vec<u8>| body[7] = b'\r',
            &|body: &mut Vec<u8>| body.truncate(HELLO_BYTES - 1),
            &|body: &mut Vec<u8>| body.push(0),
            &Vec::clear,
        ] {
            assert_eq!(refused(change).code, RefusalCode::NotPelago);
        }
        let versions = |min: u16, max: u16| {
            let mut peer = Peer::unix(&socket);
            peer.send_hello(&Hello { wire_min: min, wire_max: max, ..hello() });
            peer.hear_refused()
        };
        for (min, max) in [(version::NEWEST + 1, u16::MAX), (0, version::OLDEST - 1), (9, 1)] {
            let refused = versions(min, max);
            assert_eq!(refused.code, RefusalCode::OtherVersion);
            assert_eq!((refused.wire_min, refused.wire_max), (version::OLDEST, version::NEWEST));
        }
        for (role, says) in [
            (Hello::GUEST, "a guest or a site comes over TLS"),
            (Hello::SITE, "a guest or a site comes over TLS"),
            (Hello::BULK, "a guest or a site comes over TLS"),
            (Hello::REVERSE, "a guest or a site comes over TLS"),
            (Hello::MIRROR, "role 6"),
            (Hello::RELAY, "role 7"),
            (8, "role 8 (server of the same store)"),
        ] {
            let mut peer = Peer::unix(&socket);
            peer.send_hello(&Hello { role, ..hello() });
            let refused = peer.hear_refused();
            assert_eq!(refused.code, RefusalCode::UnknownRole);
            assert!(refused.text.contains(says), "{refused:?}");
        }
        for other in [
            Hello { volume: Some([1; 16]), ..hello() },
            Hello { shard: 1, ..hello() },
            Hello { site: 7, ..hello() },
        ] {
            let mut peer = Peer::unix(&socket);
            peer.send_hello(&other);
            assert_eq!(peer.hear_refused().code, RefusalCode::NotServed, "{other:?}");
        }
        // A request, or any other message, before the hello.
        for kind in [
            FrameKind::Request,
            FrameKind::Cancel,
            FrameKind::Ping,
            FrameKind::Goodbye,
            FrameKind::Present,
        ] {
            let mut peer = Peer::unix(&socket);
            let body = if kind == FrameKind::Cancel { vec![0; 8] } else { Vec::new() };
            peer.send_frame(kind, u64::from(kind.has_number()), &body, &[]);
            assert_eq!(peer.hear_refused().code, RefusalCode::NotPelago, "{kind:?}");
        }
        // A newer client, which has features and flags that this server does not know.
        let mut peer = Peer::unix(&socket);
        let mut newer = Hello { wire_max: u16::MAX, features: u64::MAX, ..hello() }.encode();
        newer[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
        newer[68..].fill(0xff);
        peer.send_frame(FrameKind::Hello, 0, &newer, &[]);
        let welcome = peer.hear_welcome();
        // Its volume lies on no shared store.
        assert_eq!((welcome.version, welcome.features), (version::NEWEST, 0));
    });
}

/// Returns headers that are wrong, with what is wrong with them.
fn wrong_headers() -> Vec<(&'static str, Vec<u8>)> {
    let good = Header {
        body: 0,
        bulk: 0,
        kind: FrameKind::Ping,
        is_overdue: false,
        number: 0,
        progress: 0,
    };
    let changed = |at: usize, bytes: &[u8]| {
        let mut header = good.encode();
        header[at..at + bytes.len()].copy_from_slice(bytes);
        header.to_vec()
    };
    let request = |body: u32, bulk: u32, number: u64| {
        Header { body, bulk, kind: FrameKind::Request, is_overdue: false, number, progress: 0 }
            .encode()
            .to_vec()
    };
    let goodbye = Header { number: 1, ..Header::new(FrameKind::Goodbye, 0, 0) };
    vec![
        ("a body of 4 GiB", request(u32::MAX, 0, 1)),
        ("a body over the limit", request(limits::FRAME_BODY_BYTES as u32 + 1, 0, 1)),
        ("bulk of 4 GiB", request(0, u32::MAX, 1)),
        ("bulk over the limit", request(50, limits::FRAME_BULK_BYTES as u32 + 1, 1)),
        ("no number", request(20, 0, 0)),
        ("a number of a goodbye", goodbye.encode().to_vec()),
        ("an unknown kind", changed(8, &[200])),
        ("kind 0", changed(8, &[0])),
        ("flags", changed(10, &[1])),
        ("reserved bytes", changed(12, &[0, 0, 0, 1])),
        ("a ping with a body", changed(0, &[1])),
        ("only ones", vec![0xff; HEADER_BYTES]),
    ]
}

#[test]
fn a_wrong_frame_ends_the_connection() {
    with_a_good_mount(|world| {
        let socket = world.socket();
        for (what, header) in wrong_headers() {
            println!("{what}");
            // Before the handshake, and behind it.
            let mut peer = Peer::unix(&socket);
            peer.send(&header).unwrap();
            peer.hear_end();
            let (mut peer, _) = Peer::session(&socket);
            peer.send(&header).unwrap();
            peer.hear_end();
        }
        // Messages of a server, and messages that are cut.
        for kind in [FrameKind::Welcome, FrameKind::Refused, FrameKind::Pong, FrameKind::Closing] {
            let (mut peer, _) = Peer::session(&socket);
            peer.send_frame(kind, 0, &[], &[]);
            assert_eq!(peer.hear_closing().code, ClosingCode::Protocol, "{kind:?}");
        }
        let (mut peer, _) = Peer::session(&socket);
        peer.send_hello(&hello());
        assert_eq!(peer.hear_closing().code, ClosingCode::Protocol);
    });
}

#[test]
fn a_body_that_is_no_request_ends_the_session() {
    with_a_good_mount(|world| {
        let socket = world.socket();
        let good = body(1, &mkdir("never"));
        let mut bodies: Vec<Vec<u8>> =
            (0..good.len()).map(|length| good[..length].to_vec()).collect();
        bodies.push([&good[..], &[0]].concat());
        bodies.push([&good[..16], &u16::MAX.to_le_bytes(), &good[18..]].concat());
        bodies.extend((0..200).map(|seed| bytes_of(seed, 40 + seed as usize * 20)));
        for body in bodies {
            let (mut peer, _) = Peer::session(&socket);
            peer.send_frame(FrameKind::Request, 1, &body, &[]);
            assert_eq!(peer.hear_closing().code, ClosingCode::Protocol, "{body:?}");
        }
        assert!(!world.volume.files().join("never").exists());
    });
}

#[test]
fn half_a_frame_holds_nothing_up() {
    with_a_good_mount(|world| {
        let socket = world.socket();
        let call = body(1, &mkdir("half"));
        let header = Header {
            body: call.len() as u32,
            bulk: 0,
            kind: FrameKind::Request,
            is_overdue: false,
            number: 1,
            progress: 0,
        };
        let frame = [&header.encode()[..], &call].concat();
        for cut in [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, frame.len() - 1] {
            let (mut peer, _) = Peer::session(&socket);
            peer.send(&frame[..cut]).unwrap();
            peer.vanish();
        }
        // One byte at a time it is a frame all the same.
        let (mut peer, _) = Peer::session(&socket);
        for byte in &frame {
            peer.send(&[*byte]).unwrap();
        }
        let (number, answer) = peer.hear_answer();
        assert!(number == 1 && answer.is_ok(), "{answer:?}");
        assert!(world.volume.files().join("half").is_dir());
    });
}

#[test]
fn numbers_that_no_client_uses_end_the_session() {
    with_a_good_mount(|world| {
        let socket = world.socket();
        let ends = |name: &str, send: &dyn Fn(&mut Peer)| {
            println!("{name}");
            let (mut peer, _) = Peer::session(&socket);
            assert!(peer.ask(1, 1, &mkdir(name)).is_ok());
            send(&mut peer);
            assert_eq!(peer.hear_closing().code, ClosingCode::Protocol, "{name}");
        };
        ends("acknowledged and sent again", &|peer| {
            peer.progress = 1;
            peer.send_call(1, 1, &mkdir("acknowledged and sent again"));
        });
        ends("another request", &|peer| peer.send_call(2, 1, &mkdir("other")));
        ends("too far", &|peer| {
            peer.send_call(2, limits::SESSION_MUTATIONS + 1, &mkdir("other"));
        });
        ends("acknowledged and never sent", &|peer| {
            peer.progress = 2;
            peer.send_frame(FrameKind::Ping, 0, &[], &[]);
        });
        ends("everything acknowledged", &|peer| {
            peer.progress = u64::MAX;
            peer.send_frame(FrameKind::Ping, 0, &[], &[]);
        });
        ends("a read with a mutation", &|peer| {
            peer.send_call(2, 2, &Request::GetAttr { node: Handle::ROOT });
        });
        ends("a mutation without one", &|peer| peer.send_call(2, 0, &mkdir("other")));
        ends("bulk where none belongs", &|peer| {
            peer.send_frame(FrameKind::Request, 2, &body(2, &mkdir("other")), b"bulk");
        });
        ends("a cancel of an acknowledged one", &|peer| {
            peer.progress = 1;
            peer.send_frame(FrameKind::Cancel, 1, &1_u64.to_le_bytes(), &[]);
        });
        assert!(!world.volume.files().join("other").exists());
    });
}

#[test]
fn repetitions_and_cancels_are_answered_once() {
    with_a_good_mount(|world| {
        let (mut peer, welcome) = Peer::session(&world.socket());
        let once = |peer: &mut Peer| {
            peer.send_call(1, 1, &mkdir("once"));
            peer.hear().unwrap().body
        };
        let first = once(&mut peer);
        // The same answer again, byte for byte; a second execution would say that the name exists.
        assert_eq!(once(&mut peer), first);
        // A cancel of one that is over repeats its answer; of an unknown read it does nothing.
        peer.send_frame(FrameKind::Cancel, 1, &1_u64.to_le_bytes(), &[]);
        assert_eq!(peer.hear().unwrap().body, first);
        peer.send_frame(FrameKind::Cancel, 77, &0_u64.to_le_bytes(), &[]);
        // One that did not arrive is never carried out.
        peer.send_frame(FrameKind::Cancel, 9, &3_u64.to_le_bytes(), &[]);
        assert_eq!(code_of(peer.hear_answer().1), Code::Interrupted);
        assert_eq!(code_of(peer.ask(9, 3, &mkdir("cancelled"))), Code::Interrupted);
        assert!(!world.volume.files().join("cancelled").exists());

        // Over a new connection of the same client the answer is there; another client has another
        // session, and the first goes on.
        let (mut thief, other) = Peer::session(&world.socket());
        assert_ne!(other.session, welcome.session);
        thief.send_frame(FrameKind::Goodbye, 0, &[], &[]);
        let mut again = Peer::unix(&world.socket());
        again.send_hello(&Hello { resume: Some(welcome.session), nonce: [8; 16], ..hello() });
        assert!(!again.hear_welcome().resumed, "another nonce is another client");
        let mut again = Peer::unix(&world.socket());
        again.send_hello(&Hello { resume: Some(welcome.session), ..hello() });
        assert!(again.hear_welcome().resumed);
        peer.hear_end();
        assert_eq!(once(&mut again), first);
    });
}

#[test]
fn the_open_files_of_a_session_are_its_own() {
    with_a_good_mount(|world| {
        let (mut one, _) = Peer::session(&world.socket());
        let mut other = Peer::unix(&world.socket());
        other.send_hello(&Hello { nonce: [9; 16], ..hello() });
        other.hear_welcome();
        assert!(one.ask(1, 1, &create("secret", 5)).is_ok());
        let read = Request::Read { open: OpenId(5), offset: 0, size: 10 };
        assert!(one.ask(2, 0, &read).is_ok());
        assert_eq!(code_of(other.ask(1, 0, &read)), Code::BadOpen);
        assert_eq!(code_of(other.ask(2, 1, &Request::Release { open: OpenId(5) })), Code::BadOpen);
        // What is too long for any file, and offsets at the end of all numbers.
        for (number, offset) in [(3, u64::MAX), (4, 0), (5, i64::MAX as u64)] {
            let read = Request::Read { open: OpenId(5), offset, size: u32::MAX };
            let answer = one.ask(number, 0, &read);
            let bytes = matches!(&answer, Ok(Reply::Data(bytes)) if !bytes.as_bytes().is_empty());
            assert!(!bytes, "{answer:?}");
        }
        assert!(one.ask(6, 2, &Request::Release { open: OpenId(5) }).is_ok());
    });
}

#[test]
fn more_waiting_requests_than_agreed_end_the_session() {
    with_a_good_mount(|world| {
        let path = world.volume.files().join("locked");
        let holder = fs::File::create(&path).unwrap();
        holder.lock().unwrap();
        let (mut peer, _) = Peer::session(&world.socket());
        let name = Name::new(b"locked").unwrap();
        let Reply::Entry(found) =
            peer.ask(1, 0, &Request::Lookup { dir: Handle::ROOT, name }).unwrap()
        else {
            panic!("a lookup has an entry");
        };
        let open = OpenId(1);
        let flags = OpenFlags::READ;
        assert!(peer.ask(2, 1, &Request::Open { node: found.handle, flags, open }).is_ok());
        // Requests that wait stay under way.
        for number in 0..=limits::LOCK_WAITERS as u64 {
            let lock = pelago_wire::FileLock {
                kind: pelago_wire::LockKind::Flock,
                mode: pelago_wire::LockMode::Write,
                start: 0,
                end: u64::MAX,
                pid: 0,
            };
            let owner = pelago_wire::LockOwner(number);
            peer.send_call(10 + number, 0, &Request::SetLock { open, owner, lock, wait: true });
        }
        assert_eq!(peer.hear_closing().code, ClosingCode::OverLimit);
        until("nobody waits", || world.status()["lock_waiters"] == 0);
        holder.unlock().unwrap();
    });
}

/// A listed machine that sends garbage inside TLS, and one that ends in the middle of a handshake.
#[test]
fn garbage_inside_tls_ends_the_connection() {
    with_a_good_mount(|world| {
        let key = PrivateKey::from_seed([3; 32]);
        world.allow(&key.public().to_string());
        let address: ServerAddress = world.address.parse().unwrap();
        for listed in [true, false] {
            if !listed {
                world.remove_key(&key.public().to_string());
            }
            let config = tls::client_config(&key, address.key()).unwrap();
            let mut connection = tls::client_connection(config).unwrap();
            let mut socket = tcp(world.tcp());
            connection.complete_io(&mut socket).unwrap();
            connection.writer().write_all(&bytes_of(12, 10_000)).unwrap();
            let end = loop {
                match connection.complete_io(&mut socket) {
                    Ok((0, 0)) => break Ok(()),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
            assert!(end.as_ref().is_ok() || end.as_ref().is_err_and(is_end), "{end:?}");
        }
        let config = tls::client_config(&key, address.key()).unwrap();
        let mut connection = tls::client_connection(config).unwrap();
        let mut socket = tcp(world.tcp());
        connection.write_tls(&mut socket).unwrap();
    });
}
