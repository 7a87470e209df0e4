//! A small crate: made, built, tested, and built again, which has to find nothing to do.

use crate::mounted::Mounted;

/// Nothing of the build that runs us; its own test runs the binary that was linked on the volume.
const SCRIPT: &str = r#"
    unset CARGO_TARGET_DIR RUSTFLAGS
    cargo=${CARGO:-cargo}
    "$cargo" new --vcs none tiny
    cd tiny
    mkdir tests
    cat > tests/hello.rs <<'END'
#[test]
fn says_hello() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tiny")).output().unwrap();
    assert_eq!(output.stdout, b"Hello, world!\n");
}
END
    "$cargo" build --offline
    "$cargo" test --offline
    "$cargo" build --offline 2> "$SCRATCH/again"
    if grep Compiling "$SCRATCH/again"; then echo 'what was built is built again'; exit 1; fi
"#;

/// Makes, builds, tests, builds.
pub(super) fn run(volume: &Mounted) -> Result<(), String> {
    volume.shell("cargo", SCRIPT).map(|_| ())
}
