//! A mirror that has an older state, of another run of its primary: it is compared, and gets what
//! differs.

use std::ops::ControlFlow;

use pelago_server::Server;
use pelago_store::content::{ContentEntry, ContentStore, FileAccess};
use pelago_store::volume::Volume;
use pelago_wire::mirror::{ComparedBlocks, ComparedRange, GroupKind, GroupPart, MirrorSays};
use pelago_wire::{Generation, Handle, InodeId, Name, RenameFlags, Request};

use super::pair::{MIB, Pair, cut, fill, killed_once_safe, noise, put_at};
use super::primary::{CUT, group, put};
use super::{RUN, World};
use crate::harness::requests::{call, close, create, unlink, write};

/// Changes some of them, and each in another way.
fn change(server: &Server) {
    put_at(server, "small 7", 3, b"changed");
    unlink(server, Handle::ROOT, "small 8").unwrap();
    put_at(server, "large", 3 * MIB as u64 + 5, &[1; 1000]);
    put_at(server, "sparse", MIB as u64 / 2, &[2; 1000]);
    unlink(server, Handle::ROOT, "removed").unwrap();
    let rename = |from: &str, to: &str| {
        let request = Request::Rename {
            from_dir: Handle::ROOT,
            from: name(from),
            to_dir: Handle::ROOT,
            to: name(to),
            flags: RenameFlags::default(),
        };
        call(server, request, &[]).unwrap();
    };
    rename("renamed", "other name");
    unlink(server, Handle::ROOT, "replaced").unwrap();
    put(server, "replaced", &noise(300_000));
    put_at(server, "longer", 200_000, &noise(2 * MIB));
    put(server, "new", &noise(150_000));
    cut(server, "emptied", 0);
    cut(server, "shorter", 70_000);
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

#[test]
fn a_mirror_of_an_older_state_gets_what_differs() {
    let pair = Pair::new();
    let first = pair.mirrored(fill);
    assert_eq!(first.kinds[..2], [GroupKind::Copy, GroupKind::Completion]);
    pair.expect_equal();
    pair.alone(change);
    let second = pair.mirrored(|_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(!second.kinds.contains(&GroupKind::Copy));
    // A block of "large" and of "sparse", three files, and what is longer.
    assert!(second.sent < 6 * MIB as u64, "{} bytes", second.sent);
    pair.expect_equal();
}

#[test]
fn an_unchanged_volume_costs_a_few_bytes() {
    let pair = Pair::new();
    pair.mirrored(fill);
    let second = pair.mirrored(|_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(second.sent < 20_000, "{} bytes", second.sent);
    pair.expect_equal();
}

/// Changes of programs during the comparison are part of the same group.
#[test]
fn a_mirror_is_compared_while_programs_write() {
    let pair = Pair::new();
    pair.mirrored(fill);
    pair.alone(change);
    let second = pair.mirrored(|server| {
        for round in 0..50 {
            put_at(server, "large", round * 90_000, &[round as u8; 50_000]);
            put(server, &format!("busy {}", round % 7), &noise(100_000 + round as usize));
            unlink(server, Handle::ROOT, &format!("busy {}", round % 7)).unwrap();
        }
        let (_, open) = create(server, Handle::ROOT, "stays").unwrap();
        write(server, open, 0, &noise(MIB)).unwrap();
        close(server, open).unwrap();
    });
    assert_eq!(second.kinds[0], GroupKind::Resync);
    pair.expect_equal();
}

#[test]
fn a_resync_that_is_safe_is_carried_out_after_a_kill() {
    let pair = Pair::new();
    pair.mirrored(fill);
    pair.alone(change);
    pair.decide(killed_once_safe());
    let second = pair.mirrored(|_| {});
    assert!(second.kinds.iter().filter(|kind| **kind == GroupKind::Resync).count() == 1);
    pair.expect_equal();
}

/// Its holes are neither read nor compared.
#[test]
fn a_huge_file_with_holes_is_compared_where_it_has_data() {
    const AT: u64 = 1 << 39;
    let pair = Pair::new();
    pair.mirrored(|server| {
        put(server, "huge", &noise(100_000));
        cut(server, "huge", 2 * AT);
        put_at(server, "huge", AT, &noise(100_000));
    });
    pair.alone(|server| put_at(server, "huge", AT + 50_000, &[7; 1000]));
    let second = pair.mirrored(|_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(second.sent < 2 * MIB as u64, "{} bytes", second.sent);
    let volume = Volume::open_mirror(&pair.mirror()).unwrap();
    let content = ContentStore::open_in(volume.content()).unwrap();
    let mut files = Vec::new();
    let listed = content.list(&mut |entry| {
        let ContentEntry::File { ino, generation } = entry else { panic!("{entry:?}") };
        files.push(content.open_file(ino, generation, FileAccess::Read).unwrap().unwrap());
        ControlFlow::Continue(())
    });
    listed.unwrap();
    assert_eq!((files.len(), files[0].stat().unwrap().size), (1, 2 * AT));
    let mut bytes = vec![0; 100_001];
    files[0].read_at(&mut bytes, AT).unwrap();
    assert!(
        bytes == [&noise(100_000)[..50_000], &[7; 1000], &noise(100_000)[51_000..], &[0]].concat()
    );
}

/// The mirror has many rows where the volume has none any more.
#[test]
fn a_large_directory_that_was_removed_goes_from_the_mirror() {
    let pair = Pair::new();
    let files = 25_000;
    pair.mirrored(|server| {
        for number in 0..files {
            let (_, open) = create(server, Handle::ROOT, &format!("file {number}")).unwrap();
            if number % 1000 == 0 {
                write(server, open, 0, &noise(100_000 + number)).unwrap();
            }
            close(server, open).unwrap();
        }
        put(server, "stays", b"bytes");
    });
    pair.alone(|server| {
        for number in 0..files {
            unlink(server, Handle::ROOT, &format!("file {number}")).unwrap();
        }
    });
    let second = pair.mirrored(|_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(pair.expect_equal().content.is_empty());
}

/// More rows than are compared together, in ranges that begin and end anywhere.
#[test]
fn a_volume_of_many_rows_is_compared_in_ranges() {
    let pair = Pair::new();
    let files = 70_000;
    pair.mirrored(|server| {
        for number in 0..files {
            let (_, open) = create(server, Handle::ROOT, &format!("file {number}")).unwrap();
            close(server, open).unwrap();
        }
    });
    pair.alone(|server| {
        for number in (0..files).step_by(9001) {
            unlink(server, Handle::ROOT, &format!("file {number}")).unwrap();
        }
        put(server, "one more", b"bytes");
    });
    let second = pair.mirrored(|_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(second.questions < 40, "{} questions", second.questions);
    assert!(second.sent < 300_000, "{} bytes", second.sent);
    pair.expect_equal();
}

#[test]
fn a_question_belongs_to_a_resync() {
    let world = World::with_mirror();
    for question in [
        GroupPart::Compare(vec![ComparedRange { from: vec![], until: vec![], hash: [0; 32] }]),
        GroupPart::Contents(vec![(InodeId::ROOT, Generation::FIRST)]),
        GroupPart::Blocks(ComparedBlocks {
            ino: InodeId::ROOT,
            generation: Generation::FIRST,
            first: u64::from(u32::MAX),
            hashes: vec![[0; 32]],
        }),
    ] {
        let body = question.encode().unwrap();
        let mut groups = world.offer(1);
        assert!(groups.take(&body).unwrap_err().contains("outside of a resync"), "{question:?}");
        let mut groups = world.offer(1);
        let begin = GroupPart::Begin { number: 9, kind: GroupKind::Resync, cut: CUT };
        assert_eq!(groups.take(&begin.encode().unwrap()), Ok(None));
        let says = groups.take(&body).unwrap().unwrap().says;
        assert_eq!(says, MirrorSays::Differ(vec![true]), "{question:?}");
    }
}

#[test]
fn a_mirror_without_a_state_takes_no_resync() {
    let world = World::new();
    let begin = &group(1, GroupKind::Resync, &[])[0];
    let refused = world.offer(1).take(begin).unwrap_err();
    assert!(refused.contains("a mirror that is not here"), "{refused}");
    assert_eq!(world.offer(1).ready().run, [0; 16]);
    assert_ne!(RUN, [0; 16]);
}
