//! Searches in each kind of mount, which find files that other mounts have created.

use std::fs;

use crate::far::on_world;
use crate::harness::program::until;

#[test]
fn each_mount_finds_what_others_have_made() {
    on_world(|world| {
        let roots = world.roots();
        for (index, root) in roots.iter().enumerate() {
            let dir = format!("d{index}");
            fs::create_dir(root.join(&dir)).unwrap();
            fs::write(root.join(&dir).join("note"), &dir).unwrap();
        }
        for root in &roots {
            let path = root.to_str().unwrap();
            let ran = world.pelago(&["find", "name=note", path]).expect_success();
            let mut found: Vec<&str> = ran.out.lines().collect();
            found.sort_unstable();
            let expected: Vec<String> =
                (0..roots.len()).map(|index| format!("{path}/d{index}/note")).collect();
            assert_eq!(found, expected);
            for index in 0..roots.len() {
                let link = root.join(format!("d{index}/.find/kind=file/note"));
                assert_eq!(fs::read_to_string(link).unwrap(), format!("d{index}"));
            }
            assert_eq!(fs::read_dir(root.join(".find/name=note")).unwrap().count(), roots.len());
        }
    });
}

/// The kernel of another mount knows the hidden folder, for a second.
#[test]
fn a_real_file_of_a_hidden_name_is_seen_by_each_mount() {
    on_world(|world| {
        let roots = world.roots();
        let made = roots[0].join("made");
        for other in &roots[1..] {
            let hidden = || fs::metadata(other.join(".find/kind=dir")).is_ok();
            assert!(hidden());
            fs::create_dir(&made).unwrap();
            fs::write(made.join("inside"), "x").unwrap();
            fs::rename(&made, roots[0].join(".find")).unwrap();
            until("the real one is seen", || other.join(".find/inside").exists());
            assert!(!hidden());
            fs::remove_dir_all(other.join(".find")).unwrap();
            until("the hidden one is back", || {
                hidden() && roots[0].join(".find/kind=dir").exists()
            });
        }
    });
}
