//! Parses any bytes as a request of the kernel, unchanged and with a valid header, in one part as
//! from the device and in three parts as from a ring. An INIT is negotiated, and a listing is
//! filled with names and must keep to its size.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use pelago_fuse::ids::NodeId;
use pelago_fuse::init::{Capabilities, Init, InitOptions, negotiate};
use pelago_fuse::listing::{Dirent, Listing};
use pelago_fuse::operation::{FileLock, Getlk, Readdir, Setlk};
use pelago_fuse::reply::Entry;
use pelago_fuse::request::{self, Header, Layouts};
use pelago_fuse::{Attr, Encode, FileType, Operation, Timestamp};

/// The opcodes that exist, and some that do not.
const OPCODES: u32 = 60;

fuzz_target!(|bytes: &[u8]| {
    take(bytes);
    take_parts(bytes);
    let mut whole = bytes.to_vec();
    if let (Ok(length), Some(head)) = (u32::try_from(bytes.len()), whole.get_mut(..8)) {
        let opcode = u32::from(head[4]) % OPCODES;
        head[..4].copy_from_slice(&length.to_ne_bytes());
        head[4..].copy_from_slice(&opcode.to_ne_bytes());
        take(&whole);
        take_parts(&whole);
    }
});

/// Parses a request whose fields and payload are separate, as a ring passes it.
fn take_parts(bytes: &[u8]) {
    let Some((header, rest)) = bytes.split_at_checked(Header::BYTES) else { return };
    let fields = usize::from(header[Header::BYTES - 1]).min(rest.len());
    let (fields, payload) = rest.split_at(fields);
    for setxattr_ext in [false, true] {
        let parsed = request::parse_parts(header, fields, payload, Layouts { setxattr_ext });
        if let Ok((_, Operation::Write(write))) = parsed {
            assert!(write.data.len() <= payload.len());
        }
    }
}

fn take(bytes: &[u8]) {
    for setxattr_ext in [false, true] {
        match request::parse(bytes, Layouts { setxattr_ext }) {
            Ok((_, Operation::BatchForget(forgets))) => {
                assert!(forgets.count() * 16 + Header::BYTES <= bytes.len());
            }
            Ok((_, Operation::Write(write))) => assert!(write.data.len() < bytes.len()),
            Ok((_, Operation::Getlk(Getlk { lock, .. }))) => locked(&lock, bytes),
            Ok((_, Operation::Setlk(Setlk { lock, .. }))) => locked(&lock, bytes),
            Ok((_, Operation::Init(offer))) => offered(&offer),
            Ok((_, Operation::Readdir(asked))) => {
                list(Listing::of_names(asked.size), asked, bytes);
            }
            Ok((_, Operation::ReaddirPlus(asked))) => {
                list(Listing::of_entries(asked.size), asked, bytes);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Checks that a lock has a range, and that its reply has the bytes that the kernel wrote.
fn locked(lock: &FileLock, bytes: &[u8]) {
    assert!(lock.start <= lock.end && i64::try_from(lock.end).is_ok());
    let written = &bytes[Header::BYTES + 16..Header::BYTES + 40];
    lock.with_bytes(&mut |answer| assert_eq!(answer, written));
}

fn offered(offer: &Init) {
    let init_options = InitOptions {
        capabilities: Capabilities(u64::from(offer.minor) << 30 | 0xf0f0),
        max_write: offer.max_readahead,
        max_readahead: offer.minor,
        max_background: 64,
        passthrough: true,
    };
    if let Ok(agreed) = negotiate(offer, &init_options) {
        assert!(Capabilities(offer.capabilities).has(agreed.capabilities));
        agreed.with_bytes(&mut |bytes| assert_eq!(bytes.len(), 64));
    }
}

/// Fills a listing with names from the bytes of the request.
fn list(mut listing: Listing, asked: Readdir, bytes: &[u8]) {
    let entry = entry(asked.offset);
    for (offset, name) in (1..).zip(bytes.split(|&byte| byte == 0)) {
        let listed = Dirent { ino: asked.offset, offset, file_type: FileType::Regular, name };
        if !listing.add(listed, (name.len() % 2 == 0).then_some(&entry)) {
            break;
        }
    }
    listing.with_bytes(&mut |bytes| assert!(bytes.len() <= asked.size as usize));
}

fn entry(any: u64) -> Entry {
    let time = Timestamp { seconds: any.cast_signed(), nanos: 0 };
    let attr = Attr {
        ino: any,
        size: any,
        blocks: any,
        atime: time,
        mtime: time,
        ctime: time,
        file_type: FileType::Regular,
        mode: any as u16,
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_bytes: 4096,
    };
    let entry_ttl = Duration::from_secs(any);
    Entry { node: NodeId(any), generation: 0, entry_ttl, attr_ttl: Duration::MAX, attr }
}
