# A small crate: created, built, tested, and built again, which must compile nothing. Our own build
# settings do not apply. The test of the crate runs the binary that was linked on the volume.

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
if grep Compiling "$SCRATCH/again"; then echo 'the second build compiled something'; exit 1; fi
