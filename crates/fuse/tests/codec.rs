//! Laws of the messages: no input panics, a broken layout is detected, what was encoded is decoded,
//! and no reply is larger than requested.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]
#![expect(clippy::host_endian_bytes, reason = "messages are in the machine's own order")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use pelago_fuse::ids::{FileId, LockOwner, NodeId};
use pelago_fuse::init::{
    Capabilities, Init, InitError, InitOptions, MAX_WRITE_BYTES, Negotiated, negotiate,
};
use pelago_fuse::listing::{Dirent, LISTING_BYTES, Listing, NAME_BYTES};
use pelago_fuse::operation::{
    FileLock, FileLockKind, Getlk, Rename, SetAttr, SetTime, Setlk, Setxattr, Write,
};
use pelago_fuse::reply::{Attributes, Entry};
use pelago_fuse::request::{self, LayoutError, Layouts, Malformed};
use pelago_fuse::{Attr, Encode, FileType, Header, Operation, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const REQUESTS: &str = include_str!("../vectors/requests.txt");
const LAYOUTS: [Layouts; 2] = [Layouts { setxattr_ext: false }, Layouts { setxattr_ext: true }];
/// Opcodes without a reply.
const SILENT: [u32; 3] = [2, 36, 42];

/// Runs the same cases each time.
fn config() -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(0x6675_7365);
    ProptestConfig { cases: 512, failure_persistence: None, rng_seed, ..ProptestConfig::default() }
}

/// Returns a whole request.
fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(Header::BYTES + body.len()).unwrap();
    let mut bytes = [length.to_ne_bytes(), opcode.to_ne_bytes()].concat();
    bytes.extend(7_u64.to_ne_bytes());
    bytes.extend(1_u64.to_ne_bytes());
    bytes.resize(Header::BYTES, 0);
    bytes.extend(body);
    bytes
}

fn parsed(bytes: &[u8], layouts: Layouts) -> Result<Operation<'_>, Malformed> {
    request::parse(bytes, layouts).map(|(_, operation)| operation)
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn pairs(pairs: &[(u32, u32)]) -> Vec<u8> {
    pairs.iter().flat_map(|(a, b)| [a.to_ne_bytes(), b.to_ne_bytes()].concat()).collect()
}

fn bytes<T: Encode + ?Sized>(answer: &T) -> Vec<u8> {
    let mut sent = Vec::new();
    answer.with_bytes(&mut |bytes| sent.extend_from_slice(bytes));
    sent
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 0..40)
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    let seconds = prop_oneof![any::<i64>(), -3_i64..3];
    (seconds, 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

fn set_time() -> impl Strategy<Value = Option<SetTime>> {
    prop_oneof![
        Just(None),
        Just(Some(SetTime::Now)),
        timestamp().prop_map(|t| Some(SetTime::To(t)))
    ]
}

prop_compose! {
    fn set_attr()(
        mode in any::<Option<u32>>(),
        owner in any::<(Option<u32>, Option<u32>)>(),
        size in any::<Option<u64>>(),
        atime in set_time(),
        mtime in set_time(),
        ctime in proptest::option::of(timestamp()),
        file in any::<Option<u64>>(),
        kill_privileges in any::<bool>(),
    ) -> SetAttr {
        let ((uid, gid), file) = (owner, file.map(FileId));
        SetAttr { mode, uid, gid, size, atime, mtime, ctime, file, kill_privileges }
    }
}

/// Encodes `fuse_setattr_in` field by field.
fn set_attr_body(change: &SetAttr) -> Vec<u8> {
    let time = |time: Option<SetTime>| match time {
        Some(SetTime::To(time)) => time,
        _ => Timestamp { seconds: -9, nanos: 9 },
    };
    let is_now = |time: Option<SetTime>| time == Some(SetTime::Now);
    let bits = [
        change.mode.is_some(),
        change.uid.is_some(),
        change.gid.is_some(),
        change.size.is_some(),
        change.atime.is_some(),
        change.mtime.is_some(),
        change.file.is_some(),
        is_now(change.atime),
        is_now(change.mtime),
        true,
        change.ctime.is_some(),
        change.kill_privileges,
    ];
    let valid = bits.iter().enumerate().map(|(at, bit)| u32::from(*bit) << at).sum::<u32>();
    let atime = time(change.atime);
    let mtime = time(change.mtime);
    let ctime = change.ctime.unwrap_or(Timestamp { seconds: 4, nanos: u32::MAX });
    let file = change.file.map_or(5, |file| file.0);
    let seconds = [atime, mtime, ctime].map(|time| time.seconds.cast_unsigned());
    [
        pairs(&[(valid, 1)]),
        numbers(&[file, change.size.unwrap_or(6), 7]),
        numbers(&seconds),
        pairs(&[(atime.nanos, mtime.nanos), (ctime.nanos, change.mode.unwrap_or(8))]),
        pairs(&[(1, change.uid.unwrap_or(9)), (change.gid.unwrap_or(10), 1)]),
    ]
    .concat()
}

fn attr(mtime: Timestamp) -> Attr {
    Attr {
        ino: 3,
        size: 4,
        blocks: 5,
        atime: mtime,
        mtime,
        ctime: mtime,
        file_type: FileType::Symlink,
        mode: u16::MAX,
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_bytes: 4096,
    }
}

fn entry(node: u64) -> Entry {
    let entry_ttl = Duration::MAX;
    let attr_ttl = Duration::ZERO;
    let attr = attr(Timestamp::default());
    Entry { node: NodeId(node), generation: 0, entry_ttl, attr_ttl, attr }
}

/// Returns offset, node and name of each entry of a listing, as the kernel parses it.
fn walk(mut answer: &[u8], with_attributes: bool) -> Vec<(u64, u64, Vec<u8>)> {
    let mut found = Vec::new();
    while !answer.is_empty() {
        let dirent = if with_attributes { 128 } else { 0 };
        let node = if with_attributes { u64_at(answer, 0) } else { 0 };
        let length = u32_at(answer, dirent + 16) as usize;
        let end = dirent + 24 + length;
        found.push((u64_at(answer, dirent + 8), node, answer[dirent + 24..end].to_vec()));
        answer = &answer[end.next_multiple_of(8)..];
    }
    found
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..300)) {
        for layouts in LAYOUTS {
            let _ = request::parse(&bytes, layouts);
        }
    }

    /// A correct header with a known opcode before any bytes.
    #[test]
    fn no_body_panics(
        opcode in 0..60_u32,
        body in vec(prop_oneof![Just(0), 0..9_u8, any::<u8>()], 0..300),
    ) {
        for layouts in LAYOUTS {
            if let Err(malformed) = parsed(&request(opcode, &body), layouts) {
                let unique = (!SILENT.contains(&opcode)).then_some(7);
                prop_assert_eq!((malformed.unique, malformed.opcode), (unique, opcode));
            }
        }
    }

    #[test]
    fn changes_are_read_as_they_were_written(change in set_attr()) {
        let bytes = request(4, &set_attr_body(&change));
        prop_assert_eq!(parsed(&bytes, LAYOUTS[0]), Ok(Operation::SetAttr(change)));
    }

    #[test]
    fn names_and_data_are_read_as_they_were_written(
        (from, to) in (name(), name()),
        data in vec(any::<u8>(), 0..200),
        flags in any::<u32>(),
    ) {
        let name = OsStr::from_bytes(&from);
        let to_name = OsStr::from_bytes(&to);
        let size = u32::try_from(data.len()).unwrap();
        let body = [&numbers(&[9])[..], &pairs(&[(flags, 0)]), &from, b"\0", &to, b"\0"].concat();
        let rename = Rename { name, to_dir: NodeId(9), to_name, flags };
        let bytes = request(45, &body);
        prop_assert_eq!(parsed(&bytes, LAYOUTS[0]), Ok(Operation::Rename(rename)));

        let open_flags = flags.rotate_left(7);
        let head = [numbers(&[1, 2]), pairs(&[(size, flags)]), numbers(&[3])].concat();
        let head = [head, pairs(&[(open_flags, 4)])].concat();
        let write = Write {
            file: FileId(1),
            offset: 2,
            data: &data,
            kill_privileges: flags & 4 != 0,
            from_cache: flags & 1 != 0,
            owner: (flags & 2 != 0).then_some(LockOwner(3)),
            flags: open_flags.cast_signed(),
        };
        prop_assert_eq!(write.appends(), open_flags & 0o2000 != 0);
        let bytes = request(16, &[head, data.clone()].concat());
        prop_assert_eq!(parsed(&bytes, LAYOUTS[0]), Ok(Operation::Write(write)));

        let body = [&pairs(&[(size, 1), (flags, 0)])[..], &from, b"\0", &data].concat();
        let set = Setxattr { name, value: &data, flags: 1, kill_setgid: flags & 1 != 0 };
        let bytes = request(21, &body);
        prop_assert_eq!(parsed(&bytes, LAYOUTS[1]), Ok(Operation::Setxattr(set)));
    }

    /// A lock is read as it was written if it is one, and written as it was read.
    #[test]
    fn locks_are_read_as_they_were_written(
        (start, end) in prop_oneof![any::<(u64, u64)>(), (0..9_u64, 0..9_u64)],
        (number, pid, lk_flags) in (0..4_u32, any::<u32>(), 0..4_u32),
    ) {
        let body = [numbers(&[1, 2, start, end]), pairs(&[(number, pid), (lk_flags, 0)])].concat();
        let kinds = [FileLockKind::Read, FileLockKind::Write, FileLockKind::Unlock];
        let file = FileId(1);
        let owner = LockOwner(2);
        for opcode in [31, 32, 33] {
            let whole = request(opcode, &body);
            let found = parsed(&whole, LAYOUTS[0]);
            let is_lock = start <= end && end <= i64::MAX.unsigned_abs();
            let Some(kind) = kinds.get(number as usize).copied().filter(|_| is_lock) else {
                let malformed = Malformed { unique: Some(7), opcode, error: LayoutError::Lock };
                prop_assert_eq!(found, Err(malformed));
                continue;
            };
            let lock = FileLock { kind, start, end, pid };
            let set = Setlk { file, owner, lock, is_flock: lk_flags & 1 != 0, wait: opcode == 33 };
            let get = Operation::Getlk(Getlk { file, owner, lock });
            let expected = if opcode == 31 { get } else { Operation::Setlk(set) };
            prop_assert_eq!(found, Ok(expected));
            prop_assert_eq!(&bytes(&lock)[..], &body[16..40]);
        }
    }

    #[test]
    fn a_batch_has_what_was_put_into_it(nodes in vec(any::<(u64, u64)>(), 0..50)) {
        let count = u32::try_from(nodes.len()).unwrap();
        let each = nodes.iter().flat_map(|&(node, count)| numbers(&[node, count]));
        let bytes = request(42, &pairs(&[(count, 0)]).into_iter().chain(each).collect::<Vec<_>>());
        let Ok(Operation::BatchForget(forgets)) = parsed(&bytes, LAYOUTS[0]) else {
            return Err(TestCaseError::fail("no batch"));
        };
        let found: Vec<_> = forgets.map(|(node, count)| (node.0, count)).collect();
        prop_assert_eq!(found, nodes);
    }

    #[test]
    fn times_of_any_year_are_written(time in timestamp()) {
        let bytes = bytes(&Attributes { ttl: Duration::MAX, attr: attr(time) });
        prop_assert_eq!(u64_at(&bytes, 16 + 32).cast_signed(), time.seconds);
        prop_assert_eq!(u32_at(&bytes, 16 + 52), time.nanos);
        prop_assert_eq!(u64_at(&bytes, 0), i64::MAX.unsigned_abs());
        prop_assert_eq!(u32_at(&bytes, 16 + 60), 0o127_777);
    }

    /// A listing never exceeds the requested size, and has exactly the entries that fitted.
    #[test]
    fn listings_keep_to_their_size(
        size in 0..3000_u32,
        names in vec((vec(1..=u8::MAX, 0..300), any::<Option<u64>>()), 0..40),
        with_attributes in any::<bool>(),
    ) {
        let new = if with_attributes { Listing::of_entries } else { Listing::of_names };
        let mut listing = new(size);
        let mut expected = Vec::new();
        for (offset, (name, node)) in (1..).zip(&names) {
            let listed = Dirent { ino: 1, offset, file_type: FileType::Regular, name };
            let before = bytes(&listing).len();
            if !listing.add(listed, node.map(entry).as_ref()) {
                prop_assert_eq!(bytes(&listing).len(), before);
                let head = if with_attributes { 152 } else { 24 };
                prop_assert!(before + head + name.len() + 7 > size as usize - size as usize % 8);
            } else if (1..=NAME_BYTES).contains(&name.len()) {
                let node = if with_attributes { node.unwrap_or(0) } else { 0 };
                expected.push((offset, node, name.clone()));
            }
        }
        let answer = bytes(&listing);
        prop_assert!(answer.len() <= size as usize);
        prop_assert_eq!(listing.is_empty(), expected.is_empty());
        prop_assert_eq!(walk(&answer, with_attributes), expected);
    }

    /// The negotiation never exceeds the offer, nor the limits.
    #[test]
    fn agreements_are_between_both(
        (minor, capabilities, wished) in (31..60_u32, any::<u64>(), any::<u64>()),
        (max_write, readahead) in any::<(u32, (u32, u32))>(),
        (max_background, passthrough) in any::<(u16, bool)>(),
    ) {
        let offer = Init { major: 7, minor, max_readahead: readahead.0, capabilities };
        let init_options = InitOptions {
            capabilities: Capabilities(wished),
            max_write,
            max_readahead: readahead.1,
            max_background,
            passthrough,
        };
        let agreed = negotiate(&offer, &init_options).unwrap();
        prop_assert!(Capabilities(capabilities).has(agreed.capabilities));
        let always = Capabilities::BIG_WRITES
            | Capabilities::MAX_PAGES
            | Capabilities::SETXATTR_EXT
            | Capabilities::INIT_EXT;
        prop_assert!(agreed.capabilities.has(always & Capabilities(capabilities)));
        prop_assert!(Capabilities(wished | always.0 | Capabilities::PASSTHROUGH.0)
            .has(agreed.capabilities));
        let needed = Capabilities::PASSTHROUGH | Capabilities::INIT_EXT;
        let offered = Capabilities(capabilities).has(needed);
        prop_assert_eq!(agreed.passthrough, passthrough && offered);
        prop_assert!(agreed.capabilities.0 >> 32 == 0
            || agreed.capabilities.has(Capabilities::INIT_EXT));
        prop_assert_eq!(agreed.capabilities.has(Capabilities::PASSTHROUGH), agreed.passthrough);
        prop_assert!(agreed.minor <= 45 && agreed.minor <= minor);
        prop_assert_eq!(agreed.max_readahead, readahead.0.min(readahead.1));
        prop_assert!((4096..=MAX_WRITE_BYTES).contains(&agreed.max_write));
        assert_told(&bytes(&agreed), &agreed);
    }
}

/// Checks the sizes in the reply to FUSE_INIT.
fn assert_told(answer: &[u8], agreed: &Negotiated) {
    assert_eq!(answer.len(), 64);
    let pages = u16::from_ne_bytes(answer[28..30].try_into().unwrap());
    let congestion = u16::from_ne_bytes(answer[18..20].try_into().unwrap());
    assert_eq!(u32_at(answer, 20), agreed.max_write);
    assert_eq!(u32::from(pages), agreed.max_write.div_ceil(4096));
    assert!(congestion <= agreed.max_background);
    assert_eq!(u32_at(answer, 36), u32::from(agreed.passthrough));
}

/// Each request is cut at each byte, with its old length in the header and with the new one.
#[test]
fn a_request_that_is_cut_short_is_malformed() {
    for (name, mut whole) in requests() {
        let layouts = Layouts { setxattr_ext: name != "setxattr.short" };
        let whole_bytes = whole.len();
        assert!(request::parse(&whole, layouts).is_ok(), "{name}");
        // The bodies of these are ignored.
        let needed = match name {
            "init.7.45" => Header::BYTES + 20,
            "syncfs" => Header::BYTES,
            _ => whole_bytes,
        };
        for length in (0..whole_bytes).rev() {
            whole.truncate(length);
            let error =
                if length < Header::BYTES { LayoutError::Truncated } else { LayoutError::Length };
            let found = request::parse(&whole, layouts).unwrap_err();
            assert_eq!(found.error, error, "{name} {length}");
            assert_eq!(found.unique.is_some(), answers(name) && length >= Header::BYTES);
            if length >= 4 {
                let known = u32::try_from(length).unwrap().to_ne_bytes();
                whole[..4].copy_from_slice(&known);
                let is_whole = request::parse(&whole, layouts).is_ok();
                assert_eq!(is_whole, length >= needed, "{name} {length}");
            }
        }
    }
}

/// A ring brings the fields of an opcode apart from the names and data behind them, in the same
/// order. So for one place of the cut the operation is the same, with longer fields of a newer
/// kernel too.
#[test]
fn a_request_in_parts_is_the_same_operation() {
    for (name, whole) in requests() {
        let layouts = Layouts { setxattr_ext: name != "setxattr.short" };
        let (header, operation) = request::parse(&whole, layouts).unwrap();
        let (head, body) = whole.split_at(Header::BYTES);
        let same = (0..=body.len()).filter(|cut| {
            let (fields, payload) = body.split_at(*cut);
            let found = request::parse_parts(head, fields, payload, layouts);
            found.as_ref().is_ok_and(|found| *found == (header, operation))
        });
        let cuts: Vec<usize> = same.collect();
        assert!(!cuts.is_empty(), "{name}");
        let (fields, payload) = body.split_at(cuts[0]);
        let mut longer = head.to_vec();
        let length = u32::try_from(whole.len() + 8).unwrap();
        longer[..4].copy_from_slice(&length.to_ne_bytes());
        let fields = [fields, &[0; 8]].concat();
        let found = request::parse_parts(&longer, &fields, payload, layouts);
        if !matches!(operation, Operation::BatchForget(_)) {
            assert_eq!(found, Ok((header, operation)), "{name}");
        }
        let wrong = request::parse_parts(head, &fields, payload, layouts).unwrap_err();
        assert_eq!(wrong.error, LayoutError::Length, "{name}");
    }
}

fn requests() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    REQUESTS.lines().map(|line| {
        let (name, digits) = line.split_once(' ').unwrap();
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        (name, pairs.map(byte).collect())
    })
}

fn answers(name: &str) -> bool {
    !["forget", "batch-forget", "interrupt"].contains(&name)
}

#[test]
fn a_time_with_a_second_of_nanoseconds_is_malformed() {
    let time = Timestamp { seconds: 0, nanos: 1_000_000_000 };
    let change = SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
    let malformed = Malformed { unique: Some(7), opcode: 4, error: LayoutError::Time };
    let bytes = request(4, &set_attr_body(&change));
    assert_eq!(parsed(&bytes, LAYOUTS[0]), Err(malformed));
}

#[test]
fn a_listing_is_never_larger_than_its_limit() {
    let mut listing = Listing::of_entries(u32::MAX);
    let name = &[b'n'; NAME_BYTES][..];
    let listed = Dirent { ino: 1, offset: 2, file_type: FileType::Directory, name };
    while listing.add(listed, Some(&entry(3))) {}
    let length = bytes(&listing).len();
    assert!((LISTING_BYTES - 408..=LISTING_BYTES).contains(&length), "{length}");
}

#[test]
fn old_kernels_are_refused() {
    let init_options = InitOptions {
        capabilities: Capabilities::default(),
        max_write: 1 << 20,
        max_readahead: 0,
        max_background: 12,
        passthrough: true,
    };
    for (major, minor, is_old) in [(6, 99, true), (7, 30, true), (7, 31, false), (8, 0, false)] {
        let offer = Init { major, minor, max_readahead: 0, capabilities: 0 };
        let refusal = is_old.then_some(InitError::TooOld { major, minor });
        assert_eq!(negotiate(&offer, &init_options).err(), refusal);
    }
}

/// Without FUSE_MAX_PAGES a request has 32 pages.
#[test]
fn requests_stay_below_the_negotiated_pages() {
    let offer = Init { major: 7, minor: 31, max_readahead: 0, capabilities: 0 };
    let init_options = InitOptions {
        capabilities: Capabilities::default(),
        max_write: 1 << 20,
        max_readahead: 0,
        max_background: 12,
        passthrough: false,
    };
    assert_eq!(negotiate(&offer, &init_options).unwrap().max_write, 128 << 10);
    let offer = Init { capabilities: Capabilities::MAX_PAGES.0, ..offer };
    assert_eq!(negotiate(&offer, &init_options).unwrap().max_write, 1 << 20);
}
