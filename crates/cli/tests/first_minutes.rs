//! The first steps of a user with the binary: create a volume, write, lose its process, start it
//! again, print its state, unmount it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pelago_random::bytes_of;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::namespace::{cannot_isolate, isolated};
use crate::harness::program::{Ran, bare, pelago, run, until, wait};
use crate::harness::volume::{Volume, cannot_mount, folder};

const FILES: u64 = 200;

/// Returns the bytes of file `number`: some are inline, some larger.
fn content(number: u64) -> Vec<u8> {
    let length = if number.is_multiple_of(5) { 20_000 + number * 100 } else { number * 37 };
    bytes_of(number, usize::try_from(length).unwrap())
}

fn file_of(root: &Path, number: u64) -> PathBuf {
    root.join(format!("d{}/f{number}", number % 7))
}

fn write_all(root: &Path) {
    for number in 0..FILES {
        let path = file_of(root, number);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(number)).unwrap();
    }
}

fn expect_all(root: &Path) {
    for number in 0..FILES {
        let found = fs::read(file_of(root, number)).unwrap();
        assert!(found == content(number), "file {number} is not what was written");
    }
}

macro_rules! needs_mount {
    () => {
        if let Some(reason) = cannot_mount() {
            println!("skipped: {reason}");
            return;
        }
    };
}

/// 200 files survive `kill -9` and the same command again.
#[test]
fn files_survive_kill_9_and_up_again() {
    needs_mount!();
    let volume = Volume::new();
    let said = volume.up(&[]).expect_success();
    assert!(said.out.lines().count() <= 5 && said.err.is_empty(), "{said:?}");
    write_all(&volume.files());
    volume.kill();
    let again = volume.up(&[]).expect_success();
    assert!(again.out.contains("recovered after a crash"), "{again:?}");
    expect_all(&volume.files());
    let status = volume.run("status", &["--json"]).expect_success().json();
    assert_eq!(status["state"], "up");
    assert_eq!(status["volume"]["started_clean"], false);
    assert_eq!(status["volume"]["recovered"]["damaged"], 0);
    volume.run("unmount", &[]).expect_success();
    volume.check_whole();
    let third = volume.up(&[]).expect_success();
    assert!(third.out.contains("stopped cleanly before"), "{third:?}");
    expect_all(&volume.files());
    volume.finish();
}

/// Without an argument the volume is `~/pelago`, and the other verbs find it.
#[test]
fn the_default_volume_needs_no_name() {
    needs_mount!();
    let volume = Volume::in_folder(Path::new("pelago"));
    run(&mut pelago(&volume.root, ["up", "--detach"])).expect_success();
    fs::write(volume.files().join("hello"), "hello").unwrap();
    let in_mount =
        run(pelago(&volume.root, ["status", "--timeout", "100"]).current_dir(volume.files()));
    assert!(in_mount.expect_success().out.contains("up, process"));
    let mut by_path = pelago(&volume.root, ["status", "--timeout", "100", "--json"]);
    let by_path = run(by_path.arg(volume.files().join("no/x")));
    assert_eq!(by_path.expect_success().json()["state"], "up");
    let in_folder = run(pelago(&volume.root, ["unmount"]).current_dir(&volume.dir));
    in_folder.expect_success();
    let down = run(pelago(&volume.root, ["status", "--timeout", "100"]).current_dir(&volume.dir))
        .expect_code(5);
    assert!(down.out.contains("down, stopped cleanly"), "{down:?}");
    run(pelago(&volume.root, ["check"]).current_dir(&volume.dir)).expect_success();
    // Again: there is nothing to do, which is no failure.
    run(pelago(&volume.root, ["unmount"]).current_dir(&volume.dir)).expect_success();
}

/// The address of a socket has 108 bytes, a path 4096.
#[test]
fn a_folder_may_have_a_long_path() {
    needs_mount!();
    let volume = Volume::in_folder(&Path::new(&"a".repeat(150)).join("b c".repeat(50)));
    volume.up(&[]).expect_success();
    write_all(&volume.files());
    volume.run("status", &[]).expect_success();
    volume.kill();
    volume.up(&[]).expect_success();
    expect_all(&volume.files());
    volume.finish();
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// SIGINT (Ctrl-C), SIGHUP (end of the session) and SIGTERM (shutdown) stop it cleanly.
#[test]
fn signals_stop_it_cleanly() {
    needs_mount!();
    for ending in [Signal::INT, Signal::TERM, Signal::HUP] {
        let volume = Volume::new();
        let mut child = volume.up_as_child();
        write_all(&volume.files());
        signal(&child, ending);
        assert_eq!(wait(&mut child), Some(0), "{ending:?}");
        assert!(fs::read_dir(volume.files()).unwrap().next().is_none(), "still mounted");
        assert!(volume.dir.join("clean").exists(), "{ending:?}");
        volume.up(&[]).expect_success();
        expect_all(&volume.files());
        volume.finish();
    }
}

/// While a process uses the mount, the first Ctrl-C names it and the second stops the volume.
#[test]
fn the_second_ctrl_c_stops_it_in_any_case() {
    needs_mount!();
    let volume = Volume::new();
    let mut child = volume.up_as_child();
    let mut held = File::create(volume.files().join("held")).unwrap();
    std::io::Write::write_all(&mut held, b"kept").unwrap();
    held.sync_all().unwrap();
    signal(&child, Signal::INT);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    BufRead::read_line(&mut said, &mut line).unwrap();
    assert!(line.contains("is in use by") && line.contains(&std::process::id().to_string()));
    volume.run("status", &[]).expect_success();
    signal(&child, Signal::INT);
    assert_eq!(wait(&mut child), Some(0));
    drop(held);
    volume.up(&[]).expect_success();
    assert_eq!(fs::read(volume.files().join("held")).unwrap(), b"kept");
    volume.finish();
}

/// `umount` of the system works like `pelago unmount`.
#[test]
fn an_unmount_from_outside_stops_it() {
    needs_mount!();
    let volume = Volume::new();
    let mut child = volume.up_as_child();
    write_all(&volume.files());
    crate::harness::volume::detach_all(&volume.root);
    assert_eq!(wait(&mut child), Some(0));
    assert!(volume.dir.join("clean").exists());
    volume.check_whole();
}

/// A process that uses the mount is named and keeps working; with `--force` it gets errors.
#[test]
fn a_mount_in_use_is_not_unmounted() {
    needs_mount!();
    let volume = Volume::mounted();
    let mut user = Command::new("sleep");
    user.arg("600").current_dir(volume.files()).stdin(Stdio::null());
    let mut user = user.spawn().unwrap();
    let refused = volume.run("unmount", &[]).expect_code(1);
    assert!(refused.err.contains(&format!("{} (sleep)", user.id())), "{refused:?}");
    volume.run("status", &[]).expect_success();
    fs::write(volume.files().join("still"), "works").unwrap();
    volume.run("unmount", &["--force"]).expect_success();
    user.kill().unwrap();
    user.wait().unwrap();
    volume.up(&[]).expect_success();
    assert_eq!(fs::read(volume.files().join("still")).unwrap(), b"works");
    volume.finish();
}

#[test]
fn status_names_a_dead_mount() {
    needs_mount!();
    let volume = Volume::mounted();
    volume.kill();
    let status = volume.run("status", &[]).expect_code(5);
    assert!(status.out.contains("dead: `pelago up` or `pelago unmount` removes it"), "{status:?}");
    volume.run("unmount", &[]).expect_success();
}

#[test]
fn a_dead_mount_is_removed() {
    needs_mount!();
    let volume = Volume::mounted();
    volume.kill();
    let said = volume.run("unmount", &["--json"]).expect_success();
    assert_eq!(said.json()["state"], "dead-mount-removed");
    assert!(fs::read_dir(volume.files()).unwrap().next().is_none());
    volume.up(&[]).expect_success();
    volume.finish();
}

/// `status` answers while the process is stopped and the mount hangs.
#[test]
fn status_answers_when_nothing_else_does() {
    needs_mount!();
    let volume = Volume::mounted();
    let pid = volume.pid().unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let mut asked = pelago(&volume.root, ["status", "--timeout", "1", "-V"]);
    let silent = run(asked.arg(&volume.dir)).expect_code(5);
    assert!(silent.err.contains("does not answer"), "{silent:?}");
    kill_process(pid, Signal::CONT).unwrap();
    until("it answers again", || volume.run("status", &[]).code == Some(0));
    volume.finish();
}

#[test]
fn a_mount_point_and_modes_can_be_chosen() {
    needs_mount!();
    let volume = Volume::new();
    let point = volume.root.join("elsewhere");
    fs::create_dir(&point).unwrap();
    let chosen = point.to_str().unwrap();
    volume.up(&["--mount", chosen, "--inline", "64KiB"]).expect_success();
    write_all(&point);
    volume.run("unmount", &[]).expect_success();
    volume.up(&["--mount", chosen, "--read-only", "--noatime"]).expect_success();
    expect_all(&point);
    let refused = fs::write(point.join("new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let status = volume.run("status", &["--json"]).expect_success().json();
    assert_eq!(status["read_only"], true);
    assert_eq!(status["mounted"], chosen);
    volume.finish();
}

/// Of two concurrent starts one serves, and the other fails.
#[test]
fn of_two_concurrent_starts_one_serves() {
    needs_mount!();
    let volume = Volume::new();
    let mut children: Vec<Child> = (0..2)
        .map(|_| {
            let mut command = volume.command("up", &["--detach"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    let mut codes: Vec<Option<i32>> = children.iter_mut().map(wait).collect();
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(1)]);
    write_all(&volume.files());
    volume.finish();
}

/// A failure in the background is printed in the foreground with its exit code, and leaves nothing.
#[test]
fn a_failure_in_the_background_is_printed() {
    let (_folder, root) = folder();
    let foreign = root.join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letter"), "dear").unwrap();
    let mut command = pelago(&root, ["up", "--detach"]);
    let refused = run(command.arg(&foreign)).expect_code(1);
    assert!(refused.err.contains("is not a volume"), "{refused:?}");
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1, "something was left there");
}

/// The mount is made by `fusermount3`, and other users cannot enter it.
#[test]
fn an_ordinary_user_needs_no_root() {
    needs_mount!();
    if let Some(reason) = cannot_isolate() {
        println!("skipped: {reason}");
        return;
    }
    let (_folder, root) = folder();
    let ran = isolated(&root, AS_USER).expect_success();
    assert!(ran.out.contains("hello from nobody"), "{ran:?}");
    assert!(ran.out.contains("result    whole"), "{ran:?}");
}

/// Makes the binary and the device accessible to all users first.
const AS_USER: &str = r#"
exec 3<"$PELAGO"
mount -t tmpfs -o mode=1777 none /tmp
cat <&3 >/tmp/pelago
exec 3<&-
chmod 755 /tmp/pelago
mount -t tmpfs -o mode=755 none /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/fuse c 10 229
cd /tmp
exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
    export HOME=/tmp/user
    mkdir "$HOME"
    cd "$HOME"
    trap "/tmp/pelago unmount --force >/dev/null 2>&1 || true" EXIT
    /tmp/pelago up --detach
    echo "hello from nobody" >pelago/files/hello
    kill -9 "$(cat pelago/lock)"
    /tmp/pelago up --detach
    cat pelago/files/hello
    /tmp/pelago status
    /tmp/pelago unmount
    /tmp/pelago check
'
"#;

/// A process chooses its name; a control character in it must not reach root's terminal.
#[test]
fn control_characters_in_a_process_name_are_escaped() {
    needs_mount!();
    let volume = Volume::mounted();
    let held = volume.files().join("held");
    fs::write(&held, "held").unwrap();
    let script = r#"printf '\033]0;\302\233x evil' > /proc/$$/comm; echo held; read -r line"#;
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).current_dir(volume.files());
    let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(bash.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let told = volume.run("unmount", &[]).expect_code(1);
    let json = volume.run("unmount", &["--json"]).expect_code(1);
    drop(bash.stdin.take());
    assert_eq!(wait(&mut bash), Some(1));
    let shown = r"(\u{1b}]0;\u{9b}x evil)";
    assert!(told.err.contains(shown), "{told:?}");
    for said in [&told.err, &told.out, &json.err, &json.out] {
        let commands = said.chars().filter(|said| said.is_control() && *said != '\n');
        assert_eq!(commands.count(), 0, "{said:?}");
    }
    assert!(json.json()["error"]["says"].as_str().unwrap().contains(shown), "{json:?}");
    volume.finish();
}

/// Starts a volume under file size limits in KiB, the soft and the hard one.
fn up_under(volume: &Volume, soft: u64, hard: &str, args: &[&str]) -> Ran {
    let up = volume.command("up", args);
    let mut bash = Command::new("bash");
    let limited =
        format!(r#"ulimit -S -f {soft} && ulimit -H -f {hard} && exec "$0" "$@" --detach"#);
    bash.args(["-c", &limited]).arg(up.get_program()).args(up.get_args());
    bare(&mut bash, &volume.root);
    run(&mut bash)
}

/// `ulimit -f`: a soft limit is raised, a hard limit below the minimum is refused, and under any
/// other one a write beyond it fails.
#[test]
fn a_file_size_limit_ends_no_volume() {
    needs_mount!();
    let raised = Volume::new();
    up_under(&raised, 1024, "unlimited", &["--passthrough", "never"]).expect_success();
    fs::write(raised.files().join("large"), vec![1; 3 << 20]).unwrap();
    raised.finish();

    let refused = Volume::new();
    let told = up_under(&refused, 1024, "8192", &[]).expect_code(1);
    assert!(told.err.contains("ulimit -f") && told.err.contains("8.0 MiB"), "{told:?}");
    assert!(!refused.dir.exists(), "something was made");

    let limited = Volume::new();
    let hard = 512 << 10;
    up_under(&limited, hard, &hard.to_string(), &["--passthrough", "never"]).expect_success();
    let file = File::create(limited.files().join("far")).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    let far = file.write_all_at(b"far", (hard << 10) + 5).unwrap_err();
    assert_eq!(far.raw_os_error(), Some(Errno::FBIG.raw_os_error()), "{far}");
    assert_eq!(file.metadata().unwrap().len(), 8192);
    file.sync_all().unwrap();
    drop(file);
    fs::write(limited.files().join("after"), "after").unwrap();
    limited.finish();
}
