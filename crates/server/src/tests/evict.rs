//! More open files than descriptors, through the service.

use std::os::unix::fs::FileExt;

use pelago_wire::{Attr, Code, DataPath, OpenFlags, OpenId, Request};

use crate::testing::{BOTH, Options, Rig, reopened};

const PASS: OpenFlags = OpenFlags { passthrough: true, ..BOTH };
const LARGE: usize = 10_000;

fn with_descriptors(descriptors: usize) -> Rig {
    Rig::with(Options { descriptors, ..Options::default() })
}

/// Creates `count` files, each filled with its own byte; returns their names and opens.
fn filled(rig: &Rig, count: u8) -> Vec<(String, OpenId)> {
    let fill = |number: u8| {
        let text = format!("f{number}");
        let (_, open) = rig.create(&text, BOTH);
        rig.write(open, 0, &vec![number; LARGE]).unwrap();
        (text, open)
    };
    (0..count).map(fill).collect()
}

fn sync(rig: &Rig, open: OpenId) -> Result<(), Code> {
    let reply = rig.begin(Request::Fsync { open, data_only: true }, &[]);
    loop {
        rig.commit.run().unwrap();
        if let Ok(answer) = reply.try_recv() {
            return answer.map(drop).map_err(|error| error.code);
        }
    }
}

#[test]
fn more_files_are_open_than_descriptors_and_all_are_read_and_written() {
    let rig = with_descriptors(2);
    let files = filled(&rig, 10);
    for round in 0..3_u8 {
        for (number, (_, open)) in (0_u8..).zip(&files) {
            assert_eq!(rig.read(*open, LARGE as u64 - 1, 10).unwrap()[0], number);
            let at = LARGE as u64 + u64::from(round);
            assert_eq!(rig.write(*open, at, &[round]).unwrap(), (1, at + 1));
            assert!(rig.descriptors.taken() <= 2);
        }
        assert_eq!(sync(&rig, files[usize::from(round)].1), Ok(()));
    }
    let before: Vec<_> = files.iter().map(|(text, _)| rig.lookup(text).unwrap()).collect();
    assert!(before.iter().all(|entry| rig.has_writing_row(entry.handle)), "they are still written");
    let killed = rig.after_kill();
    for ((text, _), entry) in files.iter().zip(&before).take(8) {
        let attr = killed.lookup(text).unwrap().attr;
        assert_eq!(Attr { volatile: false, ..attr }, entry.attr, "{text}");
    }
    drop(killed);
    files.iter().for_each(|(_, open)| rig.close(*open));
    rig.opens.write_back().unwrap();
    assert_eq!((rig.opens.count(), rig.descriptors.taken()), (0, 0));
    assert!(!rig.opens.any_unsafe());
    for (number, (text, _)) in (0_u8..).zip(&files) {
        assert_eq!(rig.bytes(text), [&vec![number; LARGE][..], &[0, 1, 2]].concat());
    }
}

#[test]
fn threads_that_share_few_descriptors_are_never_refused_and_lose_no_byte() {
    const THREADS: u8 = 4;
    let rig = with_descriptors(16);
    let files = filled(&rig, 40);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let rig = &rig;
            let files = &files;
            scope.spawn(move || {
                for round in 0..100_u8 {
                    for (number, (_, open)) in (0_u8..).zip(files).skip(usize::from(round % 7)) {
                        let at = LARGE as u64 + u64::from(thread);
                        match (round + thread) % 3 {
                            0 => assert_eq!(rig.write(*open, at, &[round]).unwrap().0, 1),
                            _ => assert_eq!(rig.read(*open, 0, 1).unwrap(), [number]),
                        }
                    }
                }
            });
        }
    });
    assert!(rig.descriptors.taken() <= 16);
    for (number, (text, open)) in (0_u8..).zip(files) {
        rig.close(open);
        let bytes = rig.bytes(&text);
        assert!(bytes[..LARGE] == vec![number; LARGE] && bytes.len() == LARGE + 4);
        // Each thread's last write.
        let last: Vec<_> = (0..THREADS).map(|thread| last_round(thread, number)).collect();
        assert_eq!(bytes[LARGE..], last);
    }
}

fn last_round(thread: u8, number: u8) -> u8 {
    let writes = |round: &u8| (round + thread).is_multiple_of(3) && number >= round % 7;
    (0..100).rfind(writes).unwrap()
}

#[test]
fn the_content_file_of_a_passthrough_open_is_not_evicted() {
    let rig = with_descriptors(2);
    let one = rig.file("one", &[1; LARGE]);
    let idle = filled(&rig, 1)[0].1;
    let DataPath::Passthrough(backing) = rig.open_path(one.handle, PASS).2 else {
        println!("skipped: not here: the disk cannot tell whether a process writes a file");
        return;
    };
    let program = reopened(&backing, PASS);
    let two = rig.file("two", &[2; LARGE]);
    let (open, _, path) = rig.open_path(two.handle, PASS);
    assert!(matches!(path, DataPath::Passthrough(_)), "the idle one makes room");
    assert_eq!(rig.read(idle, 0, 10), Err(Code::TooManyOpen));
    program.write_all_at(b"goes on", 0).unwrap();
    rig.call(Request::Release { open }).unwrap();
    assert_eq!(rig.opens.release_closed().unwrap(), usize::from(rig.opens.pending_closes() > 0));
    assert_eq!(rig.read(idle, 0, 1).unwrap(), [0], "there is room again");
}

/// The table may lose a commit while the content file is closed.
#[test]
fn a_file_whose_content_is_closed_is_committed_again_after_a_loss() {
    let rig = with_descriptors(1);
    let files = filled(&rig, 2);
    let entry = rig.lookup("f0").unwrap();
    let written = rig.durability.done();
    rig.opens.invalidate();
    rig.opens.remeasure().unwrap();
    rig.commit.run().unwrap();
    assert!(rig.durability.done() >= written + 2, "both are committed");
    assert!(rig.has_writing_row(entry.handle));
    assert_eq!(rig.after_crash(0).lookup("f0").unwrap().attr, entry.attr);
    for (number, (text, open)) in (0_u8..).zip(files) {
        assert_eq!(rig.read(open, 0, 1).unwrap(), [number]);
        rig.close(open);
        assert_eq!(rig.after_kill().bytes(&text), vec![number; LARGE]);
    }
}
