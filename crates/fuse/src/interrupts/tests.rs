//! An interrupt reaches the file system once its request is known there, or goes back.

use std::os::unix::net::UnixDatagram;

use super::*;
use crate::bytes::Cursor;

const EARLY: Interrupt = Interrupt { number: 9, request: 8 };

/// Knows the requests it was told of, and records each question about one.
#[derive(Default)]
struct Waiting {
    known: Mutex<Vec<u64>>,
    asked: Mutex<Vec<u64>>,
    /// A request that becomes known right after the first question about it.
    racing: Mutex<Option<u64>>,
}

impl Waiting {
    fn interrupt(&self, unique: u64) -> bool {
        self.asked.lock().push(unique);
        let mut known = self.known.lock();
        let is_known = known.contains(&unique);
        known.extend(self.racing.lock().take());
        is_known
    }
}

/// A connection, and the kernel's end of each of its descriptors.
fn connection<const DEVICES: usize>() -> (Interrupts, [(UnixDatagram, Arc<Device>); DEVICES]) {
    let interrupts = Interrupts::default();
    let devices = [(); DEVICES].map(|()| {
        let (kernel, device) = UnixDatagram::pair().unwrap();
        kernel.set_nonblocking(true).unwrap();
        let device = Arc::new(Device::new(device.into()));
        interrupts.add_device(&device);
        interrupts.add_device(&device);
        (kernel, device)
    });
    (interrupts, devices)
}

/// Returns error and number of each message that the kernel has got.
fn received(kernel: &UnixDatagram) -> Vec<(i32, u64)> {
    let mut found = Vec::new();
    let mut message = [0; 64];
    while let Ok(length) = kernel.recv(&mut message) {
        let mut cursor = Cursor::new(&message[..length]);
        assert_eq!((cursor.u32().unwrap(), length), (16, 16));
        found.push((cursor.i32().unwrap(), cursor.u64().unwrap()));
    }
    found
}

#[test]
fn an_interrupt_before_its_request_is_delivered_after_it() {
    let (interrupts, [(kernel, _device)]) = connection();
    let filesystem = Waiting::default();
    interrupts.received(EARLY, |request| filesystem.interrupt(request));
    filesystem.asked.lock().clear();
    filesystem.known.lock().push(EARLY.request);
    interrupts.called(EARLY.request, |request| filesystem.interrupt(request));
    assert_eq!(*filesystem.asked.lock(), [EARLY.request]);
    interrupts.called(EARLY.request, |request| filesystem.interrupt(request));
    assert_eq!(*filesystem.asked.lock(), [EARLY.request], "delivered once");
    assert_eq!(received(&kernel), []);
}

/// The file system may still be about to keep the request, on a thread of its own.
#[test]
fn an_interrupt_that_is_unknown_after_its_request_goes_back() {
    let (interrupts, [(kernel, _device)]) = connection();
    let filesystem = Waiting::default();
    interrupts.received(EARLY, |request| filesystem.interrupt(request));
    interrupts.called(EARLY.request, |request| filesystem.interrupt(request));
    assert_eq!(received(&kernel), [(-Errno::AGAIN.raw_os_error(), EARLY.number)]);
}

#[test]
fn an_interrupt_of_a_known_request_is_not_kept() {
    let (interrupts, [(kernel, _device)]) = connection();
    let filesystem = Waiting::default();
    filesystem.known.lock().push(EARLY.request);
    interrupts.received(EARLY, |request| filesystem.interrupt(request));
    interrupts.called(6, |request| filesystem.interrupt(request));
    assert_eq!(*filesystem.asked.lock(), [EARLY.request]);
    assert_eq!(received(&kernel), []);
}

/// The call with the request ends between the first question and the keeping.
#[test]
fn an_interrupt_beside_its_request_is_delivered() {
    let (interrupts, [(kernel, _device)]) = connection();
    let filesystem = Waiting::default();
    *filesystem.racing.lock() = Some(EARLY.request);
    interrupts.received(EARLY, |request| filesystem.interrupt(request));
    assert_eq!(*filesystem.asked.lock(), [EARLY.request; 2]);
    interrupts.called(6, |request| filesystem.interrupt(request));
    assert_eq!(received(&kernel), [], "it was taken out again");
}

/// The kernel repeats it if its request is still unanswered.
#[test]
fn a_call_with_another_request_sends_interrupts_back() {
    let (interrupts, [(kernel, _device)]) = connection();
    let filesystem = Waiting::default();
    let other = Interrupt { number: 11, request: 10 };
    interrupts.received(EARLY, |request| filesystem.interrupt(request));
    interrupts.received(other, |request| filesystem.interrupt(request));
    interrupts.called(6, |request| filesystem.interrupt(request));
    let again = -Errno::AGAIN.raw_os_error();
    assert_eq!(received(&kernel), [(again, EARLY.number), (again, other.number)]);
    interrupts.called(6, |request| filesystem.interrupt(request));
    assert_eq!(received(&kernel), [], "nothing is left");
}

/// A descriptor that refuses, or is closed, leaves the others.
#[test]
fn an_interrupt_goes_back_to_the_descriptor_that_takes_it() {
    let (interrupts, [closed, (refusing, _device), (kernel, _other), (last, _last)]) = connection();
    drop((closed, refusing));
    let filesystem = Waiting::default();
    interrupts.received(EARLY, |request| filesystem.interrupt(request));
    interrupts.called(6, |request| filesystem.interrupt(request));
    assert_eq!(received(&kernel), [(-Errno::AGAIN.raw_os_error(), EARLY.number)]);
    assert_eq!(received(&last), []);
}

#[test]
fn what_is_kept_is_bounded() {
    let (interrupts, [(_kernel, _device)]) = connection();
    let filesystem = Waiting::default();
    for request in 0..2 * KEPT as u64 {
        interrupts.received(Interrupt { number: request, request }, |request| {
            filesystem.interrupt(request)
        });
    }
    assert_eq!(interrupts.kept.lock().len(), KEPT);
}
