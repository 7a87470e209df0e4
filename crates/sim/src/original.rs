//! The functions of the C library that [`crate::system`] stands in for, as they are.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::pollfd;

/// A function of the library.
pub(crate) struct Original {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Original {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        assert!(!found.is_null(), "the library has {:?}", self.name);
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls a function of the library with the type that it has.
macro_rules! original {
    ($name:literal, fn($($of:ty),*) -> $result:ty, ($($argument:expr),*)) => {{
        static ORIGINAL: $crate::original::Original = $crate::original::Original::new($name);
        // SAFETY: it is a function of this type; its arguments are those of its caller.
        unsafe {
            let address = ORIGINAL.address();
            let function: extern "C" fn($($of),*) -> $result = std::mem::transmute(address);
            function($($argument),*)
        }
    }};
}

pub(crate) use original;

/// An argument of a system call.
pub(crate) type Word = c_long;

pub(crate) fn syscall_for_real(number: Word, a: [Word; 6]) -> Word {
    original!(
        c"syscall",
        fn(Word, Word, Word, Word, Word, Word, Word) -> Word,
        (number, a[0], a[1], a[2], a[3], a[4], a[5])
    )
}

/// Waits until the word is not 0, or for less.
pub(crate) fn wait_for_real(word: &AtomicU32) {
    let wait = Word::from(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
    syscall_for_real(libc::SYS_futex, [word.as_ptr() as Word, wait, 0, 0, 0, 0]);
}

/// Wakes the thread that waits for this word.
pub(crate) fn wake_for_real(word: &AtomicU32) {
    let wake = Word::from(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
    syscall_for_real(libc::SYS_futex, [word.as_ptr() as Word, wake, 1, 0, 0, 0]);
}

/// Returns the number that the kernel has for this thread.
pub(crate) fn thread_id() -> Word {
    syscall_for_real(libc::SYS_gettid, [0; 6])
}

/// Waits until a thread of this process has left the kernel, with all that it does at its end.
pub(crate) fn wait_for_exit(thread: Word) {
    let process = Word::from(std::process::id());
    // Signal 0 only asks whether there is such a thread.
    while syscall_for_real(libc::SYS_tgkill, [process, thread, 0, 0, 0, 0]) == 0 {
        syscall_for_real(libc::SYS_sched_yield, [0; 6]);
    }
}

/// Returns which of these epoll descriptors have events.
pub(crate) fn have_events(epolls: &[c_int]) -> Vec<bool> {
    let poll = |fd: &c_int| pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<pollfd> = epolls.iter().map(poll).collect();
    if !polled.is_empty() {
        let all = polled.as_mut_ptr() as Word;
        let count = polled.len() as Word;
        syscall_for_real(libc::SYS_poll, [all, count, 0, 0, 0, 0]);
    }
    polled.iter().map(|polled| polled.revents != 0).collect()
}

/// Starts the program anew, once, so that things have the same addresses in each run: the order in
/// which threads that wait for locks are woken depends on those.
pub(crate) fn fix_addresses() {
    // SAFETY: it changes nothing that this process has yet.
    let set = unsafe {
        let present = libc::personality(0xffff_ffff);
        let wanted = present | libc::ADDR_NO_RANDOMIZE;
        present == wanted || libc::personality(wanted.unsigned_abs().into()) < 0
    };
    if !set {
        let own = std::env::current_exe().expect("a path");
        let failed = Command::new(own).args(std::env::args().skip(1)).exec();
        eprintln!("the program cannot be started again: {failed}");
    }
}
