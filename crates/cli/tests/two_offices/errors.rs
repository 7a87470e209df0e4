//! The errors that a program meets only in a volume of several offices.

use rustix::io::Errno;

use crate::harness::program::until;
use crate::two_offices::office::Offices;

#[test]
fn cross_home() {
    let Some(offices) = Offices::new() else { return };
    let [mut first, mut there] = offices.hands();
    there.does("mkdir berlin");
    there.does("make file");
    for hands in [&mut first, &mut there] {
        hands.fails("rename file berlin/file", Errno::XDEV);
    }
    drop((first, there));
    offices.finish();
}

#[test]
fn elsewhere() {
    let Some(offices) = Offices::new() else { return };
    let [mut first, mut there] = offices.hands();
    there.does("mkdir berlin");
    there.does("mkdir plain");
    first.does("mkdir own");
    for hands in [&mut first, &mut there] {
        hands.fails("rename own berlin", Errno::OPNOTSUPP);
    }
    drop((first, there));
    offices.finish();
}

#[test]
fn host_down() {
    let Some(offices) = Offices::new() else { return };
    let [mut first, mut there] = offices.hands();
    first.does("make file");
    there.does("open file");
    offices.lab.network.cut(&offices.first);
    // The first one may still wait for the deadline, and the kernel asks for a name first.
    there.fails_by("get unseen", &[Errno::TIMEDOUT, Errno::HOSTDOWN]);
    there.fails("get unseen", Errno::HOSTDOWN);
    there.fails("mkdir unmade", Errno::HOSTDOWN);
    // What is closed meanwhile is closed there too, once it can be heard.
    there.does("close file");
    offices.lab.network.join(&offices.first);
    until("only the program of the first office has it open", || {
        let status = offices.first.types("pelago status ~/pelago --json --timeout 100").json();
        status["open_files"] == 1
    });
    drop((first, there));
    offices.finish();
}
