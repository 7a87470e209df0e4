//! A small crate: made, built, tested, and built again, which has to find nothing to do.

use std::process::Command;

use crate::mounted::Mounted;
use crate::workspace;

/// Its own test runs the binary that was linked on the volume.
const TEST: &str = r#"#[test]
fn says_hello() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tiny")).output().unwrap();
    assert_eq!(output.stdout, b"Hello, world!\n");
}
"#;

/// Makes, builds, tests, builds.
pub(super) fn run(volume: &Mounted) -> Result<(), String> {
    let tiny = volume.point().join("tiny");
    let cargo = |step: &str, arguments: &[&str], folder: &std::path::Path| {
        let mut command: Command = workspace::cargo(arguments);
        // Nothing of the build that runs us.
        command.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
        volume.step(step, command.current_dir(folder))
    };
    cargo("cargo-new", &["new", "--vcs", "none", "tiny"], &volume.point())?;
    let tests = tiny.join("tests");
    std::fs::create_dir(&tests)
        .and_then(|()| std::fs::write(tests.join("hello.rs"), TEST))
        .map_err(|why| format!("{}: {why}", tests.display()))?;
    cargo("cargo-build", &["build", "--offline"], &tiny)?;
    cargo("cargo-test", &["test", "--offline"], &tiny)?;
    let again = cargo("cargo-build-again", &["build", "--offline"], &tiny)?;
    if again.stderr.contains("Compiling") {
        return Err(format!("what was built is built again:\n{}", again.stderr));
    }
    Ok(())
}
