//! Leftovers of a killed mount in the folder of control sockets.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::mount::{UnmountFlags, unmount};

use crate::far::on_server;
use crate::far::world::{FarMount, World};

/// Returns the folder of a mount's control socket. The mount serves.
fn folder_of(mount: &FarMount) -> PathBuf {
    let device = fs::metadata(&mount.point).unwrap().dev();
    let major = rustix::fs::major(device);
    let minor = rustix::fs::minor(device);
    PathBuf::from(format!("/run/pelago/{major}-{minor}"))
}

fn unmounted(world: &World, mount: &FarMount) {
    let ran = world.pelago(&["unmount", mount.point.to_str().unwrap()]).expect_success();
    assert!(ran.out.contains("its process was gone"), "{ran:?}");
}

#[test]
fn the_folder_of_a_killed_mount_goes_with_its_unmount_or_with_the_next_mount() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root for /run/pelago");
        return;
    }
    on_server(|world| {
        let [first, second, serves] =
            ["first", "second", "serves"].map(|name| world.mount_unix(name));
        let folders = [&first, &second, &serves].map(folder_of);
        assert!(folders.iter().all(|folder| folder.join("control.sock").exists()), "{folders:?}");
        world.kill(&first);
        world.kill(&second);
        // A dead mount is found by its folder until it is unmounted.
        let other = world.mount_unix("other");
        assert!(folders.iter().all(|folder| folder.exists()));
        unmounted(world, &first);
        assert_eq!(folders.each_ref().map(|folder| folder.exists()), [false, true, true]);
        // Detached by another program: the next mount removes what is left.
        unmount(&second.point, UnmountFlags::DETACH).unwrap();
        let next = folder_of(&world.mount_unix("next"));
        // The next mount may have got the device number of one that is gone.
        let stays = |folder: &PathBuf| folder.exists() && *folder != next;
        assert_eq!(folders.each_ref().map(stays), [false, false, true]);
        for mount in [&serves, &other] {
            world.pelago(&["status", mount.point.to_str().unwrap()]).expect_success();
        }
    });
}

/// A mount whose control socket is gone is only detached if its process lives: what programs have
/// open goes on.
#[test]
fn an_unmount_of_a_living_mount_without_its_socket_leaves_open_files() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root for /run/pelago");
        return;
    }
    on_server(|world| {
        let mount = world.mount_unix("living");
        let mut file = File::create(mount.path("file")).unwrap();
        fs::remove_file(folder_of(&mount).join("control.sock")).unwrap();
        world.unmount(&mount);
        assert!(!mount.path("file").exists());
        file.write_all(b"still here").unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(world.volume.files().join("file")).unwrap(), b"still here");
    });
}
