//! A volume that is handed over to its mirror, also if answers are lost and either end is killed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pelago_check as check;
use pelago_server::{HandOverError, MirrorStore, Options, Server, StartError};
use pelago_store::folder::Folder;
use pelago_store::volume::VolumeError;
use pelago_wire::mirror::GroupPart;
use pelago_wire::{Code, Handle};

use super::pair::{Event, Fate, Pair, fill, noise, start};
use super::primary::{put, read};
use crate::harness::requests::unlink;
use crate::harness::rig::DEADLINE;

/// Checks that a folder is not the primary of its volume.
fn expect_not_primary(dir: &Path) {
    let refused = Server::start(dir, Options::default()).err().unwrap();
    let is_so = matches!(refused, StartError::Volume(VolumeError::NotPrimary { .. }));
    assert!(is_so, "{refused:?}");
}

/// Copies a folder as it is now: what is there after a kill.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_volume_that_is_handed_over_goes_on_at_its_mirror() {
    let pair = Pair::new();
    pair.alone(fill);
    let mirror = pair.mirror();
    pair.served(|server| {
        put(server, "last", b"change");
        unlink(server, Handle::ROOT, "removed").unwrap();
        assert_eq!(server.catch_up_mirror(DEADLINE), Ok(()));
        put(server, "after", b"that");
        assert_eq!(server.hand_over(DEADLINE), Ok(2));
        assert!(matches!(server.hand_over(DEADLINE), Err(HandOverError::NotStopped(_))));
    });
    expect_not_primary(&pair.volume());
    let plan = check::plan(&mirror).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
    let server = start(&mirror);
    assert_eq!(server.reign(), 2);
    assert_eq!(read(&server, "last").unwrap(), b"change");
    assert_eq!(read(&server, "after").unwrap(), b"that");
    assert_eq!(read(&server, "removed"), Err(Code::NotFound));
    assert!(read(&server, "large").unwrap() == noise(5 << 20));
    put(&server, "new", b"here");
    server.stop().unwrap();
}

#[test]
fn a_volume_without_a_mirror_is_handed_over_to_nobody_and_goes_on() {
    let pair = Pair::new();
    pair.alone(|server| {
        assert_eq!(server.catch_up_mirror(DEADLINE), Err(HandOverError::NoMirror));
        put(server, "file", b"bytes");
    });
    pair.alone(|server| assert_eq!(read(server, "file").unwrap(), b"bytes"));
}

/// The next connection asks again, or hears that the mirror is the primary.
#[test]
fn a_handover_is_carried_out_although_its_question_or_its_answer_is_lost() {
    for (fate, asked) in [(Fate::IsLost, 2), (Fate::AnswerIsLost, 1)] {
        let pair = Pair::new();
        pair.alone(|server| put(server, "file", b"bytes"));
        let mirror = pair.mirror();
        let (ask, questions) = std::sync::mpsc::channel();
        let mut first = Some(fate);
        pair.decide(move |event| match event {
            Event::Sends(GroupPart::HandOver) => {
                ask.send(()).unwrap();
                first.take().unwrap_or(Fate::Arrives)
            }
            Event::Sends(_) | Event::Connects => Fate::Arrives,
        });
        pair.served(|server| assert_eq!(server.hand_over(DEADLINE), Ok(2), "{fate:?}"));
        assert_eq!(questions.try_iter().count(), asked, "{fate:?}");
        expect_not_primary(&pair.volume());
        let server = start(&mirror);
        assert_eq!(read(&server, "file").unwrap(), b"bytes");
        server.stop().unwrap();
    }
}

/// No server takes the volume until a person has looked at the mirror, which has everything.
#[test]
fn a_handover_that_nobody_answers_leaves_no_primary() {
    let pair = Pair::new();
    pair.alone(|server| put(server, "file", b"bytes"));
    let id = pair.id();
    let mirror = pair.mirror();
    let volume = pair.volume();
    let killed = pair.mirrors().with_file_name("killed");
    let to = killed.clone();
    pair.decide(move |event| match event {
        Event::Sends(GroupPart::HandOver) => {
            // The primary is killed after its mark.
            if !to.exists() {
                copy(&volume, &to);
            }
            Fate::IsLost
        }
        Event::Sends(_) | Event::Connects => Fate::Arrives,
    });
    pair.served(|server| {
        let patience = Duration::from_secs(2);
        assert_eq!(server.hand_over(patience), Err(HandOverError::NotAnswered));
    });
    for dir in [&pair.volume(), &killed, &mirror] {
        expect_not_primary(dir);
    }
    let store = MirrorStore::open(&Folder::open(&pair.mirrors()).unwrap()).unwrap();
    assert_eq!(store.promote(id).unwrap().reign, 2);
    drop(store);
    let server = start(&mirror);
    assert_eq!(read(&server, "file").unwrap(), b"bytes");
    server.stop().unwrap();
}

/// The disk of the mirror fails after its row says that it is the primary, and then the mirror is
/// killed. Its old primary must not believe that it was refused.
#[test]
fn a_handover_that_fails_in_the_middle_is_completed_when_the_primary_connects_again() {
    let pair = Pair::new();
    pair.alone(|server| put(server, "file", b"bytes"));
    let mirror = pair.mirror();
    let in_the_way = pair.mirrors().join(format!("spool/{}.promoted.new", pair.id()));
    let killed = pair.mirrors().with_file_name("killed");
    let obstacle = in_the_way.clone();
    let from = mirror.clone();
    let to = killed.clone();
    let mut connections = 0;
    pair.decide(move |event| {
        connections += usize::from(matches!(event, Event::Connects));
        match (event, connections) {
            (Event::Sends(GroupPart::HandOver), _) => fs::create_dir(&obstacle).unwrap(),
            // It is tried again at once, and fails again.
            (Event::Connects, 2) => return Fate::KillsMirror,
            (Event::Connects, 3) => {
                copy(&from, &to);
                fs::remove_dir(&obstacle).unwrap();
            }
            (Event::Connects | Event::Sends(_), _) => {}
        }
        Fate::Arrives
    });
    pair.served(|server| assert_eq!(server.hand_over(DEADLINE), Ok(2)));
    expect_not_primary(&pair.volume());
    expect_not_primary(&killed);
    assert!(!in_the_way.exists());
    let server = start(&mirror);
    assert_eq!((server.reign(), read(&server, "file").unwrap()), (2, b"bytes".to_vec()));
    server.stop().unwrap();
}
