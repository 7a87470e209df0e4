//! bonnie++: two GiB of one file in every manner, then 16,384 files made, looked at and removed.

use crate::mounted::Mounted;

/// As root it wants to be told that this is meant.
const SCRIPT: &str = r#"
    mkdir bonnie
    if [ "$(id -u)" = 0 ]; then user="-u root"; else user=; fi
    bonnie++ -d bonnie -s 2048 -r 1024 -n 16 $user
    test -z "$(ls -A bonnie)"
"#;

/// Runs it; its figures stay in the log.
pub(super) fn run(volume: &Mounted) -> Result<(), String> {
    volume.shell("bonnie", SCRIPT).map(|_| ())
}
