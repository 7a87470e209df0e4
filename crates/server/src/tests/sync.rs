//! A disk that fails once and then works: each descriptor that is concerned reports the failure
//! once, and no unsafe change is called safe.

use pelago_lossfs::Operation;
use pelago_store::table;
use pelago_wire::{Code, DataPath, Entry, Generation, Handle, OpenFlags, OpenId, Request, SetAttr};
use rustix::io::Errno;

use crate::testing::{BOTH, Failing, Options, READ, ROOT, Rig};

const LARGE: usize = 50_000;

/// Syncs a file, and runs the group commits that this waits for.
fn sync(rig: &Rig, open: OpenId) -> Result<(), Code> {
    wait(rig, Request::Fsync { open, data_only: false })
}

fn sync_dir(rig: &Rig, dir: Handle, since: Option<u64>) -> Result<(), Code> {
    wait(rig, Request::FsyncDir { dir, since })
}

fn wait(rig: &Rig, request: Request) -> Result<(), Code> {
    let reply = rig.begin(request, &[]);
    loop {
        match reply.try_recv() {
            Ok(answered) => return answered.map(drop).map_err(|error| error.code),
            Err(_) => rig.commit.run().unwrap(),
        }
    }
}

/// Makes the sync of the journal fail, so that what was not safe is lost.
fn lose(rig: &Rig) {
    rig.opens.commit_dirty().unwrap();
    rig.shard.write_counts().unwrap();
    let broken = table::Error::from_io("testing", std::io::Error::other("broken"));
    rig.table.fail_at(0, broken);
    assert!(rig.commit.run().is_err());
    assert!(rig.commit.reopen_table());
}

/// Without its row the file cannot be kept: no later sync may succeed.
#[test]
fn each_descriptor_of_a_new_file_that_the_journal_lost_reports_it() {
    for size in [100, LARGE] {
        let rig = Rig::new();
        rig.commit.run().unwrap();
        let (entry, one) = rig.create("f", BOTH);
        let other = rig.open(entry.handle, BOTH).unwrap();
        rig.write(one, 0, &vec![2; size]).unwrap();
        lose(&rig);
        assert_eq!(rig.lookup("f"), Err(Code::NotFound));
        for open in [one, other] {
            assert_eq!([sync(&rig, open), sync(&rig, open)], [Err(Code::Io), Err(Code::Stale)]);
            assert_eq!(rig.write(open, 0, b"more"), Err(Code::Stale));
        }
    }
}

#[test]
fn the_next_opens_of_a_file_that_went_back_to_older_bytes_report_it() {
    let rig = Rig::new();
    let file = rig.file("f", b"old bytes");
    rig.commit.run().unwrap();
    rig.file("other", b"");
    rig.commit.run().unwrap();
    let open = rig.open(file.handle, OpenFlags { truncate: true, ..BOTH }).unwrap();
    rig.write(open, 0, b"new").unwrap();
    rig.close(open);
    lose(&rig);
    assert_eq!(rig.bytes("f"), b"old bytes");
    let one = rig.open(file.handle, BOTH).unwrap();
    let other = rig.open(file.handle, READ).unwrap();
    assert_eq!([sync(&rig, one), sync(&rig, one)], [Err(Code::Io), Ok(())]);
    assert_eq!(sync(&rig, other), Err(Code::Io), "it was open before any reported it");
    let later = rig.open(file.handle, BOTH).unwrap();
    assert_eq!(sync(&rig, later), Ok(()));
    let untouched = rig.open(rig.lookup("other").unwrap().handle, BOTH).unwrap();
    assert_eq!(sync(&rig, untouched), Ok(()), "it has lost nothing");
}

/// Its bytes are still in memory, and are committed to the table that is opened again.
#[test]
fn an_open_file_whose_bytes_are_in_memory_reports_a_loss_once_and_is_safe_with_the_next_fsync() {
    let rig = Rig::new();
    let file = rig.file("f", b"old bytes");
    rig.commit.run().unwrap();
    let open = rig.open(file.handle, BOTH).unwrap();
    rig.write(open, 0, b"NEW").unwrap();
    rig.call(Request::Flush { open, owner: None }).unwrap();
    lose(&rig);
    assert_eq!([sync(&rig, open), sync(&rig, open)], [Err(Code::Io), Ok(())]);
    assert_eq!(rig.after_crash(0).bytes("f"), b"NEW bytes");
}

#[test]
fn each_descriptor_of_a_directory_reports_lost_names() {
    let rig = Rig::new();
    rig.commit.run().unwrap();
    let service = || pelago_wire::Service::losses(&rig.router);
    let since = Some(service());
    rig.file("f", b"");
    lose(&rig);
    assert_eq!(sync_dir(&rig, ROOT, since), Err(Code::Io));
    assert_eq!(sync_dir(&rig, ROOT, since), Err(Code::Io), "another descriptor of before");
    assert_eq!(sync_dir(&rig, ROOT, Some(service())), Ok(()));
}

#[test]
fn a_file_that_lost_changes_replaces_no_other_before_that_is_reported() {
    let rig = Rig::new();
    let file = rig.file("f", b"old bytes");
    rig.file("target", b"target");
    rig.commit.run().unwrap();
    let open = rig.open(file.handle, BOTH).unwrap();
    rig.write(open, 0, b"new").unwrap();
    rig.close(open);
    lose(&rig);
    assert_eq!(rig.rename("f", "target"), Err(Code::Io));
    assert_eq!(rig.bytes("target"), b"target");
    assert_eq!(rig.rename("f", "target"), Ok(()));
    assert_eq!(rig.bytes("target"), b"old bytes");
}

/// Makes two closed files whose background sync fails; later syncs of the disk succeed.
fn two_files_in_error(failing: &Failing) -> [Entry; 2] {
    let rig = &failing.rig;
    let files = ["a", "b"].map(|text| rig.file(text, &[2; LARGE]));
    failing.refuse(Operation::Sync, 0, 2, Errno::IO);
    assert_eq!(rig.opens.write_back().map_err(|error| error.code), Err(Code::Io));
    assert_eq!(rig.opens.write_back(), Ok(0), "they wait to be written again");
    files
}

#[test]
fn the_next_open_reports_a_failed_sync_in_the_background() {
    let Some(failing) = Failing::with(Options::default()) else { return };
    let rig = &failing.rig;
    let [a, _] = two_files_in_error(&failing);
    let open = rig.open(a.handle, BOTH).unwrap();
    assert_eq!([sync(rig, open), sync(rig, open)], [Err(Code::Io); 2], "it is not safe");
    rig.write(open, 0, &[3; LARGE]).unwrap();
    assert_eq!(sync(rig, open), Ok(()), "all of it was written again");
    rig.close(open);
    assert!(!rig.has_writing_row(a.handle));
}

#[test]
fn a_file_in_error_replaces_no_other() {
    let Some(failing) = Failing::with(Options::default()) else { return };
    let rig = &failing.rig;
    rig.file("target", b"safe");
    two_files_in_error(&failing);
    for _ in 0..3 {
        assert_eq!(rig.rename("a", "target"), Err(Code::Io));
    }
    assert_eq!(rig.bytes("target"), b"safe");
    assert_eq!(rig.rename("a", "elsewhere"), Ok(()), "nothing is replaced");
}

#[test]
fn a_file_in_error_that_is_emptied_gets_another_content_file() {
    let Some(failing) = Failing::with(Options::default()) else { return };
    let rig = &failing.rig;
    let [a, b] = two_files_in_error(&failing);
    let open = rig.open(a.handle, BOTH).unwrap();
    rig.set(a.handle, Some(open), SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    rig.write(open, 0, &[5; 10]).unwrap();
    assert_eq!([sync(rig, open), sync(rig, open)], [Err(Code::Io), Ok(())]);
    rig.close(open);
    assert_eq!(rig.bytes("a"), [5; 10]);
    let truncates = OpenFlags { truncate: true, ..BOTH };
    let open = rig.open(b.handle, truncates).unwrap();
    assert_eq!([sync(rig, open), sync(rig, open)], [Err(Code::Io), Ok(())]);
    rig.close(open);
    assert!(!rig.opens.any_unsafe());
}

#[test]
fn a_file_in_error_is_not_opened_by_passthrough() {
    let Some(failing) = Failing::with(Options::default()) else { return };
    let rig = &failing.rig;
    let [a, _] = two_files_in_error(&failing);
    let (_, _, path) = rig.open_path(a.handle, OpenFlags { passthrough: true, ..BOTH });
    assert!(matches!(path, DataPath::Cached));
}

/// With the last descriptor of a file Linux forgets an error that was not reported.
#[test]
fn the_descriptor_of_a_closed_file_stays_open_until_it_is_synced() {
    let rig = Rig::new();
    let file = rig.file("f", &[1; LARGE]);
    assert_eq!(rig.descriptors.taken(), 1);
    let open = rig.open(file.handle, READ).unwrap();
    assert_eq!(rig.read(open, 0, 1).unwrap(), [1]);
    assert_eq!(rig.descriptors.taken(), 1, "it is used again");
    rig.close(open);
    rig.opens.write_back().unwrap();
    assert_eq!(rig.descriptors.taken(), 0);
}

#[test]
fn a_descriptor_that_is_kept_makes_room_for_one_that_is_needed() {
    let rig = Rig::with(Options { descriptors: 1, ..Options::default() });
    let file = rig.file("f", &[1; LARGE]);
    rig.file("g", &[2; LARGE]);
    assert_eq!(rig.descriptors.taken(), 1);
    let open = rig.open(file.handle, BOTH).unwrap();
    assert_eq!(sync(&rig, open), Ok(()), "by a sync of the whole file system");
    rig.close(open);
    assert_eq!(rig.opens.write_back(), Ok(2));
}

/// A removed file takes space until its descriptor is closed.
#[test]
fn a_removed_file_is_not_kept_open() {
    let rig = Rig::new();
    let file = rig.file("f", &[1; LARGE]);
    rig.unlink("f");
    rig.opens.forget_content(file.handle.ino);
    assert_eq!(rig.descriptors.taken(), 0);
}

/// The earlier run may have been told of a failed sync: cached pages may not be on the disk, and
/// are dropped before the file counts as safe.
#[test]
fn writing_rows_of_an_earlier_run_are_deleted_after_cached_pages_were_dropped() {
    let rig = Rig::new();
    let file = rig.file("f", &[1; LARGE]);
    let again = rig.after_kill();
    let open = again.open(file.handle, BOTH).unwrap();
    assert_eq!(sync(&again, open), Ok(()));
    again.close(open);
    drop(again);
    let again = rig.after_kill();
    assert_eq!(again.opens.write_back(), Ok(1));
    assert_eq!(again.bytes("f"), [1; LARGE]);
}

/// A worker that removes content files syncs too; a failure must reach the openers of other files.
#[test]
fn a_failed_sync_of_removed_files_is_reported_by_the_files_that_it_concerns() {
    let Some(failing) = Failing::with(Options::default()) else { return };
    let rig = &failing.rig;
    let file = rig.file("f", &[1; LARGE]);
    failing.refuse(Operation::Sync, 0, 1, Errno::IO);
    assert!(rig.opens.sync_contents(&[(file.handle.ino, Generation::FIRST)]).is_err());
    assert_eq!(rig.opens.write_back(), Ok(0));
    let open = rig.open(file.handle, BOTH).unwrap();
    assert_eq!(sync(rig, open), Err(Code::Io));
}
