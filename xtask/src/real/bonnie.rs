//! bonnie++: 2 GiB of one file in several access patterns, then 16,384 files created, read and
//! removed.

use crate::mounted::Mounted;

/// bonnie++ runs as root only with `-u`.
const SCRIPT: &str = r#"
    mkdir bonnie
    if [ "$(id -u)" = 0 ]; then user="-u root"; else user=; fi
    bonnie++ -d bonnie -s 2048 -r 1024 -n 16 $user
    test -z "$(ls -A bonnie)"
"#;

/// Runs bonnie++; its figures stay in the log.
pub(super) fn run(volume: &Mounted) -> Result<(), String> {
    volume.shell("bonnie", SCRIPT).map(|_| ())
}
