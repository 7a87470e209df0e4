//! Commands of a ring (`fuse_uring_cmd`).

use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::squeue::Entry128;
use io_uring::{opcode, types};

use super::memory::Memory;
use crate::bytes::Layout;

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;
/// Bytes of the place for `fuse_uring_cmd_req`.
const COMMAND_BYTES: usize = 80;
/// Parts of the memory of a slot: headers and payload.
const PARTS: u32 = 2;
/// Offset of `len` in a submission (`io_uring_sqe`).
const LENGTH: usize = 24;

/// Returns the command that offers a slot to a queue of the kernel.
pub(super) fn register(device: BorrowedFd<'_>, queue: u16, memory: &Memory) -> Entry128 {
    let command = opcode::UringCmd80::new(types::Fd(device.as_raw_fd()), REGISTER)
        .cmd(request(0, queue))
        .addr(Some(memory.parts()));
    with_length(command.build(), PARTS)
}

/// Returns the command that sends the reply in a slot, and offers the slot again.
pub(super) fn commit(device: BorrowedFd<'_>, queue: u16, commit: u64) -> Entry128 {
    let command = opcode::UringCmd80::new(types::Fd(device.as_raw_fd()), COMMIT_AND_FETCH);
    command.cmd(request(commit, queue)).build()
}

/// Returns the command that completes each time a descriptor becomes readable.
pub(super) fn watch(descriptor: &impl AsRawFd) -> Entry128 {
    let descriptor = types::Fd(descriptor.as_raw_fd());
    opcode::PollAdd::new(descriptor, POLLIN).multi(true).build().into()
}

/// `POLLIN`.
const POLLIN: u32 = 1;

/// Encodes `fuse_uring_cmd_req`.
fn request(commit: u64, queue: u16) -> [u8; COMMAND_BYTES] {
    let mut layout = Layout::new();
    layout.u64(0).u64(commit).u16(queue).padding(COMMAND_BYTES - 18);
    *layout.done()
}

/// Sets `len`, which the builder of these commands does not know.
#[expect(unsafe_code, reason = "the crate has no method for this field")]
fn with_length(mut command: Entry128, length: u32) -> Entry128 {
    // SAFETY: the value is an `io_uring_sqe` of 128 bytes, in which this field is a `u32`.
    unsafe { (&raw mut command).cast::<u8>().add(LENGTH).cast::<u32>().write(length) };
    command
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::bytes::Cursor;

    /// Returns the bytes of a command.
    #[expect(unsafe_code, reason = "the crate shows no bytes")]
    fn bytes(command: Entry128) -> [u8; 128] {
        // SAFETY: an `io_uring_sqe` of 128 bytes, all of which are initialised.
        unsafe { std::mem::transmute(command) }
    }

    #[test]
    fn commands_have_the_layout_of_the_kernel() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let memory = Memory::new(8192).unwrap();
        let offered = bytes(register(null.as_fd(), 3, &memory));
        assert_eq!(offered[0], 46, "IORING_OP_URING_CMD");
        let read = |bytes: &[u8; 128], at: usize| Cursor::new(&bytes[at..]).u64().unwrap();
        let half = u64::from(u32::MAX);
        assert_eq!(read(&offered, 8) & half, 1);
        assert_eq!(read(&offered, 16), memory.parts());
        assert_eq!(read(&offered, 24) & half, 2);
        assert_eq!(read(&offered, 64), 3);
        let sent = bytes(commit(null.as_fd(), 3, 77));
        assert_eq!((read(&sent, 8) & half, read(&sent, 56), read(&sent, 64)), (2, 77, 3));
    }
}
