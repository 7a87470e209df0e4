//! Access by keys, and mounts whose server is not reachable, is another server, or refuses them.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::far::world::{FarMount, World};
use crate::far::{errno, on_server, stop};
use crate::harness::program::{Ran, run, until};

/// Runs a mount with a key that the server does not know.
fn as_stranger(world: &World, command: &mut Command) -> Ran {
    let file = world.volume.root.join("stranger.key");
    if !file.exists() {
        world.pelago(&["key", "new", "--path", file.to_str().unwrap()]).expect_success();
    }
    run(command.env("PELAGO_KEY", file))
}

fn stranger(world: &World) -> String {
    let file = world.volume.root.join("stranger.key");
    world.pelago(&["key", "show", "--path", file.to_str().unwrap()]).expect_success().out
}

/// Asserts that nothing is mounted on the folder of this name.
fn not_mounted(world: &World, name: &str) {
    let point = world.volume.root.join(name);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(point.to_str().unwrap()), "{table}");
}

#[test]
fn a_machine_mounts_once_it_is_listed() {
    on_server(|world| {
        let said = as_stranger(world, &mut world.mount_command(&world.address, "tls", &[]));
        let key = stranger(world);
        let said = said.expect_code(4);
        let error = &said.json()["error"];
        let text = error.to_string();
        assert!(text.contains("does not know this key"), "{said:?}");
        assert!(text.contains(&format!("pelago key allow {}", key.trim())), "{said:?}");
        not_mounted(world, "tls");
        world.allow(key.trim());
        let said = as_stranger(world, &mut world.mount_command(&world.address, "tls", &[]));
        let pid = said.expect_success().json()["pid"].as_i64().unwrap();
        let point = world.volume.root.join("tls");
        fs::write(point.join("file"), "x").unwrap();
        let status = world.pelago(&["status", point.to_str().unwrap(), "--json"]);
        assert_eq!(status.expect_success().json()["pid"], pid);
        world.pelago(&["unmount", point.to_str().unwrap()]).expect_success();
    });
}

/// Asks a mount until it fails, and returns the error.
fn failure_of(mount: &FarMount) -> Errno {
    let mut found = None;
    until("it fails", || {
        found = fs::metadata(mount.path("file")).err();
        found.is_some()
    });
    errno::<()>(Err(found.unwrap()))
}

/// The mount is hard: it waits for a server that is away. This one is there, and says no.
#[test]
fn a_removed_machine_gets_errors_and_waits_for_nothing() {
    on_server(|world| {
        let tls = world.mount_tls("tls");
        let unix = world.mount_unix("unix");
        let key = world.own_key();
        fs::write(tls.path("file"), "x").unwrap();
        let open = File::create(tls.path("open")).unwrap();
        world.remove_key(&key);
        until("the session is over", || world.status()["sessions"].as_array().unwrap().len() == 1);
        assert_eq!(failure_of(&tls), Errno::ACCESS);
        for _ in 0..3 {
            assert_eq!(errno(fs::metadata(tls.path("file"))), Errno::ACCESS);
            assert_eq!(errno(fs::write(tls.path("new"), "x")), Errno::ACCESS);
            assert_eq!(errno(fs::read_dir(&tls.point)), Errno::ACCESS);
            assert_eq!(errno((&open).write(b"x")), Errno::ACCESS);
        }
        fs::write(unix.path("file"), "a mount by the socket goes on").unwrap();
        // Listed again, it works again, with what it had open before.
        world.allow(&key);
        until("it works again", || fs::write(tls.path("file"), "again").is_ok());
        assert_eq!((&open).write(b"x").unwrap(), 1);
        assert_eq!(fs::read(unix.path("file")).unwrap(), b"again");
    });
}

/// A mount that only gets errors can be unmounted.
#[test]
fn a_refused_mount_can_be_unmounted() {
    on_server(|world| {
        let tls = world.mount_tls("tls");
        fs::write(tls.path("file"), "x").unwrap();
        world.remove_key(&world.own_key());
        failure_of(&tls);
        // `World::finish` unmounts it.
    });
}

#[test]
fn a_wrong_server_is_refused_and_named() {
    on_server(|world| {
        let another = world.pelago(&["key", "new", "--path", "another.key", "--json"]);
        let another = another.expect_success().json()["key"].as_str().unwrap().to_owned();
        let address = format!("{another}@{}", world.tcp());
        let said = run(&mut world.mount_command(&address, "tls", &[])).expect_code(4);
        let text = said.json()["error"].to_string();
        let own = world.address.split_once('@').unwrap().0;
        assert!(text.contains(own) && text.contains(&another), "{text}");
        assert!(text.contains("another machine may pose as it"), "{text}");
        not_mounted(world, "tls");
    });
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_once() {
    on_server(|world| {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let talker = TcpListener::bind("127.0.0.1:0").unwrap();
        let talker_port = talker.local_addr().unwrap().port();
        thread::Builder::new()
            .spawn(move || {
                while let Ok((mut socket, _)) = talker.accept() {
                    let _gone = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                }
            })
            .unwrap();
        for port in [free, silent.local_addr().unwrap().port(), talker_port] {
            let said = run(&mut world.mount_command(&world.address_at(port), "tls", &[]));
            let text = said.expect_code(5).json()["error"].to_string();
            assert!(text.contains("check that `pelago up` or `pelago serve` runs"), "{text}");
        }
        fs::write(world.volume.root.join("plain"), "x").unwrap();
        // A folder with a socket is one.
        for path in ["plain", "missing", "."] {
            let path = world.volume.root.join(path);
            let said = run(&mut world.mount_command(path.to_str().unwrap(), "tls", &[]));
            let text = said.expect_code(3).json()["error"].to_string();
            assert!(text.contains("is not the socket of a server"), "{text}");
        }
        // A socket without a listener, and the control socket of the volume.
        let dead = world.volume.root.join("dead.sock");
        drop(UnixListener::bind(&dead).unwrap());
        let said = run(&mut world.mount_command(dead.to_str().unwrap(), "tls", &[]));
        said.expect_code(5);
        let control = world.volume.dir.join("control.sock");
        if control.exists() {
            let said = run(&mut world.mount_command(control.to_str().unwrap(), "tls", &[]));
            said.expect_code(5);
        }
        for address in ["x@127.0.0.1:1", &format!("{}:x", world.address), "@"] {
            run(&mut world.mount_command(address, "tls", &[])).expect_code(2);
        }
        not_mounted(world, "tls");
    });
}

/// Without `--soft` a request waits, and is answered once the server is there again.
#[test]
fn a_hard_mount_waits_for_a_silent_server() {
    on_server(|world| {
        let far = world.mount_tls("tls");
        let server = world.volume.pid().unwrap();
        stop(server);
        thread::scope(|scope| {
            let writer = scope.spawn(|| fs::write(far.path("file"), "x"));
            // Only the clock ends this wait: nothing reports that a request will wait for ever. A
            // soft mount would give up after 2 s.
            thread::sleep(Duration::from_secs(3));
            let waits = !writer.is_finished();
            rustix::process::kill_process(server, Signal::CONT).unwrap();
            assert!(waits);
            writer.join().unwrap().unwrap();
        });
        assert_eq!(fs::read(world.volume.files().join("file")).unwrap(), b"x");
    });
}
